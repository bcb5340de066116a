"""The table of a local replica's states: a row or a refusal for each pair, and what holds after any run of events."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.replica_states.commands import LeadershipCommand
from ottla_broker.replication.replica_states.local_replica import (
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    LocalReplica,
    LocalReplicaState,
    Reported,
)
from ottla_broker.replication.replica_states.replica_events import (
    Assigned,
    BrokerStopping,
    CatchUpRequired,
    CaughtUp,
    Forgotten,
    FutureReplicaSwapped,
    LeaderAndIsrAnswered,
    LeaderAndIsrReceived,
    LogDirFailed,
    LogDirReopened,
    LogFound,
    LogHasRoom,
    LogMissing,
    LogRemoved,
    NotAssigned,
    PartitionStateRead,
    PowerLossCleared,
    Recreated,
    ReplicaEffect,
    ReplicaEvent,
    ServingEnded,
    StopReplicaReceived,
    TopicIdMatch,
    TopicReplaced,
)
from ottla_broker.replication.replica_states.states import REFUSED, SERVED, TABLE, RefusedEvent, decide

ME, OTHER, THIRD = 1, 2, 3
S, E = LocalReplicaState, ReplicaEffect
ABSENT = LocalReplica()
LEADER = LocalReplica(S.LEADER, leader_epoch=4, log_dir="/d0")
FOLLOWER = replace(LEADER, state=S.FOLLOWER)
STOPPED = replace(LEADER, state=S.STOPPED)
HANDED_OVER = replace(LEADER, state=S.HANDED_OVER_FULL, reported=Reported.OFFLINE, last_active_epoch=4)
OFFLINE = LocalReplica(S.OFFLINE, log_dir="/d0", last_active_epoch=4)
RECREATING = LocalReplica(S.RECREATING, leader_epoch=4, log_dir="/d1", is_caught_up=False, reported=Reported.OFFLINE)
SHORT = LocalReplica(S.REOPENED, log_dir="/d0", has_lost_tail=True, last_active_epoch=4)
WHOLE = LocalReplica(S.REOPENED, log_dir="/d0", last_active_epoch=4)


def command(
    *,
    leader: int = OTHER,
    epoch: int = 5,
    isr: tuple[int, ...] = (ME, OTHER),
    replicas: tuple[int, ...] = (ME, OTHER),
) -> LeadershipCommand:
    return LeadershipCommand(TopicPartition("t", 0), bytes(16), leader, epoch, 0, 1, isr, replicas, False)


def ask(
    replica: LocalReplica, *, full: str = "", topic_id: TopicIdMatch = TopicIdMatch.SAME, **known: object
) -> object:
    """(error, effects) of a LeaderAndIsr."""
    event = LeaderAndIsrReceived(ME, command(**known), topic_id, full)  # type: ignore[arg-type]
    decision = decide(replica, event)
    assert decision.replica == replica, "the request alone changes nothing: the log has to be opened first"
    return decision.error, decision.effects


NONE = (ErrorCode.NONE, ())
ASSIGN = (ErrorCode.NONE, (E.ASSIGN,))
STORAGE_ERROR = (ErrorCode.KAFKA_STORAGE_ERROR, ())
STALE = (ErrorCode.STALE_CONTROLLER_EPOCH, ())


def answered(replica: LocalReplica, error: ErrorCode, epoch: int = 5, *, is_full: bool = False) -> LocalReplica:
    return decide(replica, LeaderAndIsrAnswered(error, epoch, is_full)).replica


# The table


def test_every_state_has_a_row_for_every_event_or_the_event_says_why_not() -> None:
    for kind in get_args(ReplicaEvent):
        without = [state for state in LocalReplicaState if (state, kind) not in TABLE]
        assert bool(without) == (kind in REFUSED), f"{kind.__name__}: {without}"
    assert {kind for _, kind in TABLE} == set(get_args(ReplicaEvent))


def test_an_event_that_a_state_cannot_have_is_refused() -> None:
    with pytest.raises(RefusedEvent, match="Recreated"):
        decide(LEADER, Recreated("/d1"))
    with pytest.raises(RefusedEvent):
        decide(LocalReplica(S.STRAY), command_event())


def command_event() -> LeaderAndIsrReceived:
    return LeaderAndIsrReceived(ME, command())


# LeaderAndIsr


@pytest.mark.parametrize("replica", [ABSENT, LocalReplica(S.LOADED), LEADER, FOLLOWER, STOPPED, WHOLE])
def test_a_replica_takes_a_newer_leader_epoch(replica: LocalReplica) -> None:
    assert ask(replica) == ASSIGN
    assert ask(replica, leader=ME) == ASSIGN


def test_an_older_leader_epoch_is_stale_and_the_same_one_too() -> None:
    assert ask(LEADER, epoch=3) == STALE
    assert ask(LEADER, epoch=4, leader=ME) == STALE
    assert ask(FOLLOWER, epoch=4) == STALE


def test_a_broker_that_is_no_replica_refuses_the_partition() -> None:
    assert ask(ABSENT, replicas=(OTHER,)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ())


def test_another_topic_of_the_name_is_refused_before_its_epoch_is_looked_at() -> None:
    assert ask(LEADER, epoch=0, topic_id=TopicIdMatch.OTHER) == (ErrorCode.INCONSISTENT_TOPIC_ID, ())


def test_a_repeated_command_brings_a_topic_id_to_a_partition_without_one() -> None:
    assert ask(FOLLOWER, epoch=4, topic_id=TopicIdMatch.NEW) == (ErrorCode.NONE, (E.SET_TOPIC_ID,))


def test_a_controller_without_topic_ids_may_repeat_what_a_follower_knows() -> None:
    assert ask(FOLLOWER, epoch=4, topic_id=TopicIdMatch.MISSING) == NONE
    assert ask(LEADER, epoch=4, leader=ME, topic_id=TopicIdMatch.MISSING) == STALE


def test_a_stopped_replica_follows_again_when_the_command_is_repeated() -> None:
    assert ask(STOPPED, epoch=4) == ASSIGN
    assert ask(replace(STOPPED, reported=Reported.OFFLINE), epoch=4) == ASSIGN
    assert ask(STOPPED, epoch=4, leader=ME) == STALE
    assert ask(STOPPED, epoch=4, leader=-1) == STALE


def test_the_assignment_makes_a_leader_or_a_follower_and_settles_a_lost_tail() -> None:
    led = decide(SHORT, Assigned(6, True, "/d0"))
    assert led.effects == (E.LEAD,)
    assert led.replica == LocalReplica(S.LEADER, 6, "/d0")
    followed = decide(LEADER, Assigned(6, False, "/d0"))
    assert followed.effects == (E.FOLLOW,)
    assert followed.replica == LocalReplica(S.FOLLOWER, 6, "/d0")


@pytest.mark.parametrize("replica", [ABSENT, LocalReplica(S.LOADED), LEADER, FOLLOWER, STOPPED, RECREATING])
def test_a_replica_that_stays_stopped_follows_nobody_and_may_lead(replica: LocalReplica) -> None:
    stopped = decide(replica, Assigned(6, False, "/d0", stays_stopped=True))
    assert stopped.effects == (E.RESIGN,)
    assert (stopped.replica.state, stopped.replica.leader_epoch) == (S.STOPPED, 6)
    assert stopped.replica.is_caught_up == replica.is_caught_up
    if replica.is_caught_up:
        assert decide(stopped.replica, Assigned(7, True, "/d0", stays_stopped=True)).replica.state is S.LEADER


def test_a_directory_that_fails_before_the_assignment_leaves_the_replica_offline() -> None:
    done = decide(replace(OFFLINE, last_active_epoch=2), Assigned(6, True, "/d0"))
    assert done.effects == (E.LEAD,)
    assert done.replica == LocalReplica(S.OFFLINE, 6, "/d0", last_active_epoch=6)


# Offline and back


@pytest.mark.parametrize("replica", [LEADER, FOLLOWER, STOPPED, HANDED_OVER, RECREATING])
def test_a_replica_whose_directory_fails_refuses_everything_until_it_is_back(replica: LocalReplica) -> None:
    failed = decide(replica, LogDirFailed("/d0"))
    assert failed.effects == (E.END_SERVING,)
    assert failed.replica.last_active_epoch == 4
    gone = decide(failed.replica, ServingEnded()).replica
    for offline in (failed.replica, gone):
        assert offline.is_offline
        assert ask(offline) == STORAGE_ERROR
        for delete in (False, True):
            refused = decide(offline, StopReplicaReceived(EPOCH_DURING_DELETE, delete))
            assert refused == (offline, (), refused.reason, ErrorCode.KAFKA_STORAGE_ERROR)
    back = decide(gone, LogDirReopened("/d0", True)).replica
    assert back.state is S.REOPENED
    assert not back.is_offline


def test_a_directory_that_is_back_before_the_partition_is_gone_does_not_make_it_serve() -> None:
    failed = decide(LEADER, LogDirFailed("/d0")).replica
    back = decide(failed, LogDirReopened("/d0", False)).replica
    assert ask(back, epoch=9, isr=(OTHER,)) == STORAGE_ERROR
    gone = decide(back, ServingEnded()).replica
    assert gone == SHORT
    assert decide(decide(back, LogDirFailed("/d0")).replica, ServingEnded()).replica == replace(
        OFFLINE, has_lost_tail=True
    )


def test_a_directory_that_is_back_without_the_log_leaves_no_replica() -> None:
    assert decide(OFFLINE, LogMissing()).replica == LocalReplica(last_active_epoch=4)


def test_a_short_log_waits_while_others_in_sync_have_its_tail() -> None:
    assert ask(SHORT, isr=(ME, OTHER)) == STORAGE_ERROR
    assert ask(SHORT, isr=(OTHER,)) == ASSIGN
    assert ask(SHORT, leader=ME, isr=(ME,), epoch=4) == STORAGE_ERROR
    assert ask(SHORT, leader=ME, isr=(ME,), epoch=5) == ASSIGN
    assert ask(WHOLE, isr=(ME, OTHER)) == ASSIGN


def test_a_short_log_may_be_deleted_but_not_stopped() -> None:
    assert decide(SHORT, StopReplicaReceived(NO_EPOCH, False)).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert decide(SHORT, StopReplicaReceived(NO_EPOCH, True)).effects == (E.DELETE_LOG,)


def test_a_log_stays_short_when_its_directory_fails_once_more() -> None:
    again = decide(decide(SHORT, LogDirFailed("/d0")).replica, LogDirReopened("/d0", True)).replica
    assert again.has_lost_tail


def test_a_refused_command_may_have_been_the_last_epoch_in_which_the_replica_acted() -> None:
    refused = answered(OFFLINE, ErrorCode.KAFKA_STORAGE_ERROR, 7)
    assert (refused.last_active_epoch, refused.reported) == (7, Reported.OFFLINE)
    assert answered(refused, ErrorCode.KAFKA_STORAGE_ERROR, 5).last_active_epoch == 7


def test_a_controller_that_asks_again_hears_that_the_replica_is_back_as_often_as_it_asks() -> None:
    told = replace(FOLLOWER, reported=Reported.OFFLINE)
    assert ask(told, epoch=4) == NONE
    back = answered(told, ErrorCode.NONE, 4)
    assert back.reported is Reported.BACK
    assert ask(back, epoch=4) == NONE
    newer = decide(back, Assigned(5, False, "/d0")).replica
    assert newer.reported is Reported.NOTHING
    assert ask(newer, epoch=5) == STALE


def test_the_partition_state_admits_a_replica_unless_the_controller_was_first() -> None:
    assert decide(SHORT, PartitionStateRead(4, True)).effects == (E.ASSIGN,)
    assert decide(SHORT, PartitionStateRead(4, False)).effects == ()
    assert decide(FOLLOWER, PartitionStateRead(4, True)).effects == ()
    assert decide(FOLLOWER, PartitionStateRead(5, True)).effects == (E.ASSIGN,)
    assert decide(WHOLE, PartitionStateRead(4, True, reported_only=True)).effects == ()
    told = replace(WHOLE, reported=Reported.OFFLINE)
    assert decide(told, PartitionStateRead(4, True, reported_only=True)).effects == (E.ASSIGN,)


# Full


def test_a_full_log_is_left_to_others_in_sync_and_taken_back_with_the_same_epoch() -> None:
    assert ask(LEADER, epoch=4, leader=ME, full="2 is in sync") == STORAGE_ERROR
    decision = decide(LEADER, LeaderAndIsrAnswered(ErrorCode.KAFKA_STORAGE_ERROR, 4, is_full=True))
    assert decision.effects == (E.RESIGN,)
    assert decision.replica == HANDED_OVER
    assert decision.replica.is_idle
    assert decide(HANDED_OVER, LogHasRoom()).effects == (E.REPORT_LOG_DIRS,)
    assert ask(HANDED_OVER, epoch=4, leader=ME) == ASSIGN
    assert ask(HANDED_OVER, epoch=4) == ASSIGN


def test_a_full_log_whose_directory_failed_meanwhile_is_offline() -> None:
    failed = decide(LEADER, LogDirFailed("/d0")).replica
    assert answered(failed, ErrorCode.KAFKA_STORAGE_ERROR, is_full=True).state is S.OFFLINE


def test_a_replica_that_left_its_place_for_lack_of_room_reports_the_directory_it_moved_to() -> None:
    assert decide(HANDED_OVER, FutureReplicaSwapped("/d1", False)).effects == (E.REPORT_LOG_DIRS,)
    assert decide(HANDED_OVER, FutureReplicaSwapped("/d1", True)).effects == ()
    swapped = decide(LEADER, FutureReplicaSwapped("/d1", False))
    assert (swapped.effects, swapped.replica.log_dir) == ((), "/d1")


# Recreation


def test_a_recreated_replica_follows_and_does_not_lead_before_it_has_caught_up() -> None:
    wanted = decide(OFFLINE, CatchUpRequired()).replica
    made = decide(wanted, Recreated("/d1")).replica
    assert (made.state, made.is_offline) == (S.RECREATING, False)
    assert ask(made, leader=ME) == STORAGE_ERROR
    assert ask(made) == ASSIGN
    assert decide(made, Assigned(5, True, "/d1")).error is ErrorCode.KAFKA_STORAGE_ERROR
    following = decide(made, Assigned(5, False, "/d1")).replica
    assert following.state is S.RECREATING
    done = decide(following, CaughtUp()).replica
    assert done.state is S.FOLLOWER
    assert ask(done, epoch=6, leader=ME) == ASSIGN
    assert decide(done, CatchUpRequired()).replica == following, "the registry did not take it"


def test_a_recreated_replica_is_one_after_a_restart_too() -> None:
    found = decide(decide(ABSENT, CatchUpRequired()).replica, LogFound("/d1")).replica
    assert found.state is S.RECREATING
    assert ask(found, leader=ME) == STORAGE_ERROR


def test_records_that_are_given_up_leave_an_empty_replica_that_waits_for_a_new_epoch() -> None:
    for lost in (OFFLINE, ABSENT):
        forgotten = decide(lost, Forgotten("/d1")).replica
        assert (forgotten.state, forgotten.has_lost_tail, forgotten.log_dir) == (S.REOPENED, True, "/d1")


# Stop, stray, end


def test_a_stopped_replica_keeps_its_log_and_a_deleted_one_nothing() -> None:
    assert decide(FOLLOWER, StopReplicaReceived(4, False))[:2] == (STOPPED, (E.RESIGN,))
    assert decide(HANDED_OVER, StopReplicaReceived(4, False)).replica == HANDED_OVER
    removed = decide(replace(LEADER, reported=Reported.OFFLINE), StopReplicaReceived(EPOCH_DURING_DELETE, True))
    assert removed.effects == (E.END_SERVING, E.DELETE_LOG)
    assert removed.replica.state is S.STRAY
    assert decide(removed.replica, LogRemoved(is_deleted=True)).replica == ABSENT
    kept = decide(removed.replica, LogRemoved()).replica
    assert (kept.state, kept.reported) == (S.ABSENT, Reported.OFFLINE)


def test_an_older_stop_is_fenced() -> None:
    assert decide(LEADER, StopReplicaReceived(3, True)).error is ErrorCode.FENCED_LEADER_EPOCH


def test_what_is_not_assigned_is_deleted_where_it_was_served_and_set_aside_where_it_was_only_found() -> None:
    assert decide(LEADER, NotAssigned()).effects == (E.END_SERVING, E.DELETE_LOG)
    for found in (LocalReplica(S.LOADED, log_dir="/d0"), SHORT, replace(RECREATING, leader_epoch=None)):
        decision = decide(found, NotAssigned())
        assert decision.effects == (E.SET_LOG_ASIDE,)
        assert not decision.replica.is_offline
    assert decide(LEADER, TopicReplaced()).effects == (E.END_SERVING, E.SET_LOG_ASIDE)


def test_a_stopping_broker_neither_leads_nor_follows() -> None:
    for replica in (LEADER, FOLLOWER, RECREATING):
        decision = decide(replica, BrokerStopping())
        assert decision.effects == (E.RESIGN,)
        assert decision.replica.state is S.STOPPED


def test_a_suspected_power_loss_ends_with_the_registration() -> None:
    found = decide(ABSENT, LogFound("/d0", power_loss_suspected=True)).replica
    assert found.power_loss_suspected
    assert not decide(found, PowerLossCleared()).replica.power_loss_suspected


# Any run of events

EPOCHS = st.integers(0, 6)
DIRS = st.sampled_from(["/d0", "/d1"])
BROKERS = st.sampled_from([ME, OTHER, THIRD])
EVENTS: st.SearchStrategy[ReplicaEvent] = st.one_of(
    st.builds(LogFound, DIRS, st.booleans()),
    st.builds(
        LeaderAndIsrReceived,
        st.just(ME),
        st.builds(
            lambda leader, epoch, isr, replicas: command(
                leader=leader, epoch=epoch, isr=tuple(isr), replicas=tuple(replicas)
            ),
            st.sampled_from([-1, ME, OTHER]),
            EPOCHS,
            st.lists(BROKERS, unique=True),
            st.lists(BROKERS, unique=True),
        ),
        st.sampled_from(TopicIdMatch),
        st.sampled_from(["", "2 is in sync"]),
    ),
    st.builds(PartitionStateRead, EPOCHS, st.booleans(), st.booleans()),
    st.builds(Assigned, EPOCHS, st.booleans(), DIRS),
    st.builds(
        LeaderAndIsrAnswered,
        st.sampled_from([ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.STALE_CONTROLLER_EPOCH]),
        EPOCHS,
        st.booleans(),
    ),
    st.builds(StopReplicaReceived, st.one_of(EPOCHS, st.sampled_from([NO_EPOCH, EPOCH_DURING_DELETE])), st.booleans()),
    st.builds(LogRemoved, st.booleans()),
    st.builds(LogDirFailed, DIRS),
    st.builds(LogDirReopened, DIRS, st.booleans(), st.booleans()),
    st.builds(Recreated, DIRS),
    st.builds(Forgotten, DIRS),
    st.builds(FutureReplicaSwapped, DIRS, st.booleans()),
    st.sampled_from(
        [
            NotAssigned(),
            TopicReplaced(),
            ServingEnded(),
            CatchUpRequired(),
            CaughtUp(),
            LogHasRoom(),
            LogMissing(),
            PowerLossCleared(),
            BrokerStopping(),
        ]
    ),
)


@given(st.lists(EVENTS, max_size=30))
def test_after_any_run_of_events_the_replica_is_one_that_can_be(events: list[ReplicaEvent]) -> None:
    replica = ABSENT
    for event in events:
        try:
            decision = decide(replica, event)
        except RefusedEvent:
            assert (replica.state, type(event)) not in TABLE
            continue
        before, replica = replica, decision.replica
        assert decision.reason or isinstance(event, PartitionStateRead)
        if decision.error is not ErrorCode.NONE:
            assert replica == before
            assert decision.effects == ()
        # What a state says of the partition, and the other way round.
        if replica.state in SERVED:
            assert replica.is_assigned
        if replica.state in (S.ABSENT, S.LOADED, S.REOPENED, S.STRAY):
            assert not replica.is_assigned
            assert replica.reported is not Reported.BACK
        if replica.after_serving is not None:
            assert replica.state is S.OFFLINE
            assert replica.is_assigned
        # Nothing leads or follows that must not.
        if E.LEAD in decision.effects:
            assert replica.is_caught_up
        if replica.state is S.RECREATING and replica.is_assigned:
            assert not replica.is_caught_up
        if replica.state in (S.LEADER, S.FOLLOWER):
            assert not replica.has_lost_tail
        if before.is_assigned and not replica.is_assigned:
            assert E.END_SERVING in decision.effects or isinstance(event, ServingEnded)
        # Epochs of a replica that is served only grow.
        if isinstance(event, LeaderAndIsrReceived) and decision.effects == (E.ASSIGN,) and before.is_assigned:
            assert event.command.leader_epoch >= before.leader_epoch  # type: ignore[operator]
