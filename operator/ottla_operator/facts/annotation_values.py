"""The annotations that a person writes on a KafkaCluster, and what is wrong with their values.

A value that cannot be used does nothing, so it is named as soon as it is there: whoever has written it waits for it.
A value that was right once (an approval of an earlier roll, an end of a window that has passed) is not wrong.
"""

from __future__ import annotations

import re
from datetime import datetime

from ottla_operator.api import names
from ottla_operator.api.objects import Obj, annotation

SHOWN_LENGTH = 40
_HASH = re.compile(r"[0-9a-f]+")
_TOKEN = re.compile(r"[0-9]+-[0-9a-f]{8}")


def maintenance_until(text: str) -> tuple[datetime | None, str]:
    """The time in the annotation maintenance-until, and what is wrong with it.

    >>> maintenance_until("2026-11-28T21:00:00Z")[1], maintenance_until("tonight")[1]
    ('', "the annotation kafka.ottla.dev/maintenance-until is no time such as 2026-11-28T21:00:00Z: 'tonight'")
    """
    if not text:
        return None, ""
    shown = text[:SHOWN_LENGTH]
    try:
        until = datetime.fromisoformat(text)
    except ValueError:
        return None, f"the annotation {names.MAINTENANCE_UNTIL} is no time such as 2026-11-28T21:00:00Z: {shown!r}"
    if until.tzinfo is None:
        return None, f"the annotation {names.MAINTENANCE_UNTIL} has no time zone; write {shown}Z for UTC"
    return until, ""


def accepted_losses(resource: Obj) -> list[str]:
    """The tokens in the annotation accept-zookeeper-loss."""
    return (annotation(resource, names.ACCEPT_LOSS) or "").replace(",", " ").split()


def wrong_approval(resource: Obj, awaited: str) -> str:
    """What to say of the annotation approve-roll while a roll awaits another value; "" when there is none."""
    given = annotation(resource, names.APPROVE_ROLL)
    if not given or given == awaited:
        return ""
    return f"the annotation {names.APPROVE_ROLL} is {given[:SHOWN_LENGTH]!r}, which is not the approval of this roll"


def wrong_annotations(resource: Obj) -> list[str]:
    """What is wrong with the annotations of a KafkaCluster, whatever the cluster waits for.

    >>> wrong_annotations({"metadata": {"annotations": {names.APPROVE_ROLL: "yes"}}})
    ["the annotation kafka.ottla.dev/approve-roll is 'yes', and no value of status.roll.awaitingApproval"]
    """
    _, wrong = maintenance_until(annotation(resource, names.MAINTENANCE_UNTIL) or "")
    found = [wrong] if wrong else []
    given = annotation(resource, names.APPROVE_ROLL) or ""
    if given and not _HASH.fullmatch(given):
        shown = given[:SHOWN_LENGTH]
        found.append(f"the annotation {names.APPROVE_ROLL} is {shown!r}, and no value of status.roll.awaitingApproval")
    if strange := [token for token in accepted_losses(resource) if not _TOKEN.fullmatch(token)]:
        shown = strange[0][:SHOWN_LENGTH]
        found.append(
            f"the annotation {names.ACCEPT_LOSS} has {shown!r}, which is no token of a server such as 1-0a1b2c3d"
        )
    return found
