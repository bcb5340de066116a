"""`ottla local` on the command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.integration.local_fleet import MANIFESTS, Ottla, eventually, up_arguments
from tests.scenarios.load import read_all


def test_up_status_kill_down_and_up_again_with_every_record(ottla: Ottla) -> None:
    printed = ottla(*up_arguments())
    assert "3 brokers ready in" in printed
    assert "flights: created" in printed
    status = ottla.status()
    assert status["ready"] is True
    bootstrap = str(status["bootstrap"])
    assert bootstrap in printed
    brokers = status["brokers"]
    assert isinstance(brokers, list)
    assert [sorted(broker) for broker in brokers] == [
        ["address", "http", "id", "log_dirs", "pid", "rack", "recreation"]
    ] * 3
    assert [[d["state"] for d in broker["log_dirs"]] for broker in brokers] == [["online"] * 2] * 3
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(300):
        producer.produce("flights", str(number), partition=number % 12)
    assert producer.flush(120) == 0
    assert "it stays down until" in ottla("kill", "1")
    shown = ottla("status")
    assert "orders: not ready, broker 1 is down" in shown
    assert "d0 offline, d1 offline" in shown
    assert ottla.status()["ready"] is False
    for number in range(300, 600):
        producer.produce("flights", str(number), partition=number % 12)
    assert producer.flush(120) == 0
    ottla("down")
    again = ottla(*up_arguments())
    assert "flights: unchanged" in again
    assert str(ottla.status()["bootstrap"]) == bootstrap
    found = read_all(bootstrap, "flights", 12)
    assert sorted(int(value) for values in found.values() for value in values) == list(range(600))
    ottla("down", "--delete-data")
    assert not (ottla.folder / ".ottla" / "orders").exists()


@pytest.mark.java
def test_with_processes_a_killed_broker_is_started_again(ottla: Ottla) -> None:
    ottla(*up_arguments("--processes"))
    before = ottla.status()["brokers"]
    assert isinstance(before, list)
    assert len({broker["pid"] for broker in before}) == 3
    pids = [broker["pid"] for broker in before]
    assert "it is started again" in ottla("kill", "2")
    after: list[int] = []

    def is_ready_again() -> bool:
        """That it is dead is not known at once either: until then its fleet is ready with the process that was."""
        status = ottla.status()
        brokers = status["brokers"]
        assert isinstance(brokers, list)
        after[:] = [broker["pid"] for broker in brokers]
        return bool(status["ready"]) and after[2] != pids[2]

    eventually(is_ready_again)
    assert after[:2] == pids[:2]


@pytest.mark.java
def test_status_says_which_broker_does_not_answer(ottla: Ottla) -> None:
    ottla(*up_arguments("--processes"))
    brokers = ottla.status()["brokers"]
    assert isinstance(brokers, list)
    os.kill(brokers[1]["pid"], signal.SIGSTOP)
    try:
        shown = ottla("status")
        assert "orders: not ready, broker 1 does not answer" in shown
        assert "d0 unknown, d1 unknown" in shown
    finally:
        os.kill(brokers[1]["pid"], signal.SIGCONT)
    eventually(lambda: ottla.status()["ready"])
    assert disk_states(ottla, 1) == ["online", "online"]


def disk_states(ottla: Ottla, broker: int) -> list[str]:
    brokers = ottla.status()["brokers"]
    assert isinstance(brokers, list)
    return [directory["state"] for directory in brokers[broker]["log_dirs"]]


@pytest.mark.java
def test_a_disk_that_is_gone_costs_its_broker_nothing_else_until_it_is_back(ottla: Ottla) -> None:
    ottla(*up_arguments("--processes"))
    broker = ottla.folder / ".ottla" / "orders" / "broker-2"
    before = ottla.status()["brokers"]
    shutil.move(broker / "d1", ottla.folder / "unplugged")
    eventually(lambda: disk_states(ottla, 2) == ["online", "offline"])
    assert not (broker / "d1" / "meta.properties").exists()
    shutil.rmtree(broker / "d1", ignore_errors=True)
    (ottla.folder / "unplugged").rename(broker / "d1")
    eventually(lambda: disk_states(ottla, 2) == ["online", "online"])
    eventually(lambda: ottla.status()["ready"])
    after = ottla.status()["brokers"]
    assert isinstance(before, list) and isinstance(after, list)
    assert [one["pid"] for one in after] == [one["pid"] for one in before]


ONE_BROKER = """\
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaCluster
metadata: {name: one}
spec:
  brokers:
    replicas: 1
    disks: [{name: d0, size: 1Gi}, {name: d1, size: 1Gi}]
