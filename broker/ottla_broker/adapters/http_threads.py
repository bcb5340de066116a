"""The Http port: each request in a thread of its own, which waits for it (`ottla_broker.security.oauth.http_fetch`).

A thread, because urllib blocks; its own, because the lookup of a name cannot be ended, and others wait for the loop's
threads. urllib is loaded by the first request.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading

from ottla_broker.ports.http import HttpRequest, failed


class ThreadHttp:
    """See `ottla_broker.ports.http.Http`. Used on one loop."""

    async def fetch(self, request: HttpRequest) -> bytes:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[bytes] = loop.create_future()

        def done(body: bytes | None, error: BaseException | None) -> None:
            if not outcome.done():
                if error is None:
                    outcome.set_result(body or b"")
                else:
                    outcome.set_exception(error)

        def run() -> None:
            body, failure = None, None
            try:
                from ottla_broker.security.oauth.http_fetch import fetch

                body = fetch(request)
            except BaseException as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(done, body, failure)

        threading.Thread(target=run, name="http", daemon=True).start()
        try:
            async with asyncio.timeout(request.limit_s + 1):
                return await outcome
        except TimeoutError:
            raise failed(request, f"no answer within {request.limit_s:g} s") from None
