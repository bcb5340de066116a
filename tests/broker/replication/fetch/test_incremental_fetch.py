"""Fetches within a session, over the wire: what an incremental response names and what it leaves out (KIP-227)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import fetch as fetch_api
from ottla_broker.replication.fetch.engine import FetchEngine
from ottla_broker.security.principals import Principal
from ottla_broker.server.peers.broker_client import BrokerClient
from tests.broker.replication.fleet import Fleet, until, values_of

Offsets = dict[int, int]


class Session:
    """A client of one broker with one connection."""

    def __init__(self, fleet: Fleet, client: BrokerClient, version: int, broker_id: int = 1) -> None:
        self._fleet = fleet
        self._client = client
        self._broker_id = broker_id
        self.version = version
        self.session_id = 0
        self.epoch = 0
        self.error = 0

    def request(
        self, offsets: Offsets, forgotten: Iterable[int] = (), limits: Offsets | None = None, **fields: Any
    ) -> Any:
        topic_id = self._fleet.topics["orders"].topic_id
        parts = [
            fetch_api.FetchPartition(
                partition=index, fetch_offset=offset, partition_max_bytes=(limits or {}).get(index, 1 << 20)
            )
            for index, offset in offsets.items()
        ]
        gone = list(forgotten)
        request = fetch_api.FetchRequest(
            session_id=self.session_id,
            session_epoch=self.epoch,
            min_bytes=1,
            max_bytes=50 << 20,
            topics=[fetch_api.FetchTopic(topic="orders", topic_id=topic_id, partitions=parts)] if parts else [],
            forgotten_topics_data=(
                [fetch_api.ForgottenTopic(topic="orders", topic_id=topic_id, partitions=gone)] if gone else []
            ),
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return request

    async def fetch(self, offsets: Offsets, forgotten: Iterable[int] = (), **fields: Any) -> dict[int, Any]:
        """The response's partitions in their order."""
        response = await self._client.send(int(ApiKey.FETCH), self.version, self.request(offsets, forgotten, **fields))
        self.error = response.error_code
        if not self.error:
            self.session_id = response.session_id
            self.epoch = self.epoch + 1 if response.session_id else 0
        return {data.partition_index: data for topic in response.responses for data in topic.partitions}


@pytest.fixture
async def session(one: Fleet) -> AsyncIterator[Session]:
    yield Session(one, await one.client(1), 17)


def sessions_of(fleet: Fleet, broker_id: int = 1) -> FetchEngine:
    services = fleet.nodes[broker_id].dispatcher.services
    assert services is not None
    return services.fetch_engine


@pytest.mark.parametrize("version", range(7, 18))
async def test_an_incremental_fetch_names_only_partitions_with_news(one: Fleet, version: int) -> None:
    session = Session(one, await one.client(1), version)
    await one.produce(1, "orders", "a")
    opened = await session.fetch({0: 0, 1: 0})
    assert sorted(opened) == [0, 1] and session.session_id > 0
    assert values_of(opened[0].records) == ["a"]
    assert await session.fetch({0: 1}) == {}
    await one.produce(1, "orders", "b", index=1)
    more = await session.fetch({})
    assert list(more) == [1] and values_of(more[1].records) == ["b"]
    assert more[1].high_watermark == 1


async def test_a_partition_is_sent_again_when_its_position_does_not_change(one: Fleet, session: Session) -> None:
    await one.produce(1, "orders", "a")
    await session.fetch({0: 0, 1: 0})
    for _ in range(2):
        again = await session.fetch({})
        assert values_of(again[0].records) == ["a"]


async def test_a_delayed_fetch_of_a_session_completes_with_the_next_record_of_any_partition(
    one: Fleet, session: Session
) -> None:
    await session.fetch({0: 0, 1: 0})
    for index in (1, 0, 1):
        end = one.nodes[1].partition("orders", index).log.state.log_end_offset
        waiting = session.fetch({index: end}, max_wait_ms=60_000)
        task = one.clock.spawn(waiting, name="long poll")
        state = next(iter(sessions_of(one).sessions._sessions.values())).content
        await until(lambda state=state: state.waiting is not None, "the fetch waits")
        await one.produce(1, "orders", f"to {index}", index=index)
        answer = await task
        assert {found: values_of(data.records) for found, data in answer.items()} == {index: [f"to {index}"]}
        await session.fetch({index: end + 1})


