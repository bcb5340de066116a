"""`ottla local` on the command line."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource

from ottla.local.ports import free_ports
from ottla_broker.config.properties import parse_properties
from tests.integration.local_fleet import MANIFESTS, Ottla, eventually, up_arguments
from tests.scenarios.load import read_all


def test_up_status_kill_down_and_up_again_with_every_record(ottla: Ottla) -> None:
    printed = ottla(*up_arguments())
    assert re.search(r"^orders: 3 brokers ready in \d+\.\d s, \d+ MB$", printed, re.MULTILINE)
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
    assert "d0 –, d1 –" in shown and "offline" not in shown
    assert disk_states(ottla, 1) == ["unknown", "unknown"]
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
    assert "or pass --yes" in ottla("down", "--delete-data", status=1)
    assert ottla.status()["ready"] is True
    ottla("down", "--delete-data", "--yes")
    assert not (ottla.folder / ".ottla" / "orders").exists()


@pytest.mark.java
def test_with_processes_a_killed_broker_is_started_again(ottla: Ottla) -> None:
    ottla(*up_arguments("--processes"))
    before = ottla.status()["brokers"]
    assert isinstance(before, list)
    assert len({broker["pid"] for broker in before}) == 3
    pids = [broker["pid"] for broker in before]
    changed = ottla.folder / "changed.yaml"
    config = "min.insync.replicas: 2, message.max.bytes: 2000000, num.partitions: 9"
    changed.write_text((MANIFESTS / "cluster.yaml").read_text().replace("min.insync.replicas: 2", config))
    printed = ottla("up", "-f", str(changed), "-f", str(MANIFESTS / "topics.yaml"))
    assert "config     message.max.bytes: from its default to 2000000" in printed
    assert "restart    spec.brokers.config.num.partitions: from its default to 9" in printed
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
    # What could change in place is in the file of the new process, and what needs a restart of the fleet is not.
    properties = parse_properties((ottla.folder / ".ottla/orders/broker-2/server.properties").read_text())
    assert properties["message.max.bytes"] == "2000000" and "num.partitions" not in properties


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
        command = [sys.executable, "-m", "ottla.cli.main", "disk", "forget", "--broker", "0", *arguments]
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
    assert f"--data {file}: is a file, not a directory" in ottla(*up_arguments("--data", str(file)), status=1)
    below = ottla(*up_arguments("--data", f"{file}/fleet"), status=1)
    assert f"--data {file}/fleet: {file} is a file, not a directory" in below
    assert "--data /proc/fleet: cannot be created" in ottla(*up_arguments("--data", "/proc/fleet"), status=1)
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
    assert "something else is in it" in ottla("down", "--delete-data", "--yes", "--data", str(folder))
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
    assert re.search(
        rf"another program \(\S+, process {os.getpid()}\) has port {port}: stop it; .* --port \d+", printed
    )
    stopped = ottla("status", status=1)
    assert "start it with: ottla local up -f .ottla/orders/documents.yaml" in stopped
    assert "ready in" in ottla("up", "-f", ".ottla/orders/documents.yaml")
    log = (data / "fleet.log").read_text()
    assert all("[broker " in line or "[fleet] ottla.local: " in line for line in log.splitlines())


def test_commands_say_what_is_wrong_and_what_to_do(ottla: Ottla, tmp_path: Path) -> None:
    assert "start one with: ottla local up" in ottla("status", status=1)
    assert "-f absent.yaml: No such file" in ottla("up", "-f", "absent.yaml", status=1)
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
    said = ottla("up", "-f", str(MANIFESTS / "cluster.yaml"), "-f", str(stranger), status=1)
    assert said == f"{stranger}, document 1: spec.clusterRef.name: must be orders, not 'others'; is orders meant?\n"
    for connect, why in (
        ("nonsense.invalid", "nonsense.invalid: no such host"),
        ("127.0.0.1:1", "127.0.0.1:1: nobody listens there"),
        ("127.0.0.1:many", "HOST:PORT"),
    ):
        said = ottla(*up_arguments("--zookeeper", connect), status=1)
        assert said.startswith(f"--zookeeper {connect}: ") and why in said and len(said.splitlines()) == 1
    assert not (ottla.folder / ".ottla").exists()


def test_one_fleet_per_data_directory_and_no_broker_that_is_not_there(ottla: Ottla) -> None:
    ottla(*up_arguments("--data", "d"))
    pids = [broker["pid"] for broker in ottla.brokers("--data", "d")]
    assert "orders: already running, the documents are applied; ready" in ottla(*up_arguments("--data", "d"))
    assert [broker["pid"] for broker in ottla.brokers("--data", "d")] == pids
    assert "there is no broker 9" in ottla("kill", "9", "--data", "d", status=1)
    assert "-o xml: write json or table" in ottla("status", "-o", "xml", "--data", "d", status=1)
    ottla("down", "--data", "d")
    assert "is not running" in ottla("status", "--data", "d", status=1)


RESTARTS = """\
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaCluster
metadata: {name: one}
spec:
  brokers:
    replicas: 2
    disks: [{name: d0}, {name: d1}, {name: d2}]
    config: {message.max.bytes: 5000000, num.partitions: 7, num.io.threads: 1000}
