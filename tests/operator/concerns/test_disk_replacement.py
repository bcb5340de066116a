"""A failed disk, or a node that is gone with its disks: replaced once nothing on it is a last copy, and not before."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from ottla_operator.api import names
from ottla_operator.api.fleet import RecreationReport
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    KAFKA_CLUSTER,
    NODE,
    POD,
    STORAGE_CLASS,
    VOLUME,
    annotation,
    dig,
    label,
    new,
)
from tests.operator.fleet import CLUSTER, Fleet
from tests.operator.killed_operator import killed_after_every_write
from tests.operator.kubernetes import node

FAILED, SUCCESSOR = "orders-broker-1-d1-1", "orders-broker-1-d1-2"
PARTITIONS: list[tuple[str, int, tuple[int, ...]]] = [("t", 0, (0, 1, 2)), ("t", 1, (1, 2, 0)), ("t", 2, (2, 0, 1))]


async def _running(policy: str = "Replace", deletion: str | None = None, **options: Any) -> Fleet:
    document = copy.deepcopy(CLUSTER)
    for disk in document["spec"]["brokers"]["disks"]:
        disk["onFailure"] = policy
    if deletion is not None:
        document["spec"]["brokers"]["claimDeletionPolicy"] = deletion
    fleet = Fleet(document)
    fleet.kubernetes.local_volumes = bool(options.get("local_volumes"))
    fleet.kafka.partitions = list(PARTITIONS)
    await fleet.converge()
    fleet.kubernetes.writes.clear()
    return fleet


def _pod_claims(fleet: Fleet, broker_id: int) -> list[str]:
    pod = fleet.kubernetes.there(POD, f"orders-broker-{broker_id}-0")
    return [v["persistentVolumeClaim"]["claimName"] for v in pod["spec"]["volumes"] if "persistentVolumeClaim" in v]


def _deleted(fleet: Fleet) -> list[tuple[str, str]]:
    return [(kind, name) for verb, kind, name in fleet.kubernetes.writes if verb == "delete" and kind != "ConfigMap"]


async def _fail(fleet: Fleet, *claims: str, for_s: int = 301) -> None:
    fleet.environment.offline = set(claims or (FAILED,))
    fleet.environment.passed_s += for_s
    await fleet.converge()


async def test_a_failed_disk_is_replaced_and_the_broker_gets_the_permission_to_format_it() -> None:
    fleet = await _running()
    fleet.environment.offline = {FAILED}
    fleet.environment.passed_s = 301
    permission = []
    for _ in range(40):
        await fleet.step()
        permission.append(fleet.kubernetes.there(CONFIG_MAP, names.format_permission("orders", 1))["data"]["dirs"])
    await fleet.converge()
    assert _pod_claims(fleet, 1) == ["orders-broker-1-d0-1", SUCCESSOR]
    assert fleet.condition("DisksReady")[:2] == ("True", "AsDeclared")
    assert fleet.condition("Ready")[0] == "True" and fleet.condition("Rolled")[0] == "True"
    assert "/var/lib/ottla/d1/log" in permission and permission[-1] == ""
    assert _deleted(fleet) == [("Pod", "orders-broker-1-0")], "one restart, and the old claim stays"
    old = fleet.kubernetes.there(CLAIM, FAILED)
    assert annotation(old, names.REPLACED_BY) == SUCCESSOR and label(old, names.RETIRED) == "replaced"
    assert (annotation(old, names.REPLACED_BECAUSE) or "").startswith("LogDirOffline: ")
    assert annotation(fleet.kubernetes.there(CLAIM, SUCCESSOR), names.DIRECTORY_ID) == f"directory-of-{SUCCESSOR}"
    fleet.kubernetes.writes.clear()
    fleet.restart_operator()
    await fleet.converge()
    assert fleet.kubernetes.writes == []


async def test_the_claim_is_marked_before_its_successor_is_created() -> None:
    fleet = await _running()
    await _fail(fleet)
    claims = [name for _, kind, name in fleet.kubernetes.writes if kind == "PersistentVolumeClaim"]
    assert claims[:2] == [FAILED, SUCCESSOR]


async def test_the_replaced_claim_is_deleted_when_the_policy_says_so_after_the_broker_has_the_new_one() -> None:
    fleet = await _running(deletion="Delete")
    await _fail(fleet)
    assert _deleted(fleet) == [("Pod", "orders-broker-1-0"), ("PersistentVolumeClaim", FAILED)]
    assert FAILED not in fleet.claims() and fleet.condition("DisksReady")[0] == "True"


async def test_the_replaced_claim_stays_when_logs_on_it_are_assigned_to_nobody() -> None:
    fleet = await _running(deletion="Delete")
    fleet.environment.strays["orders-broker-1-d0-1"] = 1
    await fleet.converge()
    await _fail(fleet, "orders-broker-1-d0-1")
    assert "orders-broker-1-d0-1" in fleet.claims() and "orders-broker-1-d0-2" in fleet.claims()
    assert fleet.condition("DisksReady")[:2] == ("True", "StraysKept")


async def test_a_second_failure_of_the_same_disk_gets_the_next_generation() -> None:
    fleet = await _running()
    await _fail(fleet)
    await _fail(fleet, SUCCESSOR)
    assert _pod_claims(fleet, 1)[1] == "orders-broker-1-d1-3"
    assert fleet.condition("DisksReady")[0] == "True"


async def test_a_failed_disk_is_kept_without_the_policy() -> None:
    fleet = await _running("Keep")
    await _fail(fleet, for_s=10_000)
    assert SUCCESSOR not in fleet.claims() and _deleted(fleet) == []
    assert fleet.condition("DisksReady")[1] == "LogDirNotOnline"


async def test_a_directory_that_was_offline_for_a_short_time_is_not_replaced() -> None:
    fleet = await _running()
    await _fail(fleet, for_s=299)
    assert fleet.condition("DisksReady")[1] == "LogDirNotOnline" and SUCCESSOR not in fleet.claims()
    fleet.environment.offline = set()
    await fleet.converge()
    assert fleet.condition("DisksReady")[0] == "True"


def _another_is_behind(fleet: Fleet) -> None:
    fleet.kafka.behind = {2}


def _a_replica_is_lost(fleet: Fleet) -> None:
    fleet.environment.recreation = {1: RecreationReport(lost=1, lost_partitions=("only-here-0",))}


def _replicas_catch_up(fleet: Fleet) -> None:
    fleet.environment.recreation = {1: RecreationReport(catching_up=3)}


def _it_alone_is_in_sync(fleet: Fleet) -> None:
    fleet.kafka.partitions.append(("alone", 0, (1,)))
    fleet.kafka.leaderless = {("alone", 0)}


def _nobody_answers(fleet: Fleet) -> None:
    fleet.kafka.answers = False


def _another_broker_is_down(fleet: Fleet) -> None:
    def down(pod: dict[str, Any]) -> dict[str, Any] | None:
        is_it = pod["metadata"]["name"] == "orders-broker-2-0"
        return {"name": "broker", "ready": False, "state": {"running": {}}} if is_it else None

    fleet.kubernetes.container_status = down


@pytest.mark.parametrize(
    ("happens", "named"),
    [
        (_another_is_behind, "replica 2 is not in sync"),
        (_a_replica_is_lost, "it has the last copy of only-here-0"),
        (_replicas_catch_up, "3 replicas that broker 1 has recreated catch up"),
        (_it_alone_is_in_sync, "it has the last copy of alone-0"),
        (_nobody_answers, "no broker answers which replicas are in sync"),
        (_another_broker_is_down, "broker 2 is not ready"),
    ],
)
async def test_a_failed_disk_is_not_replaced_while_that_is_not_safe(
    happens: Callable[[Fleet], None], named: str
) -> None:
    fleet = await _running()
    happens(fleet)
    fleet.kubernetes.settle()
    await _fail(fleet)
    status, reason, message = fleet.condition("DisksReady")
    assert (status, reason) == ("False", "ReplacementBlocked")
    assert named in message and "log directory d1 of broker 1 (claim orders-broker-1-d1-1) is offline" in message
    assert SUCCESSOR not in fleet.claims() and _deleted(fleet) == []
    assert not annotation(fleet.kubernetes.there(CLAIM, FAILED), names.REPLACED_BY)


async def test_disks_of_two_brokers_are_replaced_one_after_the_other() -> None:
    fleet = await _running()
    fleet.environment.offline = {FAILED, "orders-broker-2-d0-1"}
    fleet.environment.passed_s = 301
    most = 0
    for _ in range(60):
        await fleet.step()
        claims = [fleet.kubernetes.there(CLAIM, name) for name in fleet.claims()]
        begun = [c for c in claims if annotation(c, names.REPLACED_BY) and label(c, names.RETIRED) is None]
        most = max(most, len(begun))
    assert most == 1
    assert _pod_claims(fleet, 1)[1] == SUCCESSOR and _pod_claims(fleet, 2)[0] == "orders-broker-2-d0-2"
    assert fleet.condition("DisksReady")[0] == "True"


async def test_both_failed_disks_of_a_broker_are_replaced_in_one_restart() -> None:
    """A pod does not start while one of its volumes cannot be mounted."""
    fleet = await _running()
    await _fail(fleet, FAILED, "orders-broker-1-d0-1")
    assert _pod_claims(fleet, 1) == ["orders-broker-1-d0-2", SUCCESSOR]
    assert _deleted(fleet) == [("Pod", "orders-broker-1-0")]


async def test_a_replacement_is_called_off_when_the_directory_serves_again_before_the_restart() -> None:
    """Records may be in it by then that are nowhere else."""
    fleet = await _running()
    fleet.kubernetes.put(
        {**new(STORAGE_CLASS, "", "local", {}), "provisioner": "csi.example", "volumeBindingMode": "Immediate"}
    )
    fleet.restart_operator()
    bound = fleet.kubernetes._bound
    fleet.kubernetes._bound = lambda claim: (  # type: ignore[method-assign]
        {"phase": "Pending"} if claim["metadata"]["name"] == SUCCESSOR else bound(claim)
    )
    await _fail(fleet)
    assert SUCCESSOR in fleet.claims() and "it waits for a volume" in fleet.condition("DisksReady")[2]
    assert _pod_claims(fleet, 1)[1] == FAILED, "the pod would not start with a claim that has no volume"
    fleet.environment.offline = set()
    await fleet.converge()
    assert _deleted(fleet) == [("PersistentVolumeClaim", SUCCESSOR)]
    assert not annotation(fleet.kubernetes.there(CLAIM, FAILED), names.REPLACED_BY)
    assert _pod_claims(fleet, 1)[1] == FAILED and fleet.condition("DisksReady")[0] == "True"


async def test_a_broker_on_volumes_that_nothing_provisions_is_not_restarted_before_there_is_one() -> None:
    """Its pod would not start, and its good disks would be missing too."""
    fleet = await _running()
    fleet.kubernetes.put({**new(STORAGE_CLASS, "", "local", {}), "provisioner": "kubernetes.io/no-provisioner"})
    fleet.restart_operator()
    await fleet.converge()
    fleet.kubernetes.writes.clear()
    await _fail(fleet)
    assert "no PersistentVolume of class local with 100Gi is available on node n2" in fleet.condition("DisksReady")[2]
    assert SUCCESSOR not in fleet.claims() and _deleted(fleet) == []
    spec = {"storageClassName": "local", "capacity": {"storage": "100Gi"}}
    fleet.kubernetes.put({**new(VOLUME, "", "spare", {}), "spec": spec, "status": {"phase": "Available"}})
    await fleet.converge()
    assert _pod_claims(fleet, 1)[1] == SUCCESSOR


async def test_a_successor_that_is_deleted_is_not_created_again() -> None:
    """It may have held data by then."""
    fleet = await _running()
    await _fail(fleet)
    fleet.kubernetes.remove(CLAIM, SUCCESSOR)
    fleet.kubernetes.remove(POD, "orders-broker-1-0")
    await fleet.converge()
    assert fleet.condition("DisksReady")[1] == "ClaimLost" and SUCCESSOR not in fleet.claims()


@pytest.mark.extended
@pytest.mark.long
async def test_a_replacement_ends_in_the_same_state_when_the_operator_is_killed_after_any_write() -> None:
    async def failed() -> Fleet:
        fleet = await _running(deletion="Delete")
        fleet.environment.offline = {FAILED}
        fleet.environment.passed_s = 301
        return fleet

    async for writes, fleet in killed_after_every_write(failed, at_least=14):
        assert _pod_claims(fleet, 1) == ["orders-broker-1-d0-1", SUCCESSOR] and FAILED not in fleet.claims(), writes
        assert [kind for kind, _ in _deleted(fleet)].count("Pod") == 1
        assert fleet.condition("Ready")[0] == "True"


async def test_a_retired_claim_does_not_keep_an_empty_broker_from_being_removed() -> None:
    document = copy.deepcopy(CLUSTER)
    document["spec"]["brokers"]["replicas"] = 4
    document["spec"]["brokers"]["disks"][1]["onFailure"] = "Replace"
    fleet = Fleet(document)
    fleet.kafka.partitions = list(PARTITIONS)
    await fleet.converge()
    await _fail(fleet, "orders-broker-3-d1-1")
    assert _pod_claims(fleet, 3)[1] == "orders-broker-3-d1-2"
    fleet.edit("spec.brokers.replicas", 3)
    await fleet.converge()
    assert list(fleet.racks()) == ["orders-broker-0", "orders-broker-1", "orders-broker-2"]
    assert fleet.condition("Ready")[0] == "True"


# A node that is gone


async def _with_spare_node(policy: str = "Replace") -> Fleet:
    fleet = await _running(policy, local_volumes=True)
    fleet.kubernetes.put(node("n4", "zone-b"))
    await fleet.converge()
    fleet.kubernetes.writes.clear()
    return fleet


def _lose_node(fleet: Fleet, name: str = "n2") -> None:
    """The node object is deleted, and the garbage collector of pods deletes the pods that were on it."""
    fleet.kubernetes.remove(NODE, name)
    for pod in fleet.kubernetes.names(POD):
        if dig(fleet.kubernetes.there(POD, pod), "spec", "nodeName") == name:
            fleet.kubernetes.remove(POD, pod)


async def _until_replaced(fleet: Fleet) -> None:
    await fleet.converge()
    fleet.environment.passed_s += 61
    await fleet.converge()


async def test_a_broker_whose_node_is_gone_gets_new_volumes_on_another_node_and_keeps_its_id() -> None:
    fleet = await _with_spare_node()
    _lose_node(fleet)
    await fleet.converge()
    status, reason, message = fleet.condition("DisksReady")
    assert (status, reason) == ("False", "NodeGone")
    assert "its volume is on node n2, which does not exist" in message and "orders-broker-1-d0-1" in message
    assert "orders-broker-1-d0-2" not in fleet.claims(), "a kubelet that registers again is back within a minute"
    await _until_replaced(fleet)
    assert _pod_claims(fleet, 1) == ["orders-broker-1-d0-2", SUCCESSOR]
    assert dig(fleet.kubernetes.there(POD, "orders-broker-1-0"), "spec", "nodeName") == "n4"
    assert _deleted(fleet) == [("Pod", "orders-broker-1-0")]
    assert fleet.condition("DisksReady")[0] == "True"
    assert FAILED in fleet.claims(), "the data of the node stays where it is"


async def test_a_node_declared_out_of_service_counts_as_gone() -> None:
    fleet = await _with_spare_node()
    taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    fleet.kubernetes.put({**node("n2", "zone-b"), "spec": {"taints": [taint]}})
    fleet.kubernetes.container_status = lambda pod: (
        {"name": "x", "ready": False, "state": {"running": {}}} if dig(pod, "spec", "nodeName") == "n2" else None
    )
    await fleet.converge()
    assert "which is out of service" in fleet.condition("DisksReady")[2]


async def test_a_node_that_is_back_within_a_minute_is_not_replaced() -> None:
    fleet = await _with_spare_node()
    _lose_node(fleet)
    await fleet.converge()
    fleet.environment.passed_s += 30
    fleet.kubernetes.put(node("n2", "zone-b"))
    await fleet.converge()
    fleet.environment.passed_s += 600
    await fleet.converge()
    assert _pod_claims(fleet, 1) == ["orders-broker-1-d0-1", FAILED] and fleet.condition("DisksReady")[0] == "True"


async def test_a_node_that_is_back_within_a_minute_is_not_replaced_while_another_one_is_gone_for_longer() -> None:
    fleet = await _with_spare_node()
    fleet.kafka.partitions.append(("alone", 0, (1,)))
    _lose_node(fleet)
    await fleet.converge()
    fleet.environment.passed_s += 600
    await fleet.converge()
    assert "it has the last copy of alone-0" in fleet.condition("DisksReady")[2]
    _lose_node(fleet, "n1")
    for _ in range(4):
        fleet.environment.passed_s += 10
        await fleet.step()
        assert "orders-broker-0-d0-2" not in fleet.claims()
    fleet.kubernetes.put(node("n1", "zone-a"))
    await fleet.converge()
    fleet.environment.passed_s += 600
    await fleet.converge()
    assert _pod_claims(fleet, 0) == ["orders-broker-0-d0-1", "orders-broker-0-d1-1"]
    assert "orders-broker-0-d0-2" not in fleet.claims()


async def test_a_new_process_of_the_operator_waits_a_minute_for_a_node() -> None:
    """It does not know whether the node was there meanwhile."""
    fleet = await _with_spare_node()
    _lose_node(fleet)
    await fleet.converge()
    fleet.environment.passed_s += 600
    fleet.restart_operator()
    await fleet.step()
    await fleet.step()
    assert "orders-broker-1-d0-2" not in fleet.claims()
    await _until_replaced(fleet)
    assert "orders-broker-1-d0-2" in fleet.claims()


@pytest.mark.parametrize("reason", ["kept", "last copy", "behind", "relabelled"])
async def test_a_broker_whose_node_is_gone_keeps_its_volumes_while_replacing_them_is_not_safe(reason: str) -> None:
    fleet = await _with_spare_node("Keep" if reason == "kept" else "Replace")
    if reason == "last copy":
        fleet.kafka.partitions.append(("alone", 0, (1,)))
    if reason == "behind":
        fleet.kafka.behind = {0}
    _lose_node(fleet)
    if reason == "relabelled":
        fleet.kubernetes.put({**node("n2", "zone-b"), "metadata": {"name": "n2", "labels": {}}})
        fleet.kubernetes.container_status = lambda pod: (
            {"name": "broker", "ready": False, "state": {"running": {}}}
            if pod["metadata"]["name"] == "orders-broker-1-0"
            else None
        )
    await _until_replaced(fleet)
    fleet.environment.passed_s += 600
    await fleet.converge()
    assert "orders-broker-1-d0-2" not in fleet.claims() and _deleted(fleet) == []
    said = {"kept": "is Keep", "last copy": "it has the last copy of alone-0", "behind": "replica 0 is not in sync"}
    if reason in said:
        assert fleet.condition("DisksReady")[1] == "NodeGone" and said[reason] in fleet.condition("DisksReady")[2]
    before = fleet.condition("DisksReady")
    fleet.kubernetes.writes.clear()
    fleet.restart_operator()
    await fleet.step()
    assert fleet.condition("DisksReady") == before and fleet.kubernetes.writes == []


async def test_brokers_of_two_lost_nodes_are_replaced_one_after_the_other() -> None:
    fleet = await _with_spare_node()
    fleet.kubernetes.put(node("n5", "zone-c"))
    _lose_node(fleet, "n2")
    _lose_node(fleet, "n3")
    for _ in range(4):
        await _until_replaced(fleet)
    nodes = [dig(fleet.kubernetes.there(POD, f"orders-broker-{n}-0"), "spec", "nodeName") for n in (1, 2)]
    assert nodes == ["n4", "n5"] and fleet.condition("DisksReady")[0] == "True"


async def test_two_brokers_of_one_lost_node_do_not_wait_for_each_other() -> None:
    fleet = await _with_two_brokers_on_a_node()
    _lose_node(fleet, "n1")
    for _ in range(4):
        await _until_replaced(fleet)
    nodes = [dig(fleet.kubernetes.there(POD, f"orders-broker-{n}-0"), "spec", "nodeName") for n in (0, 3)]
    assert nodes == ["n4", "n4"] and fleet.condition("DisksReady")[0] == "True"


async def test_a_broker_of_a_lost_node_is_not_replaced_when_only_brokers_of_lost_nodes_were_in_sync() -> None:
    fleet = await _with_two_brokers_on_a_node()
    fleet.kafka.partitions.append(("alone", 0, (0, 3)))
    _lose_node(fleet, "n1")
    for _ in range(2):
        await _until_replaced(fleet)
    assert "the last copy of alone-0" in fleet.condition("DisksReady")[2]
    assert not [name for name in fleet.claims() if name.startswith("orders-broker") and name.endswith("-2")]


async def _with_two_brokers_on_a_node() -> Fleet:
    """Brokers 0 and 3 in zone-a, on n1 alone until n4 is there."""
    document = copy.deepcopy(CLUSTER)
    document["spec"]["brokers"]["replicas"] = 4
    for disk in document["spec"]["brokers"]["disks"]:
        disk["onFailure"] = "Replace"
    fleet = Fleet(document)
    fleet.kubernetes.local_volumes = True
    fleet.kafka.partitions = [("t", index, (index % 2 * 3, 1, 2)) for index in range(4)]
    await fleet.converge()
    fleet.kubernetes.put(node("n4", "zone-a"))
    await fleet.converge()
    return fleet


def _accept(fleet: Fleet, *brokers: int, generation: int = 2, disks: tuple[str, ...] = ("d0", "d1")) -> None:
    entries = [{"name": disk, "generation": generation, "acceptDataLoss": True} for disk in disks]
    fleet.edit("spec.brokers.overrides", [{"id": number, "disks": entries} for number in brokers])


def _last_copies(fleet: Fleet) -> list[dict[str, Any]]:
    return dig(fleet.kubernetes.there(KAFKA_CLUSTER, "orders"), "status", "lastCopies") or []


@pytest.mark.parametrize("policy", ["Replace", "Keep"])
async def test_a_node_lost_with_an_only_replica_is_replaced_once_that_loss_is_accepted(policy: str) -> None:
    fleet = await _with_spare_node(policy)
    fleet.kafka.partitions.append(("alone", 0, (1,)))
    _lose_node(fleet)
    await _until_replaced(fleet)
    said = {"broker": 1, "count": 1, "partitions": ["alone-0"], "accepted": False}
    assert _last_copies(fleet) == [said] and "orders-broker-1-d0-2" not in fleet.claims()
    if policy == "Replace":
        assert "acceptDataLoss gives it up (broker 1)" in fleet.condition("DisksReady")[2]
    fleet.kubernetes.writes.clear()
    _accept(fleet, 1)
    await _until_replaced(fleet)
    assert _pod_claims(fleet, 1) == ["orders-broker-1-d0-2", SUCCESSOR]
    assert fleet.condition("DisksReady")[0] == "True" and _last_copies(fleet) == []
    old = fleet.kubernetes.there(CLAIM, FAILED)
    assert annotation(old, names.ACCEPTED_LOSS) == "alone-0" and label(old, names.RETIRED) == "replaced"
    claims = [name for _, kind, name in fleet.kubernetes.writes if kind == "PersistentVolumeClaim"]
    assert claims.index(FAILED) < claims.index(SUCCESSOR), "what is given up is recorded before anything is done"
    assert _deleted(fleet) == [("Pod", "orders-broker-1-0")]
    fleet.kubernetes.writes.clear()
    await fleet.converge()
    assert fleet.kubernetes.writes == []


async def test_an_accepted_loss_counts_for_no_later_one() -> None:
    fleet = await _with_spare_node()
    fleet.kafka.partitions.append(("alone", 0, (1,)))
    _lose_node(fleet)
    _accept(fleet, 1)
    await _until_replaced(fleet)
    assert SUCCESSOR in _pod_claims(fleet, 1)
    fleet.kubernetes.put(node("n5", "zone-b"))
    _lose_node(fleet, "n4")
    await _until_replaced(fleet)
    fleet.environment.passed_s += 600
    await fleet.converge()
    assert "orders-broker-1-d1-3" not in fleet.claims() and _last_copies(fleet)[0]["accepted"] is False


async def test_one_disk_whose_loss_is_not_accepted_keeps_the_broker() -> None:
    fleet = await _with_spare_node()
    fleet.kafka.partitions.append(("alone", 0, (1,)))
    _accept(fleet, 1, disks=("d0",))
    _lose_node(fleet)
    await _until_replaced(fleet)
    assert "it has the last copy of alone-0" in fleet.condition("DisksReady")[2]
    assert "orders-broker-1-d0-2" not in fleet.claims() and _deleted(fleet) == []


async def test_a_partition_with_a_copy_that_lags_is_not_given_up() -> None:
    fleet = await _with_spare_node()
    fleet.kafka.partitions.append(("t", 3, (1, 2)))
    fleet.kafka.behind = {2}
    _accept(fleet, 1)
    _lose_node(fleet)
    await _until_replaced(fleet)
    message = fleet.condition("DisksReady")[2]
    assert "broker 2 has a copy of t-3 that lags, and an unclean election saves that" in message
    assert "orders-broker-1-d0-2" not in fleet.claims()


async def test_what_two_lost_brokers_had_is_given_up_when_it_is_accepted_for_both() -> None:
    fleet = await _with_two_brokers_on_a_node()
    fleet.kafka.partitions.append(("alone", 0, (0, 3)))
    _lose_node(fleet, "n1")
    _accept(fleet, 0)
    await _until_replaced(fleet)
    assert "gives it up (broker 3)" in fleet.condition("DisksReady")[2]
    assert not [name for name in fleet.claims() if name.startswith("orders-broker") and name.endswith("-2")]
    _accept(fleet, 0, 3)
    for _ in range(4):
        await _until_replaced(fleet)
    assert fleet.condition("DisksReady")[0] == "True"
    assert _pod_claims(fleet, 0)[0] == "orders-broker-0-d0-2"


async def test_a_failed_disk_of_a_running_broker_is_replaced_once_its_loss_is_accepted() -> None:
    fleet = await _running("Keep")
    _a_replica_is_lost(fleet)
    _accept(fleet, 1, disks=("d1",))
    fleet.environment.offline = {FAILED}
    fleet.environment.passed_s += 301
    for _ in range(60):
        await fleet.step()
        if _pod_claims(fleet, 1)[1] == SUCCESSOR:
            fleet.environment.recreation = {}
    await fleet.converge()
    assert _pod_claims(fleet, 1) == ["orders-broker-1-d0-1", SUCCESSOR]
    assert annotation(fleet.kubernetes.there(CLAIM, FAILED), names.ACCEPTED_LOSS) == "only-here-0"
    assert fleet.condition("DisksReady")[0] == "True"


async def test_all_brokers_of_lost_nodes_come_back_on_others_once_every_loss_is_accepted() -> None:
    """No broker answers what is lost, and none ever will."""
    document = copy.deepcopy(CLUSTER)
    document["spec"]["zookeeper"] = {"connect": "zk:2181"}
    document["spec"]["brokers"] |= {"replicas": 2, "racks": ["zone-a", "zone-b"], "config": {"min.insync.replicas": 1}}
    fleet = Fleet(document)
    fleet.kubernetes.local_volumes = True
    fleet.kafka.partitions = [("t", index, (index, 1 - index)) for index in (0, 1)]
    await fleet.converge()
    for number, zone in ((4, "zone-a"), (5, "zone-b")):
        fleet.kubernetes.put(node(f"n{number}", zone))
    _lose_node(fleet, "n1")
    _lose_node(fleet, "n2")
    _accept(fleet, 0)
    await _until_replaced(fleet)
    assert fleet.condition("DisksReady")[1] == "NodeGone"
    assert not [name for name in fleet.claims() if name.endswith("-2")], "the node of broker 1 may come back"
    _accept(fleet, 0, 1)
    for _ in range(4):
        await _until_replaced(fleet)
    nodes = [dig(fleet.kubernetes.there(POD, f"orders-broker-{n}-0"), "spec", "nodeName") for n in (0, 1)]
    assert nodes == ["n4", "n5"] and fleet.condition("Ready")[0] == "True"
