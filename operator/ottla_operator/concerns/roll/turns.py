"""Whose turn it is to roll: at most so many clusters of one operator restart members at the same time.

A roll holds a turn from its first batch to its end. The others wait in the order in which their rolls began. A turn is
given back by a roll that restarts nobody: one that waits for an approval or a maintenance window, that has been blocked
for `PATIENCE_S`, whose cluster is paused or terminating, or whose reconciliations fail. When such a roll goes on it
finishes the batch that is under way. Before the next one it waits for the batches of those that have its turn now, and
then comes in the order in which the rolls began.

    most 1   a: restarts 1 of 3   b: waits since 10:00   c: waits since 10:05
             a is blocked         b: restarts 1 of 3     c: waits
             a's broker is back   a finishes the batch, then waits for the batch of b
             b's batch is done    a: restarts 2 of 3     b, c: wait

All of it follows from status.roll of the clusters, so it outlives a restart of the operator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla_operator.api import names
from ottla_operator.api.objects import Obj, annotation, dig, is_terminating, name_of
from ottla_operator.concerns.roll.machine import is_blocked
from ottla_operator.concerns.roll.state import from_status
from ottla_operator.facts.maintenance import decide_maintenance
from ottla_operator.facts.progress import PATIENCE_S
from ottla_operator.facts.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class QueuedRoll:
    """A roll that `holds` a turn, or wants one. `cluster`: namespace/name.

    `restarts`: a batch of it is under way, or may be chosen at any moment.
    """

    cluster: str
    started: str
    holds: bool
    restarts: bool = False


def cluster_text(cluster: Obj) -> str:
    return f"{dig(cluster, 'metadata', 'namespace')}/{name_of(cluster)}"


def queued_roll(cluster: Obj, now: str) -> QueuedRoll | None:
    """The roll of a cluster as its status has it; None when there is none, or when it gives its turn back."""
    roll = from_status(dig(cluster, "status", "roll"))
    if roll is None or roll.awaits or is_terminating(cluster) or dig(cluster, "spec", "paused") is True:
        return None
    if roll.waiting is not None:
        wants = roll.waiting.reason == "AwaitingTurn"
        return QueuedRoll(cluster_text(cluster), roll.started, holds=False) if wants else None
    if roll.failed or is_blocked(roll, now, patience_s=PATIENCE_S):
        return None
    restarts = bool(roll.batch)
    return QueuedRoll(cluster_text(cluster), roll.started, holds=restarts or roll.batches_done > 0, restarts=restarts)


def rolls_ahead(cluster: str, started: str, rolls: Iterable[QueuedRoll], most: int) -> tuple[str, ...]:
    """The clusters that this one waits for, those that hold a turn first; empty when it is its turn.

    More than `most` may hold one when a roll that was stuck goes on: those that restart members now come first.

    Args:
        started: when its own roll began.
        rolls: the others, and itself where its status has it.
        most: how many may restart members at the same time; 0: any number.

    >>> held, older = QueuedRoll("n/a", "10:00", holds=True), QueuedRoll("n/b", "10:05", holds=False)
    >>> rolls_ahead("n/c", "10:10", [older, held], 1), rolls_ahead("n/c", "10:10", [held], 2)
    (('n/a', 'n/b'), ())
    >>> back, now = QueuedRoll("n/a", "10:00", holds=True), QueuedRoll("n/b", "10:05", holds=True, restarts=True)
    >>> rolls_ahead("n/a", "10:00", [back, now], 1), rolls_ahead("n/a", "10:00", [back, now], 2)
    (('n/b',), ())
    >>> rolls_ahead("n/a", "10:00", [held, older], 1), rolls_ahead("n/b", "10:05", [older], 1)
    ((), ())
    """
    found = {one.cluster: one for one in rolls}
    mine = found.setdefault(cluster, QueuedRoll(cluster, started, holds=False))
    order = sorted(found.values(), key=lambda one: (not one.holds, not one.restarts, one.started, one.cluster))
    ahead = tuple(one.cluster for one in order[: order.index(mine)])
    return ahead if most and len(ahead) >= most else ()


def wants_turn(snapshot: Snapshot) -> bool:
    """Whether the roll in status would choose a batch now, if it is its turn."""
    roll = from_status(snapshot.status("roll"))
    if roll is None or roll.batch or snapshot.cluster.paused or decide_maintenance(snapshot).waits_for:
        return False
    return not roll.awaits or annotation(snapshot.resource, names.APPROVE_ROLL) == roll.awaits
