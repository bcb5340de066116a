"""Asks Kafka for what a rebalance moves, and remembers for a short time what was refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ottla_operator.effects.ports import KafkaUnavailable
from ottla_operator.rebalancer.machine import MoveRequests
from ottla_operator.rebalancer.model import PartitionId
from ottla_operator.runtime.kafka_connection import KafkaConnection

REFUSED_S = 60.0
"""How long a refused reassignment is not asked for again."""


class ReplicaMover:
    """Carries out the requests of one cluster."""

    def __init__(self, kafka: KafkaConnection, monotonic: Callable[[], float], log: logging.Logger) -> None:
        self._kafka = kafka
        self._monotonic = monotonic
        self._log = log
        self._refused: dict[PartitionId, tuple[float, str]] = {}

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
        until = self._monotonic() + REFUSED_S
        self._refused |= {partition: (until, text) for partition, text in errors.items()}
        return True

    def refused(self) -> Mapping[PartitionId, str]:
        """What was refused a short time ago, and why."""
        now = self._monotonic()
        self._refused = {partition: found for partition, found in self._refused.items() if found[0] > now}
        return {partition: text for partition, (_, text) in self._refused.items()}
