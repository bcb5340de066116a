"""A cluster from its document to running brokers, and back after everything that can be deleted or broken."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest

from ottla_operator.api import names
from ottla_operator.api.fleet import ClusterMetadata, RecreationReport
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    EVENT,
    KAFKA_CLUSTER,
    NODE,
    POD,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    STORAGE_CLASS,
    Obj,
    ResourceKind,
    annotation,
    dig,
    is_owned_by,
    new,
    uid_of,
)
from ottla_operator.concerns.disks.observer import DiskObserver
from ottla_operator.concerns.ensemble.observer import EnsembleObserver
from ottla_operator.concerns.rebalance.observer import RebalanceObserver
from ottla_operator.concerns.roll.leader_moves import MOVES_PER_BROKER
from ottla_operator.facts.progress import PATIENCE_S
from ottla_operator.ports import ApiError
from tests.operator.fleet import CLUSTER, Fleet
from tests.operator.killed_operator import every_third_or_every_write, is_killed_after
from tests.operator.kubernetes import Killed, node

OWN_IMAGE = {"pod": {"spec": {"containers": [{"name": "zookeeper", "image": "theirs:1"}]}}}
"""A template of servers that an API server takes, and the operator does not."""


async def _running(document: dict[str, Any] = CLUSTER, **options: Any) -> Fleet:
    fleet = Fleet(document, **options)
    await fleet.converge()
    return fleet


async def _with_a_configuration_that_does_not_start() -> Fleet:
    """A change of the configuration with which no broker becomes ready, before the first restart."""
    fleet = await _running()
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.step()
    fleet.kubernetes.not_starting = {
        name for name in fleet.kubernetes.names(CONFIG_MAP) if "log.retention.hours=7" in str(
            fleet.kubernetes.there(CONFIG_MAP, name)["data"])
    }  # fmt: skip
    return fleet


def _changed(path: str, value: Any) -> dict[str, Any]:
    document = copy.deepcopy(CLUSTER)
    *parents, last = path.split(".")
    place = document
    for name in parents:
        place = place.setdefault(name, {})
    place[last] = value
    return document


async def test_new_brokers_get_the_racks_of_the_nodes_from_an_uncached_read() -> None:
    """The watch of nodes is behind that of clusters."""
    fleet = Fleet()
    see = fleet.kubernetes.on_change
    assert see is not None
    fleet.kubernetes.on_change = lambda event, obj: None if obj["kind"] == NODE.kind else see(event, obj)
    for index, zone in enumerate(("room-a", "room-b", "room-b")):
        fleet.kubernetes.put(node(f"n{index + 1}", zone))
    await fleet.converge()
    assert sorted(fleet.racks().values()) == ["room-a", "room-a", "room-b"]


async def test_a_kafka_cluster_becomes_an_ensemble_and_brokers_in_three_racks() -> None:
    fleet = await _running()
    assert fleet.condition("Ready")[:2] == ("True", "AsDeclared")
    assert fleet.racks() == {
        "orders-broker-0": "zone-a",
        "orders-broker-1": "zone-b",
        "orders-broker-2": "zone-c",
    }
    kubernetes = fleet.kubernetes
    assert [name for name in kubernetes.names(STATEFUL_SET) if "zookeeper" in name] == [
        f"orders-zookeeper-{server}" for server in (1, 2, 3)
    ]
    assert [name for name in fleet.claims() if "broker-1" in name] == ["orders-broker-1-d0-1", "orders-broker-1-d1-1"]
    assert kubernetes.names(SERVICE) == [
        "orders-bootstrap",
        "orders-broker-0",
        "orders-broker-1",
        "orders-broker-2",
        "orders-brokers",
        "orders-zookeeper",
    ]
    assert kubernetes.there(DISRUPTION_BUDGET, "orders-brokers")["spec"]["minAvailable"] == 2
    assert kubernetes.names(SECRET) == ["orders-zookeeper-super"]
    assert fleet.status("bootstrap") == "orders-bootstrap.default.svc:9092"
    assert fleet.status("clusterId") == "cluster-1"
    assert (fleet.status("replicas"), fleet.status("readyReplicas"), fleet.status("roll")) == (3, 3, None)
    text = fleet.properties(1)
    assert "broker.rack=zone-b\n" in text and "min.insync.replicas=2\n" in text
    assert "CLIENT://orders-broker-1.default.svc:9092" in text


async def test_the_operator_writes_nothing_at_rest_after_a_restart_either() -> None:
    fleet = await _running()
    fleet.kubernetes.writes.clear()
    for _ in range(3):
        await fleet.step()
    fleet.restart_operator()
    for _ in range(3):
        await fleet.step()
    assert fleet.kubernetes.writes == []


async def test_the_permission_to_format_is_given_once_and_withdrawn_without_a_roll() -> None:
    fleet = Fleet()
    for _ in range(3):
        await fleet.step()
        if fleet.kubernetes.names(POD) and "orders-broker-0-format" in fleet.kubernetes.names(CONFIG_MAP):
            break
    leave = fleet.kubernetes.there(CONFIG_MAP, "orders-broker-0-format")["data"]["dirs"]
    assert leave == "/var/lib/ottla/d0/log,/var/lib/ottla/d1/log"
    await fleet.converge()
    assert fleet.kubernetes.there(CONFIG_MAP, "orders-broker-0-format")["data"]["dirs"] == ""
    claim = fleet.kubernetes.there(CLAIM, "orders-broker-0-d0-1")
    assert annotation(claim, names.DIRECTORY_ID) == "directory-of-orders-broker-0-d0-1"
    assert annotation(claim, names.CLUSTER_ID) == "cluster-1"
    assert not [write for write in fleet.kubernetes.writes if write[0] == "delete"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (SERVICE, "orders-broker-1"),
        (SERVICE, "orders-bootstrap"),
        (SERVICE, "orders-zookeeper"),
        (STATEFUL_SET, "orders-broker-1"),
        (STATEFUL_SET, "orders-zookeeper-2"),
        (POD, "orders-broker-2-0"),
        (CONFIG_MAP, "orders-broker-0-format"),
        (CONFIG_MAP, "orders-zookeeper"),
        (DISRUPTION_BUDGET, "orders-brokers"),
    ],
)
async def test_a_deleted_object_is_created_again(kind: ResourceKind, name: str) -> None:
    fleet = await _running()
    before = fleet.picture()
    fleet.kubernetes.remove(kind, name)
    await fleet.converge()
    assert fleet.picture() == before
    assert fleet.condition("Ready")[0] == "True"


async def test_a_deleted_secret_of_the_super_user_is_created_again_and_only_servers_load_it() -> None:
    fleet = await _running()
    before = fleet.picture()
    fleet.kubernetes.remove(SECRET, "orders-zookeeper-super")
    fleet.time += 601  # it is looked for at the resync
    await fleet.converge()
    after = fleet.picture()
    assert after.keys() == before.keys()
    changed = [name for name in after if after[name] != before[name]]
    assert all(name.startswith("StatefulSet/orders-zookeeper-") for name in changed), changed
    assert fleet.condition("Ready")[0] == "True"


@pytest.fixture
def killed() -> dict[str, Any]:
    """The cluster whose operator is killed after each write; a smaller one in tests/operator/real_api."""
    return CLUSTER


@pytest.mark.extended
@every_third_or_every_write
async def test_an_operator_killed_between_any_two_writes_ends_in_the_same_state(
    killed: dict[str, Any], every: int
) -> None:
    whole = await _running(killed)
    writes = len(whole.kubernetes.writes)
    expected = whole.picture()
    for survived in range(0, writes, every):
        fleet = Fleet(killed)
        await is_killed_after(survived, fleet)
        assert fleet.picture() == expected, f"killed after {survived} writes"


@pytest.mark.extended
@pytest.mark.long
async def test_a_roll_goes_on_and_restarts_each_broker_once_when_the_operator_is_killed_between_any_two_writes(
    killed: dict[str, Any],
) -> None:
    fleet = await _running(killed)
    brokers = [name for name in fleet.kubernetes.names(POD) if "-broker-" in name]
    servers = {name: uid_of(fleet.kubernetes.there(POD, name)) for name in fleet.kubernetes.names(POD)}
    for name in brokers:
        del servers[name]
    survived = 0
    while True:
        fleet.kubernetes.writes.clear()
        value = survived + 1
        fleet.edit("spec.brokers.config", {"log.retention.hours": value})
        was_killed = await is_killed_after(survived, fleet)
        deleted = [name for verb, kind, name in fleet.kubernetes.writes if (verb, kind) == ("delete", "Pod")]
        assert sorted(deleted) == brokers, f"killed after {survived} writes"
        assert deleted[-1] == "orders-broker-0-0"  # the controller
        assert all(f"log.retention.hours={value}\n" in fleet.properties(number) for number in range(len(brokers)))
        assert servers == {name: uid_of(fleet.kubernetes.there(POD, name)) for name in servers}
        assert fleet.condition("Rolled")[:2] == ("True", "AsDeclared") and fleet.status("roll") is None
        if not was_killed:
            break
        survived += 1
    assert survived > 5


async def test_a_batch_leads_nothing_before_its_pods_are_deleted_and_every_replica_order_is_as_before() -> None:
    fleet = await _running(_changed("spec.brokers.replicas", 6))
    orders = [("t", n, tuple((n + i) % 6 for i in range(3))) for n in range(1200)]
    fleet.kafka.partitions = list(orders)
    led: list[dict[int, int]] = []
    delete = fleet.kubernetes.delete

    async def note(kind: ResourceKind, namespace: str, name: str, uid: str) -> bool:
        if kind == POD:
            led.append(fleet.kafka.leads())
        return await delete(kind, namespace, name, uid)

    fleet.kubernetes.delete = note  # type: ignore[method-assign]
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge(300)
    assert len(led) == 6
    for batch, leads in zip([(1, 4), (1, 4), (2, 5), (2, 5), (0, 3), (0, 3)], led, strict=True):
        assert not set(batch) & set(leads), f"{batch} leads nothing"
    assert fleet.kafka.partitions == orders
    assert max(len(asked) for asked in fleet.kafka.reorders) == 2 * MOVES_PER_BROKER, "of both brokers at once"
    preferred = {(topic, index): replicas[0] for topic, index, replicas in orders}
    of_broker = [Counter(preferred[partition] for partition in asked) for asked in fleet.kafka.reorders]
    assert max(max(counts.values()) for counts in of_broker) == MOVES_PER_BROKER
    assert sum(fleet.kafka.leads().values()) == 1200 and len(fleet.kafka.leads()) == 6, "and lead again"


@pytest.mark.extended
@pytest.mark.long
async def test_replica_orders_are_put_back_when_the_operator_is_killed_while_leaderships_move() -> None:
    fleet = await _running()
    orders = [("t", n, ((n % 3), (n + 1) % 3, (n + 2) % 3)) for n in range(3)]
    fleet.kafka.partitions = list(orders)
    value = 0
    for survived in range(3, 12):  # the first batch
        value += 1
        fleet.edit("spec.brokers.config", {"log.retention.hours": value})
        assert await is_killed_after(survived, fleet)
        assert fleet.kafka.partitions == orders, f"killed after {survived} writes"
    for number in range(2):
        for name in ("reorder", "elect_leaders"):
            value += 1
            calls = 0
            original = getattr(fleet.kafka, name)

            async def killed_at(*arguments: Any, act: Any = original, at: int = number) -> Any:
                nonlocal calls
                calls += 1
                if calls == at + 1:
                    await act(*arguments)
                    raise Killed
                return await act(*arguments)

            setattr(fleet.kafka, name, killed_at)
            fleet.edit("spec.brokers.config", {"log.retention.hours": value})
            with pytest.raises(Killed):
                await fleet.converge()
            setattr(fleet.kafka, name, original)
            fleet.restart_operator()
            await fleet.converge()
            assert fleet.kafka.partitions == orders, f"killed at request {number} of {name}"


async def test_a_partition_that_is_being_reassigned_is_not_reordered_and_does_not_stop_the_roll() -> None:
    fleet = await _running(_changed("spec.rebalance", {"mode": "Off"}))
    fleet.kafka.partitions = [("t", 0, (1, 0, 2)), ("t", 1, (1, 2, 0))]
    fleet.kafka.not_reordered = {("t", 0)}
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge()
    assert fleet.condition("Rolled")[0] == "True"
    assert fleet.kafka.partitions == [("t", 0, (1, 0, 2)), ("t", 1, (1, 2, 0))]


async def test_a_pod_evicted_during_a_roll_comes_back_with_its_template_of_before() -> None:
    fleet = await _running()
    fleet.kafka.partitions = [("t", 0, (1, 2)), ("t", 1, (0, 2))]
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    while fleet.status("roll", "step") != "WaitReady":
        await fleet.step()
    fleet.kafka.behind = {1}
    for _ in range(4):
        await fleet.step()
    assert fleet.status("roll", "step") == "WaitInSync" and fleet.status("roll", "batch") == [1]
    fleet.kubernetes.remove(POD, "orders-broker-2-0")
    await fleet.step()
    assert "min.insync.replicas=2\n" in fleet.properties(2)
    fleet.kafka.behind = set()
    await fleet.converge()
    assert "log.retention.hours=7\n" in fleet.properties(2)


async def test_a_roll_waits_for_replicas_that_are_not_in_sync_and_names_them() -> None:
    fleet = await _running()
    fleet.kafka.partitions = [("t", 0, (0, 1)), ("t", 1, (1, 2))]
    fleet.kafka.behind = {2}
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    for _ in range(6):
        await fleet.step()
    assert fleet.condition("Rolled")[1] == "Rolling"
    fleet.environment.passed_s = int(PATIENCE_S)
    await fleet.step()
    assert fleet.condition("Rolled") == (
        "False",
        "Blocked",
        "PickNext; waits for: t-1: replica 2 is not in sync",
    )
    assert fleet.condition("Ready")[0] == "True"
    assert not [write for write in fleet.kubernetes.writes if write[0] == "delete"]


async def test_a_rack_is_restarted_in_one_batch_and_the_metadata_is_read_again_before_its_pods_are_deleted() -> None:
    fleet = await _running(_changed("spec.brokers.replicas", 6))
    fleet.kafka.partitions = [("t", 0, (0, 1, 2)), ("t", 1, (3, 4, 5)), ("t", 2, (1, 2, 3))]
    fleet.kubernetes.writes.clear()
    fleet.kafka.described.clear()
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    while fleet.status("roll", "step") != "DeletePod":
        await fleet.step()
    assert fleet.status("roll", "batch") == [1, 4]
    assert fleet.status("roll", "summary") == "broker 1,4: DeletePod, 0 of 6 done"
    assert [(item["id"], item["batch"]) for item in fleet.status("roll", "plan")] == [
        (1, 1), (4, 1), (2, 2), (5, 2), (0, 3), (3, 3),
    ]  # fmt: skip
    read = len(fleet.kafka.described)
    view = fleet.kafka.view
    answers = 0

    async def falls_behind() -> ClusterMetadata:
        nonlocal answers
        answers += 1
        fleet.kafka.behind = {2} if answers == 2 else set()  # between the decision and the deletion
        return await view()

    fleet.kafka.view = falls_behind  # type: ignore[method-assign]
    await fleet.step()
    assert answers == 2 and len(fleet.kafka.described) == read + 1
    assert not [write for write in fleet.kubernetes.writes if write[0] == "delete"]
    fleet.kafka.view = view  # type: ignore[method-assign]
    fleet.kafka.behind = set()
    await fleet.step()
    deleted = [name for verb, kind, name in fleet.kubernetes.writes if (verb, kind) == ("delete", "Pod")]
    assert deleted == ["orders-broker-1-0", "orders-broker-4-0"]
    await fleet.converge(200)
    deleted = [name for verb, kind, name in fleet.kubernetes.writes if (verb, kind) == ("delete", "Pod")]
    assert deleted == [f"orders-broker-{number}-0" for number in (1, 4, 2, 5, 0, 3)]
    assert fleet.condition("Rolled")[0] == "True"
    described = len(fleet.kafka.described)
    await fleet.step()
    assert len(fleet.kafka.described) == described, "nothing needs min.insync.replicas at rest"


async def test_a_change_that_is_undone_while_its_roll_is_blocked_restarts_no_broker() -> None:
    fleet = await _running()
    fleet.kafka.partitions = [("t", 0, (1, 2))]
    before = uid_of(fleet.kubernetes.there(POD, "orders-broker-1-0"))
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    while fleet.status("roll", "step") != "DeletePod":
        await fleet.step()
    fleet.kafka.behind = {2}
    fleet.environment.passed_s = int(PATIENCE_S)
    await fleet.step()
    assert fleet.condition("Rolled")[1] == "Blocked"
    fleet.edit("spec.brokers.config", {"min.insync.replicas": 2})
    await fleet.step()
    fleet.kafka.behind = set()
    await fleet.converge()
    assert fleet.condition("Rolled")[0] == "True"
    assert uid_of(fleet.kubernetes.there(POD, "orders-broker-1-0")) == before


async def test_a_held_broker_keeps_its_pod_and_its_template_until_it_is_active_again() -> None:
    fleet = await _running()
    before = uid_of(fleet.kubernetes.there(POD, "orders-broker-1-0"))
    fleet.edit("spec.brokers.overrides", [{"id": 1, "state": "Hold"}, {"id": 9, "state": "Hold"}])
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge()
    assert fleet.condition("Rolled") == ("False", "Held", "spec.brokers.overrides holds broker 1: ConfigChanged")
    assert fleet.condition("Ready")[0] == "True" and fleet.status("roll") is None
    assert uid_of(fleet.kubernetes.there(POD, "orders-broker-1-0")) == before
    assert "log.retention.hours=7\n" in fleet.properties(0) and "log.retention.hours=7\n" in fleet.properties(2)
    fleet.edit("spec.brokers.overrides", [{"id": 1, "state": "Active"}])
    await fleet.converge()
    assert "log.retention.hours=7\n" in fleet.properties(1) and fleet.condition("Rolled")[0] == "True"


async def test_a_manual_roll_writes_its_plan_and_waits_until_what_is_planned_is_approved() -> None:
    fleet = await _running(_changed("spec.rolling", {"approval": "Manual", "maxBatch": 1}))
    fleet.kubernetes.writes.clear()
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge()
    token = fleet.status("roll", "awaitingApproval")
    assert [(item["id"], item["reasons"]) for item in fleet.status("roll", "plan")] == [
        (1, ["ConfigChanged"]), (2, ["ConfigChanged"]), (0, ["ConfigChanged"]),
    ]  # fmt: skip
    assert fleet.condition("Rolled")[1] == "AwaitingApproval"
    assert f"kubectl annotate kafkacluster orders kafka.ottla.dev/approve-roll={token}" in fleet.condition("Rolled")[2]
    assert fleet.kubernetes.there(DISRUPTION_BUDGET, "orders-brokers")["spec"]["minAvailable"] == 2, "drains go on"
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7, "num.partitions": 4})
    fleet.edit("metadata.annotations", {names.APPROVE_ROLL: token})
    await fleet.converge()
    assert fleet.status("roll", "awaitingApproval") != token, "something else is planned now"
    assert not [write for write in fleet.kubernetes.writes if write[0] == "delete" and write[1] == "Pod"]
    fleet.edit("metadata.annotations", {names.APPROVE_ROLL: fleet.status("roll", "awaitingApproval")})
    await fleet.converge()
    assert fleet.condition("Rolled")[0] == "True" and "num.partitions=4\n" in fleet.properties(0)


async def test_a_pod_that_cannot_be_deleted_stops_the_roll_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = await _running()

    async def refuse(*_: object) -> bool:
        raise ApiError(403, "Forbidden", "admission webhook says no")

    with monkeypatch.context() as refusing:
        refusing.setattr(fleet.kubernetes, "delete", refuse)
        fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
        for _ in range(8):
            await fleet.step()
    assert fleet.status("roll", "step") == "DeletePod"
    status, reason, message = fleet.condition("Ready")
    assert (status, reason) == ("False", "WriteFailed")
    assert "Pod orders-broker-1-0" in message and "admission webhook says no" in message
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True" and fleet.status("roll") is None


async def test_a_secret_that_cannot_be_created_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    create = fleet.kubernetes.create

    async def refuse_secrets(obj: Obj) -> Obj:
        if obj["kind"] == SECRET.kind:
            raise ApiError(403, "Forbidden", "exceeded quota")
        return await create(obj)

    monkeypatch.setattr(fleet.kubernetes, "create", refuse_secrets)
    await fleet.step()
    assert fleet.condition("Ready")[1] == "WriteFailed" and "exceeded quota" in fleet.condition("Ready")[2]


async def test_a_configuration_with_which_a_broker_does_not_start_stops_the_roll_there_and_can_be_undone() -> None:
    fleet = await _with_a_configuration_that_does_not_start()
    assert len(fleet.kubernetes.not_starting) == 3
    for _ in range(15):
        await fleet.step()
    fleet.environment.passed_s = int(PATIENCE_S)
    await fleet.step()
    assert fleet.condition("Rolled")[1:] == (
        "Blocked",
        "broker 1: WaitReady; waits for: broker 1 waits (CrashLoopBackOff)",
    )
    assert [item["ready"] for item in fleet.status("brokers")].count(False) == 1
    fleet.environment.passed_s += 600
    await fleet.step()
    assert fleet.condition("Rolled")[1:] == (
        "ProgressDeadlineExceeded",
        "broker 1: WaitReady: no progress for 600 s; waits for: broker 1 waits (CrashLoopBackOff); nobody else is "
        "restarted until the change is corrected",
    )
    fleet.edit("spec.brokers.config", {"min.insync.replicas": 2})
    await fleet.converge()
    assert [item["ready"] for item in fleet.status("brokers")] == [True] * 3
    assert fleet.condition("Ready")[0] == "True"


async def test_a_cluster_of_one_broker_recovers_from_a_configuration_with_which_it_does_not_start() -> None:
    fleet = await _running(_changed("spec.brokers.replicas", 1))
    fleet.edit("spec.brokers.config", {"min.insync.replicas": 2, "num.partitions": 7})
    await fleet.step()
    fleet.kubernetes.not_starting = {
        name for name in fleet.kubernetes.names(CONFIG_MAP) if "num.partitions=7" in str(
            fleet.kubernetes.there(CONFIG_MAP, name)["data"])
    }  # fmt: skip
    for _ in range(15):
        await fleet.step()
    fleet.environment.passed_s = int(PATIENCE_S)
    await fleet.step()
    assert fleet.condition("Rolled")[1] == "Blocked"
    fleet.edit("spec.brokers.config", {"min.insync.replicas": 2})
    await fleet.converge()
    assert [item["ready"] for item in fleet.status("brokers")] == [True], fleet.condition("Rolled")
    assert fleet.condition("Ready")[0] == "True"


async def test_a_new_image_rolls_zookeeper_first_and_then_the_brokers() -> None:
    fleet = await _running(_changed("spec.imageUpdatePolicy", "FollowOperator"))
    fleet.kubernetes.writes.clear()
    fleet.images = type(fleet.images)("ottla:2", "zookeeper:3.9.4")
    fleet.restart_operator()
    await fleet.converge(200)
    deleted = [name for verb, kind, name in fleet.kubernetes.writes if (verb, kind) == ("delete", "Pod")]
    servers = [2, 3, 1]  # the leader of the ensemble is the last
    assert deleted == [f"orders-zookeeper-{n}-0" for n in servers] + [f"orders-broker-{n}-0" for n in (1, 2, 0)]


async def test_kubectl_rollout_restart_restarts_the_broker_through_a_roll() -> None:
    fleet = await _running()
    stateful_set = fleet.kubernetes.there(STATEFUL_SET, "orders-broker-1")
    template = stateful_set["spec"]["template"]
    template["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = "now"
    before = uid_of(fleet.kubernetes.there(POD, "orders-broker-1-0"))
    fleet.kubernetes.put(stateful_set)
    fleet.kubernetes.settle()
    await fleet.converge()
    assert uid_of(fleet.kubernetes.there(POD, "orders-broker-1-0")) != before
    assert len([write for write in fleet.kubernetes.writes if write[0] == "delete"]) == 1


async def test_only_unused_configmaps_are_deleted_after_a_roll() -> None:
    fleet = await _running()
    before = len(fleet.kubernetes.names(CONFIG_MAP))
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge()
    assert len(fleet.kubernetes.names(CONFIG_MAP)) == before


@pytest.mark.parametrize(
    ("path", "value", "condition", "reason", "field"),
    [
        ("spec.brokers.racks", ["zone-a", "zone-x"], "RacksReady", "NoNodeInRack", "spec.brokers.racks[1]"),
        ("spec.brokers.disks", None, "DisksReady", "NoDisk", "spec.brokers.disks"),
        ("spec.brokers.disks", [{"name": "d0"}], "DisksReady", "NoSize", "spec.brokers.disks[0].size"),
        ("spec.brokers.config", {"no.such": 1}, "ConfigValid", "InvalidSpec", "spec.brokers.config.no.such"),
        ("spec.brokers.config", {"a": {"b": 1}}, "ConfigValid", "InvalidSpec", "spec.brokers.config.a"),
        ("spec.brokers.config", {"log.segment.bytes": "x"}, "ConfigValid", "InvalidSpec", "log.segment.bytes"),
        (
            "spec.zookeeper",
            {"disk": {"size": "1Gi"}, "template": OWN_IMAGE},
            "ZooKeeperReady",
            "InvalidSpec",
            "spec.zookeeper.template.pod",
        ),
        ("spec.zookeeper", {}, "ZooKeeperReady", "NoSize", "spec.zookeeper.disk.size"),
    ],
)
async def test_an_invalid_field_is_reported_and_stops_only_its_own_concern(
    path: str, value: Any, condition: str, reason: str, field: str
) -> None:
    fleet = await _running(_changed(path, value))
    status, found, message = fleet.condition(condition)
    assert (status, found) == ("False", reason) and field in message
    assert fleet.condition("Ready")[0] == "False" and field in fleet.condition("Ready")[2]
    assert "orders-bootstrap" in fleet.kubernetes.names(SERVICE)
    assert (condition == "ZooKeeperReady") != ("orders-zookeeper-1" in fleet.kubernetes.names(STATEFUL_SET))


@pytest.mark.parametrize(
    ("path", "value", "condition", "reason"),
    [
        ("spec.brokers.replicas", 2, "BrokersReady", "HoldReplicas"),
        ("spec.brokers.disks", [{"name": n, "size": "1Gi"} for n in ("d0", "d1")], "DisksReady", "SizeDecreased"),
        (
            "spec.brokers.disks",
            [{"name": n, "size": "200Gi"} for n in ("d0", "d1")],
            "DisksReady",
            "ExpansionNotAllowed",
        ),
        ("spec.brokers.config", {"no.such": 1}, "ConfigValid", "InvalidSpec"),
        ("spec.zookeeper.template", OWN_IMAGE, "ZooKeeperReady", "InvalidSpec"),
        ("spec.zookeeper.logDisk", None, "ZooKeeperReady", "LogDiskChanged"),
        ("spec.zookeeper", None, "ZooKeeperReady", "LogDiskChanged"),
    ],
)
async def test_a_change_that_is_not_supported_is_reported_and_can_be_undone(
    path: str, value: Any, condition: str, reason: str
) -> None:
    fleet = await _running()
    fleet.kafka.partitions = [("t", 0, (0, 1, 2))]
    before = fleet.picture()
    pods = {name: uid_of(fleet.kubernetes.there(POD, name)) for name in fleet.kubernetes.names(POD)}
    original = dig(CLUSTER, *path.split("."))
    fleet.edit(path, value)
    await fleet.converge()
    assert fleet.condition(condition)[:2] == ("False", reason)
    assert pods == {name: uid_of(fleet.kubernetes.there(POD, name)) for name in fleet.kubernetes.names(POD)}
    fleet.edit(path, original)
    await fleet.converge()
    after = fleet.picture()
    assert after.keys() == before.keys()
    assert fleet.condition("Ready")[0] == "True"
    assert pods == {name: uid_of(fleet.kubernetes.there(POD, name)) for name in fleet.kubernetes.names(POD)}


async def test_a_log_disk_added_to_an_ensemble_is_reported_and_moves_no_transaction_log() -> None:
    document = _changed("spec.zookeeper", {"replicas": 3, "disk": {"size": "5Gi"}})
    fleet = await _running(document)
    pods = {name: uid_of(fleet.kubernetes.there(POD, name)) for name in fleet.kubernetes.names(POD)}
    fleet.edit("spec.zookeeper.logDisk", {"size": "5Gi"})
    await fleet.converge()
    assert fleet.condition("ZooKeeperReady")[1] == "LogDiskChanged"
    assert "dataLogDir=/data\n" in fleet.kubernetes.there(CONFIG_MAP, "orders-zookeeper")["data"]["zoo.cfg"]
    assert pods == {name: uid_of(fleet.kubernetes.there(POD, name)) for name in fleet.kubernetes.names(POD)}


async def test_new_brokers_get_the_lowest_free_ids_and_the_racks_with_the_fewest_brokers() -> None:
    fleet = await _running()
    fleet.edit("spec.brokers.replicas", 5)
    await fleet.converge()
    assert fleet.racks()["orders-broker-3"] == "zone-a" and fleet.racks()["orders-broker-4"] == "zone-b"
    assert fleet.kubernetes.there(DISRUPTION_BUDGET, "orders-brokers")["spec"]["minAvailable"] == 4
    assert not [write for write in fleet.kubernetes.writes if write[0] == "delete"]


async def test_a_new_disk_gets_its_claims_before_the_brokers_are_rolled() -> None:
    fleet = await _running()
    disks = [*CLUSTER["spec"]["brokers"]["disks"], {"name": "d2", "size": "1Gi"}]
    fleet.edit("spec.brokers.disks", disks)
    await fleet.converge()
    assert "orders-broker-0-d2-1" in fleet.claims()
    assert "/var/lib/ottla/d2/log" in fleet.properties(0)
    assert fleet.condition("Ready")[0] == "True"


async def test_volumes_grow_where_the_class_allows_it_without_a_roll() -> None:
    fleet = Fleet()
    local = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"}}
    fleet.kubernetes.put({**local, "allowVolumeExpansion": True, "provisioner": "csi.example"})
    await fleet.converge()
    fleet.edit("spec.brokers.disks", [{"name": n, "size": "200Gi", "storageClassName": "local"} for n in ("d0", "d1")])
    await fleet.converge()
    assert dig(fleet.kubernetes.there(CLAIM, "orders-broker-0-d1-1"), "spec", "resources", "requests") == {
        "storage": "200Gi"
    }
    assert not [write for write in fleet.kubernetes.writes if write[0] == "delete"]


@pytest.mark.parametrize(
    ("told", "reason", "named"),
    [
        ({}, "Resizing", "no resizing has begun"),
        ({"conditions": [("Resizing", "")]}, "Resizing", "Resizing"),
        (
            {"conditions": [("FileSystemResizePending", "Waiting for user to (re-)start a pod")]},
            "Resizing",
            "FileSystemResizePending: Waiting for user to (re-)start a pod",
        ),
        ({"allocatedResourceStatuses": {"storage": "NodeResizePending"}}, "Resizing", "NodeResizePending"),
        ({"conditions": [("ControllerResizeError", "no room")]}, "ResizeFailed", "ControllerResizeError: no room"),
        (
            {"allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"}},
            "ResizeFailed",
            "NodeResizeInfeasible",
        ),
    ],
)
async def test_disks_are_ready_once_the_volumes_are_as_large_as_declared(
    told: dict[str, Any], reason: str, named: str
) -> None:
    fleet = Fleet()
    local = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"}}
    fleet.kubernetes.put({**local, "allowVolumeExpansion": True, "provisioner": "csi.example"})
    await fleet.converge()
    fleet.kubernetes.resizes = False
    fleet.edit("spec.brokers.disks", [{"name": n, "size": "200Gi", "storageClassName": "local"} for n in ("d0", "d1")])
    await fleet.converge()
    name = "orders-broker-1-d1-1"
    claim = fleet.kubernetes.there(CLAIM, name)
    conditions = [
        {"type": kind, "status": "True", "message": message, "lastTransitionTime": None, "lastProbeTime": None}
        for kind, message in told.get("conditions", [])
    ]
    fleet.kubernetes.put({**claim, "status": {**claim["status"], **told, "conditions": conditions}})
    await fleet.converge()
    status, found, message = fleet.condition("DisksReady")
    assert (status, found) == ("False", reason)
    assert reason == "Resizing" or f"claim {name} of broker 1 has 100Gi of 200Gi: {named}" in message
    assert f": {named}" in message
    fleet.kubernetes.resizes = True
    await fleet.converge()
    assert fleet.condition("DisksReady")[:2] == ("True", "AsDeclared")


async def test_a_storage_class_without_expansion_is_reported_with_the_claim() -> None:
    fleet = Fleet()
    local = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"}}
    fleet.kubernetes.put({**local, "provisioner": "csi.example"})
    await fleet.converge()
    fleet.edit("spec.brokers.disks", [{"name": n, "size": "200Gi", "storageClassName": "local"} for n in ("d0", "d1")])
    await fleet.converge()
    status, reason, message = fleet.condition("DisksReady")
    assert (status, reason) == ("False", "ExpansionNotAllowed")
    assert (
        "claim orders-broker-0-d0-1 cannot grow to 200Gi: the storage class local does not let volumes grow" in message
    )


@pytest.mark.parametrize("size", ["200e9", "2E11", "200G", "200000000k", "0.2T"])
async def test_a_claim_grown_by_hand_stops_no_configuration_in_any_form_of_a_quantity(size: str) -> None:
    fleet = Fleet()
    local = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"}}
    fleet.kubernetes.put({**local, "allowVolumeExpansion": True, "provisioner": "csi.example"})
    await fleet.converge()
    claim = fleet.kubernetes.there(CLAIM, "orders-broker-1-d0-1")
    claim["spec"]["resources"]["requests"]["storage"] = size
    fleet.kubernetes.put(claim)
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge()
    assert fleet.condition("DisksReady")[1] == "SizeDecreased" and "broker 1" in fleet.condition("DisksReady")[2]
    assert all("log.retention.hours=7\n" in fleet.properties(number) for number in range(3))
    assert fleet.condition("Rolled")[0] == "True"


async def test_brokers_on_local_volumes_stay_bound_to_an_unreachable_node() -> None:
    fleet = Fleet()
    local = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"}}
    fleet.kubernetes.put({**local, "provisioner": "kubernetes.io/no-provisioner"})
    await fleet.converge()
    tolerations = dig(fleet.kubernetes.there(POD, "orders-broker-0-0"), "spec", "tolerations")
    assert [item["key"] for item in tolerations] == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    assert STORAGE_CLASS.kind == "StorageClass"


async def test_brokers_keep_ids_and_racks_when_status_is_erased() -> None:
    fleet = await _running()
    before = fleet.picture()
    document = fleet.kubernetes.there(KAFKA_CLUSTER, "orders")
    del document["status"]
    fleet.kubernetes.put(document)
    await fleet.converge()
    assert fleet.picture() == before


async def test_a_cluster_that_is_deleted_and_applied_again_has_its_data() -> None:
    fleet = await _running()
    racks, directories = fleet.racks(), dict(fleet.environment.directories)
    fleet.kubernetes.remove(KAFKA_CLUSTER, "orders")
    assert await fleet.task.reconcile_once() is None
    for _ in range(3):
        fleet.kubernetes.settle()
    assert fleet.kubernetes.names(STATEFUL_SET) == [] and fleet.kubernetes.names(POD) == []
    assert len(fleet.claims()) == 6 + 6
    fleet.kubernetes.put(CLUSTER)
    fleet.restart_operator()
    await fleet.step()
    assert fleet.kubernetes.there(CONFIG_MAP, "orders-broker-0-format")["data"]["dirs"] == ""
    await fleet.converge()
    assert fleet.racks() == racks and fleet.environment.directories == directories
    assert fleet.condition("Ready")[0] == "True"


async def test_a_cluster_that_is_created_again_under_the_same_operator_gets_its_secret() -> None:
    """The Secret went with the document; the pods of the ensemble do not start without it."""
    fleet = await _running()
    fleet.kubernetes.remove(KAFKA_CLUSTER, "orders")
    assert await fleet.task.reconcile_once() is None
    fleet.kubernetes.settle()
    assert fleet.kubernetes.names(SECRET) == []
    fleet.kubernetes.put(CLUSTER)
    await fleet.converge()
    assert fleet.kubernetes.names(SECRET) == ["orders-zookeeper-super"]


async def test_a_new_cluster_waits_until_the_secret_of_the_terminating_one_is_gone() -> None:
    fleet = Fleet()
    owner = {"apiVersion": "kafka.ottla.dev/v1alpha1", "kind": "KafkaCluster", "name": "orders", "uid": "another"}
    metadata = {"name": "orders-zookeeper-super", "namespace": "default", "ownerReferences": [owner]}
    fleet.kubernetes.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    await fleet.converge()
    fleet.kubernetes.remove(SECRET, "orders-zookeeper-super")  # by the garbage collector
    fleet.time += 601
    await fleet.converge()
    assert is_owned_by(
        fleet.kubernetes.there(SECRET, "orders-zookeeper-super"), fleet.kubernetes.there(KAFKA_CLUSTER, "orders")
    )


async def test_a_claim_deleted_under_a_running_broker_is_reported_and_not_created_again() -> None:
    fleet = await _running()
    fleet.kubernetes.remove(CLAIM, "orders-broker-1-d0-1")
    await fleet.step()
    assert fleet.condition("DisksReady")[1] == "ClaimTerminating"
    fleet.kubernetes.remove(POD, "orders-broker-1-0")
    await fleet.converge()
    assert fleet.condition("DisksReady")[1] == "ClaimLost"
    assert "orders-broker-1-d0-1" in fleet.condition("DisksReady")[2]
    assert "orders-broker-1-d0-1" not in fleet.claims()
    fleet.kubernetes.remove(STATEFUL_SET, "orders-broker-1")
    await fleet.converge()
    assert "orders-broker-1-d0-1" not in fleet.claims(), "the other claim remembers it"


async def test_a_claim_that_a_person_creates_for_a_lost_one_is_used_and_may_be_formatted() -> None:
    fleet = await _running()
    name = "orders-broker-1-d0-1"
    labels = fleet.kubernetes.there(CLAIM, name)["metadata"]["labels"]
    spec = fleet.kubernetes.there(CLAIM, name)["spec"]
    fleet.kubernetes.remove(CLAIM, name)
    fleet.kubernetes.remove(POD, "orders-broker-1-0")
    await fleet.converge()
    assert fleet.condition("DisksReady")[1] == "ClaimLost"
    spec = {key: spec[key] for key in ("accessModes", "resources", "storageClassName")}
    fleet.kubernetes.put(new(CLAIM, "default", name, labels, spec=spec))
    await fleet.step()
    leave = fleet.kubernetes.there(CONFIG_MAP, names.format_permission("orders", 1))
    assert leave["data"]["dirs"] == "/var/lib/ottla/d0/log"
    await fleet.converge()
    assert fleet.condition("DisksReady")[0] == "True"


async def test_an_offline_log_directory_is_reported() -> None:
    fleet = await _running()
    fleet.environment.offline = {"orders-broker-2-d1-1"}
    await fleet.converge()
    status, reason, message = fleet.condition("DisksReady")
    assert (status, reason) == ("False", "LogDirNotOnline") and "d1 of broker 2" in message


async def test_a_relabelled_node_is_reported_and_moves_no_broker() -> None:
    fleet = await _running()
    fleet.kubernetes.put(node("n2", "zone-z"))
    await fleet.converge()
    assert fleet.condition("RacksReady")[:2] == ("False", "RackMismatch")
    assert fleet.racks()["orders-broker-1"] == "zone-b"


async def test_brokers_that_share_a_node_are_reported() -> None:
    fleet = Fleet(_changed("spec.brokers.replicas", 4))
    await fleet.converge()
    assert fleet.condition("SpreadOverNodes") == ("False", "SharedNode", "brokers 0, 3 share node n1")
    assert fleet.condition("RacksReady")[0] == "True" and fleet.condition("Ready")[0] == "True"


async def test_racks_are_required_when_the_operator_may_not_read_nodes() -> None:
    fleet = await _running(reads_nodes=False)
    assert fleet.condition("RacksReady")[1] == "NodesNotReadable"
    assert fleet.racks() == {}
    fleet.edit("spec.brokers.racks", ["zone-c", "zone-a"])
    await fleet.converge()
    assert list(fleet.racks().values()) == ["zone-c", "zone-a", "zone-c"]


async def test_an_object_that_belongs_to_others_is_not_written_and_reported() -> None:
    fleet = Fleet()
    metadata = {"name": "orders-bootstrap", "namespace": "default"}
    ports = [{"name": "theirs", "port": 1, "protocol": "TCP", "targetPort": 1}]
    fleet.kubernetes.put({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}})
    await fleet.converge()
    assert fleet.condition("Ready")[1] == "NotOwned" and "orders-bootstrap" in fleet.condition("Ready")[2]
    assert fleet.kubernetes.there(SERVICE, "orders-bootstrap")["spec"]["ports"] == ports
    assert [item["ready"] for item in fleet.status("brokers")] == [True] * 3


async def test_the_operator_writes_only_status_of_a_paused_cluster() -> None:
    fleet = await _running()
    fleet.edit("spec.paused", True)
    fleet.edit("spec.brokers.replicas", 4)
    await fleet.converge()
    assert fleet.condition("Ready")[:2] == ("False", "Paused")
    fleet.kubernetes.remove(SERVICE, "orders-broker-0")
    fleet.kubernetes.writes.clear()
    await fleet.converge()
    assert [kind for kind, *_ in fleet.kubernetes.writes if kind != "status"] == []
    assert fleet.condition("ServicesReady")[:2] == ("False", "Paused")
    assert "orders-broker-0" in fleet.condition("ServicesReady")[2]
    fleet.edit("spec.paused", False)
    await fleet.converge()
    assert len(fleet.racks()) == 4 and "orders-broker-0" in fleet.kubernetes.names(SERVICE)


async def test_no_ensemble_is_created_when_the_spec_names_an_existing_one() -> None:
    fleet = await _running(_changed("spec.zookeeper", {"connect": "zk:2181/orders"}))
    assert fleet.kubernetes.names(SECRET) == []
    assert not [name for name in fleet.kubernetes.names(STATEFUL_SET) if "zookeeper" in name]
    assert "zookeeper.connect=zk:2181/orders\n" in fleet.properties(0)
    assert fleet.condition("Ready")[0] == "True"


async def test_changes_of_conditions_become_events() -> None:
    fleet = await _running()
    told = [fleet.kubernetes.there(EVENT, name) for name in fleet.kubernetes.names(EVENT)]
    assert {"WaitingForServers", "Ready"} <= {event["reason"] for event in told}
    assert {event["involvedObject"]["name"] for event in told} == {"orders"}


async def test_no_broker_is_created_when_no_node_has_the_rack_label() -> None:
    fleet = Fleet()
    for name in ("n1", "n2", "n3"):
        fleet.kubernetes.remove(NODE, name)
    await fleet.converge()
    assert fleet.condition("RacksReady")[1] == "NoRack"
    assert "orders-zookeeper-1" in fleet.kubernetes.names(STATEFUL_SET)
    assert fleet.racks() == {}


async def test_a_claim_that_lost_its_volume_is_reported_and_its_broker_not_restarted() -> None:
    fleet = await _running()
    fleet.kubernetes.edit(CLAIM, "orders-broker-1-d0-1", status={"phase": "Lost"})
    await fleet.task.reconcile_once()
    status, reason, message = fleet.condition("DisksReady")
    assert (status, reason) == ("False", "ClaimLost")
    assert "orders-broker-1-d0-1 of broker 1 has lost its volume" in message


async def test_a_roll_does_not_restart_a_broker_whose_claim_is_terminating() -> None:
    fleet = await _running()
    pods = {name: uid_of(fleet.kubernetes.there(POD, name)) for name in fleet.kubernetes.names(POD)}
    fleet.kubernetes.remove(CLAIM, "orders-broker-1-d0-1")
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge()
    changed = {name for name, uid in pods.items() if uid_of(fleet.kubernetes.there(POD, name)) != uid}
    assert changed == {"orders-broker-0-0", "orders-broker-2-0"}
    assert fleet.condition("DisksReady")[1] == "ClaimTerminating"
    assert fleet.status("brokers", 1, "pending") == ["ConfigChanged"]


def _ended(message: str = "", reason: str = "Error", code: int = 1) -> Obj:
    terminated = {"exitCode": code, "reason": reason, "message": message}
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}
    return {"name": "broker", "ready": False, "state": {"waiting": waiting}, "lastState": {"terminated": terminated}}


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (
            _ended("the broker refuses to start: log directory /d0 belongs to cluster A, this broker is in cluster B"),
            "1 waits (CrashLoopBackOff); it ended with: the broker refuses to start: log directory /d0 belongs to "
            "cluster A, this broker is in cluster B",
        ),
        (_ended(reason="OOMKilled", code=137), "1 waits (CrashLoopBackOff); it ended with: OOMKilled, exit code 137"),
        (_ended("x" * 5000), f"1 waits (CrashLoopBackOff); it ended with: {'x' * 240}"),
        (
            {"name": "broker", "ready": False, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "long"}}},
            "1 waits (ImagePullBackOff: ottla:1)",
        ),
        (
            {
                "name": "broker",
                "ready": False,
                "state": {"waiting": {"reason": "CreateContainerConfigError", "message": 'configmap "x" not found'}},
            },
            '1 waits (CreateContainerConfigError: configmap "x" not found)',
        ),
        (
            {**_ended("halted: log directory /d0 failed"), "state": {"running": {}}},
            "1 is not ready; it ended with: halted: log directory /d0 failed",
        ),
    ],
)
async def test_a_broker_that_does_not_run_is_reported_with_the_reason_why_it_ended(status: Obj, text: str) -> None:
    fleet = await _running()
    fleet.kubernetes.container_status = lambda pod: status if pod["metadata"]["name"] == "orders-broker-1-0" else None
    await fleet.converge()
    assert fleet.condition("BrokersReady") == ("False", "WaitingForBrokers", f"not ready: {text}")


RUNS: Obj = {"name": "broker", "ready": False, "state": {"running": {}}}


async def test_a_broker_that_runs_and_does_not_become_ready_is_reported_with_what_it_says() -> None:
    """No container has ended, so Kubernetes has no termination message: the broker's status has its last problem."""
    fleet = await _running()
    fleet.kubernetes.container_status = lambda pod: RUNS if pod["metadata"]["name"] == "orders-broker-1-0" else None
    line = "2026-11-26T09:00:00.000Z WARNING [broker 1] ottla.zookeeper: Connection dropped: refused"
    fleet.environment.says = {"orders-broker-1-0": ("starting", (), "connecting", 0, 0, RecreationReport(), line)}
    await fleet.converge()
    assert fleet.condition("BrokersReady")[2] == (
        "not ready: 1 is not ready; it is starting, its session with ZooKeeper is connecting, "
        "it says: WARNING [broker 1] ottla.zookeeper: Connection dropped: refused"
    )
    fleet.environment.says = {}
    await fleet.converge()
    assert fleet.condition("BrokersReady")[2] == "not ready: 1 is not ready", "it does not answer"


