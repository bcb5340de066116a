"""The rows of the table of `states`: what each event does to a replica. Pure functions of a replica and an event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from ottla_broker.metadata.cache import NO_LEADER
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.replication.replica_states.commands import LeadershipCommand
from ottla_broker.replication.replica_states.local_replica import (
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    LocalReplica,
    LocalReplicaState,
    Reported,
)
from ottla_broker.replication.replica_states.recreation_rules import may_lead
from ottla_broker.replication.replica_states.reopened import ReturnAction, ReturnDecision, decide_return
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
    ServingEnded,
    StopReplicaReceived,
    TopicIdMatch,
    TopicReplaced,
)


class ReplicaDecision(NamedTuple):
    """The next value, what to do in this order, why, and the error code of the answer where there is one."""

    replica: LocalReplica
    effects: tuple[ReplicaEffect, ...] = ()
    reason: str = ""
    error: ErrorCode = ErrorCode.NONE


Row: TypeAlias = Callable[[LocalReplica, Any], ReplicaDecision]


def decide_readmission(replica: LocalReplica, broker_id: int, state: LeadershipCommand) -> ReturnDecision:
    """What becomes of a replica that is back, by `state`: its partition's, or what a LeaderAndIsr says of it."""
    return decide_return(
        broker_id,
        leader=state.leader,
        isr=state.isr,
        replicas=state.replicas,
        leader_epoch=state.leader_epoch,
        last_epoch=replica.last_active_epoch,
        is_whole=not replica.has_lost_tail,
    )


_S = LocalReplicaState
_KAFKA_STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


def same(reason: str) -> Row:
    return lambda replica, event: ReplicaDecision(replica, reason=reason)


# LeaderAndIsr


def refuse_offline(replica: LocalReplica, event: LeaderAndIsrReceived) -> ReplicaDecision:
    return ReplicaDecision(replica, reason="its log directory is offline", error=_KAFKA_STORAGE_ERROR)


