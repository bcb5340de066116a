"""How large the records of a partition are, by a look at its next batches: for maxBytesPerTrigger."""

from __future__ import annotations

from collections.abc import Mapping

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla_broker.records.errors import RecordsError
from ottla_broker.records.formats import batches
from ottla_pipeline.topic_partition import TopicPartition
from ottla_pipeline.wire.cluster import Cluster

_SAMPLE_BYTES = 16 * 1024
_BY_NAME = 12
"""The last version of Fetch that names topics."""


def offset_bytes(cluster: Cluster, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, float]:
    """The bytes that an offset takes in the log, compressed as it is there, at each position.

    A partition is absent where the broker has nothing to show. Raises as `Cluster.layout_of`.
    """
    return cluster.retried(lambda: _sampled(cluster, positions)) if positions else {}


def _sampled(cluster: Cluster, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
    by_leader: dict[tuple[str, int], dict[str, list[FetchPartition]]] = {}
    for partition, leader in cluster.leaders_of(list(positions)).items():
        by_leader.setdefault(leader, {}).setdefault(partition.topic, []).append(
            FetchPartition(
                partition=partition.partition,
                fetch_offset=positions[partition],
                partition_max_bytes=_SAMPLE_BYTES,
            )
        )
    found: dict[TopicPartition, float] = {}
    for (host, port), topics in by_leader.items():
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_SAMPLE_BYTES * len(positions),
            topics=[FetchTopic(topic=name, partitions=asked) for name, asked in topics.items()],
        )
        connection = cluster.connection(host, port)
        connection.send(ApiKey.FETCH, request, at_most=_BY_NAME)
        for topic in connection.take().responses:
            for answer in topic.partitions:
                size = _size(answer.records or b"")
                if size is not None:
                    found[TopicPartition(topic.topic, answer.partition_index)] = size
    return found


def _size(records: memoryview | bytes) -> float | None:
    try:
        headers = [header for _, header in batches(records)]
    except RecordsError:
        return None
    if not headers:
        return None
    return sum(header.size for header in headers) / (headers[-1].next_offset - headers[0].base_offset)
