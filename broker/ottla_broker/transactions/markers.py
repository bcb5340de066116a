"""The markers of a transaction, as values: what is sent, and what a leader's response means for each partition. Pure.

Source: kafka.coordinator.transaction.TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class Marker:
    """The outcome of one transaction, for some of its partitions: an entry of WriteTxnMarkers."""

    coordinator_partition: int
    """Of `__transaction_state`, where the transactional id belongs."""
    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int = 0
    """Of the transaction; from 2 on `producer_epoch` is above the epoch of its records (KIP-890)."""
    load_number: int = 0
    """Of the load of the coordinator's partition that the marker comes from; not sent."""


class PartitionOutcome(Enum):
    """What becomes of a partition after the response of its leader."""

    DONE = "done"
    """The marker is written, or the partition can have no records of the transaction."""
    RETRY = "retry"
    """The marker is sent again, to the leader by then."""
    CANCEL = "cancel"
    """A newer producer epoch or coordinator is known there: this coordinator ends no more of the transaction."""


_OUTCOMES = MappingProxyType(
    {
        ErrorCode.NONE: PartitionOutcome.DONE,
        # The producer could not write there either.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: PartitionOutcome.DONE,
        ErrorCode.UNSUPPORTED_VERSION: PartitionOutcome.DONE,
        ErrorCode.INVALID_PRODUCER_EPOCH: PartitionOutcome.CANCEL,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: PartitionOutcome.CANCEL,
    }
)


def partition_outcome(error: ErrorCode) -> PartitionOutcome:
    """After any other error the marker is sent again. Apache Kafka's sender gives up after those that should not be
    (CORRUPT_MESSAGE); but a partition without its marker stays blocked for read_committed consumers.

    >>> partition_outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER).value, partition_outcome(ErrorCode.NONE).value
    ('retry', 'done')
    """
    return _OUTCOMES.get(error, PartitionOutcome.RETRY)


@dataclass(frozen=True, slots=True)
class MarkerOutcome:
    """What a response, or the lack of one, means for one marker."""

    done: tuple[TopicPartition, ...] = ()
    retry: tuple[TopicPartition, ...] = ()
    is_cancelled: bool = False
    reason: str = ""
    """Why not all are done, for the log."""


def marker_outcome(marker: Marker, errors: Mapping[TopicPartition, ErrorCode]) -> MarkerOutcome:
    """A partition that the response lacks is sent again."""
    by_outcome: dict[PartitionOutcome, list[TopicPartition]] = {one: [] for one in PartitionOutcome}
    reasons = []
    for partition in marker.partitions:
        error = errors.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        by_outcome[partition_outcome(error)].append(partition)
        if error is not ErrorCode.NONE:
            reasons.append(f"{partition} {error.name}")
    return MarkerOutcome(
        tuple(by_outcome[PartitionOutcome.DONE]),
        tuple(by_outcome[PartitionOutcome.RETRY]),
        bool(by_outcome[PartitionOutcome.CANCEL]),
        ", ".join(reasons),
    )
