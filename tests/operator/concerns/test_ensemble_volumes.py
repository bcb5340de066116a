"""The data of the ZooKeeper ensemble: no server comes back empty while what it held is nowhere else."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

from ottla_operator.api import names
from ottla_operator.api.objects import CLAIM, CONFIG_MAP, KAFKA_CLUSTER, POD, STATEFUL_SET, annotation, name_of, uid_of
from ottla_operator.concerns.ensemble import zookeeper, zookeeper_objects
from ottla_operator.effects.environment import read_report
from tests.operator.ensemble import EnsembleFleet
from tests.operator.fleet import CLUSTER
from tests.operator.killed_operator import killed_after_every_write


def _document(servers: int = 3, *, log_disk: bool = True) -> dict[str, Any]:
    document = copy.deepcopy(CLUSTER)
    document["spec"]["zookeeper"]["replicas"] = servers
    if not log_disk:
        del document["spec"]["zookeeper"]["logDisk"]
    return document


async def _running(servers: int = 3, **options: Any) -> EnsembleFleet:
    fleet = EnsembleFleet(_document(servers, **options))
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True"
    for _ in range(3):
        fleet.ensemble.write()
    return fleet


def _claims_of(fleet: EnsembleFleet, *servers: int) -> list[str]:
    return [name for name in fleet.claims() for server in servers if name.startswith(f"orders-zookeeper-{server}-")]


def _declare(fleet: EnsembleFleet) -> str:
    """Does what the condition says."""
    command = fleet.condition("ZooKeeperReady")[2]
    found = re.search(
        rf"kubectl annotate -n default kafkacluster orders --overwrite {names.ACCEPT_LOSS}=(\S+)", command
    )
    assert found, command
    document = fleet.kubernetes.there(KAFKA_CLUSTER, "orders")
    document["metadata"].setdefault("annotations", {})[names.ACCEPT_LOSS] = found[1]
    fleet.kubernetes.put(document)
    return found[1]


def _permissions(fleet: EnsembleFleet) -> set[str]:
    data = fleet.kubernetes.there(CONFIG_MAP, "orders-zookeeper")["data"]
    return {value for key, value in data.items() if key.startswith("start-empty-")}


async def test_two_servers_without_volumes_never_overwrite_the_third() -> None:
    fleet = await _running()
    fleet.ensemble.down = {1}
    fleet.lose_claims(2, 3)
    await fleet.converge()
    status, reason, message = fleet.condition("ZooKeeperReady")
    assert (status, reason) == ("False", "ClaimLost")
    for name in ("orders-zookeeper-2-data-1", "orders-zookeeper-3-log-1", "Restore the claims"):
        assert name in message
    assert fleet.condition("Ready")[:2] == ("False", "ZooKeeperClaimLost")
    assert _claims_of(fleet, 2, 3) == []
    fleet.ensemble.down = set()
    await fleet.converge()
    assert fleet.condition("ZooKeeperReady")[1] == "ClaimLost"
    assert _claims_of(fleet, 2, 3) == [] and not fleet.is_serving(1)
    fleet.recreate_claims(2, with_data=True)
    await fleet.converge()
    assert [fleet.is_serving(server) for server in (1, 2, 3)] == [True] * 3, (
        "two have the data, and the third copies it"
    )
    assert fleet.condition("Ready")[0] == "True"
    assert not fleet.ensemble.overwritten


@pytest.mark.parametrize("roles", [("data", "log"), ("log",), ("data",)])
async def test_a_server_that_lost_a_volume_is_replaced_while_the_others_serve(roles: tuple[str, ...]) -> None:
    fleet = await _running()
    fleet.lose_claims(2, roles=roles)
    await fleet.step()
    assert fleet.condition("ZooKeeperReady")[1] == "ReplacingServer"
    assert _permissions(fleet) == {"no", "join"}
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True" and fleet.is_serving(2)
    assert _permissions(fleet) == {"no"}
    assert not fleet.ensemble.overwritten


async def test_servers_are_replaced_one_at_a_time() -> None:
    fleet = await _running(5)
    fleet.lose_claims(2, 4)
    fleet.ensemble.broken_images = {"zookeeper:3.9"}  # of pods that start from now on
    running = dict(fleet.ensemble._servers)
    for _ in range(4):
        fleet.ensemble.broken_images = set()
        fleet.ensemble.down = {2}
        await fleet.step()
    assert running and _claims_of(fleet, 2) and not _claims_of(fleet, 4)
    assert "after it: 4" in fleet.condition("ZooKeeperReady")[2]
    fleet.ensemble.down = set()
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True" and fleet.is_serving(4)
    assert not fleet.ensemble.overwritten


async def test_no_server_is_replaced_while_the_quorum_that_has_the_data_does_not_serve() -> None:
    fleet = await _running()
    fleet.ensemble.down = {1}
    fleet.lose_claims(3)
    await fleet.converge()
    assert fleet.condition("ZooKeeperReady")[1] == "ClaimLost"
    assert "Get servers 1, 2 to run" in fleet.condition("ZooKeeperReady")[2]
    assert _claims_of(fleet, 3) == []
    fleet.ensemble.down = set()
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True" and fleet.is_serving(3)
    assert not fleet.ensemble.overwritten


async def test_a_declared_loss_keeps_the_data_of_the_last_server_and_is_valid_once() -> None:
    fleet = await _running()
    fleet.lose_claims(2, 3)
    await fleet.converge()
    declared = _declare(fleet)
    await fleet.step()
    data = fleet.kubernetes.there(CONFIG_MAP, "orders-zookeeper")["data"]
    assert [data[f"start-empty-{server}"] for server in (1, 2, 3)] == ["no", "initialize", "no"]
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True"
    assert [fleet.is_serving(server) for server in (1, 2, 3)] == [True] * 3
    assert not fleet.ensemble.overwritten
    fleet.ensemble.write()
    fleet.lose_claims(2, 3)
    await fleet.converge()
    assert fleet.condition("ZooKeeperReady")[1] == "ClaimLost", "what was declared is another loss"
    assert _claims_of(fleet, 2, 3) == [] and declared not in fleet.condition("ZooKeeperReady")[2]


async def test_an_ensemble_that_lost_all_data_starts_empty_only_when_that_is_declared() -> None:
    fleet = await _running()
    fleet.lose_claims(1, 2, 3)
    await fleet.converge()
    assert _claims_of(fleet, 1, 2, 3) == []
    fleet.ensemble.acknowledged = -1
    _declare(fleet)
    await fleet.converge()
    assert [fleet.is_serving(server) for server in (1, 2, 3)] == [True] * 3
    assert fleet.condition("ZooKeeperReady")[0] == "True"


@pytest.mark.parametrize("gone", [(2, 3), (3,), (1, 2)])
async def test_a_cluster_applied_again_without_some_of_its_claims_keeps_its_data(
    gone: tuple[int, ...],
) -> None:
    fleet = await _running()
    fleet.kubernetes.remove(KAFKA_CLUSTER, "orders")
    assert await fleet.task.reconcile_once() is None
    for _ in range(3):
        fleet.kubernetes.settle()
    for name in _claims_of(fleet, *gone):
        fleet.kubernetes.remove(CLAIM, name)
    document = _document()
    document["spec"]["zookeeper"]["replicas"] = 5
    fleet.kubernetes.put(document)
    fleet.restart_operator()
    await fleet.converge()
    assert not fleet.ensemble.overwritten
    size = len(fleet.kubernetes.there(CONFIG_MAP, "orders-zookeeper")["data"]["members"].splitlines())
    if len(gone) == 1:
        assert (fleet.condition("Ready")[0], size) == ("True", 5), "it is replaced, and then the ensemble grows"
    else:
        assert (fleet.condition("ZooKeeperReady")[1], size) == ("ClaimLost", 3)
    assert bool(_claims_of(fleet, *gone)) == (len(gone) == 1)


async def test_a_lost_claim_of_a_log_disk_is_reported_when_its_cluster_is_applied_again() -> None:
    fleet = EnsembleFleet(_document(1))
    await fleet.converge()
    fleet.kubernetes.remove(KAFKA_CLUSTER, "orders")
    assert await fleet.task.reconcile_once() is None
    for _ in range(3):
        fleet.kubernetes.settle()
    fleet.kubernetes.remove(CLAIM, "orders-zookeeper-1-log-1")
    fleet.kubernetes.put(_document(1))
    fleet.restart_operator()
    await fleet.converge()
    assert fleet.condition("ZooKeeperReady")[1] == "ClaimLost"
    assert "orders-zookeeper-1-log-1" in fleet.condition("ZooKeeperReady")[2]
    assert not fleet.is_serving(1)


async def test_no_empty_ensemble_starts_when_a_namespace_is_restored_with_empty_volumes() -> None:
    fleet = await _running()
    fleet.restore_namespace(with_data=False)
    await fleet.converge()
    assert not any(fleet.is_serving(server) for server in (1, 2, 3))
    status, reason, message = fleet.condition("ZooKeeperReady")
    assert (status, reason) == ("False", "ClaimLost") and names.ACCEPT_LOSS in message
    assert _permissions(fleet) == {"no"}


async def test_a_namespace_restored_with_its_data_serves() -> None:
    fleet = await _running()
    fleet.restore_namespace(with_data=True)
    await fleet.converge()
    assert [fleet.is_serving(server) for server in (1, 2, 3)] == [True] * 3
    assert fleet.condition("Ready")[0] == "True" and not fleet.ensemble.overwritten


async def test_an_empty_claim_in_place_of_a_lost_one_is_used_only_while_a_quorum_serves() -> None:
    fleet = await _running()
    fleet.ensemble.down = {1}
    fleet.lose_claims(3)
    fleet.recreate_claims(3, with_data=False)
    await fleet.converge()
    assert "is not the one that it served with" in fleet.ensemble.refused[3]
    assert fleet.condition("ZooKeeperReady")[1] == "ClaimLost" and _permissions(fleet) == {"no"}
    fleet.ensemble.down = set()
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True" and fleet.is_serving(3)
    assert not fleet.ensemble.overwritten


async def test_a_claim_that_lost_its_volume_is_reported_and_no_server_starts_empty() -> None:
    fleet = await _running()
    fleet.kubernetes.edit(CLAIM, "orders-zookeeper-2-log-1", status={"phase": "Lost"})
    await fleet.task.reconcile_once()
    status, reason, message = fleet.condition("ZooKeeperReady")
    assert (status, reason) == ("False", "ClaimLost")
    assert "orders-zookeeper-2-log-1 of server 2 has lost its volume" in message
    assert _permissions(fleet) == {"no"}


async def test_a_roll_does_not_restart_a_server_whose_claim_is_terminating() -> None:
    fleet = await _running()
    pod = uid_of(fleet.kubernetes.there(POD, "orders-zookeeper-2-0"))
    fleet.kubernetes.remove(CLAIM, "orders-zookeeper-2-data-1")
    fleet.edit("spec.zookeeper.image", "zookeeper:3.9.4")
    await fleet.converge(200)
    assert fleet.condition("ZooKeeperReady")[1] == "ClaimTerminating"
    assert uid_of(fleet.kubernetes.there(POD, "orders-zookeeper-2-0")) == pod


async def test_servers_of_a_release_that_kept_no_record_count_as_having_data() -> None:
    fleet = await _running()
    for kind, name in [(CONFIG_MAP, "orders-zookeeper"), *((CLAIM, name) for name in _claims_of(fleet, 1, 2, 3))]:
        obj = fleet.kubernetes.there(kind, name)
        del obj["metadata"]["annotations"][names.ENSEMBLE]
        fleet.kubernetes.put(obj)
    fleet.ensemble.down = {1}
    fleet.lose_claims(2, 3)
    fleet.restart_operator()
    await fleet.converge()
    assert fleet.condition("ZooKeeperReady")[1] == "ClaimLost"
    assert _claims_of(fleet, 2, 3) == []


async def test_a_claim_deleted_before_the_ensemble_has_served_is_created_again() -> None:
    fleet = EnsembleFleet(_document())
    fleet.ensemble.down = {1, 2, 3}
    await fleet.converge()
    fleet.lose_claims(2)
    await fleet.converge()
    assert _claims_of(fleet, 2)
    fleet.ensemble.down = set()
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True"


def _lose_one(fleet: EnsembleFleet) -> None:
    fleet.lose_claims(2)


def _restore(fleet: EnsembleFleet) -> None:
    fleet.lose_claims(2, 3)
    fleet.recreate_claims(3, with_data=True)


@pytest.mark.extended
@pytest.mark.parametrize("happens", [_lose_one, _restore])
@pytest.mark.long
async def test_an_operator_killed_between_any_two_writes_overwrites_nothing(
    happens: Callable[[EnsembleFleet], None],
) -> None:
    async def damaged() -> EnsembleFleet:
        fleet = await _running()
        happens(fleet)
        return fleet

    async for writes, fleet in killed_after_every_write(damaged, at_least=6):
        assert fleet.condition("Ready")[0] == "True", f"killed after {writes} writes"
        assert not fleet.ensemble.overwritten


async def test_the_record_of_servers_with_data_survives_the_loss_of_any_copy() -> None:
    fleet = await _running()
    record = annotation(fleet.kubernetes.there(CONFIG_MAP, "orders-zookeeper"), names.ENSEMBLE)
    fleet.kubernetes.remove(CONFIG_MAP, "orders-zookeeper")
    fleet.kubernetes.remove(STATEFUL_SET, "orders-zookeeper-1")
    await fleet.converge()
    assert annotation(fleet.kubernetes.there(CONFIG_MAP, "orders-zookeeper"), names.ENSEMBLE) == record
    assert annotation(fleet.kubernetes.there(CLAIM, "orders-zookeeper-3-log-1"), names.ENSEMBLE) == record


async def test_brokers_without_a_zookeeper_session_are_reported_when_their_pods_are_ready() -> None:
    fleet = await _running()
    fleet.environment.sessions = {"orders-broker-1-0": "suspended", "orders-broker-2-0": "expired"}
    await fleet.converge()
    assert fleet.condition("BrokersReady") == (
        "False",
        "ZooKeeperSessionLost",
        "no session with ZooKeeper: broker 1 suspended since 2026-01-01T00:00:00Z, "
        "broker 2 expired since 2026-01-01T00:00:00Z",
    )
    fleet.environment.sessions = {}
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True"


def test_the_session_state_of_a_broker_is_parsed() -> None:
    report = read_report("uid", {"session": {"state": "suspended", "for_ms": 7, "since_ms": 9}})
    assert report is not None and (report.session, report.session_for_ms, report.session_since_ms) == (
        "suspended",
        7,
        9,
    )
    older = read_report("uid", {"cluster": "x"})
    assert older is not None and older.session == ""


def _with_image(fleet: EnsembleFleet, image: str) -> None:
    fleet.edit("spec.imageUpdatePolicy", "FollowOperator")
    fleet.images = type(fleet.images)("ottla:1", image)
    fleet.restart_operator()


async def test_an_ensemble_that_never_started_starts_when_its_image_is_corrected() -> None:
    fleet = EnsembleFleet(_document())
    fleet.ensemble.broken_images = {"no/such:1"}
    _with_image(fleet, "no/such:1")
    await fleet.converge()
    assert fleet.condition("ZooKeeperReady")[1] == "WaitingForServers"
    assert "1 waits (ImagePullBackOff: no/such:1)" in fleet.condition("ZooKeeperReady")[2]
    _with_image(fleet, "zookeeper:3.9")
    await fleet.converge(200)
    assert [fleet.is_serving(server) for server in (1, 2, 3)] == [True] * 3
    assert fleet.condition("Ready")[0] == "True"


async def test_an_image_that_does_not_exist_reaches_one_server_and_can_be_undone() -> None:
    fleet = await _running()
    fleet.ensemble.broken_images = {"no/such:1"}
    _with_image(fleet, "no/such:1")
    await fleet.converge(200)
    assert [fleet.is_serving(server) for server in (1, 2, 3)] == [False, True, True]
    fleet.ensemble.down = {2}
    fleet.kubernetes.settle()
    await fleet.converge(200)
    images = {
        server: fleet.kubernetes.there(STATEFUL_SET, f"orders-zookeeper-{server}")["spec"]["template"]["spec"][
            "containers"
        ][0]["image"]
        for server in (1, 3)
    }
    assert images == {1: "no/such:1", 3: "zookeeper:3.9"}, "a server that runs does not get what does not start"
    assert fleet.condition("ZooKeeperReady")[1] == "NoQuorum"
    fleet.ensemble.down = set()
    _with_image(fleet, "zookeeper:3.9")
    await fleet.converge(200)
    assert fleet.condition("Ready")[0] == "True" and not fleet.ensemble.overwritten


@pytest.mark.parametrize("stopped", [(1, 2, 3), (1, 2), (3,)])
async def test_servers_scaled_to_zero_by_hand_are_scaled_back(stopped: tuple[int, ...]) -> None:
    fleet = await _running()
    fleet.stop(*stopped)
    fleet.kubernetes.settle()
    await fleet.converge(200)
    assert [fleet.is_serving(server) for server in (1, 2, 3)] == [True] * 3
    assert fleet.condition("Ready")[0] == "True" and not fleet.ensemble.overwritten


async def test_a_configuration_that_separates_all_servers_is_undone_on_all_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = await _running()
    good = fleet.kubernetes.there(POD, "orders-zookeeper-1-0")["metadata"]["annotations"][names.CONFIG]
    with monkeypatch.context() as changed:
        changed.setattr(zookeeper_objects, "GRACE_S", 61)
        changed.setattr(zookeeper_objects, "LOGBACK", "<configuration/>")
        for server in (1, 2, 3):  # as a bad release would have left them
            fleet.kubernetes.remove(POD, f"orders-zookeeper-{server}-0")
            snapshot = await fleet.task.snapshot(fleet.kubernetes.there(KAFKA_CLUSTER, "orders"))
            observed = (await fleet.task.observations(snapshot)).ensemble
            wanted = zookeeper.decide_zookeeper(snapshot, observed).stateful_sets[server]
            fleet.kubernetes.edit(STATEFUL_SET, f"orders-zookeeper-{server}", spec=wanted["spec"])
        bad = wanted["spec"]["template"]["metadata"]["annotations"][names.CONFIG]
        fleet.ensemble.broken_configs = {bad}
        fleet.kubernetes.settle()
        await fleet.converge(200)
    assert bad != good and not any(fleet.is_serving(server) for server in (1, 2, 3))
    assert fleet.condition("ZooKeeperReady")[1] == "NoQuorum"
    await fleet.converge(200)
    assert [fleet.is_serving(server) for server in (1, 2, 3)] == [True] * 3
    assert fleet.condition("Ready")[0] == "True" and not fleet.ensemble.overwritten


async def test_zookeeper_is_not_ready_when_a_roll_loses_the_quorum() -> None:
    fleet = await _running()
    fleet.ensemble.broken_images = {"no/such:1"}
    _with_image(fleet, "no/such:1")
    await fleet.converge(200)
    fleet.ensemble.down = {2}
    fleet.kubernetes.settle()
    await fleet.converge(200)
    status, reason, message = fleet.condition("ZooKeeperReady")
    assert (status, reason) == ("False", "NoQuorum") and "1 waits (ImagePullBackOff: no/such:1)" in message


async def _seen_before_it_served(is_started: bool) -> EnsembleFleet:
    """An ensemble that serves, of which the cache has what was there just before: no server is ready."""
    fleet = await _running()
    serves = fleet.kubernetes.container_status
    before = {"name": "zookeeper", "ready": False, "started": is_started, "state": {"running": {}}}
    fleet.kubernetes.container_status = lambda pod: before if "zookeeper" in name_of(pod) else None
    fleet.kubernetes.settle()
    see = fleet.kubernetes.on_change
    fleet.kubernetes.on_change = lambda event, obj: None if obj["kind"] == POD.kind else see(event, obj)
    fleet.kubernetes.container_status = serves
    fleet.kubernetes.settle()
    return fleet


async def _deleted_pods(fleet: EnsembleFleet) -> list[str]:
    """Reconciles for some time, in which Kubernetes creates no pod in place of a deleted one."""
    fleet.kubernetes.writes.clear()
    deleted: list[str] = []
    for _ in range(12):
        await fleet.task.reconcile_once()
        deleted = [name for verb, kind, name in fleet.kubernetes.writes if (verb, kind) == ("delete", "Pod")]
        if not deleted:
            fleet.kubernetes.settle()
    return deleted


async def test_servers_of_a_quorum_are_restarted_one_after_the_other_also_when_the_watch_of_pods_is_behind() -> None:
    fleet = await _seen_before_it_served(is_started=False)
    fleet.edit("spec.zookeeper.image", "zookeeper:3.9.9")
    assert await _deleted_pods(fleet) == ["orders-zookeeper-1-0"]
    fleet.restart_operator()
    fleet.kubernetes.settle()
    await fleet.converge(200)
    assert fleet.condition("Ready")[0] == "True" and all(fleet.is_serving(server) for server in (1, 2, 3))


async def test_a_roll_does_not_delete_a_server_that_is_ready_by_now_in_place_of_one_that_is_not() -> None:
    fleet = await _seen_before_it_served(is_started=True)
    fleet.ensemble.down = {2}
    fleet.kubernetes.settle()
    fleet.edit("spec.zookeeper.image", "zookeeper:3.9.9")
    assert await _deleted_pods(fleet) == ["orders-zookeeper-2-0"]
