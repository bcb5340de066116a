"""What a process of Spark makes of the cpu and the memory of its container: threads and heap. Pure."""

from __future__ import annotations

import math

from ottla_documents.quantity import quantity
from ottla_documents.resources import Resources

LEAST_HEAP_MIB = 512
DEFAULT_MEMORY = "2Gi"


def threads(resources: Resources) -> int:
    """How many tasks run at a time: the limit of cpu, or else its request, rounded up.

    >>> [threads(Resources(*one)) for one in (({"cpu": "500m"}, {"cpu": "2500m"}), ({"cpu": "2"}, {}), ({}, {}))]
    [3, 2, 1]
    """
    return max(1, math.ceil(quantity(_most(resources, "cpu") or "1")))


def memory_mib(resources: Resources) -> int:
    """The limit of memory, or else its request.

    >>> memory_mib(Resources({"memory": "1Gi"}, {"memory": "3Gi"})), memory_mib(Resources({}, {}))
    (3072, 2048)
    """
    return int(quantity(_most(resources, "memory") or DEFAULT_MEMORY) / 2**20)


def heap_mib(resources: Resources) -> int:
    """The heap of the JVM: half of the memory. The other half is for what the JVM has beside its heap, and for Python.

    >>> heap_mib(Resources({"memory": "2Gi"}, {})), heap_mib(Resources({}, {}))
    (1024, 1024)
    """
    return max(LEAST_HEAP_MIB, memory_mib(resources) // 2)


def _most(resources: Resources, name: str) -> str:
    return resources.limits.get(name) or resources.requests.get(name) or ""
