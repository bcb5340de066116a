"""The transaction coordinator of one broker: which transactional ids it has, loading and unloading, their requests.

Thin: rules are in `machine.py` and `markers.py`; this module finds the transactional id, appends its records, awaits
them and sends markers. A transactional id belongs to a partition of `__transaction_state`; whoever leads the partition
coordinates it. Ports used: Clock. The log is a `CommittedTopicLog`, the way to other brokers a `PartitionLeaders`.

The order that a transaction depends on:

    EndTxn ─▶ append PrepareCommit ─▶ committed ─▶ answer ─▶ markers ─▶ append CompleteCommit ─▶ committed

No marker is sent before the outcome is committed in `__transaction_state`. From there on nothing changes it, and each
step is repeated until it succeeds or the partition moves away; then the next coordinator repeats it.

`partitions` has the partitions that this broker leads, and loads them (`internal_topics.owned_partitions`). A partition
is served when everything in its log is committed. Apache Kafka does not wait: what it answers, or writes as a marker,
may rest on a record that is on the new leader alone; if that is lost too, the coordinator after it knows nothing of it.
The leader epoch is the coordinator epoch in markers. What was begun for a partition that has been unloaded since ends
with NOT_COORDINATOR.

Source: kafka.coordinator.transaction.TransactionCoordinator and TransactionStateManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ottla_broker.config import BrokerConfig
from ottla_broker.config.topics import TRANSACTION_STATE
from ottla_broker.internal_topics.owned_partitions import OwnedPartition, OwnedPartitions, PartitionContent
from ottla_broker.internal_topics.topic_log import AppendOutcome, CommittedTopicLog, StateRecord
from ottla_broker.metrics import Metrics
from ottla_broker.ports.clock import Clock, Timer
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.transactions.decisions import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    Answer,
    Decision,
    NeedsProducerId,
    ProducerIdAndEpoch,
    TransactionMetadata,
    Transition,
)
from ottla_broker.transactions.machine import Transaction
from ottla_broker.transactions.marker_sender import MarkerSender, MarkersHere, PartitionLeaders
from ottla_broker.transactions.markers import Marker, MarkerOutcome
from ottla_broker.transactions.metrics import TransactionMetrics
from ottla_broker.transactions.record_errors import OF_TRANSACTION_RECORD
from ottla_broker.transactions.records import fits_a_record, transaction_record, transaction_tombstone
from ottla_broker.transactions.replay import TransactionReplay
from ottla_broker.transactions.states import ENDING_STATES, STATE_NAMES, TransactionState

logger = logging.getLogger("ottla.transactions")

APPEND_RETRY_S = 0.1
"""Pause before a completion that could not be stored is appended again."""
END_WAIT_S = 0.1
"""How long a producer that begins its next transaction waits for the markers of the last one, before it is told to try
again. The Java producer does after 20 ms. Apache Kafka 4 waits as long for producers of transaction.version 2
(add.partitions.to.txn.retry.backoff.max.ms)."""
IDS_PER_TURN = 10_000
"""The searches for timed out transactions and expired ids do so after so many."""
TOMBSTONE_BATCH_BYTES = 16_384
"""Keys of expired transactional ids in one batch."""


_CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Broker configuration of transactions; every field is named after its key."""

    transaction_max_timeout_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transactional_id_expiration_ms: int
    transaction_state_log_num_partitions: int
    transaction_two_phase_commit_enable: bool
    request_timeout_ms: int

    @staticmethod
    def from_config(config: BrokerConfig) -> TransactionConfig:
        """The values of a broker."""
        return TransactionConfig(
            config.transaction_max_timeout_ms,
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
            config.transactional_id_expiration_ms,
            config.transaction_state_log_num_partitions,
            config.transaction_two_phase_commit_enable,
            config.request_timeout_ms,
        )