async def test_a_delayed_fetch_without_news_is_empty_after_max_wait_ms(session: Session) -> None:
    await session.fetch({0: 0, 1: 0})
    assert await session.fetch({}, max_wait_ms=30) == {}
    assert session.error == 0


async def test_a_forgotten_partition_is_not_sent_until_it_is_added_again(one: Fleet, session: Session) -> None:
    await session.fetch({0: 0, 1: 0})
    await session.fetch({}, [1])
    await one.produce(1, "orders", "a")
    await one.produce(1, "orders", "b", index=1)
    assert list(await session.fetch({})) == [0]
    assert list(await session.fetch({0: 1, 1: 0})) == [0, 1] or session.error == 0
    assert sessions_of(one).sessions.partition_count == 2


async def test_a_session_is_closed_when_its_last_partition_is_forgotten(one: Fleet, session: Session) -> None:
    await session.fetch({0: 0})
    assert await session.fetch({}, [0]) == {}
    assert session.session_id == 0 and len(sessions_of(one).sessions) == 0


async def test_a_full_request_closes_the_session_it_names(one: Fleet, session: Session) -> None:
    await session.fetch({0: 0})
    first = session.session_id
    session.epoch = 0
    await session.fetch({0: 0})
    assert session.session_id not in (0, first) and len(sessions_of(one).sessions) == 1
    session.epoch = -1
    assert list(await session.fetch({0: 0, 1: 0})) == [0, 1]
    assert session.session_id == 0 and len(sessions_of(one).sessions) == 0
    assert not one.nodes[1].partition("orders").watermark_waiters


async def test_nobody_else_continues_or_closes_a_session(one: Fleet, session: Session) -> None:
    await session.fetch({0: 0})
    other = Session(one, await one.client(1), 17)
    await other.fetch({0: 0}, session_epoch=-1)
    for connection in list(one.nodes[1].server._connections)[1:]:
        connection.authenticated(Principal("User", "other"))
    other.session_id, other.epoch = session.session_id, session.epoch
    assert await other.fetch({}) == {}
    assert other.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    for epoch in (-1, 0):
        other.session_id = session.session_id
        await other.fetch({0: 0}, session_epoch=epoch)
        assert other.error == 0
    assert await session.fetch({}) == {}
    assert session.error == 0


async def test_the_errors_of_sessions(one: Fleet, session: Session) -> None:
    await session.fetch({}, session_id=5, session_epoch=1)
    assert session.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    await session.fetch({0: 0})
    await session.fetch({}, session_epoch=7)
    assert session.error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.version = 12
    await session.fetch({})
    assert session.error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    session.version = 17
    assert await session.fetch({}) == {} and session.error == 0  # nothing has changed by all that


async def test_a_request_of_a_session_displaces_the_one_that_waits_on_another_connection(
    one: Fleet, session: Session
) -> None:
    await session.fetch({0: 0})
    other = Session(one, await one.client(1), 17)
    other.session_id = session.session_id
    waiting = one.clock.spawn(session.fetch({}, max_wait_ms=60_000), name="long poll")
    state = next(iter(sessions_of(one).sessions._sessions.values())).content
    await until(lambda: state.waiting is not None, "the fetch waits")
    other.epoch = 2
    assert await other.fetch({}) == {} and other.error == 0
    await waiting
    assert session.error == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_a_session_without_requests_waits_for_one_append_at_most(one: Fleet, session: Session) -> None:
    partition = one.nodes[1].partition("orders")
    await session.fetch({0: 0, 1: 0})
    assert await session.fetch({}) == {}
    assert len(partition.watermark_waiters) == 1
    await one.produce(1, "orders", "a")
    await until(lambda: not partition.watermark_waiters, "the session knows")
    await one.produce(1, "orders", "b")
    assert not partition.watermark_waiters
    # It was only late: it gets everything, and what comes next.
    assert values_of((await session.fetch({}))[0].records) == ["a", "b"]
    waiting = one.clock.spawn(session.fetch({0: 2}, max_wait_ms=60_000), name="long poll")
    await until(lambda: partition.watermark_waiters, "the fetch waits")
    await one.produce(1, "orders", "c")
    assert values_of((await waiting)[0].records) == ["c"]


