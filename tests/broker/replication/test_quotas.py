"""Replication throttles (KIP-73): what is held back, what never is, and how it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla_broker.exposition import Exposition
from tests.broker.replication.fleet import Fleet, Node, until

BATCHES = 5
ONE_BYTE = "1"
LARGE = "x" * 20_000
"""Of one byte per second it uses up all for as long as a test may take."""


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Brokers 1 and 2; broker 2 follows and does not get into an ISR. A fetch brings one batch of a partition."""
    found = Fleet(tmp_path, {"replica.fetch.max.bytes": "1", "replication.quota.window.size.seconds": "60"})
    found.is_controller_answering = False
    await found.start(1)
    yield found
    found.stop()


async def filled(fleet: Fleet, **overrides: str) -> Node:
    """Leader 1 holds batches of `slow`, `other` is empty; gives broker 2, which knows of nothing yet."""
    fleet.nodes[1].overrides = {name.replace("_", "."): value for name, value in overrides.items()}
    await fleet.create("slow", (1, 2), isr=(1,))
    fleet.nodes[1].overrides = {}
    await fleet.create("other", (1, 2), isr=(1,))
    for _ in range(BATCHES):
        await fleet.produce(1, "slow", LARGE, acks=1)
    await fleet.start(2)
    return fleet.nodes[2]


def throttle(node: Node, **rates: str) -> None:
    assert not node.config.apply_dynamic({f"{who}.replication.throttled.rate": rate for who, rate in rates.items()}, {})


def end(node: Node, topic: str) -> int:
    return node.partition(topic).log.state.log_end_offset


def metric(node: Node, name: str) -> float:
    (line,) = (
        line
        for line in Exposition(node.metrics).text().decode().splitlines()
        if line.startswith(f"kafka_server_{name} ")
    )
    return float(line.split()[-1])


def byte_rate(node: Node, who: str) -> float:
    return metric(node, f"{who}replication_byte_rate")


async def test_a_leader_gives_a_follower_nothing_above_the_rate_and_others_go_on(fleet: Fleet) -> None:
    node = await filled(fleet, leader_replication_throttled_replicas="0:1")
    throttle(fleet.nodes[1], leader=ONE_BYTE)
    await fleet.command("slow", is_new=True)
    await fleet.command("other", is_new=True)
    await until(lambda: end(node, "slow") == 1, "the first batch is within the rate")
    for number in range(3):
        await fleet.produce(1, "other", str(number), acks=1)
    await until(lambda: end(node, "other") == 3, "another partition is not held back")
    assert end(node, "slow") == 1 and byte_rate(fleet.nodes[1], "leader") > 1
    throttle(fleet.nodes[1])
    await until(lambda: end(node, "slow") == BATCHES, "without a rate it goes on")


async def test_a_follower_asks_for_nothing_above_its_rate_and_others_go_on(fleet: Fleet) -> None:
    node = await filled(fleet)
    throttle(node, follower=ONE_BYTE)
    node.overrides = {"follower.replication.throttled.replicas": "*"}
    await fleet.command("slow", to=[2], is_new=True)
    node.overrides = {}
    await fleet.command("other", to=[2], is_new=True)
    await until(lambda: end(node, "slow") == 1, "the first batch is within the rate")
    for number in range(3):
        await fleet.produce(1, "other", str(number), acks=1)
    await until(lambda: end(node, "other") == 3, "another partition is not held back")
    assert end(node, "slow") == 1 and byte_rate(node, "follower") > 1
    throttle(node)
    await until(lambda: end(node, "slow") == BATCHES, "without a rate it goes on")


async def test_replicas_that_are_not_named_are_not_throttled(fleet: Fleet) -> None:
    node = await filled(fleet, leader_replication_throttled_replicas="0:2,1:1")
    throttle(fleet.nodes[1], leader=ONE_BYTE)
    throttle(node, follower=ONE_BYTE)
    await fleet.command("slow", is_new=True)
    await until(lambda: end(node, "slow") == BATCHES, "neither the leader nor the follower is named")
    assert byte_rate(fleet.nodes[1], "leader") == 0