class ProducerAnswer(NamedTuple):
    """The answer to EndTxn 5; with an error there is neither id nor epoch."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class InitializeAnswer(NamedTuple):
    """The answer to InitProducerId; with an error there is neither id nor epoch."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    ongoing: ProducerIdAndEpoch = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    """Of the transaction that was kept (KIP-939)."""


class TransactionListing(NamedTuple):
    """One line of ListTransactions."""

    transactional_id: str
    producer_id: int
    state: TransactionState


_OwnedPartition: TypeAlias = OwnedPartition[dict[str, Transaction]]
"""Its transactions, by their transactional ids. Markers of an earlier load count no more."""


class TransactionCoordinator:
    """Made once per broker.

    Args:
        markers_here: the partitions that this broker leads; None: markers for them are sent as those for others.
        next_producer_id: gives an id that no producer has; raises KafkaError with the error for the producer.
        partition_count: how many partitions `__transaction_state` has, 0 while it does not exist (then
            `transaction.state.log.num.partitions` counts), None while it is not known (then every id is loading).
        finalized_version: the level of transaction.version; from 1 on records have version 1.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        log: CommittedTopicLog,
        leaders: PartitionLeaders,
        markers_here: MarkersHere | None = None,
        metrics: Metrics,
        config: BrokerConfig,
        next_producer_id: Callable[[], Awaitable[int]],
        partition_count: Callable[[], int | None],
        finalized_version: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._log = log
        self._config = TransactionConfig.from_config(config)
        self._next_producer_id = next_producer_id
        self._finalized_version = finalized_version
        self._sender = MarkerSender(clock, leaders, self._on_marker_outcome, markers_here)
        self._ends: dict[Transaction, dict[asyncio.Future[None], None]] = {}
        """Who waits for the end of the transaction."""
        self._is_active = False
        self._timers: dict[str, Timer] = {}
        self._append_retries = 0
        self._oldest_start_ms: int | None = None
        """When the oldest transaction began that has not ended, as the last search for timed out ones has found it."""
        self._metrics = TransactionMetrics(
            metrics, lambda: self._sender.without_leader_count, lambda: self._append_retries, self._longest_open_ms
        )
        content: PartitionContent[dict[str, Transaction], TransactionReplay] = PartitionContent(
            empty=dict,
            replay=TransactionReplay,
            before_serving=lambda owned: log.await_committed(owned.index, owned.leader_epoch),
            restore=_restore,
            serve=self._resume,
            release=self._release,
            count=len,
            observe_load=self._metrics.partition_load.observe,
        )
        count = self._config.transaction_state_log_num_partitions
        self.partitions = OwnedPartitions(
            clock, log, logger, TRANSACTION_STATE, "transactional id", partition_count, count, content
        )

    # Life

    def start(self) -> None:
        self._is_active = True
        config = self._config
        self._repeat(
            "abort timed out transactions",
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            self.abort_timed_out,
        )
        self._repeat(
            "remove expired transactional ids",
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
            self.remove_expired,
        )

    def close(self) -> None:
        """Answers NOT_COORDINATOR from now on."""
        self._is_active = False
        for timer in self._timers.values():
            timer.cancel()
        self.partitions.close()
        self._sender.close()
        self.partitions.log_unloads()

    def on_metadata(self) -> None:
        """The metadata have changed: partitions may have a leader again, or be deleted."""
        self._sender.find_leaders()

    # Requests

    async def initialize(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        *,
        has_two_phases: bool = False,
        keeps_transaction: bool = False,
    ) -> InitializeAnswer:
        """InitProducerId. Errors in order: INVALID_REQUEST (empty id; `expected` with `keeps_transaction`),
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED (transaction.two.phase.commit.enable), INVALID_TRANSACTION_TIMEOUT,
        UNKNOWN_SERVER_ERROR (an id that fits no record), COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, those of
        `Transaction.initialize`; CONCURRENT_TRANSACTIONS when an open transaction had to be aborted first;
        COORDINATOR_NOT_AVAILABLE when the record is not committed.

        Args:
            timeout_ms: the transaction timeout; of no account with `has_two_phases`.
            has_two_phases: Enable2Pc: the transactions of the producer have no timeout (KIP-939).
            keeps_transaction: KeepPreparedTxn.
        """
        if not transactional_id or (keeps_transaction and expected is not None):
            return InitializeAnswer(ErrorCode.INVALID_REQUEST)
        if has_two_phases:
            if not self._config.transaction_two_phase_commit_enable:
                return InitializeAnswer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            timeout_ms = NO_TIMEOUT_MS
        elif not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            return InitializeAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if not fits_a_record(transactional_id):
            return InitializeAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            owned, transaction, decision = await self._decide_initialize(
                transactional_id, timeout_ms, expected, keeps_transaction
            )
            error = await self._carry_out(owned, transaction, decision)
        except KafkaError as failure:
            return InitializeAnswer(failure.code)
        if error is not ErrorCode.NONE:
            return InitializeAnswer(error)
        if not isinstance(decision, Transition) or decision.is_fence:
            return InitializeAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
        metadata = decision.metadata
        if metadata.state is TransactionState.ONGOING:
            ongoing = ProducerIdAndEpoch(metadata.producer_id, metadata.producer_epoch)
            return InitializeAnswer(ErrorCode.NONE, *metadata.producer, ongoing)
        return InitializeAnswer(ErrorCode.NONE, *metadata.producer)

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        transaction_version: int = 0,
        *,
        waits_for_end: bool = False,
    ) -> ErrorCode:
        """AddPartitionsToTxn and AddOffsetsToTxn. With `waits_for_end` a transaction that is ending has END_WAIT_S to
        do so, instead of CONCURRENT_TRANSACTIONS at once. Before the errors of `Transaction.add_partitions`:
        INVALID_REQUEST, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, INVALID_PRODUCER_ID_MAPPING (unknown id)."""
        until = self._clock.monotonic() + END_WAIT_S if waits_for_end else 0.0
        try:
            while True:
                owned, transaction = self._known(transactional_id)
                decision = transaction.add_partitions(
                    producer_id, producer_epoch, partitions, self._clock.now_ms(), transaction_version
                )
                is_ending = transaction.metadata.state in ENDING_STATES
                if not is_ending or not isinstance(decision, Answer) or decision.error is not _CONCURRENT:
                    break
                left_s = until - self._clock.monotonic()
                if left_s <= 0:
                    break
                await self._end_of(transaction, left_s)
            return await self._carry_out(owned, transaction, decision)
        except KafkaError as failure:
            return failure.code

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn with VerifyOnly (KIP-890), with the errors of `add_partitions` and those of
        `Transaction.verify`."""
        try:
            _, transaction = self._known(transactional_id)
        except KafkaError as failure:
            return dict.fromkeys(partitions, failure.code)
        return transaction.verify(producer_id, producer_epoch, partitions)

    async def end(self, transactional_id: str, producer_id: int, producer_epoch: int, *, is_commit: bool) -> ErrorCode:
        """EndTxn: answered when the outcome is committed; the markers follow. Errors as `add_partitions`, and those of
        `Transaction.end`."""
        try:
            owned, transaction = self._known(transactional_id)
            decision = transaction.end(producer_id, producer_epoch, is_commit=is_commit, now_ms=self._clock.now_ms())
            return await self._carry_out(owned, transaction, decision)
        except KafkaError as failure:
            return failure.code

    async def end_with_next_epoch(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, is_commit: bool
    ) -> ProducerAnswer:
        """EndTxn 5 (KIP-890): the same, and what the producer has afterwards. Errors as `add_partitions`, and those of
        `Transaction.end_with_next_epoch`."""
        new_producer_id: int | None = None
        try:
            while True:
                owned, transaction = self._known(transactional_id)
                decision = transaction.end_with_next_epoch(
                    producer_id,
                    producer_epoch,
                    is_commit=is_commit,
                    now_ms=self._clock.now_ms(),
                    new_producer_id=new_producer_id,
                )
                if not isinstance(decision, NeedsProducerId):
                    break
                # Decided again then: everything may have changed meanwhile.
                new_producer_id = await self._next_producer_id()
            # A repeated request hears what the metadata say now; they may change while a record is stored.
            metadata = decision.metadata if isinstance(decision, Transition) else transaction.metadata
            error = await self._carry_out(owned, transaction, decision)
        except KafkaError as failure:
            return ProducerAnswer(failure.code)
        if error is not ErrorCode.NONE:
            return ProducerAnswer(error)
        return ProducerAnswer(ErrorCode.NONE, *metadata.producer_after)

    def describe(self, transactional_id: str) -> tuple[ErrorCode, TransactionMetadata | None]:
        """DescribeTransactions (KIP-664), one id. Errors in order: COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST,
        COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, TRANSACTIONAL_ID_NOT_FOUND."""
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, None
        try:
            transaction = self._owned(transactional_id).state.get(transactional_id)
        except KafkaError as failure:
            return failure.code, None
        if transaction is None:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None
        return ErrorCode.NONE, transaction.metadata

    def list(
        self, producer_ids: Collection[int], states: Collection[TransactionState] | None, duration_ms: int
    ) -> tuple[ErrorCode, list[TransactionListing]]:
        """ListTransactions (KIP-664, KIP-994). Errors in order: COORDINATOR_NOT_AVAILABLE,
        COORDINATOR_LOAD_IN_PROGRESS while any partition is loading.

        Args:
            producer_ids: only those; empty for all.
            states: only those; None for all.
            duration_ms: only those that began longer ago; negative for all.
        """
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        if self.partitions.is_any_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []
        latest_start_ms = self._clock.now_ms() - duration_ms
        return ErrorCode.NONE, [
            TransactionListing(transaction.transactional_id, metadata.producer_id, metadata.state)
            for _, transaction in self._all()
            for metadata in (transaction.metadata,)
            if (not producer_ids or metadata.producer_id in producer_ids)
            and (states is None or metadata.state in states)
            and (duration_ms < 0 or metadata.start_timestamp_ms < latest_start_ms)
        ]

    # Time

    async def abort_timed_out(self) -> None:
        """Aborts every transaction that is open for longer than its timeout, and fences its producer."""
        oldest_ms: int | None = None
        async for owned, transaction in self._turns():
            metadata = transaction.metadata
            if metadata.state is TransactionState.ONGOING or metadata.state in ENDING_STATES:
                began_ms = metadata.start_timestamp_ms
                oldest_ms = began_ms if oldest_ms is None else min(oldest_ms, began_ms)
            decision = transaction.time_out(self._clock.now_ms())
            if decision is not None:
                name = f"abort {transaction.transactional_id}"
                self._clock.spawn(self._store(owned, transaction, decision), name=name)
        self._oldest_start_ms = oldest_ms

    def _longest_open_ms(self) -> float:
        return 0 if self._oldest_start_ms is None else self._clock.now_ms() - self._oldest_start_ms

    async def remove_expired(self) -> None:
        """Removes the transactional ids that were not used for transactional.id.expiration.ms."""
        expiration_ms = self._config.transactional_id_expiration_ms
        batch: list[tuple[Transaction, Transition]] = []
        batch_owned: _OwnedPartition | None = None
        batch_bytes = 0
        async for owned, transaction in self._turns():
            decision = transaction.expire(self._clock.now_ms(), expiration_ms)
            if decision is None:
                continue
            if batch_owned is not None and (owned is not batch_owned or batch_bytes >= TOMBSTONE_BATCH_BYTES):
                self._spawn_removal(batch_owned, batch)
                batch, batch_bytes = [], 0
            batch_owned = owned
            batch.append((transaction, decision))
            batch_bytes += len(transaction.transactional_id)
        if batch_owned is not None:
            self._spawn_removal(batch_owned, batch)

    # Finding

    def _owned(self, transactional_id: str) -> _OwnedPartition:
        """Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR."""
        error, owned = self.partitions.find(transactional_id)
        if owned is None or error is not ErrorCode.NONE:
            raise KafkaError(error)
        return owned

    def _known(self, transactional_id: str) -> tuple[_OwnedPartition, Transaction]:
        """Raises KafkaError: INVALID_REQUEST, those of `_owned`, INVALID_PRODUCER_ID_MAPPING."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        owned = self._owned(transactional_id)
        transaction = owned.state.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return owned, transaction

    async def _decide_initialize(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None, keeps_transaction: bool
    ) -> tuple[_OwnedPartition, Transaction, Decision]:
        """Decides, and again when a producer id had to be awaited: everything may have changed meanwhile."""
        producer_id: int | None = None
        while True:
            owned = self._owned(transactional_id)
            now_ms = self._clock.now_ms()
            transaction = owned.state.get(transactional_id)
            if transaction is None and producer_id is not None:
                transaction = Transaction.created(transactional_id, producer_id, timeout_ms, now_ms)
                owned.state[transactional_id] = transaction
            if transaction is not None:
                decision = transaction.initialize(
                    timeout_ms, expected, now_ms, producer_id, keeps_transaction=keeps_transaction
                )
                if not isinstance(decision, NeedsProducerId):
                    return owned, transaction, decision
            producer_id = await self._next_producer_id()

    def _all(self) -> Iterator[tuple[_OwnedPartition, Transaction]]:
        for owned in self.partitions:
            for transaction in owned.state.values():
                yield owned, transaction

    async def _turns(self) -> AsyncIterator[tuple[_OwnedPartition, Transaction]]:
        """Every transactional id that is still here when its turn comes; lets the loop do other work in between."""
        for number, (owned, transaction) in enumerate(list(self._all()), 1):
            if self.partitions.is_current(owned) and owned.state.get(transaction.transactional_id) is transaction:
                yield owned, transaction
            if number % IDS_PER_TURN == 0:
                await self._clock.sleep(0)

    # Storing

    async def _carry_out(self, owned: _OwnedPartition, transaction: Transaction, decision: Decision) -> ErrorCode:
        if isinstance(decision, Answer):
            logger.debug("%s: %s: %s", transaction.transactional_id, decision.error.name, decision.reason)
            return decision.error
        return await self._store(owned, transaction, decision)

    async def _store(self, owned: _OwnedPartition, transaction: Transaction, transition: Transition) -> ErrorCode:
        """Appends the record, waits until it is committed, and goes on with the markers, if it was an outcome."""
        name = transaction.transactional_id
        log = logger.info if transition.is_fence else logger.debug
        log("%s: %s, since %s", name, STATE_NAMES[transition.metadata.state], transition.reason)
        appended = await self._append_metadata(owned, name, transition.metadata)
        if not self.partitions.is_current(owned):
            return ErrorCode.NOT_COORDINATOR
        error = OF_TRANSACTION_RECORD.get(appended, appended)
        if error is not ErrorCode.NONE:
            state = STATE_NAMES[transition.metadata.state]
            logger.warning("%s: %s could not be stored: %s", name, state, appended.name)
        transaction.stored(transition, error)
        if error is ErrorCode.NONE and transaction.metadata.state in ENDING_STATES:
            # The producer hears of the outcome before the markers are appended, one a partition.
            self._clock.call_after_answers(self._begin_markers, owned, transaction)
        return error

    async def _store_completion(self, owned: _OwnedPartition, transaction: Transaction, transition: Transition) -> None:
        """The same for a record that is appended again until it is committed."""
        name, state = transaction.transactional_id, STATE_NAMES[transition.metadata.state]
        while True:
            error = await self._append_metadata(owned, name, transition.metadata)
            if not self.partitions.is_current(owned):
                return
            if error is ErrorCode.NONE:
                break
            logger.warning("%s: %s could not be stored, trying again: %s", name, state, error.name)
            self._append_retries += 1
            try:
                await self._clock.sleep(APPEND_RETRY_S)
            finally:
                self._append_retries -= 1
            if not self.partitions.is_current(owned):
                return
        transaction.stored(transition, ErrorCode.NONE)
        logger.debug("%s: %s", name, state)
        self._on_end(transaction)

    async def _append_metadata(
        self, owned: _OwnedPartition, transactional_id: str, metadata: TransactionMetadata
    ) -> ErrorCode:
        record = transaction_record(transactional_id, metadata, self._finalized_version())
        # A transaction without timeout does not have its producer wait for weeks.
        timeout_ms = min(metadata.timeout_ms, self._config.transaction_max_timeout_ms)
        return (await self._append(owned, [record], timeout_ms)).error

    def _append(
        self, owned: _OwnedPartition, records: Sequence[StateRecord], timeout_ms: int
    ) -> asyncio.Future[AppendOutcome]:
        """Records of transactions are always written with acks=all."""
        return self._log.append(owned.index, owned.leader_epoch, records, required_acks=-1, timeout_ms=timeout_ms)

    def _spawn_removal(self, owned: _OwnedPartition, batch: Sequence[tuple[Transaction, Transition]]) -> None:
        name = f"remove transactional ids of {TRANSACTION_STATE}-{owned.index}"
        self._clock.spawn(self._remove(owned, batch), name=name)

    async def _remove(self, owned: _OwnedPartition, batch: Sequence[tuple[Transaction, Transition]]) -> None:
        tombstones = [transaction_tombstone(transaction.transactional_id) for transaction, _ in batch]
        error = (await self._append(owned, tombstones, self._config.request_timeout_ms)).error
        if not self.partitions.is_current(owned):
            return
        for transaction, transition in batch:
            transaction.stored(transition, error)
            if error is ErrorCode.NONE:
                del owned.state[transaction.transactional_id]
        text = "%d expired transactional ids of %s-%d: %s"
        logger.info(text, len(batch), TRANSACTION_STATE, owned.index, "removed" if not error else error.name)

    async def _end_of(self, transaction: Transaction, limit_s: float) -> None:
        """Returns when the transaction has ended, its partition is unloaded, or the time is over."""
        future: asyncio.Future[None] = self._clock.create_future()
        timer = self._clock.call_later(limit_s, _wake, future)
        waiting = self._ends.setdefault(transaction, {})
        waiting[future] = None
        try:
            await future
        finally:
            timer.cancel()
            waiting.pop(future, None)
            if not waiting and self._ends.get(transaction) is waiting:
                del self._ends[transaction]

    def _on_end(self, transaction: Transaction) -> None:
        for future in self._ends.pop(transaction, ()):
            _wake(future)

    # Markers

    def _begin_markers(self, owned: _OwnedPartition, transaction: Transaction) -> None:
        """Sends the markers of an outcome, unless the partition was unloaded since: its next coordinator does then."""
        if self.partitions.is_current(owned):
            self._send_markers(owned, transaction, transaction.metadata.partitions)

    def _send_markers(
        self,
        owned: _OwnedPartition,
        transaction: Transaction,
        partitions: Iterable[TopicPartition],
        *,
        later: bool = False,
    ) -> None:
        metadata = transaction.metadata
        marker = Marker(
            owned.index,
            transaction.transactional_id,
            metadata.producer_id,
            metadata.producer_epoch,
            owned.leader_epoch,
            metadata.state is TransactionState.PREPARE_COMMIT,
            tuple(sorted(partitions)),
            metadata.transaction_version,
            owned.load_number,
        )
        if later:
            self._sender.send_later(marker)
        elif marker.partitions:
            self._sender.send(marker)
        else:
            self._complete(owned, transaction)

    def _on_marker_outcome(self, marker: Marker, outcome: MarkerOutcome) -> None:
        owned = self.partitions.get(marker.coordinator_partition)
        transaction = None if owned is None else owned.state.get(marker.transactional_id)
        if owned is None or transaction is None or marker.load_number != owned.load_number:
            return  # the partition was unloaded while the request was under way
        name = marker.transactional_id
        if outcome.is_cancelled:
            # Whoever raised the epoch there ends the transaction.
            logger.warning("%s: no more markers are sent: %s", name, outcome.reason)
            return
        if outcome.reason:
            logger.info("%s: markers: %s", name, outcome.reason)
        if outcome.done:
            transaction.markers_written(outcome.done)
        if outcome.retry:
            self._send_markers(owned, transaction, outcome.retry, later=True)
        if not transaction.metadata.partitions:
            self._complete(owned, transaction)

    def _complete(self, owned: _OwnedPartition, transaction: Transaction) -> None:
        transition = transaction.complete(self._clock.now_ms())
        name = f"complete {transaction.transactional_id}"
        self._clock.spawn(self._store_completion(owned, transaction, transition), name=name)

    # Loading

    def _resume(self, owned: _OwnedPartition) -> None:
        """Sends the markers that the coordinator before has not sent."""
        for transaction in list(owned.state.values()):
            if transaction.metadata.state in ENDING_STATES:
                self._send_markers(owned, transaction, transaction.metadata.partitions)

    def _release(self, owned: _OwnedPartition) -> None:
        self._sender.remove(owned.index)
        for transaction in owned.state.values():
            self._on_end(transaction)

    # Background tasks

    def _repeat(self, name: str, interval_ms: int, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        def fire() -> None:
            self._clock.spawn(act(), name=name)
            self._repeat(name, interval_ms, act)

        self._timers[name] = self._clock.call_later(interval_ms / 1000, fire)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _restore(owned: _OwnedPartition, replay: TransactionReplay) -> None:
    for transactional_id, metadata in replay.found.items():
        owned.state[transactional_id] = Transaction(transactional_id, metadata)
