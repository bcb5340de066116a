"""What a coordinator needs from the log of its internal topic: a Protocol and its values.

The broker's implementation uses the replica manager; tests use one in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.record import Record
from ottla_broker.storage.log.verification import Verification


class StateRecord(NamedTuple):
    """The key and the value of a record to append; `value` None is a tombstone."""

    key: bytes
    value: bytes | None


class AppendOutcome(NamedTuple):
    """`base_offset` is that of the batch, -1 with an error."""

    error: ErrorCode
    base_offset: int = -1


@dataclass(frozen=True, slots=True)
class LoadedBatch:
    """A batch of the log and its records (decompressed)."""

    base_offset: int
    records: Sequence[Record]
    producer_id: int = -1
    is_transactional: bool = False
    is_control: bool = False


class TransactionalProducer(NamedTuple):
    """A producer with a transactional id, as it names itself in a request."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class VerifiedTransaction(NamedTuple):
    """What the transaction coordinator said of a transaction, or why nobody could say (KIP-890).

    `verification` is None with an error, and when the transaction has begun in the partition already.
    """

    error: ErrorCode
    verification: Verification | None = None


class PlacedAppend(NamedTuple):
    """An append that has its place in the log: `base_offset`, -1 when it was refused."""

    base_offset: int
    outcome: asyncio.Future[AppendOutcome]


class InternalTopicLog(Protocol):
    """The log of one internal topic. `leader_epoch` is the one in which this broker was elected."""

    def append(
        self, partition: int, leader_epoch: int, records: Sequence[StateRecord], *, required_acks: int, timeout_ms: int
    ) -> asyncio.Future[AppendOutcome]:
        """Appends one batch with the current time.

        The batch has its offsets when the call returns, so appends are in the order of calls.

        Returns:
            A future that completes when `required_acks` is met, with the errors of a produce request;
            NOT_LEADER_OR_FOLLOWER when this broker does not lead the partition in that epoch. It does not raise.
        """
        ...

    def read(self, partition: int, leader_epoch: int) -> AsyncGenerator[LoadedBatch, None]:
        """Reads every batch from the log start offset to the log end offset, also above the high watermark.

        Raises:
            OSError, KafkaError: the log cannot be read.
        """
        ...


class CommittedTopicLog(InternalTopicLog, Protocol):
    """The log of `__transaction_state`, whose coordinator serves what is committed alone."""

    async def await_committed(self, partition: int, leader_epoch: int) -> None:
        """Returns once every record that is in the log now is committed: below the high watermark.

        What a new leader has above it may be on this broker alone, and is lost with it.

        Raises:
            KafkaError: this broker is no longer the leader in that epoch.
        """
        ...


class TransactionalTopicLog(InternalTopicLog, Protocol):
    """The log of `__consumer_offsets`, in which producers commit offsets as part of their transactions."""

    def most_bytes(self, partition: int) -> int:
        """An append of more bytes is refused for its size, whatever is in it."""
        ...

    def verify_transaction(
        self, partition: int, leader_epoch: int, producer: TransactionalProducer, *, adds_partition: bool
    ) -> asyncio.Future[VerifiedTransaction]:
        """Asks the transaction coordinator whether the partition belongs to the producer's transaction, unless the
        transaction has begun in the partition, or `transaction.partition.verification.enable` is off. With
        `adds_partition` the coordinator adds the partition to the transaction, whatever that key says (KIP-890).

        Returns:
            A future of the answer: the coordinator's error, COORDINATOR_NOT_AVAILABLE or NETWORK_EXCEPTION when it does
            not answer, NOT_LEADER_OR_FOLLOWER. It does not raise.
        """
        ...

    def append_in_transaction(
        self,
        partition: int,
        leader_epoch: int,
        records: Sequence[StateRecord],
        producer: TransactionalProducer,
        verification: Verification | None,
        *,
        required_acks: int,
        timeout_ms: int,
    ) -> PlacedAppend:
        """As `append`, of a batch in the producer's transaction, which `verify_transaction` has verified.

        INVALID_TXN_STATE when it has not, or a marker has been appended since; INVALID_PRODUCER_EPOCH.
        """
        ...
