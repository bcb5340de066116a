"""The states of a partition's replica on this broker, and everything that changes them, as one table.

`decide` takes a replica (local_replica.py) and an event (replica_events.py), and returns the replica's next value, the
effects that the broker carries out, the reason, and the error code of the answer. Pure: no clock, no file, no await.
Every pair of state and event has a row in `TABLE`, a function of transitions.py, or `REFUSED` says why it has none.

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
- What a directory held that is offline since the start is `Absent`, as in Apache Kafka (HostedPartition.None), until a
  LeaderAndIsr is answered KAFKA_STORAGE_ERROR: StopReplica with deletion hears NONE, and the deletion is recorded, so
  that the log is stale when its directory is back.
- A full log directory is no event of its own: the broker reports it, the controller sends LeaderAndIsr again, and that
  event says whether the log is full and others in sync can take over (`leave_to_others`).
- `is_caught_up`, `has_lost_tail`, `reported` and `last_active_epoch` survive changes of state (a recreated replica may
  fail, be full or be stopped before it has caught up), so they are fields and not states.
- What storage knows of files stays in storage: Log.is_failed and Log.is_full make a log refuse calls by itself, and
  requests look at the first before they look for a reason here; LogTable.offline has the end of each log that is lost
  for now; the replica registry is the durable form of `is_caught_up`. Storage reports every change as an event.

Worked example: broker 1 follows, its directory fails, the replica is recreated and catches up.

    >>> from ottla_broker.protocol.errors import ErrorCode
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

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ottla_broker.replication.replica_states import transitions
from ottla_broker.replication.replica_states.local_replica import LocalReplica, LocalReplicaState
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
    ReplicaEvent,
    ServingEnded,
    StopReplicaReceived,
    TopicReplaced,
)
from ottla_broker.replication.replica_states.transitions import ReplicaDecision, Row

_S = LocalReplicaState


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


# The table


SERVED = (_S.LEADER, _S.FOLLOWER, _S.STOPPED, _S.HANDED_OVER_FULL)
"""States that a command of the controller leads to; RECREATING and OFFLINE may be assigned or not."""


def _rows(
    kind: type[Any], *parts: tuple[Iterable[LocalReplicaState], Row]
) -> dict[tuple[LocalReplicaState, type[Any]], Row]:
    return {(state, kind): row for states, row in parts for state in states}


_WITH_LOG = (_S.LOADED, *SERVED, _S.REOPENED, _S.RECREATING)

TABLE: Mapping[tuple[LocalReplicaState, type[Any]], Row] = MappingProxyType(
    {
        **_rows(LogFound, ((_S.ABSENT,), transitions.find)),
        **_rows(
            LeaderAndIsrReceived,
            ((_S.ABSENT, *_WITH_LOG), transitions.check_leader_and_isr),
            ((_S.OFFLINE,), transitions.refuse_offline),
        ),
        **_rows(
            PartitionStateRead,
            ((_S.ABSENT, _S.OFFLINE, *_WITH_LOG), transitions.check_partition_state),
        ),
        **_rows(Assigned, ((_S.ABSENT, *_WITH_LOG), transitions.assign), ((_S.OFFLINE,), transitions.assign_offline)),
        **_rows(LeaderAndIsrAnswered, (_S, transitions.record_answer)),
        **_rows(
            StopReplicaReceived,
            ((_S.ABSENT, *_WITH_LOG), transitions.stop),
            ((_S.OFFLINE,), transitions.refuse_to_stop),
        ),
        **_rows(
            NotAssigned,
            ((_S.ABSENT, *_WITH_LOG), transitions.unassign),
            ((_S.OFFLINE,), transitions.unassign_offline),
        ),
        **_rows(TopicReplaced, ((_S.ABSENT, *_WITH_LOG), transitions.set_aside)),
        **_rows(
            LogRemoved,
            ((_S.STRAY,), transitions.removed),
            ((_S.OFFLINE,), transitions.removed_offline),
            ((_S.ABSENT, *_WITH_LOG), transitions.same("its log is another one by now")),
        ),
        **_rows(
            LogDirFailed,
            ((_S.ABSENT, *_WITH_LOG, _S.STRAY), transitions.fail),
            ((_S.OFFLINE,), transitions.fail_again),
        ),
        **_rows(ServingEnded, ((_S.OFFLINE,), transitions.end_serving)),
        **_rows(
            LogDirReopened,
            ((_S.ABSENT, _S.OFFLINE), transitions.reopen),
            ((*_WITH_LOG, _S.STRAY), transitions.same("its log is in another directory")),
        ),
        **_rows(LogMissing, ((_S.OFFLINE,), transitions.miss)),
        **_rows(Recreated, ((_S.ABSENT, _S.OFFLINE), transitions.recreate)),
        **_rows(Forgotten, ((_S.ABSENT, _S.OFFLINE), transitions.forget)),
        **_rows(
            CatchUpRequired,
            ((_S.LOADED, _S.FOLLOWER, _S.RECREATING), transitions.begin_catch_up),
            (
                (_S.ABSENT, _S.LEADER, _S.STOPPED, _S.HANDED_OVER_FULL, _S.OFFLINE, _S.REOPENED, _S.STRAY),
                transitions.require_catch_up,
            ),
        ),
        **_rows(
            CaughtUp,
            ((_S.RECREATING,), transitions.catch_up),
            (tuple(state for state in _S if state is not _S.RECREATING), transitions.note_caught_up),
        ),
        **_rows(
            LogHasRoom,
            ((_S.HANDED_OVER_FULL,), transitions.report_room),
            (
                tuple(state for state in _S if state is not _S.HANDED_OVER_FULL),
                transitions.same("it has not left its place"),
            ),
        ),
        **_rows(FutureReplicaSwapped, ((*SERVED, _S.RECREATING, _S.OFFLINE), transitions.swap)),
        **_rows(PowerLossCleared, (_S, transitions.clear_power_loss)),
        **_rows(BrokerStopping, (_S, transitions.resign)),
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
