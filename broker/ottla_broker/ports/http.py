"""The Http port: asks identity providers, outside of the loop, within a time and a size.

Only what a broker asks others for: their keys, and a token of its own. What it answers over HTTP is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from ssl import SSLContext


class HttpFailed(OSError):
    """No answer that can be used. The message has the address without its query, and no header and no body.

    Args:
        status: of the answer; 0 without one.
        body: the start of the answer.
    """

    def __init__(self, message: str, *, status: int = 0, body: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A GET, or a POST where it has a form.

    Args:
        url: of http or https, well formed (`security.oauth.addresses`).
        limit_s: seconds for all of it, from the lookup of the name to the last byte.
        most_bytes: of the answer.
        connect_s, read_s: seconds for a connection, and for the next bytes of it.
        headers: beside those that every request has; they may be secret.
        form: the body, application/x-www-form-urlencoded.
        context: makes the TLS of https; None for the authorities of the system. It may read files.
    """

    url: str
    limit_s: float
    most_bytes: int
    connect_s: float
    read_s: float
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    form: Mapping[str, str] | None = field(default=None, repr=False)
    context: Callable[[], SSLContext] | None = field(default=None, repr=False)


def failed(request: HttpRequest, reason: str, *, status: int = 0, body: bytes = b"") -> HttpFailed:
    """What a request raises.

    >>> str(failed(HttpRequest("https://u:p@idp.example/keys?a=b", 1, 1, 1, 1), "no answer"))
    'https://idp.example/keys: no answer'
    """
    found = urlsplit(request.url)
    host = found.netloc.rpartition("@")[2]
    return HttpFailed(f"{found.scheme}://{host}{found.path}: {reason}", status=status, body=body)


class Http(Protocol):
    """See the module."""

    async def fetch(self, request: HttpRequest) -> bytes:
        """The body of an answer of status 200.

        A GET follows redirects of the same scheme, five at most.

        Raises:
            HttpFailed: another status, no answer in time, a longer one, or a failure of the connection.
        """
        ...


class NoHttp:
    """Reaches nobody: for a process that has no such adapter."""

    async def fetch(self, request: HttpRequest) -> bytes:
        raise HttpFailed("this process does not reach others by HTTP")
