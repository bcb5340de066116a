"""Logs which partitions of an internal topic a coordinator loads and unloads: one line for many at once.

A broker that starts or stops loads dozens of partitions, most of them empty. Loads are logged together when none
is under way any more, unloads at the end of the loop's turn. Ports used: Clock.
"""

from __future__ import annotations

import logging

from ottla_broker.ports.clock import Clock, Timer


class _Batch:
    """Partitions that are logged together, and how many entries (groups, transactional ids) they have."""

    def __init__(self) -> None:
        self.partitions: list[int] = []
        self.entries = 0

    def add(self, partition: int, entries: int) -> None:
        self.partitions.append(partition)
        self.entries += entries


class PartitionLoads:
    """Takes every load and unload of one coordinator."""

    def __init__(self, clock: Clock, logger: logging.Logger, topic: str, entry_name: str) -> None:
        """`entry_name`: of what a partition holds, in the singular ("group")."""
        self._clock = clock
        self._logger = logger
        self._topic = topic
        self._entry_name = entry_name
        self._loading: dict[int, None] = {}
        self._loaded = _Batch()
        self._started = 0.0
        self._unloaded = _Batch()
        self._timer: Timer | None = None

    def load_begins(self, partition: int) -> None:
        if not self._loading:
            self._started = self._clock.monotonic()
        self._loading[partition] = None

    def loaded(self, partition: int, entries: int) -> None:
        self._loaded.add(partition, entries)
        self._load_ended(partition)

    def unloaded(self, partition: int, entries: int) -> None:
        """Ends a load of the partition that is under way."""
        self._unloaded.add(partition, entries)
        if self._timer is None:
            self._timer = self._clock.call_later(0.0, self.log_unloads)
        if partition in self._loading:
            self._load_ended(partition)

    def log_unloads(self) -> None:
        """Logs the unloads that are not logged yet: a coordinator that is closed calls it last."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._logger.info("unloaded %s", self._text(self._unloaded))
            self._unloaded = _Batch()

    def _load_ended(self, partition: int) -> None:
        del self._loading[partition]
        if not self._loading and self._loaded.partitions:
            elapsed_s = self._clock.monotonic() - self._started
            self._logger.info("loaded %s in %.3f s", self._text(self._loaded), elapsed_s)
            self._loaded = _Batch()

    def _text(self, batch: _Batch) -> str:
        many = len(batch.partitions)
        which = f"{self._topic}-{batch.partitions[0]}" if many == 1 else f"{many} partitions of {self._topic}"
        return f"{batch.entries} {self._entry_name}{'' if batch.entries == 1 else 's'} of {which}"
