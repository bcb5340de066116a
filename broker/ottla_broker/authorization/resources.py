"""What a right is about: operations, types of resources, patterns of names, permissions. Pure.

The numbers are those of the wire protocol. 0 (UNKNOWN) and 1 (ANY) exist in filters alone.

Source: AclOperation, ResourceType, PatternType, AclPermissionType and AclEntry.supportedOperations of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

CLUSTER_NAME: Final = "kafka-cluster"
"""The only resource of the type Cluster."""

WILDCARD: Final = "*"
"""The name of a literal pattern that matches every name, and the host of an ACL that matches every address."""

NOT_ASKED: Final = -2147483648
"""AuthorizedOperations of a response to a request that does not want them (KIP-430)."""


class _Named(IntEnum):
    @property
    def label(self) -> str:
        """As Apache Kafka writes it in logs and znodes.

        >>> AclOperation.DESCRIBE_CONFIGS.label, ResourceType.TRANSACTIONAL_ID.label
        ('DescribeConfigs', 'TransactionalId')
        """
        return "".join(word.capitalize() for word in self.name.split("_"))


class AclOperation(_Named):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(_Named):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Named):
    """ANY and MATCH exist in filters alone (KIP-290)."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class PermissionType(_Named):
    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS_OF: Final[Mapping[ResourceType, tuple[AclOperation, ...]]] = MappingProxyType(
    {
        ResourceType.TOPIC: (
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.CREATE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        ),
        ResourceType.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE),
        ResourceType.CLUSTER: (
            AclOperation.CREATE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.CLUSTER_ACTION,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE,
        ),
        ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
        ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
        ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
    }
)
"""The operations that exist on a resource of each type; an ACL may have ALL as well."""


def operations_of(resource_type: ResourceType) -> tuple[AclOperation, ...]:
    """The operations that exist on a resource; () for ANY."""
    return OPERATIONS_OF.get(resource_type, ())


def mask(*operations: AclOperation) -> int:
    """AuthorizedOperations: bit n stands for the operation of code n (KIP-430).

    >>> mask(AclOperation.READ, AclOperation.DESCRIBE)
    264
    """
    return sum(1 << operation for operation in operations)
