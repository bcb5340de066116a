"""Finalized features in a real fleet: UpdateFeatures, ApiVersions, and the versions that are listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from ottla.testing import RunningCluster, cluster
from ottla_broker.config import features
from ottla_broker.coordination.embedded import EmbeddedCoordination
from ottla_broker.coordination.znodes import FEATURE, BrokerRegistration, Features
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import api_versions, update_features
from ottla_broker.server.edge import dispatch
from ottla_broker.server.edge.dispatch import FleetListing, Listing
from tests.integration.wire import Wire

SUPPORTED = MappingProxyType({"transaction.version": (0, 2), "x": (1, 3)})
ROW = FleetListing(Listing(ApiKey.LIST_GROUPS, 1, 5, "list_groups"), "transaction.version", 2)
"""A row that depends on a feature, and shows by its lowest version that it is listed."""


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningCluster]:
    monkeypatch.setattr(features, "SUPPORTED", SUPPORTED)
    monkeypatch.setattr(dispatch, "ABOVE_KAFKA_3_9", (*dispatch.ABOVE_KAFKA_3_9, ROW))
    with cluster(brokers=2) as found:
        yield found


def ask(address: str, api_key: ApiKey, version: int, request: Any) -> Any:
    with Wire(address) as wire:
        return wire.ask(api_key, version, request)


def versions(address: str, version: int = 4) -> api_versions.ApiVersionsResponse:
    request = api_versions.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    found: api_versions.ApiVersionsResponse = ask(address, ApiKey.API_VERSIONS, version, request)
    return found


def range_of(address: str, api_key: ApiKey) -> tuple[int, int]:
    (found,) = [one for one in versions(address).api_keys if one.api_key == api_key]
    return found.min_version, found.max_version


def finalized(address: str, version: int = 4) -> tuple[dict[str, int], int]:
    found = versions(address, version)
    return {one.name: one.max_version_level for one in found.finalized_features}, found.finalized_features_epoch


def update(fleet: RunningCluster, levels: Mapping[str, int], version: int = 1, **how: Any) -> Any:
    """The response of the active controller."""
    validate_only = how.pop("validate_only", False)
    request = update_features.UpdateFeaturesRequest(
        validate_only=validate_only,
        feature_updates=[
            update_features.FeatureUpdateKey(feature=name, max_version_level=level, **how)
            for name, level in levels.items()
        ],
    )
    return ask(fleet.address(controller(fleet)), ApiKey.UPDATE_FEATURES, version, request)


def controller(fleet: RunningCluster) -> int:
    assert fleet.fleet is not None
    (found,) = [
        broker.broker_id for broker in fleet.fleet.brokers.values() if broker.controller and broker.controller.is_active
    ]
    return found


def results(response: Any) -> dict[str, ErrorCode]:
    assert response.error_code == ErrorCode.NONE
    return {one.feature: ErrorCode(one.error_code) for one in response.results}


def wait_until_known(fleet: RunningCluster, epoch: int) -> None:
    """Until every broker has the finalized features of this epoch."""
    assert fleet.fleet is not None
    for broker in fleet.fleet.brokers.values():
        assert fleet.run(broker._fleet_features.until_epoch(epoch, 60_000))


def test_a_finalized_level_is_shown_by_every_broker_and_changes_what_it_lists(fleet: RunningCluster) -> None:
    addresses = [fleet.address(broker) for broker in (0, 1)]
    assert [finalized(address) for address in addresses] == [({}, -1)] * 2
    assert range_of(addresses[0], ApiKey.LIST_GROUPS) == (0, 5)
    assert results(update(fleet, {"transaction.version": 2})) == {"transaction.version": ErrorCode.NONE}
    assert finalized(fleet.address(controller(fleet))) == ({"transaction.version": 2}, 0)
    wait_until_known(fleet, 0)
    assert [finalized(address) for address in addresses] == [({"transaction.version": 2}, 0)] * 2
    assert [range_of(address, ApiKey.LIST_GROUPS) for address in addresses] == [(1, 5)] * 2
    lowered = update(fleet, {"transaction.version": 1}, upgrade_type=2)
    assert results(lowered) == {"transaction.version": ErrorCode.NONE}
    wait_until_known(fleet, 1)
    assert [finalized(address) for address in addresses] == [({"transaction.version": 1}, 1)] * 2
    assert [range_of(address, ApiKey.LIST_GROUPS) for address in addresses] == [(0, 5)] * 2


def test_a_finalized_level_outlives_the_controller(fleet: RunningCluster) -> None:
    update(fleet, {"x": 3})
    fleet.stop(controller(fleet))
    (left,) = fleet.running
    assert finalized(fleet.address(left)) == ({"x": 3}, 0)
    fleet.start(1 - left)
    assert finalized(fleet.address(1 - left)) == ({"x": 3}, 0)


def test_clients_before_version_4_are_shown_no_feature_whose_lowest_level_is_0(fleet: RunningCluster) -> None:
    def supported(version: int) -> dict[str, tuple[int, int]]:
        response = versions(fleet.address(0), version)
        return {one.name: (one.min_version, one.max_version) for one in response.supported_features}

    assert supported(4) == dict(SUPPORTED)
    assert supported(3) == {"x": (1, 3)}


def test_an_update_that_only_validates_writes_nothing(fleet: RunningCluster) -> None:
    found = update(fleet, {"transaction.version": 2, "y": 1}, validate_only=True)
    assert results(found) == {"transaction.version": ErrorCode.NONE, "y": ErrorCode.INVALID_REQUEST}
    assert finalized(fleet.address(controller(fleet))) == ({}, -1)


def test_version_1_applies_what_can_be_applied_and_version_2_all_or_nothing(fleet: RunningCluster) -> None:
    whole = update(fleet, {"x": 1, "y": 1}, version=2)
    assert whole.error_code == ErrorCode.INVALID_REQUEST
    assert whole.error_message == (
        "No feature is updated: Could not apply finalized feature update because the provided feature is not supported."
    )
    assert finalized(fleet.address(controller(fleet))) == ({}, -1)
    partly = update(fleet, {"x": 1, "y": 1}, version=1)
    assert results(partly) == {"x": ErrorCode.NONE, "y": ErrorCode.INVALID_REQUEST}
    assert finalized(fleet.address(controller(fleet))) == ({"x": 1}, 0)
    assert update(fleet, {"x": 2}, version=2).error_code == ErrorCode.NONE
    assert finalized(fleet.address(controller(fleet))) == ({"x": 2}, 1)


def test_version_0_removes_a_feature_with_allow_downgrade(fleet: RunningCluster) -> None:
    assert results(update(fleet, {"x": 2}, version=0)) == {"x": ErrorCode.NONE}
    assert results(update(fleet, {"x": 0}, version=0)) == {"x": ErrorCode.INVALID_REQUEST}
    assert results(update(fleet, {"x": 0}, version=0, allow_downgrade=True)) == {"x": ErrorCode.NONE}
    assert finalized(fleet.address(controller(fleet))) == ({}, 1)


def test_a_broker_that_is_not_the_controller_refuses(fleet: RunningCluster) -> None:
    request = update_features.UpdateFeaturesRequest(feature_updates=[])
    response = ask(fleet.address(1 - controller(fleet)), ApiKey.UPDATE_FEATURES, 1, request)
    assert (response.error_code, response.results) == (ErrorCode.NOT_CONTROLLER, [])


def test_beside_a_broker_of_apache_kafka_nothing_is_finalized_and_only_the_versions_of_3_9_are_listed(
    fleet: RunningCluster,
) -> None:
    """Its registration has no feature, and not our member."""
    assert fleet.fleet is not None
    ours = fleet.address(0)
    assert range_of(ours, ApiKey.UPDATE_FEATURES) == (0, 2)
    store = fleet.fleet._store
    assert store is not None
    tool = EmbeddedCoordination(store, session_timeout_ms=60_000)

    async def register() -> None:
        await tool.start()
        data, _ = await tool.get(BrokerRegistration.path(0))
        mine = BrokerRegistration.decode(0, data)
        theirs = BrokerRegistration(7, mine.endpoints, mine.timestamp_ms)
        await tool.create(BrokerRegistration.path(7), theirs.encode(), ephemeral=True)

    def wait_until(highest: int) -> None:
        for broker in (0, 1):
            while range_of(fleet.address(broker), ApiKey.UPDATE_FEATURES) != (0, highest):
                pass  # every round is a request over a socket

    fleet.run(register())
    wait_until(1)
    refused = update(fleet, {"x": 1})
    assert results(refused) == {"x": ErrorCode.INVALID_REQUEST}
    assert "brokers [7] do not support" in refused.results[0].error_message
    whole = update(fleet, {"x": 1}, version=2)
    assert whole.error_code == ErrorCode.INVALID_REQUEST, "a client that has agreed on a version keeps it"
    fleet.run(tool.close())
    wait_until(2)


def test_a_broker_halts_when_a_feature_is_finalized_that_it_does_not_support(fleet: RunningCluster) -> None:
    assert fleet.fleet is not None
    broker, store = fleet.fleet.brokers[1], fleet.fleet._store
    assert store is not None

    async def finalize() -> str:
        tool = EmbeddedCoordination(store, session_timeout_ms=60_000)
        await tool.start()
        await tool.create(FEATURE, Features(True, {"z": 1}).encode())
        reason = await broker.halted()
        await tool.close()
        return reason

    assert fleet.run(finalize()) == (
        "/feature: the cluster has finalized z at level 1, which this release does not support"
    )
