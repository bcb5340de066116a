"""The operator changes nothing while its definitions are older than it is, or while it lacks rights."""

from __future__ import annotations

import copy

import pytest

from ottla_operator.api.objects import (
    DEFINITION,
    EVENT,
    KAFKA_CLUSTER,
    KAFKA_PIPELINE,
    KAFKA_TOPIC,
    NAMESPACE,
    POD,
    Obj,
    dig,
    uid_of,
)
from ottla_operator.api.rights import Right
from ottla_operator.ports import ApiError
from ottla_operator.runtime.prerequisites import AGAIN_S
from tests.operator.definitions import make_older
from tests.operator.fleet import Fleet
from tests.operator.pipeline_fleet import Pipelines
from tests.operator.topic_fleet import FLIGHTS, Topics

MEMORY = {"requests": {"memory": "1Gi"}}
READ_DEFINITIONS = Right("apiextensions.k8s.io", "customresourcedefinitions", "get")
PATCH_STATEFUL_SETS = Right("apps", "statefulsets", "patch")


def _pods(fleet: Fleet) -> list[str]:
    return [uid_of(fleet.kubernetes.there(POD, name)) for name in fleet.kubernetes.names(POD)]


def _written(fleet: Fleet) -> list[tuple[str, str, str]]:
    """What was written since the last call, Events apart."""
    found = [write for write in fleet.kubernetes.writes if write[1] != EVENT.kind]
    fleet.kubernetes.writes.clear()
    return found


async def _steps(fleet: Fleet, count: int = 5) -> None:
    """Some reconciliations, each as much later as it takes until what is lacking is read again."""
    for _ in range(count):
        await fleet.step()
        fleet.time += AGAIN_S


async def _manual() -> Fleet:
    """A fleet with memory of its own, whose rolls are approved by a person, and with a roll that waits for it."""
    fleet = Fleet()
    make_older(fleet.kubernetes, KAFKA_CLUSTER)
    fleet.edit("spec.brokers.resources", MEMORY)
    fleet.edit("spec.rolling", {"approval": "Manual"})
    await fleet.converge()
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge()
    assert fleet.condition("Rolled")[:2] == ("False", "AwaitingApproval")
    fleet.kubernetes.writes.clear()
    return fleet


@pytest.mark.parametrize("is_restarted", (False, True))
async def test_fields_that_an_older_definition_takes_away_change_nothing_and_are_back_with_the_right_one(
    is_restarted: bool,
) -> None:
    fleet = await _manual()
    before = _pods(fleet)
    make_older(fleet.kubernetes, KAFKA_CLUSTER, "spec.rolling", "spec.brokers.resources")
    if is_restarted:
        fleet.restart_operator()
        fleet.cache.put(await _read(fleet))
    else:
        fleet.cache.put(_newer(await _read(fleet)))  # as the watch shows it
    await _steps(fleet)
    assert _written(fleet) == [], "a write would store the document without the fields"
    assert _pods(fleet) == before
    events = [fleet.kubernetes.there(EVENT, name) for name in fleet.kubernetes.names(EVENT)]
    (event,) = (one for one in events if one["reason"] == "DefinitionOutdated")
    assert "lacks spec.brokers.resources, spec.rolling;" in event["message"]
    make_older(fleet.kubernetes, KAFKA_CLUSTER)
    fleet.restart_operator()
    await _steps(fleet)
    assert fleet.condition("Rolled")[:2] == ("False", "AwaitingApproval")
    assert dig(fleet.kubernetes.there(KAFKA_CLUSTER, "orders"), "spec", "brokers", "resources") == MEMORY
    assert _pods(fleet) == before


async def _read(fleet: Fleet) -> Obj:
    found = await fleet.kubernetes.get(KAFKA_CLUSTER, "default", "orders")
    assert found is not None
    return found


def _newer(obj: Obj) -> Obj:
    """As a write of somebody else leaves it, that has not arrived yet."""
    version = str(int(obj["metadata"]["resourceVersion"]) + 10_000)
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}


