"""What kubectl get shows first: counts of what there is, what a person has to mend, and annotations that are wrong."""

from __future__ import annotations

import pytest

from ottla_operator.api import names
from ottla_operator.api.objects import CLAIM, KAFKA_CLUSTER, POD
from tests.operator.fleet import Fleet


def _annotate(fleet: Fleet, name: str, value: str | None) -> None:
    there = fleet.kubernetes.there(KAFKA_CLUSTER, "orders")
    annotations = {**there["metadata"].get("annotations", {}), name: value}
    kept = {key: value for key, value in annotations.items() if value is not None}
    fleet.kubernetes.put({**there, "metadata": {**there["metadata"], "annotations": kept}})


async def test_the_column_of_brokers_counts_none_while_no_pod_exists_and_all_in_a_roll() -> None:
    fleet = Fleet()
    fleet.edit("spec.brokers.disks", [{"name": "d0"}])
    await fleet.converge()
    assert (fleet.status("replicas"), fleet.status("readyReplicas")) == (0, 0)
    fleet.edit("spec.brokers.disks", [{"name": "d0", "size": "1Gi"}])
    await fleet.converge()
    assert (fleet.status("replicas"), fleet.status("readyReplicas")) == (3, 3)
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    while not fleet.status("roll", "batch"):
        await fleet.step()
    while fleet.status("roll"):
        await fleet.step()
        assert fleet.status("replicas") == 3
    fleet.edit("spec.brokers.replicas", 2)
    await fleet.converge()
    assert fleet.status("replicas") == 2


async def test_ready_shows_what_a_person_has_to_mend_before_what_takes_its_time() -> None:
    """ZooKeeperReady comes before DisksReady in the order of the conditions, and its server is only being started."""
    fleet = Fleet()
    await fleet.converge()
    fleet.kubernetes.container_status = lambda pod: (
        {"ready": False, "restartCount": 0, "state": {"running": {}}}
        if pod["metadata"]["name"] == "orders-zookeeper-1-0"
        else None
    )
    fleet.kubernetes.settle()
    await fleet.converge()
    assert fleet.condition("Ready")[1] == "ZooKeeperWaitingForServers"
    fleet.kubernetes.remove(CLAIM, "orders-broker-1-d0-1")
    fleet.kubernetes.remove(POD, "orders-broker-1-0")
    await fleet.converge()
    assert fleet.condition("ZooKeeperReady")[1] == "WaitingForServers"
    assert fleet.condition("Ready")[1] == "DisksClaimLost"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (names.MAINTENANCE_UNTIL, "tonight", "is no time such as 2026-11-28T21:00:00Z: 'tonight'"),
        (names.MAINTENANCE_UNTIL, "2026-11-28T21:00:00", "has no time zone; write 2026-11-28T21:00:00Z for UTC"),
        (names.APPROVE_ROLL, "yes", "is 'yes', and no value of status.roll.awaitingApproval"),
        (names.ACCEPT_LOSS, "server-1", "has 'server-1', which is no token of a server such as 1-0a1b2c3d"),
    ],
)
async def test_a_wrong_value_of_an_annotation_is_named_in_ready(name: str, value: str, message: str) -> None:
    fleet = Fleet()
    await fleet.converge()
    _annotate(fleet, name, value)
    await fleet.converge()
    assert fleet.condition("Ready") == ("True", "AsDeclared", f"the annotation {name} {message}")
    _annotate(fleet, name, None)
    await fleet.converge()
    assert fleet.condition("Ready") == ("True", "AsDeclared", "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (names.MAINTENANCE_UNTIL, "2020-11-28T21:00:00Z"),
        (names.APPROVE_ROLL, "0a1b2c3d4e"),
        (names.ACCEPT_LOSS, "1-0a1b2c3d,2-0a1b2c3d"),
    ],
)
async def test_a_value_that_was_right_once_is_not_named(name: str, value: str) -> None:
    fleet = Fleet()
    await fleet.converge()
    _annotate(fleet, name, value)
    await fleet.converge()
    assert fleet.condition("Ready") == ("True", "AsDeclared", "")


async def test_an_approval_of_another_roll_is_named_where_the_command_for_the_right_one_stands() -> None:
    fleet = Fleet()
    fleet.edit("spec.rolling", {"approval": "Manual"})
    await fleet.converge()
    _annotate(fleet, names.APPROVE_ROLL, "0a1b2c3d4e")
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge()
    status, reason, message = fleet.condition("Rolled")
    assert (status, reason) == ("False", "AwaitingApproval")
    assert message.endswith(
        f"the annotation {names.APPROVE_ROLL} is '0a1b2c3d4e', which is not the approval of this roll"
    )
    _annotate(fleet, names.APPROVE_ROLL, fleet.status("roll", "awaitingApproval"))
    await fleet.converge()
    assert fleet.condition("Rolled")[0] == "True"
