"""LoginTokens: the tokens with which a broker, or a command, logs in. One request for a token at a time.

A token serves all connections until most of its life is over (`security.oauth.logins.RenewalTimes`). If no other one
can be got then, it serves until its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla_broker.ports import Clock
from ottla_broker.ports.http import Http
from ottla_broker.security.oauth.compact import LONGEST_TOKEN
from ottla_broker.security.oauth.files import read_file
from ottla_broker.security.oauth.logins import (
    ClientGrant,
    HeldTokens,
    TokenFile,
    TokenLogin,
    TokenUnavailable,
    held_token,
    unavailable,
)

if TYPE_CHECKING:
    from ssl import SSLContext

    from ottla_broker.security.tls_settings import TlsSettings

logger = logging.getLogger("ottla.security")


class _Failure(NamedTuple):
    """The last one. Whoever waited for it fails with it: a provider that hangs is asked once for all of them."""

    login: TokenLogin
    at: float
    error: TokenUnavailable


class LoginTokens:
    """See the module. Used on one loop."""

    def __init__(self, clock: Clock, http: Http) -> None:
        self._clock = clock
        self._http = http
        self._held = HeldTokens()
        self._failure: _Failure | None = None
        self._asking = asyncio.Lock()
        self._context: tuple[TlsSettings, Callable[[], SSLContext]] | None = None

    async def token(self, login: TokenLogin) -> str:
        """Raises TokenUnavailable."""
        began = self._clock.monotonic()
        async with self._asking:
            held, failure = self._held.of(login, self._clock.now_ms()), self._failure
            if held is not None and held.is_fresh(self._clock.now_ms()):
                return held.text
            if failure is None or failure.at < began or failure.login != login:  # else it has waited for that one
                failure = await self._renew(login)
            held = self._held.of(login, self._clock.now_ms())
            if held is None:
                raise TokenUnavailable(f"the token of {login.username} has ended") if failure is None else failure.error
            return held.text

    async def _renew(self, login: TokenLogin) -> _Failure | None:
        """None: another token is held."""
        try:
            answer = await self._answer(login)
            now_ms = self._clock.now_ms()
            self._held.put(held_token(login, answer, now_ms, self._clock.random.random()), now_ms)
        except TokenUnavailable as error:
            if self._held.of(login, self._clock.now_ms()) is not None:
                logger.warning("the token before is used on: %s", error)
            self._failure = _Failure(login, self._clock.monotonic(), error)
            return self._failure
        return None

    async def _answer(self, login: TokenLogin) -> bytes:
        """Raises TokenUnavailable."""
        origin = login.origin
        try:
            if isinstance(origin, ClientGrant):
                return await self._http.fetch(origin.request(self._context_of(origin.tls)))
            if isinstance(origin, TokenFile):
                return await self._clock.in_thread(read_file, origin.path, LONGEST_TOKEN + 2)
        except OSError as error:
            raise unavailable(login, error) from None
        return origin.token(self._clock.now_ms()).encode()

    def _context_of(self, tls: TlsSettings | None) -> Callable[[], SSLContext] | None:
        if tls is None:
            return None
        if self._context is None or self._context[0] != tls:
            from ottla_broker.security.renewed_context import RenewedContext

            self._context = tls, RenewedContext(tls, "identity provider", logger)
        return self._context[1]
