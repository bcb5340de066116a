"""Recreation of replicas whose log directory failed: which ones, on which directory, and when they may lead. Pure.

    1  the directory fails; the broker writes the log-directory event and answers KAFKA_STORAGE_ERROR (56)
    2  the controller removes the broker from the ISR, elects another leader where it led, and reports the replica as
       offline to everybody (UpdateMetadata): from then on it accepts no AlterPartition that adds the broker to the ISR
    3  the state znode, read after that, shows it: the replica is recreated, empty, and follows   `decide_recreation`
    4  the event again: the controller repeats LeaderAndIsr, and the answer NONE brings the replica back online

An empty replica must never be elected: the others would cut their logs to its end. Three rules prevent it. It is
recreated only when the partition's state counts this broker neither as leader nor in sync, and no request that the
leader sent before the failure can change that (2). The leader adds it to the ISR only when it has caught up, as any
follower. And until it has once had every record that its leader called committed it refuses to lead, with 56, whoever
asks (`may_lead`), also after a restart. The last rule holds against an unclean election, and against a fetch of the old
replica that reaches the leader late and puts the broker back into the ISR.

    >>> d1, d2 = Target("/d1", 900), Target("/d2", 500)
    >>> known = {"replicas": (1, 2, 3), "targets": [d1, d2], "is_slot_free": True, "is_known_offline": True}
    >>> decision = decide_recreation(1, leader=2, isr=(2, 3), size_bytes=100, **known)
    >>> decision.action.value, decision.reason, decision.path
    ('create', '900 bytes are free there beyond the reserve', '/d1')
    >>> decide_recreation(1, leader=2, isr=(2, 1), size_bytes=100, **known).reason
    'the ISR 2,1 still names this broker'
    >>> decide_recreation(1, leader=-1, isr=(1,), size_bytes=100, **known).action.value
    'lost'
    >>> decide_recreation(1, leader=2, isr=(2,), size_bytes=950, **known).reason
    'no log directory that is online has room for its 950 bytes beyond the reserve'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

NO_LEADER = -1


class RecreationAction(Enum):
    CREATE = "create"
    """It is recreated on `path` and follows."""
    REJOIN = "rejoin"
    """It was recreated before, and follows the leader that the state names."""
    WAIT = "wait"
    LOST = "lost"
    """This broker alone was in sync: a person decides (`ottla disk forget`), or the directory comes back."""
    LEAVE = "leave"
    """The partition is not assigned to this broker any more."""


@dataclass(frozen=True, slots=True)
class Target:
    """A directory that takes new logs, and its bytes beyond the reserve that no other recreated replica will need."""

    path: str
    room_bytes: int


@dataclass(frozen=True, slots=True)
class RecreationDecision:
    """What to do with the replica, and why; `path` only with CREATE."""

    action: RecreationAction
    reason: str
    path: str = ""


def decide_recreation(
    broker_id: int,
    *,
    leader: int,
    isr: Sequence[int],
    replicas: Sequence[int],
    size_bytes: int,
    targets: Sequence[Target],
    is_slot_free: bool,
    is_known_offline: bool,
    is_catching_up: bool = False,
) -> RecreationDecision:
    """`leader` and `isr` as the partition's state says now; `size_bytes` of the log that is lost, -1 when not known.

    Args:
        is_slot_free: not too many replicas catch up already.
        is_known_offline: the controller had published that it takes the replica for offline before `leader` and `isr`
            were read.
        is_catching_up: it was recreated, and has answered 56 since.
    """
    if broker_id not in replicas:
        return RecreationDecision(RecreationAction.LEAVE, "the partition is not assigned to this broker any more")
    if tuple(isr) == (broker_id,):
        return RecreationDecision(RecreationAction.LOST, "this broker alone was in sync")
    if leader == broker_id:
        return RecreationDecision(RecreationAction.WAIT, "this broker is still its leader")
    if broker_id in isr:
        return RecreationDecision(RecreationAction.WAIT, f"the ISR {','.join(map(str, isr))} still names this broker")
    if leader == NO_LEADER:
        return RecreationDecision(RecreationAction.WAIT, "nobody leads whom it could follow")
    if is_catching_up:
        return RecreationDecision(RecreationAction.REJOIN, f"broker {leader} leads")
    if not is_known_offline:
        return RecreationDecision(
            RecreationAction.WAIT, "the controller does not say yet that it takes the replica for offline"
        )
    if not is_slot_free:
        return RecreationDecision(RecreationAction.WAIT, "other replicas catch up first")
    best = max(targets, key=lambda one: one.room_bytes, default=None)
    if best is None:
        return RecreationDecision(RecreationAction.WAIT, "no log directory is online and takes new replicas")
    if best.room_bytes <= max(size_bytes, 0):
        return RecreationDecision(
            RecreationAction.WAIT,
            f"no log directory that is online has room for its {size_bytes} bytes beyond the reserve",
        )
    return RecreationDecision(
        RecreationAction.CREATE, f"{best.room_bytes} bytes are free there beyond the reserve", best.path
    )


def may_lead(*, is_caught_up: bool) -> bool:
    """Whether a replica that is named leader takes it on."""
    return is_caught_up


def has_caught_up(log_end_offset: int, leader_high_watermark: int) -> bool:
    """Whether a follower has all that its leader says is committed; -1: the leader has said nothing yet.

    A leader takes a follower into the ISR at its high watermark or beyond, and high watermarks only grow: who has not
    had what the leader said last cannot have reached that.
    """
    return 0 <= leader_high_watermark <= log_end_offset
