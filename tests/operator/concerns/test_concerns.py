"""Conditions are not True about what is not known: a bug in one concern, an invalid spec, a failed read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla_operator import cluster_decision as concerns
from ottla_operator.api.objects import SECRET, Obj, ResourceKind
from ottla_operator.ports import ApiError
from tests.operator.fleet import Fleet


def _raise(*_: Any) -> Any:
    raise RuntimeError("a bug")


async def _running() -> Fleet:
    fleet = Fleet()
    await fleet.converge()
    return fleet


@pytest.mark.parametrize(
    ("concern", "condition"),
    [
        ("decide_disks", "DisksReady"),
        ("decide_config", "ConfigValid"),
        ("decide_brokers", "BrokersReady"),
        ("decide_zookeeper", "ZooKeeperReady"),
        ("decide_identities", "RacksReady"),
    ],
)
async def test_rolled_is_not_true_when_a_bug_in_another_concern_prevents_a_change(
    monkeypatch: pytest.MonkeyPatch, concern: str, condition: str
) -> None:
    fleet = await _running()
    with monkeypatch.context() as broken:
        broken.setattr(concerns, concern, _raise)
        fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
        await fleet.converge()
        assert fleet.condition(condition)[:2] == ("Unknown", "InternalError")
        rolled_out = all("log.retention.hours=7\n" in fleet.properties(number) for number in range(3))
        status, reason, message = fleet.condition("Rolled")
        assert rolled_out or ((status, reason) == ("False", "DesiredStateUnknown") and f"see {condition}" in message)
        assert fleet.condition("Ready")[0] == "False"
    await fleet.converge()
    assert all("log.retention.hours=7\n" in fleet.properties(number) for number in range(3))
    assert fleet.condition("Rolled")[0] == "True" and fleet.condition("Ready")[0] == "True"


async def test_brokers_ready_is_unknown_when_racks_cannot_be_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = await _running()
    monkeypatch.setattr(concerns, "decide_identities", _raise)
    fleet.edit("spec.brokers.replicas", 4)
    await fleet.converge()
    assert fleet.condition("BrokersReady")[:2] == ("Unknown", "DesiredStateUnknown")


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda fleet: fleet.edit("spec.brokers.config", {"no.such": 1}), "ConfigValid"),
        (lambda fleet: fleet.edit("spec.brokers.disks", [{"name": "d0", "size": "much"}]), "DisksReady"),
        (lambda fleet: fleet.edit("spec.brokers.disks", [{"name": "d0", "size": "100Gi"}]), "d1"),
    ],
    ids=("config", "disks", "removed disk"),
)
async def test_rolled_is_not_true_when_the_spec_is_invalid(edit: Callable[[Fleet], None], why: str) -> None:
    fleet = await _running()
    edit(fleet)
    await fleet.converge()
    status, reason, message = fleet.condition("Rolled")
    assert (status, reason) == ("False", "DesiredStateUnknown") or why in message, message


async def test_ready_is_unknown_when_a_whole_reconciliation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = await _running()
    with monkeypatch.context() as broken:
        broken.setattr(concerns, "cluster_status", _raise)
        with pytest.raises(RuntimeError):
            await fleet.step()
    assert fleet.condition("Ready")[:2] == ("Unknown", "InternalError")
    assert "a bug" in fleet.condition("Ready")[2]
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True"


async def test_ready_is_unknown_when_an_object_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = await _running()
    read = fleet.kubernetes.get

    async def refuse(kind: ResourceKind, namespace: str, name: str) -> Obj | None:
        if kind == SECRET:
            raise ApiError(403, "Forbidden", "secrets is forbidden")
        return await read(kind, namespace, name)

    with monkeypatch.context() as forbidden:
        forbidden.setattr(fleet.kubernetes, "get", refuse)
        fleet.time += 601
        await fleet.step()
        assert fleet.condition("Ready")[:2] == ("Unknown", "ReadFailed")
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True"


async def test_a_bug_in_the_elections_stops_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = await _running()
    with monkeypatch.context() as broken:
        broken.setattr(concerns, "decide_elections", lambda *_, **__: _raise())
        fleet.edit("spec.brokers.replicas", 4)
        await fleet.converge()
        assert fleet.condition("Rolled")[:2] == ("Unknown", "InternalError")
        assert fleet.condition("BrokersReady")[0] == "True"
    await fleet.converge()
    assert fleet.condition("Rolled")[0] == "True"
