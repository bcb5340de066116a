"""What others change of our objects is put back in the next reconciliation, whatever a roll waits for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from ottla_operator.api import names
from ottla_operator.api.objects import (
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    KAFKA_CLUSTER,
    POD,
    SERVICE,
    STATEFUL_SET,
    Obj,
    ResourceKind,
    dig,
    uid_of,
)
from ottla_operator.runtime.roll_turns import RollTurns
from tests.operator.fleet import KEY, Fleet

NEVER = [{"schedule": "0 0 30 2 *", "duration": "1h"}]
BROKER, SERVER = "orders-broker-1", "orders-zookeeper-1"


class _OthersFirst(RollTurns):
    def __init__(self) -> None:
        """It is always the turn of somebody else."""

    def ask(self, key: tuple[str, str], since: str) -> tuple[str, ...]:
        return ("team/other",)

    def reconciled(self, key: tuple[str, str]) -> None:
        """Nobody waits for it."""


def _approval(fleet: Fleet) -> None:
    fleet.edit("spec.rolling.approval", "Manual")


def _window(fleet: Fleet) -> None:
    fleet.edit("spec.maintenanceWindows", NEVER)


def _turn(fleet: Fleet) -> None:
    fleet.task._turns = _OthersFirst()


def _blocked(fleet: Fleet) -> None:
    fleet.kafka.partitions = [("data", 0, (0, 1, 2))]
    fleet.kafka.behind = {0, 1, 2}


WAITS: dict[str, Callable[[Fleet], None]] = {
    "AwaitingApproval": _approval,
    "AwaitingWindow": _window,
    "AwaitingTurn": _turn,
    "Rolling": _blocked,
}


async def _waiting(reason: str, role: str = names.ZOOKEEPER) -> Fleet:
    """A fleet with a roll that waits, and a template that no member runs yet."""
    fleet = Fleet()
    await fleet.converge()
    WAITS[reason](fleet)
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    if role == names.ZOOKEEPER:
        fleet.edit("spec.zookeeper.resources", {"requests": {"memory": "1Gi"}})
    for _ in range(4):
        await fleet.step()
    assert fleet.condition("Rolled")[:2] == ("False", reason)
    return fleet


def _scaled(obj: Obj, replicas: int) -> None:
    obj["spec"]["replicas"] = replicas


def _scaled_up(obj: Obj) -> None:
    _scaled(obj, 2)


def _scaled_down(obj: Obj) -> None:
    _scaled(obj, 0)


def _rolling_update(obj: Obj) -> None:
    obj["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}


def _other_labels(obj: Obj) -> None:
    labels = {names.RACK: "zone-x", names.POOL: "theirs", names.BROKER_ID: "9", names.SERVER_ID: "9"}
    obj["metadata"]["labels"] |= {key: value for key, value in labels.items() if key in obj["metadata"]["labels"]}


def _without_our_labels(obj: Obj) -> None:
    obj["metadata"]["labels"] = {"theirs": "1"}


def _another_first_ordinal(obj: Obj) -> None:
    obj["spec"]["ordinals"] = {"start": 5}


CHANGES = (_scaled_up, _scaled_down, _rolling_update, _other_labels, _without_our_labels, _another_first_ordinal)


@pytest.mark.parametrize("reason", WAITS)
@pytest.mark.parametrize("name", (BROKER, SERVER))
async def test_a_member_scaled_up_by_others_is_scaled_back_at_once_while_a_roll_waits(reason: str, name: str) -> None:
    role = names.BROKER if reason == "Rolling" else names.ZOOKEEPER
    fleet = await _waiting(reason, role)
    before = fleet.kubernetes.there(STATEFUL_SET, name)
    fleet.kubernetes.edit(STATEFUL_SET, name, spec={**before["spec"], "replicas": 2})
    await fleet.step()
    after = fleet.kubernetes.there(STATEFUL_SET, name)
    assert after["spec"]["replicas"] == 1
    assert after["spec"]["template"] == before["spec"]["template"], "the template has its turn in the roll"
    assert fleet.condition("Rolled")[:2] == ("False", reason)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", (BROKER, SERVER))
async def test_each_field_of_a_stateful_set_is_put_back_at_once_and_its_template_waits(
    change: Callable[[Obj], None], name: str
) -> None:
    fleet = await _waiting("AwaitingApproval")
    before = fleet.kubernetes.there(STATEFUL_SET, name)
    pod = uid_of(fleet.kubernetes.there(POD, f"{name}-0"))
    theirs = copy.deepcopy(before)
    change(theirs)
    if change is _without_our_labels:  # a watch by label shows that as a deletion
        fleet.cache.remove(before)
    fleet.kubernetes.put(theirs)
    if change is _without_our_labels:
        fleet.cache.remove(fleet.kubernetes.there(STATEFUL_SET, name))
    await fleet.step()
    after = fleet.kubernetes.there(STATEFUL_SET, name)
    spec = {key: value for key, value in after["spec"].items() if key != "ordinals"}
    assert spec == before["spec"]
    assert after["spec"].get("ordinals", {"start": 0}) == {"start": 0}
    assert before["metadata"]["labels"].items() <= after["metadata"]["labels"].items()
    if change is not _scaled_down:
        assert uid_of(fleet.kubernetes.there(POD, f"{name}-0")) == pod, "nobody is restarted"
    fleet.kubernetes.writes.clear()
    for _ in range(3):
        await fleet.step()
    assert [one for one in fleet.kubernetes.writes if one[1] == STATEFUL_SET.kind] == [], "once is enough"


async def test_a_template_that_others_change_waits_for_the_turn_of_the_roll() -> None:
    fleet = await _waiting("AwaitingApproval")
    theirs = fleet.kubernetes.there(STATEFUL_SET, SERVER)
    theirs["spec"]["replicas"] = 2
    theirs["spec"]["template"]["spec"]["containers"][0]["image"] = "theirs:1"
    fleet.kubernetes.put(theirs)
    await fleet.step()
    after = fleet.kubernetes.there(STATEFUL_SET, SERVER)
    assert after["spec"]["replicas"] == 1
    assert after["spec"]["template"] == theirs["spec"]["template"]


async def test_a_member_is_scaled_back_while_it_is_not_known_how_it_should_run() -> None:
    fleet = Fleet()
    await fleet.converge()
    fleet.edit("spec.brokers.resources", {"requests": {"memory": "much"}})
    fleet.edit("spec.zookeeper.resources", {"requests": {"memory": "much"}})
    await fleet.converge()
    for name in (BROKER, SERVER):
        spec = fleet.kubernetes.there(STATEFUL_SET, name)["spec"]
        fleet.kubernetes.edit(STATEFUL_SET, name, spec={**spec, "replicas": 2})
    await fleet.step()
    assert [fleet.kubernetes.there(STATEFUL_SET, name)["spec"]["replicas"] for name in (BROKER, SERVER)] == [1, 1]


async def test_a_repair_keeps_what_others_have_written_since_the_watch() -> None:
    """The watch is behind: the object is read before it is written."""
    fleet = await _waiting("AwaitingApproval")
    see, fleet.kubernetes.on_change = fleet.kubernetes.on_change, None
    theirs = fleet.kubernetes.there(STATEFUL_SET, SERVER)
    theirs["spec"]["replicas"] = 2
    seen = fleet.kubernetes.put(theirs)
    fleet.cache.put(seen)
    theirs["metadata"]["labels"]["theirs"] = "1"
    fleet.kubernetes.put(theirs)
    fleet.kubernetes.on_change = see
    await fleet.step()
    after = fleet.kubernetes.there(STATEFUL_SET, SERVER)
    assert (after["spec"]["replicas"], after["metadata"]["labels"]["theirs"]) == (1, "1")


async def test_nothing_is_put_back_while_the_cluster_is_paused() -> None:
    fleet = Fleet()
    await fleet.converge()
    fleet.edit("spec.paused", True)
    await fleet.converge()
    spec = fleet.kubernetes.there(STATEFUL_SET, SERVER)["spec"]
    fleet.kubernetes.edit(STATEFUL_SET, SERVER, spec={**spec, "replicas": 2})
    await fleet.step()
    assert fleet.kubernetes.there(STATEFUL_SET, SERVER)["spec"]["replicas"] == 2


OTHERS: tuple[tuple[ResourceKind, str, tuple[Any, ...], Any], ...] = (
    (SERVICE, "orders-bootstrap", ("spec", "selector", names.CLUSTER), "theirs"),
    (SERVICE, "orders-zookeeper", ("spec", "selector", "app.kubernetes.io/component"), "broker"),
    (SERVICE, "orders-broker-1", ("spec", "publishNotReadyAddresses"), True),
    (SERVICE, "orders-broker-1", ("metadata", "labels", names.BROKER_ID), "2"),
    (SERVICE, "orders-brokers", ("spec", "ports", 0, "port"), 1),
    (DISRUPTION_BUDGET, "orders-brokers", ("spec", "minAvailable"), 0),
    (DISRUPTION_BUDGET, "orders-zookeeper", ("spec", "selector", "matchLabels", names.CLUSTER), "theirs"),
    (CONFIG_MAP, "orders-zookeeper", ("data", "zoo.cfg"), "tickTime=1\n"),
    (CONFIG_MAP, "orders-broker-1-format", ("data", "dirs"), "/var/lib/ottla/d0/log"),
)


@pytest.mark.parametrize(("kind", "name", "path", "value"), OTHERS)
async def test_other_objects_are_put_back_at_once_while_a_roll_waits(
    kind: ResourceKind, name: str, path: tuple[Any, ...], value: Any
) -> None:
    fleet = await _waiting("AwaitingApproval")
    before = fleet.kubernetes.there(kind, name)
    theirs = copy.deepcopy(before)
    *parents, last = path
    place: Any = theirs
    for key in parents:
        place = place[key]
    place[last] = value
    fleet.kubernetes.put(theirs)
    await fleet.step()
    assert dig(fleet.kubernetes.there(kind, name), *path) == dig(before, *path)


async def test_the_roll_still_brings_the_template_once_it_is_approved() -> None:
    fleet = await _waiting("AwaitingApproval")
    spec = fleet.kubernetes.there(STATEFUL_SET, SERVER)["spec"]
    fleet.kubernetes.edit(STATEFUL_SET, SERVER, spec={**spec, "replicas": 0})
    await fleet.step()
    for _ in range(2):  # servers, then brokers
        document = fleet.kubernetes.there(KAFKA_CLUSTER, KEY[1])
        annotations = {names.APPROVE_ROLL: fleet.status("roll", "awaitingApproval")}
        fleet.kubernetes.put({**document, "metadata": {**document["metadata"], "annotations": annotations}})
        await fleet.converge()
    assert fleet.condition("Rolled")[:2] == ("True", "AsDeclared")
    container = fleet.kubernetes.there(POD, f"{SERVER}-0")["spec"]["containers"][0]
    assert container["resources"] == {"requests": {"memory": "1Gi"}}
