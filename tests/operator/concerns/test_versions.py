"""An upgrade is two rolls: first the image, then inter.broker.protocol.version; and a protocol is never lowered."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ottla_operator.api import names
from ottla_operator.api.objects import KAFKA_CLUSTER, POD, STATEFUL_SET, dig, uid_of
from ottla_operator.facts.images import container_image
from tests.operator.fleet import CLUSTER, Fleet
from tests.operator.kubernetes import Killed

TWO_ROLLS = [("ottla:2", "3.6")] * 3 + [("ottla:2", "3.9")] * 3


async def _running(**spec: Any) -> Fleet:
    document = copy.deepcopy(CLUSTER)
    document["spec"].update(spec)
    fleet = Fleet(document)
    await fleet.converge()
    return fleet


def _upgrade(fleet: Fleet) -> None:
    document = fleet.kubernetes.there(KAFKA_CLUSTER, "orders")
    document["spec"] |= {"image": "ottla:2", "version": "3.9"}
    fleet.kubernetes.put(document)


def _runs(fleet: Fleet, number: int) -> tuple[str, str]:
    """The image and the protocol of a broker's pod."""
    pod = fleet.kubernetes.there(POD, f"orders-broker-{number}-0")
    lines = dict(line.partition("=")[::2] for line in fleet.properties(number).splitlines())
    return container_image(pod["spec"], "broker"), lines["inter.broker.protocol.version"]


def _pods(fleet: Fleet) -> dict[str, str]:
    return {name: uid_of(fleet.kubernetes.there(POD, name)) for name in fleet.kubernetes.names(POD)}


async def _restarts(fleet: Fleet, passes: int = 120) -> list[tuple[str, str]]:
    """What brokers run after each of their restarts, in order, until the fleet is at rest."""
    found = []
    before = _pods(fleet)
    for _ in range(passes):
        version, writes = fleet.kubernetes.version, len(fleet.kubernetes.writes)
        await fleet.step()
        now = _pods(fleet)
        found += [_runs(fleet, n) for n in range(3) if before.get(name := f"orders-broker-{n}-0") != now.get(name)]
        before = now
        if (fleet.kubernetes.version, len(fleet.kubernetes.writes)) == (version, writes):
            return found
    raise AssertionError("no rest")


@pytest.mark.parametrize(
    ("declared", "spoken"), [("3.6", "3.6"), ("3.9.1", "3.9"), ("3.5-IV1", "3.5-IV1"), (None, "3.9")]
)
async def test_a_new_cluster_speaks_the_declared_protocol_at_once(declared: str | None, spoken: str) -> None:
    fleet = await _running(**({} if declared is None else {"version": declared}))
    assert [_runs(fleet, number) for number in range(3)] == [("ottla:1", spoken)] * 3
    assert (fleet.status("version"), fleet.status("interBrokerProtocolVersion")) == (spoken, spoken)
    assert fleet.condition("Ready")[0] == "True"


async def test_an_upgrade_rolls_the_image_first_and_the_protocol_when_all_are_in_sync() -> None:
    fleet = await _running(version="3.6")
    reasons: list[str] = []
    _upgrade(fleet)
    before = _pods(fleet)
    restarts = []
    while True:
        writes = len(fleet.kubernetes.writes)
        await fleet.step()
        now = _pods(fleet)
        restarts += [_runs(fleet, n) for n in range(3) if before.get(name := f"orders-broker-{n}-0") != now.get(name)]
        before = now
        reasons += [text for entry in fleet.status("brokers") for text in entry.get("pending", ())]
        if len(restarts) < 3:
            assert (fleet.status("version"), fleet.status("interBrokerProtocolVersion")) == ("3.6", "3.6")
        elif len(restarts) < 6:
            assert fleet.status("version") == "3.6", "the last broker still speaks it"
            assert fleet.condition("Rolled")[0] == "False", "the upgrade is not over between its rolls"
        if len(fleet.kubernetes.writes) == writes:
            break
    assert restarts == TWO_ROLLS
    told = [reason for reason in dict.fromkeys(reasons) if reason != "PodOutdated"]
    assert told == ["ImageChanged", "ProtocolRaised"]
    assert (fleet.status("version"), fleet.status("interBrokerProtocolVersion")) == ("3.9", "3.9")
    assert fleet.condition("Rolled")[0] == "True" and fleet.condition("Ready")[0] == "True"


