"""Reassignment and its throttles driven by Kafka 3.9's own tool and by clients, under load: nothing is lost."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import RunningCluster, cluster
from tests.integration.broker_errors import broker_errors
from tests.integration.clients.driver import LIMIT_S, Gathering, GroupMember, await_that
from tests.integration.clients.java import JavaMachine
from tests.integration.clients.kcat import Kcat
from tests.integration.clients.topics import create

pytestmark = [pytest.mark.java, pytest.mark.kcat]

BROKERS = 4
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    """Four brokers, with two log directories each."""
    config = {"min.insync.replicas": "1", "replica.fetch.max.bytes": "20000", "log.segment.delete.delay.ms": "0"}
    with broker_errors() as errors, cluster(brokers=BROKERS, racks=2, disks=2, config=config) as found:
        yield found
        errors.check()


class Load:
    """A producer and a consumer that go on until `stop`; then all that was acknowledged was read once, in order.

    The consumer is kcat's: see `load.Load`.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._partitions = partitions
        self._bootstrap = bootstrap
        self._failed: list[Any] = []
        self._is_over = threading.Event()
        self.sent = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
        self._gathering = Gathering()
        self._consumer = Kcat().join(bootstrap, GroupMember(topic, topic, topic), self._gathering)
        self._thread = threading.Thread(target=self._produce)
        self._thread.start()

    def _produce(self) -> None:
        while not self._is_over.is_set():
            for _ in range(20):
                self._producer.produce(
                    self._topic,
                    str(self.sent).encode(),
                    partition=self.sent % self._partitions,
                    on_delivery=lambda error, _: error and self._failed.append(error),
                )
                self.sent += 1
            self._producer.poll(0)
            self._is_over.wait(0.02)
        assert self._producer.flush(LIMIT_S) == 0

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(2 * LIMIT_S)
        assert not self._thread.is_alive()
        assert not self._failed, self._failed
        self._gathering.wait_until(lambda found: len(found.values()) >= self.sent, "everything is read")
        self._consumer.close()
        read: list[list[int]] = [[] for _ in range(self._partitions)]
        for record in self._gathering.records[self._topic]:
            read[record.partition].append(int(record.value or b""))
        for index, found in enumerate(read):
            assert found == list(range(index, self.sent, self._partitions))


@pytest.fixture
def load(fleet: RunningCluster, name: str) -> Iterator[Load]:
    create(fleet.bootstrap, name, 4, 2)
    found = Load(fleet.bootstrap, name, 4)
    try:
        yield found
    finally:
        found.stop()


class Tool:
    def __init__(self, machine: JavaMachine, bootstrap: str, directory: Path) -> None:
        self._machine = machine
        self._bootstrap = bootstrap
        self._directory = directory

    def __call__(self, *arguments: str, plan: dict[str, Any] | None = None) -> str:
        given = ["--bootstrap-server", self._bootstrap, *arguments]
        if plan is not None:
            path = self._directory / "plan.json"
            path.write_text(json.dumps(plan))
            given += ["--reassignment-json-file", str(path)]
        done = self._machine.tool(REASSIGN, *given)
        assert done.status == 0, f"{given}: {done.out}{done.err}"
        return done.out


@pytest.fixture
def tool(machine: JavaMachine, fleet: RunningCluster, tmp_path: Path) -> Tool:
    return Tool(machine, fleet.bootstrap, tmp_path)


def plan_of(topic: str, targets: dict[int, list[int]], **directories: str) -> dict[str, Any]:
    entries: list[dict[str, Any]] = []
    for partition, replicas in targets.items():
        entry: dict[str, Any] = {"topic": topic, "partition": partition, "replicas": replicas}
        if directories:
            entry["log_dirs"] = [directories.get(f"on_{broker}", "any") for broker in replicas]
        entries.append(entry)
    return {"version": 1, "partitions": entries}


def replicas_of(fleet: RunningCluster, topic: str) -> dict[int, list[int]]:
    from confluent_kafka.admin import AdminClient

    known = AdminClient({"bootstrap.servers": fleet.bootstrap}).list_topics(topic, timeout=LIMIT_S)
    return {index: list(part.replicas) for index, part in sorted(known.topics[topic].partitions.items())}


def homes(fleet: RunningCluster, topic: str, partition: int) -> dict[int, list[Path]]:
    """The directories of a partition by broker."""
    return {
        broker: sorted(fleet.data.glob(f"broker-{broker}/*/{topic}-{partition}"))
        for broker in range(len(fleet.running))
    }


