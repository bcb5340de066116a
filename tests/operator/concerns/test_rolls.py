"""What keeps brokers out of a roll: overrides that cannot be read, and ZooKeeper that does not serve."""

from __future__ import annotations

import copy

import pytest

from ottla_operator.api.objects import POD, Obj, ResourceKind, name_of
from tests.operator.fleet import CLUSTER, Fleet


async def test_an_override_that_cannot_be_read_holds_every_broker() -> None:
    """It may be a Hold that is written wrong, in a document that is older than the schema."""
    document = copy.deepcopy(CLUSTER)
    document["spec"]["brokers"]["overrides"] = [{"id": 1, "state": "hold"}]
    fleet = Fleet(document)
    await fleet.converge()
    fleet.kubernetes.writes.clear()
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge()
    assert fleet.condition("Rolled")[:2] == ("False", "InvalidSpec")
    assert "spec.brokers.overrides[0].state" in fleet.condition("Ready")[2]
    assert not [write for write in fleet.kubernetes.writes if write[0] == "delete"]


async def test_no_broker_is_stopped_while_no_broker_has_a_session_with_zookeeper() -> None:
    """Leaderships cannot move away, and a broker that was stopped cannot register again."""
    fleet = await _waiting_to_roll("suspended", CLUSTER)
    assert fleet.condition("Rolled")[2].endswith("waits for: no broker has a session with ZooKeeper")
    fleet.environment.sessions = {}
    await fleet.converge(300)
    assert all("log.retention.hours=7\n" in fleet.properties(number) for number in range(3))
    assert fleet.condition("Ready")[0] == "True"


async def test_a_broker_with_a_session_is_enough_for_a_roll() -> None:
    fleet = Fleet()
    await fleet.converge()
    fleet.environment.sessions = {f"orders-broker-{number}-0": "expired" for number in (0, 1)}
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge(300)
    assert all("log.retention.hours=7\n" in fleet.properties(number) for number in range(3))


async def test_sessions_that_are_lost_for_long_stop_no_roll_that_may_repair_them() -> None:
    """What brokers are told of ZooKeeper may be what is wrong."""
    fleet = await _waiting_to_roll("expired", CLUSTER)
    fleet.environment.session_for_ms = 600_000
    await fleet.converge(300)
    assert all("log.retention.hours=7\n" in fleet.properties(number) for number in range(3))


async def test_no_broker_is_stopped_while_the_ensemble_has_no_quorum() -> None:
    fleet = Fleet()
    await fleet.converge()
    lost = {f"orders-zookeeper-{server}-0" for server in (1, 2)}
    waiting = {"name": "zookeeper", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    fleet.kubernetes.container_status = lambda pod: waiting if name_of(pod) in lost else None
    fleet.kubernetes.settle()
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    fleet.kubernetes.writes.clear()
    await fleet.converge()
    assert not [write for write in fleet.kubernetes.writes if write[:2] == ("delete", "Pod")]
    assert "the ZooKeeper ensemble has no quorum" in fleet.condition("Rolled")[2]
    fleet.kubernetes.container_status = None
    fleet.kubernetes.settle()
    await fleet.converge(300)
    assert all("log.retention.hours=7\n" in fleet.properties(number) for number in range(3))


async def test_a_broker_is_not_alone_while_another_has_a_disk_that_is_not_declared_any_more() -> None:
    """Nothing is decided about the other one until its disk is empty."""
    document = copy.deepcopy(CLUSTER)
    document["spec"]["brokers"] |= {"replicas": 2, "config": {}}
    fleet = Fleet(document)
    fleet.kafka.partitions = [("single", 0, (1,)), ("t", 0, (0,))]
    await fleet.converge()
    fleet.kafka.places = {(1, "single", 0): "/var/lib/ottla/d0/log", (0, "t", 0): "/var/lib/ottla/d1/log"}
    fleet.kafka.moves_are_slow = True
    fleet.kubernetes.writes.clear()
    fleet.edit("spec.brokers.disks", CLUSTER["spec"]["brokers"]["disks"][:1])
    for _ in range(12):
        await fleet.step()
    await fleet.converge()
    assert "single-0 has one replica (spec.rolling.allowUnavailability)" in fleet.condition("Rolled")[2]
    assert not [write for write in fleet.kubernetes.writes if write[:2] == ("delete", "Pod")]


async def test_in_sync_sets_are_not_taken_from_a_broker_whose_session_has_expired() -> None:
    """It answers with those of before, in which it is in sync itself."""
    fleet = Fleet()
    fleet.kafka.partitions = [("t", index, (0, 1, 2)) for index in range(3)]
    await fleet.converge()
    fleet.kafka.freeze(2)
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    fleet.kubernetes.writes.clear()
    await fleet.converge()
    assert not [write for write in fleet.kubernetes.writes if write[:2] == ("delete", "Pod")]
    assert "t-0: replica 2 is not in sync" in fleet.condition("Rolled")[2]
    fleet.kafka.frozen = {}
    await fleet.converge(300)
    assert all("log.retention.hours=7\n" in fleet.properties(number) for number in range(3))


async def test_no_broker_is_stopped_when_the_session_of_another_expires_just_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The brokers are asked for their sessions once more, not only for the in-sync sets."""
    fleet = Fleet()
    fleet.kafka.partitions = [("t", index, (0, 1, 2)) for index in range(3)]
    await fleet.converge()
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    fleet.kubernetes.writes.clear()
    read = fleet.kubernetes.get

    async def get(kind: ResourceKind, namespace: str, name: str) -> Obj | None:
        if kind == POD and not fleet.kafka.frozen:
            fleet.kafka.freeze(2)
        return await read(kind, namespace, name)

    monkeypatch.setattr(fleet.kubernetes, "get", get)
    await fleet.converge()
    assert fleet.kafka.frozen, "a pod was about to be deleted"
    assert not [write for write in fleet.kubernetes.writes if write[:2] == ("delete", "Pod")]


async def _waiting_to_roll(session: str, document: Obj) -> Fleet:
    """A fleet whose configuration has changed since no broker has a session; no pod was deleted."""
    fleet = Fleet(copy.deepcopy(document))
    await fleet.converge()
    fleet.environment.sessions = {f"orders-broker-{number}-0": session for number in range(3)}
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    fleet.kubernetes.writes.clear()
    await fleet.converge()
    assert not [write for write in fleet.kubernetes.writes if write[:2] == ("delete", "Pod")]
    return fleet


async def test_a_topic_with_one_replica_stops_the_roll_until_the_spec_allows_it_to_be_unavailable() -> None:
    fleet = Fleet(copy.deepcopy(CLUSTER))
    fleet.kafka.partitions = [("t", 0, (0, 1, 2)), ("single", 0, (2,))]
    await fleet.converge()
    fleet.kubernetes.writes.clear()
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.converge()
    for seconds in (1000, 1200):  # the active controller waits for ten minutes, a step counts as blocked after two
        fleet.environment.passed_s = seconds
        await fleet.converge()
    assert sorted(fleet.status("roll", "done")) == [0, 1]
    assert fleet.condition("Rolled")[1] == "Blocked"
    assert "single-0 has one replica (spec.rolling.allowUnavailability)" in fleet.condition("Rolled")[2]
    fleet.edit("spec.rolling", {"allowUnavailability": True})
    await fleet.converge()
    assert fleet.condition("Rolled")[0] == "True"
