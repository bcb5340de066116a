"""Where partitions are: how many a topic has, and who leads each. Asks the cluster, and again when told to.

A topic that does not exist is asked for as Java's producer does: the broker creates it where auto.create.topics.enable
says so. Java waits max.block.ms (a minute) for it, here five seconds are enough for a topic to become known.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from ottla_broker.protocol.errors import ErrorCode
from ottla_pipeline.errors import ClusterUnreachable, RequestRefused, UnknownTopic
from ottla_pipeline.sink.write_options import WriteOptions
from ottla_pipeline.topic_partition import TopicPartition
from ottla_pipeline.wire.cluster import Address, Cluster, NotYet
from ottla_pipeline.wire.connection import error_of

_UNKNOWN_S = 5.0


class Leaders:
    """What the last metadata said of the topics that were asked for."""

    def __init__(self, cluster: Cluster, *, addresses: str, max_block_ms: int, backoff_ms: int) -> None:
        """`addresses` for errors; `max_block_ms` and `backoff_ms` as the options of their names."""
        self._cluster = cluster
        self._addresses = addresses
        self._max_block_s = max_block_ms / 1000
        self._backoff_s = max(backoff_ms, 10) / 1000
        self._counts: dict[str, int] = {}
        self._leaders: dict[TopicPartition, Address] = {}

    def count(self, topic: str) -> int:
        """How many partitions a topic has.

        Raises:
            UnknownTopic: there is none of this name, or none can have it.
            ClusterUnreachable: no broker answers within max.block.ms.
            RequestRefused: the broker refuses.
        """
        began = time.monotonic()
        while topic not in self._counts:
            reason = self._asked([topic])
            if topic in self._counts:
                break
            waited = time.monotonic() - began
            if reason.startswith(_UNKNOWN) and waited > min(_UNKNOWN_S, self._max_block_s):
                raise UnknownTopic(
                    f"topic {topic!r} does not exist at {self._addresses}, and its brokers create none"
                    " (auto.create.topics.enable)"
                )
            if waited > self._max_block_s:
                raise ClusterUnreachable(f"topic {topic!r}: {reason} (kafka.max.block.ms)")
            time.sleep(self._backoff_s)
        return self._counts[topic]

    def leader(self, partition: TopicPartition) -> Address | None:
        """Its address, None while it is not known."""
        return self._leaders.get(partition)

    def refresh(self, topics: Iterable[str]) -> None:
        """Asks for the leaders again; what cannot be known now stays unknown."""
        self._asked(sorted(set(topics)))

    def _asked(self, topics: list[str]) -> str:
        """Stores the answer; the reason why some topic is not known."""
        try:
            answer = self._cluster.metadata(topics, create=True)
        except NotYet as no_answer:
            return str(no_answer)
        brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        reason = ""
        for topic in answer.topics:
            error = error_of(topic.error_code)
            if error is ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise UnknownTopic(f"{topic.name!r} is no name that a topic can have")
            if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                reason = _UNKNOWN
            elif error is not ErrorCode.NONE and not error.retriable:
                raise RequestRefused(f"the metadata of topic {topic.name!r}: {error.name}, {error.message}")
            elif error is not ErrorCode.NONE or not topic.partitions:
                reason = f"{error.name}, {error.message}"
            else:
                self._counts[topic.name] = len(topic.partitions)
            for found in topic.partitions:
                partition = TopicPartition(topic.name, found.partition_index)
                if found.leader_id in brokers:
                    self._leaders[partition] = brokers[found.leader_id]
                else:
                    self._leaders.pop(partition, None)
        return reason


_UNKNOWN = "it does not exist"


def leaders_of(cluster: Cluster, options: WriteOptions) -> Leaders:
    """The leaders of the options' cluster."""
    return Leaders(
        cluster,
        addresses=options.connecting.addresses,
        max_block_ms=options.sending.max_block_ms,
        backoff_ms=options.sending.retry_backoff_ms,
    )
