"""Replicas of one partition under every order of appends, fetches, elections, crashes and ISR changes.

The leaders are real `Partition`s and the followers decide by the real rules (`divergence`, `isr`) over logs in memory;
the walk stands in the controller's place. Each command, fetch and answer is a step of its own, so that any may come
late. Processes crash (their logs stay, their high watermarks fall back to the checkpoint), power does not fail, and
only members of the ISR are elected: what was committed must then never change, and in the end all logs are equal.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication import isr
from ottla_broker.replication.divergence import UNDEFINED, EpochEnd, restart_after_out_of_range, truncation
from ottla_broker.replication.isr import InSyncState
from ottla_broker.replication.partition import Partition, PartitionContext, Waiter
from ottla_broker.replication.refused_batches import RefusedBatches
from ottla_broker.storage.log.leader_epochs import LeaderEpochs
from ottla_broker.storage.log.log import Log

LAG_MAX_MS = 10
Entry = tuple[int, int]
"""(leader epoch, a number that no other record has)"""


@dataclass
class _Config:
    min_insync_replicas: int


class _Log:
    """What `Partition` needs of a log and its state."""

    def __init__(self, min_isr: int) -> None:
        self.config = _Config(min_isr)
        self.records: list[Entry] = []
        self.epochs = LeaderEpochs()
        self.high_watermark = 0
        self.log_start_offset = 0
        self.local_low_watermark = 0

    @property
    def state(self) -> _Log:
        return self

    def call(self, on_append: Any, on_failure: Any, check_gap: Any) -> None:
        """Nothing here fails or calls back."""

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    @property
    def assigned_offset(self) -> int:
        return len(self.records)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset(epoch, len(self.records))

    def maybe_advance_high_watermark(self, offset: int) -> bool:
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def append(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.epochs.assign(entry[0], len(self.records))
            self.records.append(entry)

    def truncate_to(self, offset: int) -> None:
        assert offset >= self.high_watermark, "cuts below its high watermark"
        del self.records[offset:]
        self.epochs.truncate_from_end(offset)


@dataclass
class _State:
    """The partition's znode."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int = 0


@dataclass
class _Question:
    """A follower's fetch on its way, and then its answer."""

    leader: int
    leader_epoch: int
    offset: int
    last_epoch: int
    asks_epoch_only: bool
    answer: Any = None


