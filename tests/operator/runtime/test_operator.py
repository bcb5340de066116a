"""The whole operator process, kopf and client included, against an API server over HTTP."""

from __future__ import annotations

import asyncio
import copy
import io
import logging
import pwd
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ottla_operator.api.objects import CONFIG_MAP, KAFKA_CLUSTER, KAFKA_TOPIC, LEASE, SERVICE, dig
from ottla_operator.command import QUIETER, configure_log
from ottla_operator.facts.snapshot import ContainerImages
from ottla_operator.runtime.operator import Operator, OperatorSettings
from tests.operator.api_server import ApiServer
from tests.operator.fleet import CLUSTER, InMemoryKafka, InMemorySurroundings
from tests.operator.kubernetes import InMemoryKubernetes, node
from tests.operator.topic_fleet import FLIGHTS

SETTINGS = OperatorSettings(
    images=ContainerImages("ottla:1", "zookeeper:3.9"),
    namespace="default",
    identity="operator-a",
    watch_namespaces=(),
    reads_nodes=True,
    liveness="",
)


class Running:
    """An operator that runs, and the world around it."""

    def __init__(self, settings: OperatorSettings = SETTINGS) -> None:
        self.settings = settings
        self.kubernetes = InMemoryKubernetes()
        self.kafka = InMemoryKafka(self.kubernetes)
        self.server = ApiServer(self.kubernetes)
        self.environment = InMemorySurroundings(self.kubernetes, self.kafka)
        for index, zone in enumerate(("zone-a", "zone-b", "zone-c")):
            self.kubernetes.put(node(f"n{index}", zone))

    def start_operator(self) -> None:
        self.operator = Operator(self.settings, self.environment)
        self.task = asyncio.create_task(self.operator.run())

    def is_stopped(self) -> bool:
        return self.task.done()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Runs the controllers of Kubernetes until a condition holds."""
        async with asyncio.timeout(180):
            while not holds():
                self.kubernetes.settle()
                await asyncio.sleep(0.02)

    def is_ready(self) -> bool:
        conditions = dig(self.kubernetes.there(KAFKA_CLUSTER, "orders"), "status", "conditions") or []
        return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)

    def may_format_nothing(self) -> bool:
        """The last thing that a new cluster waits for."""
        leave = [self.kubernetes.there(CONFIG_MAP, f"orders-broker-{number}-format") for number in (0, 1, 2)]
        return all(dig(obj, "data", "dirs") == "" for obj in leave)

    def other_writes(self) -> list[tuple[str, str, str]]:
        return [write for write in self.kubernetes.writes if write[1] != "Lease"]


@asynccontextmanager
async def _running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: OperatorSettings = SETTINGS
) -> AsyncIterator[Running]:
    """Not a fixture: kopf ends every task that is younger than itself, a fixture's teardown among them."""
    world = Running(settings)
    await world.server.start()
    config = tmp_path / "kubeconfig"
    config.write_text(world.server.kubeconfig())
    monkeypatch.setenv("KUBECONFIG", str(config))
    world.start_operator()
    yield world
    world.operator.stop()
    await asyncio.wait_for(world.task, 120)
    lease = world.kubernetes.there(LEASE, "ottla-operator")
    assert lease["spec"]["leaseDurationSeconds"] == 1, "the next operator may begin at once"
    await world.server.close()


async def test_the_operator_process_makes_a_cluster_and_its_topic_ready_and_then_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _running(tmp_path, monkeypatch) as running:
        await _from_a_document_to_rest(running)


