"""The states of a partition's replica on this broker, and everything that changes them, as one table.

`LocalReplica` is the whole state of one replica as a value. `decide` takes it with an event and returns the next value,
the effects that the replica manager carries out, the error code of the answer, and the reason. Pure: no clock, no file,
no await. Every pair of state and event has a row in `TABLE`, or stands in `REFUSED`.

    Absent, Loaded, Reopened ──LeaderAndIsr──▶ Leader ◀──LeaderAndIsr──▶ Follower ──StopReplica, broker stops──▶ Stopped
                                                 │                          │
                                                 └──56 answered, log full───┴──▶ HandedOverFull ──LeaderAndIsr──▶ …

    Absent ──log found at the start──▶ Loaded
    any state with a log ──log dir failed──▶ Offline ──reopened──▶ Reopened
                                                ├──────forgotten─▶ Reopened
                                                └──────recreated─▶ Recreating ──caught up──▶ Follower
    any state with a log ──StopReplica with deletion, not assigned, other topic id──▶ Stray ──log removed──▶ Absent

    state           log    partition    clients hear      LeaderAndIsr hears
    Absent          no     no           6, 3              NONE once the log is created
    Loaded          yes    no           6                 NONE
    Leader          yes    yes          (served)          NONE; 56 when full and others in sync can lead
    Follower        yes    yes          (reads) 6         NONE; 56 when full and others in sync can lead
    Stopped         yes    yes          6                 NONE
    HandedOverFull  yes    yes          6                 NONE when it has room or nobody else is in sync
    Offline         no     until ended  56                56
    Reopened        yes    no           56 without tail   56 while it lacks its tail and others rely on it
    Recreating      yes    yes or no    6                 56 where it is named leader, else NONE
    Stray           going  no           6, 3              (the removal holds the lock of the commands)

56 is KAFKA_STORAGE_ERROR, 6 NOT_LEADER_OR_FOLLOWER, 3 UNKNOWN_TOPIC_OR_PARTITION.

Where this differs from the obvious list, and why
- `Loaded`: a log that was found at the start is neither absent nor a follower. No command has named it since, so any
  leader epoch is accepted, and a full LeaderAndIsr that does not name it makes it stray instead of deleting it.
- `Offline` has two moments. Storage reports the failure at once and every answer is KAFKA_STORAGE_ERROR (56) from then
  on; the partition goes (`ServingEnded`) only behind the command that runs. The log may be back, or recreated, before
  that: `after_serving` remembers as what.
- A full log directory is no event of its own: the broker reports it, the controller sends LeaderAndIsr again, and that
  event says whether the log is full and others in sync can take over (`leave_to_others`).
- `is_caught_up`, `has_lost_tail`, `reported` and `last_active_epoch` survive changes of state (a recreated replica may
  fail, be full or be stopped before it has caught up), so they are fields and not states.
- Log.is_failed and Log.is_full stay with the log: they are what storage knows of one log, and make it refuse appends by
  itself. Storage turns them into events here; nothing else decides by them.

Worked example: broker 1 follows, its directory fails, the replica is recreated and catches up.

    >>> replica = LocalReplica(LocalReplicaState.FOLLOWER, leader_epoch=4, log_dir="/d0")
    >>> replica, effects, reason, _ = decide(replica, LogDirFailed("/d0"))
    >>> replica.state.value, replica.last_active_epoch, [effect.value for effect in effects]
    ('offline', 4, ['end serving'])
    >>> replica = decide(replica, ServingEnded()).replica
    >>> replica = decide(replica, LeaderAndIsrAnswered(ErrorCode.KAFKA_STORAGE_ERROR, leader_epoch=5)).replica
    >>> replica.reported.value, replica.last_active_epoch
    ('offline', 5)
    >>> replica = decide(replica, CatchUpRequired()).replica          # recorded durably before the log is made
    >>> replica = decide(replica, Recreated("/d1")).replica
    >>> replica = decide(replica, Assigned(leader_epoch=5, is_leader=False, log_dir="/d1")).replica
    >>> replica.state.value, replica.is_caught_up
    ('recreating', False)
    >>> replica = decide(replica, CaughtUp()).replica
    >>> replica.state.value, replica.reported.value                   # the controller's next LeaderAndIsr hears NONE
    ('follower', 'offline')
    >>> decide(replica, LeaderAndIsrAnswered(ErrorCode.NONE, leader_epoch=5)).replica.reported.value
    'back'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from ottla_broker.metadata.cache import NO_LEADER
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.replication.local_replicas.commands import LeadershipCommand
from ottla_broker.replication.local_replicas.recreation_rules import may_lead
from ottla_broker.replication.local_replicas.reopened import ReturnAction, ReturnDecision, decide_return

NO_EPOCH = -1
EPOCH_DURING_DELETE = -2
"""Leader epoch of StopReplica for a topic that is being deleted: overrules every epoch (KIP-570)."""


class LocalReplicaState(Enum):
    ABSENT = "absent"
    """There is no log here, as far as this broker knows."""
    LOADED = "loaded"
    """Its log was found at the start. No command of the controller has named it since."""
    LEADER = "leader"
    FOLLOWER = "follower"
    STOPPED = "stopped"
    """Neither leads nor follows: StopReplica without deletion, or the broker stops."""
    HANDED_OVER_FULL = "handed over, full"
    """Neither leads nor follows: its log directory is full, and others in sync lead."""
    OFFLINE = "offline"
    """Its log is on a log directory that is offline."""
    REOPENED = "reopened"
    """Its log directory is back, or its records were given up and it starts empty. No leader epoch has named it yet."""
    RECREATING = "recreating"
    """Recreated on another log directory; it lacks committed records, follows and must not lead."""
    STRAY = "stray"
    """Not assigned to this broker any more: its log is being deleted, or renamed to -stray."""


class Reported(Enum):
    """What the controller last heard of the replica in a LeaderAndIsr response."""

    NOTHING = "nothing"
    """Nothing but the usual."""
    OFFLINE = "offline"
    """KAFKA_STORAGE_ERROR: the controller takes the replica for offline."""
    BACK = "back"
    """NONE after KAFKA_STORAGE_ERROR, in the leader epoch that the replica has. The answer may have been lost: the same
    command is answered NONE again."""


@dataclass(frozen=True, slots=True)
class LocalReplica:
    """The replica of one partition on this broker."""

    state: LocalReplicaState = LocalReplicaState.ABSENT
    leader_epoch: int | None = None
    """Of the command that made it what it is; None: no command has named it, there is no Partition."""
    log_dir: str | None = None
    """The path of its log directory, also while that is offline; None where it is not known."""
    is_caught_up: bool = True
    """False: it was recreated and has not had every committed record yet. Durable in the replica registry."""
    has_lost_tail: bool = False
    """Its log directory came back with a shorter log than it had, and no leader epoch has settled that since."""
    reported: Reported = Reported.NOTHING
    last_active_epoch: int | None = None
    """The replica may have led or followed in this leader epoch before its directory failed, and in no later one; None:
    nobody knows."""
    power_loss_suspected: bool = False
    """Its log directory may have lost what was not flushed, and this broker has not registered since."""
    after_serving: LocalReplicaState | None = None
    """OFFLINE, while the partition still stands: what the replica has become meanwhile."""

    @property
    def is_assigned(self) -> bool:
        """A command of the controller has named it: there is a Partition."""
        return self.leader_epoch is not None

    @property
    def is_offline(self) -> bool:
        """Clients hear KAFKA_STORAGE_ERROR: on an offline log directory, or back without its tail."""
        return self.state is LocalReplicaState.OFFLINE or self.has_lost_tail

    @property
    def is_idle(self) -> bool:
        """It is assigned, and neither leads nor follows: consumers are not to read what gets old."""
        return self.state in (LocalReplicaState.STOPPED, LocalReplicaState.HANDED_OVER_FULL)


# Events


class TopicIdMatch(Enum):
    """The topic id of a command beside the one that the partition has."""

    SAME = "same"
    NEW = "new"
    """The partition has none yet."""
    MISSING = "missing"
    """The command has none (a controller before KIP-516), the partition has."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class LogFound:
    """A log was loaded at the start."""

    log_dir: str
    power_loss_suspected: bool = False


