"""LocalReplica: the whole state of one replica on this broker, as a value. Pure; what changes it is `states`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ottla_broker.replication.isr import LedState

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
    """Neither leads nor follows: StopReplica without deletion, the broker stops, or it is in controlled shutdown."""
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
    led: LedState | None = None
    """How it led before its log directory failed; it may lead again in the same leader epoch."""
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
