"""Asks Kafka for what a rebalance moves, and remembers for a short time what was refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ottla_operator.concerns.rebalance.machine import MoveRequests
from ottla_operator.effects.ports import KafkaUnavailable
from ottla_operator.facts.fleet_values import PartitionId
from ottla_operator.runtime.kafka_connection import KafkaConnection
from ottla_operator.runtime.refusals import Refusals


class ReplicaMover:
    """Carries out the requests of one cluster."""

    def __init__(self, kafka: KafkaConnection, monotonic: Callable[[], float], log: logging.Logger) -> None:
        self._kafka = kafka
        self._log = log
        self._refused: Refusals[PartitionId] = Refusals(monotonic)

    async def carry_out(self, requests: MoveRequests) -> bool:
        """Whether the brokers have taken the requests; a partition may be refused (`refused`)."""
        client = self._kafka.client
        if client is None:
            return False
        try:
            errors = await client.move(requests)
        except KafkaUnavailable as error:
            self._log.info("no replica is moved: %s", error)
            return False
        if requests.reassign or requests.log_dirs:
            self._log.info(
                "reassignment of %d partitions, %d replicas between log directories, %d refused",
                len(requests.reassign),
                len(requests.log_dirs),
                len(errors),
            )
        self._refused.add(errors)
        return True

    def refused(self) -> Mapping[PartitionId, str]:
        """What was refused a short time ago, and why."""
        return self._refused.now()
