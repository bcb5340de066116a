"""Growing the volumes of brokers: which size a claim requests, and how far Kubernetes is with it.

A larger request is a wish. A volume is as large as the claim's status.capacity says, and the storage has to resize it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla_documents.disk_spec import DiskSpec
from ottla_documents.quantity import quantity
from ottla_operator.api.condition_reasons import DISKS_READY
from ottla_operator.api.conditions import Condition, condition_false
from ottla_operator.api.objects import (
    Obj,
    dig,
    is_terminating,
    name_of,
)
from ottla_operator.facts.snapshot import Snapshot

RESIZE_CONDITIONS = ("Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError")
"""The conditions of a claim that report the expansion of its volume."""


@dataclass(frozen=True, slots=True)
class VolumeExpansion:
    """A claim whose volume is smaller than declared. `message` has what Kubernetes reports about it."""

    message: str
    has_failed: bool


def find_expansion(snapshot: Snapshot, disk: DiskSpec, live: Obj, number: int) -> VolumeExpansion | None:
    """The expansion that a claim waits for; None when its volume is large enough or cannot grow."""
    if dig(live, "status", "phase") != "Bound" or is_terminating(live):
        return None
    capacity = dig(live, "status", "capacity", "storage")
    if capacity is None:  # Kubernetes writes it together with the phase
        return None
    size = disk.size
    if disk.auto_grow is not None and quantity(requested_size(live)) > quantity(size):
        size = requested_size(live)
    if quantity(capacity) >= quantity(size) or (
        quantity(size) > quantity(requested_size(live)) and not allows_expansion(snapshot, live)
    ):
        return None
    reported = [
        f"{item.get('type')}{': ' if item.get('message') else ''}{item.get('message') or ''}"
        for item in dig(live, "status", "conditions") or []
        if item.get("type") in RESIZE_CONDITIONS and item.get("status") == "True"
    ]
    phase = str(dig(live, "status", "allocatedResourceStatuses", "storage") or "")
    if phase:
        reported.insert(0, phase)
    text = "; ".join(reported) or "no resizing has begun"
    message = f"claim {name_of(live)} of broker {number} has {capacity} of {size}: {text}"
    return VolumeExpansion(message, any("Error" in item.partition(":")[0] or "Infeasible" in item for item in reported))


def resizing_condition(growing: Iterable[VolumeExpansion]) -> Condition | None:
    messages = [one.message for one in growing]
    return condition_false(DISKS_READY, "Resizing", "; ".join(messages[:5])) if messages else None


def requested_size(live: Obj) -> str:
    return str(dig(live, "spec", "resources", "requests", "storage") or "0")


def allows_expansion(snapshot: Snapshot, live: Obj) -> bool:
    storage_class = snapshot.storage_classes.get(str(dig(live, "spec", "storageClassName")))
    return dig(storage_class, "allowVolumeExpansion") is True


def expansion_blocker(snapshot: Snapshot, live: Obj) -> str:
    name = str(dig(live, "spec", "storageClassName") or "")
    if not name:
        return "it has no storage class"
    if not snapshot.storage_classes.get(name):
        return f"the storage class {name} does not exist, or may not be read"
    return f"the storage class {name} does not let volumes grow (allowVolumeExpansion)"


def size_to_request(snapshot: Snapshot, disk: DiskSpec, live: Obj) -> str:
    """The size to request: the declared one where it is larger and the class allows it, else that of the claim."""
    requested = requested_size(live)
    grows = quantity(disk.size) > quantity(requested)
    return disk.size if grows and allows_expansion(snapshot, live) else requested