class _Replica:
    """One broker's replica."""

    def __init__(self, cluster: Cluster, broker_id: int, min_isr: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.log = _Log(min_isr)
        self.checkpoint = 0
        self.is_up = True
        self.question: _Question | None = None
        self.is_truncating = False
        self.proposal: tuple[InSyncState, int, int] | None = None
        self.partition = self._new_partition()

    def _new_partition(self) -> Partition:
        context = PartitionContext(
            self.broker_id,
            LAG_MAX_MS,
            self.now_ms,
            self.live_brokers,
            self.wake,
            self.propose_isr,
            RefusedBatches(self.now_ms),
        )
        return Partition(context, TopicPartition("t", 0), cast("Log", self.log), bytes(16))

    # What the partition needs of its broker

    def now_ms(self) -> int:
        return self.cluster.now

    def live_brokers(self) -> Collection[int]:
        return [replica.broker_id for replica in self.cluster.replicas if replica.is_up]

    def wake(self, waiters: Iterable[Waiter]) -> None:
        raise AssertionError("nobody waits here")

    def propose_isr(self, partition: Partition) -> None:
        self.proposal = (partition.in_sync, partition.leader_epoch, partition.partition_epoch)

    # Life

    def crash(self) -> None:
        self.is_up = False
        self.question = self.proposal = None
        self.log.high_watermark = self.checkpoint
        self.partition = self._new_partition()

    def hear(self, state: _State) -> None:
        """LeaderAndIsr."""
        partition = self.partition
        if state.leader_epoch <= partition.leader_epoch and partition.controller_epoch:
            return
        replicas = tuple(range(len(self.cluster.replicas)))
        self.question = None
        if state.leader == self.broker_id:
            self.log.epochs.assign(state.leader_epoch, len(self.log.records))
            partition.become_leader(state.leader_epoch, state.partition_epoch, 1, replicas, state.isr)
        else:
            partition.become_follower(state.leader, state.leader_epoch, state.partition_epoch, 1, replicas)
            self.is_truncating = self.cluster.truncates_before_fetching and bool(self.log.records)


class Cluster:
    """The replicas and the controller's view. `truncates_before_fetching`: followers ask OffsetForLeaderEpoch until
    they know where to go on (KIP-101, KIP-279), instead of being told DivergingEpoch (KIP-595)."""

    def __init__(self, count: int, min_isr: int, *, truncates_before_fetching: bool) -> None:
        self.now = 0
        self.numbers = 0
        self.truncates_before_fetching = truncates_before_fetching
        self.committed: list[Entry] = []
        self.replicas: list[_Replica] = []
        self.replicas += [_Replica(self, broker, min_isr) for broker in range(count)]
        self.state = _State(0, 0, tuple(range(count)))
        for replica in self.replicas:
            replica.hear(self.state)

    # Steps; each does nothing where it makes no sense

    def append(self, replica: _Replica) -> None:
        partition = replica.partition
        if replica.is_up and partition.is_leader:
            self.numbers += 1
            replica.log.append([(partition.leader_epoch, self.numbers)])
            partition.on_log_append()

    def ask(self, replica: _Replica) -> None:
        partition = replica.partition
        if not replica.is_up or partition.is_leader or partition.leader_id < 0:
            return
        log = replica.log
        replica.question = _Question(
            partition.leader_id,
            partition.leader_epoch,
            log.log_end_offset,
            log.epochs.latest,
            asks_epoch_only=replica.is_truncating,
        )

    def serve(self, replica: _Replica) -> None:
        """The leader takes the replica's question in."""
        question = replica.question
        if question is None or question.answer is not None:
            return
        leader = self.replicas[question.leader]
        partition, log = leader.partition, leader.log
        if not leader.is_up or not partition.is_leader or partition.check_epoch(question.leader_epoch):
            replica.question = None  # an error; it asks again
            return
        if question.asks_epoch_only:
            question.answer = ("epoch end", EpochEnd(*log.end_of_epoch(question.last_epoch)))
            return
        diverging = None
        if question.last_epoch >= 0 and not self.truncates_before_fetching:
            diverging = partition.divergence(question.offset, question.last_epoch)
        if diverging is UNDEFINED or question.offset > log.log_end_offset:
            question.answer = ("out of range", log.log_end_offset)
        elif diverging is not None:
            question.answer = ("epoch end", diverging)
        else:
            partition.on_follower_fetch(replica.broker_id, question.offset, 0, -1)
            question.answer = ("records", log.records[question.offset : question.offset + 2], log.high_watermark)

    def take(self, replica: _Replica) -> None:
        """The replica takes the answer in."""
        question, replica.question = replica.question, None
        if question is None or question.answer is None or not replica.is_up:
            return
        kind, *answer = question.answer
        log = replica.log
        if kind == "records":
            records, high_watermark = answer
            log.append(records)
            log.maybe_advance_high_watermark(min(high_watermark, log.log_end_offset))
        elif kind == "epoch end":
            local = EpochEnd(*log.end_of_epoch(answer[0].epoch))
            decision = truncation(answer[0], local, log.log_end_offset, log.high_watermark)
            log.truncate_to(decision.offset)
            if replica.is_truncating:
                replica.is_truncating = not decision.is_final and bool(log.records)
        else:
            restart = restart_after_out_of_range(log.log_end_offset, 0, answer[0])
            log.truncate_to(min(restart.offset, log.log_end_offset))

    def fetch(self, replica: _Replica) -> None:
        self.ask(replica)
        self.serve(replica)
        self.take(replica)

    def shrink(self, replica: _Replica) -> None:
        if replica.is_up:
            replica.partition.shrink_isr()

    def apply_isr(self, replica: _Replica) -> None:
        """The controller carries out what the leader proposed; the leader has not heard yet."""
        if replica.proposal is None:
            return
        asked, epoch, partition_epoch = replica.proposal
        state = self.state
        alive = [member for member in asked.proposed if self.replicas[member].is_up]
        if (
            (state.leader, state.leader_epoch) == (replica.broker_id, epoch)
            and partition_epoch == state.partition_epoch
            and len(alive) == len(asked.proposed)
        ):
            state.isr = asked.proposed
            state.partition_epoch += 1

    def answer_isr(self, replica: _Replica) -> None:
        """The leader hears of its proposal, or that it was refused."""
        if replica.proposal is None:
            return
        (asked, epoch, _), replica.proposal = replica.proposal, None
        state = self.state
        if (state.leader, state.leader_epoch) != (replica.broker_id, epoch):
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif state.isr == asked.proposed:
            error = ErrorCode.NONE
        else:
            error = ErrorCode.INELIGIBLE_REPLICA
        partition = replica.partition
        partition.on_alter_partition_response(asked, epoch, error, state.leader_epoch, state.partition_epoch, state.isr)

    def elect(self, replica: _Replica) -> None:
        """A member of the ISR leads from now on; nobody has heard yet."""
        if replica.is_up and replica.broker_id in self.state.isr:
            self._write(replica.broker_id, self.state.isr)

    def hear(self, replica: _Replica) -> None:
        if replica.is_up:
            replica.hear(self.state)

    def crash(self, replica: _Replica) -> None:
        if not replica.is_up:
            return
        replica.crash()
        state = self.state
        left = tuple(member for member in state.isr if self.replicas[member].is_up)
        if state.leader == replica.broker_id or replica.broker_id in state.isr:
            leader = state.leader if state.leader in left else left[0] if left else -1
            self._write(leader, left or state.isr)

    def restart(self, replica: _Replica) -> None:
        if replica.is_up:
            return
        replica.is_up = True
        if self.state.leader < 0 and replica.broker_id in self.state.isr:
            self._write(replica.broker_id, (replica.broker_id,))

    def checkpoint(self, replica: _Replica) -> None:
        replica.checkpoint = replica.log.high_watermark

    def wait(self, _: _Replica) -> None:
        self.now += LAG_MAX_MS + 1

    def _write(self, leader: int, in_sync: tuple[int, ...]) -> None:
        state = self.state
        self.state = _State(leader, state.leader_epoch + 1, in_sync, state.partition_epoch + 1)

    # What must hold after each

    def check(self) -> None:
        for replica in sorted(self.replicas, key=lambda replica: not replica.partition.is_leader):
            log = replica.log
            high_watermark = log.high_watermark
            known = min(high_watermark, len(self.committed))
            assert log.records[:known] == self.committed[:known], f"{replica.broker_id} diverges below {known}"
            if high_watermark > known:
                assert replica.partition.is_leader, "a follower knows a high watermark that no leader had"
                self.committed += log.records[known:high_watermark]

    def heal(self) -> None:
        """Everybody is back, hears everything and fetches until nothing is left to say."""
        for replica in self.replicas:
            self.restart(replica)
        if self.state.leader < 0:
            self.elect(self.replicas[self.state.isr[0]])
        for _ in range(3):
            for replica in self.replicas:
                self.hear(replica)
                self.apply_isr(replica)
                self.answer_isr(replica)
        leader = self.replicas[self.state.leader]
        for turn in range(200):
            if turn < 3:
                self.append(leader)
            self.now += 1
            for replica in self.replicas:
                self.fetch(replica)
                self.check()
            self.apply_isr(leader)
            self.answer_isr(leader)
        for replica in self.replicas:
            assert replica.log.records == leader.log.records
            assert replica.log.epochs.entries == leader.log.epochs.entries
            assert replica.log.high_watermark == leader.log.log_end_offset
        assert sorted(self.state.isr) == [replica.broker_id for replica in self.replicas]


WEIGHTS = {
    "append": 4,
    "fetch": 8,
    "ask": 2,
    "serve": 3,
    "take": 3,
    "hear": 7,
    "restart": 3,
    "crash": 1,
    "elect": 1,
    "checkpoint": 2,
    "shrink": 1,
    "wait": 1,
    "apply_isr": 2,
    "answer_isr": 2,
}
STEPS = [step for step, weight in WEIGHTS.items() for _ in range(weight)]


def _walk(cluster: Cluster, steps: Iterable[tuple[str, int]]) -> None:
    for step, number in steps:
        getattr(cluster, step)(cluster.replicas[number % len(cluster.replicas)])
        cluster.check()
    cluster.heal()


@given(
    count=st.integers(2, 3),
    min_isr=st.integers(1, 2),
    truncates_before_fetching=st.booleans(),
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2)), max_size=100),
)
@settings(deadline=None)
def test_nothing_committed_changes_and_all_logs_are_equal_in_the_end(
    count: int, min_isr: int, truncates_before_fetching: bool, steps: list[tuple[str, int]]
) -> None:
    _walk(Cluster(count, min_isr, truncates_before_fetching=truncates_before_fetching), steps)


