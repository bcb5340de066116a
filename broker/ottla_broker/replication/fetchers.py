"""Following: one task per leader broker that fetches what it leads for us (KIP-101, KIP-279, KIP-595).

Lives here: which partition is fetched from whom, and the life of one fetcher. Not here: what is done with an answer
(`follower`), where logs part (`divergence`). On the calling side of Clock; connections are given.

One request is under way per leader. A partition is left out of it while its last records are still being written (the
next fetch offset acknowledges them), while it is truncating, and for replica.fetch.backoff.ms after an error; so a
slow directory holds back its own partitions, not the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ottla_broker.config.inter_broker import inter_broker_versions
from ottla_broker.metadata.cache import Endpoint, MetadataCache
from ottla_broker.metrics import Counter, Metrics
from ottla_broker.ports import Clock
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.fetch import FetchRequest, FetchTopic, ReplicaState
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.fetch_client import ConnectToBroker, LeaderConnection
from ottla_broker.replication.follower import Follower, backoff_s
from ottla_broker.replication.partition import CONSUMER, Logger, Partition

SETTLE_S = 0.05
"""How long a round waits for partitions whose writes are under way before it goes on without them."""


class Fetchers:
    """The fetchers of one broker, by leader."""

    def __init__(
        self,
        broker_id: int,
        config: Mapping[str, Any],
        clock: Clock,
        metadata: MetadataCache,
        broker_epoch: Callable[[], int],
        connect: ConnectToBroker,
        listener: str,
        metrics: Metrics,
        logger: Logger,
    ) -> None:
        self.broker_id = broker_id
        self.config = config
        self.clock = clock
        self.metadata = metadata
        self.broker_epoch = broker_epoch
        self.connect = connect
        self.listener = listener
        self.logger = logger
        self.versions = inter_broker_versions(config["inter.broker.protocol.version"])
        self.bytes_in = metrics.counter(
            "kafka_server_brokertopicmetrics_replicationbytesin", "Bytes fetched from leaders."
        )
        self._fetchers: dict[int, Fetcher] = {}
        self._followers: dict[TopicPartition, Follower] = {}
        metrics.gauge(
            "kafka_server_replicafetchermanager_maxlag",
            "Most records by which a follower here is behind its leader's high watermark.",
            lambda: max((follower.lag for follower in self._followers.values()), default=0),
        )

    def add(self, partitions: Iterable[Partition]) -> None:
        """Follows the leaders of these partitions from now on."""
        for partition in partitions:
            if partition.leader_id < 0 or partition.leader_id == self.broker_id:
                continue
            follower = Follower(
                partition,
                self.clock,
                self.logger,
                broker_id=self.broker_id,
                longest_backoff_s=self.config["replica.fetch.backoff.ms"] / 1000,
                list_offsets_version=self.versions.list_offsets,
            )
            self._followers[partition.topic_partition] = follower
            fetcher = self._fetchers.get(partition.leader_id)
            if fetcher is None:
                fetcher = self._fetchers[partition.leader_id] = Fetcher(self, partition.leader_id)
            fetcher.add(follower)

    async def remove(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Stops following them; when it returns, nothing of theirs is appended or truncated any more."""
        removed = []
        for topic_partition in topic_partitions:
            follower = self._followers.pop(topic_partition, None)
            if follower is None:
                continue
            removed.append(follower)
            leader_id = follower.leader_id
            fetcher = self._fetchers[leader_id]
            fetcher.remove(follower)
            if fetcher.is_empty:
                del self._fetchers[leader_id]
                fetcher.close()
        for follower in removed:
            await follower.stop()

    def on_metadata_changed(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.on_metadata_changed()

    async def close(self) -> None:
        await self.remove(list(self._followers))


class Fetcher:
    """Fetches from one leader. The task lives until `close`."""

    def __init__(self, owner: Fetchers, leader_id: int) -> None:
        self._owner = owner
        self._clock = owner.clock
        self._leader_id = leader_id
        self._followers: dict[Follower, None] = {}
        self._client: LeaderConnection | None = None
        self._endpoint: Endpoint | None = None
        self._changed = asyncio.Event()
        self._is_closed = False
        self._is_settled = False
        self._failures = 0
        config = owner.config
        self._longest_backoff_s: float = config["replica.fetch.backoff.ms"] / 1000
        self._request_timeout_s: float = config["replica.socket.timeout.ms"] / 1000
        self._partition_max_bytes: int = config["replica.fetch.max.bytes"]
        self._version = owner.versions.fetch
        self._request = FetchRequest(
            max_wait_ms=config["replica.fetch.wait.max.ms"],
            min_bytes=config["replica.fetch.min.bytes"],
            max_bytes=config["replica.fetch.response.max.bytes"],
            session_id=0,
            session_epoch=-1,
        )
        self._max_wait_ms: int = config["replica.fetch.wait.max.ms"]
        self._bytes_in: Counter = owner.bytes_in
        self._task = self._clock.spawn(self._run(), name=f"fetcher of broker {leader_id}")

    @property
    def is_empty(self) -> bool:
        return not self._followers

    def add(self, follower: Follower) -> None:
        self._followers[follower] = None
        follower.start(self._changed.set)
        self._changed.set()

    def remove(self, follower: Follower) -> None:
        self._followers.pop(follower, None)

    def on_metadata_changed(self) -> None:
        endpoint = self._owner.metadata.endpoint(self._leader_id, self._owner.listener)
        if endpoint != self._endpoint and self._client is not None:
            self._client.close()
        self._changed.set()

    def close(self) -> None:
        self._is_closed = True
        self._task.cancel()
        if self._client is not None:
            self._client.close()
            self._client = None

    async def _run(self) -> None:
        while not self._is_closed:
            self._changed.clear()
            ready, is_waiting_for_writes = self._ready()
            if not ready:
                await self._changed.wait()
                continue
            if is_waiting_for_writes and await self._settle():
                continue
            try:
                client = await self._connected()
                if client is None:
                    await self._changed.wait()
                    continue
                await self._round(client, ready, hurried=is_waiting_for_writes)
            except OSError as error:
                # A leader that is down is told of once, not at every attempt.
                level = logging.DEBUG if self._failures else logging.INFO
                self._owner.logger.log(level, "fetching from broker %d failed: %s", self._leader_id, error)
                await self._pause()
            except Exception:
                # Whatever it was, its partitions must not be left behind for good.
                self._owner.logger.exception("fetching from broker %d failed", self._leader_id)
                await self._pause()

    async def _pause(self) -> None:
        self._failures += 1
        await self._clock.sleep(backoff_s(self._failures, self._longest_backoff_s))

    def _ready(self) -> tuple[list[Follower], bool]:
        """Who can be fetched now, and whether somebody else will be as soon as a write is done."""
        ready = []
        is_waiting = False
        for follower in self._followers:
            if follower.is_ready:
                ready.append(follower)
            elif follower.is_writing:
                is_waiting = True
        return ready, is_waiting

    async def _settle(self) -> bool:
        """Waits a moment for writes; True when something changed."""
        timer = self._clock.call_later(SETTLE_S, self._settled)
        self._is_settled = False
        await self._changed.wait()
        timer.cancel()
        return not self._is_settled

    def _settled(self) -> None:
        self._is_settled = True
        self._changed.set()

    async def _connected(self) -> LeaderConnection | None:
        """A connection, or None while the leader has no address."""
        endpoint = self._owner.metadata.endpoint(self._leader_id, self._owner.listener)
        if endpoint is None:
            return None
        if self._client is None or endpoint != self._endpoint:
            if self._client is not None:
                self._client.close()
            self._client = self._owner.connect(endpoint.host, endpoint.port)
            self._endpoint = endpoint
        if not self._client.is_connected:
            await self._client.connect()
        return self._client

    async def _round(self, client: LeaderConnection, ready: list[Follower], *, hurried: bool) -> None:
        """One request and its answer. `hurried`: somebody is left out and must not wait for a long poll."""
        request = self._request
        request.max_wait_ms = min(self._max_wait_ms, int(SETTLE_S * 1000)) if hurried else self._max_wait_ms
        request.topics = _topics(ready, self._partition_max_bytes)
        version = self._version
        if version >= 13 and any(topic.topic_id == ZERO_UUID for topic in request.topics):
            version = 12  # a topic without an id (made before 2.8) can only be asked for by name
        owner = self._owner
        if version >= 15:
            request.replica_id = CONSUMER
            request.replica_state = ReplicaState(replica_id=owner.broker_id, replica_epoch=owner.broker_epoch())
        else:
            request.replica_id = owner.broker_id
            request.replica_state = None
        response = await client.send(int(ApiKey.FETCH), version, request, timeout_s=self._request_timeout_s)
        if response.error_code:
            raise ConnectionError(f"the leader answered {ErrorCode.of(response.error_code).name}")
        self._failures = 0
        asked: dict[tuple[object, int], Follower] = {
            (follower.topic if version < 13 else follower.topic_id, follower.index): follower for follower in ready
        }
        for topic in response.responses:
            name = topic.topic if version < 13 else topic.topic_id
            for data in topic.partitions:
                found = asked.get((name, data.partition_index))
                if found is not None and found in self._followers:
                    self._bytes_in.inc(found.on_answer(data, client))


def _topics(ready: Iterable[Follower], partition_max_bytes: int) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for follower in ready:
        topic = topics.get(follower.topic)
        if topic is None:
            topic = topics[follower.topic] = FetchTopic(topic=follower.topic, topic_id=follower.topic_id)
        topic.partitions.append(follower.request_part(partition_max_bytes))
    return list(topics.values())
