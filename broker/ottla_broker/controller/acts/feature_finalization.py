"""Carries out UpdateFeatures (KIP-584): decides on the features in `/feature` as they are, and writes them.

Source: processFeatureUpdatesWithActiveController of Apache Kafka's KafkaController, which ignores ValidateOnly.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ottla_broker.config import features
from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.decisions.feature_updates import FeatureUpdate, decide_feature_updates
from ottla_broker.controller.store import ControllerStore
from ottla_broker.coordination.znodes import ZnodeError
from ottla_broker.ports.coordination import BadVersion, NodeExists, NoNode
from ottla_broker.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("ottla.controller")

NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class FeatureUpdateResults:
    """The error of each update, None for an accepted one. `epoch` is that of a write, NO_EPOCH when there is none."""

    errors: Mapping[str, KafkaError | None]
    epoch: int = NO_EPOCH


async def update_features(
    context: ControllerContext,
    store: ControllerStore,
    updates: Sequence[FeatureUpdate],
    *,
    validate_only: bool,
    is_atomic: bool,
    znode_version: int,
) -> FeatureUpdateResults:
    """Finalizes the accepted levels.

    Args:
        validate_only: writes nothing.
        is_atomic: writes nothing when one update is refused (UpdateFeatures 2).
        znode_version: of the JSON in /feature, by inter.broker.protocol.version.

    Returns:
        INVALID_REQUEST for an update that is refused, FEATURE_UPDATE_FAILED for one that cannot be written.
    """
    try:
        finalized, epoch = await store.finalized_features()
    except ZnodeError as error:
        failed = KafkaError(ErrorCode.FEATURE_UPDATE_FAILED, str(error))
        return FeatureUpdateResults({update.feature: failed for update in updates})
    brokers = {broker: registered.features for broker, registered in context.brokers.items()}
    decision = decide_feature_updates(updates, finalized, features.SUPPORTED, brokers)
    errors = {
        feature: None if reason is None else KafkaError(ErrorCode.INVALID_REQUEST, reason)
        for feature, reason in decision.refusals.items()
    }
    if validate_only or decision.levels == finalized or (is_atomic and any(errors.values())):
        return FeatureUpdateResults(errors)
    try:
        written = await store.write_features(decision.levels, epoch, znode_version)
    except (BadVersion, NodeExists, NoNode) as error:
        failed = KafkaError(ErrorCode.FEATURE_UPDATE_FAILED, f"/feature has changed meanwhile: {error}")
        return FeatureUpdateResults({feature: error or failed for feature, error in errors.items()})
    logger.info("finalized features: %s, epoch %d", dict(sorted(decision.levels.items())), written)
    return FeatureUpdateResults(errors, written)