@dataclass(frozen=True, slots=True)
class LeaderAndIsrReceived:
    """One partition of a LeaderAndIsr request.

    Args:
        leave_to_others: why others in sync are to lead, where the log is full and there are some; else "".
    """

    broker_id: int
    command: LeadershipCommand
    topic_id: TopicIdMatch = TopicIdMatch.SAME
    leave_to_others: str = ""


@dataclass(frozen=True, slots=True)
class PartitionStateRead:
    """A replica that is back or was recreated, and the state of its partition in the coordination store.

    Args:
        reported_only: count it only while the controller takes it for offline: its log directory is not known, so a
            deletion may have been answered NONE.
    """

    leader_epoch: int
    is_log_here: bool
    reported_only: bool = False


@dataclass(frozen=True, slots=True)
class Assigned:
    """The log is open: the command is carried out now."""

    leader_epoch: int
    is_leader: bool
    log_dir: str


@dataclass(frozen=True, slots=True)
class LeaderAndIsrAnswered:
    """The response of a LeaderAndIsr request is complete.

    Args:
        is_full: it was refused while its log was full.
    """

    error: ErrorCode
    leader_epoch: int
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class StopReplicaReceived:
    """One partition of a StopReplica request; `leader_epoch` is -1 where the request has none."""

    leader_epoch: int
    delete: bool


