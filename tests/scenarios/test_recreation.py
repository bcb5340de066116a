"""A disk fails under acks=all: its replicas are recreated on the broker's other disk, with any controller.

The disk is a FUSE file system that returns EIO. The tests are skipped where the machine cannot mount; with
OTTLA_TEST_ALL=1 they fail instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.local.ports import free_port
from ottla.testing import RunningCluster, cluster
from tests.broker.controller.test_with_apache_kafka import ApacheBroker
from tests.integration.file_systems import fuse_mount, skip_reason
from tests.integration.wire import fleet_named_by
from tests.watermarks import watermarks

pytestmark = pytest.mark.root
TOPIC = "t"
PARTITIONS = 6
RATE = 1 << 20
_LIMIT_S = 180.0
QUICK = {
    "ottla.log.dir.io.timeout.ms": "30000",
    "ottla.log.dir.reserve.bytes": "0",
    "ottla.replica.recreate.max.bytes.per.second": str(RATE),
    "min.insync.replicas": "2",
}


@pytest.fixture(autouse=True)
def _can_mount() -> None:
    reason = skip_reason()
    if reason and os.environ.get("OTTLA_TEST_ALL") == "1":
        pytest.fail(f"OTTLA_TEST_ALL=1 and {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)


class Load:
    """A topic on three brokers, and an idempotent producer with acks=all that never stops and never fails."""

    def __init__(self, bootstrap: str, assignment: list[list[int]] | None = None) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        config = {"min.insync.replicas": "2"}
        new = (
            NewTopic(TOPIC, PARTITIONS, 3, config=config)
            if assignment is None
            else NewTopic(TOPIC, PARTITIONS, replica_assignment=assignment, config=config)
        )
        self.admin.create_topics([new])[TOPIC].result(_LIMIT_S)
        self.acknowledged: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self.errors: list[KafkaError] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._produce)
        self.until(lambda: self.is_in_sync(), "the topic is in sync")
        self._thread.start()

    def _produce(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 2}
        )
        number = 0
        while not self._stopping.is_set():
            partition = number % PARTITIONS
            name = f"{partition}/{number}"
            number += 1

            def told(error: KafkaError | None, message: Message, name: str = name, partition: int = partition) -> None:
                if error is None:
                    self.acknowledged[partition].append(name)
                else:
                    self.errors.append(error)

            producer.produce(TOPIC, name.encode() + bytes(1000), partition=partition, on_delivery=told)
            producer.poll(0.002)
        producer.flush(_LIMIT_S)

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def is_in_sync(self) -> bool:
        found = self.admin.list_topics(TOPIC, timeout=_LIMIT_S).topics[TOPIC].partitions
        return len(found) == PARTITIONS and all(
            one.leader >= 0 and len(one.isrs) == len(one.replicas) == 3 for one in found.values()
        )

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not holds():
            assert time.monotonic() < deadline, f"not within {_LIMIT_S} s: {what}"
            time.sleep(0.1)

    def assert_nothing_is_lost(self) -> None:
        self.stop()
        assert not self.errors, self.errors[:3]
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "check", "enable.auto.commit": False})
        try:
            for number, names in enumerate(self.acknowledged):
                _, end = watermarks(consumer, TOPIC, number)
                consumer.assign([TopicPartition(TOPIC, number, 0)])
                found: list[str] = []
                while len(found) < end:
                    message = consumer.poll(_LIMIT_S)
                    assert message is not None and message.error() is None, message and message.error()
                    value = message.value()
                    assert value is not None
                    found.append(value.rstrip(b"\0").decode())
                assert found == names
        finally:
            consumer.close()


@contextmanager
def load_on(bootstrap: str, assignment: list[list[int]] | None = None) -> Iterator[Load]:
    load = Load(bootstrap, assignment)
    try:
        yield load
    finally:
        load.stop()


def status(fleet: RunningCluster, broker: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{fleet.http(broker)}/status", timeout=_LIMIT_S) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def metric(fleet: RunningCluster, broker: int, name: str) -> float:
    with urllib.request.urlopen(f"http://{fleet.http(broker)}/metrics", timeout=_LIMIT_S) as answer:
        lines = answer.read().decode().splitlines()
    (line,) = [one for one in lines if one.startswith(f"{name} ")]
    return float(line.rsplit(" ", 1)[1])


def is_offline(fleet: RunningCluster, broker: int, disk: str) -> bool:
    states = {Path(one["path"]).name: one["state"] for one in status(fleet, broker)["log_dirs"]}
    return bool(states[disk] == "offline")


def is_made_again(fleet: RunningCluster, broker: int, bad: Path) -> Callable[[], bool]:
    """Every partition is on the good disk, and none waits or is being filled."""
    good = bad.with_name("d0")

    def holds() -> bool:
        recreation = status(fleet, broker)["recreation"]
        done = all((good / f"{TOPIC}-{number}").is_dir() for number in range(PARTITIONS))
        return done and recreation["waiting"] == recreation["catching_up"] == recreation["lost"] == 0

    return holds


def test_full_replication_returns_without_a_person_at_the_rate_that_is_set(tmp_path: Path) -> None:
    data = tmp_path / "fleet"
    bad = data / "broker-1" / "d1"
    bad.parent.mkdir(parents=True)
    with fuse_mount(tmp_path / "fuse") as mount, contextlib.ExitStack() as cleanup:
        bad.symlink_to(mount.path)
        fleet = cleanup.enter_context(cluster(brokers=3, disks=2, data=data, config=QUICK))
        load = cleanup.enter_context(load_on(fleet.bootstrap))
        held = len(list(mount.path.glob(f"{TOPIC}-*")))
        assert held, "the bad disk holds some of them"
        load.until(lambda: sum(map(len, load.acknowledged)) > 3000, "3 000 records")
        began = time.monotonic()
        mount.say("eio")
        load.until(lambda: is_offline(fleet, 1, "d1"), "the disk is offline")
        load.until(is_made_again(fleet, 1, bad), "the replicas are recreated")
        took_s = time.monotonic() - began
        load.until(load.is_in_sync, "full replication")
        assert is_offline(fleet, 1, "d1")
        assert metric(fleet, 1, "ottla_replica_recreations_done_total") >= held
        fetched = metric(fleet, 1, "ottla_replica_recreation_bytes_total")
        assert fetched <= RATE * (took_s + 2), f"{fetched} bytes in {took_s} s"

        fleet.kill(1)
        fleet.start(1)
        load.until(load.is_in_sync, "full replication after a restart without the disk")
        mount.say("ok")
        load.until(lambda: not is_offline(fleet, 1, "d1"), "the disk is back")
        load.until(load.is_in_sync, "full replication with the disk back")
        load.assert_nothing_is_lost()
        assert len(list(mount.path.glob(f"{TOPIC}-*-stray"))) == held


def until_all_name(brokers: set[int], addresses: list[str]) -> None:
    """Each of them: a client may ask any, and what one of the others lists may still name nobody itself."""
    deadline = time.monotonic() + _LIMIT_S
    while not all(controller in found == brokers for controller, found in map(fleet_named_by, addresses)):
        assert time.monotonic() < deadline, f"not all know {brokers}: {[fleet_named_by(one) for one in addresses]}"
        time.sleep(0.1)


@pytest.mark.java
@pytest.mark.long
def test_it_does_so_under_a_controller_of_apache_kafka(tmp_path: Path, zookeeper: Any) -> None:
    connect = f"{zookeeper.connect}/recreation/{uuid.uuid4()}"
    data = tmp_path / "fleet"
    bad = data / "broker-0" / "d1"
    bad.parent.mkdir(parents=True)
    with fuse_mount(tmp_path / "fuse") as mount, contextlib.ExitStack() as cleanup:
        bad.symlink_to(mount.path)
        ports = {7: free_port(), 8: free_port()}
        for number, port in ports.items():
            apache = ApacheBroker(tmp_path / f"apache-{number}", number, free_port(), connect, port, f"rack-{number}")
            cleanup.callback(apache.kill)
        addresses = [f"127.0.0.1:{port}" for port in ports.values()]
        until_all_name({7, 8}, addresses)
        fleet = cleanup.enter_context(cluster(brokers=1, disks=2, data=data, config=QUICK, zookeeper=connect))
        until_all_name({0, 7, 8}, [fleet.bootstrap, *addresses])
        admin = AdminClient({"bootstrap.servers": ",".join(addresses)})
        bootstrap = f"{fleet.bootstrap},{addresses[0]}"
        orders = [[0, 7, 8], [7, 8, 0], [8, 0, 7]]
        load = cleanup.enter_context(load_on(bootstrap, [orders[number % 3] for number in range(PARTITIONS)]))
        assert admin.list_topics(timeout=_LIMIT_S).controller_id in ports
        held = len(list(mount.path.glob(f"{TOPIC}-*")))
        assert held, "the bad disk holds some of them"
        load.until(lambda: sum(map(len, load.acknowledged)) > 2000, "2 000 records")
        mount.say("eio")
        load.until(lambda: is_offline(fleet, 0, "d1"), "the disk is offline")
        load.until(is_made_again(fleet, 0, bad), "the replicas are recreated")
        load.until(load.is_in_sync, "full replication")
        assert is_offline(fleet, 0, "d1")
        assert admin.list_topics(timeout=_LIMIT_S).controller_id in ports
        mount.say("ok")
        load.until(lambda: not is_offline(fleet, 0, "d1"), "the disk is back")
        load.until(load.is_in_sync, "full replication with the disk back")
        load.assert_nothing_is_lost()
