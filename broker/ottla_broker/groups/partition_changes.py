"""What the log says of partitions of `__consumer_offsets` that come and go: one line for many at once.

A broker that starts or dies moves dozens of partitions, most of them without a group. Loads are told together when
none is under way any more, unloads at the end of the loop's turn. Ports used: Clock.
"""

from __future__ import annotations

import logging

from ottla_broker.groups.partitioning import OFFSETS_TOPIC
from ottla_broker.ports.clock import Clock, Timer

logger = logging.getLogger("ottla.groups")


class _Lot:
    """Partitions that are told of together, and how many groups they have."""

    def __init__(self) -> None:
        self.partitions: list[int] = []
        self.groups = 0

    def add(self, partition: int, groups: int) -> None:
        self.partitions.append(partition)
        self.groups += groups

    def __str__(self) -> str:
        many = len(self.partitions)
        which = f"{OFFSETS_TOPIC}-{self.partitions[0]}" if many == 1 else f"{many} partitions of {OFFSETS_TOPIC}"
        return f"{self.groups} group{'' if self.groups == 1 else 's'} of {which}"


class Moves:
    """Told of every load and unload of one coordinator."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loading: dict[int, None] = {}
        self._loaded = _Lot()
        self._started = 0.0
        self._unloaded = _Lot()
        self._timer: Timer | None = None

    def load_begins(self, partition: int) -> None:
        if not self._loading:
            self._started = self._clock.monotonic()
        self._loading[partition] = None

    def loaded(self, partition: int, groups: int) -> None:
        self._loaded.add(partition, groups)
        self._load_ended(partition)

    def unloaded(self, partition: int, groups: int) -> None:
        """A load under way, if there is one, is given up."""
        self._unloaded.add(partition, groups)
        if self._timer is None:
            self._timer = self._clock.call_later(0.0, self.tell_unloads)
        if partition in self._loading:
            self._load_ended(partition)

    def tell_unloads(self) -> None:
        """Now, if there is anything to tell: nobody comes back to it when the coordinator is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            logger.info("unloaded %s", self._unloaded)
            self._unloaded = _Lot()

    def _load_ended(self, partition: int) -> None:
        del self._loading[partition]
        if not self._loading and self._loaded.partitions:
            logger.info("loaded %s in %.3f s", self._loaded, self._clock.monotonic() - self._started)
            self._loaded = _Lot()
