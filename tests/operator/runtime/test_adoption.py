"""Objects that have lost their owner are adopted without a restart; those of somebody else are reported."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ottla_operator.api import names
from ottla_operator.api.objects import (
    CONFIG_MAP,
    CRON_JOB,
    DISRUPTION_BUDGET,
    JOB,
    KAFKA_CLUSTER,
    KAFKA_PIPELINE,
    POD,
    ROLE,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    ResourceKind,
    dig,
    has_condition,
    uid_of,
)
from tests.operator.fleet import Fleet
from tests.operator.kubernetes import InMemoryKubernetes
from tests.operator.orphaning import delete_and_orphan, ownerless, strip_owners
from tests.operator.pipeline_fleet import NAME, OBJECT, Pipelines
from tests.operator.runtime.test_pipeline_executors import EXECUTORS, MANY

THEIRS = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": "theirs", "controller": True}]


def _pods(kubernetes: InMemoryKubernetes) -> dict[str, str]:
    return {name: uid_of(kubernetes.there(POD, name)) for name in kubernetes.names(POD)}


def _give_away(kubernetes: InMemoryKubernetes, kind: ResourceKind, name: str) -> None:
    found = kubernetes.there(kind, name)
    kubernetes.put({**found, "metadata": {**found["metadata"], "ownerReferences": THEIRS}})


@pytest.mark.parametrize("is_restarted", (False, True))
async def test_a_cluster_that_is_deleted_with_cascade_orphan_and_applied_again_goes_on_without_a_restart(
    is_restarted: bool,
) -> None:
    fleet = Fleet()
    await fleet.converge()
    before = _pods(fleet.kubernetes)
    document = delete_and_orphan(fleet.kubernetes, KAFKA_CLUSTER, "orders")
    await fleet.step()
    fleet.kubernetes.put(document)
    if is_restarted:
        fleet.restart_operator()
    await fleet.converge()
    assert ownerless(fleet.kubernetes, fleet.kubernetes.there(KAFKA_CLUSTER, "orders")) == []
    assert _pods(fleet.kubernetes) == before
    assert fleet.condition("Ready")[:2] == fleet.condition("Rolled")[:2] == ("True", "AsDeclared")
    assert [write for write in fleet.kubernetes.writes if write[0] == "delete"] == []
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    fleet.edit("spec.zookeeper.resources", {"requests": {"memory": "1Gi"}})
    await fleet.converge()
    assert all("log.retention.hours=7\n" in fleet.properties(number) for number in range(3))
    assert fleet.condition("Rolled")[:2] == ("True", "AsDeclared")
    assert not set(_pods(fleet.kubernetes).values()) & set(before.values()), "configuration arrives"


async def test_the_secret_of_the_super_user_is_used_as_it_is() -> None:
    fleet = Fleet()
    await fleet.converge()
    data = fleet.kubernetes.there(SECRET, "orders-zookeeper-super")["data"]
    fleet.environment.next_password = "another"
    fleet.kubernetes.put(delete_and_orphan(fleet.kubernetes, KAFKA_CLUSTER, "orders"))
    await fleet.converge()
    assert fleet.kubernetes.there(SECRET, "orders-zookeeper-super")["data"] == data


async def test_a_change_made_with_the_document_applied_again_is_rolled() -> None:
    """The objects are adopted as they run, and the change has its turn."""
    fleet = Fleet()
    await fleet.converge()
    document = delete_and_orphan(fleet.kubernetes, KAFKA_CLUSTER, "orders")
    document["spec"]["rolling"] = {"approval": "Manual"}
    document["spec"]["brokers"]["config"] = {"log.retention.hours": 7}
    before = _pods(fleet.kubernetes)
    fleet.kubernetes.put(document)
    await fleet.converge()
    assert fleet.condition("Rolled")[:2] == ("False", "AwaitingApproval")
    assert ownerless(fleet.kubernetes, fleet.kubernetes.there(KAFKA_CLUSTER, "orders")) == []
    assert _pods(fleet.kubernetes) == before


async def test_nothing_is_adopted_by_a_cluster_whose_deletion_the_watch_has_not_shown_yet() -> None:
    """The owners go before the document: what it adopted again would be deleted with it."""
    fleet = Fleet()
    await fleet.converge()
    see = fleet.kubernetes.on_change
    assert see is not None
    fleet.kubernetes.on_change = lambda event, obj: None if obj["kind"] == KAFKA_CLUSTER.kind else see(event, obj)
    document = fleet.kubernetes.there(KAFKA_CLUSTER, "orders")
    dying = {**document["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["orphan"]}
    fleet.kubernetes.put({**document, "metadata": dying})
    strip_owners(fleet.kubernetes, document)
    orphans = ownerless(fleet.kubernetes, document)
    fleet.kubernetes.writes.clear()
    for _ in range(3):
        await fleet.step()
    assert fleet.kubernetes.writes == []
    assert ownerless(fleet.kubernetes, document) == orphans != []


FOREIGN: tuple[tuple[ResourceKind, str], ...] = (
    (STATEFUL_SET, "orders-broker-1"),
    (STATEFUL_SET, "orders-zookeeper-2"),
    (SERVICE, "orders-bootstrap"),
    (DISRUPTION_BUDGET, "orders-brokers"),
    (CONFIG_MAP, "orders-zookeeper"),
    (SECRET, "orders-zookeeper-super"),
)


@pytest.mark.parametrize(("kind", "name"), FOREIGN)
async def test_an_object_that_somebody_else_owns_is_reported_and_stays_as_it_is(kind: ResourceKind, name: str) -> None:
    fleet = Fleet()
    await fleet.converge()
    _give_away(fleet.kubernetes, kind, name)
    before = fleet.kubernetes.there(kind, name)
    fleet.restart_operator()
    await fleet.converge()
    status, reason, message = fleet.condition("Ready")
    assert (status, reason) == ("False", "NotOwned") and f"{kind.kind} {name}" in message
    after = fleet.kubernetes.there(kind, name)
    assert (after.get("spec"), after["metadata"]["ownerReferences"]) == (before.get("spec"), THEIRS)


async def test_rolled_is_not_true_while_a_member_runs_what_somebody_else_declares() -> None:
    fleet = Fleet()
    await fleet.converge()
    _give_away(fleet.kubernetes, STATEFUL_SET, "orders-broker-1")
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge()
    assert "log.retention.hours=7\n" not in fleet.properties(1)
    assert fleet.condition("Rolled") == (
        "False", "NotOwned", "belong to somebody else, and stay as they are: StatefulSet orders-broker-1",
    )  # fmt: skip


async def test_what_a_former_cluster_of_the_same_name_owns_is_left_to_kubernetes() -> None:
    """Its uid exists no more, so that the garbage collector is deleting the object."""
    fleet = Fleet()
    await fleet.converge()
    former = [{**dig(fleet.kubernetes.there(SERVICE, "orders-brokers"), "metadata", "ownerReferences", 0), "uid": "0"}]
    found = fleet.kubernetes.there(SERVICE, "orders-brokers")
    fleet.kubernetes.put({**found, "metadata": {**found["metadata"], "ownerReferences": former}})
    await fleet.converge()
    assert fleet.condition("Ready")[:2] == ("False", "NotOwned")
    fleet.kubernetes.remove(SERVICE, "orders-brokers")
    await fleet.converge()
    assert fleet.condition("Ready")[:2] == ("True", "AsDeclared")


async def test_an_object_of_our_name_without_our_labels_is_not_adopted() -> None:
    fleet = Fleet()
    theirs: dict[str, Any] = {
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
        "metadata": {"name": "orders-zookeeper", "namespace": "default", "labels": {names.CLUSTER: "orders"}},
    }  # fmt: skip
    fleet.kubernetes.put(copy.deepcopy(theirs))
    fleet.restart_operator()
    for _ in range(5):
        await fleet.step()
    assert fleet.kubernetes.there(CONFIG_MAP, "orders-zookeeper")["data"] == {"a": "b"}
    assert fleet.condition("Ready")[:2] == ("False", "NotOwned")


@pytest.mark.parametrize(
    ("kind", "spec"),
    (
        (STATEFUL_SET, {"trigger": {"interval": "10s"}}),
        (JOB, {"trigger": {"availableNow": True}}),
        (CRON_JOB, {"schedule": "0 * * * *"}),
    ),
)
async def test_the_objects_of_a_pipeline_are_adopted_and_its_driver_goes_on(
    kind: ResourceKind, spec: dict[str, Any]
) -> None:
    pipelines = Pipelines()
    pipelines.apply(**spec, executors=EXECUTORS, checkpoint=MANY)
    await pipelines.settle()
    if kind == CRON_JOB:
        pipelines.start_run()
        await pipelines.settle()
    before, jobs = _pods(pipelines.kubernetes), pipelines.kubernetes.names(JOB)
    pipelines.kubernetes.put(delete_and_orphan(pipelines.kubernetes, KAFKA_PIPELINE, NAME))
    await pipelines.settle()
    runs = [f"Job/{name}" for name in jobs] if kind == CRON_JOB else []  # their owner is the CronJob
    assert ownerless(pipelines.kubernetes, pipelines.there()) == runs
    assert _pods(pipelines.kubernetes) == before and before
    assert pipelines.kubernetes.names(JOB) == jobs
    assert OBJECT in pipelines.kubernetes.names(SERVICE_ACCOUNT) and OBJECT in pipelines.kubernetes.names(ROLE)
    assert pipelines.condition("Ready")[1] not in ("NotOwned", "Replacing")


async def test_a_finished_job_is_adopted_and_does_not_run_again() -> None:
    pipelines = Pipelines()
    pipelines.apply(trigger={"availableNow": True})
    await pipelines.settle()
    pipelines.end_job({"phase": "Completed", "restarts": 0, "lastError": "", "queries": {}})
    await pipelines.settle()
    (job,) = pipelines.kubernetes.names(JOB)
    pipelines.kubernetes.put(delete_and_orphan(pipelines.kubernetes, KAFKA_PIPELINE, NAME))
    await pipelines.settle()
    assert pipelines.kubernetes.names(JOB) == [job]
    assert has_condition(pipelines.kubernetes.there(JOB, job), "Complete")
    assert ownerless(pipelines.kubernetes, pipelines.there()) == []
