"""TokenKeys: the keys with which one identity provider signs tokens, fetched outside of the loop, and refreshed.

    start: fetched once, before listeners open; a failure keeps no broker from starting
    then   each sasl.oauthbearer.jwks.endpoint.refresh.ms; after a failure sooner; for a key that is unknown at once,
           as often as `security.oauth.key_refreshes` allows

Whatever fails leaves the keys before in force, with one line in the log and a count.

Source: org.apache.kafka.common.security.oauthbearer.internals.secured.RefreshingHttpsJwks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla_broker.ports import Clock
from ottla_broker.ports.clock import Timer
from ottla_broker.ports.http import Http, HttpFailed, HttpRequest
from ottla_broker.security.oauth.claims import Bearer, check_claims
from ottla_broker.security.oauth.compact import CompactToken
from ottla_broker.security.oauth.files import read_file
from ottla_broker.security.oauth.key_refreshes import MissingKeys
from ottla_broker.security.oauth.validation import SignedTokens

if TYPE_CHECKING:
    from ssl import SSLContext

    from ottla_broker.security.oauth.signatures import KeySetError, VerificationKeys

logger = logging.getLogger("ottla.security")

MOST_BYTES: Final = 1024 * 1024
_LIMIT_S: Final = 10.0


class TokenKeys:
    """The keys of one listener. See the module.

    Args:
        what: it is, for messages.
        failed: counts fetches that gave no keys.
    """

    def __init__(self, settings: SignedTokens, clock: Clock, http: Http, what: str, failed: Callable[[], None]) -> None:
        from ottla_broker.security.oauth.signatures import VerificationKeys

        self.settings = settings
        self._clock = clock
        self._http = http
        self._what = what
        self._count_failure = failed
        self._context: Callable[[], SSLContext] | None = None
        if settings.tls is not None:
            from ottla_broker.security.renewed_context import RenewedContext

            self._context = RenewedContext(settings.tls, f"{what}: identity provider", logger)
        self._keys: VerificationKeys = VerificationKeys()
        self._fetched_at: float | None = None
        self._failures = 0
        self._refusal = ""
        self._missing = MissingKeys()
        self._is_fetching = True
        """Or is about to: a key that is unknown then is asked for by the next token."""
        self._is_closed = False
        self._timer: Timer | None = None

    @property
    def age_s(self) -> float:
        """How long ago the keys in force were fetched; infinite before the first time."""
        return float("inf") if self._fetched_at is None else self._clock.monotonic() - self._fetched_at

    async def start(self) -> None:
        """Fetches the keys, and from now on again and again."""
        await self._fetch()

    def close(self) -> None:
        """Fetches no more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def check(self, token: CompactToken) -> Bearer:
        """Who has shown a token. Raises TokenError."""
        from ottla_broker.security.oauth.signatures import UnknownKey

        try:
            self._keys.check(token)
        except UnknownKey as error:
            if not self._is_fetching and self._missing.may_ask(error.key_id, self._clock.monotonic()):
                self._fetch_soon()
            raise
        return check_claims(token.claims, self.settings.rules, self._clock.now_ms() / 1000)

    def _fetch_soon(self) -> None:
        if not self._is_closed:
            if self._timer is not None:
                self._timer.cancel()
            self._is_fetching = True
            self._clock.spawn(self._fetch(), name="keys of tokens")

    async def _fetch(self) -> None:
        from ottla_broker.security.oauth.signatures import KeySetError, read_keys

        try:
            keys = await self._clock.in_thread(read_keys, await self._content())
        except (OSError, KeySetError) as error:
            self._refused(error)
        except Exception:
            self._failures += 1
            self._count_failure()
            logger.exception("%s: the keys of tokens were not fetched, and are fetched again", self._what)
        else:
            self._taken(keys)
        finally:
            self._is_fetching = False
        if not self._is_closed:
            self._timer = self._clock.call_later(self.settings.times.delay_s(self._failures), self._fetch_soon)

    async def _content(self) -> bytes:
        address = self.settings.address
        if address.path:
            return await self._clock.in_thread(read_file, address.path, MOST_BYTES)
        return await self._http.fetch(
            HttpRequest(address.url, _LIMIT_S, MOST_BYTES, _LIMIT_S, _LIMIT_S, context=self._context)
        )

    def _taken(self, keys: VerificationKeys) -> None:
        if self._fetched_at is None or self._failures or keys.ids != self._keys.ids:
            logger.info("%s: %d keys of tokens are in force", self._what, len(keys))
        self._keys, self._fetched_at, self._failures, self._refusal = keys, self._clock.monotonic(), 0, ""

    def _refused(self, error: OSError | KeySetError) -> None:
        self._failures += 1
        self._count_failure()
        address = self.settings.address
        said = str(error)
        if isinstance(error, OSError) and not isinstance(error, HttpFailed):
            said = f"{address.path}: {error.strerror}"
        elif isinstance(error, ValueError):
            said = f"{address.path or 'the answer of the identity provider'}: {said}"
        if said != self._refusal:
            stay = "stay as they were" if self._fetched_at is not None else "are missing, and nobody gets in by a token"
            logger.error("%s: the keys of tokens %s: %s", self._what, stay, said)
        self._refusal = said
