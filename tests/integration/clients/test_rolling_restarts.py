"""Every broker gets SIGTERM and is started again, under load: no send fails, nothing is lost, doubled or skipped.

Three processes on a real ZooKeeper, the controller among them; long-lived producers and group members of three
libraries. The same with all brokers in one process is `test_failures`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla_broker.local.zookeeper import ZooKeeperServer
from tests.integration.clients.aiokafka_client import Aiokafka
from tests.integration.clients.driver import Driver, Gathering, GroupMember, Member, await_that
from tests.integration.clients.java import Java, JavaMachine
from tests.integration.clients.librdkafka import Librdkafka
from tests.integration.clients.streams import AiokafkaStream, JavaStream, LibrdkafkaStream, Stream, Told
from tests.integration.clients.topics import create
from tests.integration.processes import BrokerProcess

pytestmark = pytest.mark.java

PARTITIONS = 12
STEP = 150
"""Records that each group reads between two restarts."""


@pytest.fixture
def brokers(tmp_path: Path, zookeeper: ZooKeeperServer) -> Iterator[list[BrokerProcess]]:
    connect = f"{zookeeper.connect}/{tmp_path.name}"
    config = {
        "zookeeper.session.timeout.ms": "6000",
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3",
        "offsets.topic.num.partitions": "5",
        "group.min.session.timeout.ms": "500",
    }
    with ExitStack() as stack:
        found = [BrokerProcess(tmp_path / f"broker-{number}", number, connect, config) for number in range(3)]
        for broker in found:
            stack.callback(broker.close)
            broker.start()
        yield found


def is_in_sync(bootstrap: str, topic: str) -> bool:
    found = Librdkafka().describe_topic(bootstrap, topic)
    return all(len(replicas) == 3 for replicas in found.in_sync_replicas.values())


def test_a_rolling_restart_under_load_is_not_noticed(
    brokers: list[BrokerProcess], machine: JavaMachine, name: str
) -> None:
    bootstrap = ",".join(broker.address for broker in brokers)
    create(bootstrap, name, PARTITIONS)
    JavaStream.machine = machine
    streams: list[Stream] = [
        kind(f"{kind.__name__}-{is_idempotent}", bootstrap, name, PARTITIONS, is_idempotent=is_idempotent)
        for kind, is_idempotent in (
            (JavaStream, True),
            (JavaStream, False),
            (LibrdkafkaStream, True),
            (AiokafkaStream, True),
        )
    ]
    drivers: list[Driver] = [Java(machine), Librdkafka(), Aiokafka()]
    gatherings = {driver.name: Gathering() for driver in drivers}
    members: list[Member] = []
    told: dict[str, Told] = {}
    try:
        for driver in drivers:
            group = GroupMember(f"{name}-{driver.name}", f"{name}-{driver.name}", name)
            members.append(driver.join(bootstrap, group, gatherings[driver.name]))
        for stream in streams:
            stream.start()
        for broker in [None, *brokers]:
            if broker is not None:
                await_that(lambda: is_in_sync(bootstrap, name), "all replicas in sync")
                assert broker.stop() == 0, broker.log[-3000:]
                broker.start()
            for gathering in gatherings.values():
                before = len(gathering.values())
                gathering.wait_until(
                    lambda found, before=before: len(found.values()) >= before + STEP,  # type: ignore[misc]
                    "records flow",
                )
        told = {stream.name: stream.end() for stream in streams}
        stored = Librdkafka().read(bootstrap, name, PARTITIONS)
        for gathering in gatherings.values():
            gathering.wait_until(lambda found: len(found.values()) >= len(stored), "everything is read")
    finally:
        for stream in streams:
            if stream.name not in told:
                stream.end()
        for member in members:
            member.close()
    by_place = {(record.partition, record.offset): record.value for record in stored}
    copies = Counter(record.value for record in stored)
    for stream in streams:
        found = told[stream.name]
        assert not found.failures, (stream.name, found.failures[:3])
        for number, place in found.acknowledged.items():
            assert by_place.get(place) == stream.value(number), (stream.name, number, place)
            assert copies[stream.value(number)] == 1 or not stream.is_idempotent, (stream.name, number)
    for who, gathering in gatherings.items():
        read: dict[int, list[int]] = defaultdict(list)
        for records in gathering.records.values():
            for record in records:
                read[record.partition].append(record.offset)
        for partition, offsets in read.items():
            assert offsets == list(range(len(offsets))), f"{who} skipped or repeated records of partition {partition}"
