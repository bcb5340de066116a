"""Which entities a DescribeClientQuotas request asks for (KIP-546). Pure.

Source: kafka.server.ZkAdminManager.describeClientQuotas.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.quotas.entities import DEFAULT, EntityName, EntityType, QuotaEntity

_NAMES_IN_MESSAGES = {EntityType.USER: "user", EntityType.CLIENT_ID: "client", EntityType.IP: "ip"}


class MatchType(Enum):
    """How a component of a filter names entities, as on the wire."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class FilterComponent:
    """What a filter wants of one entity type: a name, the default entity, or (None) any name."""

    entity_type: EntityType
    name: EntityName | None

    def accepts(self, name: EntityName | None) -> bool:
        return name is not None if self.name is None else name == self.name


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """The components by type. A strict filter leaves out entities with a type that has no component."""

    components: dict[EntityType, FilterComponent]
    is_strict: bool

    def accepts(self, entity: QuotaEntity) -> bool:
        """Whether the entity is asked for."""
        wants_ip = EntityType.IP in self.components
        if entity.ip is not None:
            return self._accepts(EntityType.IP, entity.ip) and (wants_ip or not self.components)
        if wants_ip:
            return False
        return self._accepts(EntityType.USER, entity.user) and self._accepts(EntityType.CLIENT_ID, entity.client_id)

    def _accepts(self, entity_type: EntityType, name: EntityName | None) -> bool:
        component = self.components.get(entity_type)
        if component is None:
            return name is None or not self.is_strict
        return component.accepts(name)


def parse_filter(components: Iterable[tuple[str, int, str | None]], is_strict: bool) -> QuotaFilter:
    """The filter of a request: (entity type, match type, name) of each component.

    Raises:
        KafkaError: for each component INVALID_REQUEST (a match type that does not exist, an exact match without a
            name); for each component INVALID_REQUEST (an empty type), UNSUPPORTED_VERSION (a type that does not
            exist), INVALID_REQUEST (a type twice); INVALID_REQUEST (ip beside user or client-id).
    """
    given = [(kind, _match_type(number), name) for kind, number, name in components]
    for kind, match_type, name in given:
        if match_type is MatchType.EXACT and name is None:
            raise _invalid(f"The exact match of entity type '{kind}' has no name")
    found: dict[EntityType, FilterComponent] = {}
    for kind, match_type, name in given:
        entity_type = _entity_type(kind)
        if entity_type in found:
            raise _invalid(f"Duplicate {_NAMES_IN_MESSAGES[entity_type]} filter component entity type")
        wanted: EntityName | None = name if match_type is MatchType.EXACT else None
        found[entity_type] = FilterComponent(entity_type, DEFAULT if match_type is MatchType.DEFAULT else wanted)
    if EntityType.IP in found and len(found) > 1:
        raise _invalid(
            "Invalid entity filter component combination, IP filter component should not be used with user or clientId "
            "filter component."
        )
    return QuotaFilter(found, is_strict)


def _match_type(number: int) -> MatchType:
    try:
        return MatchType(number)
    except ValueError:
        raise _invalid(f"Match type {number} does not exist") from None


def _entity_type(kind: str) -> EntityType:
    if not kind:
        raise _invalid("Unexpected empty filter component entity type")
    try:
        return EntityType(kind)
    except ValueError:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported") from None


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
