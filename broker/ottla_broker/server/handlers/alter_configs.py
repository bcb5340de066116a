"""AlterConfigs (key 33, KIP-133): replaces all overrides of a resource.

Behaviour
    Topics, this broker, and all brokers (""). A change is in force here when the response is sent, and on other
    brokers once they have seen the notification. Only IncrementalAlterConfigs changes loggers.
Rights, in this order
    AlterConfigs:Topic (each topic): the error of its result.
    AlterConfigs:Cluster (each other resource): the error of its result.
Errors, in this order, for each resource
    Those of `handlers.shared.config_changes`.
Versions
    1: throttled responses are sent at once (KIP-219). 2: flexible.
"""

from __future__ import annotations

from ottla_broker.config.config_resources import ConfigResourceType
from ottla_broker.protocol.generated.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.client_metrics_changes import change_client_metrics
from ottla_broker.server.handlers.shared.config_changes import (
    Operation,
    OperationType,
    change_each,
    change_stored,
    entity_of,
)


async def handle(services: Services, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """One result per resource, in the order of the request."""

    async def change(resource: AlterConfigsResource) -> None:
        operations = [Operation(OperationType.SET, config.name, config.value) for config in resource.configs]
        if resource.resource_type == ConfigResourceType.CLIENT_METRICS:
            await change_client_metrics(
                services, resource.resource_name, operations, replace=True, validate_only=request.validate_only
            )
            return
        await change_stored(
            services.dynamic_config,
            services.certificate_stores,
            entity_of(resource.resource_type, resource.resource_name, services.dynamic_config.broker_id),
            operations,
            replace=True,
            validate_only=request.validate_only,
        )

    return AlterConfigsResponse(
        responses=await change_each(context, request.resources, change, AlterConfigsResourceResponse)
    )
