"""The operations that exist on a resource, as the bit mask of AuthorizedOperations (KIP-430).

Bit n stands for the AclOperation of code n. Without an authorizer every client may do everything that a resource type
has, so these masks are the whole answer. Pure.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

NOT_ASKED: Final = -2147483648
"""AuthorizedOperations of a response to a request that does not want them."""


class AclOperation(IntEnum):
    """Codes of the wire protocol."""

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


def mask(*operations: AclOperation) -> int:
    """
    >>> mask(AclOperation.READ, AclOperation.DESCRIBE)
    264
    """
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = mask(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS: Final = mask(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
GROUP_OPERATIONS: Final = mask(AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE)
