"""SampledRate: a rate over the last samples, as client quotas measure it. Pure: time comes with each call.

Another measure than `rates.WindowedRate`: a client that has been silent may use up the whole of the samples in one
burst, because time before the first sample counts.

Source: org.apache.kafka.common.metrics.stats.Rate and SampledStat, kafka.utils.QuotaUtils.
"""

from __future__ import annotations

from collections import deque

_LEAST_WINDOW_S = 0.001


class SampledRate:
    """The amount per second over all samples but the present one, and what has passed of that.

    >>> rate = SampledRate(samples=11, sample_s=1.0)
    >>> rate.record(1000, now=50.0)
    >>> rate.measure(50.0), rate.measure(50.5)          # over ten seconds; over ten and a half
    (100.0, 95.23809523809524)
    >>> rate.record(1000, now=52.0)
    >>> rate.window_s(52.0), rate.measure(52.0)         # a silent second is no sample, and counts
    (10.0, 200.0)
    >>> rate.measure(61.0)                              # the first sample is forgotten after eleven seconds
    100.0

    A throttle lasts until the amount is that of the bound, over the window and the throttle:

    >>> rate.throttle_s(bound=50.0, now=61.0)           # 1000 at 50 are 20 s; the window has 10 s
    10.0
    """

    __slots__ = ("_sample_s", "_samples", "_window")

    def __init__(self, samples: int, sample_s: float) -> None:
        """
        Args:
            samples: quota.window.num, the present one included.
            sample_s: quota.window.size.seconds.
        """
        self._samples = samples
        self._sample_s = sample_s
        self._window: deque[list[float]] = deque()
        """[beginning, last record, amount] of each sample, the oldest first."""

    def record(self, amount: float, now: float) -> None:
        """`amount` has passed at `now` (seconds, never before an earlier call). A negative one takes back."""
        window = self._window
        if not window or now - window[-1][0] >= self._sample_s:
            self._forget(now)
            window.append([now, now, 0.0])
        sample = window[-1]
        sample[1] = now
        sample[2] += amount

    def measure(self, now: float) -> float:
        """The amount per second."""
        window_s = self.window_s(now)
        return sum(sample[2] for sample in self._window) / window_s

    def window_s(self, now: float) -> float:
        """The seconds that the measure is over."""
        self._forget(now)
        window, sample_s = self._window, self._sample_s
        elapsed = now - window[0][0] if window else 0.0
        missing = self._samples - 1 - int(elapsed / sample_s)
        return max(elapsed + max(missing, 0) * sample_s, _LEAST_WINDOW_S)

    def throttle_s(self, bound: float, now: float) -> float:
        """Seconds by which the window is too short for what was recorded; 0 while the measure is at most `bound`.

        Infinity for a bound of 0, and 0 for one below 0 or that is not a number: the arithmetic of Apache Kafka.
        """
        observed = self.measure(now)
        if not (observed > bound >= 0):
            return 0.0
        return (observed - bound) / bound * self.window_s(now) if bound else float("inf")

    def _forget(self, now: float) -> None:
        """Drops the samples whose last record is out of the window. One that overlaps it is kept whole."""
        window = self._window
        while window and now - window[0][1] >= self._samples * self._sample_s:
            window.popleft()