---
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaTopic
metadata: {name: t}
spec: {clusterRef: {name: one}, partitions: 4, replicas: 1}
"""


def test_disk_forget_gives_up_what_only_a_dead_disk_of_a_local_fleet_held(ottla: Ottla) -> None:
    def forget(*arguments: str, status: int) -> str:
        command = [sys.executable, "-m", "ottla_broker.cli.main", "disk", "forget", "--broker", "0", *arguments]
        done = subprocess.run(
            command,
            cwd=ottla.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    (ottla.folder / "one.yaml").write_text(ONE_BROKER)
    ottla("up", "-f", "one.yaml")
    bootstrap = str(ottla.status()["bootstrap"])

    def produce(name: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 110_000})
        for partition in range(4):
            producer.produce("t", f"{name} {partition}", partition=partition)
        assert producer.flush(120) == 0

    produce("before")
    data = Path(".ottla/one")
    here, away = ottla.folder / data / "broker-0" / "d1", ottla.folder / "d1-away"
    held = sorted(path.name for path in here.glob("t-*"))
    assert held and len(held) < 4
    this = ("--data", str(data), "--dir", "d1")
    assert "is not offline: nothing is given up" in forget(*this, "--yes", status=1)
    here.rename(away)
    eventually(lambda: disk_states(ottla, 0)[1] == "offline")
    asked = forget(*this, status=1)
    assert "nothing is given up" in asked and all(name in asked for name in held)
    assert f"{len(held)} partitions are empty and online" in forget(*this, "--yes", status=0)
    produce("after")
    for partition, values in read_all(bootstrap, "t", 4).items():
        lost = f"t-{partition}" in held
        assert values == ([f"after {partition}"] if lost else [f"before {partition}", f"after {partition}"])
    away.rename(here)
    eventually(lambda: disk_states(ottla, 0)[1] == "online")
    assert len(list(here.glob("t-*-stray"))) == len(held)
    ottla("down")
    assert "is not running" in forget(*this, "--yes", status=1)


def test_what_cannot_be_used_as_data_directory_is_named_and_nothing_else_is_deleted(ottla: Ottla) -> None:
    file = ottla.folder / "file"
    file.write_text("mine")
    assert f"--data {file}: File exists" in ottla(*up_arguments("--data", str(file)), status=1)
    assert "there is no fleet in" in ottla("status", "--data", str(file), status=1)
    folder = ottla.folder / "folder"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    assert "there is no fleet in" in ottla("down", "--delete-data", "--yes", "--data", str(folder), status=1)
    ottla(*up_arguments("--data", str(folder)))
    other = ottla.folder / "other.yaml"
    other.write_text((MANIFESTS / "cluster.yaml").read_text().replace("orders", "other"))
    assert "fleet orders is already running" in ottla("up", "-f", str(other), "--data", str(folder), status=1)
    ottla("down", "--data", str(folder))
    assert "holds the fleet 'orders'" in ottla("up", "-f", str(other), "--data", str(folder), status=1)
    assert "other" not in (folder / "documents.yaml").read_text()
    assert "something else is in it" in ottla("down", "--delete-data", "--data", str(folder))
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]
    assert "choose another folder with --data" in ottla(*up_arguments("--data", "x,y"), status=1)
    assert not (ottla.folder / "x,y").exists()


@pytest.mark.java
def test_a_fleet_lives_below_a_path_with_odd_characters_and_says_what_changes_in_a_topic(ottla: Ottla) -> None:
    """Paths go through Java's properties files: those of a broker and of its ZooKeeper."""
    data = ottla.folder / " dätä ζ #a=b\\n"
    topics = ottla.folder / "topics.yaml"
    topics.write_text((MANIFESTS / "topics.yaml").read_text())
    up = ["up", "-f", str(MANIFESTS / "cluster.yaml"), "-f", str(topics), "--processes", "--data", str(data)]
    assert "flights: created" in ottla(*up)
    assert "records stay in" in ottla("down", "--data", str(data))
    topics.write_text(topics.read_text().replace("retention.ms: 604800000", "retention.ms: 86400000"))
    assert "flights: retention.ms from 604800000 to 86400000" in ottla(*up)
    assert "are deleted" in ottla("down", "--delete-data", "--yes", "--data", str(data))
    assert [path.name for path in ottla.folder.iterdir()] == ["topics.yaml"]