@dataclass(frozen=True, slots=True)
class NotAssigned:
    """A full LeaderAndIsr, or the partition's state in the coordination store, does not count this broker."""


@dataclass(frozen=True, slots=True)
class TopicReplaced:
    """The topic was deleted and created again: a command names another topic id."""


@dataclass(frozen=True, slots=True)
class LogRemoved:
    """The removal has ended.

    Args:
        is_deleted: StopReplica asked for it and it succeeded: nothing of the replica counts any more.
    """

    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class LogDirFailed:
    """Its log directory is offline, or one that is offline turns out to hold it."""

    log_dir: str


@dataclass(frozen=True, slots=True)
class ServingEnded:
    """The partition of a replica whose log directory failed is gone."""


@dataclass(frozen=True, slots=True)
class LogDirReopened:
    """Its log directory is back, with the log; `has_whole_log`: it is as long as it was."""

    log_dir: str
    has_whole_log: bool
    power_loss_suspected: bool = False


@dataclass(frozen=True, slots=True)
class LogMissing:
    """Its log directory is back, without the log."""


@dataclass(frozen=True, slots=True)
class Recreated:
    """An empty log was made in place of one on an offline log directory; other brokers have the records."""

    log_dir: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A person gave the records up (`ottla disk forget`): an empty log was made, no other broker has them."""

    log_dir: str


@dataclass(frozen=True, slots=True)
class CatchUpRequired:
    """The replica registry records that it lacks committed records."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The replica registry records that it has had every committed record."""


@dataclass(frozen=True, slots=True)
class LogHasRoom:
    """Its log takes appends again after its directory was full."""


@dataclass(frozen=True, slots=True)
class FutureReplicaSwapped:
    """The future replica has taken the log's place (KIP-113)."""

    log_dir: str
    is_full: bool


@dataclass(frozen=True, slots=True)
class PowerLossCleared:
    """This broker has registered, or the replica was checked against its partition's state."""


@dataclass(frozen=True, slots=True)
class BrokerStopping:
    """The broker stops: nothing is acknowledged behind the last flush."""