def check_leader_and_isr(replica: LocalReplica, event: LeaderAndIsrReceived) -> ReplicaDecision:
    """The checks of a LeaderAndIsr in their order; ASSIGN when all are passed."""
    command = event.command
    is_named_leader = command.leader == event.broker_id
    if event.leave_to_others:
        return ReplicaDecision(replica, reason=event.leave_to_others, error=_KAFKA_STORAGE_ERROR)
    if replica.has_lost_tail:
        decision = decide_readmission(replica, event.broker_id, command)
        if decision.action is ReturnAction.WAIT:
            return ReplicaDecision(replica, reason=decision.reason, error=_KAFKA_STORAGE_ERROR)
    if is_named_leader and not may_lead(is_caught_up=replica.is_caught_up):
        return _refuse_to_lead(replica)
    if event.topic_id is TopicIdMatch.OTHER:
        return ReplicaDecision(replica, reason="another topic of that name", error=ErrorCode.INCONSISTENT_TOPIC_ID)
    known_epoch = NO_EPOCH if replica.leader_epoch is None else replica.leader_epoch
    if command.leader_epoch < known_epoch:
        return _refuse_epoch(replica)
    if replica.is_assigned and command.leader_epoch == known_epoch:
        return _repeat(replica, event)
    if event.broker_id not in command.replicas:
        return ReplicaDecision(replica, reason="this broker is no replica", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return ReplicaDecision(replica, (ReplicaEffect.ASSIGN,), "a newer leader epoch")


def _repeat(replica: LocalReplica, event: LeaderAndIsrReceived) -> ReplicaDecision:
    """The command has the leader epoch that the replica has."""
    command = event.command
    is_named_leader = command.leader == event.broker_id
    if replica.state is _S.HANDED_OVER_FULL:
        return ReplicaDecision(replica, (ReplicaEffect.ASSIGN,), "it has room again, or nobody else is in sync")
    if replica.state is _S.STOPPED and not is_named_leader and command.leader != NO_LEADER:
        # A controller that took it for offline has stopped it, and has learned better: nothing else starts it again.
        return ReplicaDecision(replica, (ReplicaEffect.ASSIGN,), "it was stopped and is to follow again")
    if replica.reported is Reported.OFFLINE:
        return ReplicaDecision(replica, reason="it works again")
    if replica.reported is Reported.BACK:
        return ReplicaDecision(replica, reason="asked again: the answer was lost with its connection")
    if event.topic_id is TopicIdMatch.NEW:
        return ReplicaDecision(replica, (ReplicaEffect.SET_TOPIC_ID,), "only the topic id is new")
    if event.topic_id is TopicIdMatch.MISSING and not is_named_leader:
        return ReplicaDecision(replica, reason="a controller without topic ids: the id that is known stays right")
    return _refuse_epoch(replica)


def _refuse_epoch(replica: LocalReplica) -> ReplicaDecision:
    return ReplicaDecision(
        replica, reason="the leader epoch is not greater than the known one", error=ErrorCode.STALE_CONTROLLER_EPOCH
    )


def _refuse_to_lead(replica: LocalReplica) -> ReplicaDecision:
    return ReplicaDecision(
        replica,
        reason="it was recreated and has not had every record yet: it does not lead",
        error=_KAFKA_STORAGE_ERROR,
    )


def check_partition_state(replica: LocalReplica, event: PartitionStateRead) -> ReplicaDecision:
    if not event.is_log_here:
        return ReplicaDecision(replica, reason="its log was deleted since the state was read")
    if replica.leader_epoch is not None:
        is_newer = event.leader_epoch > replica.leader_epoch
        return ReplicaDecision(replica, (ReplicaEffect.ASSIGN,) * is_newer, "the controller was first" * (not is_newer))
    if event.reported_only and replica.reported is not Reported.OFFLINE:
        return ReplicaDecision(replica, reason="the controller does not take it for offline any more")
    return ReplicaDecision(replica, (ReplicaEffect.ASSIGN,), "as its partition's state says")


def assign(replica: LocalReplica, event: Assigned) -> ReplicaDecision:
    if event.is_leader and not may_lead(is_caught_up=replica.is_caught_up):
        return _refuse_to_lead(replica)  # recreated since the command was checked
    if event.is_leader:
        state, effect = _S.LEADER, ReplicaEffect.LEAD
    elif event.stays_stopped:
        # It would catch up, and every acks=all would wait for it while its broker flushes and until that is gone.
        state, effect = _S.STOPPED, ReplicaEffect.RESIGN
    else:
        state, effect = _S.FOLLOWER if replica.is_caught_up else _S.RECREATING, ReplicaEffect.FOLLOW
    is_repeated = event.leader_epoch == replica.leader_epoch
    assigned = replace(
        replica,
        state=state,
        leader_epoch=event.leader_epoch,
        log_dir=event.log_dir,
        has_lost_tail=False,
        last_active_epoch=None,
        reported=replica.reported if is_repeated else _without_back(replica.reported),
    )
    return ReplicaDecision(assigned, (effect,), f"{effect.value}s from leader epoch {event.leader_epoch}")


def assign_offline(replica: LocalReplica, event: Assigned) -> ReplicaDecision:
    """The directory failed between the opening of the log and now: the partition goes as soon as this command ends."""
    decision = assign(replica, event)
    if decision.error is not ErrorCode.NONE:
        return decision
    return decision._replace(
        replica=replace(
            decision.replica,
            state=_S.OFFLINE,
            log_dir=replica.log_dir,
            last_active_epoch=event.leader_epoch,
            after_serving=replica.after_serving,
        )
    )


def record_answer(replica: LocalReplica, event: LeaderAndIsrAnswered) -> ReplicaDecision:
    if event.error is _KAFKA_STORAGE_ERROR:
        known = NO_EPOCH if replica.last_active_epoch is None else replica.last_active_epoch
        refused = replace(replica, reported=Reported.OFFLINE, last_active_epoch=max(event.leader_epoch, known))
        if event.is_full and replica.is_assigned and replica.state is not _S.OFFLINE:
            return ReplicaDecision(
                replace(refused, state=_S.HANDED_OVER_FULL), (ReplicaEffect.RESIGN,), "others in sync lead"
            )
        return ReplicaDecision(refused, reason="the controller takes it for offline")
    if event.error is ErrorCode.NONE and replica.reported is Reported.OFFLINE:
        reported = Reported.BACK if replica.is_assigned else Reported.NOTHING
        return ReplicaDecision(replace(replica, reported=reported), reason="the controller hears that it works")
    return ReplicaDecision(replica, reason="the controller learns nothing new")


def _without_back(reported: Reported) -> Reported:
    return Reported.NOTHING if reported is Reported.BACK else reported


# StopReplica and removal


def stop(replica: LocalReplica, event: StopReplicaReceived) -> ReplicaDecision:
    if replica.has_lost_tail and not event.delete:
        # One that lacks its tail can be deleted: its directory works.
        return ReplicaDecision(replica, reason="its log directory is back without its tail", error=_KAFKA_STORAGE_ERROR)
    is_fenced = event.leader_epoch not in (NO_EPOCH, EPOCH_DURING_DELETE)
    if replica.leader_epoch is not None and is_fenced and event.leader_epoch < replica.leader_epoch:
        return ReplicaDecision(replica, reason="an older leader epoch", error=ErrorCode.FENCED_LEADER_EPOCH)
    if event.delete:
        return _remove(replica, ReplicaEffect.DELETE_LOG, "the controller has it deleted")
    if not replica.is_assigned:
        return ReplicaDecision(replica, reason="there is no replica to stop")
    state = _S.HANDED_OVER_FULL if replica.state is _S.HANDED_OVER_FULL else _S.STOPPED
    return ReplicaDecision(replace(replica, state=state), (ReplicaEffect.RESIGN,), "the controller stops it")


def refuse_to_stop(replica: LocalReplica, event: StopReplicaReceived) -> ReplicaDecision:
    return ReplicaDecision(replica, reason="its log directory is offline", error=_KAFKA_STORAGE_ERROR)


def _remove(replica: LocalReplica, effect: ReplicaEffect, reason: str) -> ReplicaDecision:
    effects = (ReplicaEffect.END_SERVING, effect) if replica.is_assigned else (effect,)
    return ReplicaDecision(_unassigned(replica, _S.STRAY), effects, reason)


def unassign(replica: LocalReplica, event: NotAssigned) -> ReplicaDecision:
    """What was served is deleted; what nobody has named since the start, or since it is back, only becomes a stray."""
    effect = ReplicaEffect.DELETE_LOG if replica.is_assigned else ReplicaEffect.SET_LOG_ASIDE
    decision = _remove(replica, effect, "it is not assigned to this broker any more")
    return decision._replace(replica=replace(decision.replica, has_lost_tail=False))


def unassign_offline(replica: LocalReplica, event: NotAssigned) -> ReplicaDecision:
    """A log that is back by now goes; the one on the directory that is offline is stray when that returns."""
    decision = unassign(replica, event)
    if replica.after_serving is None:
        decision = decision._replace(replica=replace(decision.replica, state=_S.OFFLINE))
    return decision


def set_aside(replica: LocalReplica, event: TopicReplaced) -> ReplicaDecision:
    decision = _remove(replica, ReplicaEffect.SET_LOG_ASIDE, "it belongs to a topic that was deleted")
    return decision._replace(replica=replace(decision.replica, has_lost_tail=False))


def removed(replica: LocalReplica, event: LogRemoved) -> ReplicaDecision:
    gone = replace(replica, state=_S.ABSENT, log_dir=None)
    return ReplicaDecision(_without_past(gone) if event.is_deleted else gone, reason="its log is removed")


def removed_offline(replica: LocalReplica, event: LogRemoved) -> ReplicaDecision:
    """Its directory failed during the removal."""
    return ReplicaDecision(
        _without_past(replica) if event.is_deleted else replica, reason="its log directory is offline by now"
    )


def _without_past(replica: LocalReplica) -> LocalReplica:
    return replace(replica, reported=Reported.NOTHING, last_active_epoch=None, has_lost_tail=False)


def _unassigned(replica: LocalReplica, state: LocalReplicaState) -> LocalReplica:
    """There is no Partition any more."""
    return replace(
        replica,
        state=state,
        leader_epoch=None,
        led=None,
        reported=_without_back(replica.reported),
        after_serving=None,
    )


# Log directories


def find(replica: LocalReplica, event: LogFound) -> ReplicaDecision:
    state = _S.LOADED if replica.is_caught_up else _S.RECREATING
    found = replace(replica, state=state, log_dir=event.log_dir, power_loss_suspected=event.power_loss_suspected)
    return ReplicaDecision(found, reason="found at the start")


def fail(replica: LocalReplica, event: LogDirFailed) -> ReplicaDecision:
    failed = replace(
        replica,
        state=_S.OFFLINE,
        log_dir=event.log_dir,
        after_serving=None,
        power_loss_suspected=False,
        last_active_epoch=replica.last_active_epoch if replica.leader_epoch is None else replica.leader_epoch,
    )
    effects = (ReplicaEffect.END_SERVING,) if replica.is_assigned else ()
    return ReplicaDecision(failed, effects, "its log directory is offline")


def fail_again(replica: LocalReplica, event: LogDirFailed) -> ReplicaDecision:
    """It was back before its partition had gone."""
    return ReplicaDecision(
        replace(replica, log_dir=event.log_dir, after_serving=None, power_loss_suspected=False),
        reason="its log directory is offline",
    )


def end_serving(replica: LocalReplica, event: ServingEnded) -> ReplicaDecision:
    gone = replace(_unassigned(replica, replica.after_serving or _S.OFFLINE), led=event.led)
    return ReplicaDecision(gone, reason="its partition is gone")


def reopen(replica: LocalReplica, event: LogDirReopened) -> ReplicaDecision:
    # One that lacked its tail when its directory failed once more has not acted since: it lacks it still.
    back = replace(
        replica,
        log_dir=event.log_dir,
        has_lost_tail=replica.has_lost_tail or not event.has_whole_log,
        power_loss_suspected=event.power_loss_suspected,
    )
    return _come_back(back, _S.REOPENED, "its log directory is back")


def miss(replica: LocalReplica, event: LogMissing) -> ReplicaDecision:
    return _come_back(replace(replica, log_dir=None), _S.ABSENT, "its log directory is back without its log")


def recreate(replica: LocalReplica, event: Recreated) -> ReplicaDecision:
    return _come_back(replace(replica, log_dir=event.log_dir), _S.RECREATING, "recreated, empty")


def forget(replica: LocalReplica, event: Forgotten) -> ReplicaDecision:
    emptied = replace(replica, log_dir=event.log_dir, has_lost_tail=True)
    return _come_back(emptied, _S.REOPENED, "its records are given up, it starts empty")


def _come_back(replica: LocalReplica, state: LocalReplicaState, reason: str) -> ReplicaDecision:
    if replica.is_assigned:
        return ReplicaDecision(replace(replica, after_serving=state), reason=f"{reason}; its partition still has to go")
    return ReplicaDecision(replace(replica, state=state), reason=reason)


def report_room(replica: LocalReplica, event: LogHasRoom) -> ReplicaDecision:
    return ReplicaDecision(replica, (ReplicaEffect.REPORT_LOG_DIRS,), "it has room again")


def swap(replica: LocalReplica, event: FutureReplicaSwapped) -> ReplicaDecision:
    moved = replace(replica, log_dir=event.log_dir)
    if replica.reported is Reported.OFFLINE and not event.is_full:
        return ReplicaDecision(moved, (ReplicaEffect.REPORT_LOG_DIRS,), "it has room in its new log directory")
    return ReplicaDecision(moved, reason="it is in another log directory")


def clear_power_loss(replica: LocalReplica, event: PowerLossCleared) -> ReplicaDecision:
    return ReplicaDecision(replace(replica, power_loss_suspected=False), reason="nobody relies on what may be lost")


# Catching up


def require_catch_up(replica: LocalReplica, event: CatchUpRequired) -> ReplicaDecision:
    return ReplicaDecision(replace(replica, is_caught_up=False), reason="it lacks committed records")


def begin_catch_up(replica: LocalReplica, event: CatchUpRequired) -> ReplicaDecision:
    """The registry could not record that it has caught up."""
    return ReplicaDecision(
        replace(replica, is_caught_up=False, state=_S.RECREATING), reason="it counts as one that lacks records again"
    )


def note_caught_up(replica: LocalReplica, event: CaughtUp) -> ReplicaDecision:
    return ReplicaDecision(replace(replica, is_caught_up=True), reason="it has every committed record")


def catch_up(replica: LocalReplica, event: CaughtUp) -> ReplicaDecision:
    state = _S.FOLLOWER if replica.is_assigned else _S.LOADED
    return ReplicaDecision(
        replace(replica, is_caught_up=True, state=state), reason="it has every committed record: it may lead"
    )


def resign(replica: LocalReplica, event: BrokerStopping) -> ReplicaDecision:
    if not replica.is_assigned:
        return ReplicaDecision(replica, reason="it is not served")
    state = replica.state if replica.state is _S.OFFLINE else _S.STOPPED
    return ReplicaDecision(replace(replica, state=state), (ReplicaEffect.RESIGN,), "the broker stops")
