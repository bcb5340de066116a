"""spec.executors of a KafkaPipeline: the pods in which Spark runs tasks beside the driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from ottla_documents.quantity import quantity
from ottla_documents.resources import Resources
from ottla_documents.schema.marks import WholeNumber

DEFAULT_EXECUTOR_RESOURCES = Resources({"cpu": "1", "memory": "2Gi"}, {})
LEAST_MEMORY = "1Gi"
"""Spark starts neither driver nor executor with a heap of less than 450 MiB (UnifiedMemoryManager)."""


@dataclass(frozen=True, slots=True)
class Executors:
    """Pods of their own in which Spark runs the tasks; the driver then runs none. Default: no such pods, the driver
    runs every task. They need checkpoint.accessModes with ReadWriteMany. Only on Kubernetes."""

    instances: Annotated[int, WholeNumber(1, 1000)]
    """How many executors there are."""
    resources: Resources = DEFAULT_EXECUTOR_RESOURCES
    """CPU and memory of each executor, as in a pod. Default: requests of 1 CPU and 2Gi memory. A value replaces the
    whole default. An executor runs as many tasks at a time as the limit, or else the request, of cpu, rounded up. Its
    pod requests the limit, or else the request, of memory and is limited to it; half of that is the heap."""

    def problems(self) -> Iterator[tuple[str, str]]:
        requested, limit = self.resources.requests.get("memory"), self.resources.limits.get("memory")
        if requested and limit and quantity(requested) < quantity(limit):
            message = f"must be the limit {limit}, or left out: Spark gives an executor one amount of memory"
            yield "resources.requests.memory", message
        yield from memory_problems(self.resources)


def memory_problems(resources: Resources) -> Iterator[tuple[str, str]]:
    """Whether `resources` have the memory that a process of Spark needs."""
    requested, limit = resources.requests.get("memory"), resources.limits.get("memory")
    if (amount := limit or requested) and quantity(amount) < quantity(LEAST_MEMORY):
        kind = "limits" if limit else "requests"
        message = f"must be {LEAST_MEMORY} or more, not {amount}: half of it is the heap"
        yield f"resources.{kind}.memory", message
