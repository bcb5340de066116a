"""UpdateFeatures (key 57, at the controller; KIP-584): finalizes the levels of features.

Behaviour
    This release supports no feature, as Apache Kafka 3.9 in ZooKeeper mode, and a broker joins no cluster that has
    finalized one (`peers.finalized_features`): no update can be applied. One result for each named feature.
Errors, in this order
    NOT_CONTROLLER. For each feature, INVALID_REQUEST: no name, an upgrade type that does not exist (v1), a level below
    1 with a downgrade (there is nothing to remove) or without one, a feature that is not supported.
Versions
    0: AllowDowngrade. 1: upgrade types, ValidateOnly (KIP-778).
"""

from __future__ import annotations

from typing import Final

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3


async def handle(services: Services, context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Answers at once."""
    if not services.controller.is_active:
        code = ErrorCode.NOT_CONTROLLER
        return UpdateFeaturesResponse(error_code=int(code), error_message=code.message)
    updates = {update.feature: update for update in request.feature_updates}
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(
                feature=feature,
                error_code=int(ErrorCode.INVALID_REQUEST),
                error_message=why_not(update, context.api_version),
            )
            for feature, update in updates.items()
        ],
    )


def why_not(update: FeatureUpdateKey, version: int) -> str:
    """Why the update cannot be applied, in the words of Apache Kafka's controller.

    >>> why_not(FeatureUpdateKey(feature="group.version", max_version_level=1, upgrade_type=UPGRADE), 1)
    'Could not apply finalized feature update because the provided feature is not supported.'
    """
    upgrade_type = update.upgrade_type
    if version == 0:
        upgrade_type = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    if not update.feature:
        return "Feature name can not be empty."
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "Received unknown upgrade type."
    level = update.max_version_level
    if level < 1 and upgrade_type != UPGRADE:
        return "Can not delete non-existing finalized feature."
    if level < 1:
        return (
            f"Can not provide versionLevel: {level} less than 1 without setting the SAFE downgradeType in the request."
        )
    return "Could not apply finalized feature update because the provided feature is not supported."
