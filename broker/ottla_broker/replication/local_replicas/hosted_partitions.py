"""HostedPartitions: the partitions that a command of the controller has assigned to this broker, by topic and index.

Lives here: finding one, and the topic ids and metrics that come and go with them. Not here: the state of a replica,
with a partition or without (`replica_map`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla_broker.metrics import Metrics
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.replication.partition import Partition

_TOPIC_METRICS = "kafka_server_brokertopicmetrics_"


class HostedPartitions:
    """See the module."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.topics: dict[str, dict[int, Partition]] = {}
        """By topic and index: the hot path's look-up."""
        self.topic_names: dict[bytes, str] = {}
        """By topic id, of topics that have a partition here."""

    def __iter__(self) -> Iterator[Partition]:
        """As of the first step for each topic: the caller may add and remove meanwhile."""
        for by_index in list(self.topics.values()):
            yield from list(by_index.values())

    def get(self, topic: str, index: int) -> Partition | None:
        by_index = self.topics.get(topic)
        return None if by_index is None else by_index.get(index)

    def add(self, partition: Partition) -> None:
        topic = partition.topic
        counter = self._metrics.counter
        partition.bytes_in = counter(f"{_TOPIC_METRICS}bytesin", "Bytes that clients produced.", topic=topic).inc
        partition.bytes_out = counter(f"{_TOPIC_METRICS}bytesout", "Bytes that consumers fetched.", topic=topic).inc
        partition.messages_in = counter(
            f"{_TOPIC_METRICS}messagesin", "Records that clients produced.", topic=topic
        ).inc
        self.topics.setdefault(topic, {})[partition.index] = partition
        if partition.topic_id != ZERO_UUID:
            self.topic_names[partition.topic_id] = topic

    def set_topic_id(self, partition: Partition, topic_id: bytes) -> None:
        partition.topic_id = topic_id
        self.topic_names[topic_id] = partition.topic

    def remove(self, partition: Partition, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """The requests that wait for it fail with `error`."""
        by_index = self.topics[partition.topic]
        del by_index[partition.index]
        if not by_index:
            del self.topics[partition.topic]
            self.topic_names.pop(partition.topic_id, None)
            conversions = ("producemessageconversions", "fetchmessageconversions")
            for name in ("bytesin", "bytesout", "messagesin", *conversions):
                self._metrics.remove(f"{_TOPIC_METRICS}{name}", topic=partition.topic)
        partition.is_leader = partition.is_assigned = False
        partition.fail_delayed_requests(int(error))


def is_another_topic(known_id: bytes | None, topic_id: bytes) -> bool:
    """Whether both have a topic id and they differ.

    >>> is_another_topic(b"a" * 16, b"b" * 16), is_another_topic(ZERO_UUID, b"b" * 16)
    (True, False)
    """
    return topic_id != ZERO_UUID and known_id not in (None, ZERO_UUID, topic_id)