async def test_a_batch_that_runs_and_does_not_become_ready_fails_the_roll_with_what_the_broker_says() -> None:
    fleet = await _with_a_configuration_that_does_not_start()
    fleet.kubernetes.container_state = {"running": {}}
    line = "2026-11-26T09:00:00.000Z ERROR [broker 1] ottla: no metadata from controller 7"
    for number in range(3):
        said = ("joining", (), "connected", 0, 0, RecreationReport(), line)
        fleet.environment.says[f"orders-broker-{number}-0"] = said
    for _ in range(15):
        await fleet.step()
    fleet.environment.passed_s += 601
    await fleet.step()
    status, reason, message = fleet.condition("Rolled")
    assert (status, reason) == ("False", "ProgressDeadlineExceeded")
    assert "is not ready; it is joining, it says: ERROR [broker 1] ottla: no metadata from controller 7" in message
    assert [item["ready"] for item in fleet.status("brokers")].count(False) == 1


async def test_every_container_writes_a_termination_message() -> None:
    fleet = await _running()
    for name in fleet.kubernetes.names(POD):
        for container in fleet.kubernetes.there(POD, name)["spec"]["containers"]:
            assert container["terminationMessagePolicy"] == "FallbackToLogsOnError", name


@pytest.mark.parametrize(
    ("observer", "condition", "others"),
    [
        (DiskObserver, "DisksReady", ("ZooKeeperReady", "ServicesReady", "ConfigValid")),
        (EnsembleObserver, "ZooKeeperReady", ("DisksReady", "ServicesReady", "ConfigValid")),
        (RebalanceObserver, "BrokersReady", ("ZooKeeperReady", "DisksReady", "ConfigValid")),
    ],
)
async def test_a_bug_in_what_one_concern_observes_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, observer: type[Any], condition: str, others: tuple[str, ...]
) -> None:
    fleet = await _running()

    async def fails(*_: Any) -> Any:
        raise ValueError("odd answer")

    with monkeypatch.context() as patched:
        patched.setattr(observer, "observe", fails)
        fleet.kubernetes.remove(SERVICE, "orders-bootstrap")
        await fleet.step()
    status, reason, message = fleet.condition(condition)
    assert (status, reason) == ("Unknown", "InternalError") and "odd answer" in message
    assert {fleet.condition(kind)[1] for kind in others}.isdisjoint({"InternalError"})
    assert "orders-bootstrap" in fleet.kubernetes.names(SERVICE)
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True"
