"""Rights that are taken away while somebody is connected: in a fetch session, in a group, in a transaction.

Each step is a request with the rights that there are by then; both brokers are asked the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from tests.beside.requests import Request
from tests.beside.security.names import GROUP, OTHER_TOPIC, TOPIC, TRANSACTIONAL_ID, Right
from tests.beside.security.world import World, batch

_FETCH_VERSIONS = (7, 12, 13, 17)
"""The first with sessions, the last with names, the first with ids, the last."""
_READ = Right(AclOperation.READ, ResourceType.TOPIC, TOPIC)
_READ_OTHER = Right(AclOperation.READ, ResourceType.TOPIC, OTHER_TOPIC)
_READ_GROUP = Right(AclOperation.READ, ResourceType.GROUP, GROUP)
_WRITE = Right(AclOperation.WRITE, ResourceType.TOPIC, TOPIC)
_WRITE_ID = Right(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID)


class Step(NamedTuple):
    """`request` is made of the response to the step before."""

    rights: tuple[Right, ...]
    request: Callable[[World, Any], Request]


class Story(NamedTuple):
    """Steps of one connection."""

    about: str
    steps: tuple[Step, ...]


def stories() -> Iterator[Story]:
    for version in _FETCH_VERSIONS:
        yield _fetch_session(version)
    yield _heartbeats()
    yield _transaction()


def _fetch_session(version: int) -> Story:
    """Both topics are read, then one, then none, then both again; at last one that was never allowed."""

    def fetch(epoch: int, *names: str) -> Callable[[World, Any], Request]:
        def request(world: World, before: Any) -> Request:
            api = codec.module(ApiKey.FETCH)
            part = api.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
            topics = [
                api.FetchTopic(topic_id=world.topic_id(name), partitions=[part])
                if version >= 13
                else api.FetchTopic(topic=name, partitions=[part])
                for name in names
            ]
            session_id = before.session_id if epoch else 0
            body = api.FetchRequest(
                max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=epoch, topics=topics, replica_id=-1
            )
            return Request(ApiKey.FETCH, version, body)

        return request

    both = (TOPIC, OTHER_TOPIC)
    return Story(
        f"fetch session v{version}",
        (
            Step((_READ, _READ_OTHER), fetch(0, *both)),
            Step((_READ,), fetch(1)),
            Step((), fetch(2)),
            Step((_READ, _READ_OTHER), fetch(3)),
            Step((_READ,), fetch(4, OTHER_TOPIC)),
            Step((_READ,), fetch(0, *both)),
            Step((_READ, _READ_OTHER), fetch(1)),
        ),
    )


def _heartbeats() -> Story:
    def heartbeat(world: World, before: Any) -> Request:
        member_id, generation = world.member(GROUP)
        body = codec.module(ApiKey.HEARTBEAT).HeartbeatRequest(
            group_id=GROUP, generation_id=generation, member_id=member_id
        )
        return Request(ApiKey.HEARTBEAT, 4, body)

    return Story("a member", tuple(Step(rights, heartbeat) for rights in ((_READ_GROUP,), (), (_READ_GROUP,))))


def _transaction() -> Story:
    """Records are written in it, then no more; nobody else may end it."""

    def produce(sequence: int) -> Callable[[World, Any], Request]:
        def request(world: World, before: Any) -> Request:
            if sequence == 0:
                world.open = world.transaction(TRANSACTIONAL_ID, TOPIC)
            producer_id, epoch = world.open
            api = codec.module(ApiKey.PRODUCE)
            records = batch(attributes=0x10, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            part = api.PartitionProduceData(index=0, records=records)
            data = api.TopicProduceData(name=TOPIC, partition_data=[part])
            body = api.ProduceRequest(transactional_id=TRANSACTIONAL_ID, acks=1, timeout_ms=10_000, topic_data=[data])
            return Request(ApiKey.PRODUCE, 9, body)

        return request

    def end(world: World, before: Any) -> Request:
        producer_id, epoch = world.open
        body = codec.module(ApiKey.END_TXN).EndTxnRequest(
            transactional_id=TRANSACTIONAL_ID, producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        return Request(ApiKey.END_TXN, 3, body)

    return Story(
        "a transaction",
        (
            Step((_WRITE_ID, _WRITE), produce(0)),
            Step((_WRITE_ID,), produce(1)),
            Step((_WRITE,), produce(1)),
            Step((_WRITE_ID, _WRITE), produce(1)),
            Step((_WRITE,), end),
            Step((_WRITE_ID,), end),
        ),
    )
