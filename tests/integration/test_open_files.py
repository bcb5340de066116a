"""A broker process with a low limit of open files: what it rejects, and that no directory goes offline."""

from __future__ import annotations

import json
import os
import resource
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.local.zookeeper_server import ZooKeeperServer
from tests.integration.clients.driver import LIMIT_S, await_that
from tests.integration.clients.topics import create
from tests.integration.processes import BrokerProcess


@pytest.fixture
def chroot(zookeeper: ZooKeeperServer, tmp_path: Path) -> str:
    return f"{zookeeper.connect}/{tmp_path.name}"


def _open_files(broker: BrokerProcess) -> int:
    assert broker.process is not None
    return len(os.listdir(f"/proc/{broker.process.pid}/fd"))


def _limit(broker: BrokerProcess, files: int) -> None:
    assert broker.process is not None
    _, hard = resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (files, hard))


def _status(broker: BrokerProcess) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/status", timeout=LIMIT_S) as answer:
        return json.load(answer)


def _producer(broker: BrokerProcess) -> Producer:
    return Producer({"bootstrap.servers": broker.address, "acks": "all", "linger.ms": 0})


def _produce(producer: Producer, topic: str, value: str) -> None:
    errors: list[Any] = []
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(LIMIT_S) == 0
    assert errors == [None]


def test_a_topic_of_more_partitions_than_files_is_refused_with_the_limit_named(tmp_path: Path, chroot: str) -> None:
    broker = BrokerProcess(tmp_path / "broker", 0, chroot, open_files=400)
    try:
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.address})
        answers = admin.create_topics([NewTopic("huge", 20_000, 1), NewTopic("small", 3, 1)])
        with pytest.raises(KafkaException) as refused:
            answers["huge"].result(LIMIT_S)
        assert refused.value.args[0].name() == "POLICY_VIOLATION"
        assert "broker 0, which has 0 of the 200 that it may hold" in refused.value.args[0].str()
        answers["small"].result(LIMIT_S)
        _produce(_producer(broker), "small", "others go on")
        assert broker.is_ready()
    finally:
        broker.close()


def test_a_broker_that_runs_out_of_files_takes_no_directory_offline_and_goes_on(tmp_path: Path, chroot: str) -> None:
    """More is asked of it than it can hold, as a program does that writes topics into ZooKeeper."""
    broker = BrokerProcess(tmp_path / "broker", 0, chroot, {"ottla.max.partition.replicas": "0"}, disks=2)
    try:
        broker.start()
        create(broker.address, "before", 2, 1)
        producer = _producer(broker)
        _produce(producer, "before", "one")
        limit = int(_open_files(broker) / 0.85) + 20  # the client that comes now is served
        _limit(broker, limit)
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic("many", 500, 1)], operation_timeout=1)
        await_that(lambda: "no directory is taken offline" in broker.log, "the broker says that it is short of files")
        _produce(producer, "before", "two")
        assert "is offline" not in broker.log
        _limit(broker, 5000)
        assert broker.is_ready()
        assert {one["state"] for one in _status(broker)["log_dirs"]} == {"online"}
        create(broker.address, "after", 2, 1)
        _produce(producer, "after", "three")
        assert broker.stop() == 0
    finally:
        broker.close()