async def test_an_operator_that_is_newer_than_the_definition_says_so_and_starts_no_roll() -> None:
    fleet = Fleet()
    await fleet.converge()
    before = _pods(fleet)
    make_older(fleet.kubernetes, KAFKA_CLUSTER, "status.roll", "spec.maintenanceWindows")
    fleet.restart_operator()
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    _written(fleet)
    await _steps(fleet)
    assert _written(fleet) == [("status", "KafkaCluster", "orders")]
    status, reason, message = fleet.condition("Ready")
    assert (status, reason) == ("False", "DefinitionOutdated")
    assert (
        "kafkaclusters.kafka.ottla.dev is older than the operator and lacks spec.maintenanceWindows, status.roll"
        in (message)
    )
    assert _pods(fleet) == before
    make_older(fleet.kubernetes, KAFKA_CLUSTER)
    await _steps(fleet, 60)
    assert fleet.condition("Ready")[:2] == fleet.condition("Rolled")[:2] == ("True", "AsDeclared")
    assert not set(before) & {uid_of(fleet.kubernetes.there(POD, f"orders-broker-{n}-0")) for n in range(3)}


async def test_a_status_that_comes_back_with_less_stops_the_operator_where_it_may_not_read_the_definition() -> None:
    """A roll would delete pods and forget it each time."""
    fleet = Fleet()
    fleet.kubernetes.lacks[""] = {READ_DEFINITIONS}
    await fleet.converge()
    fleet.kubernetes.pruned[KAFKA_CLUSTER.kind] = ("status.roll",)
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    before = _pods(fleet)
    await _steps(fleet, 3)
    _written(fleet)
    await _steps(fleet, 10)
    assert _written(fleet) == []
    assert fleet.condition("Ready")[:2] == ("False", "DefinitionOutdated")
    assert _pods(fleet) == before
    fleet.kubernetes.pruned.clear()
    await _steps(fleet, 100)
    assert fleet.condition("Ready")[:2] == fleet.condition("Rolled")[:2] == ("True", "AsDeclared")


async def test_a_definition_is_read_once_a_minute_at_rest_and_before_an_act_on_another_spec() -> None:
    fleet = Fleet()
    make_older(fleet.kubernetes, KAFKA_CLUSTER)
    await fleet.converge()
    read: list[str] = []
    get = fleet.kubernetes.get

    async def counted(kind: object, namespace: str, name: str) -> Obj | None:
        read.append(name)
        return await get(kind, namespace, name)  # type: ignore[arg-type]

    fleet.kubernetes.get = counted  # type: ignore[method-assign,assignment]
    await _steps(fleet, 8)
    assert read.count("kafkaclusters.kafka.ottla.dev") == 3
    fleet.edit("spec.paused", True)
    read.clear()
    await fleet.step()
    await fleet.step()
    assert read.count("kafkaclusters.kafka.ottla.dev") == 1, "another spec"


async def test_a_definition_that_cannot_be_read_for_another_reason_stops_the_reconciliation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet()
    get = fleet.kubernetes.get

    async def failing(kind: object, namespace: str, name: str) -> Obj | None:
        if kind == DEFINITION:
            raise ApiError(500, "InternalError", "etcd")
        return await get(kind, namespace, name)  # type: ignore[arg-type]

    monkeypatch.setattr(fleet.kubernetes, "get", failing)
    await _steps(fleet)
    assert fleet.kubernetes.writes == []


@pytest.mark.parametrize("when", ("at the start", "later"))
async def test_missing_rights_are_named_and_nothing_is_written_until_they_are_there(when: str) -> None:
    fleet = Fleet()
    await fleet.converge()
    before = _pods(fleet)
    fleet.kubernetes.lacks["default"] = {PATCH_STATEFUL_SETS, Right("", "services", "patch")}
    if when == "at the start":
        fleet.restart_operator()
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await _steps(fleet, 30)
    status, reason, message = fleet.condition("Ready")
    assert (status, reason) == ("False", "RightsMissing")
    assert "may not patch statefulsets.apps, patch services in default" in message
    assert _pods(fleet) == before
    _written(fleet)
    await _steps(fleet)
    assert _written(fleet) == []
    fleet.kubernetes.lacks.clear()
    await _steps(fleet, 60)
    assert fleet.condition("Ready")[:2] == fleet.condition("Rolled")[:2] == ("True", "AsDeclared")


