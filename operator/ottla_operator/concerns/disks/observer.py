"""Reads what decisions about disks need beyond the snapshot: what is in log directories, and how fast they fill."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime

from ottla_operator.api.fleet import LogDirContents
from ottla_operator.concerns.disks.disk_drains import brokers_to_describe
from ottla_operator.concerns.disks.disk_fill import FreeSpaceHistory
from ottla_operator.concerns.disks.observation import DiskObservation
from ottla_operator.concerns.disks.volume_growth import reported_space
from ottla_operator.concerns.fleet.identity import brokers_to_remove
from ottla_operator.facts.snapshot import Snapshot
from ottla_operator.ports import KafkaAdmin, KafkaUnavailable


class DiskObserver:
    """Observes the disks of one cluster."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._free_space = FreeSpaceHistory()

    async def observe(
        self, snapshot: Snapshot, admin: KafkaAdmin | None, refused_moves: Mapping[tuple[int, str, int], str]
    ) -> DiskObservation:
        """
        Args:
            admin: None before any broker was reached.
            refused_moves: see `DiskObservation`.
        """
        now_s = datetime.fromisoformat(snapshot.now).timestamp()
        filling = self._filling(snapshot, now_s)
        knows_rates = self._free_space.spans_a_rate(now_s)
        return DiskObservation(await self._log_dirs(snapshot, admin), filling, knows_rates, refused_moves)

    async def _log_dirs(self, snapshot: Snapshot, admin: KafkaAdmin | None) -> Mapping[int, Sequence[LogDirContents]]:
        """Asks no broker at rest."""
        if snapshot.kafka is None or admin is None:
            return {}
        needed = {*brokers_to_describe(snapshot), *brokers_to_remove(snapshot)}
        asked = sorted(needed & set(snapshot.kafka.brokers))
        try:
            found = await admin.log_dirs(asked) if asked else {}
        except KafkaUnavailable as error:
            self._log.info("no broker reports its log directories: %s", error)
            return {}
        if silent := [str(number) for number in asked if number not in found]:
            self._log.info("no report of the log directories of broker %s", ", ".join(silent))
        return found

    def _filling(self, snapshot: Snapshot, now_s: float) -> dict[tuple[int, str], int]:
        """The log directories that will be full within a day: in how many hours, by broker and disk."""
        found: dict[tuple[int, str], int] = {}
        keys: set[Hashable] = set()
        for number, disk, free_bytes, capacity in reported_space(snapshot):
            key = (number, disk, capacity)
            keys.add(key)
            self._free_space.add(key, now_s, free_bytes)
            if (hours := self._free_space.warning(key)) is not None:
                found[number, disk] = hours
        self._free_space.forget_all_but({*keys, *self._silent_keys(snapshot)})
        return found

    def _silent_keys(self, snapshot: Snapshot) -> list[Hashable]:
        """The histories of brokers that do not answer now; they go on when the brokers do."""
        silent = snapshot.broker_racks.keys() - snapshot.reports.keys()
        return [key for key in self._free_space.samples if isinstance(key, tuple) and key[0] in silent]
