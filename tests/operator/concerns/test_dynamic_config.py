"""Broker configuration that changes without a restart, and dynamic values that nobody declares."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from ottla_documents.kafka_cluster import parse_cluster
from ottla_operator.api.fleet import BrokerValue, ClusterMetadata
from ottla_operator.api.objects import CONFIG_MAP, EVENT, POD, uid_of
from ottla_operator.concerns.config.dynamic_config import DynamicConfigDecision, decide_dynamic_config, needs_no_restart
from ottla_operator.facts.contested_writes import NOT_WRITTEN_S
from ottla_operator.facts.snapshot import ContainerImages, Snapshot
from tests.operator.fleet import CLUSTER, Fleet

BYTES = "message.max.bytes"
DEFAULT = "1048588"


def _decided(
    value: BrokerValue, declared: str | None, written: str | None = None, *, key: str = BYTES, unmanaged: bool = False
) -> DynamicConfigDecision:
    cluster, _ = parse_cluster({"metadata": {"name": "orders"}, "spec": {}})
    left_alone = frozenset({key}) if unmanaged else frozenset()
    cluster = replace(cluster, brokers=replace(cluster.brokers, unmanaged_config=left_alone))
    snapshot = Snapshot(
        cluster, (), {}, {}, ContainerImages("", ""), "", kafka=ClusterMetadata("c", 0, (0,), ()),
        broker_values={0: {key: value} if value != BrokerValue() else {}},
    )  # fmt: skip
    values = ({key: declared} if declared is not None else {}, {key: written} if written is not None else {})
    return decide_dynamic_config(snapshot, {0: values[0]}, {0: values[1]})


@pytest.mark.parametrize(
    ("own", "file", "declared", "change"),
    [
        (None, None, None, None),
        (None, "1", "1", None),
        (None, "1", "01", None),  # the same value
        (None, "1", "2", {BYTES: "2"}),
        (None, None, "2", {BYTES: "2"}),
        (None, None, DEFAULT, None),  # what is in effect anyway
        (None, "1", None, {BYTES: DEFAULT}),  # no longer declared: until the next start
        (None, DEFAULT, None, None),
        ("2", "1", "2", None),
        ("2", "2", "2", {BYTES: None}),  # restarted: the file has it
        ("2", "1", "1", {BYTES: None}),  # undone before a restart
        ("2", "1", "3", {BYTES: "3"}),
        ("2", None, None, {BYTES: None}),
        (DEFAULT, "1", None, None),
    ],
)
def test_a_broker_gets_a_dynamic_value_while_its_file_has_another(
    own: str | None, file: str | None, declared: str | None, change: dict[str, str | None] | None
) -> None:
    decision = _decided(BrokerValue(own, None, file), declared, own if own is not None else file)
    assert decision.changes == ({} if change is None else {0: change})
    assert decision.undeclared == (), "the file of before had it: it was declared"


@pytest.mark.parametrize(
    ("value", "declared", "changes", "undeclared"),
    [
        (BrokerValue("9", None, "1"), "1", {0: {BYTES: None}}, ((0, BYTES),)),
        (BrokerValue("9", None, "2"), "1", {0: {BYTES: "1"}}, ((0, BYTES),)),
        (BrokerValue("9"), None, {0: {BYTES: None}}, ((0, BYTES),)),
        (BrokerValue(None, "9", "1"), "1", {None: {BYTES: None}}, ((None, BYTES),)),
        (BrokerValue("9", "8", "1"), "1", {0: {BYTES: None}, None: {BYTES: None}}, ((0, BYTES), (None, BYTES))),
        (BrokerValue(None, "8", "2"), "1", {0: {BYTES: "1"}, None: {BYTES: None}}, ((None, BYTES),)),
    ],
)
def test_a_dynamic_value_that_nobody_declares_is_removed(
    value: BrokerValue, declared: str | None, changes: Any, undeclared: Any
) -> None:
    decision = _decided(value, declared, declared)
    assert (decision.changes, decision.undeclared) == (changes, undeclared)
    assert list(decision.changes) == sorted(decision.changes, key=lambda number: number is None), "brokers first"
    assert _decided(value, None, unmanaged=True).changes == {}


@pytest.mark.parametrize(
    "key",
    ["leader.replication.throttled.rate", "follower.replication.throttled.rate", "cordoned.log.dirs",
     "replica.alter.log.dirs.io.max.bytes.per.second", "ottla.log.dirs.forgotten"],
)  # fmt: skip
def test_throttles_and_cordons_are_left_alone(key: str) -> None:
    assert _decided(BrokerValue("1", "2"), None, key=key).changes == {}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("min.insync.replicas", "2", True),
        ("log.retention.ms", "1000", True),
        ("log.retention.hours", "5", False),
        ("num.partitions", "3", False),
        ("inter.broker.protocol.version", "3.6", False),
        ("listeners", "CLIENT://:9092", False),
        ("max.connections", "0", False),  # only a file may say so
        ("ssl.provider", "x", False),  # nothing means its absence
        ("no.such", "1", False),
    ],
)
def test_keys_that_brokers_change_while_they_run_need_no_restart(key: str, value: str, expected: bool) -> None:
    assert needs_no_restart(key, value) is expected


def test_a_retention_in_ms_that_is_no_longer_declared_becomes_that_in_hours() -> None:
    values = {"log.retention.ms": BrokerValue(None, None, "1000")}
    cluster, _ = parse_cluster({"metadata": {"name": "orders"}, "spec": {}})
    snapshot = Snapshot(
        cluster, (), {}, {}, ContainerImages("", ""), "", kafka=ClusterMetadata("c", 0, (0,), ()),
        broker_values={0: values},
    )  # fmt: skip
    decision = decide_dynamic_config(snapshot, {0: {"log.retention.hours": "2"}}, {0: {"log.retention.ms": "1000"}})
    assert decision.changes == {0: {"log.retention.ms": "7200000"}}


def _document(**config: Any) -> dict[str, Any]:
    document = copy.deepcopy(CLUSTER)
    document["spec"]["brokers"]["config"] = config
    return document


async def _running(**config: Any) -> Fleet:
    fleet = Fleet(_document(**{key.replace("_", "."): value for key, value in config.items()}))
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True"
    return fleet


def _pods(fleet: Fleet) -> dict[str, str]:
    return {name: uid_of(fleet.kubernetes.there(POD, name)) for name in fleet.kubernetes.names(POD)}


def _shown(fleet: Fleet) -> list[list[str]]:
    return [entry.get("dynamicConfig", []) for entry in fleet.status("brokers")]


async def test_a_changed_value_is_in_effect_without_a_restart_and_in_the_file_of_the_next_start() -> None:
    fleet = await _running(message_max_bytes=1000000)
    before = _pods(fleet)
    fleet.edit("spec.brokers.config", {BYTES: 2000000})
    await fleet.converge()
    assert _pods(fleet) == before and fleet.condition("Rolled")[0] == "True"
    assert fleet.kafka.dynamic == {number: {BYTES: "2000000"} for number in range(3)}
    assert all(f"{BYTES}=2000000\n" in fleet.properties(number) for number in range(3))
    assert fleet.condition("ConfigValid")[0] == "True" and _shown(fleet) == [[BYTES]] * 3


async def test_a_dynamic_value_goes_once_its_broker_has_started_with_the_file_that_has_it() -> None:
    fleet = await _running(message_max_bytes=1000000)
    fleet.edit("spec.brokers.config", {BYTES: 2000000})
    await fleet.converge()
    fleet.kubernetes.remove(POD, "orders-broker-1-0")
    await fleet.converge()
    assert fleet.kafka.dynamic[1] == {} and fleet.kafka.dynamic[0] == {BYTES: "2000000"}
    assert _shown(fleet) == [[BYTES], [], [BYTES]]
    fleet.edit("spec.brokers.config", {BYTES: 3000000, "num.partitions": 4})
    await fleet.converge()
    assert fleet.kafka.dynamic == {0: {}, 1: {}, 2: {}}, "a roll has restarted all of them"
    assert all(f"{BYTES}=3000000\n" in fleet.properties(number) for number in range(3))


async def test_a_value_that_is_no_longer_declared_is_the_default_without_a_restart() -> None:
    fleet = await _running(message_max_bytes=1000000)
    before = _pods(fleet)
    fleet.edit("spec.brokers.config", {})
    await fleet.converge()
    assert _pods(fleet) == before and fleet.kafka.dynamic[2] == {BYTES: DEFAULT}
    assert BYTES not in fleet.properties(2)


async def test_nothing_is_asked_of_brokers_at_rest_and_by_a_new_operator() -> None:
    fleet = await _running(message_max_bytes=1000000)
    fleet.edit("spec.brokers.config", {BYTES: 2000000})
    await fleet.converge()
    fleet.kafka.config_changes.clear()
    fleet.kubernetes.writes.clear()
    fleet.restart_operator()
    await fleet.converge()
    assert fleet.kafka.config_changes == [] and fleet.kubernetes.writes == []


async def test_a_refused_value_is_reported_with_the_error_and_is_in_no_file() -> None:
    fleet = await _running(message_max_bytes=1000000)
    before = _pods(fleet)
    fleet.edit("spec.brokers.config", {BYTES: 2000000, "num.io.threads": 1000})
    await fleet.converge()
    status, reason, message = fleet.condition("ConfigValid")
    assert (status, reason) == ("False", "DynamicRefused")
    assert "num.io.threads of broker 0, 1, 2: " in message and "between half and double" in message
    assert _pods(fleet) == before and fleet.kafka.dynamic[0] == {BYTES: "2000000"}, "the other value is in effect"
    assert "num.io.threads" not in fleet.properties(0) and f"{BYTES}=2000000\n" in fleet.properties(0)
    fleet.edit("spec.brokers.config", {BYTES: 2000000, "num.io.threads": 16})
    await fleet.converge()
    assert fleet.condition("ConfigValid")[0] == "True" and "num.io.threads=16\n" in fleet.properties(0)
    assert _pods(fleet) == before


async def test_a_refused_value_comes_with_a_roll_for_another_change() -> None:
    fleet = await _running()
    fleet.edit("spec.brokers.config", {"num.io.threads": 1000})
    await fleet.converge()
    assert fleet.condition("ConfigValid")[1] == "DynamicRefused"
    fleet.edit("spec.brokers.config", {"num.io.threads": 1000, "num.partitions": 4})
    await fleet.converge()
    assert fleet.condition("ConfigValid")[0] == "True" and fleet.kafka.dynamic.get(0, {}) == {}
    assert "num.io.threads=1000\n" in fleet.properties(0)


async def test_a_value_that_somebody_sets_is_removed_and_reported_by_its_key() -> None:
    fleet = await _running(message_max_bytes=1000000)
    fleet.kafka.dynamic = {1: {BYTES: "5000", "log.cleaner.threads": "2"}, None: {"log.retention.ms": "1"}}
    await fleet.step()
    status, reason, message = fleet.condition("ConfigValid")
    assert (status, reason) == ("False", "DynamicOverride")
    assert f"{BYTES} of broker 1" in message and "log.cleaner.threads of broker 1" in message
    assert "log.retention.ms of all brokers" in message and "5000" not in message, "never a value: it may be a secret"
    assert fleet.kafka.dynamic == {1: {}, None: {}}
    await fleet.converge()
    assert fleet.condition("ConfigValid")[0] == "True"
    reasons = [fleet.kubernetes.there(EVENT, name)["reason"] for name in fleet.kubernetes.names(EVENT)]
    assert "DynamicOverride" in reasons


async def test_unmanaged_keys_are_left_to_kafka_configs_and_shown() -> None:
    fleet = await _running(message_max_bytes=1000000)
    fleet.edit("spec.brokers.unmanagedConfig", ["log.cleaner.threads"])
    fleet.kafka.dynamic = {1: {"log.cleaner.threads": "2"}, None: {"log.cleaner.threads": "2"}}
    await fleet.converge()
    assert fleet.kafka.dynamic == {1: {"log.cleaner.threads": "2"}, None: {"log.cleaner.threads": "2"}}
    assert fleet.condition("ConfigValid")[0] == "True" and _shown(fleet) == [["log.cleaner.threads"]] * 3
    fleet.edit("spec.brokers.unmanagedConfig", None)
    await fleet.converge()
    assert fleet.kafka.dynamic == {1: {}, None: {}}


@pytest.mark.parametrize(
    ("key", "named"),
    [("no.such", "is not a broker configuration key"), ("num.partitions", "cannot change while a broker runs"),
     (BYTES, "is in config too")],
)  # fmt: skip
async def test_a_key_that_cannot_be_unmanaged_is_named(key: str, named: str) -> None:
    fleet = await _running(message_max_bytes=1000000)
    fleet.edit("spec.brokers.unmanagedConfig", [key])
    await fleet.converge()
    status, reason, message = fleet.condition("ConfigValid")
    assert (
        (status, reason) == ("False", "InvalidSpec") and "spec.brokers.unmanagedConfig" in message and named in message
    )


async def test_what_somebody_sets_again_each_time_is_written_three_times_in_ten_minutes() -> None:
    fleet = await _running(message_max_bytes=1000000)
    fleet.kafka.set_again = {1: {BYTES: "5000"}}
    fleet.kafka.dynamic = {1: {BYTES: "5000"}}
    for _ in range(10):
        await fleet.step()
    assert len(fleet.kafka.config_changes) == 3
    status, reason, message = fleet.condition("ConfigValid")
    assert (status, reason) == ("False", "ChangedByOthers") and f"{BYTES} of broker 1" in message
    fleet.kafka.set_again = {}
    fleet.time += NOT_WRITTEN_S + 1
    await fleet.converge()
    assert fleet.kafka.dynamic == {1: {}} and fleet.condition("ConfigValid")[0] == "True"


async def test_no_answer_is_no_sign_that_a_value_is_in_effect() -> None:
    fleet = await _running(message_max_bytes=1000000)
    fleet.kafka.answers = False
    await fleet.converge()
    fleet.edit("spec.brokers.config", {BYTES: 2000000})
    await fleet.converge()
    assert f"{BYTES}=1000000\n" in fleet.properties(1), "the brokers that run have not taken it"
    fleet.restart_operator()
    await fleet.converge()
    assert f"{BYTES}=1000000\n" in fleet.properties(1)
    fleet.kafka.answers = True
    await fleet.converge()
    assert f"{BYTES}=2000000\n" in fleet.properties(1) and fleet.kafka.dynamic[1] == {BYTES: "2000000"}


async def test_a_corrected_value_reaches_the_file_of_a_broker_that_does_not_start() -> None:
    """The same ConfigMap: its broker reads it at its next start."""
    fleet = await _running(message_max_bytes=1000000)
    bad = {BYTES: 1000000, "num.partitions": 4, "log.cleaner.backoff.ms": 7}
    fleet.edit("spec.brokers.config", bad)
    await fleet.step()
    fleet.kubernetes.not_starting = _with_text(fleet, "log.cleaner.backoff.ms=7\n")
    for _ in range(15):
        await fleet.step()
    assert fleet.condition("Rolled")[0] == "False"
    fleet.edit("spec.brokers.config", {**bad, "log.cleaner.backoff.ms": 8})
    await fleet.step()
    fleet.kubernetes.not_starting = _with_text(fleet, "log.cleaner.backoff.ms=7\n")
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True"
    assert all("log.cleaner.backoff.ms=8\n" in fleet.properties(number) for number in range(3))


def _with_text(fleet: Fleet, text: str) -> set[str]:
    config_maps = {name: fleet.kubernetes.there(CONFIG_MAP, name) for name in fleet.kubernetes.names(CONFIG_MAP)}
    return {name for name, obj in config_maps.items() if text in str(obj.get("data", {}).get("server.properties"))}


async def test_a_paused_cluster_changes_no_dynamic_value() -> None:
    fleet = await _running(message_max_bytes=1000000)
    fleet.edit("spec.paused", True)
    fleet.kafka.dynamic = {1: {BYTES: "5000"}}
    fleet.edit("spec.brokers.config", {BYTES: 2000000})
    await fleet.converge()
    assert fleet.kafka.config_changes == [] and f"{BYTES}=1000000\n" in fleet.properties(1)
    fleet.edit("spec.paused", None)
    await fleet.converge()
    assert fleet.kafka.dynamic[1] == {BYTES: "2000000"}


async def test_a_store_that_brokers_refuse_is_a_condition_and_an_event_while_it_lasts() -> None:
    fleet = await _running()
    reason = "ssl.keystore.location: /etc/kafka/keys.pem: it is neither PEM nor PKCS#12"
    fleet.environment.refused_stores = {0: (reason,), 2: (reason,)}
    await fleet.converge()
    message = f"brokers keep what a store held before; 0, 2: {reason}"
    assert fleet.condition("ConfigValid") == ("False", "StoreRefused", message)
    assert fleet.condition("Ready")[:2] == ("False", "ConfigStoreRefused")
    fleet.environment.passed_s += 3600
    await fleet.converge()
    events = [fleet.kubernetes.there(EVENT, name) for name in fleet.kubernetes.names(EVENT)]
    warnings = [(one["type"], one["message"]) for one in events if one["reason"] == "StoreRefused"]
    assert warnings == [("Warning", f"ConfigValid: {message}")]
    fleet.environment.refused_stores = {}
    await fleet.converge()
    assert fleet.condition("ConfigValid")[0] == "True" and fleet.condition("Ready")[0] == "True"