---
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaTopic
metadata: {name: t}
spec: {clusterRef: {name: one}, partitions: 6, config: {retention.ms: 5000}}
---
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaTopic
metadata: {name: wide}
spec: {clusterRef: {name: one}, replicas: 5}
"""


def broker_value(bootstrap: str, key: str) -> tuple[str, int]:
    """A key of broker 0 and the code of its source in DescribeConfigs."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ConfigResource.Type.BROKER, "0")
    entry = admin.describe_configs([resource])[resource].result(60)[key]
    return entry.value, entry.source


def test_documents_are_applied_to_a_fleet_that_runs(ottla: Ottla) -> None:
    file = ottla.folder / "one.yaml"
    file.write_text(ONE_BROKER)
    ottla("up", "-f", "one.yaml")
    before = ottla.brokers()
    bootstrap = str(ottla.status()["bootstrap"])
    file.write_text(RESTARTS)
    printed = ottla("up", "-f", "one.yaml", "--processes", "--zookeeper", "h:2181", "--port", "1", status=1)
    assert ottla.brokers() == before
    lines = printed.splitlines()
    assert lines[0] == "one: already running, the documents are applied; ready"
    assert [line for line in lines if line.startswith("config")] == [
        "config     message.max.bytes: from its default to 5000000",
        "config     num.io.threads: broker 0: invalid value '1000' for configuration num.io.threads: between half and "
        "double the present number: 4 to 16; a restart takes it from the document",
    ]
    port = before[0]["address"].rpartition(":")[2]
    assert [line for line in lines if line.startswith("restart")] == [
        "restart    --processes: all brokers run in one process",
        "restart    --zookeeper h:2181: the fleet uses one of its own",
        f"restart    --port 1: the fleet has its ports from {port} upwards",
        "restart    spec.brokers.replicas: from 1 to 2",
        "restart    spec.brokers.disks: from d0, d1 to d0, d1, d2",
        "restart    spec.brokers.config.num.partitions: from its default to 7",
    ]
    assert "topic      t: grown to 6 partitions, retention.ms set to 5000" in lines
    assert "topic      wide: not created: Replication factor: 5 larger than available brokers: 1." in lines
    assert lines[-2:] == [
        "1 of 2 broker keys could not be changed: num.io.threads",
        "1 of 2 topics was not created: wide",
    ]
    assert broker_value(bootstrap, "message.max.bytes") == ("5000000", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    grown = ONE_BROKER.replace("partitions: 4", "partitions: 6")
    file.write_text(grown)
    printed = ottla("up", "-f", "one.yaml")
    assert "config     message.max.bytes: from 5000000 to its default" in printed
    assert "topic      wide: not declared any more; it stays, with its records" in printed
    assert "restart" not in printed
    assert broker_value(bootstrap, "message.max.bytes")[0] == "1048588"
    # What was set while it ran does not win over the document of its next start.
    ottla("down")
    file.write_text(grown.replace("replicas: 1\n", "replicas: 1\n    config: {message.max.bytes: 6000000}\n", 1))
    ottla("up", "-f", "one.yaml")
    assert broker_value(bootstrap, "message.max.bytes") == ("6000000", ConfigSource.STATIC_BROKER_CONFIG.value)


def test_two_fleets_of_one_machine_tell_each_other_apart(ottla: Ottla) -> None:
    (ottla.folder / "a.yaml").write_text(ONE_BROKER.replace("one", "a"))
    (ottla.folder / "b.yaml").write_text(ONE_BROKER.replace("one", "b"))
    a, b = ("up", "-f", "a.yaml"), ("up", "-f", "b.yaml", "--data", "build/demo/fleet")
    first, second = ottla.folder / ".ottla" / "a", ottla.folder / "build" / "demo" / "fleet"
    port = free_ports(1)[0]
    try:
        assert "in use" not in ottla(*a, "--port", str(port))
        assert f"127.0.0.1:{port}\n" in ottla("status")
        printed = ottla(*b, "--port", str(port))
        said = re.search(rf"^{port}.* in use by the fleet a in {first}.*: broker 0 listens on (\d+)$", printed, re.M)
        assert said is not None and f"bootstrap  127.0.0.1:{said[1]}\n" in printed
        listed = ottla("status")
        assert re.search(r"^a +ready +\S+ +\.ottla/a *$", listed, re.M)
        assert re.search(r"^b +ready +\S+ +build/demo/fleet *$", listed, re.M)
        which = "which fleet? choose with --data: .ottla/a, build/demo/fleet"
        assert which in ottla("status", "-o", "json", status=1)
        ottla("down", "--data", ".ottla/a")
        assert "b: ready" in ottla("status")  # the one that runs is shown below the list
        assert f"127.0.0.1:{said[1]}" in ottla("status", "-o", "json")
        ottla("down")
        assert re.search(rf"^bootstrap  127.0.0.1:{port}$", ottla(*b, "--port", str(port)), re.M)
        printed = ottla(*a, status=1)
        assert f"the fleet b in {second} has port {port}: stop it; or give this fleet other ports: --port " in printed
        assert re.search(r"^a +stopped +\.ottla/a *$", ottla("status"), re.M)
        ottla("down", "--delete-data", "--yes")  # that of this folder, although the demo's is the one that runs
        assert not first.exists() and "b: ready" in ottla("status")
    finally:
        ottla("down", "--data", "build/demo/fleet")
