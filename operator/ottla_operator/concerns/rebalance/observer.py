"""Reads what a rebalance needs beyond the snapshot: the replicas that every broker stores, and what moves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from ottla_operator.api.fleet import LogDirContents
from ottla_operator.concerns.rebalance.machine import OFF
from ottla_operator.concerns.rebalance.observation import RebalanceObservation
from ottla_operator.facts.fleet_values import PartitionId
from ottla_operator.facts.intervals import REQUEUE_AFTER_S, RESYNC_S
from ottla_operator.facts.snapshot import Snapshot
from ottla_operator.ports import KafkaAdmin, KafkaUnavailable


class RebalanceObserver:
    """Observes one cluster."""

    def __init__(self, monotonic: Callable[[], float], log: logging.Logger) -> None:
        self._monotonic = monotonic
        self._log = log
        self._log_dir_usage: Mapping[int, Sequence[LogDirContents]] = {}
        self._usage_at = -RESYNC_S

    async def observe(
        self, snapshot: Snapshot, admin: KafkaAdmin | None, refused: Mapping[PartitionId, str]
    ) -> RebalanceObservation:
        """
        Args:
            admin: None before any broker was reached.
            refused: see `RebalanceObservation`.
        """
        reassignments = await self._reassignments(snapshot, admin)
        return RebalanceObservation(self._log_dir_usage, reassignments, refused)

    async def _reassignments(
        self, snapshot: Snapshot, admin: KafkaAdmin | None
    ) -> Mapping[PartitionId, tuple[tuple[int, ...], ...]] | None:
        """The reassignments under way. The log directories are read too, when they are old or something moves.

        Nothing is asked for while no rebalance may begin and none is recorded.
        """
        if snapshot.kafka is None or admin is None:
            return None
        is_recorded = snapshot.status("rebalance") is not None
        if snapshot.cluster.rebalance.mode == OFF and not is_recorded:
            return None
        every_s = REQUEUE_AFTER_S if is_recorded else RESYNC_S
        now = self._monotonic()
        waits_for_log_dirs = any("logDir" in member for member in snapshot.status("rebalance", "batch") or ())
        try:
            if (
                waits_for_log_dirs
                or not set(snapshot.kafka.brokers) <= set(self._log_dir_usage)
                or now - self._usage_at >= every_s
            ):
                self._log_dir_usage = await admin.log_dirs(snapshot.kafka.brokers)
                self._usage_at = now
            return dict(await admin.reassignments())
        except KafkaUnavailable as error:
            self._log.info("no answer about reassignments: %s", error)
            return None
