"""Changes stored configurations for AlterConfigs and IncrementalAlterConfigs: resources, checks, and the change itself.

The handlers translate requests into operations on single values. What Kafka 3.9 allows on which resource, in order of
checking:

    INVALID_REQUEST              a resource named twice, a key named twice, a null value, a resource type that is not
                                 served, an empty topic name, a broker id that is not this broker's, an unknown
                                 operation, a broker key that cannot change while it runs, a bad value of a broker
                                 key
    UNKNOWN_TOPIC_OR_PARTITION   the topic does not exist
    INVALID_CONFIG               an unknown topic key, a bad value of one, a value that is not served yet, APPEND or
                                 SUBTRACT on a key that is no list
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, TypeVar

from ottla_broker.config import INTERNAL_TOPICS, TOPIC_KEYS, find_key, validate_topic_config
from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.config.config_resources import ConfigResourceType
from ottla_broker.config.log_levels import LEVELS
from ottla_broker.config.types import ConfigKey, ConfigType, format_value
from ottla_broker.coordination.znodes import DEFAULT_ENTITY
from ottla_broker.ports.coordination import CoordinationError
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.number_text import whole_number
from ottla_broker.server.handler_api import CertificateStores, RequestContext
from ottla_broker.server.handlers.shared import broker_loggers
from ottla_broker.server.store.dynamic_config import BROKERS, TOPICS, DynamicConfig

MOST_CHANGES = 1000
"""Of one resource in a request: a broker has some 350 keys."""


class AlteredResource(Protocol):
    """AlterConfigsResource of either API."""

    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[object]: ...


_Resource = TypeVar("_Resource", bound=AlteredResource)
_ResourceResponse = TypeVar("_ResourceResponse")


class OperationType(IntEnum):
    """ConfigOperation of IncrementalAlterConfigs (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of one key. Only DELETE has no value."""

    type: OperationType
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Entity:
    """A node below /config."""

    type: str
    name: str


def entity_of(resource_type: int, resource_name: str, broker_id: int) -> Entity:
    """The stored entity that a topic or broker resource names; KafkaError(INVALID_REQUEST)."""
    if resource_type == ConfigResourceType.TOPIC:
        if not resource_name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        return Entity(TOPICS, resource_name)
    if resource_type == ConfigResourceType.BROKER:
        if not resource_name:
            return Entity(BROKERS, DEFAULT_ENTITY)
        check_broker(resource_name, broker_id)
        return Entity(BROKERS, str(broker_id))
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Resource type {resource_type} is not served.")


def check_broker(resource_name: str, broker_id: int) -> None:
    """A broker handles only its own resource: INVALID_REQUEST for another one."""
    requested = whole_number(resource_name)
    if requested is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {resource_name}")
    if requested != broker_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker_id} or empty string, but received {resource_name}",
        )


async def change_each(
    context: RequestContext,
    resources: Sequence[_Resource],
    change: Callable[[_Resource], Awaitable[None]],
    new_response: Callable[..., _ResourceResponse],
) -> list[_ResourceResponse]:
    """one response per resource, in the order of the request; a refused one does not stop the others.

    Args:
        resources: those of the request, each with resource_type, resource_name and its changes.
        change: carries out the changes of one; its KafkaErrors become responses.
        new_response: the API's class of the response for one resource.
    """
    times: Counter[tuple[int, str]] = Counter()
    async for resource in context.each(resources):
        times[resource.resource_type, resource.resource_name] += 1
    responses: list[_ResourceResponse] = []
    async for resource in context.each(resources, 20):
        name = (resource.resource_type, resource.resource_name)
        code, message = 0, None
        try:
            if times[name] > 1:  # none of them is changed
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if len(resource.configs) > MOST_CHANGES:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"More than {MOST_CHANGES} changes of one resource.")
            await change(resource)
        except KafkaError as error:
            code, message = int(error.code), error.message
        resource_type, resource_name = name
        responses.append(
            new_response(
                error_code=code, error_message=message, resource_type=resource_type, resource_name=resource_name
            )
        )
    return responses


async def change_stored(
    dynamic_config: DynamicConfig,
    stores: CertificateStores,
    entity: Entity,
    operations: Sequence[Operation],
    *,
    replace: bool,
    validate_only: bool,
) -> None:
    """Applies the operations to a topic's or broker's stored values; with `replace` to none instead.

    The stores of keys and certificates that this broker's values would name are read before anything is stored.
    `validate_only` checks without storing. Raises KafkaError.
    """
    check_names(operations)
    if entity.type == TOPICS and not await dynamic_config.topic_exists(entity.name):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{entity.name}' does not exist.")

    in_force: list[BrokerValues] = []

    def change(stored: dict[str, str]) -> Mapping[str, str]:
        known = TOPIC_KEYS.get if entity.type == TOPICS else find_key
        new = apply_operations(
            operations, stored, {} if replace else dict(stored), lambda key: _list_default(known(key))
        )
        if entity.type == TOPICS:
            # What another program stored and this change does not touch stays as it is.
            touched = {name: value for name, value in new.items() if stored.get(name) != value}
            for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"):
                if touched and name in new:
                    touched[name] = new[name]
            validate_topic_config(touched, internal=entity.name in INTERNAL_TOPICS)
        else:
            in_force.append(dynamic_config.config.check_update(stored, new, cluster_wide=entity.name == DEFAULT_ENTITY))
        return new

    if validate_only or entity.type != TOPICS:
        change(await dynamic_config.stored(entity.type, entity.name))
        for values in in_force:
            await stores.check(values)
    if validate_only:
        return
    try:
        await dynamic_config.update(entity.type, entity.name, change)
    except CoordinationError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The change could not be stored: {error}") from None
    if entity.type != TOPICS:
        await stores.refresh()


def change_loggers(resource_name: str, broker_id: int, operations: Sequence[Operation], *, validate_only: bool) -> None:
    """Sets the levels of this broker's loggers (KIP-412). Raises KafkaError."""
    check_broker(resource_name, broker_id)
    check_names(operations)
    known = broker_loggers.logger_names()
    for operation in operations:
        if operation.type not in (OperationType.SET, OperationType.DELETE):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{operation.type.name} is not allowed for the logger {operation.name}"
            )
        if operation.name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {operation.name} does not exist!")
        if operation.type is OperationType.DELETE and operation.name == broker_loggers.ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
        if operation.type is OperationType.SET and operation.value not in LEVELS:
            levels = ", ".join(LEVELS)
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{operation.name} has no level {operation.value}; the levels are {levels}"
            )
    if validate_only:
        return
    for operation in operations:
        broker_loggers.set_level(operation.name, operation.value if operation.type is OperationType.SET else None)


