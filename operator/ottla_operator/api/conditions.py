"""Conditions of our custom resources: one value each, and the list of them in status with its transition times.

Which types and reasons there are is in `condition_table`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla_documents.schema.marks import Problem
from ottla_operator.api.condition_reasons import AS_DECLARED, INVALID_SPEC, Status
from ottla_operator.api.objects import Obj

MESSAGE_LENGTH = 1024


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition: `reason` is for programs, `message` names fields and objects for people."""

    type: str
    status: Status
    reason: str
    message: str = ""


def condition_true(type_: str, reason: str = AS_DECLARED, message: str = "") -> Condition:
    return Condition(type_, "True", reason, message)


def condition_false(type_: str, reason: str, message: str) -> Condition:
    return Condition(type_, "False", reason, message)


def condition_unknown(type_: str, reason: str, message: str) -> Condition:
    return Condition(type_, "Unknown", reason, message)


def invalid_spec(type_: str, problems: Iterable[Problem]) -> Condition:
    """The spec has values that cannot be used; the message names every field."""
    return condition_false(type_, INVALID_SPEC, "; ".join(map(str, problems)))


def merged(previous: object, conditions: Iterable[Condition], generation: int, now: str) -> list[Obj]:
    """The conditions for status, sorted by type; lastTransitionTime changes with status or reason, not with message.

    Args:
        previous: what status holds now; a type that `conditions` does not have is dropped.
        now: UTC, as Kubernetes writes it.

    >>> first = merged(None, [Condition("Ready", "False", "Paused")], 1, "2026-01-01T00:00:00Z")
    >>> merged(first, [Condition("Ready", "False", "Paused", "x")], 2, "2026-01-01T01:00:00Z")[0]["lastTransitionTime"]
    '2026-01-01T00:00:00Z'
    >>> merged(first, [Condition("Ready", "True", "AsDeclared")], 2, "2026-01-01T01:00:00Z")[0]["lastTransitionTime"]
    '2026-01-01T01:00:00Z'
    """
    previous_by_type: dict[Any, Mapping[str, Any]] = {}
    if isinstance(previous, list):
        previous_by_type = {item.get("type"): item for item in previous if isinstance(item, Mapping)}
    result: list[Obj] = []
    for condition in sorted(conditions, key=lambda condition: condition.type):
        before = previous_by_type.get(condition.type, {})
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
