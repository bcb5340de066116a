"""Requests and limits of a container, as Kubernetes has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla_documents.field_types import Quantities
from ottla_documents.quantity import quantity


@dataclass(frozen=True, slots=True)
class Resources:
    """Quantities by the name of the resource. What runs on one machine ignores them."""

    requests: Quantities = field(default_factory=dict)
    """The amount of each resource that is reserved for the container, by the name of the resource."""
    limits: Quantities = field(default_factory=dict)
    """The amount of each resource that the container cannot exceed, by the name of the resource."""

    def problems(self) -> Iterator[tuple[str, str]]:
        for name, limit in self.limits.items():
            if name in self.requests and quantity(self.requests[name]) > quantity(limit):
                yield f"requests.{name}", f"{self.requests[name]} is more than the limit {limit}"
