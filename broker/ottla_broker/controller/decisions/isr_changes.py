"""Decides whether a leader may change its ISR: the rules of AlterPartition (KIP-497, KIP-841, KIP-704).

Pure. `decide_isr_change` takes what the leader asks for and what the controller knows, and gives what to write, or that
nothing needs to be written, or the error for the leader. Not here: reading the request (`server.handlers`), writing the
state znode (`acts.isr_writes`).

The order of the checks (the first that fails gives the error)
1. unknown partition                                          UNKNOWN_TOPIC_OR_PARTITION
2. partition epoch or leader epoch ahead of ours              NOT_CONTROLLER (this broker is probably no longer it)
3. leader epoch behind                                        FENCED_LEADER_EPOCH
4. the sender does not lead the partition                     INVALID_REQUEST
5. already as requested                                       the present state, no write (a repeated request)
6. partition epoch behind                                     INVALID_UPDATE_VERSION
7. ISR without the leader, with non-replicas or duplicates,
   RECOVERING with more than the leader, or RECOVERED turned
   back into RECOVERING                                       INVALID_REQUEST
8. a member is offline or an earlier incarnation              INELIGIBLE_REPLICA (v2+), OPERATION_NOT_ATTEMPTED
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from ottla_broker.controller.values import LeaderAndIsr, LeaderRecoveryState
from ottla_broker.protocol.errors import ErrorCode

UNKNOWN_BROKER_EPOCH = -1
"""A member of the new ISR whose incarnation the leader does not name (AlterPartition before v3)."""


@dataclass(frozen=True, slots=True)
class IsrChange:
    """What the leader `broker` requests; `isr` pairs each member with its broker epoch or -1, in the order sent."""

    broker: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[tuple[int, int]]
    recovery_state: int = LeaderRecoveryState.RECOVERED


@dataclass(frozen=True, slots=True)
class IsrDecision:
    """`error` NONE with `write`: to be written. NONE without: already as requested. Another error: refused."""

    error: ErrorCode
    reason: str
    write: LeaderAndIsr | None = None


def decide_isr_change(
    change: IsrChange,
    current: LeaderAndIsr | None,
    *,
    replicas: Sequence[int],
    online: Set[int],
    broker_epochs: Mapping[int, int],
    version: int,
) -> IsrDecision:
    """Decides one change.

    Args:
        current: the present leadership, None for an unknown partition.
        online: the brokers whose replica of the partition is online.
        broker_epochs: the epochs of the live brokers.
        version: the version of the request.
    """
    if current is None:
        return _refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition has no leadership here")
    if change.partition_epoch > current.partition_epoch or change.leader_epoch > current.leader_epoch:
        return _refuse(
            ErrorCode.NOT_CONTROLLER,
            f"epochs {change.leader_epoch}/{change.partition_epoch} are ahead of our {current.leader_epoch}/"
            f"{current.partition_epoch}: another controller has written them",
        )
    if change.leader_epoch < current.leader_epoch:
        return _refuse(
            ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {change.leader_epoch} is behind {current.leader_epoch}"
        )
    if change.broker != current.leader:
        return _refuse(ErrorCode.INVALID_REQUEST, f"broker {change.broker} does not lead, {current.leader} does")
    isr = tuple(broker for broker, _ in change.isr)
    if isr == current.isr and change.recovery_state == current.recovery_state:
        return IsrDecision(ErrorCode.NONE, "already as requested")
    if change.partition_epoch < current.partition_epoch:
        return _refuse(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"partition epoch {change.partition_epoch} is behind {current.partition_epoch}",
        )
    malformed = _what_is_wrong(change, isr, current, replicas)
    if malformed:
        return _refuse(ErrorCode.INVALID_REQUEST, malformed)
    ineligible = [
        broker
        for broker, epoch in change.isr
        if broker not in online or epoch not in (UNKNOWN_BROKER_EPOCH, broker_epochs.get(broker))
    ]
    if ineligible:
        return _refuse(
            ErrorCode.INELIGIBLE_REPLICA if version > 1 else ErrorCode.OPERATION_NOT_ATTEMPTED,
            f"brokers {','.join(map(str, ineligible))} are offline or have restarted meanwhile",
        )
    # The leader stays: its epoch does not grow, only the partition epoch does when the znode is written.
    return IsrDecision(
        ErrorCode.NONE,
        f"ISR {','.join(map(str, current.isr))} becomes {','.join(map(str, isr))}",
        replace(current, isr=isr, recovery_state=LeaderRecoveryState(change.recovery_state)),
    )


def _what_is_wrong(
    change: IsrChange, isr: tuple[int, ...], current: LeaderAndIsr, replicas: Sequence[int]
) -> str | None:
    strangers = sorted(set(isr) - set(replicas))
    if change.recovery_state not in (LeaderRecoveryState.RECOVERED, LeaderRecoveryState.RECOVERING):
        return f"leader recovery state {change.recovery_state} does not exist"
    if current.leader not in isr:
        return f"the new ISR lacks the leader {current.leader}"
    if strangers:
        return f"brokers {','.join(map(str, strangers))} of the new ISR have no replica"
    if len(set(isr)) != len(isr):
        return "the new ISR names a broker twice"
    if change.recovery_state == LeaderRecoveryState.RECOVERING:
        if current.recovery_state == LeaderRecoveryState.RECOVERED:
            return "a recovered leader cannot become RECOVERING"
        if len(isr) > 1:
            return "a RECOVERING leader is the only member of its ISR"
    return None


def _refuse(error: ErrorCode, reason: str) -> IsrDecision:
    return IsrDecision(error, reason)
