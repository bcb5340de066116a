"""What the operator does with disks, on real brokers: cordon, empty, remove, replace one, replace all of a broker."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from ottla.testing import RunningCluster, cluster
from ottla_operator.api.fleet import ClusterMetadata, LogDirContents
from ottla_operator.api.topics import CreateTopic
from ottla_operator.concerns.disks.disk_drains import CORDONED_LOG_DIRS
from ottla_operator.effects.kafka_admin import LONGEST_BACKOFF_MS, KafkaPythonAdmin
from ottla_operator.ports import KafkaUnavailable

BOOTSTRAP_TIMEOUT_MS = 60_000
RECORDS = 300
PARTITIONS = 6


@pytest.fixture
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=3, racks=3, disks=2) as running:
        yield running


def _path(fleet: RunningCluster, broker: int, disk: str) -> str:
    return str(fleet._layout.log_directories(broker)[disk])


def _admin(fleet: RunningCluster) -> KafkaPythonAdmin:
    return KafkaPythonAdmin(fleet.bootstrap.split(","), bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS)


async def _log_dirs(admin: KafkaPythonAdmin, broker: int, holds: Callable[[dict[str, LogDirContents]], bool]) -> None:
    """Waits until DescribeLogDirs of a broker shows what is expected."""
    async with asyncio.timeout(120):
        while True:
            with suppress(KafkaUnavailable):  # the client asked a broker that was just stopped
                found = {one.path: one for one in (await admin.log_dirs([broker])).get(broker, ())}
                if found and holds(found):
                    return
            await asyncio.sleep(0.05)


async def _metadata(admin: KafkaPythonAdmin, holds: Callable[[ClusterMetadata], bool]) -> None:
    async with asyncio.timeout(120):
        while True:
            with suppress(KafkaUnavailable):  # the client asked a broker that was just stopped
                if holds(await admin.view()):
                    return
            await asyncio.sleep(0.05)


def _is_whole(view: ClusterMetadata) -> bool:
    return len(view.brokers) == 3 and all(set(part.in_sync) == set(part.replicas) for part in view.partitions)


async def _with_records(fleet: RunningCluster, admin: KafkaPythonAdmin) -> None:
    await admin.change([CreateTopic("t", PARTITIONS, 3, {"min.insync.replicas": "2"})])
    await _metadata(admin, lambda view: len(view.partitions) == PARTITIONS and _is_whole(view))

    def produce() -> None:
        producer = KafkaProducer(bootstrap_servers=fleet.bootstrap.split(","), acks="all")
        for number in range(RECORDS):
            producer.send("t", str(number).encode(), partition=number % PARTITIONS)
        producer.flush()
        producer.close()

    await asyncio.to_thread(produce)


async def _read(fleet: RunningCluster) -> list[int]:
    def consume() -> list[int]:
        consumer = KafkaConsumer(
            bootstrap_servers=fleet.bootstrap.split(","),  # also of brokers that do not run
            auto_offset_reset="earliest",
            reconnect_backoff_max_ms=LONGEST_BACKOFF_MS,
        )
        consumer.assign([TopicPartition("t", index) for index in range(PARTITIONS)])
        found: list[int] = []
        while len(found) < RECORDS:
            for batch in consumer.poll(1000).values():
                found += [int(record.value) for record in batch]
        consumer.close()
        return sorted(found)

    return await asyncio.to_thread(consume)


async def _drain(fleet: RunningCluster, admin: KafkaPythonAdmin, broker: int) -> None:
    """As the operator does: cordon, wait until it is in effect, move, wait until it is empty."""
    d0, d1 = _path(fleet, broker, "d0"), _path(fleet, broker, "d1")
    assert await admin.set_broker_config(broker, CORDONED_LOG_DIRS, d1) == ""
    async with asyncio.timeout(60):
        while True:
            if CORDONED_LOG_DIRS in (await admin.broker_values([broker]))[broker]:
                break
            await asyncio.sleep(0.05)
    there = {one.path: one for one in (await admin.log_dirs([broker]))[broker]}
    targets = {(one.topic, one.index): d0 for one in there[d1].replicas}
    assert targets, "new partitions are spread over the log directories"
    assert await admin.move_replicas(broker, targets) == {}
    await _log_dirs(admin, broker, lambda found: not found[d1].replicas and len(found[d0].replicas) == PARTITIONS)


async def test_a_cordoned_log_directory_is_emptied_and_its_disk_removed(fleet: RunningCluster) -> None:
    admin = _admin(fleet)
    await _with_records(fleet, admin)
    await _drain(fleet, admin, 1)
    await admin.change([CreateTopic("later", 4, 3, {})])
    await _metadata(admin, lambda view: len(view.partitions) == PARTITIONS + 4 and _is_whole(view))
    d1 = _path(fleet, 1, "d1")
    await _log_dirs(admin, 1, lambda found: sum(len(one.replicas) for one in found.values()) == PARTITIONS + 4)
    await _log_dirs(admin, 1, lambda found: not found[d1].replicas)
    await asyncio.to_thread(fleet.stop, 1)
    whole = fleet._layout.cluster
    (pool,) = whole.brokers.pools
    brokers = replace(whole.brokers, pools=(replace(pool, disks=pool.disks[:1]),))
    fleet._layout.cluster = replace(whole, brokers=brokers)
    await asyncio.to_thread(fleet.start, 1)
    await _metadata(admin, _is_whole)
    await _log_dirs(admin, 1, lambda found: list(found) == [_path(fleet, 1, "d0")])
    assert await admin.set_broker_config(1, CORDONED_LOG_DIRS, None) == ""
    assert await _read(fleet) == list(range(RECORDS))
    await admin.close()


async def test_a_refused_value_is_returned(fleet: RunningCluster) -> None:
    admin = _admin(fleet)
    assert "is none of them" in await admin.set_broker_config(1, CORDONED_LOG_DIRS, "/no/such")
    await admin.close()


@pytest.mark.parametrize("disks", [["d1"], ["d0", "d1"]])
async def test_a_broker_with_empty_volumes_and_the_permission_to_format_gets_everything_from_the_others(
    fleet: RunningCluster, disks: list[str]
) -> None:
    """One disk, as when it is replaced; all disks, as when the node of the broker is gone."""
    admin = _admin(fleet)
    await _with_records(fleet, admin)
    await asyncio.to_thread(fleet.kill, 1)
    await _metadata(admin, lambda view: not any(1 in part.in_sync for part in view.partitions))
    for disk in disks:
        shutil.rmtree(_path(fleet, 1, disk))
        fleet._layout.state.brokers[1].formatted.pop(disk)
    await asyncio.to_thread(fleet.start, 1)
    await _metadata(admin, _is_whole)
    for other in (0, 2):
        await asyncio.to_thread(fleet.stop, other)
    await _metadata(admin, lambda view: {part.leader for part in view.partitions} == {1})
    assert await _read(fleet) == list(range(RECORDS)), "from the broker whose volumes were empty"
    await admin.close()
