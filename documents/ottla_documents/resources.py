"""Requests and limits of a container, as Kubernetes has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla_documents.fields import Fields
from ottla_documents.quantity import quantity


@dataclass(frozen=True, slots=True)
class Resources:
    """Quantities by the name of the resource. What runs on one machine ignores them."""

    requests: Mapping[str, str]
    limits: Mapping[str, str]


def parse_resources(parent: Fields, default: Resources) -> Resources:
    """What is written replaces the whole default, so `resources: {}` requests nothing."""
    if not parent.has("resources"):
        return default
    fields = parent.child("resources")
    requests, limits = fields.quantities("requests"), fields.quantities("limits")
    for name, limit in limits.items():
        if name in requests and quantity(requests[name]) > quantity(limit):
            fields.problem(f"requests.{name}", f"{requests[name]} is more than the limit {limit}")
    fields.finish()
    return Resources(requests, limits)
