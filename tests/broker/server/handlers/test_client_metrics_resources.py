"""Client-metrics resources over the wire: altered on one broker, described and listed by all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import alter_configs, describe_configs, incremental_alter_configs
from ottla_broker.protocol.generated import list_client_metrics_resources as list_api
from ottla_broker.server.store.fleet_features import FleetView
from tests.integration.wire import Wire

CLIENT_METRICS = 16
SET, DELETE, APPEND, SUBTRACT = range(4)
Changes = list[tuple[str, int, str | None]]


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=2) as found:
        yield found


def ask(fleet: RunningCluster, broker: int, api_key: ApiKey, version: int, request: Any) -> Any:
    with Wire(fleet.address(broker)) as wire:
        return wire.ask(api_key, version, request)


def alter(fleet: RunningCluster, name: str, changes: Changes, *, validate_only: bool = False) -> tuple[int, str | None]:
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        validate_only=validate_only,
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=CLIENT_METRICS,
                resource_name=name,
                configs=[
                    incremental_alter_configs.AlterableConfig(name=key, config_operation=how, value=value)
                    for key, how, value in changes
                ],
            )
        ],
    )
    (found,) = ask(fleet, 0, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    return found.error_code, found.error_message


def described(fleet: RunningCluster, name: str, broker: int = 0) -> dict[str, str]:
    resource = describe_configs.DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name=name)
    request = describe_configs.DescribeConfigsRequest(resources=[resource])
    (found,) = ask(fleet, broker, ApiKey.DESCRIBE_CONFIGS, 4, request).results
    assert found.error_code == ErrorCode.NONE
    assert all(config.config_source == 7 for config in found.configs)
    return {config.name: config.value for config in found.configs}


def listed(fleet: RunningCluster, broker: int = 0) -> list[str]:
    request = list_api.ListClientMetricsResourcesRequest()
    response = ask(fleet, broker, ApiKey.LIST_CLIENT_METRICS_RESOURCES, 0, request)
    return [resource.name for resource in response.client_metrics_resources]


def test_a_resource_is_stored_for_all_brokers_and_goes_with_its_last_value(fleet: RunningCluster) -> None:
    name = "of/all brokers"
    assert alter(fleet, name, [("interval.ms", SET, "1000"), ("metrics", APPEND, "a.,b.")]) == (0, None)
    assert described(fleet, name) == described(fleet, name, broker=1) == {"interval.ms": "1000", "metrics": "a.,b."}
    assert listed(fleet) == [name]
    while listed(fleet, broker=1) != [name]:
        pass  # the other broker reads it by its watch; every round is a request over a socket
    assert alter(fleet, name, [("metrics", SUBTRACT, "a."), ("interval.ms", DELETE, None)]) == (0, None)
    assert described(fleet, name) == {"metrics": "b."}
    assert alter(fleet, name, [("metrics", DELETE, None)]) == (0, None)
    assert (described(fleet, name), listed(fleet)) == ({}, [])
    while listed(fleet, broker=1):
        pass


def test_a_resource_outlives_the_brokers(fleet: RunningCluster) -> None:
    assert alter(fleet, "kept", [("metrics", SET, "*")]) == (0, None)
    fleet.stop(1)
    fleet.start(1)
    assert listed(fleet, broker=1) == ["kept"]
    assert alter(fleet, "kept", [("metrics", DELETE, None)]) == (0, None)


def test_alter_configs_replaces_all_values(fleet: RunningCluster) -> None:
    assert alter(fleet, "replaced", [("interval.ms", SET, "1000"), ("metrics", SET, "a.")]) == (0, None)
    config = alter_configs.AlterableConfig(name="metrics", value="b.")
    resource = alter_configs.AlterConfigsResource(
        resource_type=CLIENT_METRICS, resource_name="replaced", configs=[config]
    )
    request = alter_configs.AlterConfigsRequest(resources=[resource])
    (found,) = ask(fleet, 0, ApiKey.ALTER_CONFIGS, 2, request).responses
    assert found.error_code == ErrorCode.NONE
    assert described(fleet, "replaced") == {"metrics": "b."}
    assert alter(fleet, "replaced", [("metrics", DELETE, None)]) == (0, None)


@pytest.mark.parametrize(
    ("name", "changes", "code", "message"),
    [
        ("", [("metrics", SET, "a.")], ErrorCode.INVALID_REQUEST, "Subscription name can't be empty"),
        ("x", [("y", SET, "a.")], ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: y"),
        ("x", [("interval.ms", SET, "99")], ErrorCode.INVALID_REQUEST, "interval must be between 100 and 3600000"),
        ("x", [("interval.ms", SET, "3600001")], ErrorCode.INVALID_REQUEST, "interval must be between 100 and"),
        ("x", [("interval.ms", SET, "often")], ErrorCode.INVALID_CONFIG, "often for interval.ms: not a number"),
        ("x", [("interval.ms", SET, "1_000")], ErrorCode.INVALID_CONFIG, "1_000 for interval.ms: not a number"),
        (
            "x",
            [("match", SET, f"client_id=a{{{10**10}}}")],
            ErrorCode.INVALID_CONFIG,
            "Illegal client matching pattern",
        ),
        ("x", [("match", SET, f"client_id=a{{{'1' * 5000}}}")], ErrorCode.INVALID_CONFIG, "Illegal client matching"),
        ("x", [("match", SET, f"client_id={'(' * 5000}")], ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
        ("x", [("match", SET, "client_id=a=b")], ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
        ("x", [("match", SET, "color=red")], ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: color=red"),
        ("x", [("match", SET, "client_id=(")], ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: client_id"),
        ("x", [("interval.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG, "append is not allowed for config key"),
        ("x", [("metrics", SET, None)], ErrorCode.INVALID_REQUEST, "Null value not supported for : metrics"),
    ],
)
def test_a_change_that_cannot_be_used_is_refused_and_not_stored(
    fleet: RunningCluster, name: str, changes: Changes, code: ErrorCode, message: str
) -> None:
    found, why = alter(fleet, name, changes)
    assert found == code
    assert message in (why or "")
    assert listed(fleet) == []


def test_a_change_that_is_only_validated_is_not_stored(fleet: RunningCluster) -> None:
    assert alter(fleet, "x", [("metrics", SET, "a.")], validate_only=True) == (0, None)
    assert listed(fleet) == []


def test_beside_a_broker_of_apache_kafka_the_resources_are_not_served(
    fleet: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fleet.fleet is not None
    monkeypatch.setattr(fleet.fleet.brokers[0]._fleet_features, "_view", FleetView(is_ours=False))
    found, why = alter(fleet, "x", [("metrics", SET, "a.")])
    assert found == ErrorCode.INVALID_REQUEST
    assert why == "Resource type 16 is not served while a broker of Apache Kafka is registered."
