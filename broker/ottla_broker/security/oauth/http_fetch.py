"""One HTTP request by Python's urllib, which the caller waits for.

What the time limit ends is the socket, at whatever step the request is: an answer that comes byte by byte is over then.
Not used: proxies of the environment. An answer is read as it is, without decompression.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPMessage
from typing import IO, Any
from urllib.parse import urlencode, urlsplit

from ottla_broker.ports.http import HttpFailed, HttpRequest, failed

_AGENT = "ottla"
_MOST_REDIRECTS = 5
_BODY_OF_FAILURE = 1024


def fetch(request: HttpRequest) -> bytes:
    """See `ottla_broker.ports.http.Http.fetch`. Raises HttpFailed."""
    guard = _Guard(request.limit_s)
    try:
        return _fetch(request, guard)
    except HttpFailed:
        raise
    except urllib.error.HTTPError as error:
        body = b""
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            body = error.read(_BODY_OF_FAILURE)
        raise failed(request, f"the answer is {error.code}", status=error.code, body=body) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise failed(request, guard.reason or _reason(error)) from None
    finally:
        guard.end()


def _fetch(request: HttpRequest, guard: _Guard) -> bytes:
    form = None if request.form is None else urlencode(request.form).encode()
    asked = urllib.request.Request(
        request.url, form, {"User-Agent": _AGENT, "Accept": "application/json", **request.headers}
    )
    opener = urllib.request.OpenerDirector()
    for handler in (
        _Opener(guard, request),
        _Redirects(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    with opener.open(asked, timeout=request.connect_s) as answer:
        if answer.status != 200:
            raise failed(request, f"the answer is {answer.status}", status=answer.status)
        body: bytes = answer.read(request.most_bytes + 1)
        if len(body) > request.most_bytes:
            raise failed(request, f"the answer is longer than {request.most_bytes} bytes")
        if guard.reason:
            raise failed(request, guard.reason)
        return body


class _Guard:
    """Ends the connection of one request when its time is over."""

    def __init__(self, limit_s: float) -> None:
        self.reason = ""
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(limit_s, self._over)
        self._timer.daemon = True
        self._timer.start()

    def watch(self, connected: socket.socket) -> None:
        """A second descriptor of the socket, which TLS does not take."""
        with self._lock:
            if self.reason:
                raise TimeoutError(self.reason)
            self._sockets.append(connected.dup())

    def end(self) -> None:
        self._timer.cancel()
        with self._lock:
            for one in self._sockets:
                one.close()
            self._sockets.clear()

    def _over(self) -> None:
        with self._lock:
            self.reason = f"no answer within {self._limit_s:g} s"
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)


class _Watched(http.client.HTTPConnection):
    """A connection that a guard ends. `read_s` holds once it is there."""

    guard: _Guard
    read_s: float

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(self.read_s)
        self.guard.watch(self.sock)


class _WatchedTls(http.client.HTTPSConnection, _Watched):
    """HTTPSConnection connects by the class behind it."""


class _Opener(urllib.request.AbstractHTTPHandler):
    def __init__(self, guard: _Guard, request: HttpRequest) -> None:
        super().__init__()
        self._guard = guard
        self._request = request

    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_

    def http_open(self, asked: urllib.request.Request) -> http.client.HTTPResponse:
        return self._open(asked, _Watched)

    def https_open(self, asked: urllib.request.Request) -> http.client.HTTPResponse:
        made = self._request.context
        return self._open(asked, _WatchedTls, **({} if made is None else {"context": made()}))

    def _open(
        self, asked: urllib.request.Request, kind: Callable[..., _Watched], **more: Any
    ) -> http.client.HTTPResponse:
        def connection(host: str, **arguments: Any) -> _Watched:
            made = kind(host, **arguments, **more)
            made.guard, made.read_s = self._guard, self._request.read_s
            return made

        return self.do_open(connection, asked)


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = _MOST_REDIRECTS

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """None: the redirect is the answer. A form, which may have a secret, is sent to nobody else."""
        if req.data is not None or urlsplit(newurl).scheme != req.type:
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _reason(error: Exception) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    text = str(getattr(reason, "strerror", None) or reason)
    return text if isinstance(reason, OSError) and text else f"{type(reason).__name__}: {text}"
