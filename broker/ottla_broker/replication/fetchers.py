"""Fetchers: the tasks that fetch what other brokers lead, by leader and number. Source: ReplicaFetcherManager.

Lives here: which of the num.replica.fetchers fetchers of a leader has a partition, and adding and removing partitions.
Not here: fetching (`fetcher`), what is done with a response (`follower`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla_broker.config import BrokerConfig
from ottla_broker.metrics import Metrics
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.fetcher import Fetcher, FetcherContext
from ottla_broker.replication.follower import CatchUp, Follower
from ottla_broker.replication.partition import Partition


def fetcher_number(topic_partition: TopicPartition, count: int) -> int:
    """Which of `count` fetchers takes a partition; Kafka's rule: Java's hash of topic and partition.

    >>> [fetcher_number(TopicPartition("orders", partition), 3) for partition in range(4)]
    [2, 1, 0, 2]
    """
    number = 0
    for character in topic_partition.topic:
        number = (31 * number + ord(character)) & 0xFFFFFFFF
    number = (31 * number + topic_partition.partition) & 0xFFFFFFFF
    if number >= 1 << 31:
        number = (1 << 32) - number
    return 0 if number == 1 << 31 else number % count


class Fetchers:
    """The fetchers of one broker, by leader and number.

    Args:
        context: what every fetcher of the broker needs.
        catch_up: what a recreated replica asks while it catches up; None where none is ever recreated.
    """

    def __init__(self, context: FetcherContext, metrics: Metrics, catch_up: CatchUp | None = None) -> None:
        self._context = context
        self._catch_up = catch_up
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._followers: dict[TopicPartition, Follower] = {}
        self._count = _fetcher_count(context.config)
        metrics.gauge(
            "kafka_server_replicafetchermanager_maxlag",
            "Most records by which a follower here is behind its leader's high watermark.",
            lambda: max((follower.lag for follower in self._followers.values()), default=0),
        )

    def add(self, partitions: Iterable[Partition]) -> None:
        """Follows the leaders of these partitions from now on."""
        for partition in partitions:
            if partition.leader_id < 0 or partition.leader_id == self._context.broker_id:
                continue
            follower = Follower(
                partition,
                self._context.clock,
                self._context.logger,
                broker_id=self._context.broker_id,
                longest_backoff_s=self._context.config.replica_fetch_backoff_ms / 1000,
                list_offsets_version=self._context.versions.list_offsets,
                catch_up=self._catch_up,
            )
            self._followers[partition.topic_partition] = follower
            self._assign(follower, self._count)

    def follows(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._followers

    async def remove(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Stops following them; when it returns, nothing of theirs is appended or truncated any more."""
        removed = []
        for topic_partition in topic_partitions:
            follower = self._followers.pop(topic_partition, None)
            if follower is None:
                continue
            removed.append(follower)
            self._unassign(follower, self._count)
        for follower in removed:
            await follower.stop()

    def resize(self) -> None:
        """num.replica.fetchers has changed: every partition goes to the fetcher that is its own now."""
        before, self._count = self._count, _fetcher_count(self._context.config)
        if before == self._count:
            return
        followers = list(self._followers.values())
        for follower in followers:
            self._unassign(follower, before)
        for follower in followers:
            self._assign(follower, self._count)

    def on_metadata_changed(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.on_metadata_changed()

    async def close(self) -> None:
        await self.remove(list(self._followers))

    def _assign(self, follower: Follower, count: int) -> None:
        key = (follower.leader_id, fetcher_number(follower.partition.topic_partition, count))
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = Fetcher(self._context, *key)
        fetcher.add(follower)

    def _unassign(self, follower: Follower, count: int) -> None:
        key = (follower.leader_id, fetcher_number(follower.partition.topic_partition, count))
        fetcher = self._fetchers[key]
        fetcher.remove(follower)
        if fetcher.is_empty:
            del self._fetchers[key]
            fetcher.close()


def _fetcher_count(config: BrokerConfig) -> int:
    return max(1, int(config.num_replica_fetchers))
