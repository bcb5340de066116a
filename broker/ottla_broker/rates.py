"""A rate over the last few windows of time, as Kafka's quotas measure it. Pure: the time comes with each call.

Lives here: the measure that throttles of replication share (KIP-73). Not here: what is done about it.
"""

from __future__ import annotations

from collections import deque


class WindowedRate:
    """The amount per second of the last `windows` windows of `window_s` seconds, the present one included.

    The time counted is that since the oldest window began, at least one window: a burst after silence is not spread
    over silence.

        >>> rate = WindowedRate(windows=3, window_s=1.0)
        >>> rate.record(300, now=10.0)
        >>> rate.measure(10.1), rate.measure(12.0)
        (300.0, 150.0)
        >>> rate.record(300, now=12.0)
        >>> rate.measure(12.5)
        240.0
        >>> rate.measure(13.0), rate.measure(15.0)      # the first window is over, then both
        (300.0, 0.0)

    A bound is kept by waiting until the measure has come down to it:

        >>> rate.record(1000, now=20.0)
        >>> rate.wait_s(500, now=20.5)                  # 1000 over 2 seconds
        1.5
        >>> rate.measure(22.0)
        500.0
        >>> rate.wait_s(100, now=20.5)                  # the window is forgotten before
        2.5
    """

    __slots__ = ("_samples", "_total", "_window_s", "_windows")

    def __init__(self, windows: int, window_s: float) -> None:
        self._windows = windows
        self._window_s = window_s
        self._samples: deque[list[float]] = deque()
        """[beginning, amount] of each window, the oldest first."""
        self._total = 0.0

    def record(self, amount: float, now: float) -> None:
        """`amount` has passed at `now` (seconds, never before an earlier call)."""
        self._forget(now)
        samples = self._samples
        if not samples or now - samples[-1][0] >= self._window_s:
            samples.append([now, 0.0])
        samples[-1][1] += amount
        self._total += amount

    def measure(self, now: float) -> float:
        """The amount per second."""
        self._forget(now)
        if not self._samples:
            return 0.0
        return self._total / max(now - self._samples[0][0], self._window_s)

    def wait_s(self, bound: float, now: float) -> float:
        """Seconds until the measure is at most `bound`, or the oldest window is forgotten, when nothing more passes."""
        if self.measure(now) <= bound:
            return 0.0
        began = self._samples[0][0]
        forgotten = began + self._windows * self._window_s
        return (forgotten if bound <= 0 else min(forgotten, began + self._total / bound)) - now

    def _forget(self, now: float) -> None:
        samples = self._samples
        while samples and now - samples[0][0] >= self._windows * self._window_s:
            self._total -= samples.popleft()[1]
        if not samples:
            self._total = 0.0
