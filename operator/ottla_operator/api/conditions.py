"""Conditions: what a concern says of itself, and how they are kept in status with the time since when it is so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ottla_operator.api.objects import Obj
from ottla_operator.model.fields import Problem

Status = Literal["True", "False", "Unknown"]

READY = "Ready"
ZOOKEEPER_READY = "ZooKeeperReady"
BROKERS_READY = "BrokersReady"
DISKS_READY = "DisksReady"
RACKS_READY = "RacksReady"
SERVICES_READY = "ServicesReady"
SPREAD_OVER_NODES = "SpreadOverNodes"
ROLLED = "Rolled"
CONFIG_VALID = "ConfigValid"

MESSAGE_LENGTH = 1024


@dataclass(frozen=True, slots=True)
class Condition:
    """`reason` is one CamelCase word that a program may look for; `message` names fields and objects."""

    type: str
    status: Status
    reason: str
    message: str = ""


def good(kind: str, reason: str = "AsDeclared", message: str = "") -> Condition:
    return Condition(kind, "True", reason, message)


def bad(kind: str, reason: str, message: str) -> Condition:
    return Condition(kind, "False", reason, message)


def invalid(kind: str, problems: Iterable[Problem]) -> Condition:
    """The spec says something that cannot be served; the message names every field."""
    return bad(kind, "InvalidSpec", "; ".join(map(str, problems)))


def merged(previous: object, conditions: Iterable[Condition], generation: int, now: str) -> list[Obj]:
    """The list for status, by type. The time is kept while status and reason stay, so it tells how long a wait is.

    `previous` is what status holds; conditions of types that are no longer given are dropped.

    >>> first = merged(None, [Condition("Ready", "False", "Waiting")], 1, "2026-01-01T00:00:00Z")
    >>> merged(first, [Condition("Ready", "False", "Waiting", "x")], 2, "2026-01-01T01:00:00Z")[0]["lastTransitionTime"]
    '2026-01-01T00:00:00Z'
    >>> merged(first, [Condition("Ready", "True", "Fine")], 2, "2026-01-01T01:00:00Z")[0]["lastTransitionTime"]
    '2026-01-01T01:00:00Z'
    """
    known: dict[Any, Mapping[str, Any]] = {}
    if isinstance(previous, list):
        known = {item.get("type"): item for item in previous if isinstance(item, Mapping)}
    result: list[Obj] = []
    for condition in sorted(conditions, key=lambda condition: condition.type):
        before = known.get(condition.type, {})
        same = (before.get("status"), before.get("reason")) == (condition.status, condition.reason)
        result.append(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message[:MESSAGE_LENGTH],
                "observedGeneration": generation,
                "lastTransitionTime": before["lastTransitionTime"] if same and "lastTransitionTime" in before else now,
            }
        )
    return result
