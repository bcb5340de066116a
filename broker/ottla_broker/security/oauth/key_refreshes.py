"""When the keys of tokens are fetched again: from time to time, after a failure, for a key that nobody knows. Pure.

A token may name any key, so that each would be a request to the identity provider: one that is missing is asked for
again only after a minute, and all of them together once in ten seconds.

Source: org.apache.kafka.common.security.oauthbearer.internals.secured.RefreshingHttpsJwks, Retry.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

_AGAIN_S: Final = 60.0
_BETWEEN_S: Final = 10.0
_MOST_KEPT: Final = 16
_LONGEST_ID: Final = 1000
"""In characters; a longer one is nobody's."""


@dataclass(frozen=True, slots=True)
class RefreshTimes:
    """The keys sasl.oauthbearer.jwks.endpoint.refresh.ms, .retry.backoff.ms and .retry.backoff.max.ms."""

    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int

    def delay_s(self, failures: int) -> float:
        """Until the next fetch.

        Args:
            failures: one behind another, up to now.

        >>> times = RefreshTimes(3_600_000, 100, 10_000)
        >>> [times.delay_s(failures) for failures in (0, 1, 2, 7, 8, 99)]
        [3600.0, 0.1, 0.2, 6.4, 10.0, 10.0]
        """
        if not failures:
            return max(self.refresh_ms, 1000) / 1000
        wait_ms = min(self.backoff_ms << min(failures - 1, 30), self.backoff_max_ms)
        return max(wait_ms, 1) / 1000


class MissingKeys:
    """Which keys have been asked for. Times are those of Clock.monotonic."""

    def __init__(self) -> None:
        self._asked: OrderedDict[str, float] = OrderedDict()
        self._last = -_BETWEEN_S

    def may_ask(self, key_id: str, now: float) -> bool:
        """Whether the keys are to be fetched for it; then it counts as asked.

        >>> missing = MissingKeys()
        >>> [missing.may_ask("k1", now) for now in (100, 159, 160)], missing.may_ask("k2", 165)
        ([True, False, True], False)
        """
        if not key_id or len(key_id) > _LONGEST_ID or now - self._last < _BETWEEN_S:
            return False
        asked = self._asked.get(key_id)
        if asked is not None and now - asked < _AGAIN_S:
            return False
        self._asked[key_id] = self._last = now
        self._asked.move_to_end(key_id)
        if len(self._asked) > _MOST_KEPT:
            self._asked.popitem(last=False)
        return True
