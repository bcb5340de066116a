"""Which images a fleet runs, and that an upgrade of the operator restarts none by surprise."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ottla_operator.api.objects import KAFKA_CLUSTER, POD, dig, uid_of
from ottla_operator.facts.images import container_image
from tests.operator.fleet import CLUSTER, Fleet


async def _running(**spec: Any) -> Fleet:
    document = copy.deepcopy(CLUSTER)
    document["spec"].update(spec)
    fleet = Fleet(document)
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True"
    return fleet


async def _upgrade(fleet: Fleet, broker: str = "ottla:2", zookeeper: str = "zookeeper:3.9.4") -> None:
    fleet.images = type(fleet.images)(broker, zookeeper)
    fleet.restart_operator()
    await fleet.converge(300)


def _pods(fleet: Fleet) -> dict[str, str]:
    return {name: uid_of(fleet.kubernetes.there(POD, name)) for name in fleet.kubernetes.names(POD)}


def _images(fleet: Fleet, container: str) -> set[str]:
    specs = [fleet.kubernetes.there(POD, name)["spec"] for name in fleet.kubernetes.names(POD)]
    return {container_image(spec, container) for spec in specs} - {""}


async def test_an_upgrade_of_the_operator_restarts_no_pod_and_shows_what_is_available() -> None:
    fleet = await _running()
    assert fleet.status("images") == {"broker": "ottla:1", "zookeeper": "zookeeper:3.9"}
    before = _pods(fleet)
    await _upgrade(fleet)
    assert _pods(fleet) == before and fleet.condition("Ready")[0] == "True"
    available = {"brokerAvailable": "ottla:2", "zookeeperAvailable": "zookeeper:3.9.4"}
    assert fleet.status("images") == {"broker": "ottla:1", "zookeeper": "zookeeper:3.9", **available}
    fleet.kubernetes.writes.clear()
    await fleet.converge()
    assert fleet.kubernetes.writes == []


async def test_a_broker_added_after_an_upgrade_runs_the_image_of_the_others() -> None:
    fleet = await _running()
    await _upgrade(fleet)
    fleet.edit("spec.brokers.replicas", 4)
    await fleet.converge()
    assert len([name for name in _pods(fleet) if "-broker-" in name]) == 4
    assert _images(fleet, "broker") == {"ottla:1"}


async def test_the_image_of_the_spec_is_rolled_and_stays_when_the_field_goes() -> None:
    fleet = await _running()
    await _upgrade(fleet)
    fleet.edit("spec.image", "mirror/ottla:2")
    await fleet.converge(300)
    assert _images(fleet, "broker") == {"mirror/ottla:2"} and _images(fleet, "zookeeper") == {"zookeeper:3.9"}
    fleet.edit("spec.zookeeper.image", "mirror/zookeeper:3.9.4")
    await fleet.converge(300)
    assert _images(fleet, "zookeeper") == {"mirror/zookeeper:3.9.4"}
    assert fleet.status("images") == {"broker": "mirror/ottla:2", "zookeeper": "mirror/zookeeper:3.9.4"}
    before = _pods(fleet)
    fleet.edit("spec.image", None)
    fleet.edit("spec.zookeeper.image", None)
    await fleet.converge(300)
    assert _pods(fleet) == before


async def test_a_fleet_that_follows_the_operator_is_rolled_by_its_upgrade() -> None:
    fleet = await _running(imageUpdatePolicy="FollowOperator")
    await _upgrade(fleet)
    assert _images(fleet, "broker") == {"ottla:2"} and _images(fleet, "zookeeper") == {"zookeeper:3.9.4"}
    before = _pods(fleet)
    fleet.edit("spec.imageUpdatePolicy", None)
    await _upgrade(fleet, "ottla:3", "zookeeper:3.9.5")
    assert _pods(fleet) == before


async def test_the_image_is_kept_when_status_is_lost() -> None:
    """As after a restore from a backup, or when an earlier release wrote the status."""
    fleet = await _running()
    document = fleet.kubernetes.there(KAFKA_CLUSTER, "orders")
    fleet.kubernetes.put({key: value for key, value in document.items() if key != "status"})
    before = _pods(fleet)
    await _upgrade(fleet)
    assert _pods(fleet) == before and dig(fleet.status("images"), "broker") == "ottla:1"


async def test_an_image_that_no_broker_was_ready_with_is_given_up_when_it_is_corrected() -> None:
    fleet = await _running()
    waiting = {"name": "broker", "ready": False, "state": {"waiting": {"reason": "ImagePullBackOff"}}}

    def status(pod: Any) -> Any:
        return waiting if container_image(pod["spec"], "broker") == "ottla:typo" else None

    fleet.kubernetes.container_status = status
    fleet.edit("spec.image", "ottla:typo")
    await fleet.converge(200)
    assert _images(fleet, "broker") == {"ottla:1", "ottla:typo"}, "the roll stops at the first broker"
    assert dig(fleet.status("images"), "broker") == "ottla:1"
    fleet.edit("spec.image", None)
    await fleet.converge(300)
    assert _images(fleet, "broker") == {"ottla:1"} and fleet.condition("Ready")[0] == "True"


@pytest.mark.parametrize(
    ("field", "value", "condition"),
    [("image", "a b", "BrokersReady"), ("imagePullPolicy", "Sometimes", "BrokersReady"),
     ("zookeeper.image", "-x", "ZooKeeperReady")],
)  # fmt: skip
async def test_a_wrong_image_restarts_nothing_and_is_named(field: str, value: str, condition: str) -> None:
    fleet = await _running()
    before = _pods(fleet)
    fleet.edit(f"spec.{field}", value)
    await fleet.converge()
    status, reason, message = fleet.condition(condition)
    assert (status, reason) == ("False", "InvalidSpec") and f"spec.{field}: " in message
    assert _pods(fleet) == before


async def test_the_pull_policy_of_the_spec_replaces_the_operators() -> None:
    fleet = await _running(imagePullPolicy="Always")
    for name in fleet.kubernetes.names(POD):
        assert dig(fleet.kubernetes.there(POD, name), "spec", "containers", 0, "imagePullPolicy") == "Always"


async def test_the_log_level_of_the_spec_reaches_the_brokers_through_a_roll() -> None:
    fleet = await _running()
    env = dig(fleet.kubernetes.there(POD, "orders-broker-0-0"), "spec", "containers", 0, "env")
    assert [one["name"] for one in env] == ["OTTLA_FORMAT"], "without it the template is that of earlier releases"
    before = _pods(fleet)
    fleet.edit("spec.brokers.logging", {"level": "DEBUG"})
    await fleet.converge(200)
    changed = {name for name, uid in _pods(fleet).items() if before[name] != uid}
    assert changed == {name for name in before if "-broker-" in name}
    for name in changed:
        env = dig(fleet.kubernetes.there(POD, name), "spec", "containers", 0, "env")
        assert {"name": "OTTLA_LOG_LEVEL", "value": "DEBUG"} in env
    fleet.edit("spec.brokers.logging", {"level": "loud"})
    await fleet.converge()
    assert "spec.brokers.logging.level: must be one of FATAL" in fleet.condition("BrokersReady")[2]