async def test_a_namespace_that_is_being_deleted_is_left_alone() -> None:
    """Its RoleBinding may be gone, and what is created there is refused."""
    fleet = Fleet()
    await fleet.converge()
    namespace = fleet.kubernetes.there(NAMESPACE, "default")
    dying = {**namespace["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes"]}
    fleet.kubernetes.put({**namespace, "metadata": dying})
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    _written(fleet)
    await _steps(fleet)
    assert _written(fleet) == []


async def _topics() -> Topics:
    fleet = Fleet()
    make_older(fleet.kubernetes, KAFKA_TOPIC)
    await fleet.converge()
    topics = Topics(fleet)
    topics.apply(deletionPolicy="Retain")
    await topics.settle()
    assert topics.ready() == ("True", "AsDeclared")
    return topics


async def _later(topics: Topics) -> None:
    topics.fleet.environment.passed_s += 60
    topics.fleet.time += 60
    topics.task.queue_all()
    while len(topics.task.queue):
        await topics.task.reconcile_batch()


async def test_a_topic_whose_deletion_policy_an_older_definition_drops_is_not_deleted() -> None:
    topics = await _topics()
    make_older(topics.kubernetes, KAFKA_TOPIC, "spec.deletionPolicy")
    topics.restart_operator()
    seen = await topics.kubernetes.get(KAFKA_TOPIC, "default", "flights")
    assert seen is not None and "deletionPolicy" not in seen["spec"]
    topics.fleet.cache.remove(seen)
    topics.fleet.cache.put(_newer(seen))
    _written(topics.fleet)
    for _ in range(3):
        await _later(topics)
    assert _written(topics.fleet) == [], "no finalizer for what would be deleted with the document"
    topics.kubernetes.remove(KAFKA_TOPIC, "flights")
    await _later(topics)
    assert "flights" in topics.kafka.topics_there


async def test_no_namespace_waits_for_a_finalizer_whatever_is_lacking() -> None:
    topics = await _topics()
    topics.apply(deletionPolicy=None)
    await topics.settle()
    assert topics.there()["metadata"]["finalizers"]
    make_older(topics.kubernetes, KAFKA_TOPIC, "spec.config")
    topics.kubernetes.lacks["default"] = {Right("kafka.ottla.dev", "kafkatopics/status", "update")}
    namespace = topics.kubernetes.there(NAMESPACE, "default")
    dying = {**namespace["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes"]}
    topics.kubernetes.put({**namespace, "metadata": dying})
    topics.kubernetes.remove(KAFKA_TOPIC, "flights")
    topics.restart_operator()
    await _later(topics)
    assert not topics.is_listed()
    assert "flights" in topics.kafka.topics_there


async def test_topics_wait_for_the_rights_to_them_and_say_so() -> None:
    topics = await _topics()
    topics.kubernetes.lacks["default"] = {Right("kafka.ottla.dev", "kafkatopics", "patch")}
    topics.restart_operator()
    other = copy.deepcopy(FLIGHTS)
    other["metadata"]["name"] = "trains"
    topics.kubernetes.put(other)
    await _later(topics)
    assert topics.ready("trains") == ("False", "RightsMissing")
    assert "trains" not in topics.kafka.topics_there
    topics.kubernetes.lacks.clear()
    for _ in range(3):
        await _later(topics)
    assert topics.ready("trains") == topics.ready() == ("True", "AsDeclared")


async def test_a_pipeline_whose_definition_is_older_keeps_its_driver() -> None:
    pipelines = Pipelines()
    pipelines.apply()
    await pipelines.settle()
    pod = uid_of(pipelines.kubernetes.there(POD, pipelines.pod()))
    make_older(pipelines.kubernetes, KAFKA_PIPELINE, "spec.schedule", "status.executors")
    pipelines.restart()
    pipelines.apply(trigger={"availableNow": True})
    await pipelines.settle()
    assert pipelines.condition("Ready")[1] == "DefinitionOutdated"
    assert uid_of(pipelines.kubernetes.there(POD, pipelines.pod())) == pod
