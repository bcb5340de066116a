"""Verifies transactions before their first append to a partition (KIP-890), and keeps the batches that wait in order.

A partition's leader asks the transaction coordinator through the `TransactionVerifier`. While it does, every batch of
that producer and epoch for the partition waits here, from any connection; batches of other producers do not.

    A (producer 7)   its transaction is not verified: the coordinator is asked    waiting: A
    B (producer 7)   A first                                                      waiting: A B
    C (producer 8)   its transaction has begun: it is appended
    the coordinator  the partition is in the transaction: A is appended, then B   waiting: nothing

Not here: what a verification protects from (`storage.log.verification`), how the coordinator is asked
(`server.peers.transaction_verifier`).
Source: ReplicaManager.handleProduceAppend and maybeStartTransactionVerificationForPartition of Apache Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.partition import Partition
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.producers import ProducerStates
from ottla_broker.storage.log.verification import TransactionalAppend, Verification, VerificationNeeded


class TransactionVerifier(Protocol):
    """Asks the coordinator of a transactional id."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        adds_partition: bool,
    ) -> asyncio.Future[ErrorCode]:
        """Whether the partition belongs to the producer's open transaction; with `adds_partition` it is added to it.

        Returns:
            A future of NONE, or of the coordinator's error, COORDINATOR_NOT_AVAILABLE when there is none,
            NETWORK_EXCEPTION when it does not answer. INVALID_PRODUCER_EPOCH stands for PRODUCER_FENCED, which
            producers do not expect. It does not raise.
        """
        ...


Outcome: TypeAlias = "TransactionalAppend | KafkaError"
OnVerified: TypeAlias = Callable[[Outcome], None]
"""Gets what the append has to name now, or why there is to be none."""


class _Key(NamedTuple):
    log: Log
    producer_id: int
    producer_epoch: int
    adds_partition: bool


class _Question:
    """What the coordinator is asked, and who waits for the answer."""

    __slots__ = ("leader_epoch", "partition", "producers", "verification", "waiting")

    def __init__(self, partition: Partition, verification: Verification) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.producers = partition.log.state.producers
        self.verification = verification
        self.waiting: list[tuple[OnVerified, bool]] = []

    @property
    def is_outdated(self) -> bool:
        """Another leader may have written since, or another log has taken the place of the one that was checked."""
        return not has_same_producers(self.partition, self.leader_epoch, self.producers)


class TransactionVerification:
    """The batches of one broker that wait for their transactions to be verified."""

    def __init__(self, verifier: TransactionVerifier) -> None:
        self._verifier = verifier
        self._questions: dict[_Key, _Question] = {}

    def __len__(self) -> int:
        """Questions that are not answered yet."""
        return len(self._questions)

    def add(
        self,
        partition: Partition,
        transactional_id: str,
        needed: VerificationNeeded,
        on_verified: OnVerified,
        *,
        knows_abortable: bool,
        adds_partition: bool = False,
    ) -> None:
        """Takes a batch for which `partition.append` raised VerificationNeeded.

        `on_verified` is called once, in the order of the calls of `add` for a partition and producer.
        `knows_abortable`: the client understands TRANSACTION_ABORTABLE. `adds_partition`: the client leaves it to this
        broker to add the partition to the transaction.
        """
        log = partition.log
        producer_id, epoch = needed.producer_id, needed.producer_epoch
        verification = log.begin_verification(producer_id, epoch, needed.base_sequence)
        if verification is None:
            on_verified(TransactionalAppend(adds_partition=adds_partition))
            return
        key = _Key(log, producer_id, epoch, adds_partition)
        question = self._questions.get(key)
        if question is not None and question.verification is verification:
            question.waiting.append((on_verified, knows_abortable))
            return
        question = self._questions[key] = _Question(partition, verification)
        question.waiting.append((on_verified, knows_abortable))
        answer = self._verifier.verify(
            transactional_id, producer_id, epoch, partition.topic_partition, adds_partition=adds_partition
        )
        answer.add_done_callback(partial(self._on_answer, key, question))

    def _on_answer(self, key: _Key, question: _Question, answer: asyncio.Future[ErrorCode]) -> None:
        if self._questions.get(key) is question:
            del self._questions[key]
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER if answer.cancelled() or question.is_outdated else answer.result()
        for on_verified, knows_abortable in question.waiting:
            on_verified(
                TransactionalAppend(question.verification, adds_partition=key.adds_partition)
                if error is ErrorCode.NONE
                else produce_refusal(error, knows_abortable=knows_abortable)
            )


def has_same_producers(partition: Partition, leader_epoch: int, producers: ProducerStates) -> bool:
    """Whether the broker still leads in that epoch, with the producers' state that a verification was begun in."""
    return partition.is_leader and partition.leader_epoch == leader_epoch and partition.log.state.producers is producers


def known_to_client(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """TRANSACTION_ABORTABLE has been known since Produce 11 and TxnOffsetCommit 4; before, it is INVALID_TXN_STATE.

    >>> known_to_client(ErrorCode.TRANSACTION_ABORTABLE, knows_abortable=False).name
    'INVALID_TXN_STATE'
    """
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error


_RETRIABLE = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Old producers may not try again after these. NOT_ENOUGH_REPLICAS has all of them do it, without new metadata."""


def produce_refusal(error: ErrorCode, *, knows_abortable: bool) -> KafkaError:
    """What a producer is told when its transaction could not be verified.

    >>> produce_refusal(ErrorCode.NOT_COORDINATOR, knows_abortable=True).code.name
    'NOT_ENOUGH_REPLICAS'
    """
    error = known_to_client(error, knows_abortable=knows_abortable)
    if error is ErrorCode.INVALID_TXN_STATE:
        return not_in_transaction()
    if error in _RETRIABLE:
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}",
        )
    return KafkaError(error)


def not_in_transaction() -> KafkaError:
    """INVALID_TXN_STATE: the coordinator says so, or a marker came before its answer."""
    return KafkaError(ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction")
