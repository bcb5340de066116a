"""What AlterClientQuotas does to the stored values of one entity (KIP-546). Pure.

Source: kafka.server.ZkAdminManager.alterClientQuotas.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.number_text import double_number, whole_number
from ottla_broker.quotas.entities import DEFAULT, EntityName, EntityType, NumberType, QuotaEntity

_EPSILON: Final = 1e-6
_LIMITS: Final = {NumberType.LONG: (-(2**63), 2**63 - 1), NumberType.INT: (-(2**31), 2**31 - 1)}
_LOWEST_SCIENTIFIC: Final = 1e-3
_HIGHEST_SCIENTIFIC: Final = 1e7


class Alteration(NamedTuple):
    """Sets one key, or removes it when `value` is None."""

    key: str
    value: float | None


def parse_entity(names: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of a request: (type, name) of each part, None for the default name.

    Raises:
        KafkaError: INVALID_REQUEST, in this order: no part, a type that does not exist, an empty name, an address
            beside a user or client id.
    """
    found: dict[EntityType, EntityName] = {}
    given = dict(names)
    if not given:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in given.items():
        try:
            entity_type = EntityType(kind)
        except ValueError:
            raise _invalid(f"Unhandled client quota entity type: {kind}") from None
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        found[entity_type] = DEFAULT if name is None else name
    if EntityType.IP in found and len(found) > 1:
        raise _invalid("Invalid quota entity combination, IP entity should not be used with user/client ID entity.")
    return QuotaEntity(found.get(EntityType.USER), found.get(EntityType.CLIENT_ID), found.get(EntityType.IP))


def altered(entity: QuotaEntity, stored: Mapping[str, str], alterations: Iterable[Alteration]) -> dict[str, str]:
    """The values that are stored afterwards.

    A percentage or a mutation rate below 0 is stored as it is: Apache Kafka does not refuse it.

    Raises:
        KafkaError: INVALID_REQUEST: a key that the entity does not have; a fraction, or a number below 0, where the
            key is a whole number.
    """
    values = dict(stored)
    for key, value in alterations:
        if value is None:
            values.pop(key, None)
            continue
        known = entity.keys.get(key)
        if known is None:
            raise _invalid(f"Invalid configuration key {key}")
        values[key] = _text(key, value, known.number_type)
    return values


def parse_bounds(entity: QuotaEntity, values: Mapping[str, str]) -> tuple[dict[str, float], list[str]]:
    """The bounds that stored values give, by key, and what is wrong with the others. Unknown keys are left alone.

    >>> parse_bounds(QuotaEntity(user="a"), {"producer_byte_rate": "1024", "request_percentage": "x", "SCRAM": "s"})
    ({'producer_byte_rate': 1024.0}, ["request_percentage: 'x' is no number"])
    >>> parse_bounds(QuotaEntity(ip=DEFAULT), {"connection_creation_rate": "NaN"})
    ({}, ["connection_creation_rate: 'NaN' is no whole number"])
    """
    found: dict[str, float] = {}
    problems = []
    for name, key in entity.keys.items():
        if name in values:
            is_whole = key.number_type is not NumberType.DOUBLE
            bound = whole_number(values[name]) if is_whole else double_number(values[name])
            if bound is not None:
                found[name] = float(bound)
            else:
                problems.append(f"{name}: {values[name]!r} is no {'whole ' if is_whole else ''}number")
    return found, problems


def java_double(value: float) -> str:
    """A double as Java writes it, so that the store has what Apache Kafka would have written.

    >>> java_double(50.0), java_double(1.5), java_double(12345678.0), java_double(0.00025), java_double(1e7)
    ('50.0', '1.5', '1.2345678E7', '2.5E-4', '1.0E7')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _LOWEST_SCIENTIFIC <= abs(value) < _HIGHEST_SCIENTIFIC:
        return repr(value)
    texts = (f"{value:.{precision}e}" for precision in range(1, 17))
    mantissa, _, exponent = next(text for text in texts if float(text) == value).partition("e")
    return f"{mantissa}E{int(exponent)}"


def _text(key: str, value: float, number_type: NumberType) -> str:
    limits = _LIMITS.get(number_type)
    if limits is None:
        return java_double(value)
    whole = _java_whole(value + _EPSILON, *limits)
    if abs(whole - value) > _EPSILON:
        raise _invalid(f"Configuration {key} must be a {number_type.value} value")
    return str(whole)


def _java_whole(value: float, lowest: int, highest: int) -> int:
    """Java's conversion of a double to a whole number: not a number is 0, what is too large the largest."""
    if math.isnan(value):
        return 0
    return int(min(max(value, lowest), highest))


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
