"""Random lives of a transactional id: whatever producers, time, writes and failovers do, its promises hold.

The model knows the log: which records are committed and which may be lost. It holds the machine to
- one outcome for each transaction: markers of both kinds are never written for one;
- the decision is committed before the first marker;
- a producer epoch never falls within a producer id, and no two InitProducerIds give the same one;
- only the newest producer changes anything;
- markers have the producer id of the transaction, and its epoch or the one after it, whoever has kept it;
- what was prepared (KIP-939) is aborted by its newest producer, or by one that initializes and keeps nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.transactions.decisions import (
    LAST_GIVEN_EPOCH,
    NO_TIMEOUT_MS,
    Answer,
    Decision,
    NeedsProducerId,
    ProducerIdAndEpoch,
    TransactionMetadata,
    Transition,
)
from ottla_broker.transactions.machine import Transaction
from ottla_broker.transactions.records import read_value, transaction_record
from ottla_broker.transactions.states import ENDING_STATES, TransactionState, can_enter

PARTITIONS = [TopicPartition("t", index) for index in range(3)]
TIMEOUT_MS = 1_000


@dataclass
class Producer:
    id: int = -1
    epoch: int = -1


class Lives(RuleBasedStateMachine):
    """The coordinator's side of one transactional id, with two producers that both believe to be the one."""

    @initialize(epoch=st.sampled_from([0, LAST_GIVEN_EPOCH - 2]))
    def begin(self, epoch: int) -> None:
        self.now_ms = 1_000
        self.next_producer_id = 8
        self.producers = [Producer(), Producer()]
        first = TransactionMetadata(7, epoch, TIMEOUT_MS, TransactionState.EMPTY, self.now_ms)
        self.log = [first]
        self.committed = 1
        self.transaction = Transaction("id", first)
        self.written: Transition | None = None
        self.on_commit: Producer | None = None
        self.number = 0
        self.outcomes: dict[int, set[TransactionState]] = {}
        self.given = {(7, epoch)}
        self.highest: dict[int, int] = {7: epoch}
        self.refused: set[ProducerIdAndEpoch] = set()
        """Producers that this coordinator has decided to fence."""

    # Requests

    @rule(
        who=st.integers(0, 1),
        continues=st.booleans(),
        keeps=st.booleans(),
        timeout_ms=st.sampled_from([TIMEOUT_MS, NO_TIMEOUT_MS]),
    )
    def initialize_producer(self, who: int, continues: bool, keeps: bool, timeout_ms: int) -> None:
        producer, before = self.producers[who], self.transaction.metadata
        continues = continues and producer.id >= 0 and not keeps
        expected = ProducerIdAndEpoch(producer.id, producer.epoch) if continues else None
        decision = self.transaction.initialize(timeout_ms, expected, self.now_ms, keeps_transaction=keeps)
        if isinstance(decision, NeedsProducerId):
            decision = self.transaction.initialize(
                timeout_ms, expected, self.now_ms, self.next_producer_id, keeps_transaction=keeps
            )
            self.next_producer_id += 1
        if not self.append(decision) or self.written is None:
            return
        if not self.written.is_fence:
            self.on_commit = producer
            return
        assert not keeps
        if expected is not None and (before.has_no_timeout or before.is_kept):
            assert expected == before.producer and expected not in self.refused, "it was fenced itself"
        self.refused.add(before.producer)

    @rule(who=st.integers(0, 1), partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def add_partitions(self, who: int, partitions: set[TopicPartition]) -> None:
        producer, before = self.producers[who], self.transaction.metadata
        appended = self.append(self.transaction.add_partitions(producer.id, producer.epoch, partitions, self.now_ms))
        if appended:
            self.may_append(producer, before)
            assert not before.is_kept

    @rule(who=st.integers(0, 1), is_commit=st.booleans())
    def end(self, who: int, is_commit: bool) -> None:
        producer, before = self.producers[who], self.transaction.metadata
        decision = self.transaction.end(producer.id, producer.epoch, is_commit=is_commit, now_ms=self.now_ms)
        if self.append(decision):
            self.may_append(producer, before)

    @rule(who=st.integers(0, 1), is_commit=st.booleans())
    def end_with_next_epoch(self, who: int, is_commit: bool) -> None:
        """transaction.version 2. The response of a retry may give the epoch too."""
        producer, before = self.producers[who], self.transaction.metadata
        arguments = {"is_commit": is_commit, "now_ms": self.now_ms}
        decision = self.transaction.end_with_next_epoch(producer.id, producer.epoch, **arguments)  # type: ignore[arg-type]
        if isinstance(decision, NeedsProducerId):
            decision = self.transaction.end_with_next_epoch(
                producer.id,
                producer.epoch,
                new_producer_id=self.next_producer_id,
                **arguments,  # type: ignore[arg-type]
            )
            self.next_producer_id += 1
        if self.append(decision):
            self.may_append(producer, before)
            self.on_commit = producer
        elif isinstance(decision, Answer) and decision.error is ErrorCode.NONE:
            assert before.state is (TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT)
            assert before.producer_epoch <= LAST_GIVEN_EPOCH
            producer.id, producer.epoch = before.producer_id, before.producer_epoch

    @rule(passed_ms=st.sampled_from([1, 2 * TIMEOUT_MS]))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        timed_out, before = self.transaction.time_out(self.now_ms), self.transaction.metadata
        if timed_out is not None:
            assert not before.has_no_timeout
            self.refused.add(before.producer)
            self.append(timed_out)

    # Markers

    @precondition(lambda self: self.written is None and self.transaction.metadata.state in ENDING_STATES)
    @rule(count=st.integers(1, 3))
    def write_markers(self, count: int) -> None:
        metadata = self.transaction.metadata
        decided = [one.state for one in self.log[: self.committed] if one.state in ENDING_STATES]
        assert decided and decided[-1] is metadata.state, "a marker before its decision is committed"
        done = sorted(metadata.partitions)[:count]
        if done:
            begun = next(one for one in reversed(self.log) if one.state is TransactionState.ONGOING)
            assert metadata.producer_id == begun.producer_id
            assert metadata.producer_epoch - begun.producer_epoch in (0, 1)
        if done:
            self.outcomes.setdefault(self.number, set()).add(metadata.state)
        self.transaction.markers_written(done)
        if not self.transaction.metadata.partitions:
            self.append(self.transaction.complete(self.now_ms))

    # The log

    @precondition(lambda self: self.written is not None)
    @rule(is_committed=st.booleans())
    def acknowledge(self, is_committed: bool) -> None:
        """Without acknowledgement the record stays in this leader's log: it may be committed later."""
        transition = self.written
        assert transition is not None
        if transition.is_completion and not is_committed:
            return  # appended again until it is
        self.written = None
        if is_committed:
            self.committed = len(self.log)
        self.transaction.stored(transition, ErrorCode.NONE if is_committed else ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if is_committed and transition.metadata.state in ENDING_STATES.values():
            self.number += 1
        producer, self.on_commit = self.on_commit, None
        if producer is not None and is_committed:
            self.give(producer, transition.metadata)

    @rule(survives=st.booleans())
    def fail_over(self, survives: bool) -> None:
        """Another broker has the committed records and may have the others; it serves once they are committed."""
        if not survives:
            del self.log[self.committed :]
        self.refused.clear()
        if self.written is not None and self.written.is_completion and self.log[-1] is self.written.metadata:
            self.number += 1
        self.committed = len(self.log)
        self.written, self.on_commit = None, None
        last = self.log[-1]
        value = transaction_record("id", last).value
        assert value is not None
        self.transaction = Transaction("id", read_value(value))
        latest = last.producer.producer_id
        self.highest[latest] = max((epoch for id_, epoch in self.given if id_ == latest), default=-1)

    # Parts

    def append(self, decision: Decision | NeedsProducerId) -> bool:
        if not isinstance(decision, Transition):
            return False
        assert self.written is None, "a second transition"
        former, target = self.transaction.metadata, decision.metadata
        assert can_enter(target.state, former.state)
        self.written = decision
        self.log.append(target)
        return True

    def may_append(self, producer: Producer, before: TransactionMetadata) -> None:
        assert (producer.id, producer.epoch) == before.producer
        assert before.producer not in self.refused, "it was fenced"

    def give(self, producer: Producer, metadata: TransactionMetadata) -> None:
        given = metadata.producer_after
        assert given.producer_epoch <= LAST_GIVEN_EPOCH
        is_repeated = (producer.id, producer.epoch) == (metadata.last_producer_id, metadata.last_producer_epoch)
        assert given not in self.given or (is_repeated and producer.id >= 0)
        self.given.add(given)
        producer.id, producer.epoch = given

    @invariant()
    def a_transaction_has_one_outcome(self) -> None:
        assert all(len(kinds) == 1 for kinds in getattr(self, "outcomes", {}).values())

    @invariant()
    def an_epoch_never_falls(self) -> None:
        if hasattr(self, "transaction"):
            producer = self.transaction.metadata.producer
            assert producer.producer_epoch >= self.highest.get(producer.producer_id, -1)
            self.highest[producer.producer_id] = producer.producer_epoch

    @invariant()
    def only_a_transaction_has_partitions(self) -> None:
        if hasattr(self, "transaction"):
            has_partitions = bool(self.transaction.metadata.partitions)
            may_have = {TransactionState.ONGOING, *ENDING_STATES}
            assert not has_partitions or self.transaction.metadata.state in may_have


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


@pytest.mark.parametrize("seed", range(12))
def test_long_lives(seed: int) -> None:
    """The same life with most records acknowledged at once, so that it goes on; hypothesis finds the shorter ones."""
    draw, lives = random.Random(seed), Lives()
    lives.begin(epoch=draw.choice((0, LAST_GIVEN_EPOCH - 2)))
    states = set()
    for _ in range(4_000):
        who, is_commit = draw.randrange(2), draw.random() < 0.6
        is_ending = lives.transaction.metadata.state in ENDING_STATES
        action = draw.random()
        if lives.written is not None and draw.random() < 0.8:
            lives.acknowledge(is_committed=draw.random() < 0.8)
        elif lives.written is None and is_ending and draw.random() < 0.6:
            lives.write_markers(count=draw.randint(1, 3))
        elif action < 0.2:
            timeout_ms = draw.choice((TIMEOUT_MS, NO_TIMEOUT_MS))
            lives.initialize_producer(who, draw.random() < 0.3, draw.random() < 0.6, timeout_ms)
        elif action < 0.5:
            lives.add_partitions(who, set(draw.sample(PARTITIONS, draw.randint(1, 3))))
        elif action < 0.6:
            lives.end(who, is_commit)
        elif action < 0.85:
            lives.end_with_next_epoch(who, is_commit)
        elif action < 0.95:
            lives.time_passes(draw.choice((1, 1, 2 * TIMEOUT_MS)))
        else:
            lives.fail_over(survives=draw.random() < 0.5)
        lives.a_transaction_has_one_outcome()
        lives.an_epoch_never_falls()
        lives.only_a_transaction_has_partitions()
        states.add((lives.transaction.metadata.state, lives.transaction.metadata.is_kept))
    assert len(states) == 9, "every state, and those of a transaction also when it was kept"
