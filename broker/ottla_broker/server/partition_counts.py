"""PartitionCounts: how many partitions `__consumer_offsets` and `__transaction_state` have.

Lives here: the watches on the assignments of the two topics, and how an assignment is compared with the metadata. Not
here: which partition a group or a transactional id belongs to (`internal_topics.partitioning`). It uses two ports,
Coordination and Clock.

The metadata do not say how many partitions a topic has: a partition that has never had a leader, or whose state cannot
be read, is in no UpdateMetadata. With the number of those that are, nearly every group and transactional id would
belong to another partition until the missing one is there, and brokers would disagree.

Source: kafka.zk.KafkaZkClient.getTopicPartitionCount, which brokers of Apache Kafka read once, at their start.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from ottla_broker.config.topics import COORDINATOR_TOPICS
from ottla_broker.coordination import znodes
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.ports import Clock, Coordination
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.server.store.partition_state import read_assignment
from ottla_broker.server.store.store_watch import StoreWatch


class AssignedTopic(NamedTuple):
    """What an assignment says; of a topic that does not exist it is the default."""

    topic_id: bytes = ZERO_UUID
    partition_count: int = 0


def partition_count_beside(assigned: AssignedTopic, topic_id: bytes, lowest_count: int) -> int | None:
    """The count of the assignment; None when it is not that of the topic which the metadata have. The one that was
    read last is older then: another is about to be read.

    Args:
        topic_id: in the metadata; zeros without a topic, or without an id.
        lowest_count: as many partitions the topic has at least, as the metadata say.

    >>> partition_count_beside(AssignedTopic(b"a" * 16, 50), b"a" * 16, 33)
    50
    >>> partition_count_beside(AssignedTopic(b"a" * 16, 50), b"b" * 16, 33) is None  # it was created again
    True
    >>> partition_count_beside(AssignedTopic(b"a" * 16, 50), b"a" * 16, 60) is None  # it has more partitions now
    True
    """
    is_another = ZERO_UUID not in (topic_id, assigned.topic_id) and topic_id != assigned.topic_id
    return None if is_another or assigned.partition_count < lowest_count else assigned.partition_count


class PartitionCounts:
    """See the module. `start` before use; everything runs on the broker's loop."""

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        metadata: MetadataCache,
        logger: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self._coordination = coordination
        self._clock = clock
        self._metadata = metadata
        self._logger = logger
        self._assigned: dict[str, AssignedTopic] = {}
        self._watch = StoreWatch(coordination, clock)

    async def start(self) -> None:
        """Reads both assignments, sets the watches and follows them. Raises CoordinationError."""
        self._watch.listen()
        await self._read()
        self._clock.spawn(self._watch.follow(self._read), name="partition counts of the internal topics")

    def of(self, topic: str) -> int | None:
        """0 while the topic does not exist; None while its count is not known."""
        assigned = self._assigned.get(topic)
        if assigned is None:
            return None
        metadata = self._metadata
        return partition_count_beside(assigned, metadata.topic_id(topic), metadata.partition_count(topic))

    async def _read(self) -> None:
        for topic in COORDINATOR_TOPICS:
            # `exists` leaves a watch whether or not the node is there.
            await self._coordination.exists(znodes.topic_path(topic), self._watch.on_watch)
            try:
                assignment = await read_assignment(self._coordination, topic)
            except znodes.ZnodeError as error:
                self._logger.error("the partition count of %s stays as it is: %s", topic, error)
                continue
            if assignment is None:
                self._assigned[topic] = AssignedTopic()
                continue
            topic_id = ZERO_UUID if assignment.topic_id is None else assignment.topic_id.bytes
            self._assigned[topic] = AssignedTopic(topic_id, max(assignment.partitions, default=-1) + 1)
