"""The committed offsets of a consumer group without members: what lag tools see of a query, and where it begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated.find_coordinator import FindCoordinatorRequest
from ottla_broker.protocol.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla_broker.protocol.generated.offset_fetch import OffsetFetchRequest
from ottla_pipeline.topic_partition import TopicPartition
from ottla_pipeline.wire.cluster import Cluster, raise_for
from ottla_pipeline.wire.connection import Connection, error_of

_GROUP = 0


class Committed(NamedTuple):
    """A committed offset, with the text that was committed beside it."""

    offset: int
    metadata: str


class GroupProgress:
    """The offsets of one group. Raises as `Cluster.layout_of`; RequestRefused also while the group has members."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group

    def fetch(self) -> Mapping[TopicPartition, Committed]:
        """Every committed offset of the group."""
        return self._cluster.retried(self._fetch)

    def commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commits offsets for the group."""
        self._cluster.retried(lambda: self._commit(offsets))

    def _fetch(self) -> dict[TopicPartition, Committed]:
        request = OffsetFetchRequest(group_id=self._group, topics=None, require_stable=True)
        answer = self._coordinator().ask(ApiKey.OFFSET_FETCH, request)
        raise_for(error_of(answer.error_code), f"the committed offsets of group {self._group!r}")
        found: dict[TopicPartition, Committed] = {}
        for topic in answer.topics:
            for entry in topic.partitions:
                partition = TopicPartition(topic.name, entry.partition_index)
                raise_for(error_of(entry.error_code), f"the committed offset of {partition} in group {self._group!r}")
                if entry.committed_offset >= 0:
                    found[partition] = Committed(entry.committed_offset, entry.metadata or "")
        return found

    def _commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, number), committed in offsets.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=committed.offset,
                    committed_metadata=committed.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=self._group,
            topics=[OffsetCommitRequestTopic(name=name, partitions=found) for name, found in topics.items()],
        )
        for topic in self._coordinator().ask(ApiKey.OFFSET_COMMIT, request).topics:
            for entry in topic.partitions:
                partition = TopicPartition(topic.name, entry.partition_index)
                raise_for(error_of(entry.error_code), f"committing {partition} for group {self._group!r}")

    def _coordinator(self) -> Connection:
        answer = self._cluster.ask_any(
            ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key=self._group, key_type=_GROUP)
        )
        raise_for(error_of(answer.error_code), f"the coordinator of group {self._group!r}")
        return self._cluster.connection(answer.host, answer.port)
