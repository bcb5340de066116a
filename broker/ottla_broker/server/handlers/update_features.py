"""UpdateFeatures (key 57, at the controller; KIP-584): finalizes the levels of features.

Behaviour
    A level is finalized when every registered broker supports it; so no feature is finalized while a broker of Apache
    Kafka 3.9, which supports none, is registered, and afterwards none can join. Versions 0 and 1 apply what can be
    applied, with one result for each named feature; version 2 applies all or nothing. The response is sent when this
    broker has the new levels. ValidateOnly changes nothing, where Apache Kafka 3.9 in ZooKeeper mode ignores it.
Rights, in this order
    Alter:Cluster (the cluster): the error of the whole answer.
Errors, in this order
    NOT_CONTROLLER. For each feature INVALID_REQUEST, see `controller.decisions.feature_updates`; FEATURE_UPDATE_FAILED
    when /feature cannot be read or written, or this broker does not have the new levels within timeoutMs. In version 2
    the first of them is the error of the whole request.
Versions
    0: AllowDowngrade. 1: upgrade types, ValidateOnly (KIP-778). 2: no results (Apache Kafka 4.0).
"""

from __future__ import annotations

from ottla_broker.controller.decisions.feature_updates import FeatureUpdate, UpgradeType
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(services: Services, context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Answers when the accepted levels are finalized."""
    version = context.api_version
    try:
        results = await services.controller.update_features(
            [_update(update, version) for update in request.feature_updates],
            validate_only=version >= 1 and request.validate_only,
            is_atomic=version >= 2,
        )
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=int(error.code), error_message=error.message, results=[])
    errors = results.errors
    if not await services.fleet_features.until_epoch(results.epoch, request.timeout_ms):
        late = KafkaError(ErrorCode.FEATURE_UPDATE_FAILED, "The broker has not read the new levels in time.")
        errors = {feature: error or late for feature, error in errors.items()}
    if version >= 2:
        return _whole(next((error for error in errors.values() if error is not None), None))
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(
                feature=feature,
                error_code=int(ErrorCode.NONE if error is None else error.code),
                error_message=None if error is None else error.message,
            )
            for feature, error in errors.items()
        ],
    )


def _whole(error: KafkaError | None) -> UpdateFeaturesResponse:
    if error is None:
        return UpdateFeaturesResponse(error_message=None, results=[])
    return UpdateFeaturesResponse(
        error_code=int(error.code), error_message=f"No feature is updated: {error.message}", results=[]
    )


def _update(update: FeatureUpdateKey, version: int) -> FeatureUpdate:
    """
    >>> _update(FeatureUpdateKey(feature="x", max_version_level=1, allow_downgrade=True), 0).upgrade_type.name
    'SAFE_DOWNGRADE'
    """
    if version == 0:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    else:
        known = [kind for kind in UpgradeType if kind == update.upgrade_type]
        upgrade_type = known[0] if known else UpgradeType.UNKNOWN
    return FeatureUpdate(update.feature, update.max_version_level, upgrade_type)