ReplicaEvent: TypeAlias = (
    LogFound
    | LeaderAndIsrReceived
    | PartitionStateRead
    | Assigned
    | LeaderAndIsrAnswered
    | StopReplicaReceived
    | NotAssigned
    | TopicReplaced
    | LogRemoved
    | LogDirFailed
    | ServingEnded
    | LogDirReopened
    | LogMissing
    | Recreated
    | Forgotten
    | CatchUpRequired
    | CaughtUp
    | LogHasRoom
    | FutureReplicaSwapped
    | PowerLossCleared
    | BrokerStopping
)


class ReplicaEffect(Enum):
    """What the replica manager does."""

    ASSIGN = "assign"
    """Open the log, create it where there is none, then `Assigned`."""
    LEAD = "lead"
    FOLLOW = "follow"
    SET_TOPIC_ID = "set topic id"
    RESIGN = "resign"
    """Stop fetching, fail the requests that wait for the leadership; the partition stays."""
    END_SERVING = "end serving"
    """The same, and the partition goes. After `LogDirFailed`, `ServingEnded` follows."""
    DELETE_LOG = "delete log"
    SET_LOG_ASIDE = "set log aside"
    """Rename its directory to -stray. Both removals end with `LogRemoved`."""
    REPORT_LOG_DIRS = "report log dirs"
    """Have the controller send LeaderAndIsr for this broker's replicas again."""


class ReplicaDecision(NamedTuple):
    """The next value, what to do in this order, why, and the error code of the answer where there is one."""

    replica: LocalReplica
    effects: tuple[ReplicaEffect, ...] = ()
    reason: str = ""
    error: ErrorCode = ErrorCode.NONE


class RefusedEvent(AssertionError):
    """The state does not know the event: the caller's mistake."""


def decide(replica: LocalReplica, event: ReplicaEvent) -> ReplicaDecision:
    """The row of `TABLE` for this state and event. Raises RefusedEvent.

    >>> decide(LocalReplica(), StopReplicaReceived(3, delete=False)).reason
    'there is no replica to stop'
    """
    row = TABLE.get((replica.state, type(event)))
    if row is None:
        raise RefusedEvent(f"{replica} does not know {event}")
    return row(replica, event)


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


def _same(reason: str) -> Row:
    return lambda replica, event: ReplicaDecision(replica, reason=reason)


# LeaderAndIsr


def _refuse_offline(replica: LocalReplica, event: LeaderAndIsrReceived) -> ReplicaDecision:
    return ReplicaDecision(replica, reason="its log directory is offline", error=_KAFKA_STORAGE_ERROR)


def _check_leader_and_isr(replica: LocalReplica, event: LeaderAndIsrReceived) -> ReplicaDecision:
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


def _check_partition_state(replica: LocalReplica, event: PartitionStateRead) -> ReplicaDecision:
    if not event.is_log_here:
        return ReplicaDecision(replica, reason="its log was deleted since the state was read")
    if replica.leader_epoch is not None:
        is_newer = event.leader_epoch > replica.leader_epoch
        return ReplicaDecision(replica, (ReplicaEffect.ASSIGN,) * is_newer, "the controller was first" * (not is_newer))
    if event.reported_only and replica.reported is not Reported.OFFLINE:
        return ReplicaDecision(replica, reason="the controller does not take it for offline any more")
    return ReplicaDecision(replica, (ReplicaEffect.ASSIGN,), "as its partition's state says")


def _assign(replica: LocalReplica, event: Assigned) -> ReplicaDecision:
    if event.is_leader and not may_lead(is_caught_up=replica.is_caught_up):
        return _refuse_to_lead(replica)  # recreated since the command was checked
    if event.is_leader:
        state, effect = _S.LEADER, ReplicaEffect.LEAD
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


def _assign_offline(replica: LocalReplica, event: Assigned) -> ReplicaDecision:
    """The directory failed between the opening of the log and now: the partition goes as soon as this command ends."""
    decision = _assign(replica, event)
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


def _record_answer(replica: LocalReplica, event: LeaderAndIsrAnswered) -> ReplicaDecision:
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


