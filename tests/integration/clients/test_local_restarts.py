"""A local fleet is stopped and started under load: no send fails, nothing is lost, doubled or skipped.

While the whole fleet is down, clients wait; that is all they notice. `ottla local` in each of its modes, with
long-lived producers and group members.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from ottla.local.zookeeper_server import ZooKeeperServer
from tests.integration.clients.driver import await_that
from tests.integration.clients.java import JavaMachine
from tests.integration.clients.librdkafka import Librdkafka
from tests.integration.clients.load import Load
from tests.integration.local_fleet import Ottla, up_arguments

TOPIC = "flights"
PARTITIONS = 12


def pids(ottla: Ottla) -> list[int]:
    brokers = ottla.status()["brokers"]
    assert isinstance(brokers, list)
    return [broker["pid"] for broker in brokers]


def has_ended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def assert_all_was_flushed(ottla: Ottla) -> None:
    """Every directory says so, and the next start recovers nothing."""
    disks = list((ottla.folder / ".ottla" / "orders").glob("broker-*/d*"))
    assert len(disks) == 6
    assert [disk for disk in disks if not (disk / ".kafka_cleanshutdown").exists()] == []


def down_and_up(ottla: Ottla, load: Load, *mode: str) -> None:
    load.goes_on("before it is stopped")
    assert "the fleet is stopped" in ottla("down")
    assert_all_was_flushed(ottla)
    assert "3 brokers ready in" in ottla(*up_arguments(*mode))
    load.goes_on("when it is up again")
    load.end()


def test_a_fleet_in_one_process_goes_down_and_up(ottla: Ottla) -> None:
    ottla(*up_arguments())
    with Load(str(ottla.status()["bootstrap"]), TOPIC, PARTITIONS) as load:
        down_and_up(ottla, load)


def test_sigterm_stops_a_fleet_as_down_does(ottla: Ottla) -> None:
    ottla(*up_arguments())
    with Load(str(ottla.status()["bootstrap"]), TOPIC, PARTITIONS) as load:
        load.goes_on("before the signal")
        (pid,) = set(pids(ottla))
        os.kill(pid, signal.SIGTERM)
        await_that(lambda: has_ended(pid), "the fleet ends")
        assert_all_was_flushed(ottla)
        ottla(*up_arguments())
        load.goes_on("when it is up again")
        load.end()


@pytest.mark.java
@pytest.mark.parametrize("mode", [[], ["--processes"]], ids=["in-one-process", "processes"])
@pytest.mark.long
def test_a_fleet_on_a_zookeeper_of_others_goes_down_and_up(
    ottla: Ottla, machine: JavaMachine, zookeeper: ZooKeeperServer, tmp_path: Path, mode: list[str]
) -> None:
    where = [*mode, "--zookeeper", f"{zookeeper.connect}/{tmp_path.name}"]
    ottla(*up_arguments(*where))
    with Load(str(ottla.status()["bootstrap"]), TOPIC, PARTITIONS, machine) as load:
        down_and_up(ottla, load, *where)


@pytest.mark.java
def test_a_fleet_of_processes_goes_down_and_up_with_its_zookeeper(ottla: Ottla, machine: JavaMachine) -> None:
    ottla(*up_arguments("--processes"))
    with Load(str(ottla.status()["bootstrap"]), TOPIC, PARTITIONS, machine) as load:
        down_and_up(ottla, load, "--processes")


@pytest.mark.java
@pytest.mark.long
def test_each_process_of_a_fleet_gets_sigterm_and_is_started_again(ottla: Ottla, machine: JavaMachine) -> None:
    ottla(*up_arguments("--processes"))
    bootstrap = str(ottla.status()["bootstrap"])

    def is_whole() -> bool:
        found = Librdkafka().describe_topic(bootstrap, TOPIC).in_sync_replicas.values()
        return bool(ottla.status()["ready"]) and all(len(replicas) == 3 for replicas in found)

    with Load(bootstrap, TOPIC, PARTITIONS, machine) as load:
        load.goes_on("before the first stop")
        for broker, pid in enumerate(pids(ottla)):
            os.kill(pid, signal.SIGTERM)
            load.goes_on(f"once broker {broker} has got SIGTERM")
            await_that(lambda broker=broker, pid=pid: pids(ottla)[broker] not in (None, pid), "another process")
            await_that(is_whole, "all replicas in sync")
            log = (ottla.folder / ".ottla" / "orders" / "fleet.log").read_text()
            assert f"broker {broker} (pid {pid}) ended with status 0; starting it again" in log
        load.end()
