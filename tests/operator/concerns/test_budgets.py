"""Nodes are drained: which broker pods the API server lets go, at every moment of a broker's return."""

from __future__ import annotations

import pytest

from ottla_operator.api import names
from ottla_operator.api.objects import DISRUPTION_BUDGET, POD, STATEFUL_SET, dig, label
from ottla_operator.ports import ApiError
from tests.operator.fleet import CLUSTER, Fleet

PODS = tuple(f"orders-broker-{number}-0" for number in range(3))


async def _running() -> Fleet:
    fleet = Fleet(CLUSTER)
    fleet.kafka.partitions = [("t", 0, (0, 1, 2)), ("t", 1, (1, 2, 0))]
    await fleet.converge()
    return fleet


def _evictable(fleet: Fleet) -> list[str]:
    """Which pods may be evicted now, each asked alone."""
    found = []
    for name in PODS:
        if ("Pod", "default", name) not in fleet.kubernetes.objects:
            continue
        before = dict(fleet.kubernetes.objects)
        try:
            fleet.kubernetes.evict(name)
        except ApiError as error:
            assert error.status == 429
            continue
        finally:
            fleet.kubernetes.objects = before
        found.append(name)
    return found


def _needed(fleet: Fleet) -> int:
    return int(fleet.kubernetes.there(DISRUPTION_BUDGET, "orders-brokers")["spec"]["minAvailable"])


async def test_one_broker_may_be_evicted_and_then_no_other_when_all_replicas_are_in_sync() -> None:
    fleet = await _running()
    assert _evictable(fleet) == list(PODS)
    fleet.kubernetes.evict(PODS[0])
    assert _evictable(fleet) == []


async def test_no_broker_is_evicted_while_a_restarted_broker_is_not_in_sync() -> None:
    fleet = await _running()
    fleet.kafka.behind = {0}
    fleet.kubernetes.evict(PODS[0])
    for _ in range(4):
        await fleet.step()
        assert _evictable(fleet) == []
    assert fleet.kafka.ready_brokers() == [0, 1, 2]
    fleet.kafka.behind = set()
    await fleet.converge()
    assert _evictable(fleet) == list(PODS)


async def test_no_second_broker_is_evicted_while_the_operator_is_down() -> None:
    """It may have run on the node that was drained first."""
    fleet = await _running()
    fleet.kubernetes.evict(PODS[0])
    for _ in range(4):
        fleet.kubernetes.settle()
    assert fleet.kafka.ready_brokers() == [0, 1, 2]
    assert _evictable(fleet) == []
    fleet.restart_operator()
    await fleet.converge()
    assert _evictable(fleet) == list(PODS)


@pytest.mark.parametrize("fault", ["behind", "unregistered", "silent"])
async def test_no_broker_is_evicted_while_a_replica_is_out_of_sync(fault: str) -> None:
    fleet = await _running()
    if fault == "behind":
        fleet.kafka.behind = {2}
    elif fault == "unregistered":
        fleet.kafka.unregistered = {2}
    else:
        fleet.kafka.answers = False
    await fleet.converge()
    assert _evictable(fleet) == [] and _needed(fleet) == 3
    fleet.kafka.behind, fleet.kafka.unregistered, fleet.kafka.answers = set(), set(), True
    await fleet.converge()
    assert _evictable(fleet) == list(PODS) and _needed(fleet) == 2


async def test_no_broker_is_evicted_during_a_roll() -> None:
    fleet = await _running()
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    while fleet.status("roll", "step") != "DeletePod":
        await fleet.step()
    while fleet.status("roll"):
        assert _needed(fleet) == 3 and _evictable(fleet) == []
        await fleet.step()
    await fleet.converge()
    assert _evictable(fleet) == list(PODS)