async def test_an_error_is_sent_every_time_and_the_state_after_it_once(one: Fleet, session: Session) -> None:
    await session.fetch({0: 0, 1: 0})
    part = fetch_api.FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=9, partition_max_bytes=100)
    topic = fetch_api.FetchTopic(topic="orders", topic_id=one.topics["orders"].topic_id, partitions=[part])
    for topics in ([topic], []):
        answer = await session.fetch({}, topics=topics)
        assert answer[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    answer = await session.fetch({0: 0})
    assert (answer[0].error_code, answer[0].high_watermark) == (0, 0)
    assert await session.fetch({}) == {}


async def test_a_session_finds_an_unknown_topic_once_it_exists(one: Fleet, session: Session) -> None:
    topic_id = one.topics["orders"].topic_id
    await session.fetch({0: 0, 1: 0})
    topic = fetch_api.FetchTopic(topic_id=bytes(15) + b"\x09", partitions=[fetch_api.FetchPartition(partition=0)])
    strange = await session._client.send(int(ApiKey.FETCH), 17, session.request({}, topics=[topic]))
    session.epoch += 1
    assert strange.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert topic_id != topic.topic_id
    one.nodes[1].manager._partitions.topic_names[topic.topic_id] = "orders"  # as if a topic of this id came to be here
    found = await session._client.send(int(ApiKey.FETCH), 17, session.request({}))
    assert found.responses[0].partitions[0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID


async def test_a_delayed_fetch_of_a_session_completes_when_the_leader_changes(one: Fleet, session: Session) -> None:
    part = fetch_api.FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=0, partition_max_bytes=100)
    topic = fetch_api.FetchTopic(topic="orders", topic_id=one.topics["orders"].topic_id, partitions=[part])
    await session.fetch({}, topics=[topic])
    waiting = one.clock.spawn(session.fetch({}, max_wait_ms=60_000), name="long poll")
    state = next(iter(sessions_of(one).sessions._sessions.values())).content
    await until(lambda: state.waiting is not None, "the fetch waits")
    await one.elect("orders", 1, (1,))
    answer = await waiting
    assert answer[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert answer[0].current_leader.leader_epoch == 1


async def test_the_state_is_sent_again_when_the_client_names_another_leader_epoch(one: Fleet, session: Session) -> None:
    """A follower that learns the epoch before it reads a response drops that response."""
    topic_id = one.topics["orders"].topic_id

    def named(epoch: int) -> list[Any]:
        part = fetch_api.FetchPartition(partition=0, current_leader_epoch=epoch, partition_max_bytes=100)
        return [fetch_api.FetchTopic(topic="orders", topic_id=topic_id, partitions=[part])]

    await session.fetch({1: 0}, topics=named(0))
    await one.elect("orders", 1, (1,))
    assert list(await session.fetch({}, topics=named(1))) == [0]
    assert await session.fetch({}, topics=named(1)) == {}


async def test_the_high_watermark_is_sent_again_after_a_diverging_epoch(one: Fleet, session: Session) -> None:
    """The follower takes nothing else from that response, and for an idle partition no other one comes by itself."""
    topic_id = one.topics["orders"].topic_id

    def asked(offset: int, epoch: int) -> list[Any]:
        part = fetch_api.FetchPartition(
            partition=0, current_leader_epoch=1, fetch_offset=offset, last_fetched_epoch=epoch, partition_max_bytes=100
        )
        return [fetch_api.FetchTopic(topic="orders", topic_id=topic_id, partitions=[part])]

    await one.produce(1, "orders", "a")
    await one.elect("orders", 1, (1,))
    await one.produce(1, "orders", "b")
    await session.fetch({1: 0})
    parted = await session.fetch({}, topics=asked(2, 0))
    assert parted[0].diverging_epoch is not None and parted[0].diverging_epoch.end_offset == 1
    told = await session.fetch({}, topics=asked(2, 1))
    assert told[0].high_watermark == 2 and not told[0].records
    assert await session.fetch({}, topics=asked(2, 1)) == {}


async def test_a_partition_that_had_records_goes_behind_the_others(one: Fleet, session: Session) -> None:
    for index in (0, 1):
        for value in ("x" * 500, "y" * 500):
            await one.produce(1, "orders", value, index=index)
    first = await session.fetch({0: 0, 1: 0}, max_bytes=600)
    assert values_of(first[0].records) == ["x" * 500] and not values_of(first[1].records)
    second = await session.fetch({0: 1}, max_bytes=600)
    assert next(iter(second)) == 1 and values_of(second[1].records) == ["x" * 500]
    third = await session.fetch({1: 1}, max_bytes=600)
    assert next(iter(third)) == 0 and values_of(third[0].records) == ["y" * 500]


@pytest.mark.parametrize("limit", ["partition_max_bytes", "max_bytes"])
async def test_a_batch_above_the_limit_is_sent_whole_when_its_partition_is_first(
    one: Fleet, session: Session, limit: str
) -> None:
    """A truncated batch would count as records, and put its partition behind the other one every time."""
    for number in range(8):
        await one.produce(1, "orders", f"{number}" + "x" * 500, index=0)
    await one.produce(1, "orders", "y" * 2000, index=1)
    await session.fetch({0: 8, 1: 1})
    limits = {0: 600, 1: 600} if limit == "partition_max_bytes" else None
    fields = {} if limits else {"max_bytes": 900}
    first = await session.fetch({0: 0, 1: 0}, limits=limits, **fields)
    assert list(first) == [0] and len(values_of(first[0].records)) == 1
    second = await session.fetch({0: 1}, limits=limits, **fields)
    assert next(iter(second)) == 1 and values_of(second[1].records) == ["y" * 2000]


async def test_a_response_is_limited_by_fetch_max_bytes(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, {"fetch.max.bytes": "1024"})
    await fleet.start(1)
    await fleet.create("orders", (1,), partitions=2)
    for _ in range(3):
        await fleet.produce(1, "orders", "x" * 500)
    await fleet.produce(1, "orders", "y" * 500, index=1)
    session = Session(fleet, await fleet.client(1), 17)
    for fields in ({}, {"session_epoch": -1, "session_id": 0}):
        answer = await session.fetch({0: 0, 1: 0}, **fields)
        assert len(answer[0].records) == 1024 and (1 not in answer or not answer[1].records)
    fleet.stop()


async def test_a_change_that_wakes_no_fetch_is_sent_after_a_while(one: Fleet, session: Session) -> None:
    await one.produce(1, "orders", "a")
    await session.fetch({0: 1, 1: 0})
    assert await session.fetch({}) == {}
    log = one.nodes[1].partition("orders").log
    await log.retention.advance_log_start_offset(1)  # as retention does
    for _ in range(1000):
        answer = await session.fetch({}, max_wait_ms=20)
        if answer:
            break
    assert answer[0].log_start_offset == 1 and not answer[0].records


async def test_a_delayed_fetch_gets_an_invalid_epoch_when_its_session_is_evicted(one: Fleet, session: Session) -> None:
    await session.fetch({0: 0})
    waiting = one.clock.spawn(session.fetch({}, max_wait_ms=60_000), name="long poll")
    state = next(iter(sessions_of(one).sessions._sessions.values())).content
    await until(lambda: state.waiting is not None, "the fetch waits")
    sessions_of(one).sessions.close(session.session_id)
    await waiting
    assert session.error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    await session.fetch({})
    assert session.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
