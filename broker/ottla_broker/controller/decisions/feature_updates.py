"""Decides updates of finalized features (KIP-584): which are accepted, and the levels that follow. Pure.

Source: validateFeatureUpdate and newFinalizedVersionOrIncompatibilityError of Apache Kafka's KafkaController.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ottla_broker.config.features import Levels, Ranges


class UpgradeType(IntEnum):
    """What an update may do to the level of a feature (KIP-778)."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The level that a feature is to get. A level below 1 with a downgrade removes the feature."""

    feature: str
    level: int
    upgrade_type: UpgradeType

    @property
    def is_removal(self) -> bool:
        return self.level < 1 and self.upgrade_type is not UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class FeatureDecision:
    """`levels` is what is finalized after the accepted updates; `refusals` has why an update is refused, or None."""

    levels: Levels
    refusals: Mapping[str, str | None]


def decide_feature_updates(
    updates: Sequence[FeatureUpdate], finalized: Levels, supported: Ranges, brokers: Mapping[int, Ranges]
) -> FeatureDecision:
    """Each update is decided against the levels before the request; of two for one feature the last one counts.

    Args:
        finalized: the levels now.
        supported: the ranges of the active controller.
        brokers: the ranges that each live broker has registered.

    >>> ranges = {"group.version": (1, 1)}
    >>> wanted = [FeatureUpdate("group.version", 1, UpgradeType.UPGRADE)]
    >>> decide_feature_updates(wanted, {}, ranges, {0: ranges, 1: ranges}).levels
    {'group.version': 1}
    >>> decide_feature_updates(wanted, {}, ranges, {0: ranges, 7: {}}).refusals
    {'group.version': 'Could not apply finalized feature update because brokers [7] do not support this level.'}
    """
    levels = dict(finalized)
    refusals: dict[str, str | None] = {}
    for update in {update.feature: update for update in updates}.values():
        reason = _refusal_reason(update, finalized.get(update.feature), supported, brokers)
        refusals[update.feature] = reason
        if reason is not None:
            continue
        if update.is_removal:
            levels.pop(update.feature, None)
        else:
            levels[update.feature] = update.level
    return FeatureDecision(levels, refusals)


def _refusal_reason(
    update: FeatureUpdate, existing: int | None, supported: Ranges, brokers: Mapping[int, Ranges]
) -> str | None:
    level, upgrade_type = update.level, update.upgrade_type
    if not update.feature:
        return "Feature name can not be empty."
    if upgrade_type is UpgradeType.UNKNOWN:
        return "Received unknown upgrade type."
    if update.is_removal:
        return "Can not delete non-existing finalized feature." if existing is None else None
    if level < 1:
        return (
            f"Can not provide versionLevel: {level} less than 1 without setting the SAFE downgradeType in the request."
        )
    if existing is not None:
        if level == existing:
            way = "downgrade" if upgrade_type is UpgradeType.SAFE_DOWNGRADE else "upgrade"
            return f"Can not {way} a finalized feature from existing versionLevel:{existing} to the same value."
        if level < existing and upgrade_type is not UpgradeType.SAFE_DOWNGRADE:
            return (
                f"Can not downgrade finalized feature from existing versionLevel:{existing} to provided "
                f"versionLevel:{level} without setting the downgradeType to SAFE in the request."
            )
        if level > existing and upgrade_type is not UpgradeType.UPGRADE:
            return (
                f"When the downgradeType is set to SAFE in the request, the provided versionLevel:{level} can not be "
                f"greater than existing versionLevel:{existing}."
            )
    return _reason_unsupported(update, supported, brokers)


def _reason_unsupported(update: FeatureUpdate, supported: Ranges, brokers: Mapping[int, Ranges]) -> str | None:
    refused = "Could not apply finalized feature update because"
    if update.feature not in supported:
        return f"{refused} the provided feature is not supported."
    lowest, highest = supported[update.feature]
    if not lowest <= update.level <= highest:
        return f"{refused} the provided versionLevel:{update.level} is not within {max(1, lowest)} to {highest}."
    lacking = [
        broker
        for broker, ranges in sorted(brokers.items())
        if not ranges.get(update.feature, (0, -1))[0] <= update.level <= ranges.get(update.feature, (0, -1))[1]
    ]
    return f"{refused} brokers {lacking} do not support this level." if lacking else None
