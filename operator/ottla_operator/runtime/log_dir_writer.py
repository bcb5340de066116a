"""Carries out what is decided about log directories: cordons them, and moves replicas out of them.

What a broker refuses is not asked for again for a while.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping

from ottla_operator.concerns.disks.disk_drains import CORDONED_LOG_DIRS, DrainDecision
from ottla_operator.concerns.rebalance.machine import ReplicaId
from ottla_operator.effects.ports import KafkaUnavailable
from ottla_operator.runtime.kafka_connection import KafkaConnection
from ottla_operator.runtime.refusals import Refusals


class LogDirWriter:
    """The log directories of one cluster's brokers."""

    def __init__(self, kafka: KafkaConnection, monotonic: Callable[[], float], log: logging.Logger) -> None:
        self._kafka = kafka
        self._log = log
        self._refused: Refusals[ReplicaId] = Refusals(monotonic)
        self._refused_cordons: Refusals[tuple[int, str]] = Refusals(monotonic)

    def refused(self) -> Mapping[ReplicaId, str]:
        """The replicas that their broker refused to move a short time ago, and why."""
        return self._refused.now()

    async def write(self, wanted: DrainDecision) -> None:
        """Asks the brokers. What is not answered is decided again in the next reconciliation."""
        client = self._kafka.client
        if client is None:
            return
        try:
            for broker, paths in wanted.cordons.items():
                value = ",".join(paths)
                if (broker, value) in self._refused_cordons.now():
                    continue
                self._log.info("broker %d: %s is %s", broker, CORDONED_LOG_DIRS, value or "deleted")
                if refused := await client.set_broker_config(broker, CORDONED_LOG_DIRS, value or None):
                    self._log.warning("broker %d refuses %s: %s", broker, CORDONED_LOG_DIRS, refused)
                    self._refused_cordons.add({(broker, value): refused})
            moves: dict[int, dict[tuple[str, int], str]] = defaultdict(dict)
            for move in wanted.moves:
                moves[move.broker_id][move.topic, move.index] = move.log_dir
            for broker, targets in moves.items():
                self._log.info("broker %d: %d replicas move to other log directories", broker, len(targets))
                errors = await client.move_replicas(broker, targets)
                for (topic, index), error in errors.items():
                    self._log.warning("broker %d does not move %s-%d: %s", broker, topic, index, error)
                self._refused.add({(broker, *partition): error for partition, error in errors.items()})
        except KafkaUnavailable as error:
            self._log.info("no change of log directories: %s", error)
