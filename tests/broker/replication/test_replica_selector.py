"""Reading from the closest replica, over the wire of real brokers (KIP-392). Broker i is in rack-i."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from tests.broker.replication.fleet import Fleet, fetch_request, until, values_of

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture
async def racked(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Three brokers with the topic "orders", led by 1, that choose by rack."""
    settings = {
        "replica.selector.class": RACK_AWARE,
        "replica.lag.time.max.ms": "3600000",  # a dead follower holds the high watermark back
    }
    fleet = Fleet(tmp_path, settings)
    await fleet.start(1, 2, 3)
    await fleet.create("orders", (1, 2, 3))
    yield fleet
    fleet.stop()


async def fetch(
    fleet: Fleet, broker_id: int, offset: int, rack: str, *, version: int = 17, max_wait_ms: int = 0, epoch: int = -1
) -> Any:
    request = fetch_request(
        fleet.topics["orders"].topic_id, "orders", offset, max_wait_ms=max_wait_ms, current_leader_epoch=epoch
    )
    request.rack_id = rack
    response = await fleet.ask(broker_id, ApiKey.FETCH, version, request)
    return response.responses[0].partitions[0]


@pytest.mark.parametrize("version", range(11, 18))
async def test_the_leader_sends_a_consumer_to_the_follower_in_its_rack_without_records(
    racked: Fleet, version: int
) -> None:
    await racked.produce(1, "orders", "a")
    sent_away = await fetch(racked, 1, 0, "rack-2", version=version, max_wait_ms=60_000)
    assert (sent_away.preferred_read_replica, bytes(sent_away.records), sent_away.error_code) == (2, b"", 0)
    assert sent_away.high_watermark == 1
    served = await fetch(racked, 2, 0, "rack-2", version=version, max_wait_ms=60_000)
    assert values_of(served.records) == ["a"] and served.preferred_read_replica == -1


@pytest.mark.parametrize("rack", ["", "rack-1", "rack-9"])
async def test_a_consumer_without_rack_or_in_the_leaders_or_a_strange_one_stays(racked: Fleet, rack: str) -> None:
    await racked.produce(1, "orders", "a")
    served = await fetch(racked, 1, 0, rack)
    assert values_of(served.records) == ["a"] and served.preferred_read_replica == -1


async def test_nobody_is_sent_to_a_follower_that_is_not_in_sync(racked: Fleet) -> None:
    await racked.produce(1, "orders", "a")
    racked.is_controller_answering = False  # a replica out of the ISR stays out
    await racked.elect("orders", 1, (1, 3))
    followers = racked.nodes[1].partition("orders").followers
    await until(lambda: {follower.log_end_offset for follower in followers.values()} == {1}, "both have fetched")
    assert (await fetch(racked, 1, 0, "rack-2")).preferred_read_replica == -1
    assert (await fetch(racked, 1, 0, "rack-3")).preferred_read_replica == 3


async def test_nobody_is_sent_to_a_follower_that_does_not_have_the_offset(racked: Fleet) -> None:
    await racked.produce(1, "orders", "a")
    racked.nodes[2].kill()
    await racked.produce(1, "orders", "b", acks=1)
    ahead = await fetch(racked, 1, 2, "rack-2")
    assert (ahead.error_code, ahead.preferred_read_replica) == (0, -1)


async def test_without_the_selector_a_rack_changes_nothing(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, {})
    await fleet.start(1, 2)
    await fleet.create("orders", (1, 2))
    await fleet.produce(1, "orders", "a")
    assert values_of((await fetch(fleet, 1, 0, "rack-2")).records) == ["a"]
    fleet.stop()


async def test_a_follower_serves_up_to_its_own_high_watermark_and_knows_the_rest(racked: Fleet) -> None:
    await racked.produce(1, "orders", "a")
    await until(lambda: racked.nodes[2].partition("orders").log.state.high_watermark == 1, "the follower knows of a")
    racked.nodes[3].kill()
    await racked.produce(1, "orders", "b", acks=1)
    follower = racked.nodes[2].partition("orders").log
    await until(lambda: follower.state.log_end_offset == 2, "the follower has b")
    assert values_of((await fetch(racked, 2, 0, "rack-2")).records) == ["a"]
    beyond = await fetch(racked, 2, 2, "rack-2")  # between the high watermark and the log's end
    assert (beyond.error_code, bytes(beyond.records)) == (0, b"")
    assert (await fetch(racked, 2, 3, "rack-2")).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await fetch(racked, 2, 0, "rack-2", version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await fetch(racked, 2, 0, "rack-2", epoch=9)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("slots", ["1000", "0"])
async def test_a_consumer_that_waits_at_a_follower_hears_of_a_record_before_the_followers_long_poll_ends(
    tmp_path: Path, slots: str
) -> None:
    fleet = Fleet(
        tmp_path,
        {
            "replica.selector.class": RACK_AWARE,
            "replica.fetch.wait.max.ms": "25000",
            "max.incremental.fetch.session.cache.slots": slots,
        },
    )
    await fleet.start(1, 2, 3)
    await fleet.create("orders", (1, 2, 3))
    started = fleet.clock.monotonic()
    for offset in range(5):
        waiting = fleet.clock.spawn(fetch(fleet, 2, offset, "rack-2", max_wait_ms=60_000), name="consumer")
        assert (await fleet.produce(1, "orders", f"value {offset}")).error_code == 0
        assert values_of((await waiting).records) == [f"value {offset}"]
    assert fleet.clock.monotonic() - started < 25, "the followers' long polls were answered by the high watermark"
    fleet.stop()


async def test_a_consumer_within_a_session_is_sent_away_too(racked: Fleet) -> None:
    await racked.produce(1, "orders", "a")
    topic_id = racked.topics["orders"].topic_id
    client = await racked.client(1)
    request = fetch_request(topic_id, "orders", 1, session_epoch=0)
    opened = await client.send(int(ApiKey.FETCH), 17, request)
    assert opened.responses[0].partitions[0].preferred_read_replica == -1
    going_on = fetch_request(topic_id, "orders", 0, session_id=opened.session_id, session_epoch=1, max_wait_ms=60_000)
    going_on.rack_id = "rack-3"
    answer = await client.send(int(ApiKey.FETCH), 17, going_on)
    assert answer.responses[0].partitions[0].preferred_read_replica == 3
    assert not answer.responses[0].partitions[0].records