async def test_the_second_roll_waits_for_replicas_that_are_behind() -> None:
    fleet = await _running(version="3.6")
    fleet.kafka.partitions = [("data", 0, (0, 1, 2))]
    await fleet.converge()
    fleet.kafka.behind = {2}
    fleet.edit("spec.version", "3.9")
    await fleet.converge()
    status, reason, message = fleet.condition("Rolled")
    assert (status, reason) == ("False", "RaisesProtocol") and "data-0 is not in sync" in message
    assert fleet.status("interBrokerProtocolVersion") == "3.6"
    fleet.kafka.behind = set()
    assert await _restarts(fleet) == [("ottla:1", "3.9")] * 3


async def test_the_second_roll_waits_for_a_broker_that_is_held() -> None:
    fleet = await _running(version="3.6")
    fleet.edit("spec.brokers.overrides", [{"id": 1, "state": "Hold"}])
    _upgrade(fleet)
    assert await _restarts(fleet) == [("ottla:2", "3.6")] * 2
    assert fleet.condition("Rolled")[1] == "Held" and fleet.status("interBrokerProtocolVersion") == "3.6"
    fleet.edit("spec.brokers.overrides", None)
    assert await _restarts(fleet) == [("ottla:2", "3.6")] + [("ottla:2", "3.9")] * 3


async def test_operators_that_are_killed_after_every_write_upgrade_in_the_same_rolls() -> None:
    fleet = await _running(version="3.6")
    _upgrade(fleet)
    seen = _pods(fleet)
    restarts = []
    deaths = 0
    for _ in range(400):
        fleet.kubernetes.kill_after = 1
        try:
            await fleet.step()
        except Killed:
            deaths += 1
            fleet.restart_operator()
            fleet.kubernetes.settle()
        now = _pods(fleet)
        restarts += [_runs(fleet, n) for n in range(3) if seen.get(name := f"orders-broker-{n}-0") != now.get(name)]
        seen = now
        if fleet.status("version") == "3.9" and fleet.status("roll") is None:
            break
    assert restarts == TWO_ROLLS and deaths > 30


async def test_the_protocol_is_not_lowered_when_brokers_have_spoken_it_and_everything_else_goes_on() -> None:
    fleet = await _running(version="3.9")
    fleet.edit("spec.version", "3.6")
    assert await _restarts(fleet) == []
    status, reason, message = fleet.condition("ConfigValid")
    assert (status, reason) == ("False", "VersionDowngrade")
    assert "spec.version: 3.6 is less than 3.9" in message and "set spec.version to 3.9" in message
    fleet.edit("spec.image", "ottla:2")
    assert await _restarts(fleet) == [("ottla:2", "3.9")] * 3
    fleet.edit("spec.version", "3.9")
    assert await _restarts(fleet) == [] and fleet.condition("ConfigValid")[0] == "True"


async def test_finalized_features_are_named_when_a_lower_version_is_refused() -> None:
    fleet = await _running(version="3.9")
    fleet.kafka.features = {"group.version": 1}
    fleet.edit("spec.version", "3.8")
    await fleet.converge()
    assert (
        fleet.condition("ConfigValid")[1] == "FeatureFinalized"
        and "group.version 1" in fleet.condition("ConfigValid")[2]
    )


