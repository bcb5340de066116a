"""Changes of others to our objects: tolerated where they add, reverted once where they change ours, and then rest."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from ottla_operator.api import names
from ottla_operator.api.objects import (
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    POD,
    SERVICE,
    STATEFUL_SET,
    Obj,
    ResourceKind,
    dig,
    label,
    uid_of,
)
from tests.operator.fleet import Fleet

BROKER = "orders-broker-1"


async def _running() -> Fleet:
    fleet = Fleet()
    await fleet.converge()
    return fleet


async def _rests(fleet: Fleet) -> None:
    """Also under an operator that knows nothing of what was written before."""
    fleet.kubernetes.writes.clear()
    for _ in range(3):
        await fleet.step()
    fleet.restart_operator()
    for _ in range(3):
        await fleet.step()
    assert fleet.kubernetes.writes == []


def _change(fleet: Fleet, kind: ResourceKind, name: str, change: Callable[[Obj], Any]) -> None:
    """As `kubectl edit` does."""
    obj = fleet.kubernetes.there(kind, name)
    change(obj)
    fleet.kubernetes.put(obj)


def _pod_template(stateful_set: Obj) -> Obj:
    found: Obj = stateful_set["spec"]["template"]["spec"]
    return found


def _container(stateful_set: Obj) -> Obj:
    found: Obj = next(c for c in _pod_template(stateful_set)["containers"] if c["name"] in ("broker", "zookeeper"))
    return found


SIDECAR = {"name": "a-sidecar", "image": "sidecar:1", "ports": [{"containerPort": 15020, "protocol": "TCP"}]}


def _add_sidecar(stateful_set: Obj) -> None:
    _pod_template(stateful_set)["containers"].insert(0, copy.deepcopy(SIDECAR))


def _add_volume(stateful_set: Obj) -> None:
    _pod_template(stateful_set)["volumes"].append({"name": "theirs", "emptyDir": {}})
    _container(stateful_set)["volumeMounts"].append({"name": "theirs", "mountPath": "/theirs"})


ADDITIONS: dict[str, tuple[ResourceKind, str, Callable[[Obj], Any]]] = {
    "an environment variable of a broker": (
        STATEFUL_SET,
        BROKER,
        lambda obj: _container(obj)["env"].append({"name": "TZ", "value": "UTC"}),
    ),
    "an environment variable of a ZooKeeper server": (
        STATEFUL_SET,
        "orders-zookeeper-2",
        lambda obj: _container(obj)["env"].append({"name": "TZ", "value": "UTC"}),
    ),
    "a port of a container": (
        STATEFUL_SET,
        BROKER,
        lambda obj: _container(obj)["ports"].append({"containerPort": 5005, "protocol": "TCP"}),
    ),
    "a sidecar in front of ours": (STATEFUL_SET, BROKER, _add_sidecar),
    "a volume with its mount": (STATEFUL_SET, BROKER, _add_volume),
    "a toleration": (
        STATEFUL_SET,
        BROKER,
        lambda obj: _pod_template(obj).update(tolerations=[{"key": "dedicated", "operator": "Exists"}]),
    ),
    "a node selector": (STATEFUL_SET, BROKER, lambda obj: _pod_template(obj).update(nodeSelector={"a": "b"})),
    "a label and an annotation of the template": (
        STATEFUL_SET,
        BROKER,
        lambda obj: (
            obj["spec"]["template"]["metadata"]["labels"].update(team="x"),
            obj["spec"]["template"]["metadata"]["annotations"].update(note="x"),
        ),
    ),
    "a port of a Service": (
        SERVICE,
        "orders-bootstrap",
        lambda obj: obj["spec"]["ports"].append({"name": "x", "port": 9, "protocol": "TCP", "targetPort": 9}),
    ),
    "a port in front of ours": (
        SERVICE,
        BROKER,
        lambda obj: obj["spec"]["ports"].insert(0, {"name": "x", "port": 9, "protocol": "TCP", "targetPort": 9}),
    ),
    "an annotation of a Service": (
        SERVICE,
        "orders-zookeeper",
        lambda obj: obj["metadata"].setdefault("annotations", {}).update(x="y"),
    ),
    "a key of a ConfigMap": (CONFIG_MAP, "orders-zookeeper", lambda obj: obj["data"].update(x="y")),
    "a label of the budget": (DISRUPTION_BUDGET, "orders-brokers", lambda obj: obj["metadata"]["labels"].update(x="y")),
}


@pytest.mark.parametrize("addition", ADDITIONS)
async def test_additions_of_others_to_our_objects_stay_and_cause_no_write(
    addition: str,
) -> None:
    fleet = await _running()
    kind, name, change = ADDITIONS[addition]
    _change(fleet, kind, name, change)
    theirs = {key: fleet.kubernetes.there(kind, name).get(key) for key in ("spec", "data")}
    await fleet.converge()
    assert {key: fleet.kubernetes.there(kind, name).get(key) for key in ("spec", "data")} == theirs
    assert fleet.condition("Rolled")[:2] == ("True", "AsDeclared") and fleet.condition("Ready")[0] == "True"
    await _rests(fleet)


def _rename_port(service: Obj) -> None:
    service["spec"]["ports"][0] |= {"port": 19092}


def _other_volume(stateful_set: Obj) -> None:
    volume = next(volume for volume in _pod_template(stateful_set)["volumes"] if volume["name"] == "config")
    del volume["configMap"]
    volume["emptyDir"] = {}


def _other_budget(budget: Obj) -> None:
    budget["spec"] = {**budget["spec"], "maxUnavailable": 2}
    del budget["spec"]["minAvailable"]


REVERTED: dict[str, tuple[ResourceKind, str, Callable[[Obj], Any]]] = {
    "the image": (STATEFUL_SET, BROKER, lambda obj: _container(obj).update(image="other:1")),
    "an argument": (STATEFUL_SET, BROKER, lambda obj: _container(obj)["args"].append("--debug")),
    "our environment variable": (STATEFUL_SET, BROKER, lambda obj: _container(obj).update(env=[])),
    "the number of pods": (STATEFUL_SET, BROKER, lambda obj: obj["spec"].update(replicas=0)),
    "the update strategy": (
        STATEFUL_SET,
        BROKER,
        lambda obj: obj["spec"].update(updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
    ),
    "the source of a volume": (STATEFUL_SET, BROKER, _other_volume),
    "the number of a Service's port": (SERVICE, BROKER, _rename_port),
    "the selector of a Service": (SERVICE, BROKER, lambda obj: obj["spec"]["selector"].update({names.CLUSTER: "x"})),
    "the budget": (DISRUPTION_BUDGET, "orders-brokers", lambda obj: obj["spec"].update(minAvailable=0)),
    "the kind of budget": (DISRUPTION_BUDGET, "orders-brokers", _other_budget),
    "the permission to format": (
        CONFIG_MAP,
        f"{BROKER}-format",
        lambda obj: obj["data"].update(dirs="/var/lib/ottla/d0"),
    ),
    "a file of the ensemble": (CONFIG_MAP, "orders-zookeeper", lambda obj: obj["data"].update({"zoo.cfg": ""})),
    "a label of a Service": (SERVICE, BROKER, lambda obj: obj["metadata"]["labels"].pop(names.BROKER_ID)),
    "the label by which a Service is watched": (
        SERVICE,
        BROKER,
        lambda obj: obj["metadata"]["labels"].pop(names.CLUSTER),
    ),
}


@pytest.mark.parametrize("what", REVERTED)
async def test_a_field_that_others_change_is_written_back_once(what: str) -> None:
    fleet = await _running()
    kind, name, change = REVERTED[what]
    before = fleet.kubernetes.there(kind, name)
    _change(fleet, kind, name, change)
    fleet.kubernetes.writes.clear()
    await fleet.converge()
    after = fleet.kubernetes.there(kind, name)
    assert after.get("data") == before.get("data")
    assert {key: value for key, value in (after.get("spec") or {}).items() if key != "updateStrategy"} == {
        key: value for key, value in (before.get("spec") or {}).items() if key != "updateStrategy"
    }
    assert dig(after, "spec", "updateStrategy", "type") == dig(before, "spec", "updateStrategy", "type")
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert len([write for write in fleet.kubernetes.writes if write[1:] == (kind.kind, name)]) <= 2
    assert fleet.condition("Rolled")[0] == "True" and fleet.condition("Ready")[0] == "True"
    await _rests(fleet)


@pytest.mark.parametrize("immutable", [True, False])
async def test_a_configmap_with_foreign_content_is_restored(immutable: bool) -> None:
    """One that cannot change, as somebody has made it so, is deleted and created again."""
    fleet = await _running()
    name = label(fleet.kubernetes.there(POD, f"{BROKER}-0"), "x") or dig(
        fleet.kubernetes.there(POD, f"{BROKER}-0"), "metadata", "annotations", names.CONFIG
    )
    before = fleet.kubernetes.there(CONFIG_MAP, str(name))
    fleet.kubernetes.remove(CONFIG_MAP, str(name))
    foreign = {"server.properties": "broker.id=7\nno.such=1\nnum.partitions=9\nmessage.max.bytes=5\n"}
    fleet.kubernetes.put({**before, "immutable": immutable, "data": foreign})
    await fleet.converge()
    assert fleet.kubernetes.there(CONFIG_MAP, str(name))["data"] == before["data"]


async def test_a_field_that_is_no_longer_declared_is_removed() -> None:
    """What is left is as declared: only the stamp of the last declaration shows the difference."""
    fleet = await _running()
    fleet.images = type(fleet.images)("ottla:1", "zookeeper:3.9", "Always")
    fleet.restart_operator()
    await fleet.converge(300)
    assert _container(fleet.kubernetes.there(STATEFUL_SET, BROKER))["imagePullPolicy"] == "Always"
    fleet.images = type(fleet.images)("ottla:1", "zookeeper:3.9", "")
    fleet.restart_operator()
    await fleet.converge(300)
    assert _container(fleet.kubernetes.there(STATEFUL_SET, BROKER)).get("imagePullPolicy") in (None, "IfNotPresent")


def _webhook(change: Callable[[Obj], Any]) -> Callable[[Obj], Obj]:
    def mutate(obj: Obj) -> Obj:
        if obj["kind"] == "StatefulSet":
            change(obj)
        return obj

    return mutate


async def test_a_webhook_that_adds_to_every_template_stops_no_roll() -> None:
    fleet = await _running()

    def inject(obj: Obj) -> None:
        pod = _pod_template(obj)
        if all(container["name"] != SIDECAR["name"] for container in pod["containers"]):
            pod["containers"].insert(0, copy.deepcopy(SIDECAR))
        pod["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        obj["spec"]["template"]["metadata"]["labels"]["mesh"] = "on"

    fleet.kubernetes.webhook = _webhook(inject)
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge()
    assert all("log.retention.hours=7\n" in fleet.properties(number) for number in range(3))
    assert fleet.condition("Ready")[0] == "True" and fleet.condition("Rolled")[0] == "True"
    await _rests(fleet)


async def test_a_webhook_that_changes_our_fields_is_reported_and_stops_no_roll() -> None:
    fleet = await _running()
    fleet.kubernetes.webhook = _webhook(lambda obj: _container(obj).update(imagePullPolicy="Always", image="mirror:1"))
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge(200)
    assert all("log.retention.hours=7\n" in fleet.properties(number) for number in range(3))
    status, reason, message = fleet.condition("Ready")
    assert (status, reason) == ("False", "ChangedByOthers")
    assert "orders-broker-1" in message and "spec.template.spec.containers[broker].image" in message
    fleet.kubernetes.writes.clear()
    for _ in range(5):
        await fleet.step()
    assert fleet.kubernetes.writes == []
    fleet.kubernetes.webhook = None
    fleet.time += 601
    await fleet.converge(200)
    assert fleet.condition("Ready")[0] == "True"
    assert _container(fleet.kubernetes.there(STATEFUL_SET, BROKER))["image"] == "ottla:1"


async def test_a_controller_that_changes_our_fields_back_is_reported_and_writing_stops() -> None:
    fleet = await _running()
    fleet.kubernetes.writes.clear()
    for _ in range(20):
        _change(fleet, DISRUPTION_BUDGET, "orders-brokers", lambda obj: obj["spec"].update(minAvailable=0))
        await fleet.step()
    assert len([write for write in fleet.kubernetes.writes if write[1] == "PodDisruptionBudget"]) <= 3
    status, reason, message = fleet.condition("Ready")
    assert (status, reason) == ("False", "ChangedByOthers")
    assert "PodDisruptionBudget orders-brokers: spec.minAvailable" in message
    fleet.time += 601
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True"


async def test_the_in_sync_label_of_each_new_pod_is_no_change_of_others() -> None:
    """A pod that was restarted is another object of the same name: nobody has taken the label away."""
    fleet = await _running()
    for restart in range(4):
        fleet.kubernetes.evict(f"{BROKER}-0")
        await fleet.converge()
        assert label(fleet.kubernetes.there(POD, f"{BROKER}-0"), names.IN_SYNC) == "true", restart
        assert fleet.condition("Ready")[0] == "True", restart


async def test_an_environment_variable_set_by_hand_reaches_the_pod_through_a_roll() -> None:
    """`kubectl set env` asks for a restart, as `kubectl rollout restart` does."""
    fleet = await _running()
    before = uid_of(fleet.kubernetes.there(POD, f"{BROKER}-0"))
    kind, name, change = ADDITIONS["an environment variable of a broker"]
    _change(fleet, kind, name, change)
    fleet.kubernetes.settle()
    await fleet.converge()
    pod = fleet.kubernetes.there(POD, f"{BROKER}-0")
    assert uid_of(pod) != before
    assert {"name": "TZ", "value": "UTC"} in dig(pod, "spec", "containers", 0, "env")
