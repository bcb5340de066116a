"""Conditions in the status of every kind, as Kubernetes has them (metav1.Condition)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from ottla_documents.schema.marks import Items, LongNumber, Time


@dataclass(frozen=True, slots=True)
class StatusCondition:
    """One condition."""

    type: str
    """The type of the condition, such as Ready."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds. Unknown when the operator could not find out."""
    reason: str
    """Why the condition has this status, as one CamelCase word for programs."""
    last_transition_time: Time
    """The time since which the condition has this status and this reason."""
    message: str | None = None
    """Why the condition has this status, for people, with the fields and objects concerned."""
    observed_generation: LongNumber | None = None
    """The metadata.generation that the condition was computed from."""


Conditions: TypeAlias = Annotated[tuple[StatusCondition, ...], Items(key="type")]
