"""MetadataCache: the brokers and partitions of the cluster, as of the controller's latest UpdateMetadata.

Lives here: the values and how a request changes them. Not here: the Metadata API (`server.handlers.metadata`), the
replicas of this broker (`replication`). No port is used; everything happens on the broker's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from ottla_broker.records.ids import TopicPartition

NO_LEADER = -1
LEADER_DURING_DELETE = -2
"""A leader of this id in UpdateMetadata means that the partition's topic is being deleted."""
FULL = 2
"""`Type` of an UpdateMetadata v8 that names every topic."""

_APPLIED_AT_ONCE: Final = 100
_COPIED_AT_ONCE: Final = 10
"""So many partitions are copied, looked at or freed in the time in which one is applied."""


class BrokerEndpoint(NamedTuple):
    """The address of a broker on one of its listeners."""

    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class BrokerMetadata:
    """A live broker. `endpoints` maps listener names."""

    broker_id: int
    endpoints: Mapping[str, BrokerEndpoint]
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition's state as of the controller's latest request."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    partition_epoch: int = 0
    controller_epoch: int = 0


@dataclass(slots=True)
class TopicMetadata:
    """A topic; `partitions` is in ascending order of partition ids."""

    name: str
    topic_id: bytes = ZERO_UUID
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)


