"""Verification of transactions before their first append to a log (KIP-890). Pure.

A batch that was delayed in the network could reach the log after its transaction has ended, and would open a new one
there that nobody ends: a hanging transaction. So before the first append of a transaction the leader asks the
transaction coordinator whether the partition belongs to the transaction. The answer may be outdated when it comes, for
a marker may have been appended meanwhile. So each question has a `Verification`, and the append names it: a marker, or
the first append, ends it, and then it verifies nothing any more.

    append of producer 7   no open transaction: VerificationNeeded
    begin                  verification A; the coordinator is asked
    marker of producer 7   A ends
    the coordinator: yes   append with A: A is not the verification of producer 7, nothing is appended

It also holds the lowest sequence that came without being appended: when that batch is refused and a later one verified,
the later one must not be appended before it.
Source: VerificationGuard, VerificationStateEntry, ProducerStateManager and UnifiedLog of Apache Kafka.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.storage.log.lowest_sequence import LowestSequence, is_before


class AppendOrigin(Enum):
    """Who appends a batch of a transaction."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    """The group coordinator, for a client that commits offsets: the sequence is not checked."""


class Verification:
    """One verification of a producer's transaction; compared by identity."""

    __slots__ = ("lowest", "started_ms")

    def __init__(self, producer_epoch: int, sequence: int, started_ms: int) -> None:
        self.lowest = LowestSequence(producer_epoch, sequence)
        """Of the batches that wait for it, or were refused while it lasts."""
        self.started_ms = started_ms


class TransactionalAppend(NamedTuple):
    """What an append says about its transaction. `verification`: of the producer, None when there was no need.

    `adds_partition`: the producer does not add the partition to its transaction, the leader has the coordinator do it
    (KIP-890). So a first append needs the coordinator whatever transaction.partition.verification.enable says.
    """

    verification: Verification | None = None
    origin: AppendOrigin = AppendOrigin.CLIENT
    adds_partition: bool = False


FROM_CLIENT = TransactionalAppend()
"""A produce request with a transactional id; nothing has been verified yet."""

FROM_CLIENT_THAT_ADDS_NOTHING = TransactionalAppend(adds_partition=True)
"""The same of Produce 12 or above: the partition is added to the transaction."""


class VerificationNeeded(Exception):
    """A batch that would begin a transaction which is not verified: `replication.transaction_verification` takes it.

    An exception because it is rare, and so costs an ordinary append nothing.
    """

    def __init__(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        super().__init__(f"producer {producer_id} epoch {producer_epoch} is not verified")
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence


class Verifications:
    """The verifications of one log, by producer id."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}

    def __len__(self) -> int:
        return len(self._by_producer)

    def begin(self, producer_id: int, producer_epoch: int, sequence: int, now_ms: int) -> Verification:
        """The producer's verification, which is a new one unless one is under way."""
        found = self._by_producer.get(producer_id)
        if found is None:
            found = self._by_producer[producer_id] = Verification(producer_epoch, sequence, now_ms)
        else:
            found.lowest.add(producer_epoch, sequence)
        return found

    def check(self, producer_id: int, producer_epoch: int, sequence: int, transaction: TransactionalAppend) -> None:
        """Checks a batch that would begin a transaction.

        Raises VerificationNeeded, and KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER when an earlier batch is still missing.
        """
        known = self._by_producer.get(producer_id)
        if known is None or known is not transaction.verification:
            raise VerificationNeeded(producer_id, producer_epoch, sequence)
        if transaction.origin is AppendOrigin.CLIENT and is_before(known.lowest.sequence, sequence):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} epoch {producer_epoch}: sequence {sequence} comes before "
                f"{known.lowest.sequence} is appended",
            )

    def end(self, producer_id: int) -> None:
        """The producer's transaction has begun in this log, or a marker has ended it."""
        self._by_producer.pop(producer_id, None)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets those whose batches were never appended."""
        for producer_id in [
            producer_id
            for producer_id, verification in self._by_producer.items()
            if now_ms - verification.started_ms >= expiration_ms
        ]:
            del self._by_producer[producer_id]
