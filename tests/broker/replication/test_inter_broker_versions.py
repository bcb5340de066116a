"""inter.broker.protocol.version: replication works in the requests of every release it may name."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from ottla_broker.config.inter_broker import inter_broker_versions
from ottla_broker.controller.values import LeaderAndIsr
from ottla_broker.protocol.codec import ZERO_UUID
from tests.broker.replication.fleet import Fleet, Topic, until

LAG_MS = "1000"


@pytest.mark.parametrize("protocol", ["2.8", "3.0-IV1", "3.1", "3.2", "3.3", "3.5-IV0", "3.5-IV1", "3.7", "3.9"])
async def test_a_follower_replicates_leaves_the_isr_and_joins_it_again(tmp_path: Path, protocol: str) -> None:
    fleet = Fleet(tmp_path, {"inter.broker.protocol.version": protocol, "replica.lag.time.max.ms": LAG_MS})
    await fleet.start(1, 2)
    await fleet.create("orders", (1, 2))
    assert (await fleet.produce(1, "orders", "a")).error_code == 0
    fleet.nodes[2].kill()
    assert (await fleet.produce(1, "orders", "b")).error_code == 0
    assert fleet.topics["orders"].states[0].isr == (1,)
    await fleet.start(2)
    await fleet.command("orders", to=[2])
    await until(lambda: fleet.topics["orders"].states[0].isr == (1, 2), "broker 2 joins the ISR")
    assert (await fleet.produce(1, "orders", "c")).error_code == 0
    assert set(fleet.alter_partition_versions) == {inter_broker_versions(protocol).alter_partition}
    fleet.stop()


async def test_topics_without_ids_are_asked_for_by_name(tmp_path: Path) -> None:
    """Made before 2.8: Fetch 12 and AlterPartition 1 are the last versions that can name them."""
    fleet = Fleet(tmp_path, {"replica.lag.time.max.ms": LAG_MS})
    await fleet.start(1, 2)
    for name in ("one", "two"):
        fleet.topics[name] = Topic(ZERO_UUID, {0: LeaderAndIsr(1, 0, (1,), 1, 0)}, {0: (1, 2)})
    fleet.topics["new"] = Topic(uuid.uuid4().bytes, {0: LeaderAndIsr(1, 0, (1,), 1, 0)}, {0: (1, 2)})
    for name in fleet.topics:
        await fleet.command(name, is_new=True)
    await until(lambda: all(topic.states[0].isr == (1, 2) for topic in fleet.topics.values()), "all join the ISR")
    for name in fleet.topics:
        assert (await fleet.produce(1, name, "a", version=11)).error_code == 0
    assert 1 in fleet.alter_partition_versions
    fleet.stop()
