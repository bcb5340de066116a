"""Replicas whose log directory is back: who may lead or follow at once, and who waits. Pure.

While its directory was offline the controller may have heard of it (KAFKA_STORAGE_ERROR, 56) or not, and the log that
is back may be shorter than it was: what was not synced is lost, as after a power loss. A replica that others count as
in sync must not act on a shorter log: it would lead with records missing, or be elected with them missing.

    >>> led = {"leader": 1, "replicas": (1, 2), "leader_epoch": 4, "last_epoch": 4}
    >>> decide_return(1, **led, isr=(1, 2), is_whole=True).action.value
    'admit'
    >>> decide_return(1, **led, isr=(1, 2), is_whole=False).action.value
    'wait'
    >>> decide_return(1, **led | {"leader": 2, "leader_epoch": 5}, isr=(2,), is_whole=False).action.value
    'admit'

The last one in sync has no other replica that could lead; its followers start again from its log, in a new epoch.

    >>> decide_return(1, **led, isr=(1,), is_whole=False).reason
    'it is the last in sync, and may have written more in epoch 4'
    >>> decide_return(1, **led | {"leader_epoch": 5}, isr=(1,), is_whole=False).action.value
    'admit'
    >>> decide_return(1, **led | {"leader": -1}, isr=(1,), is_whole=False).action.value
    'admit'
    >>> decide_return(1, **led | {"replicas": (1,)}, isr=(1,), is_whole=False).reason
    'no other broker has a copy'
    >>> decide_return(1, **led | {"replicas": (2, 3)}, isr=(2,), is_whole=True).action.value
    'leave'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ottla_broker.metadata.cache import NO_LEADER


class ReturnAction(Enum):
    ADMIT = "admit"
    """It leads or follows as the partition's state says."""
    WAIT = "wait"
    """It answers KAFKA_STORAGE_ERROR until the controller has given the partition another state."""
    LEAVE = "leave"
    """The partition is no longer this broker's: the log becomes a stray."""


@dataclass(frozen=True, slots=True)
class ReturnDecision:
    """What becomes of the replica, and why."""

    action: ReturnAction
    reason: str


def decide_return(
    broker_id: int,
    *,
    leader: int,
    isr: Sequence[int],
    replicas: Sequence[int],
    leader_epoch: int,
    last_epoch: int | None,
    is_whole: bool,
) -> ReturnDecision:
    """`leader`, `isr`, `replicas` and `leader_epoch` as the partition's state or a LeaderAndIsr says;
    `last_epoch`: the replica may have acted in it, and in none that came later, None when nobody knows; `is_whole`: the
    log is as long as it was."""
    if broker_id not in replicas:
        return ReturnDecision(ReturnAction.LEAVE, "the partition is not assigned to this broker any more")
    if is_whole:
        return ReturnDecision(ReturnAction.ADMIT, "the log is as long as it was")
    if tuple(replicas) == (broker_id,):
        return ReturnDecision(ReturnAction.ADMIT, "no other broker has a copy")
    if broker_id not in isr:
        return ReturnDecision(ReturnAction.ADMIT, "others are in sync, and it catches up with them")
    if len(isr) > 1:
        return ReturnDecision(ReturnAction.WAIT, "the log is shorter than it was, and others in sync have all")
    if leader == NO_LEADER and (last_epoch is None or leader_epoch >= last_epoch):
        return ReturnDecision(
            ReturnAction.ADMIT, "it is the last in sync, nobody leads, and its election begins a new epoch"
        )
    if last_epoch is None:
        return ReturnDecision(ReturnAction.WAIT, "it is the last in sync, and may have written more in this epoch")
    if leader_epoch <= last_epoch:
        return ReturnDecision(
            ReturnAction.WAIT, f"it is the last in sync, and may have written more in epoch {last_epoch}"
        )
    return ReturnDecision(ReturnAction.ADMIT, "it is the last in sync, and its followers begin a new epoch with it")