def _stop(replica: LocalReplica, event: StopReplicaReceived) -> ReplicaDecision:
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


def _refuse_to_stop(replica: LocalReplica, event: StopReplicaReceived) -> ReplicaDecision:
    return ReplicaDecision(replica, reason="its log directory is offline", error=_KAFKA_STORAGE_ERROR)


def _remove(replica: LocalReplica, effect: ReplicaEffect, reason: str) -> ReplicaDecision:
    effects = (ReplicaEffect.END_SERVING, effect) if replica.is_assigned else (effect,)
    return ReplicaDecision(_unassigned(replica, _S.STRAY), effects, reason)


def _unassign(replica: LocalReplica, event: NotAssigned) -> ReplicaDecision:
    """What was served is deleted; what nobody has named since the start, or since it is back, is only set aside."""
    effect = ReplicaEffect.DELETE_LOG if replica.is_assigned else ReplicaEffect.SET_LOG_ASIDE
    decision = _remove(replica, effect, "it is not assigned to this broker any more")
    return decision._replace(replica=replace(decision.replica, has_lost_tail=False))


def _unassign_offline(replica: LocalReplica, event: NotAssigned) -> ReplicaDecision:
    """A log that is back by now goes; the one on the directory that is offline is stray when that returns."""
    decision = _unassign(replica, event)
    if replica.after_serving is None:
        decision = decision._replace(replica=replace(decision.replica, state=_S.OFFLINE))
    return decision


def _set_aside(replica: LocalReplica, event: TopicReplaced) -> ReplicaDecision:
    decision = _remove(replica, ReplicaEffect.SET_LOG_ASIDE, "it belongs to a topic that was deleted")
    return decision._replace(replica=replace(decision.replica, has_lost_tail=False))


def _removed(replica: LocalReplica, event: LogRemoved) -> ReplicaDecision:
    gone = replace(replica, state=_S.ABSENT, log_dir=None)
    return ReplicaDecision(_without_past(gone) if event.is_deleted else gone, reason="its log is removed")


def _removed_offline(replica: LocalReplica, event: LogRemoved) -> ReplicaDecision:
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
        reported=_without_back(replica.reported),
        after_serving=None,
    )


# Log directories


def _find(replica: LocalReplica, event: LogFound) -> ReplicaDecision:
    state = _S.LOADED if replica.is_caught_up else _S.RECREATING
    found = replace(replica, state=state, log_dir=event.log_dir, power_loss_suspected=event.power_loss_suspected)
    return ReplicaDecision(found, reason="found at the start")


def _fail(replica: LocalReplica, event: LogDirFailed) -> ReplicaDecision:
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


def _fail_again(replica: LocalReplica, event: LogDirFailed) -> ReplicaDecision:
    """It was back before its partition had gone."""
    return ReplicaDecision(
        replace(replica, log_dir=event.log_dir, after_serving=None, power_loss_suspected=False),
        reason="its log directory is offline",
    )


def _end_serving(replica: LocalReplica, event: ServingEnded) -> ReplicaDecision:
    return ReplicaDecision(_unassigned(replica, replica.after_serving or _S.OFFLINE), reason="its partition is gone")


def _reopen(replica: LocalReplica, event: LogDirReopened) -> ReplicaDecision:
    # One that lacked its tail when its directory failed once more has not acted since: it lacks it still.
    back = replace(
        replica,
        log_dir=event.log_dir,
        has_lost_tail=replica.has_lost_tail or not event.has_whole_log,
        power_loss_suspected=event.power_loss_suspected,
    )
    return _come_back(back, _S.REOPENED, "its log directory is back")


def _miss(replica: LocalReplica, event: LogMissing) -> ReplicaDecision:
    return _come_back(replace(replica, log_dir=None), _S.ABSENT, "its log directory is back without its log")


def _recreate(replica: LocalReplica, event: Recreated) -> ReplicaDecision:
    return _come_back(replace(replica, log_dir=event.log_dir), _S.RECREATING, "recreated, empty")


