"""kill -9 of real processes with a real ZooKeeper: no acknowledged record is lost, and a restart recovers."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.local.zookeeper_server import ZooKeeperServer
from tests.integration.processes import BrokerProcess
from tests.scenarios.load import LIMIT_S, PARTITIONS, TOPIC, Load, create, read_all

pytestmark = pytest.mark.java


@pytest.fixture
def chroot(zookeeper: ZooKeeperServer, tmp_path: Path) -> str:
    return f"{zookeeper.connect}/{tmp_path.name}"


@pytest.fixture
def three(tmp_path: Path, chroot: str) -> Iterator[list[BrokerProcess]]:
    brokers = [
        BrokerProcess(
            tmp_path / f"broker-{n}", n, chroot, {"min.insync.replicas": "2", "replica.lag.time.max.ms": "3000"}
        )
        for n in range(3)
    ]
    try:
        for broker in brokers:
            broker.start()
        yield brokers
    finally:
        for broker in brokers:
            broker.close()


def test_each_of_three_brokers_is_killed_under_load_and_nothing_is_lost_or_doubled(three: list[BrokerProcess]) -> None:
    bootstrap = ",".join(broker.address for broker in three)
    create(bootstrap, TOPIC, PARTITIONS, 3)
    load = Load(bootstrap)
    load.start()
    try:
        load.wait_for(500)
        for broker in three:
            broker.kill()
            load.wait_for(500)  # the others go on without it
            broker.start()
            load.wait_for(500)
    finally:
        load.stop()
    assert load.failed == []
    found = read_all(bootstrap, TOPIC, PARTITIONS)
    for partition, acknowledged in load.acknowledged.items():
        assert found[partition] == acknowledged, f"partition {partition}"


def test_a_torn_last_batch_is_cut_off_at_start(tmp_path: Path, chroot: str) -> None:
    broker = BrokerProcess(tmp_path / "broker", 0, chroot)
    try:
        broker.start()
        create(broker.address, "torn", 1, 1)
        producer = Producer({"bootstrap.servers": broker.address, "acks": "all", "linger.ms": 0})
        for number in range(20):
            producer.produce("torn", f"value {number}")
            assert producer.flush(LIMIT_S) == 0
        broker.kill()
        log = broker.log_dirs[0] / "torn-0" / f"{0:020d}.log"
        whole = log.read_bytes()
        log.write_bytes(whole + whole[: len(whole) // 40])  # the beginning of one more batch
        broker.start()
        assert log.stat().st_size == len(whole)
        recovery = status(broker)["recovery"]
        assert recovery["loaded"] == recovery["total"] == 1
        tail = len(whole) + len(whole) // 40
        assert recovery["log_dirs"] == {str(broker.log_dirs[0]): {"scanned_bytes": tail, "tail_bytes": tail}}
        producer.produce("torn", "after")
        assert producer.flush(LIMIT_S) == 0
        expected = [*(f"value {number}" for number in range(20)), "after"]
        assert read_all(broker.address, "torn", 1) == {0: expected}
    finally:
        broker.close()


def test_a_broker_killed_with_sigkill_registers_at_once(tmp_path: Path, chroot: str) -> None:
    """Without re-attachment it would wait for the end of its old session: a minute here."""
    broker = BrokerProcess(tmp_path / "broker", 0, chroot, {"zookeeper.session.timeout.ms": "60000"})
    try:
        broker.start()
        broker.kill()
        broker.start()
        assert "belongs to another session" not in broker.log
    finally:
        broker.close()


def test_a_second_broker_with_the_same_id_refuses_to_start_and_the_first_goes_on(tmp_path: Path, chroot: str) -> None:
    first = BrokerProcess(tmp_path / "first", 5, chroot)
    second = BrokerProcess(tmp_path / "second", 5, chroot)
    try:
        first.start()
        second.launch()
        assert second.wait() == 1
        assert "broker 5 is already running" in second.log
        assert first.is_ready()
    finally:
        first.close()
        second.close()


def test_a_broker_without_an_id_gets_one_and_keeps_it(tmp_path: Path, chroot: str) -> None:
    brokers = [BrokerProcess(tmp_path / name, -1, chroot) for name in ("a", "b")]
    try:
        for broker in brokers:
            broker.start()
        ids = [meta(broker)["broker.id"] for broker in brokers]
        assert ids == ["1001", "1002"]
        brokers[0].stop()
        brokers[0].start()
        assert meta(brokers[0])["broker.id"] == "1001"
    finally:
        for broker in brokers:
            broker.close()


def test_a_directory_that_comes_back_empty_is_never_formatted_again(tmp_path: Path, chroot: str) -> None:
    broker = BrokerProcess(tmp_path / "broker", 0, chroot, disks=2)
    try:
        broker.start()
        assert broker.stop() == 0
        broker.properties["ottla.log.dirs.format"] = ""
        lost = broker.log_dirs[1]
        lost.rename(tmp_path / "elsewhere")
        lost.mkdir()
        broker.start()
        assert f"log directory {lost} has no meta.properties" in broker.log
        assert broker.stop() == 0
        assert list(lost.glob("meta.properties")) == []
        broker.log_dirs[0].rename(tmp_path / "elsewhere-too")
        broker.log_dirs[0].mkdir()
        broker.launch()
        assert broker.wait() == 1, "none is left"
        assert "has no meta.properties" in broker.log.splitlines()[-1]
    finally:
        broker.close()


@pytest.mark.parametrize(("key", "stranger"), [("cluster.id", "AAAAAAAAAAAAAAAAAAAAAA"), ("broker.id", "77")])
def test_a_directory_of_somebody_else_is_refused_with_both_ids(
    tmp_path: Path, chroot: str, key: str, stranger: str
) -> None:
    broker = BrokerProcess(tmp_path / "broker", 3, chroot)
    try:
        broker.start()
        assert broker.stop() == 0
        path = broker.log_dirs[0] / "meta.properties"
        own = meta(broker)[key]
        path.write_text(path.read_text().replace(f"{key}={own}", f"{key}={stranger}"))
        broker.launch()
        assert broker.wait() == 1
        last = broker.log.splitlines()[-1]
        assert own in last and stranger in last
    finally:
        broker.close()


def status(broker: BrokerProcess) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/status", timeout=LIMIT_S) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def meta(broker: BrokerProcess) -> dict[str, str]:
    lines = (broker.log_dirs[0] / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
