"""Followers of real brokers that fetch within sessions, over several fetchers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.protocol.api import ApiKey
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.fetch import session_fetch_state
from ottla_broker.replication.fetcher import Fetcher
from ottla_broker.replication.isr import InSyncState
from ottla_broker.replication.replica_states.commands import StopCommand
from ottla_broker.server.peers.broker_client import BrokerClient
from tests.broker.replication.fleet import Fleet, Node, until

LAG_MS = 30_000


def fetchers_of(node: Node) -> list[Fetcher]:
    return list(node.manager._fetchers._fetchers.values())


def sessions_of(node: Node) -> Any:
    services = node.dispatcher.services
    assert services is not None
    return services.fetch_engine.sessions


def hurried(node: Node) -> Callable[[int], None]:
    """Gives a function that advances the clock by which the broker judges its followers."""
    real = node.clock.monotonic
    ahead_s = 0.0

    def pass_time(more_ms: int) -> None:
        nonlocal ahead_s
        ahead_s += more_ms / 1000

    node.clock.monotonic = lambda: real() + ahead_s  # type: ignore[method-assign]
    return pass_time


async def test_followers_fetch_within_sessions_of_their_leader(three: Fleet) -> None:
    assert (await three.produce(1, "orders", "a", "b")).error_code == 0
    leader = three.nodes[1]
    await until(lambda: len(sessions_of(leader)) == 2, "both followers have a session")
    assert all(session.is_privileged for session in sessions_of(leader)._sessions.values())
    ids = {fetcher.session_id for number in (2, 3) for fetcher in fetchers_of(three.nodes[number])}
    assert ids == set(sessions_of(leader)._sessions)
    assert (await three.produce(1, "orders", "c")).error_code == 0
    assert {fetcher.session_id for number in (2, 3) for fetcher in fetchers_of(three.nodes[number])} == ids


async def test_a_follower_opens_a_new_session_and_misses_nothing_when_its_session_is_evicted(three: Fleet) -> None:
    leader = three.nodes[1]
    for round_number in range(5):
        assert (await three.produce(1, "orders", f"value {round_number}")).error_code == 0
        for session_id in list(sessions_of(leader)._sessions):
            sessions_of(leader).close(session_id)
    assert (await three.produce(1, "orders", "last")).error_code == 0
    await until(lambda: len(sessions_of(leader)) == 2, "both have a session again")
    await until(
        lambda: {three.nodes[number].partition("orders").log.state.high_watermark for number in (2, 3)} == {6},
        "the followers hear of the high watermark",
    )
    assert not three.isr_requests  # nobody was out of sync meanwhile


async def test_followers_fetch_without_sessions_when_the_leader_has_no_slots(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, {"max.incremental.fetch.session.cache.slots": "0"})
    await fleet.start(1, 2)
    await fleet.create("orders", (1, 2))
    assert (await fleet.produce(1, "orders", "a")).error_code == 0
    assert [fetcher.session_id for fetcher in fetchers_of(fleet.nodes[2])] == [0]
    fleet.stop()


async def test_an_idle_follower_stays_caught_up_while_it_fetches(tmp_path: Path) -> None:
    fleet = Fleet(
        tmp_path,
        {
            "replica.lag.time.max.ms": str(LAG_MS),
            "min.insync.replicas": "2",
            "replica.fetch.wait.max.ms": "20",
        },
    )
    await fleet.start(1, 2)
    await fleet.create("orders", (1, 2))
    await fleet.create("flights", (1, 2))
    partition = fleet.nodes[1].partition("orders")
    asked = partition.followers[2]
    assert (await fleet.produce(1, "orders", "a")).error_code == 0
    state = next(iter(sessions_of(fleet.nodes[1])._sessions.values())).content
    await until(lambda: not state.active, "everything is sent")
    before = asked.last_fetch_ms
    pass_time = hurried(fleet.nodes[1])
    # Another partition keeps the session busy for longer than the lag limit, this one is idle meanwhile.
    while fleet.nodes[1].manager.now_ms() - before < 2 * LAG_MS:
        pass_time(LAG_MS // 20)
        assert (await fleet.produce(1, "flights", "x")).error_code == 0
        await fleet.nodes[1].manager.shrink_isrs()
    assert fleet.nodes[1].manager.now_ms() - asked.last_caught_up_ms < LAG_MS
    assert (await fleet.produce(1, "orders", "b")).error_code == 0
    assert asked.last_caught_up_ms - before >= LAG_MS
    assert not fleet.isr_requests
    fleet.stop()


async def test_an_idle_follower_stays_in_sync_when_the_isr_is_checked_in_the_iteration_of_an_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_fetch_state, "SWEEP_MS", 1_000 * LAG_MS)  # no sweep tells of the idle follower
    fleet = Fleet(
        tmp_path,
        {
            "replica.lag.time.max.ms": str(LAG_MS),
            "min.insync.replicas": "2",
            "replica.fetch.wait.max.ms": "20",
        },
    )
    await fleet.start(1, 2)
    await fleet.create("orders", (1, 2))
    await fleet.create("flights", (1, 2))
    leader = fleet.nodes[1]
    partition = leader.partition("orders")
    assert (await fleet.produce(1, "orders", "a")).error_code == 0
    state = next(iter(sessions_of(leader)._sessions.values())).content
    await until(lambda: not state.active, "everything is sent")
    before = leader.manager.now_ms()
    pass_time = hurried(leader)
    while leader.manager.now_ms() - before < 2 * LAG_MS:
        pass_time(LAG_MS // 20)
        assert (await fleet.produce(1, "flights", "x")).error_code == 0

    looks: list[InSyncState] = []

    def append_and_look() -> None:
        partition.on_log_append()
        with pytest.raises(StopIteration):  # it ends in this very iteration of the loop
            leader.manager.shrink_isrs().send(None)
        looks.append(partition.in_sync)

    partition.log.state.on_append = append_and_look
    assert (await fleet.produce(1, "orders", "b")).error_code == 0
    assert looks == [InSyncState((1, 2))]
    fleet.stop()


async def test_the_high_watermark_does_not_wait_for_an_idle_follower_that_the_controller_removed_from_the_isr(
    tmp_path: Path,
) -> None:
    """As it does with a broker that shuts down: the leader learns first, and the follower fetches no more."""
    fleet = Fleet(tmp_path)
    await fleet.start(1, 2)
    await fleet.create("orders", (1, 2))
    assert (await fleet.produce(1, "orders", "a")).error_code == 0
    state = next(iter(sessions_of(fleet.nodes[1])._sessions.values())).content
    await until(lambda: not state.active, "everything is sent")
    stop = StopCommand(TopicPartition("orders", 0), 1, False)
    await fleet.nodes[2].manager.stop_replicas(fleet.controller_epoch, [stop])
    await fleet.elect("orders", 1, (1,), to=(1,))
    assert (await fleet.produce(1, "orders", "b")).error_code == 0
    fleet.stop()


async def test_a_change_of_num_replica_fetchers_redistributes_the_partitions(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, {"num.replica.fetchers": "2"})
    await fleet.start(1, 2)
    await fleet.create("orders", (1, 2), partitions=6)
    follower = fleet.nodes[2]

    async def produce_everywhere(value: str) -> None:
        answers = await asyncio.gather(*(fleet.produce(1, "orders", value, index=index) for index in range(6)))
        assert [answer.error_code for answer in answers] == [0] * 6

    await produce_everywhere("a")
    assert len(fetchers_of(follower)) == 2
    for count in (4, 1):
        follower.config.apply_dynamic({}, {"num.replica.fetchers": str(count)})
        follower.manager.resize_fetchers()
        await produce_everywhere(f"with {count}")
        await until(lambda count=count: len(fetchers_of(follower)) == count, "the fetchers are resized")
        assert sum(len(fetcher._followers) for fetcher in fetchers_of(follower)) == 6
    fleet.stop()


async def test_a_follower_gets_the_high_watermark_that_its_leader_sends_while_the_epoch_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response to a full request reaches a follower that has started again meanwhile, with the same leader."""
    fleet = Fleet(tmp_path, {"replica.lag.time.max.ms": "3600000"})
    await fleet.start(1, 2)
    await fleet.create("orders", (1, 2), partitions=2)  # the other one keeps the fetcher and its session
    leader, follower = (fleet.nodes[broker].partition("orders") for broker in (1, 2))
    await fleet.produce(1, "orders", "a")
    await until(lambda: follower.log.state.high_watermark == 1, "all is known")
    has_failed, answered, goes_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    real = BrokerClient.send

    def send(self: BrokerClient, api: int, version: int, request: Any, **kwargs: Any) -> Any:
        if api != ApiKey.FETCH or request.replica_state is None or goes_on.is_set():
            return real(self, api, version, request, **kwargs)
        return asyncio.ensure_future(send_slowly(self, version, request, **kwargs))

    async def send_slowly(client: BrokerClient, version: int, request: Any, **kwargs: Any) -> Any:
        has_failed.set()
        if leader.log.state.log_start_offset == 0:
            raise ConnectionError("a network that is away for a moment")
        answer = await real(client, int(ApiKey.FETCH), version, request, **kwargs)
        answered.set()
        await goes_on.wait()
        return answer

    monkeypatch.setattr(BrokerClient, "send", send)
    await has_failed.wait()  # so the next request is full
    await leader.delete_records(1)
    await answered.wait()
    assert follower.log.state.log_start_offset == 0
    await fleet.elect("orders", 1, (1, 2))
    goes_on.set()
    await until(lambda: (follower.log.state.log_start_offset, leader.low_watermark) == (1, 1), "the follower knows it")
    fleet.stop()


async def test_partitions_are_added_and_removed_within_one_session(three: Fleet) -> None:
    assert (await three.produce(1, "orders", "a")).error_code == 0
    await three.create("flights", (1, 2, 3), partitions=3)
    for index in range(3):
        assert (await three.produce(1, "flights", "b", index=index)).error_code == 0
    await three.elect("flights", 2, (1, 2, 3), index=1)
    assert (await three.produce(2, "flights", "c", index=1)).error_code == 0
    assert (await three.produce(1, "flights", "d", index=2)).error_code == 0
    assert (await three.produce(1, "orders", "e")).error_code == 0
    assert await three.values(1, "orders") == ["a", "e"]
    assert await three.values(2, "flights", 1) == ["b", "c"]
