"""The driver's requests during planning, and the lookup of leaders: metadata and offsets, with retries.

Blocking; only this module and `fetch` use time and sleep. It creates no topics: Metadata requests have
allow_auto_topic_creation off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla_broker.protocol.generated.metadata import MetadataRequest, MetadataRequestTopic
from ottla_pipeline.errors import ClusterUnreachable, RequestRefused
from ottla_pipeline.topic_partition import TopicLayout, TopicPartition
from ottla_pipeline.wire.connecting import Connecting
from ottla_pipeline.wire.connection import Connection, error_of

T = TypeVar("T")
Address: TypeAlias = tuple[str, int]


_MOST_IDLE = 16
"""Connections to leaders that wait for the next task."""


class NotYet(Exception):
    """A broker's answer that another try may change; the message says what was answered."""


class NoBroker(NotYet):
    """No address that is known leads to a broker."""


class TopicRecreated(Exception):
    """The topic of that name has another id than the one that was planned: it was deleted and created again."""


class Cluster:
    """A cluster as the options name it. Holds open connections: close it, or use it in a `with` block."""

    def __init__(self, connecting: Connecting) -> None:
        self._connecting = connecting
        self._bootstrap = list(connecting.bootstrap)
        self._connections: dict[Address, Connection] = {}
        self._idle: list[tuple[Address, Connection]] = []

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection."""
        for connection in (*self._connections.values(), *(connection for _, connection in self._idle)):
            connection.close()
        self._connections.clear()
        self._idle.clear()

    def drop_broken(self) -> None:
        """Closes the connections that a broker has closed while nobody used them."""
        for address, connection in list(self._connections.items()):
            if not connection.is_reusable:
                self.drop(address)
        for entry in [entry for entry in self._idle if not entry[1].is_reusable]:
            entry[1].close()
            self._idle.remove(entry)

    def layout_of(self, topics: Sequence[str] | None) -> Mapping[str, TopicLayout]:
        """The named topics (absent where there is no such topic), or all but internal ones.

        Raises:
            ClusterUnreachable: no broker answers, or a topic has an error that does not go away.
            RequestRefused: a broker refuses for good.
        """

        def once() -> dict[str, TopicLayout]:
            found: dict[str, TopicLayout] = {}
            for topic in self._metadata(topics).topics:
                error = error_of(topic.error_code)
                if error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                    continue
                raise_for(error, f"the metadata of topic {topic.name!r}")
                if topics is not None or not topic.is_internal:
                    numbers = sorted(partition.partition_index for partition in topic.partitions)
                    found[topic.name] = TopicLayout(bytes(topic.topic_id), tuple(numbers))
            return found

        return self.retried(once)

    def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The offset at a time in ms, EARLIEST or LATEST, for each partition; -1 where no record is young enough.

        With read_committed, LATEST is the last stable offset. Raises as `layout_of`.
        """
        return self.retried(lambda: self._offsets_at(timestamps))

    def connect_to_leader(self, partition: TopicPartition, topic_id: bytes = ZERO_UUID) -> Connection:
        """A connection to the partition's leader, which the caller closes or gives back. NotYet and OSError: try again.

        TopicRecreated where the topic has another id than `topic_id`; ZERO_UUID stands for any.
        """
        leader = self._leaders([partition], topic_id)[partition]
        found = next((entry for entry in self._idle if entry[0] == leader), None)
        if found is None:
            return self.open(*leader)
        self._idle.remove(found)
        return found[1]

    def give_back(self, connection: Connection) -> None:
        """Takes a connection of `connect_to_leader` for the next call; closes it where an answer is still awaited."""
        if connection.is_reusable and len(self._idle) < _MOST_IDLE:
            connection.release_buffer()
            self._idle.append(((connection.host, connection.port), connection))
        else:
            connection.close()

    def retried(self, act: Callable[[], T]) -> T:
        """Tries `act` again after NotYet and OSError, with new connections.

        A cluster that answers may be electing a leader: it has kafka.default.api.timeout.ms. Where no address leads to
        a broker, the addresses are probably wrong: they have fetchOffset.numRetries.
        """
        connecting = self._connecting
        deadline = time.monotonic() + connecting.default_api_timeout_ms / 1000
        tries_without_broker = 0
        while True:
            try:
                return act()
            except NoBroker as error:
                self.close()
                tries_without_broker += 1
                if tries_without_broker > connecting.retries:
                    tries = f"tried {tries_without_broker} times, fetchOffset.numRetries"
                    raise ClusterUnreachable(f"{error} ({tries})") from error
            except (NotYet, OSError) as error:
                self.close()
                if time.monotonic() >= deadline:
                    waited = f"{connecting.default_api_timeout_ms} ms, kafka.default.api.timeout.ms"
                    raise ClusterUnreachable(f"{error} (after {waited})") from error
            time.sleep(connecting.retry_interval_ms / 1000)

    # -- single requests

    def metadata(self, topics: Sequence[str], *, create: bool) -> Any:
        """The answer to a Metadata request; with `create` the broker may create topics (auto.create.topics.enable).

        NotYet when no broker answers.
        """
        requested = [MetadataRequestTopic(name=topic) for topic in topics]
        return self.ask_any(ApiKey.METADATA, MetadataRequest(topics=requested, allow_auto_topic_creation=create))

    def ask_any(self, api_key: ApiKey, request: Any) -> Any:
        """The answer of the first broker that gives one, those of the bootstrap servers first; NoBroker without one.

        An address that gives none is asked last from then on.
        """
        reasons: list[str] = []
        for host, port in list(self._bootstrap):
            try:
                return self.connection(host, port).ask(api_key, request)
            except OSError as error:
                self.drop((host, port))
                self._bootstrap.remove((host, port))
                self._bootstrap.append((host, port))
                reasons.append(f"{host}:{port} ({error})")
        raise NoBroker(f"no broker of kafka.bootstrap.servers answers: {', '.join(reasons)}")

    def _metadata(self, topics: Sequence[str] | None) -> Any:
        requested = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        answer = self.ask_any(ApiKey.METADATA, MetadataRequest(topics=requested, allow_auto_topic_creation=False))
        for broker in answer.brokers:  # the bootstrap servers may go while others stay
            if (broker.host, broker.port) not in self._bootstrap:
                self._bootstrap.append((broker.host, broker.port))
        return answer

    def leaders_of(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Address]:
        """Where the leader of each partition is. NotYet where one has none."""
        return self._leaders(partitions)

    def _leaders(
        self, partitions: Sequence[TopicPartition], topic_id: bytes = ZERO_UUID
    ) -> dict[TopicPartition, Address]:
        answer = self._metadata(sorted({partition.topic for partition in partitions}))
        brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        leaders: dict[TopicPartition, Address] = {}
        for topic in answer.topics:
            error = error_of(topic.error_code)
            if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                # It was there when the ranges were planned: a broker that has just started has not heard of it yet.
                raise NotYet(f"topic {topic.name!r} does not exist at {self._connecting.addresses}")
            raise_for(error, f"the metadata of topic {topic.name!r}")
            if ZERO_UUID not in (topic_id, topic.topic_id) and topic.topic_id != topic_id:
                raise TopicRecreated(topic.name)
            for found in topic.partitions:
                if found.leader_id in brokers:
                    leaders[TopicPartition(topic.name, found.partition_index)] = brokers[found.leader_id]
        for partition in partitions:
            if partition not in leaders:
                raise NotYet(f"{partition} has no leader")
        return leaders

    def _offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        by_leader: dict[Address, dict[str, list[ListOffsetsPartition]]] = {}
        leaders = self._leaders(list(timestamps))
        for partition, timestamp in timestamps.items():
            topics = by_leader.setdefault(leaders[partition], {})
            topics.setdefault(partition.topic, []).append(
                ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)
            )
        found: dict[TopicPartition, int] = {}
        for (host, port), topics in by_leader.items():
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(self._connecting.read_committed),
                topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
            )
            for topic in self.connection(host, port).ask(ApiKey.LIST_OFFSETS, request).topics:
                for answer in topic.partitions:
                    partition = TopicPartition(topic.name, answer.partition_index)
                    raise_for(error_of(answer.error_code), f"the offsets of {partition}")
                    found[partition] = answer.offset
        return found

    def connection(self, host: str, port: int) -> Connection:
        """The open connection to a broker, which this cluster closes. OSError when it cannot be reached."""
        address = (host, port)
        if address not in self._connections:
            self._connections[address] = self.open(host, port)
        return self._connections[address]

    def open(self, host: str, port: int) -> Connection:
        """A new connection to a broker, which the caller closes. OSError when it cannot be reached."""
        connecting = self._connecting
        timeout_s = connecting.request_timeout_ms / 1000
        try:
            return Connection(
                host, port, client_id=connecting.client_id, timeout_s=timeout_s, security=connecting.security
            )
        except OSError as error:
            raise ConnectionError(f"the broker {host}:{port} cannot be reached: {error}") from error

    def drop(self, address: Address) -> None:
        """Closes the connection to a broker, whose answers are not to be waited for any more."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()


def raise_for(error: ErrorCode, what: str) -> None:
    """Nothing for NONE, NotYet for what another try may change, else RequestRefused."""
    if error is ErrorCode.NONE:
        return
    if error.retriable:
        raise NotYet(f"{what}: {error.name}, {error.message}")
    raise RequestRefused(f"{what}: {error.name}, {error.message}")
