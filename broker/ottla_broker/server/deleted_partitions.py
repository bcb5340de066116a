"""DeletedPartitions: whether partitions that the metadata lack are deleted, or only have no leader yet.

A partition that has never had a leader, or whose state cannot be read, is in no UpdateMetadata, as is one that is
deleted. The coordination store knows: one that is deleted is in no assignment, or its topic is being deleted (which may
take as long as a broker with a replica of it is down). It uses two ports, Coordination and Clock.
"""

from __future__ import annotations

import logging
from typing import Any

from ottla_broker.coordination import znodes
from ottla_broker.ports import Clock, Coordination
from ottla_broker.ports.coordination import CoordinationError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.store.partition_state import read_assignment

READ_AGAIN_S = 1.0
"""How long an answer of the store counts, and the pause after a failed read."""


class DeletedPartitions:
    """The deleted partitions of one broker. Everything runs on its loop."""

    def __init__(
        self, coordination: Coordination, clock: Clock, logger: logging.Logger | logging.LoggerAdapter[Any]
    ) -> None:
        self._coordination = coordination
        self._clock = clock
        self._logger = logger
        self._existing: dict[str, frozenset[int]] = {}
        """By topic, the partitions that are not deleted, as long as the answer counts."""
        self._reading: set[str] = set()

    def is_deleted(self, partition: TopicPartition) -> bool:
        """False also while the store has not answered: ask again."""
        topic = partition.topic
        existing = self._existing.get(topic)
        if existing is not None:
            return partition.partition not in existing
        if topic not in self._reading:
            self._reading.add(topic)
            self._clock.spawn(self._read(topic), name=f"deleted partitions of {topic}")
        return False

    async def _read(self, topic: str) -> None:
        try:
            self._existing[topic] = await self._read_existing(topic)
        except (CoordinationError, znodes.ZnodeError) as error:
            self._logger.warning("whether partitions of %s are deleted cannot be read yet: %s", topic, error)
            await self._clock.sleep(READ_AGAIN_S)
        else:
            self._clock.call_later(READ_AGAIN_S, self._existing.pop, topic)
        finally:
            self._reading.discard(topic)

    async def _read_existing(self, topic: str) -> frozenset[int]:
        if await self._coordination.exists(znodes.delete_topic_path(topic)) is not None:
            return frozenset()
        assignment = await read_assignment(self._coordination, topic)
        return frozenset() if assignment is None else frozenset(assignment.partitions)