def check_names(operations: Sequence[Operation]) -> None:
    """Raises INVALID_REQUEST for a key that is named twice, or has no value."""
    names = [operation.name for operation in operations]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    missing = [item.name for item in operations if item.type is not OperationType.DELETE and item.value is None]
    if missing:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(missing)}")


def _list_default(key: ConfigKey | None) -> str | None:
    return (format_value(key.default) or "") if key is not None and key.type is ConfigType.LIST else None


def apply_operations(
    operations: Sequence[Operation],
    stored: Mapping[str, str],
    base: dict[str, str],
    list_default: Callable[[str], str | None],
) -> dict[str, str]:
    """The new stored values, from `base`.

    Args:
        list_default: the default of a key that is a list, None for any other key.

    Raises:
        KafkaError: INVALID_CONFIG for APPEND or SUBTRACT on a key that is no list.
    """
    for operation in operations:
        if operation.type is OperationType.DELETE:
            base.pop(operation.name, None)
            continue
        value = operation.value or ""
        if operation.type is OperationType.SET:
            base[operation.name] = value
            continue
        default = list_default(operation.name)
        if default is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Config value {operation.type.name.lower()} is not allowed for config key: {operation.name}",
            )
        current = stored.get(operation.name)
        if current is None:
            current = default
        items, named = _items(current) if current else [], _items(value)
        if operation.type is OperationType.APPEND:
            items += [item for item in named if item not in items]
        else:
            for item in named:
                if item in items:
                    items.remove(item)
        base[operation.name] = ",".join(items)
    return base


def _items(text: str) -> list[str]:
    """Splits a stored list as Java's String.split does: "" is one empty item, empty items at the end are dropped.

    >>> _items(""), _items("a,,b,,")
    ([''], ['a', '', 'b'])
    """
    items = text.split(",")
    while len(items) > 1 and not items[-1]:
        items.pop()
    return items