async def _from_a_document_to_rest(running: Running) -> None:
    kubernetes = running.kubernetes
    kubernetes.put(copy.deepcopy(CLUSTER))
    await running.until(running.is_ready)
    kubernetes.put(copy.deepcopy(FLIGHTS))
    await running.until(lambda: dig(kubernetes.there(KAFKA_TOPIC, "flights"), "status", "partitions") == 12)
    assert running.kafka.topics_there["flights"].replicas == 3
    assert [write for write in kubernetes.writes if write[0] == "other"] == [], "kopf wrote something"
    lease = kubernetes.there(LEASE, "ottla-operator")
    assert lease["spec"]["holderIdentity"] == "operator-a"

    kubernetes.remove(SERVICE, "orders-broker-1")
    await running.until(lambda: "orders-broker-1" in kubernetes.names(SERVICE))

    await running.until(running.may_format_nothing)
    before = len(running.other_writes())
    document = kubernetes.there(KAFKA_CLUSTER, "orders")
    document["metadata"]["annotations"] = {"a": "user's"}
    passes = len(running.environment.reported)
    kubernetes.put(document)
    await running.until(lambda: len(running.environment.reported) > passes)
    assert running.other_writes()[before:] == []
    annotations = dig(kubernetes.there(KAFKA_CLUSTER, "orders"), "metadata", "annotations")
    assert annotations == {"a": "user's"} and not dig(
        kubernetes.there(KAFKA_CLUSTER, "orders"), "metadata", "finalizers"
    )


async def test_an_operator_of_several_namespaces_serves_each_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _running(tmp_path, monkeypatch, replace(SETTINGS, watch_namespaces=("team-b", "default"))) as running:
        foreign = copy.deepcopy(CLUSTER)
        foreign["metadata"] |= {"namespace": "team-c"}
        running.kubernetes.put(foreign)
        running.kubernetes.put(copy.deepcopy(CLUSTER))
        await running.until(running.is_ready)
        documents = {key[1]: obj for key, obj in running.kubernetes.objects.items() if key[0] == KAFKA_CLUSTER.kind}
        assert "status" in documents["default"] and "status" not in documents["team-c"]


async def test_a_restarted_operator_decides_nothing_before_it_has_listed_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kopf's lists come one after the other; a reconciliation between them would take unlisted objects for missing."""
    async with _running(tmp_path, monkeypatch) as running:
        running.kubernetes.put(copy.deepcopy(CLUSTER))
        await running.until(running.is_ready)
        await running.until(running.may_format_nothing)
        running.operator.stop()
        await running.until(running.is_stopped)
        running.server.slow = {"statefulsets": 1.0, "pods": 1.5, "persistentvolumeclaims": 0.5}
        before, passes = len(running.other_writes()), len(running.environment.reported)
        running.start_operator()
        await running.until(lambda: len(running.environment.reported) > passes + 2)
        assert running.other_writes()[before:] == []


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What `ottla operator run` would have written to its standard error."""
    loggers = [logging.getLogger(), *(logging.getLogger(name) for name in QUIETER)]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    stream = io.StringIO()
    configure_log(stream)
    yield stream
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


async def test_the_log_has_what_the_operator_does_and_not_every_watch_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: io.StringIO
) -> None:
    async with _running(tmp_path, monkeypatch) as running:
        running.kubernetes.put(copy.deepcopy(CLUSTER))
        await running.until(running.is_ready)
        running.kubernetes.put(copy.deepcopy(FLIGHTS))
        await running.until(lambda: dig(running.kubernetes.there(KAFKA_TOPIC, "flights"), "status") is not None)
    loggers = {line.split()[3] for line in log.getvalue().splitlines()}
    assert {name for name in loggers if not name.startswith("ottla.")} == set()
    assert "KafkaCluster orders: Ready: Ready: AsDeclared" in log.getvalue()
    logging.getLogger("kopf.objects").error("a handler failed")
    logging.getLogger("kafka.net.manager").error("Connection failed")
    logging.getLogger("kazoo.client").info("Zookeeper session closed")
    assert "a handler failed" in log.getvalue()
    assert "Connection failed" not in log.getvalue() and "session closed" not in log.getvalue()


async def test_the_operator_runs_when_its_user_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in its own image: the uid is a number that no /etc/passwd knows."""

    def nobody(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    async with _running(tmp_path, monkeypatch) as running:
        running.kubernetes.put(copy.deepcopy(CLUSTER))
        await running.until(running.is_ready)