def test_a_leader_that_missed_another_ones_epoch_does_not_trust_what_it_knew_of_its_followers() -> None:
    cluster = Cluster(3, 2, truncates_before_fetching=False)
    zero, one, two = cluster.replicas
    cluster.append(zero)
    cluster.fetch(one)
    cluster.fetch(one)  # which acknowledges it
    cluster.elect(two)
    cluster.hear(two)
    cluster.hear(one)
    cluster.append(two)
    cluster.fetch(one)
    assert (
        one.log.records != zero.log.records
    )  # the record of epoch 0 is cut, that of epoch 1 comes with the next fetch
    cluster.crash(two)
    cluster.hear(zero)  # leads again, and never heard of epoch 1
    assert (zero.partition.is_leader, zero.partition.leader_epoch, zero.log.high_watermark) == (True, 2, 0)


def _long_walk(seed: int, count: int, *, truncates_before_fetching: bool) -> Cluster:
    chance = random.Random(seed)
    cluster = Cluster(count, 1 + seed % 2, truncates_before_fetching=truncates_before_fetching)
    _walk(cluster, [(chance.choice(STEPS), chance.randrange(3)) for _ in range(400)])
    return cluster


@pytest.mark.parametrize("truncates_before_fetching", [False, True])
@pytest.mark.parametrize("count", [2, 3])
def test_long_walks_through_many_failures(count: int, truncates_before_fetching: bool) -> None:
    walks = [_long_walk(seed, count, truncates_before_fetching=truncates_before_fetching) for seed in range(60)]
    assert sum(len(cluster.committed) for cluster in walks) > 60 * 10, "the walks commit something"
    assert sum(cluster.state.leader_epoch for cluster in walks) > 60 * 10, "and change leaders"


BROKEN: dict[str, tuple[str, Any]] = {
    "the high watermark does not wait for followers": (
        "ottla_broker.replication.isr.high_watermark",
        lambda current, end, *_: isr.Watermark(end, "broken"),
    ),
    "the leader finds no divergence": ("ottla_broker.replication.partition.leader_answer", lambda *_: None),
    "a follower joins below the leader's epoch": (
        "ottla_broker.replication.isr.may_join",
        lambda follower, state, *_: isr.JoinDecision(follower.broker_id not in state.maximal, "broken"),
    ),
}


@pytest.mark.parametrize("variant", list(BROKEN))
def test_the_walks_find_rules_that_are_broken(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BROKEN[variant])
    with pytest.raises(AssertionError):
        for seed in range(200):
            _long_walk(seed, 3, truncates_before_fetching=False)
