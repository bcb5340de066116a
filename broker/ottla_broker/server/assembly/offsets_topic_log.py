"""ReplicatedOffsetsLog: the group coordinator's log, in which producers commit offsets as part of their transactions.

Implements `internal_topics.topic_log.TransactionalTopicLog` with a `ReplicatedTopicLog` and the verification of
transactions (KIP-890).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from ottla_broker.config.topics import CONSUMER_OFFSETS
from ottla_broker.internal_topics.topic_log import (
    PlacedAppend,
    StateRecord,
    TransactionalProducer,
    VerifiedTransaction,
)
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import NO_SEQUENCE, TRANSACTIONAL_MASK
from ottla_broker.records.compression import Codec
from ottla_broker.records.ids import TopicPartition
from ottla_broker.records.record import build_batch, build_records
from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.transaction_verification import TransactionVerifier, has_same_producers
from ottla_broker.server.assembly.internal_topic_log import ReplicatedTopicLog
from ottla_broker.storage.log.producers import ProducerStates
from ottla_broker.storage.log.verification import AppendOrigin, TransactionalAppend, Verification


class ReplicatedOffsetsLog:
    """See `ottla_broker.internal_topics.topic_log.TransactionalTopicLog`."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        clock: Clock,
        verifier: TransactionVerifier,
        *,
        codec: Codec,
        load_bytes: int,
    ) -> None:
        """`load_bytes`: how much of the log is read at a time."""
        self._log = ReplicatedTopicLog(CONSUMER_OFFSETS, replica_manager, clock, codec=codec, load_bytes=load_bytes)
        self._clock = clock
        self._verifier = verifier
        self._codec = codec
        self.append = self._log.append
        self.most_bytes = self._log.most_bytes
        self.read = self._log.read
        self.await_committed = self._log.await_committed

    def verify_transaction(
        self, partition: int, leader_epoch: int, producer: TransactionalProducer, *, adds_partition: bool
    ) -> asyncio.Future[VerifiedTransaction]:
        future: asyncio.Future[VerifiedTransaction] = self._clock.create_future()
        try:
            replica = self._log.leader(partition, leader_epoch)
        except KafkaError as error:
            future.set_result(VerifiedTransaction(error.code))
            return future
        log = replica.log
        verification = None
        if log.state.config.verifies_transactions or adds_partition:
            verification = log.begin_verification(producer.producer_id, producer.producer_epoch, NO_SEQUENCE)
        if verification is None:
            future.set_result(VerifiedTransaction(ErrorCode.NONE))
            return future
        name = TopicPartition(CONSUMER_OFFSETS, partition)
        answer = self._verifier.verify(*producer, name, adds_partition=adds_partition)
        answer.add_done_callback(partial(_pass_on, future, verification, replica, leader_epoch, log.state.producers))
        return future

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
        batch = build_batch(
            build_records(records, self._clock.now_ms()),
            codec=self._codec,
            attributes=TRANSACTIONAL_MASK,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,  # as Apache Kafka's; nobody checks it
        )
        transaction = TransactionalAppend(
            verification, AppendOrigin.COORDINATOR, adds_partition=verification is not None
        )
        return self._log.append_batch(partition, leader_epoch, batch, transaction, required_acks, timeout_ms)


def _pass_on(
    future: asyncio.Future[VerifiedTransaction],
    verification: Verification,
    replica: Partition,
    leader_epoch: int,
    producers: ProducerStates,
    answer: asyncio.Future[ErrorCode],
) -> None:
    if future.done():
        return
    if answer.cancelled() or not has_same_producers(replica, leader_epoch, producers):
        future.set_result(VerifiedTransaction(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    elif (error := answer.result()) is not ErrorCode.NONE:
        future.set_result(VerifiedTransaction(error))
    else:
        future.set_result(VerifiedTransaction(error, verification))