async def test_who_is_in_sync_is_never_held_back(fleet: Fleet) -> None:
    fleet.is_controller_answering = True
    fleet.nodes[1].overrides = {"leader.replication.throttled.replicas": "*"}
    await fleet.start(2)
    fleet.nodes[2].overrides = {"follower.replication.throttled.replicas": "*"}
    await fleet.create("slow", (1, 2))
    for node in fleet.live:
        throttle(node, leader=ONE_BYTE, follower=ONE_BYTE)
    for _ in range(BATCHES):
        answer = await asyncio.wait_for(fleet.produce(1, "slow", LARGE), 60)
        assert answer.error_code == 0
    assert fleet.topics["slow"].states[0].isr == (1, 2)
    assert byte_rate(fleet.nodes[1], "leader") > 1, "its bytes count all the same"


async def test_whom_the_high_watermark_waits_for_is_not_held_back(fleet: Fleet) -> None:
    """It has caught up, and the controller has not confirmed yet that it is in sync: producers wait for it all the
    same, and the leader would keep from it what they wait for."""
    node = await filled(fleet, leader_replication_throttled_replicas="0:1")
    await fleet.command("slow", is_new=True)
    await until(lambda: end(node, "slow") == BATCHES and fleet.unanswered, "it asks to be taken into the ISR")
    throttle(fleet.nodes[1], leader=ONE_BYTE)
    assert byte_rate(fleet.nodes[1], "leader") > 1
    answer = await asyncio.wait_for(fleet.produce(1, "slow", LARGE), 60)
    assert answer.error_code == 0 and end(node, "slow") == BATCHES + 1
    assert fleet.topics["slow"].states[0].isr == (1,)


async def test_who_is_in_sync_is_not_held_back_by_a_new_leader_epoch(fleet: Fleet) -> None:
    """What the leader has committed is not known before its first answer, and acks=all waits for the question."""
    fleet.is_controller_answering = True
    await fleet.start(2)
    node = fleet.nodes[2]
    node.overrides = {"follower.replication.throttled.replicas": "*"}
    await fleet.create("slow", (1, 2))
    await fleet.produce(1, "slow", LARGE)
    throttle(node, follower=ONE_BYTE)
    assert byte_rate(node, "follower") > 1
    await fleet.elect("slow", 1, (1, 2))
    answer = await asyncio.wait_for(fleet.produce(1, "slow", "a"), 60)
    assert answer.error_code == 0
    assert fleet.topics["slow"].states[0].isr == (1, 2)


async def test_what_a_reassignment_adds_is_counted_and_not_missed(fleet: Fleet) -> None:
    await fleet.start(2)
    leader, learner = fleet.nodes[1], fleet.nodes[2]
    await fleet.create("slow", (1,))
    fleet.topics["slow"].replicas[0], fleet.topics["slow"].adding = (1, 2), (2,)
    await fleet.elect("slow", 1, (1,))
    await fleet.produce(1, "slow", "a", acks=1)
    await until(lambda: end(learner, "slow") == 1, "the learner follows")
    assert metric(leader, "replicamanager_reassigningpartitions") == 1
    assert metric(learner, "replicamanager_reassigningpartitions") == 0
    assert metric(leader, "replicamanager_underreplicatedpartitions") == 0
    sent = metric(leader, "brokertopicmetrics_reassignmentbytesout_total")
    assert sent == metric(leader, "brokertopicmetrics_replicationbytesout_total") > 0
    assert metric(learner, "brokertopicmetrics_reassignmentbytesin_total") == sent
    fleet.topics["slow"].adding = ()
    await fleet.elect("slow", 1, (1,))
    assert metric(leader, "replicamanager_underreplicatedpartitions") == 1
