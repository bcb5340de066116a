"""spec.executors of a KafkaPipeline: the pods in which Spark runs tasks beside the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla_documents.fields import Fields
from ottla_documents.quantity import quantity
from ottla_documents.resources import Resources, parse_resources

DEFAULT_EXECUTOR_RESOURCES = Resources({"cpu": "1", "memory": "2Gi"}, {})
MOST_EXECUTORS = 1000
LEAST_MEMORY = "1Gi"
"""Spark starts neither driver nor executor with a heap of less than 450 MiB (UnifiedMemoryManager)."""


@dataclass(frozen=True, slots=True)
class Executors:
    """How many, and what each has."""

    instances: int
    resources: Resources = DEFAULT_EXECUTOR_RESOURCES


def parse_executors(spec: Fields) -> Executors | None:
    """Reads `executors` below spec; None when it is not written: the driver runs every task itself."""
    if not spec.has("executors"):
        return None
    fields = spec.child("executors")
    if not isinstance(spec.values["executors"], Mapping):
        return None
    instances = fields.whole("instances", highest=MOST_EXECUTORS)
    resources = parse_resources(fields, DEFAULT_EXECUTOR_RESOURCES)
    requested, limit = resources.requests.get("memory"), resources.limits.get("memory")
    if requested and limit and quantity(requested) < quantity(limit):
        message = f"must be the limit {limit}, or left out: Spark gives an executor one amount of memory"
        fields.child("resources").problem("requests.memory", message)
    check_memory(fields, resources)
    fields.finish()
    return Executors(instances, resources)


def check_memory(parent: Fields, resources: Resources) -> None:
    """Whether `resources` below `parent` have the memory that a process of Spark needs."""
    requested, limit = resources.requests.get("memory"), resources.limits.get("memory")
    if (amount := limit or requested) and quantity(amount) < quantity(LEAST_MEMORY):
        kind = "limits" if limit else "requests"
        message = f"must be {LEAST_MEMORY} or more, not {amount}: half of it is the heap"
        parent.child("resources").problem(f"{kind}.memory", message)
