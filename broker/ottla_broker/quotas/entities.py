"""QuotaEntity: whom a quota is for, and the keys that may be set for it. Pure.

Source: org.apache.kafka.common.quota.ClientQuotaEntity, org.apache.kafka.server.config.QuotaConfigs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias


class Default(Enum):
    """The default entity of a type: every name without an entity of its own."""

    DEFAULT = "<default>"


DEFAULT: Final = Default.DEFAULT

EntityName: TypeAlias = "str | Default"


class EntityType(StrEnum):
    """The types of entities, as requests name them."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """A user, a client id, a client id of a user, or an address. None: the entity has no name of that type.

    >>> QuotaEntity(user="alice", client_id=DEFAULT).names
    {<EntityType.USER: 'user'>: 'alice', <EntityType.CLIENT_ID: 'client-id'>: <Default.DEFAULT: '<default>'>}
    """

    user: EntityName | None = None
    client_id: EntityName | None = None
    ip: EntityName | None = None

    @property
    def names(self) -> dict[EntityType, EntityName]:
        """The names that the entity has, by type."""
        every = ((EntityType.USER, self.user), (EntityType.CLIENT_ID, self.client_id), (EntityType.IP, self.ip))
        return {entity_type: name for entity_type, name in every if name is not None}

    @property
    def keys(self) -> Mapping[str, QuotaKey]:
        """The keys that may be set for the entity."""
        return IP_KEYS if self.ip is not None else CLIENT_KEYS


class NumberType(Enum):
    """How the value of a key is stored."""

    LONG = "LONG"
    INT = "INT"
    DOUBLE = "DOUBLE"


@dataclass(frozen=True, slots=True)
class QuotaKey:
    """One key of a quota."""

    name: str
    number_type: NumberType


PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"


def _by_name(*keys: QuotaKey) -> Mapping[str, QuotaKey]:
    return MappingProxyType({key.name: key for key in keys})


CLIENT_KEYS: Final = _by_name(
    QuotaKey(PRODUCER_BYTE_RATE, NumberType.LONG),
    QuotaKey(CONSUMER_BYTE_RATE, NumberType.LONG),
    QuotaKey(REQUEST_PERCENTAGE, NumberType.DOUBLE),
    QuotaKey(CONTROLLER_MUTATION_RATE, NumberType.DOUBLE),
)
"""Keys of users and client ids."""

IP_KEYS: Final = _by_name(QuotaKey(CONNECTION_CREATION_RATE, NumberType.INT))
"""Keys of addresses (KIP-612)."""
