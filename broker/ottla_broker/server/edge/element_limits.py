"""How many elements a request may have: topics, partitions, names; eight numbers of a list count as one. Pure.

Beyond its limit a request is refused while it is read, before its elements take memory: the connection is closed with
one line in the log. No client of Apache Kafka comes near (figures: docs/internals/decisions/0122-turns.md). The limit
of all, ottla.request.max.elements, is five times the largest cluster that Apache Kafka runs with ZooKeeper; an API of
`MOST` is one whose work is not done in turns, and whose requests are short.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla_broker.protocol.api import ApiKey

DEFAULT: Final = 1_000_000
"""Default of ottla.request.max.elements."""

_MEMBERS: Final = 20_000
"""A group of more has no coordinator that could hold its metadata in one record."""

_FILTERS: Final = 1_000
"""There are five states of a group."""

_PARTITIONS: Final = 100_000
"""A broker has some thousand replicas, ten thousand at most."""

_CHANGES: Final = 20_000
"""Apache Kafka's KRaft controller refuses an operation of more than 10 000 records (MAX_RECORDS_PER_USER_OP)."""

MOST: Final[Mapping[int, int]] = {
    ApiKey.FETCH: _PARTITIONS,
    ApiKey.PRODUCE: _PARTITIONS,
    ApiKey.JOIN_GROUP: _FILTERS,
    ApiKey.SYNC_GROUP: _MEMBERS,
    ApiKey.LEAVE_GROUP: _MEMBERS,
    ApiKey.LIST_GROUPS: _FILTERS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _MEMBERS,
    ApiKey.ADD_PARTITIONS_TO_TXN: 5_000,
    ApiKey.CREATE_TOPICS: _CHANGES,
    ApiKey.DELETE_TOPICS: _CHANGES,
    ApiKey.CREATE_PARTITIONS: _CHANGES,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _CHANGES,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _CHANGES,
    ApiKey.WRITE_TXN_MARKERS: _CHANGES,
    ApiKey.ELECT_LEADERS: _CHANGES,
    ApiKey.CREATE_DELEGATION_TOKEN: _FILTERS,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _FILTERS,
    ApiKey.ALTER_CONFIGS: _CHANGES,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _CHANGES,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _FILTERS,
    ApiKey.ALTER_CLIENT_QUOTAS: 5_000,
    ApiKey.UPDATE_FEATURES: _FILTERS,
}
"""By API key."""
