"""The error that a client gets when a record of a group could not be appended, as Apache Kafka translates it. Pure."""

from __future__ import annotations

from types import MappingProxyType

from ottla_broker.protocol.errors import ErrorCode

_BOTH = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)

OF_GROUP_RECORD = MappingProxyType(
    {
        **_BOTH,
        # The members join again; the record of that generation replaces this one, wherever it ended.
        ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
        **dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    }
)
"""By the error of the append; others are passed on."""

OF_OFFSET_COMMIT = MappingProxyType(
    {
        **_BOTH,
        ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        **dict.fromkeys(_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    }
)
"""By the error of the append; others are passed on."""

OF_CONSUMER_GROUP_RECORD = MappingProxyType(
    {
        **_BOTH,
        ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        **dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    }
)
"""By the error of the append; others are passed on. Source: CoordinatorOperationExceptionHelper."""
