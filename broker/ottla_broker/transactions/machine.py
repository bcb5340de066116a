"""The state machine of one transactional id. Everything that affects its state happens here.

Pure: requests, the time and outcomes of writes go in, a decision comes out (`decisions.py`); no clock, no await.

Rules
- The states and what they answer stand in `states.py`; a transition that its table lacks is an assertion.
- One transition at a time: from its decision until it is `stored`, everything that would change the state gets
  CONCURRENT_TRANSACTIONS. The metadata change when the record is committed, never before.
- The exception is the epoch of a fence: it counts from the decision on, so that the producer that is fenced cannot
  commit meanwhile. If the record cannot be stored, the next fence uses the same epoch: no producer ever had it.
- A producer that keeps the open transaction (KIP-939) gets an epoch of its own and may only end it. Records and markers
  go on with the producer id and epoch that the transaction was begun with.
- A transaction without timeout, or one that was kept, is ended by its producer, or aborted by one that initializes and
  keeps nothing; never by time, and never by a producer that has been fenced.
- A producer epoch never falls within a producer id. A producer gets at most LAST_GIVEN_EPOCH; the next
  InitProducerId, or EndTxn of version 2, gives another producer id.
- With transaction.version 2 each end of a transaction raises the epoch (KIP-890): markers have the raised one, so no
  late request of a transaction touches the next one. A request that ends one more time is known by its epoch.

Example: two producers with one transactional id

    in                                  state            out
    InitProducerId (new)                Empty            producer id 7, epoch 0
    AddPartitionsToTxn 7/0 {t-0}        Ongoing          NONE
    InitProducerId (another producer)   PrepareAbort     CONCURRENT_TRANSACTIONS; epoch 1, markers are written
    EndTxn 7/0 (commit)                 PrepareAbort     PRODUCER_FENCED
    markers are written                 CompleteAbort
    InitProducerId (tries again)        Empty            producer id 7, epoch 2

Example: one producer with transaction.version 2

    in                                  state            out
    Produce 7/0 {t-0}                   Ongoing          NONE; the leader of t-0 adds the partition
    EndTxn 7/0 (commit)                 PrepareCommit    NONE, producer id 7, epoch 1; markers of epoch 1 are written
    EndTxn 7/0 (commit, sent again)     PrepareCommit    CONCURRENT_TRANSACTIONS
    markers are written                 CompleteCommit
    EndTxn 7/0 (commit, sent again)     CompleteCommit   NONE, producer id 7, epoch 1
    EndTxn 7/1 (abort)                  PrepareAbort     NONE, producer id 7, epoch 2

Example: two-phase commit with transaction.version 2, the producer is killed when it has prepared

    in                                  state            out
    Produce 7/0 {t-0}                   Ongoing          NONE; the producer stores 7/0 where the decision is made
    InitProducerId (keeps)              Ongoing          producer id 7, epoch 1, and 7/0 for the open transaction
    EndTxn 7/0 (abort)                  Ongoing          PRODUCER_FENCED
    EndTxn 7/1 (commit)                 PrepareCommit    NONE, producer id 7, epoch 2; markers of epoch 1 are written
    markers are written                 CompleteCommit

Source: TransactionMetadata and the decisions of TransactionCoordinator of Apache Kafka, 4.1 for transaction.version 2;
KIP-939, and for what a producer that keeps is given the change that is proposed there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.transactions.decisions import (
    FIRST_VERSION_WITH_EPOCHS,
    LAST_GIVEN_EPOCH,
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Answer,
    Decision,
    NeedsProducerId,
    ProducerIdAndEpoch,
    TransactionMetadata,
    Transition,
)
from ottla_broker.transactions.states import (
    ABORT_ANSWERS,
    ABORT_ANSWERS_2,
    ADD_ANSWERS,
    COMMIT_ANSWERS,
    COMMIT_ANSWERS_2,
    ENDING_STATES,
    EXPIRABLE_STATES,
    INIT_ACTIONS,
    STATE_NAMES,
    EndAnswer,
    InitAction,
    TransactionState,
    can_enter,
)


class Transaction:
    """One transactional id. Create it with `created`, or from a record."""

    def __init__(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        self.transactional_id = transactional_id
        self.metadata = metadata
        self.pending: TransactionState | None = None
        """The state of the transition that is on its way to the log."""
        self._fence: ProducerIdAndEpoch | None = None
        """What a fence has taken that is not stored: no producer has it."""

    @staticmethod
    def created(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
        """A transactional id that has no record yet: `initialize` follows."""
        metadata = TransactionMetadata(producer_id, NO_PRODUCER_EPOCH, timeout_ms, TransactionState.EMPTY, now_ms)
        return Transaction(transactional_id, metadata)

    # Requests

    def initialize(
        self,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        now_ms: int,
        new_producer_id: int | None = None,
        *,
        keeps_transaction: bool = False,
    ) -> Decision | NeedsProducerId:
        """InitProducerId. Errors in order: CONCURRENT_TRANSACTIONS, PRODUCER_FENCED.

        Args:
            timeout_ms: the transaction timeout of the producer; NO_TIMEOUT_MS with Enable2Pc.
            expected: what the producer has, when it continues after an error (KIP-360); None for a new one.
            new_producer_id: one that no producer has, where the last decision was NeedsProducerId.
            keeps_transaction: an open transaction stays open (KeepPreparedTxn, KIP-939).

        Returns:
            A transition that is a fence answers CONCURRENT_TRANSACTIONS once it is stored. One to ONGOING keeps the
            transaction: `TransactionMetadata.producer` is for the producer.
        """
        metadata = self.metadata
        if self.pending is not None:
            return _concurrent(self.pending)
        if expected is not None and not self._is_expected(expected):
            return Answer(ErrorCode.PRODUCER_FENCED, f"the producer id is {metadata.producer_id}")
        action = INIT_ACTIONS[metadata.state]
        if action is InitAction.WAIT:
            return _concurrent(metadata.state)
        if action is InitAction.FENCE:
            if keeps_transaction:
                return self._keep(timeout_ms, now_ms, new_producer_id)
            is_decided_elsewhere = metadata.has_no_timeout or metadata.is_kept
            if expected is not None and is_decided_elsewhere and expected != self._producer:
                # One that was fenced itself, and does not know it, would abort what its successor has prepared.
                return Answer(ErrorCode.PRODUCER_FENCED, f"the producer is {self._producer}")
            return self._fence_producer(now_ms, "a producer initializes")
        return self._next_epoch(timeout_ms, expected, now_ms, new_producer_id)

    def add_partitions(
        self,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        now_ms: int,
        transaction_version: int = 0,
    ) -> Decision:
        """AddPartitionsToTxn and AddOffsetsToTxn. Errors in order: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE (the producer has kept the transaction).

        `transaction_version`: 2 where the leader of a partition adds it for a producer that does not (KIP-890).
        """
        metadata = self.metadata
        refusal = self._refuse_producer(producer_id, producer_epoch)
        if refusal is not None:
            return refusal
        if self.pending is not None:
            return _concurrent(self.pending)
        if self._add_answer is not ErrorCode.NONE:
            kept = ", kept" if metadata.is_kept else ""
            return Answer(self._add_answer, f"the state is {STATE_NAMES[metadata.state]}{kept}")
        is_open = metadata.state is TransactionState.ONGOING
        added = frozenset(partitions)
        if is_open and added <= metadata.partitions:
            return Answer(ErrorCode.NONE, "the partitions are in the transaction")
        return self._prepare(
            replace(
                metadata,
                state=TransactionState.ONGOING,
                partitions=metadata.partitions | added if is_open else added,
                start_timestamp_ms=metadata.start_timestamp_ms if is_open else now_ms,
                last_update_timestamp_ms=now_ms,
                transaction_version=transaction_version,
            ),
            f"{len(added)} partitions are added",
        )

    def verify(
        self, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn with VerifyOnly (KIP-890): which partitions are in the open transaction.

        Errors in order: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE (the
        producer has kept the transaction), per partition TRANSACTION_ABORTABLE. A pending transition does not count:
        the leader of a partition checks again when it appends.
        """
        metadata = self.metadata
        refusal = self._refuse_producer(producer_id, producer_epoch)
        error = self._add_answer if refusal is None else refusal.error
        if error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        return {
            partition: ErrorCode.NONE if partition in metadata.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    def end(self, producer_id: int, producer_epoch: int, *, is_commit: bool, now_ms: int) -> Decision:
        """EndTxn. Errors in order: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
        INVALID_TXN_STATE."""
        metadata = self.metadata
        refusal = self._refuse_producer(producer_id, producer_epoch)
        if refusal is not None:
            return refusal
        if self.pending is not None:
            return _concurrent(self.pending)
        answer = (COMMIT_ANSWERS if is_commit else ABORT_ANSWERS)[metadata.state]
        if answer is EndAnswer.PREPARE:
            state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
            return self._prepare(
                replace(metadata, state=state, last_update_timestamp_ms=now_ms, transaction_version=0),
                f"the producer {'commits' if is_commit else 'aborts'}",
            )
        return self._end_refused(answer)

    def end_with_next_epoch(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        now_ms: int,
        new_producer_id: int | None = None,
    ) -> Decision | NeedsProducerId:
        """EndTxn of transaction.version 2 (KIP-890): `TransactionMetadata.producer_after` is what the producer has
        then. Errors in order: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
        INVALID_TXN_STATE.

        `new_producer_id`: one that no producer has, where the last decision was NeedsProducerId.
        """
        metadata, producer = self.metadata, self._producer
        has_new_id = (
            producer_id == metadata.last_producer_id != producer.producer_id
            and producer_epoch == LAST_GIVEN_EPOCH
            and producer.producer_epoch == 0
            and (metadata.state in ENDING_STATES or metadata.state in ENDING_STATES.values())
        )
        if self._has_next_producer_id(producer_id, producer_epoch):
            return _concurrent(metadata.state)
        if producer_id != producer.producer_id and not has_new_id:
            return self._refuse_producer_id(producer_id)
        answers = (COMMIT_ANSWERS_2 if is_commit else ABORT_ANSWERS_2)[metadata.state]
        if has_new_id or producer_epoch == producer.producer_epoch - 1:
            answer = answers.repeated
        elif producer_epoch == producer.producer_epoch:
            answer = answers.current
        else:
            answer = EndAnswer.FENCED
        if producer.producer_epoch >= MAX_PRODUCER_EPOCH and answer in (EndAnswer.PREPARE, EndAnswer.REPEATED):
            # A fence has taken the epoch that no producer gets: only InitProducerId goes on from there.
            answer = EndAnswer.FENCED
        if answer is EndAnswer.FENCED:
            return self._end_refused(answer)
        if self.pending is not None:
            return _concurrent(self.pending)
        if answer is not EndAnswer.PREPARE:
            return self._end_refused(answer)
        is_last_epoch = producer.producer_epoch >= LAST_GIVEN_EPOCH
        if is_last_epoch and new_producer_id is None:
            return NeedsProducerId(f"epoch {producer.producer_epoch} of producer id {producer_id} is the last")
        next_producer_id, next_producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        if is_last_epoch and new_producer_id is not None:
            next_producer_id, next_producer_epoch = new_producer_id, 0 if metadata.is_kept else NO_PRODUCER_EPOCH
        elif metadata.is_kept:
            next_producer_id, next_producer_epoch = producer.producer_id, producer.producer_epoch + 1
        is_open = metadata.state is TransactionState.ONGOING
        return self._prepare(
            replace(
                metadata,
                state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
                producer_epoch=metadata.producer_epoch + 1,
                last_producer_id=producer.producer_id,
                last_producer_epoch=producer.producer_epoch,
                next_producer_id=next_producer_id,
                next_producer_epoch=next_producer_epoch,
                start_timestamp_ms=metadata.start_timestamp_ms if is_open else now_ms,
                last_update_timestamp_ms=now_ms,
                transaction_version=FIRST_VERSION_WITH_EPOCHS,
            ),
            f"the producer {'commits' if is_commit else 'aborts'}",
        )

    # Time

    def time_out(self, now_ms: int) -> Transition | None:
        """Aborts an open transaction that has taken longer than its timeout, with a raised epoch (KIP-588)."""
        metadata = self.metadata
        if self.pending is not None or metadata.state is not TransactionState.ONGOING or metadata.has_no_timeout:
            return None
        if metadata.start_timestamp_ms + metadata.timeout_ms >= now_ms:
            return None
        return self._fence_producer(now_ms, f"the transaction is open for longer than {metadata.timeout_ms} ms")

    def expire(self, now_ms: int, expiration_ms: int) -> Transition | None:
        """Ends a transactional id that nobody has used for `expiration_ms` (transactional.id.expiration.ms)."""
        metadata = self.metadata
        if self.pending is not None or metadata.state not in EXPIRABLE_STATES:
            return None
        if metadata.last_update_timestamp_ms > now_ms - expiration_ms:
            return None
        return self._prepare(
            replace(metadata, state=TransactionState.DEAD, partitions=frozenset()),
            f"it was not used for {expiration_ms} ms",
        )

    # Markers

    def markers_written(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions have their marker, or need none."""
        assert self.metadata.state in ENDING_STATES, self
        self.metadata = replace(self.metadata, partitions=self.metadata.partitions.difference(partitions))

    def complete(self, now_ms: int) -> Transition:
        """All markers are written."""
        metadata = self.metadata
        assert not metadata.partitions, metadata.partitions
        producer = metadata.producer_after
        target = replace(
            metadata,
            state=ENDING_STATES[metadata.state],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
            last_update_timestamp_ms=now_ms,
        )
        return replace(self._prepare(target, "all markers are written"), is_completion=True)

    # Writes

    def stored(self, transition: Transition, error: ErrorCode) -> None:
        """The record of the pending transition is committed (`error` NONE) or is not; a completion always is."""
        assert self.pending is transition.metadata.state, (self.pending, transition)
        assert error is ErrorCode.NONE or not transition.is_completion, transition
        self.pending = None
        if error is ErrorCode.NONE:
            self.metadata = transition.metadata
            self._fence = None

    def __repr__(self) -> str:
        pending = "" if self.pending is None else f" -> {STATE_NAMES[self.pending]}"
        return f"{self.transactional_id}: {STATE_NAMES[self.metadata.state]}{pending}"

    # Parts

    @property
    def _producer(self) -> ProducerIdAndEpoch:
        """Whose requests are taken."""
        return self._fence or self.metadata.producer

    @property
    def _add_answer(self) -> ErrorCode:
        """Whether partitions are added for the current producer, or verified."""
        metadata = self.metadata
        if metadata.is_kept and metadata.state is TransactionState.ONGOING:
            return ErrorCode.INVALID_TXN_STATE
        return ADD_ANSWERS[metadata.state]

    def _is_expected(self, expected: ProducerIdAndEpoch) -> bool:
        """The producer id is the current one; or the one before it, used up, whose response was lost; or there is none
        yet, and the coordinator has forgotten the transactional id. The epoch is compared later."""
        metadata = self.metadata
        if metadata.producer_epoch == NO_PRODUCER_EPOCH or expected.producer_id == metadata.producer_id:
            return True
        if metadata.is_kept and expected.producer_id == metadata.next_producer_id:
            return True
        if self._has_next_producer_id(*expected):
            return True
        return expected.producer_id == metadata.last_producer_id and expected.producer_epoch >= LAST_GIVEN_EPOCH

    def _refuse_producer(self, producer_id: int, producer_epoch: int) -> Answer | None:
        producer = self._producer
        if self._has_next_producer_id(producer_id, producer_epoch):
            return _concurrent(self.metadata.state)
        if producer_id != producer.producer_id:
            return self._refuse_producer_id(producer_id)
        if producer_epoch != producer.producer_epoch:
            return Answer(ErrorCode.PRODUCER_FENCED, f"the producer epoch is {producer.producer_epoch}")
        return None

    def _refuse_producer_id(self, producer_id: int) -> Answer:
        """Refuses another producer, or one that has begun the transaction before it was kept with a new producer id."""
        has_begun_it = self.metadata.is_kept and producer_id == self.metadata.producer_id
        error = ErrorCode.PRODUCER_FENCED if has_begun_it else ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return Answer(error, f"the producer id is {self._producer.producer_id}")

    def _has_next_producer_id(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer goes on with the producer id from the answer to its EndTxn, before that transaction has
        its markers."""
        metadata = self.metadata
        has_next = metadata.next_producer_id != NO_PRODUCER_ID and metadata.state in ENDING_STATES
        return has_next and metadata.producer_after == (producer_id, producer_epoch)

    def _next_epoch(
        self, timeout_ms: int, expected: ProducerIdAndEpoch | None, now_ms: int, new_producer_id: int | None
    ) -> Decision | NeedsProducerId:
        """KIP-360. `last_producer_epoch` is known only to a producer that named its own, or whose transaction was of
        version 2: a new producer fences the former one's repeated request too."""
        metadata = self.metadata
        producer_id, epoch, last_epoch = metadata.producer_id, metadata.producer_epoch, metadata.last_producer_epoch
        is_new = epoch == NO_PRODUCER_EPOCH
        named = NO_PRODUCER_EPOCH if expected is None else expected.producer_epoch
        is_before = expected is not None and not is_new and named != epoch
        if is_before and named != last_epoch:
            return Answer(ErrorCode.PRODUCER_FENCED, f"the producer epoch is {epoch}")
        if is_before and epoch <= LAST_GIVEN_EPOCH:
            reason = "the producer has the epoch before"
        elif epoch >= LAST_GIVEN_EPOCH:
            if new_producer_id is None:
                return NeedsProducerId(f"epoch {epoch} of producer id {producer_id} is the last")
            producer_id, last_epoch = new_producer_id, named
            epoch = 0
            reason = "the epochs of the former producer id are used up"
        else:
            last_epoch = NO_PRODUCER_EPOCH if expected is None else epoch
            epoch += 1
            reason = "a producer initializes" if expected is None else "a producer continues"
        return self._prepare(
            TransactionMetadata(
                producer_id,
                epoch,
                timeout_ms,
                TransactionState.EMPTY,
                now_ms,
                metadata.start_timestamp_ms,
                last_producer_id=metadata.producer_id,
                last_producer_epoch=last_epoch,
            ),
            reason,
        )

    def _keep(self, timeout_ms: int, now_ms: int, new_producer_id: int | None) -> Decision | NeedsProducerId:
        """The next epoch is for the producer alone: no former one may send a request again. The longer timeout counts:
        what was prepared is never given less time than it had."""
        metadata, producer = self.metadata, self._producer
        if producer.producer_epoch < LAST_GIVEN_EPOCH:
            following = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 1)
        elif new_producer_id is None:
            return NeedsProducerId(f"epoch {producer.producer_epoch} of producer id {producer.producer_id} is the last")
        else:
            following = ProducerIdAndEpoch(new_producer_id, 0)
        target = replace(
            metadata,
            timeout_ms=max(metadata.timeout_ms, timeout_ms),
            next_producer_id=following.producer_id,
            next_producer_epoch=following.producer_epoch,
            last_producer_id=NO_PRODUCER_ID,
            last_producer_epoch=NO_PRODUCER_EPOCH,
            last_update_timestamp_ms=now_ms,
        )
        return self._prepare(target, "a producer initializes and keeps the transaction")

    def _fence_producer(self, now_ms: int, reason: str) -> Transition:
        metadata, producer = self.metadata, self._producer
        fence = self._fence or ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 1)
        assert fence.producer_epoch <= MAX_PRODUCER_EPOCH, fence
        assert can_enter(TransactionState.PREPARE_EPOCH_FENCE, metadata.state), metadata.state
        continues = metadata.transaction_version >= FIRST_VERSION_WITH_EPOCHS and not metadata.is_kept
        self._fence = fence
        self.pending = TransactionState.PREPARE_ABORT
        target = replace(
            metadata,
            state=TransactionState.PREPARE_ABORT,
            producer_epoch=metadata.producer_epoch + 1,
            next_producer_epoch=fence.producer_epoch if metadata.is_kept else NO_PRODUCER_EPOCH,
            # Of version 2 it is the end that raises the epoch: the producer may go on with InitProducerId (KIP-890).
            last_producer_epoch=metadata.producer_epoch if continues else NO_PRODUCER_EPOCH,
            last_update_timestamp_ms=now_ms,
        )
        return Transition(target, reason, is_fence=True)

    def _end_refused(self, answer: EndAnswer) -> Answer:
        """What an EndTxn hears that stores nothing."""
        state = self.metadata.state
        if answer is EndAnswer.REPEATED:
            return Answer(ErrorCode.NONE, f"the state is {STATE_NAMES[state]} already")
        if answer is EndAnswer.IN_PROGRESS:
            return _concurrent(state)
        if answer is EndAnswer.FENCED:
            text = f"the producer epoch is {self._producer.producer_epoch} in state {STATE_NAMES[state]}"
            return Answer(ErrorCode.PRODUCER_FENCED, text)
        return Answer(ErrorCode.INVALID_TXN_STATE, f"the state is {STATE_NAMES[state]}")

    def _prepare(self, target: TransactionMetadata, reason: str) -> Transition:
        assert self.pending is None, self
        assert can_enter(target.state, self.metadata.state), (self.metadata.state, target.state)
        self.pending = target.state
        return Transition(target, reason)


def _concurrent(state: TransactionState) -> Answer:
    return Answer(ErrorCode.CONCURRENT_TRANSACTIONS, f"{STATE_NAMES[state]} is under way")
