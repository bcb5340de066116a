"""min.insync.replicas of each topic, added to Kafka's metadata: read only while brokers are rolled, and then seldom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ottla_operator.api.fleet import ClusterMetadata
from ottla_operator.ports import KafkaAdmin

MAX_AGE_S = 60.0


class TopicMinimums:
    """Keeps what DescribeConfigs answered for `MAX_AGE_S`. A topic that is new since then is read at once."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._known: Mapping[str, int] = {}
        self._asked: frozenset[str] = frozenset()
        self._read_at = 0.0

    async def added_to(self, view: ClusterMetadata, client: KafkaAdmin, *, is_fresh: bool = False) -> ClusterMetadata:
        """The metadata with min.insync.replicas of every topic; None for those that the brokers do not describe.

        Args:
            is_fresh: reads it now, whatever is known.

        Raises:
            KafkaUnavailable: no broker answers.
        """
        topics = frozenset(partition.topic for partition in view.partitions)
        if is_fresh or not topics <= self._asked or self._monotonic() - self._read_at >= MAX_AGE_S:
            self._known = await client.min_in_sync(sorted(topics)) if topics else {}
            self._asked, self._read_at = topics, self._monotonic()
        partitions = (replace(one, min_in_sync=self._known.get(one.topic)) for one in view.partitions)
        return replace(view, partitions=tuple(partitions))