async def test_a_roll_deletes_no_pod_when_another_was_evicted_just_before() -> None:
    """The watch has not shown yet that another pod is terminating."""
    fleet = await _running()
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    while fleet.status("roll", "step") != "DeletePod":
        await fleet.step()
    see, fleet.kubernetes.on_change = fleet.kubernetes.on_change, None
    pod = fleet.kubernetes.there(POD, PODS[2])
    fleet.kubernetes.put({**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    fleet.kubernetes.on_change = see
    fleet.kubernetes.writes.clear()
    await fleet.task.reconcile_once()
    assert not [write for write in fleet.kubernetes.writes if write[0] == "delete"]
    fleet.kubernetes.settle()
    await fleet.converge()
    assert fleet.status("roll") is None


async def test_only_the_pod_that_was_seen_in_sync_has_the_label_and_no_template_has_it() -> None:
    fleet = await _running()
    assert [label(fleet.kubernetes.there(POD, name), names.IN_SYNC) for name in PODS] == ["true"] * 3
    fleet.kubernetes.evict(PODS[1])
    fleet.kubernetes.settle()
    assert label(fleet.kubernetes.there(POD, PODS[1]), names.IN_SYNC) is None
    template = dig(fleet.kubernetes.there(STATEFUL_SET, "orders-broker-1"), "spec", "template", "metadata", "labels")
    assert names.IN_SYNC not in template


_WAITING: dict[str, dict[str, object]] = {"waiting": {"reason": "CrashLoopBackOff"}}
_RUNNING: dict[str, dict[str, object]] = {"running": {}}


@pytest.mark.parametrize(
    ("state", "is_last_in_sync", "goes"),
    [(_WAITING, False, True), (_WAITING, True, True), (_RUNNING, False, True), (_RUNNING, True, False)],
)
async def test_a_broker_that_cannot_start_lets_its_node_be_drained_and_no_other(
    state: dict[str, dict[str, object]], is_last_in_sync: bool, goes: bool
) -> None:
    """Else somebody would have to delete its pod. The last in sync, when it runs, may recover now."""
    fleet = await _running()
    fleet.kubernetes.evict(PODS[0])
    fleet.kubernetes.settle()
    fleet.kafka.behind = {0}
    fleet.kubernetes.container_status = lambda pod: (
        {"ready": False, "restartCount": 4, "state": state} if pod["metadata"]["name"] == PODS[0] else None
    )
    if is_last_in_sync:
        fleet.kafka.behind = {1, 2}
    await fleet.converge()
    assert _evictable(fleet) == ([PODS[0]] if goes else [])
    fleet.kubernetes.container_status = None
    fleet.kafka.behind = set()
    await fleet.converge()
    assert _evictable(fleet) == list(PODS)


_CRASHED: dict[str, dict[str, object]] = {"terminated": {"exitCode": 1}}


def _container(fleet: Fleet, states: dict[str, dict[str, dict[str, object]]]) -> None:
    """The containers of these pods are in these states after a crash; those of all others run."""
    fleet.kubernetes.container_status = lambda pod: (
        {"ready": False, "restartCount": 1, "state": states[pod["metadata"]["name"]]}
        if pod["metadata"]["name"] in states
        else None
    )


@pytest.mark.parametrize("replicas", [1, 3])
async def test_a_broker_that_crashed_in_its_pod_may_be_evicted_until_its_container_runs_again(replicas: int) -> None:
    """Its pod keeps the label of the broker that was in sync. In a fleet of one nobody else is there to let it go."""
    fleet = Fleet(CLUSTER)
    fleet.edit("spec.brokers.replicas", replicas)
    await fleet.converge()
    fleet.kafka.partitions = [("t", 0, tuple(range(replicas)))]
    await fleet.converge()
    for state, expected in ((_WAITING, [PODS[0]]), (_RUNNING, []), (_CRASHED, [PODS[0]]), (_RUNNING, [])):
        _container(fleet, {PODS[0]: state})
        fleet.kubernetes.settle()
        await fleet.converge()
        assert _evictable(fleet) == expected, state
    fleet.kubernetes.container_status = None
    await fleet.converge()
    assert _evictable(fleet) == list(PODS[:replicas])


async def test_a_crashed_broker_is_not_evicted_while_another_one_recovers() -> None:
    """One budget has both, and what it lets go is every pod that is not ready."""
    fleet = await _running()
    _container(fleet, {PODS[0]: _WAITING, PODS[1]: _RUNNING})
    fleet.kubernetes.settle()
    await fleet.converge()
    assert _evictable(fleet) == []
    _container(fleet, {PODS[0]: _WAITING, PODS[1]: _WAITING})
    fleet.kubernetes.settle()
    await fleet.converge()
    assert _evictable(fleet) == [PODS[0], PODS[1]]


@pytest.mark.parametrize(
    ("crashed", "goes"), [(_WAITING, True), (_CRASHED, True), (_RUNNING, False)], ids=["waits", "ended", "runs"]
)
async def test_zookeeper_servers_without_a_quorum_may_be_evicted_when_their_containers_do_not_run(
    crashed: dict[str, dict[str, object]], goes: bool
) -> None:
    fleet = await _running()
    servers = [f"orders-zookeeper-{number}-0" for number in (1, 2)]
    _container(fleet, dict.fromkeys(servers, crashed))
    fleet.kubernetes.settle()
    await fleet.converge()
    for name in servers:
        before = dict(fleet.kubernetes.objects)
        if goes:
            fleet.kubernetes.evict(name)
        else:
            with pytest.raises(ApiError, match="does not allow it"):
                fleet.kubernetes.evict(name)
        fleet.kubernetes.objects = before


async def test_a_broker_that_recovers_its_logs_is_not_evicted() -> None:
    fleet = await _running()
    fleet.kubernetes.evict(PODS[0])
    fleet.kubernetes.settle()
    fleet.kafka.behind = {0}
    fleet.kubernetes.container_status = lambda pod: (
        {"ready": False, "restartCount": 0, "state": {"running": {}}} if pod["metadata"]["name"] == PODS[0] else None
    )
    await fleet.converge()
    assert _evictable(fleet) == []