async def test_a_raise_that_no_broker_has_had_is_undone() -> None:
    fleet = await _running(version="3.6")
    fleet.edit("spec.rolling", {"approval": "Manual"})
    fleet.edit("spec.version", "3.9")
    await fleet.converge()
    assert fleet.status("interBrokerProtocolVersion") == "3.9" and fleet.condition("Rolled")[1] == "AwaitingApproval"
    fleet.edit("spec.version", "3.7")
    await fleet.converge()
    assert (fleet.status("interBrokerProtocolVersion"), fleet.status("version")) == ("3.7", "3.6")
    assert fleet.condition("ConfigValid")[0] == "True"


async def test_the_protocol_that_brokers_have_counts_when_status_is_lost_in_the_second_roll() -> None:
    fleet = await _running(version="3.6")
    fleet.edit("spec.version", "3.9")
    while [_runs(fleet, number)[1] for number in range(3)] != ["3.6", "3.9", "3.6"]:
        await fleet.step()
    document = fleet.kubernetes.there(KAFKA_CLUSTER, "orders")
    fleet.kubernetes.put({key: value for key, value in document.items() if key != "status"})
    fleet.restart_operator()
    assert await _restarts(fleet) == [("ottla:1", "3.9")] * 2


async def test_a_cluster_without_a_version_keeps_the_protocol_that_it_speaks() -> None:
    fleet = await _running(version="3.6")
    fleet.edit("spec.version", None)
    assert await _restarts(fleet) == [] and fleet.status("version") == "3.6"
    fleet.edit("spec.brokers.replicas", 4)
    await fleet.converge()
    assert _runs(fleet, 3) == ("ottla:1", "3.6")


async def test_brokers_of_a_release_without_the_annotation_speak_what_their_file_says() -> None:
    fleet = await _running(version="3.6")
    for number in range(3):
        stateful_set = fleet.kubernetes.there(STATEFUL_SET, f"orders-broker-{number}")
        del stateful_set["spec"]["template"]["metadata"]["annotations"][names.PROTOCOL]
        fleet.kubernetes.put(stateful_set)
        pod = fleet.kubernetes.there(POD, f"orders-broker-{number}-0")
        del pod["metadata"]["annotations"][names.PROTOCOL]
        fleet.kubernetes.put(pod)
    document = fleet.kubernetes.there(KAFKA_CLUSTER, "orders")
    document["spec"].pop("version")
    fleet.kubernetes.put({key: value for key, value in document.items() if key != "status"})
    fleet.restart_operator()
    await fleet.converge()
    assert [_runs(fleet, number)[1] for number in range(3)] == ["3.6"] * 3
    assert (fleet.status("version"), fleet.status("interBrokerProtocolVersion")) == ("3.6", "3.6")
    written = fleet.kubernetes.there(STATEFUL_SET, "orders-broker-0")["spec"]["template"]
    assert dig(written, "metadata", "annotations", names.PROTOCOL) == "3.6"


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("spec.version", "4.0", "spec.version: must be a release between 2.8 and 3.9, such as 3.9, not 4.0"),
        ("spec.version", "3.5-IV9", "of 3.5 these levels are known"),
        ("spec.brokers.config", {"inter.broker.protocol.version": "3.6"}, "write spec.version"),
    ],
)
async def test_a_version_that_brokers_do_not_accept_changes_nothing_and_is_named(
    path: str, value: Any, named: str
) -> None:
    fleet = await _running(version="3.6")
    fleet.edit(path, value)
    assert await _restarts(fleet) == []
    assert fleet.condition("ConfigValid")[1] == "InvalidSpec" and named in fleet.condition("ConfigValid")[2]


async def test_a_paused_cluster_raises_nothing() -> None:
    fleet = await _running(version="3.6", paused=False)
    fleet.edit("spec.paused", True)
    fleet.edit("spec.version", "3.9")
    assert await _restarts(fleet) == [] and fleet.status("interBrokerProtocolVersion") == "3.6"
    fleet.edit("spec.paused", False)
    assert await _restarts(fleet) == [("ottla:1", "3.9")] * 3
