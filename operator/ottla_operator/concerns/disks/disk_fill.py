"""When log directories will be full, from the free bytes that brokers have reported over the last day. Pure.

The rate is that between the fewest free bytes of the first and of the second half of the time, so that what producers
write before retention deletes as much again does not count. A warning says within how many hours, in steps: a number
that changes with each look would be a write with each look. A shorter step is taken at once, a longer one only with
half as much again.

    >>> history = FreeSpaceHistory()
    >>> for minute in range(0, 65, 5):
    ...     history.add(("d0", "100Gi"), minute * 60.0, 10_000 - 10 * minute)
    >>> hours_until_full(history.samples["d0", "100Gi"])
    15.666666666666666
    >>> history.warning(("d0", "100Gi"))
    24
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

WARNING_HOURS = (1, 3, 6, 12, 24)
SAMPLE_S = 300.0
WINDOW_S = 86_400.0
SHORTEST_S = 1800.0
"""Nothing is said about a rate before samples span this time."""
RELIEF = 1.5


@dataclass(slots=True)
class FreeSpaceHistory:
    """The samples of each log directory: (seconds, free bytes). It is in memory; a new process begins again, and knows
    no rate before `spans_a_rate`.

    A key has the capacity of the volume in it, so that a volume that has grown begins with a new history.
    """

    samples: dict[Hashable, list[tuple[float, int]]] = field(default_factory=dict)
    _warnings: dict[Hashable, int] = field(default_factory=dict)
    _began_s: float | None = None

    def add(self, key: Hashable, now_s: float, free_bytes: int) -> None:
        """Notes the free bytes, unless the last sample is younger than SAMPLE_S."""
        if self._began_s is None:
            self._began_s = now_s
        kept = self.samples.setdefault(key, [])
        if not kept or now_s - kept[-1][0] >= SAMPLE_S:
            kept.append((now_s, free_bytes))
            while kept and now_s - kept[0][0] > WINDOW_S:
                del kept[0]

    def spans_a_rate(self, now_s: float) -> bool:
        """Whether the first sample is old enough for a rate of the directories that were there then."""
        return self._began_s is not None and now_s - self._began_s >= SHORTEST_S

    def warning(self, key: Hashable) -> int | None:
        """Within how many hours the directory will be full, one of WARNING_HOURS; None when not within a day."""
        hours = hours_until_full(self.samples.get(key, ()))
        found = None if hours is None else next((step for step in WARNING_HOURS if hours < step), None)
        before = self._warnings.get(key)
        eases = before is not None and (found is None or found > before)
        if before is not None and eases and hours is not None and hours < before * RELIEF:
            found = before
        if found is None:
            self._warnings.pop(key, None)
        else:
            self._warnings[key] = found
        return found

    def forget_all_but(self, keys: set[Hashable]) -> None:
        """Drops the directories that are no more."""
        for key in self.samples.keys() - keys:
            del self.samples[key]
            self._warnings.pop(key, None)


def hours_until_full(samples: Sequence[tuple[float, int]]) -> float | None:
    """Hours until no byte is free at the rate of the samples; None when it does not fill up, or too little is known."""
    if len(samples) < 2 or samples[-1][0] - samples[0][0] < SHORTEST_S:
        return None
    half = len(samples) // 2
    (first_s, first), (last_s, last) = (min(part, key=lambda one: one[1]) for part in (samples[:half], samples[half:]))
    bytes_per_s = (last - first) / (last_s - first_s)
    return None if bytes_per_s >= 0 else samples[-1][1] / -bytes_per_s / 3600
