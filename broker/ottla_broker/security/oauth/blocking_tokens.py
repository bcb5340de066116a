"""BlockingTokens: the tokens with which a client that blocks logs in. Not for a loop: see `server.peers.login_tokens`.

A token serves all connections until most of its life is over. If no other one can be got then, it serves until its end.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla_broker.security.oauth.compact import LONGEST_TOKEN
from ottla_broker.security.oauth.files import read_file
from ottla_broker.security.oauth.logins import (
    ClientGrant,
    HeldTokens,
    TokenFile,
    TokenLogin,
    held_token,
    unavailable,
)

if TYPE_CHECKING:
    from ssl import SSLContext

logger = logging.getLogger("ottla.security")


class BlockingTokens:
    """See the module. Used by any thread, for any logins."""

    def __init__(self) -> None:
        self._held = HeldTokens()
        self._lock = threading.Lock()

    def token(self, login: TokenLogin) -> str:
        """Raises TokenUnavailable."""
        with self._lock:
            held = self._held.of(login, _now_ms())
            if held is not None and held.is_fresh(_now_ms()):
                return held.text
            try:
                made = held_token(login, _answer(login), _now_ms(), random.random())
            except OSError as error:
                held = self._held.of(login, _now_ms())  # it may have ended meanwhile
                if held is None:
                    raise
                logger.warning("the token before is used on: %s", error)
                return held.text
            self._held.put(made, _now_ms())
            return made.text


def _answer(login: TokenLogin) -> bytes:
    """Raises TokenUnavailable."""
    origin = login.origin
    try:
        if isinstance(origin, ClientGrant):
            from ottla_broker.security.oauth.http_fetch import fetch

            return fetch(origin.request(_context(origin)))
        if isinstance(origin, TokenFile):
            return read_file(origin.path, LONGEST_TOKEN + 2)
    except OSError as error:
        raise unavailable(login, error) from None
    return origin.token(_now_ms()).encode()


def _context(origin: ClientGrant) -> Callable[[], SSLContext] | None:
    if origin.tls is None:
        return None
    from ottla_broker.security.renewed_context import RenewedContext

    return RenewedContext(origin.tls, "identity provider", logger)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
