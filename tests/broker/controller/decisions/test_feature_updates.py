"""Which updates of finalized features are accepted, and which levels follow."""

from __future__ import annotations

import re

import pytest

from ottla_broker.config import features
from ottla_broker.controller.decisions.feature_updates import FeatureUpdate, UpgradeType, decide_feature_updates

UNKNOWN, UPGRADE, SAFE, UNSAFE = UpgradeType
SUPPORTED = {"transaction.version": (0, 2), "group.version": (0, 1)}
REGISTERED = features.registered(SUPPORTED)
FLEET = {0: REGISTERED, 1: REGISTERED}


def decide(name: str, level: int, how: UpgradeType, finalized: dict[str, int]) -> tuple[str | None, dict[str, int]]:
    decision = decide_feature_updates([FeatureUpdate(name, level, how)], finalized, SUPPORTED, FLEET)
    return decision.refusals[name], dict(decision.levels)


@pytest.mark.parametrize(
    ("finalized", "level", "how", "after"),
    [
        ({}, 2, UPGRADE, {"transaction.version": 2}),
        ({"transaction.version": 1}, 2, UPGRADE, {"transaction.version": 2}),
        ({"transaction.version": 2}, 1, SAFE, {"transaction.version": 1}),
        ({"transaction.version": 2, "group.version": 1}, 0, SAFE, {"group.version": 1}),
        ({"transaction.version": 2}, 0, UNSAFE, {}),
        ({"transaction.version": 2}, -1, SAFE, {}),
    ],
)
def test_an_accepted_update_changes_its_level_alone(
    finalized: dict[str, int], level: int, how: UpgradeType, after: dict[str, int]
) -> None:
    assert decide("transaction.version", level, how, finalized) == (None, after)


@pytest.mark.parametrize(
    ("name", "finalized", "level", "how", "reason"),
    [
        ("", {}, 1, UPGRADE, "Feature name can not be empty."),
        ("group.version", {}, 1, UNKNOWN, "Received unknown upgrade type."),
        ("group.version", {}, 0, SAFE, "Can not delete non-existing finalized feature."),
        ("group.version", {"group.version": 1}, 0, UPGRADE, "Can not provide versionLevel: 0 less than 1"),
        ("group.version", {"group.version": 1}, 1, UPGRADE, "Can not upgrade .* versionLevel:1 to the same value."),
        ("group.version", {"group.version": 1}, 1, SAFE, "Can not downgrade .* versionLevel:1 to the same value."),
        ("transaction.version", {"transaction.version": 2}, 1, UPGRADE, "without setting the downgradeType to SAFE"),
        ("transaction.version", {"transaction.version": 2}, 1, UNSAFE, "without setting the downgradeType to SAFE"),
        ("transaction.version", {"transaction.version": 1}, 2, SAFE, "can not be greater than existing versionLevel:1"),
        ("group.version", {}, 2, UPGRADE, "versionLevel:2 is not within 1 to 1"),
        ("metadata.version", {}, 20, UPGRADE, "the provided feature is not supported"),
    ],
)
def test_a_refused_update_changes_nothing_and_says_why(
    name: str, finalized: dict[str, int], level: int, how: UpgradeType, reason: str
) -> None:
    found, after = decide(name, level, how, finalized)
    assert after == finalized
    assert found is not None
    assert re.search(reason, found), found


def test_a_level_that_one_broker_does_not_support_is_not_finalized() -> None:
    brokers = {0: REGISTERED, 3: {"transaction.version": (1, 1)}, 7: {}}
    wanted = [FeatureUpdate("transaction.version", 2, UPGRADE), FeatureUpdate("transaction.version", 2, UPGRADE)]
    decision = decide_feature_updates(wanted, {}, SUPPORTED, brokers)
    assert decision.levels == {}
    assert decision.refusals == {
        "transaction.version": "Could not apply finalized feature update because brokers [3, 7] do not support this "
        "level."
    }


def test_updates_are_decided_each_alone() -> None:
    wanted = [FeatureUpdate("group.version", 1, UPGRADE), FeatureUpdate("x", 1, UPGRADE)]
    decision = decide_feature_updates(wanted, {}, SUPPORTED, FLEET)
    assert decision.levels == {"group.version": 1}
    assert decision.refusals["group.version"] is None
    assert decision.refusals["x"] is not None
