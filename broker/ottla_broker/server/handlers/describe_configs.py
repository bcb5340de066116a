"""DescribeConfigs (key 32, KIP-133).

Behaviour
    A topic's values, with its overrides read from the store; the values of this broker; for the broker named "" the
    dynamic values of the whole cluster; the levels of a broker's loggers (KIP-412); the stored values of a
    client-metrics resource (KIP-714). A null or empty list
    of keys means all. Secrets and unknown keys have no value. Synonyms and documentation are sent when requested.
Rights, in this order
    DescribeConfigs:Topic (each topic): the error of its result.
    DescribeConfigs:Cluster (each other resource): the error of its result.
Errors, in this order, for each resource
    INVALID_REQUEST (a resource type that is not served, another broker's id), INVALID_TOPIC_EXCEPTION (no valid topic
    name), UNKNOWN_TOPIC_OR_PARTITION.
Versions
    1: sources and synonyms (KIP-226). 2: throttled responses are sent at once (KIP-219). 3: types and documentation
    (KIP-569). 4: flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla_broker.config import ConfigDescription
from ottla_broker.config.config_resources import ConfigResourceType
from ottla_broker.controller.decisions.topic_rules import check_name
from ottla_broker.coordination.znodes import DEFAULT_ENTITY
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared import broker_loggers
from ottla_broker.server.handlers.shared.client_metrics_changes import describe_client_metrics
from ottla_broker.server.handlers.shared.config_changes import check_broker, entity_of
from ottla_broker.server.store.dynamic_config import TOPICS, DynamicConfig
from ottla_broker.server.turns import ELEMENTS_PER_TURN

_DYNAMIC_BROKER_LOGGER_CONFIG = 6
_CLIENT_METRICS_CONFIG = 7
_COST = 20
"""Of a resource, in ordinary elements: it is looked up in the store."""


async def handle(
    services: Services, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """One result per resource, in the order of the request."""
    results: list[DescribeConfigsResult] = []
    named: set[tuple[int, str]] = set()
    async for resource in context.each(request.resources, _COST):
        # The values of a broker are some 300: see `RequestContext.distinct`.
        if len(results) >= ELEMENTS_PER_TURN and (resource.resource_type, resource.resource_name) in named:
            continue
        named.add((resource.resource_type, resource.resource_name))
        result = DescribeConfigsResult(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
                result.configs = _loggers(resource.resource_name, services.dynamic_config.broker_id)
            elif resource.resource_type == ConfigResourceType.CLIENT_METRICS:
                stored = await describe_client_metrics(services, resource.resource_name)
                result.configs = [
                    DescribeConfigsResourceResult(name=name, value=value, config_source=_CLIENT_METRICS_CONFIG)
                    for name, value in stored.items()
                ]
            else:
                found = await _describe(services.dynamic_config, resource.resource_type, resource.resource_name)
                result.configs = [
                    _result(
                        item,
                        synonyms=request.include_synonyms,
                        documentation=request.include_documentation,
                        is_default=context.api_version == 0 and item.is_default,
                    )
                    async for item in context.each(found, 2)
                ]
            result.configs = await _only(context, result.configs, resource.configuration_keys)
        except KafkaError as error:
            result.error_code, result.error_message = int(error.code), error.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


async def _describe(dynamic_config: DynamicConfig, resource_type: int, name: str) -> list[ConfigDescription]:
    if resource_type == ConfigResourceType.TOPIC:
        check_name(name)
    entity = entity_of(resource_type, name, dynamic_config.broker_id)
    if entity.type == TOPICS:
        if not await dynamic_config.topic_exists(name):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return (await dynamic_config.load_topic(name)).describe_all()
    if entity.name == DEFAULT_ENTITY:
        return dynamic_config.config.describe_dynamic_defaults()
    return dynamic_config.config.describe_all()


async def _only(
    context: RequestContext, results: list[DescribeConfigsResourceResult], names: Sequence[str] | None
) -> list[DescribeConfigsResourceResult]:
    if not names:
        return results
    wanted = {name async for name in context.each(names)}
    return [result for result in results if result.name in wanted]


def _result(
    item: ConfigDescription, *, synonyms: bool, documentation: bool, is_default: bool
) -> DescribeConfigsResourceResult:
    # Version 1 put the source in place of is_default, which no later version can carry.
    return DescribeConfigsResourceResult(
        name=item.name,
        value=item.value,
        read_only=item.is_read_only,
        is_default=is_default,
        config_source=int(item.source),
        is_sensitive=item.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=int(synonym.source))
            for synonym in item.synonyms
        ]
        if synonyms
        else [],
        config_type=0 if item.type is None else int(item.type),
        documentation=item.documentation if documentation else None,
    )


def _loggers(resource_name: str, broker_id: int) -> list[DescribeConfigsResourceResult]:
    check_broker(resource_name, broker_id)
    return [
        DescribeConfigsResourceResult(
            name=name,
            value=broker_loggers.level_of(name),
            config_source=_DYNAMIC_BROKER_LOGGER_CONFIG,
        )
        for name in broker_loggers.logger_names()
    ]
