"""What goes into the machine of a transactional id and what comes out of it: plain values, nothing else. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.transactions.states import TransactionState

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
MAX_PRODUCER_EPOCH: Final = 2**15 - 1
FIRST_VERSION_WITH_EPOCHS: Final = 2
"""The level of transaction.version from which on every transaction ends with a raised epoch (KIP-890)."""
LAST_GIVEN_EPOCH: Final = MAX_PRODUCER_EPOCH - 1
"""The highest epoch that a producer gets: its transaction can still be aborted with the one above."""
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The transaction timeout of a producer with Enable2Pc: its transactions are ended by itself, or by a producer that
initializes (KIP-939)."""


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """A transactional id as its last record has it."""

    producer_id: int
    producer_epoch: int
    """NO_PRODUCER_EPOCH until the first InitProducerId is stored."""
    timeout_ms: int
    state: TransactionState
    last_update_timestamp_ms: int
    start_timestamp_ms: int = NO_TIMESTAMP
    """When the first partition was added to the transaction, or to the last one of a producer that has initialized
    since: then only in memory, as with Apache Kafka (TransactionMetadata.completeTransitionTo). The record of an empty
    one has NO_TIMESTAMP."""
    partitions: frozenset[TopicPartition] = frozenset()
    """Those in the transaction; while markers are written, those without one."""
    last_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """Producer id and epoch before the last InitProducerId, or EndTxn of version 2, of the same producer: it may send
    the request again (KIP-360, KIP-890). The epoch is not stored: after a failover InitProducerId gives another epoch,
    or PRODUCER_FENCED; EndTxn needs only the producer id, which a record of version 1 has."""
    next_producer_id: int = NO_PRODUCER_ID
    """What the producer gets when the markers are written, with epoch 0 unless there is a `next_producer_epoch`: the
    epochs of `producer_id` are used up."""
    transaction_version: int = 0
    """The level of transaction.version that the producer uses for this transaction (ClientTransactionVersion)."""
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    """Once a producer has kept the transaction (KeepPreparedTxn): it and `next_producer_id` are what that producer has,
    the other two what the records and the markers of the transaction have."""

    @property
    def is_kept(self) -> bool:
        """Whether the transaction is another one's than its records say (KIP-939)."""
        return self.next_producer_epoch != NO_PRODUCER_EPOCH

    @property
    def has_no_timeout(self) -> bool:
        """Whether only producers end its transactions (Enable2Pc)."""
        return self.timeout_ms >= NO_TIMEOUT_MS

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """Whose requests are taken: the newest producer id and epoch that were given, or those of a fence."""
        if self.is_kept:
            return ProducerIdAndEpoch(self.next_producer_id, self.next_producer_epoch)
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def producer_after(self) -> ProducerIdAndEpoch:
        """What the producer has after the transaction that is being ended."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, self.next_producer_epoch if self.is_kept else 0)
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)


@dataclass(frozen=True, slots=True)
class Answer:
    """The request is answered at once: nothing is stored."""

    error: ErrorCode
    reason: str


@dataclass(frozen=True, slots=True)
class Transition:
    """`metadata` is appended to `__transaction_state`; the outcome comes back through `Transaction.stored`."""

    metadata: TransactionMetadata
    reason: str
    is_fence: bool = False
    """It aborts an open transaction with a raised epoch."""
    is_completion: bool = False
    """All markers are written: the record is appended again until it is committed."""


@dataclass(frozen=True, slots=True)
class NeedsProducerId:
    """Asks for the same decision again, with a new producer id."""

    reason: str


Decision: TypeAlias = Answer | Transition