class MetadataCache:
    """Only the UpdateMetadata handler changes it.

    `version` grows with every change, so that prepared responses can be kept until it does. `topics_version` grows when
    a topic is created or deleted, or gets partitions.

    Source: kafka.server.metadata.ZkMetadataCache.
    """

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.controller_id: int = -1
        self.controller_epoch: int = 0
        self.version = 0
        self.topics_version = 0
        self.brokers: dict[int, BrokerMetadata] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.names: dict[bytes, str] = {}
        """By topic id."""
        self._listeners: list[Callable[[], None]] = []
        self._is_updated = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """True once the first UpdateMetadata has been applied."""
        return self._is_updated.is_set()

    async def ready(self) -> None:
        """Returns once the first UpdateMetadata has been applied."""
        await self._is_updated.wait()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """`listener` is called after every change, on the loop."""
        self._listeners.append(listener)

    def update(self, request: UpdateMetadataRequest, api_version: int = 8) -> tuple[ErrorCode, list[TopicPartition]]:
        """Applies an UpdateMetadataRequest; gives its error, and the partitions whose topic is being deleted.

        STALE_CONTROLLER_EPOCH for a former controller. The request has all live brokers; partitions that it does not
        name keep their state. Topics that a full request does not name (KIP-516) are deleted: the request that deleted
        them did not arrive.
        """
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH, []
        deleted: list[TopicPartition] = []
        # Apache Kafka's controllers send type 0 in ZooKeeper mode, also where they name everything.
        if api_version >= 8 and request.type == FULL and not request.is_kraft_controller:
            _forget_all_but(self, {topic.topic_name for topic in request.topic_states}, deleted)
        if api_version >= 5:
            for topic in request.topic_states:
                for state in topic.partition_states:
                    _apply(self, topic.topic_name, topic.topic_id, state, deleted)
                _sort(self, topic.topic_name)
        else:
            for state in request.ungrouped_partition_states:
                _apply(self, state.topic_name, ZERO_UUID, state, deleted)
            for name in dict.fromkeys(state.topic_name for state in request.ungrouped_partition_states):
                _sort(self, name)
        self._take_over(request, api_version)
        return ErrorCode.NONE, deleted

    async def update_in_turns(
        self,
        request: UpdateMetadataRequest,
        api_version: int,
        turn: Callable[[int], Awaitable[None]],
        is_current: Callable[[], bool],
    ) -> tuple[ErrorCode, list[TopicPartition], list[PartitionMetadata]]:
        """As `update`, for a request of many partitions: it is applied to a copy, which everybody sees at once.

        Gives what has been replaced as well: to free it takes time.

        Args:
            turn: called when so many partitions were worked at: others may go first.
            is_current: whether no other controller, and no later request, has come meanwhile.
        """
        copy = _TopicsCopy(self)
        deleted: list[TopicPartition] = []
        if api_version >= 5:
            grouped = ((topic.topic_name, topic.topic_id, topic.partition_states) for topic in request.topic_states)
        else:
            grouped = ((state.topic_name, ZERO_UUID, [state]) for state in request.ungrouped_partition_states)
        named: dict[str, None] = {}
        for name, topic_id, states in grouped:
            named[name] = None
            await turn(copy.own(name) // _COPIED_AT_ONCE)
            for start in range(0, len(states), _APPLIED_AT_ONCE):
                some = states[start : start + _APPLIED_AT_ONCE]
                for state in some:
                    _apply(copy, name, topic_id, state, deleted)
                await turn(len(some))
        for name in named:
            _sort(copy, name)
            await turn(1 + len(copy.partitions_of(name)) // _COPIED_AT_ONCE)
        if api_version >= 8 and request.type == FULL and not request.is_kraft_controller:
            _forget_all_but(copy, named.keys(), deleted)
        if request.controller_epoch < self.controller_epoch or not is_current():
            return ErrorCode.STALE_CONTROLLER_EPOCH, [], []
        self.topics, self.names, self.topics_version = copy.topics, copy.names, copy.topics_version
        self._take_over(request, api_version)
        return ErrorCode.NONE, deleted, copy.replaced

    def _take_over(self, request: UpdateMetadataRequest, api_version: int) -> None:
        """The topics are those of the request; now its brokers as well, and whoever listens is told."""
        self.controller_epoch = request.controller_epoch
        self.controller_id = request.controller_id
        self.brokers = {broker.id: _broker(broker, api_version) for broker in _by_id(request.live_brokers)}
        self.version += 1
        self._is_updated.set()
        for listener in self._listeners:
            listener()

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.names.get(topic_id)

    def topic_id(self, name: str) -> bytes:
        """The zero UUID when the topic is unknown or has none."""
        topic = self.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def partition(self, name: str, partition: int) -> PartitionMetadata | None:
        topic = self.topics.get(name)
        return None if topic is None else topic.partitions.get(partition)

    def partition_count(self, name: str) -> int:
        """How many the topic has at least, 0 for an unknown one. A partition that has never had a leader, or whose
        state cannot be read, is not here: the last ones may be missing."""
        topic = self.topics.get(name)
        return 0 if topic is None else next(reversed(topic.partitions), -1) + 1

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self.brokers

    def endpoint(self, broker_id: int, listener: str) -> BrokerEndpoint | None:
        """None when the broker is not alive or has no such listener."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener)

    def brokers_with(self, listener: str) -> Iterable[tuple[BrokerMetadata, BrokerEndpoint]]:
        """The live brokers that have this listener, by id."""
        for broker in self.brokers.values():
            endpoint = broker.endpoints.get(listener)
            if endpoint is not None:
                yield broker, endpoint


class _Table(Protocol):
    """Topics by name, and names by id."""

    topics: dict[str, TopicMetadata]
    names: dict[bytes, str]
    topics_version: int


class _TopicsCopy:
    """The topics of a cache, to be changed while it stays as it is: a `_Table`."""

    def __init__(self, cache: MetadataCache) -> None:
        self.topics = dict(cache.topics)
        self.names = dict(cache.names)
        self.topics_version = cache.topics_version
        self.replaced: list[PartitionMetadata] = []
        """What the topics that change had."""
        self._owned: set[str] = set()

    def own(self, name: str) -> int:
        """From now on the topic of this name is the copy's own. Gives how many partitions were copied."""
        topic = self.topics.get(name)
        if topic is None or name in self._owned:
            self._owned.add(name)
            return 0
        self._owned.add(name)
        self.topics[name] = TopicMetadata(name, topic.topic_id, dict(topic.partitions))
        self.replaced += topic.partitions.values()
        return len(topic.partitions)

    def partitions_of(self, name: str) -> Mapping[int, PartitionMetadata]:
        topic = self.topics.get(name)
        return {} if topic is None else topic.partitions


def _apply(
    table: _Table, name: str, topic_id: bytes, state: UpdateMetadataPartitionState, deleted: list[TopicPartition]
) -> None:
    """What an UpdateMetadata says of one partition."""
    topic = table.topics.get(name)
    index = state.partition_index
    if state.leader == LEADER_DURING_DELETE:
        if topic is not None and topic.partitions.pop(index, None) is not None:
            deleted.append(TopicPartition(name, index))
            table.topics_version += 1
            if not topic.partitions:
                del table.topics[name]
                table.names.pop(topic.topic_id, None)
        return
    if topic is not None and topic_id != ZERO_UUID and topic.topic_id not in (ZERO_UUID, topic_id):
        # A topic of this name was deleted and created again: nothing of the old one is valid.
        deleted.extend(TopicPartition(name, old) for old in topic.partitions)
        table.names.pop(topic.topic_id, None)
        topic = None
    if topic is None:
        topic = table.topics[name] = TopicMetadata(name)
        table.topics_version += 1
    if topic_id != ZERO_UUID:
        if topic.topic_id != topic_id:
            table.topics_version += 1
        topic.topic_id = topic_id
        table.names[topic_id] = name
    if index not in topic.partitions:
        table.topics_version += 1
    topic.partitions[index] = PartitionMetadata(
        state.leader,
        state.leader_epoch,
        tuple(state.isr),
        tuple(state.replicas),
        tuple(state.offline_replicas or ()),
        state.zk_version,
        state.controller_epoch,
    )


def _forget_all_but(table: _Table, names: Set[str], deleted: list[TopicPartition]) -> None:
    for name in [name for name in table.topics if name not in names]:
        topic = table.topics.pop(name)
        table.names.pop(topic.topic_id, None)
        deleted.extend(TopicPartition(name, index) for index in topic.partitions)
        table.topics_version += 1


def _sort(table: _Table, name: str) -> None:
    """Sorts a topic's partitions, once for all that a request has added: it may name thousands."""
    topic = table.topics.get(name)
    if topic is not None and any(after < before for before, after in pairwise(topic.partitions)):
        topic.partitions = dict(sorted(topic.partitions.items()))


def _by_id(brokers: Iterable[UpdateMetadataBroker]) -> list[UpdateMetadataBroker]:
    return sorted(brokers, key=lambda broker: int(broker.id))


def _broker(broker: UpdateMetadataBroker, api_version: int) -> BrokerMetadata:
    if api_version == 0:
        endpoints = {"PLAINTEXT": BrokerEndpoint(broker.v0_host, broker.v0_port, 0)}
    else:
        endpoints = {
            # Before version 3 an endpoint has no listener name; its security protocol is the name.
            (
                item.listener if api_version >= 3 else _PROTOCOL_NAMES.get(item.security_protocol, "PLAINTEXT")
            ): BrokerEndpoint(item.host, item.port, item.security_protocol)
            for item in broker.endpoints
        }
    return BrokerMetadata(broker.id, endpoints, broker.rack)


_PROTOCOL_NAMES = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
