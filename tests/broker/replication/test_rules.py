"""The pure rules: their worked examples, and properties that no sequence of events may break."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.replication import isr
from ottla_broker.replication.divergence import EpochEnd, leader_answer, truncation
from ottla_broker.replication.isr import AlterPartitionOutcome, Change, FollowerState, InSyncState
from ottla_broker.storage.log.leader_epochs import LeaderEpochs

LAG_MAX_MS = 30_000


@st.composite
def clusters(draw: st.DrawFn) -> tuple[int, int, list[FollowerState], InSyncState, int, tuple[int, ...], int]:
    """(current, leader end, followers, ISR, minimum, live brokers, now) with broker 0 leading."""
    count = draw(st.integers(1, 4))
    leader_end = draw(st.integers(0, 100))
    current = draw(st.integers(0, leader_end))
    now = draw(st.integers(0, 100_000))
    followers = []
    for broker in range(1, count):
        follower = FollowerState(broker, last_caught_up_ms=draw(st.integers(0, now)))
        follower.log_end_offset = draw(st.integers(-1, leader_end))
        followers.append(follower)
    others = [follower.broker_id for follower in followers]
    committed = (0, *draw(st.lists(st.sampled_from(others), unique=True) if others else st.just([])))
    outside = [broker for broker in others if broker not in committed]
    state = InSyncState(committed)
    if outside and draw(st.booleans()):
        state = InSyncState(committed, Change.EXPAND, (*committed, outside[0]))
    elif len(committed) > 1 and draw(st.booleans()):
        state = InSyncState(committed, Change.SHRINK, committed[:-1])
    minimum = isr.effective_min_isr(draw(st.integers(1, 3)), count)
    live = (0, *draw(st.lists(st.sampled_from(others), unique=True) if others else st.just([])))
    return current, leader_end, followers, state, minimum, live, now


@given(clusters())
def test_the_high_watermark_never_goes_back_and_never_passes_a_member_of_the_maximal_isr(cluster) -> None:  # type: ignore[no-untyped-def]
    current, leader_end, followers, state, minimum, live, now = cluster
    offset = isr.high_watermark(current, leader_end, followers, state, minimum, live, now, LAG_MAX_MS).offset
    assert current <= offset <= leader_end
    if offset > current:
        assert len(state.committed) >= minimum
        for follower in followers:
            if follower.broker_id in state.maximal:
                assert follower.log_end_offset >= offset


@given(clusters())
def test_whoever_may_join_holds_back_no_acknowledged_record_and_whoever_leaves_was_slow(cluster) -> None:  # type: ignore[no-untyped-def]
    current, leader_end, followers, state, _, live, now = cluster
    for follower in followers:
        if isr.may_join(follower, state, current, 0, live).holds:
            assert follower.log_end_offset >= current
            assert not state.is_in_flight and follower.broker_id not in state.committed
    for broker in isr.out_of_sync(followers, state, leader_end, now, LAG_MAX_MS):
        slow = next(follower for follower in followers if follower.broker_id == broker)
        assert slow.log_end_offset != leader_end and now - slow.last_caught_up_ms > LAG_MAX_MS
        assert broker in state.committed


def test_a_follower_that_keeps_pace_with_steady_writes_stays_in_sync_although_it_is_never_at_the_end() -> None:
    follower = FollowerState(2, last_caught_up_ms=0)
    state = InSyncState((1, 2))
    for second in range(1, 200):
        # Each fetch asks for what was there at the last one; the leader has written a hundred more since.
        follower.on_fetch((second - 1) * 100, 0, second * 1000, second * 100, -1)
        assert isr.out_of_sync([follower], state, second * 100, second * 1000, LAG_MAX_MS) == []
    assert isr.out_of_sync([follower], state, 20_000, 199_000 + LAG_MAX_MS, LAG_MAX_MS) == [2]


def test_a_pending_shrink_still_holds_the_high_watermark_back() -> None:
    gone = FollowerState(2)
    gone.on_fetch(10, 0, 0, 10, -1)
    pending = InSyncState((1, 2), Change.SHRINK, (1,))
    assert isr.high_watermark(10, 50, [gone], pending, 1, (1, 2), 90_000, LAG_MAX_MS).offset == 10
    assert isr.high_watermark(10, 50, [gone], InSyncState((1,)), 1, (1, 2), 90_000, LAG_MAX_MS).offset == 50


def test_whoever_has_never_fetched_is_not_about_to_join_however_young_the_clock_is() -> None:
    silent, behind = FollowerState(1), FollowerState(2)
    behind.on_fetch(10, 0, 90, 50, -1)
    assert isr.high_watermark(5, 50, [silent, behind], InSyncState((0,)), 1, (0, 1, 2), 100, LAG_MAX_MS).offset == 50


def test_every_error_of_alter_partition_has_a_meaning_and_unknown_ones_are_asked_again() -> None:
    assert isr.after_alter_partition(ErrorCode.NONE) is AlterPartitionOutcome.COMMITTED
    assert isr.after_alter_partition(ErrorCode.INVALID_UPDATE_VERSION) is AlterPartitionOutcome.AWAIT
    assert isr.after_alter_partition(ErrorCode.NOT_CONTROLLER) is AlterPartitionOutcome.RETRY


# Divergence

Log = list[int]
"""The epoch of each record."""


def _epochs(log: Log) -> LeaderEpochs:
    cache = LeaderEpochs()
    for offset, epoch in enumerate(log):
        if epoch != cache.latest:
            cache.assign(epoch, offset)
    return cache


def _reconcile(leader: Log, follower: Log, high_watermark: int) -> tuple[Log, int]:
    """Fetches and truncates until the leader sends records: (the follower's log then, rounds)."""
    leader_epochs = _epochs(leader)
    follower = list(follower)
    for rounds in range(20):
        epochs = _epochs(follower)
        if epochs.latest < 0:
            return follower, rounds
        answer = leader_answer(
            EpochEnd(*leader_epochs.end_offset(epochs.latest, len(leader))), len(follower), epochs.latest
        )
        if answer is None:
            return follower, rounds
        local = EpochEnd(*epochs.end_offset(answer.epoch, len(follower)))
        decision = truncation(answer, local, len(follower), high_watermark)
        assert decision.offset < len(follower), "a truncation that cuts nothing would be asked for for ever"
        del follower[decision.offset :]
    raise AssertionError("no agreement")


@st.composite
def histories(draw: st.DrawFn) -> tuple[Log, Log, int]:
    """Two logs as elections can leave them: (leader, follower, length that both share and is committed)."""
    shared: Log = []
    epoch = 0
    for _ in range(draw(st.integers(0, 4))):
        epoch += draw(st.integers(0, 2))
        shared += [epoch] * draw(st.integers(0, 4))
    leader, follower = list(shared), list(shared)
    # Epochs led by one of them alone, none by both: each appends only to its own log.
    for _ in range(draw(st.integers(0, 5))):
        epoch += draw(st.integers(1, 2))
        (leader if draw(st.booleans()) else follower).extend([epoch] * draw(st.integers(1, 4)))
    epoch += 1
    leader += [epoch] * draw(st.integers(1, 3))  # the present leader has written something of its own
    return leader, follower, len(shared)


@given(histories())
def test_after_reconciling_the_follower_is_a_prefix_of_the_leader_and_keeps_what_both_had(
    history: tuple[Log, Log, int],
) -> None:
    leader, follower, shared = history
    result, rounds = _reconcile(leader, follower, high_watermark=shared)
    assert result == leader[: len(result)]
    assert len(result) >= shared
    assert rounds <= len(set(follower)) + 1


def test_kip_101_a_follower_that_restarts_does_not_cut_what_only_its_high_watermark_lacks() -> None:
    # The follower has record 1, its high watermark (0) lags a round trip: the epochs say that nothing parts.
    assert _reconcile([0, 0], [0, 0], high_watermark=0) == ([0, 0], 0)


def test_kip_279_two_fast_leader_changes_are_untangled_in_two_rounds() -> None:
    leader = [0] * 10 + [2] * 10 + [4]
    follower = [0] * 8 + [1] * 7 + [3] * 10
    # Asked about 3, the leader says (2, 20); the follower has no 2 and cuts to 15, the end of its 1; asked about 1,
    # the leader says (0, 10); the follower's 0 ends at 8.
    assert _reconcile(leader, follower, high_watermark=5) == ([0] * 8, 2)
