"""Asks brokers to cordon log directories, and to move replicas out of them.

What a broker refuses is not asked for again for a while.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ottla_operator.concerns.disks.disk_drains import CORDONED_LOG_DIRS, ReplicaMove
from ottla_operator.facts.fleet_values import PartitionId
from ottla_operator.facts.refusals import Refusals
from ottla_operator.facts.snapshot import ClusterAction
from ottla_operator.ports import KafkaAdmin


@dataclass(frozen=True, slots=True)
class EmptyLogDirs(ClusterAction):
    """`cordons`: the new cordoned.log.dirs of a broker, empty for none. `moves`: replicas between its directories."""

    cordons: Mapping[int, tuple[str, ...]]
    moves: tuple[ReplicaMove, ...]


class DiskExecutor:
    """Carries out the actions of one cluster. Every call raises KafkaUnavailable."""

    def __init__(self, monotonic: Callable[[], float], log: logging.Logger) -> None:
        self._log = log
        self._refused: Refusals[tuple[int, str, int]] = Refusals(monotonic)
        self._refused_cordons: Refusals[tuple[int, str]] = Refusals(monotonic)

    def refused(self) -> Mapping[tuple[int, str, int], str]:
        """The replicas that their broker refused to move a short time ago, and why."""
        return self._refused.now()

    async def empty_log_dirs(self, admin: KafkaAdmin, action: EmptyLogDirs) -> None:
        """What is not answered is decided again in the next reconciliation."""
        for broker, paths in action.cordons.items():
            value = ",".join(paths)
            if (broker, value) in self._refused_cordons.now():
                continue
            self._log.info("broker %d: %s is %s", broker, CORDONED_LOG_DIRS, value or "deleted")
            if refused := await admin.set_broker_config(broker, CORDONED_LOG_DIRS, value or None):
                self._log.warning("broker %d refuses %s: %s", broker, CORDONED_LOG_DIRS, refused)
                self._refused_cordons.add({(broker, value): refused})
        moves: dict[int, dict[PartitionId, str]] = defaultdict(dict)
        for move in action.moves:
            moves[move.broker_id][move.topic, move.index] = move.log_dir
        for broker, targets in moves.items():
            self._log.info("broker %d: %d replicas move to other log directories", broker, len(targets))
            errors = await admin.move_replicas(broker, targets)
            for (topic, index), error in errors.items():
                self._log.warning("broker %d does not move %s-%d: %s", broker, topic, index, error)
            self._refused.add({(broker, *partition): error for partition, error in errors.items()})