def test_a_fleet_starts_without_a_disk_that_is_gone_and_not_on_a_port_that_is_taken(ottla: Ottla) -> None:
    ottla(*up_arguments())
    ottla("down")
    data = ottla.folder / ".ottla" / "orders"
    shutil.move(data / "broker-1" / "d1", ottla.folder / "unplugged")
    assert "ready in" in ottla(*up_arguments())
    assert disk_states(ottla, 1) == ["online", "offline"]
    log = (data / "fleet.log").read_text()
    assert f"log directory {data}/broker-1/d1 has no meta.properties" in log and "Traceback" not in log
    ottla("down")
    shutil.rmtree(data / "broker-1" / "d1", ignore_errors=True)
    (ottla.folder / "unplugged").rename(data / "broker-1" / "d1")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = json.loads((data / "fleet.json").read_text())["brokers"][2]["client_port"]
        taken.bind(("127.0.0.1", port))
        taken.listen()
        printed = ottla(*up_arguments(), status=1)
    assert f"broker 2: listeners: cannot listen on 127.0.0.1:{port}: Address already in use" in printed
    stopped = ottla("status", status=1)
    assert "start it with: ottla local up -f .ottla/orders/documents.yaml" in stopped
    assert "ready in" in ottla("up", "-f", ".ottla/orders/documents.yaml")
    log = (data / "fleet.log").read_text()
    assert all("[broker " in line or "[fleet] ottla.local: " in line for line in log.splitlines())


def test_commands_say_what_is_wrong_and_what_to_do(ottla: Ottla, tmp_path: Path) -> None:
    assert "start one with: ottla local up" in ottla("status", status=1)
    assert "No such file" in ottla("up", "-f", "absent.yaml", status=1)
    bad = tmp_path / "bad.yaml"
    bad.write_text((MANIFESTS / "cluster.yaml").read_text().replace("replicas: 3", "replicas: three", 1))
    assert "spec.brokers.replicas" in ottla("up", "-f", str(bad), status=1)
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [b")
    assert "broken.yaml, line 1, column 6: not YAML" in ottla("up", "-f", str(broken), status=1)
    broken.write_bytes(b"\xff\xfe")
    assert "not text in UTF-8" in ottla("up", "-f", str(broken), status=1)
    assert "no KafkaCluster in" in ottla("up", "-f", str(MANIFESTS / "topics.yaml"), status=1)
    stranger = tmp_path / "topic.yaml"
    stranger.write_text((MANIFESTS / "topics.yaml").read_text().replace("orders", "others"))
    assert "spec.clusterRef.name" in ottla("up", "-f", str(MANIFESTS / "cluster.yaml"), "-f", str(stranger), status=1)


def test_one_fleet_per_data_directory_and_no_broker_that_is_not_there(ottla: Ottla) -> None:
    ottla(*up_arguments("--data", "d"))
    assert "already running" in ottla(*up_arguments("--data", "d"), status=1)
    assert "there is no broker 9" in ottla("kill", "9", "--data", "d", status=1)
    assert "-o takes json or table" in ottla("status", "-o", "xml", "--data", "d", status=1)
    ottla("down", "--data", "d")
    assert "is not running" in ottla("status", "--data", "d", status=1)
