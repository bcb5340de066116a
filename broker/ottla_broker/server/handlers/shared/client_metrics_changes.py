"""Changes and describes client-metrics resources for the config APIs (KIP-714).

Errors, in the order of checking: INVALID_REQUEST (a broker of Apache Kafka is registered: 3.9 in ZooKeeper mode has no
such resources), then those of `config.client_metrics`; INVALID_CONFIG for APPEND or SUBTRACT on a key that is no list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla_broker.config.client_metrics import LIST_KEYS, parse_subscription
from ottla_broker.config.config_resources import ConfigResourceType
from ottla_broker.ports.coordination import CoordinationError
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.server.handler_api import Services
from ottla_broker.server.handlers.shared.config_changes import (
    Operation,
    apply_operations,
    check_names,
)


async def change_client_metrics(
    services: Services, name: str, operations: Sequence[Operation], *, replace: bool, validate_only: bool
) -> None:
    """Applies the operations to a resource's stored values; with `replace` to none instead. Raises KafkaError."""
    _check_served(services)
    check_names(operations)
    parse_subscription(name, {})  # no node has an empty name

    def change(stored: dict[str, str]) -> Mapping[str, str]:
        base = {} if replace else dict(stored)
        new = apply_operations(operations, stored, base, lambda key: "" if key in LIST_KEYS else None)
        parse_subscription(name, new)
        return new

    configs = services.client_metrics_configs
    try:
        if validate_only:
            change(await configs.stored(name))
        else:
            await configs.update(name, change)
    except CoordinationError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The change could not be stored: {error}") from None


async def describe_client_metrics(services: Services, name: str) -> dict[str, str]:
    """The stored values; none of a resource that does not exist. Raises KafkaError."""
    _check_served(services)
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    return await services.client_metrics_configs.stored(name)


def _check_served(services: Services) -> None:
    if not services.fleet_features.view.is_ours:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Resource type {int(ConfigResourceType.CLIENT_METRICS)} is not served while a broker of Apache Kafka is "
            "registered.",
        )
