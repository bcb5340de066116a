"""`ottla local`, typed as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.integration.test_process_crashes import read_all

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"


class Ottla:
    """Runs `ottla local` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str, status: int = 0) -> str:
        command = [sys.executable, "-m", "ottla_broker.cli.main", "local", *arguments]
        result = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=180, check=False)
        assert result.returncode == status, result.stdout + result.stderr
        return result.stdout + result.stderr

    def status(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self("status", "-o", "json"))
        return found


@pytest.fixture
def ottla(tmp_path: Path) -> Iterator[Ottla]:
    run = Ottla(tmp_path)
    yield run
    if list(tmp_path.glob(".ottla/*/control.sock")):
        run("down")


def up_arguments(*extra: str) -> list[str]:
    return ["up", "-f", str(MANIFESTS / "cluster.yaml"), "-f", str(MANIFESTS / "topics.yaml"), *extra]


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
    assert [sorted(broker) for broker in brokers] == [["address", "http", "id", "log_dirs", "pid", "rack"]] * 3
    assert [[d["state"] for d in broker["log_dirs"]] for broker in brokers] == [["online"] * 2] * 3
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(300):
        producer.produce("flights", str(number), partition=number % 12)
    assert producer.flush(30) == 0
    ottla("kill", "1")
    assert ottla.status()["ready"] is False
    for number in range(300, 600):
        producer.produce("flights", str(number), partition=number % 12)
    assert producer.flush(60) == 0
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
    ottla("kill", "2")
    for _ in range(600):
        status = ottla.status()
        if status["ready"]:
            break
    after = status["brokers"]
    assert isinstance(after, list)
    assert status["ready"] is True
    assert after[2]["pid"] != before[2]["pid"]
    assert after[0]["pid"] == before[0]["pid"]


def test_commands_say_what_is_wrong_and_what_to_do(ottla: Ottla, tmp_path: Path) -> None:
    assert "start one with: ottla local up" in ottla("status", status=1)
    assert "No such file" in ottla("up", "-f", "absent.yaml", status=1)
    bad = tmp_path / "bad.yaml"
    bad.write_text((MANIFESTS / "cluster.yaml").read_text().replace("replicas: 3", "replicas: three", 1))
    assert "spec.brokers.replicas" in ottla("up", "-f", str(bad), status=1)
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
