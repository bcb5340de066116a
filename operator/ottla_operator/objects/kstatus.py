"""Reconciling and Stalled as kstatus of kubernetes-sigs/cli-utils reads them, by which Flux and Helm 4 judge objects.

    Stalled      something that only a change of the document ends: kstatus says Failed
    Reconciling  Ready is not True, or members are being restarted: InProgress
    neither      Current, when Ready is True and the generation is observed

Never both. A roll that waits for a person, a window or a turn makes neither: a tool that waits for the end of a
deployment would wait until Saturday. What a node that is back may end, such as a lost claim, is not Stalled: tools roll
back what has failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla_operator.api.condition_reasons import ONLY_A_CHANGE_ENDS, READY, RECONCILING, ROLLED, STALLED
from ottla_operator.api.conditions import Condition, condition_true

RESTARTING = ("Rolling", "RaisesProtocol", "Blocked")
"""The reasons of Rolled with which members are being restarted."""


def decide_kstatus(conditions: Sequence[Condition], *, is_paused: bool) -> tuple[Condition, ...]:
    """The condition Stalled or Reconciling; none at rest, and none of a paused cluster.

    Args:
        conditions: one of each other type, Ready included.
    """
    if is_paused:
        return ()
    for one in conditions:
        if one.status != "True" and one.reason in ONLY_A_CHANGE_ENDS:
            return (condition_true(STALLED, one.reason, f"{one.type}: {one.message}"),)
    for one in conditions:
        if (one.type == READY and one.status != "True") or (one.type == ROLLED and one.reason in RESTARTING):
            return (condition_true(RECONCILING, "Progressing", f"{one.type}: {one.reason}"),)
    return ()
