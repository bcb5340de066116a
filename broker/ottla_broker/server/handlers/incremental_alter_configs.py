"""IncrementalAlterConfigs (key 44, KIP-339): sets, deletes, appends to or subtracts from single overrides.

Behaviour
    Topics, this broker, all brokers (""), this broker's loggers (KIP-412), and client-metrics resources (KIP-714).
    APPEND and SUBTRACT work on lists, from
    the stored value or else the key's default. A change is in force here when the response is sent, and on
    other brokers once they have seen the notification.
Rights, in this order
    AlterConfigs:Topic (each topic): the error of its result.
    AlterConfigs:Cluster (each other resource): the error of its result.
Errors, in this order, for each resource
    Those of `handlers.shared.config_changes`, and of `handlers.shared.client_metrics_changes`.
Versions
    1: flexible.
"""

from __future__ import annotations

from ottla_broker.config.config_resources import ConfigResourceType
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.client_metrics_changes import change_client_metrics
from ottla_broker.server.handlers.shared.config_changes import (
    Operation,
    OperationType,
    change_each,
    change_loggers,
    change_stored,
    entity_of,
)


async def handle(
    services: Services, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """One result per resource, in the order of the request."""

    async def change(resource: AlterConfigsResource) -> None:
        await _change(services, resource, validate_only=request.validate_only)

    return IncrementalAlterConfigsResponse(
        responses=await change_each(context, request.resources, change, AlterConfigsResourceResponse)
    )


async def _change(services: Services, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    broker_id = services.dynamic_config.broker_id
    operations = [_operation(config) for config in resource.configs]
    if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
        change_loggers(resource.resource_name, broker_id, operations, validate_only=validate_only)
        return
    if resource.resource_type == ConfigResourceType.CLIENT_METRICS:
        await change_client_metrics(
            services, resource.resource_name, operations, replace=False, validate_only=validate_only
        )
        return
    await change_stored(
        services.dynamic_config,
        services.certificate_stores,
        entity_of(resource.resource_type, resource.resource_name, broker_id),
        operations,
        replace=False,
        validate_only=validate_only,
    )


def _operation(config: AlterableConfig) -> Operation:
    try:
        return Operation(OperationType(config.config_operation), config.name, config.value)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unknown operation type id {config.config_operation} for {config.name}"
        ) from None