def _forget(replica: LocalReplica, event: Forgotten) -> ReplicaDecision:
    emptied = replace(replica, log_dir=event.log_dir, has_lost_tail=True)
    return _come_back(emptied, _S.REOPENED, "its records are given up, it starts empty")


def _come_back(replica: LocalReplica, state: LocalReplicaState, reason: str) -> ReplicaDecision:
    if replica.is_assigned:
        return ReplicaDecision(replace(replica, after_serving=state), reason=f"{reason}; its partition still has to go")
    return ReplicaDecision(replace(replica, state=state), reason=reason)


def _report_room(replica: LocalReplica, event: LogHasRoom) -> ReplicaDecision:
    return ReplicaDecision(replica, (ReplicaEffect.REPORT_LOG_DIRS,), "it has room again")


def _swap(replica: LocalReplica, event: FutureReplicaSwapped) -> ReplicaDecision:
    moved = replace(replica, log_dir=event.log_dir)
    if replica.reported is Reported.OFFLINE and not event.is_full:
        return ReplicaDecision(moved, (ReplicaEffect.REPORT_LOG_DIRS,), "it has room in its new log directory")
    return ReplicaDecision(moved, reason="it is in another log directory")


def _clear_power_loss(replica: LocalReplica, event: PowerLossCleared) -> ReplicaDecision:
    return ReplicaDecision(replace(replica, power_loss_suspected=False), reason="nobody relies on what may be lost")


# Catching up


def _require_catch_up(replica: LocalReplica, event: CatchUpRequired) -> ReplicaDecision:
    return ReplicaDecision(replace(replica, is_caught_up=False), reason="it lacks committed records")


def _begin_catch_up(replica: LocalReplica, event: CatchUpRequired) -> ReplicaDecision:
    """The registry could not record that it has caught up."""
    return ReplicaDecision(
        replace(replica, is_caught_up=False, state=_S.RECREATING), reason="it counts as one that lacks records again"
    )


def _note_caught_up(replica: LocalReplica, event: CaughtUp) -> ReplicaDecision:
    return ReplicaDecision(replace(replica, is_caught_up=True), reason="it has every committed record")


def _catch_up(replica: LocalReplica, event: CaughtUp) -> ReplicaDecision:
    state = _S.FOLLOWER if replica.is_assigned else _S.LOADED
    return ReplicaDecision(
        replace(replica, is_caught_up=True, state=state), reason="it has every committed record: it may lead"
    )


def _resign(replica: LocalReplica, event: BrokerStopping) -> ReplicaDecision:
    if not replica.is_assigned:
        return ReplicaDecision(replica, reason="it is not served")
    state = replica.state if replica.state is _S.OFFLINE else _S.STOPPED
    return ReplicaDecision(replace(replica, state=state), (ReplicaEffect.RESIGN,), "the broker stops")


# The table

Row: TypeAlias = Callable[[LocalReplica, Any], ReplicaDecision]

SERVED = (_S.LEADER, _S.FOLLOWER, _S.STOPPED, _S.HANDED_OVER_FULL)
"""States that a command of the controller leads to; RECREATING and OFFLINE may be assigned or not."""

_BEFORE_COMMAND = (_S.ABSENT, _S.LOADED, _S.REOPENED)


def _rows(
    kind: type[Any], *parts: tuple[Iterable[LocalReplicaState], Row]
) -> dict[tuple[LocalReplicaState, type[Any]], Row]:
    return {(state, kind): row for states, row in parts for state in states}


_WITH_LOG = (_S.LOADED, *SERVED, _S.REOPENED, _S.RECREATING)

