"""What happens to a replica on this broker (events), and what the broker does about it (effects). Values only.

Which event a state knows, and what follows, is the table of `states`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.replication.isr import LedState
from ottla_broker.replication.replica_states.commands import LeadershipCommand


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
    """The log is open: the command is carried out now.

    Args:
        stays_stopped: where others lead it does not follow: its broker is in controlled shutdown, and it is in no ISR.
    """

    leader_epoch: int
    is_leader: bool
    log_dir: str
    stays_stopped: bool = False


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
    """The partition of a replica whose log directory failed is gone; `led`: how it led, None where it never did."""

    led: LedState | None = None


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
