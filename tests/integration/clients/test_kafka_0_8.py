"""Consumers of Kafka 0.8, which share their work through ZooKeeper, in one fleet with today's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla.testing import RunningCluster, cluster
from tests.integration.clients.conftest import Java
from tests.integration.clients.driver import Gathering, GroupMember, await_that
from tests.integration.clients.java import JavaMachine
from tests.integration.clients.kafka_0_8 import OFFSET_CHECKER, PADDING, PRODUCER, TOPICS, ConsoleConsumer, tool
from tests.integration.clients.librdkafka import Librdkafka
from tests.integration.clients.topics import create, numbered

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield f"{server.connect}/old"


@pytest.fixture(scope="module")
def fleet(zookeeper: str) -> Iterator[RunningCluster]:
    with cluster(brokers=3, racks=3, zookeeper=zookeeper) as found:
        yield found


@pytest.fixture
def znodes(zookeeper: str) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper)
    client.start()
    yield client
    client.stop()
    client.close()


def produce(bootstrap: str, topic: str, partitions: int, *, first: int, count: int) -> set[str]:
    """Records "value <first>" to "value <count - 1>"; their values."""
    records = sorted(numbered(count, partitions, first), key=lambda record: record.partition)
    padded = [replace(record, value=(record.value or b"") + PADDING) for record in records]
    Librdkafka().produce(bootstrap, topic, padded)
    return {f"value {number}" for number in range(first, count)}


def checked_offsets(zookeeper: str, group: str, topic: str) -> dict[int, int]:
    """The group's offset of each partition as ConsumerOffsetChecker prints it."""
    printed = tool(OFFSET_CHECKER, "--zookeeper", zookeeper, "--group", group, "--topic", topic)
    rows = re.findall(rf"^{re.escape(group)}\s+{re.escape(topic)}\s+(\d+)\s+(-?\d+)", printed, re.MULTILINE)
    return {int(partition): int(offset) for partition, offset in rows}


def test_two_members_share_the_partitions_and_one_takes_over(
    fleet: RunningCluster, zookeeper: str, znodes: KazooClient, name: str, tmp_path: Path
) -> None:
    create(fleet.bootstrap, name, 4)
    config = {"group.id": name, "offsets.storage": "zookeeper"}
    first = ConsoleConsumer(tmp_path, zookeeper, name, "first", config, from_beginning=True)
    second: ConsoleConsumer | None = None

    def owners() -> list[str]:
        path = f"/consumers/{name}/owners/{name}"
        try:
            found = [znodes.get(f"{path}/{part}")[0].decode() for part in znodes.get_children(path)]
        except NoNodeError:  # a rebalance is under way
            return []
        return sorted(owner.split("_")[1].split("-")[0] for owner in found)

    def all_are_committed(offset: int) -> bool:
        return checked_offsets(zookeeper, name, name) == dict.fromkeys(range(4), offset)

    try:
        sent = produce(fleet.bootstrap, name, 4, first=0, count=40)
        await_that(lambda: {*first.values} == sent and all_are_committed(10), "the first member reads everything")
        second = other = ConsoleConsumer(tmp_path, zookeeper, name, "second", config)
        await_that(lambda: owners() == ["first"] * 2 + ["second"] * 2, "each member owns two partitions")
        sent |= produce(fleet.bootstrap, name, 4, first=40, count=200)
        await_that(lambda: {*first.values, *other.values} == sent, "all records are read")
        assert len({*first.values}) == 40 + 80
        assert len({*other.values}) == 80
        assert len(znodes.get_children(f"/consumers/{name}/ids")) == 2
        await_that(lambda: all_are_committed(50), "all offsets are committed")
        other.kill()
        await_that(lambda: owners() == ["first"] * 4, "the other member owns all partitions")
        more = produce(fleet.bootstrap, name, 4, first=200, count=300)
        await_that(lambda: more <= {*first.values}, "the other member reads all that follows")
    finally:
        first.stop()
        if second is not None:
            second.kill()


def test_offsets_move_to_kafka_and_back_by_the_steps_of_the_documentation(
    fleet: RunningCluster, zookeeper: str, znodes: KazooClient, machine: JavaMachine, name: str, tmp_path: Path
) -> None:
    """offsets.storage=zookeeper; kafka with dual.commit.enabled; kafka alone, where a consumer of today takes over; and
    the same way back. Every member goes on where the last one was."""
    create(fleet.bootstrap, name, 2)
    phases = [
        {"offsets.storage": "zookeeper"},
        {"offsets.storage": "kafka", "dual.commit.enabled": "true"},
        {"offsets.storage": "kafka", "dual.commit.enabled": "false"},
    ]
    sent = 0
    for number, phase in enumerate([*phases, phases[1], phases[0]]):
        values = produce(fleet.bootstrap, name, 2, first=sent, count=sent + 40)
        sent += 40
        member = ConsoleConsumer(
            tmp_path, zookeeper, name, f"member{number}", {"group.id": name, **phase}, from_beginning=not number
        )
        member.await_values(40)
        member.stop()
        assert sorted(member.values) == sorted(values), f"phase {number}: {phase}"
        in_zookeeper = {part: int(znodes.get(f"/consumers/{name}/offsets/{name}/{part}")[0]) for part in ("0", "1")}
        is_kafka_alone = phase.get("dual.commit.enabled") == "false"
        assert in_zookeeper == dict.fromkeys(("0", "1"), (sent - 40 if is_kafka_alone else sent) // 2)
        if is_kafka_alone:
            values = produce(fleet.bootstrap, name, 2, first=sent, count=sent + 40)
            sent += 40
            gathering = Gathering()
            today = Java(machine).join(fleet.bootstrap, GroupMember(f"{name}-today", name, name), gathering)
            gathering.wait_until(lambda found: found.has_committed(40), "a consumer of today reads what follows")
            today.close()
            assert {value.decode().strip() for value in gathering.values() if value} == values


def test_the_tools_create_describe_and_fill_a_topic(fleet: RunningCluster, zookeeper: str, name: str) -> None:
    counts = ("--partitions", "2", "--replication-factor", "3")
    assert f'Created topic "{name}"' in tool(TOPICS, "--zookeeper", zookeeper, "--create", "--topic", name, *counts)
    await_that(
        lambda: (
            tool(TOPICS, "--zookeeper", zookeeper, "--describe", "--topic", name).count("Leader: ") == 2
            and "Leader: none" not in tool(TOPICS, "--zookeeper", zookeeper, "--describe", "--topic", name)
        ),
        "both partitions have leaders",
    )
    lines = "".join(f"value {number}\n" for number in range(100))
    tool(PRODUCER, "--broker-list", fleet.bootstrap, "--topic", name, "--sync", standard_input=lines)
    await_that(
        lambda: (
            {record.value for record in Librdkafka().read(fleet.bootstrap, name, 2)}
            == {b"value %d" % number for number in range(100)}
        ),
        "all records are there",
    )
