"""What Kafka has refused a short time ago, and why: it is not asked for again meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping

REFUSED_S = 60.0
"""How long a refused request is not made again."""

PartitionId = tuple[str, int]


class Refusals:
    """The refusals of one kind of request, by partition."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._refused: dict[PartitionId, tuple[float, str]] = {}

    def add(self, errors: Mapping[PartitionId, str]) -> None:
        """Each error counts from now on for `REFUSED_S`."""
        until = self._monotonic() + REFUSED_S
        self._refused |= {partition: (until, text) for partition, text in errors.items()}

    def now(self) -> Mapping[PartitionId, str]:
        """What still counts, with the error."""
        now = self._monotonic()
        self._refused = {partition: found for partition, found in self._refused.items() if found[0] > now}
        return {partition: text for partition, (_, text) in self._refused.items()}
