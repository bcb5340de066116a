"""TokenBucket: the measure of controller mutations (KIP-599). Pure: time comes with each call.

Source: org.apache.kafka.common.metrics.stats.TokenBucket.
"""

from __future__ import annotations


class TokenBucket:
    """Tokens that come back at the rate of a quota, up to a burst of what comes back in all samples.

    A charge may take more than there is: the tokens are then below 0, and the next charge waits until they are not.

    >>> bucket = TokenBucket(burst_s=11.0)
    >>> bucket.tokens(rate=5.0, now=0.0)
    55.0
    >>> bucket.take(60, rate=5.0, now=0.0)
    >>> bucket.tokens(5.0, now=0.0), bucket.throttle_s(5.0, now=0.0), bucket.throttle_s(5.0, now=1.0)
    (-5.0, 1.0, 0.0)
    """

    __slots__ = ("_burst_s", "_tokens", "_updated")

    def __init__(self, burst_s: float) -> None:
        """
        Args:
            burst_s: controller.quota.window.num times controller.quota.window.size.seconds.
        """
        self._burst_s = burst_s
        self._tokens: float | None = None
        self._updated = 0.0

    def tokens(self, rate: float, now: float) -> float:
        """What is left, with the tokens that have come back until `now` (seconds)."""
        burst = rate * self._burst_s
        tokens = burst if self._tokens is None else min(burst, self._tokens + rate * (now - self._updated))
        self._tokens, self._updated = tokens, now
        return tokens

    def take(self, amount: float, rate: float, now: float) -> None:
        self._tokens = min(rate * self._burst_s, self.tokens(rate, now) - amount)

    def throttle_s(self, rate: float, now: float) -> float:
        """Seconds until the tokens are no longer below 0; infinity when none come back."""
        tokens = self.tokens(rate, now)
        if not tokens < 0:  # a rate that is not a number gives tokens that are none: no throttle, as in Apache Kafka
            return 0.0
        return -tokens / rate if rate > 0 else float("inf")