TABLE: Mapping[tuple[LocalReplicaState, type[Any]], Row] = MappingProxyType(
    {
        **_rows(LogFound, ((_S.ABSENT,), _find)),
        **_rows(
            LeaderAndIsrReceived, ((_S.ABSENT, *_WITH_LOG), _check_leader_and_isr), ((_S.OFFLINE,), _refuse_offline)
        ),
        **_rows(
            PartitionStateRead,
            ((_S.ABSENT, _S.OFFLINE, *_WITH_LOG), _check_partition_state),
        ),
        **_rows(Assigned, ((_S.ABSENT, *_WITH_LOG), _assign), ((_S.OFFLINE,), _assign_offline)),
        **_rows(LeaderAndIsrAnswered, (_S, _record_answer)),
        **_rows(StopReplicaReceived, ((_S.ABSENT, *_WITH_LOG), _stop), ((_S.OFFLINE,), _refuse_to_stop)),
        **_rows(
            NotAssigned,
            ((_S.ABSENT, *_WITH_LOG), _unassign),
            ((_S.OFFLINE,), _unassign_offline),
        ),
        **_rows(TopicReplaced, ((_S.ABSENT, *_WITH_LOG), _set_aside)),
        **_rows(
            LogRemoved,
            ((_S.STRAY,), _removed),
            ((_S.OFFLINE,), _removed_offline),
            ((_S.ABSENT, *_WITH_LOG), _same("its log is another one by now")),
        ),
        **_rows(
            LogDirFailed,
            ((_S.ABSENT, *_WITH_LOG, _S.STRAY), _fail),
            ((_S.OFFLINE,), _fail_again),
        ),
        **_rows(ServingEnded, ((_S.OFFLINE,), _end_serving)),
        **_rows(
            LogDirReopened,
            ((_S.ABSENT, _S.OFFLINE), _reopen),
            ((*_WITH_LOG, _S.STRAY), _same("its log is in another directory")),
        ),
        **_rows(LogMissing, ((_S.OFFLINE,), _miss)),
        **_rows(Recreated, ((_S.ABSENT, _S.OFFLINE), _recreate)),
        **_rows(Forgotten, ((_S.ABSENT, _S.OFFLINE), _forget)),
        **_rows(
            CatchUpRequired,
            ((_S.LOADED, _S.FOLLOWER, _S.RECREATING), _begin_catch_up),
            (
                (_S.ABSENT, _S.LEADER, _S.STOPPED, _S.HANDED_OVER_FULL, _S.OFFLINE, _S.REOPENED, _S.STRAY),
                _require_catch_up,
            ),
        ),
        **_rows(
            CaughtUp,
            ((_S.RECREATING,), _catch_up),
            (tuple(state for state in _S if state is not _S.RECREATING), _note_caught_up),
        ),
        **_rows(
            LogHasRoom,
            ((_S.HANDED_OVER_FULL,), _report_room),
            (tuple(state for state in _S if state is not _S.HANDED_OVER_FULL), _same("it has not left its place")),
        ),
        **_rows(FutureReplicaSwapped, ((*SERVED, _S.RECREATING, _S.OFFLINE), _swap)),
        **_rows(PowerLossCleared, (_S, _clear_power_loss)),
        **_rows(BrokerStopping, (_S, _resign)),
    }
)

REFUSED = MappingProxyType(
    {
        LogFound: "logs are found before any command, once each",
        LeaderAndIsrReceived: "the removal of a stray log holds the lock of the commands",
        PartitionStateRead: "the removal of a stray log holds the lock of the commands",
        Assigned: "the removal of a stray log holds the lock of the commands",
        StopReplicaReceived: "the removal of a stray log holds the lock of the commands",
        NotAssigned: "it is being removed already",
        TopicReplaced: "an offline log is compared when its directory is back, a stray one goes anyway",
        ServingEnded: "only the partition of an offline replica goes after the state has changed",
        LogMissing: "only a log on an offline directory can be missed when that is back",
        Recreated: "a log is made only where there is none",
        Forgotten: "a log is made only where there is none",
        FutureReplicaSwapped: "only the log of a partition is moved",
    }
)
"""Why the states that have no row in `TABLE` do not know the event."""
