"""The Events for changes of a status: Normal for progress, Warning for any other condition that is not True.

A condition that is not True is not a Warning in itself: a roll, a change of a topic and a cluster that has never been
ready are progress. Kubernetes itself warns about pods that cannot be scheduled or started.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ottla_operator.api.condition_reasons import ABNORMAL, ONLY_A_CHANGE_ENDS
from ottla_operator.api.names import FIELD_MANAGER
from ottla_operator.api.objects import EVENT, Obj, dig, name_of, new, short_hash, uid_of

NORMAL = "Normal"
WARNING = "Warning"
PROGRESS = (
    "Rolling",
    "RaisesProtocol",
    "AwaitingApproval",
    "AwaitingWindow",
    "AwaitingTurn",
    "BeingRemoved",
    "Changing",
)
"""The reasons of conditions that are not True because the operator is doing something."""
MESSAGE_LENGTH = 1000


def events(resource: Obj, before: Obj, after: Obj, now: str, *, waits: bool = False) -> list[Obj]:
    """One Event for each condition whose status or reason changed, and for each member that a roll restarts.

    Args:
        waits: without the Warnings that may end by themselves (`delayed_warnings`), which are reported once they last.
    """
    found = _roll_events(resource, before, after, now)
    for item, kind in _changed(before, after):
        if waits and kind == WARNING and not _is_certain(item["reason"]):
            continue
        found.append(_condition_event(resource, item, kind, now))
    return found


def delayed_warnings(before: Obj, after: Obj) -> list[str]:
    """The types of the conditions that have become not True and may become True without a change by a person."""
    return [
        str(item["type"])
        for item, kind in _changed(before, after)
        if kind == WARNING and not _is_certain(item["reason"])
    ]


def warning_event(resource: Obj, item: Obj, now: str) -> Obj:
    """The Warning of a condition that has lasted."""
    return _condition_event(resource, item, WARNING, now)


def _is_certain(reason: str) -> bool:
    """Whether a Warning is emitted at once: only a change ends its condition, the condition has lasted already, or the
    operator has just removed what somebody had set, and the Event is what is left of it."""
    return reason.endswith((*ONLY_A_CHANGE_ENDS, "Blocked", "DynamicOverride"))


def _changed(before: Obj, after: Obj) -> Iterator[tuple[Obj, str]]:
    """Each condition whose status or reason changed, with the kind of its Event."""
    before_by_type = {
        item.get("type"): (item.get("status"), item.get("reason")) for item in before.get("conditions") or []
    }
    for item in after.get("conditions") or []:
        if item["type"] in ABNORMAL:
            continue
        state = (item["status"], item["reason"])
        if before_by_type.get(item["type"]) == state or (
            item["type"] not in before_by_type and item["status"] == "True"
        ):
            continue
        is_true = item["status"] == "True"
        was_true = before_by_type.get(item["type"], ("", ""))[0] == "True"
        yield item, NORMAL if is_true or is_progress(item["reason"], was_true=was_true) else WARNING


def _condition_event(resource: Obj, item: Obj, kind: str, now: str) -> Obj:
    reason = item["type"] if item["status"] == "True" else item["reason"]
    return new_event(resource, kind, reason, f"{item['type']}: {item['message'] or item['reason']}", now)


def is_progress(reason: str, *, was_true: bool) -> bool:
    """Whether a condition that is not True reports progress.

    >>> is_progress("Rolling", was_true=True), is_progress("Blocked", was_true=False)
    (True, False)
    >>> is_progress("WaitingForBrokers", was_true=False), is_progress("WaitingForBrokers", was_true=True)
    (True, False)
    """
    return reason in PROGRESS or ("Waiting" in reason and not was_true)


def _roll_events(resource: Obj, before: Obj, after: Obj, now: str) -> list[Obj]:
    """The members that a roll has begun to restart, and those that are in sync again."""
    then, roll = before.get("roll") or {}, after.get("roll") or {}
    found: list[Obj] = []
    role = str(roll.get("role", ""))
    same_roll = then.get("id") == roll.get("id") and then.get("role") == roll.get("role")
    done_before = list(then.get("done") or []) if same_roll else []
    for number in [number for number in roll.get("done") or [] if number not in done_before]:
        found.append(new_event(resource, NORMAL, "Restarted", f"{role} {number} is restarted and in sync", now))
    started_before = list(then.get("batch") or []) if same_roll else []
    for number in [number for number in roll.get("batch") or [] if number not in started_before]:
        reasons = ", ".join(_pending(after, role, number))
        found.append(new_event(resource, NORMAL, "Restarting", f"{role} {number}{reasons and f': {reasons}'}", now))
    return found


def _pending(status: Mapping[str, Any], role: str, number: int) -> list[str]:
    if role != "broker":
        return []
    return [
        str(reason)
        for entry in status.get("brokers") or []
        if entry.get("id") == number
        for reason in entry.get("pending") or []
    ]


def new_event(resource: Obj, kind: str, reason: str, message: str, now: str) -> Obj:
    """An Event about one of our custom resources.

    Args:
        kind: NORMAL or WARNING.
    """
    namespace = str(dig(resource, "metadata", "namespace"))
    mark = short_hash([uid_of(resource), reason, message, now])
    return {
        **new(EVENT, namespace, f"{name_of(resource)}.{mark}", {}),
        "involvedObject": {
            "apiVersion": resource["apiVersion"],
            "kind": resource["kind"],
            "name": name_of(resource),
            "namespace": namespace,
            "uid": uid_of(resource),
        },
        "type": kind,
        "reason": reason,
        "message": message[:MESSAGE_LENGTH],
        "source": {"component": FIELD_MANAGER},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