def digest(directory: Path) -> str:
    found = hashlib.sha256()
    for segment in sorted(directory.glob("*.log")):
        found.update(segment.read_bytes())
    return found.hexdigest()


def holds_the_same_everywhere(fleet: RunningCluster, topic: str, targets: dict[int, list[int]]) -> bool:
    for partition, replicas in targets.items():
        found = homes(fleet, topic, partition)
        if any(bool(paths) != (broker in replicas) for broker, paths in found.items()):
            return False
        if len({digest(path) for paths in found.values() for path in paths}) != 1:
            return False
    return True


def test_kafka_reassign_partitions_moves_partitions_under_load(
    tool: Tool, fleet: RunningCluster, load: Load, name: str, tmp_path: Path
) -> None:
    await_that(lambda: load.sent > 2000, "there is something to move")
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": name}]}))
    proposed = tool("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "2,3")
    plan = json.loads(proposed.splitlines()[-1])
    targets = {entry["partition"]: entry["replicas"] for entry in plan["partitions"]}
    assert all(sorted(replicas) == [2, 3] for replicas in targets.values())
    # To a directory of one's own, and slowly at first.
    wanted = str(fleet.data / "broker-3" / "d1")
    plan = plan_of(name, targets, on_3=wanted)
    started = tool("--execute", "--throttle", "1", "--replica-alter-log-dirs-throttle", "100000000", plan=plan)
    assert "The inter-broker throttle limit was set to 1 B/s" in started
    assert "Successfully started partition reassignments" in started
    assert "Current partition reassignments" in tool("--list")
    unfinished = tool("--verify", "--preserve-throttles", plan=plan)
    assert "is still in progress" in unfinished
    # Faster: the limit of a running reassignment is changed by asking again.
    tool("--execute", "--additional", "--throttle", "100000000", plan=plan)
    await_that(lambda: "still in progress" not in tool("--verify", "--preserve-throttles", plan=plan), "it is done")
    ended = tool("--verify", plan=plan)
    assert ended.count("is completed.") >= 4 and "Clearing broker-level throttles" in ended
    assert "Clearing topic-level throttles" in ended
    assert "No partition reassignments found." in tool("--list")
    await_that(lambda: replicas_of(fleet, name) == targets, "everybody knows")
    assert {path for paths in (homes(fleet, name, p)[3] for p in targets) for path in paths} == {
        Path(wanted) / f"{name}-{partition}" for partition in targets
    }
    load.stop()
    await_that(lambda: holds_the_same_everywhere(fleet, name, targets), "replicas hold the same, others nothing")


def test_a_reassignment_is_cancelled_and_leaves_nothing_behind(
    tool: Tool, fleet: RunningCluster, load: Load, name: str
) -> None:
    await_that(lambda: load.sent > 2000, "there is something to move")
    before = replicas_of(fleet, name)
    targets = {index: sorted({0, 1, 2, 3} - set(replicas)) for index, replicas in before.items()}
    plan = plan_of(name, targets)
    tool("--execute", "--throttle", "1", plan=plan)
    assert "Successfully cancelled partition reassignments" in tool("--cancel", plan=plan)
    assert "No partition reassignments found." in tool("--list")
    await_that(
        lambda: (
            {k: sorted(v) for k, v in replicas_of(fleet, name).items()} == {k: sorted(v) for k, v in before.items()}
        ),
        "the replicas are those before",
    )
    load.stop()
    await_that(lambda: holds_the_same_everywhere(fleet, name, before), "nothing is left of the learners")


def test_kafka_python_reassigns_and_changes_the_replication_factor_while_brokers_die(
    fleet: RunningCluster, load: Load, name: str
) -> None:
    from kafka import KafkaAdminClient, TopicPartition

    admin = KafkaAdminClient(bootstrap_servers=fleet.bootstrap.split(","))
    try:
        await_that(lambda: load.sent > 1000, "there is something to move")
        targets = {0: [0, 1, 2], 1: [3, 2], 2: [1], 3: [2, 3, 0]}
        wanted = {TopicPartition(name, index): replicas for index, replicas in targets.items()}
        assert set(admin.alter_partition_reassignments(wanted).values()) == {None}
        fleet.kill(2)
        fleet.start(2)
        await_that(lambda: not admin.list_partition_reassignments(), "all have ended")
        await_that(lambda: replicas_of(fleet, name) == targets, "everybody knows")
        load.stop()
        await_that(lambda: holds_the_same_everywhere(fleet, name, targets), "replicas hold the same, others nothing")
    finally:
        admin.close()
