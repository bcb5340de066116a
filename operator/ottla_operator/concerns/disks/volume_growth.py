"""What follows from log directories that fill up: the condition DiskSpace, and larger claims with autoGrow.

With spec.brokers.disks[].autoGrow a claim requests a step more when its log directory is full or will be within
GROW_WITHIN_H, up to a maximum, where its StorageClass allows it, and not before the last step is done.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ottla_documents.disk_spec import DiskSpec
from ottla_documents.quantity import quantity
from ottla_operator.api import names
from ottla_operator.api.condition_reasons import DISK_SPACE
from ottla_operator.api.conditions import Condition, condition_false, condition_true
from ottla_operator.api.objects import CLAIM, Obj, dig, label, name_of
from ottla_operator.concerns.disks.observation import DiskObservation
from ottla_operator.facts.broker_claims import log_dir, mounted_claim
from ottla_operator.facts.snapshot import Snapshot
from ottla_operator.facts.volume_expansion import allows_expansion, requested_size

GIB = 1 << 30
SHOWN = 5
_FILLING_UP = "FillingUp"
GROW_WITHIN_H = 6
"""Some storage resizes a volume only once in so many hours, so the last step has to last that long."""


def reported_space(snapshot: Snapshot) -> list[tuple[int, str, int, str]]:
    """(broker id, disk, free bytes, claim and capacity) of every log directory that its broker reports as online."""
    found = []
    for number, report in snapshot.reports.items():
        free = {one.path: one.free_bytes for one in report.log_dirs if one.state == "online"}
        for disk in snapshot.disks_of(number):
            if free.get(log_dir(disk.name), -1) >= 0:
                claim = mounted_claim(snapshot, number, disk.name)
                capacity = dig(snapshot.get(CLAIM, claim), "status", "capacity", "storage")
                found.append((number, disk.name, free[log_dir(disk.name)], f"{claim} {capacity}"))
    return found


def space_condition(snapshot: Snapshot, observation: DiskObservation) -> Condition:
    """DiskSpace: which log directories will be full within a day at the rate of the last day; what status says of it
    while this process knows no rate."""
    if not observation.knows_rates:
        for before in snapshot.status("conditions") or []:
            if (before.get("type"), before.get("reason")) == (DISK_SPACE, _FILLING_UP):
                return condition_false(DISK_SPACE, _FILLING_UP, str(before.get("message", "")))
    texts = [
        f"log directory {disk} of broker {number} is full within {hours} h"
        for (number, disk), hours in sorted(observation.filling.items())
    ]
    if not texts:
        return condition_true(DISK_SPACE)
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return condition_false(DISK_SPACE, _FILLING_UP, f"at the rate of the last day {'; '.join(texts[:SHOWN])}{more}")


def is_grown_by_itself(disk: DiskSpec, live: Obj) -> bool:
    """Whether a claim that is larger than declared may be so because of autoGrow."""
    return disk.auto_grow is not None and quantity(requested_size(live)) <= quantity(disk.auto_grow.max)


def next_size(snapshot: Snapshot, disk: DiskSpec, live: Obj, filling: Mapping[tuple[int, str], int]) -> str:
    """The request with the next step of autoGrow; "" when the claim is not to grow now."""
    number, requested = label(live, names.BROKER_ID) or "", quantity(requested_size(live))
    capacity = dig(live, "status", "capacity", "storage")
    if disk.auto_grow is None or capacity is None or not number.isdecimal() or not allows_expansion(snapshot, live):
        return ""
    if quantity(capacity) < requested or mounted_claim(snapshot, int(number), disk.name) != name_of(live):
        return ""
    hours = filling.get((int(number), disk.name))
    if not _is_full(snapshot, int(number), disk.name) and (hours is None or hours > GROW_WITHIN_H):
        return ""
    base = max(requested, quantity(disk.size))
    next_bytes = math.ceil(min(base + quantity(disk.auto_grow.step), quantity(disk.auto_grow.max)))
    if next_bytes <= base:
        return ""
    return f"{next_bytes // GIB}Gi" if next_bytes % GIB == 0 else str(next_bytes)


def _is_full(snapshot: Snapshot, number: int, disk: str) -> bool:
    report = snapshot.reports.get(number)
    return report is not None and any(one.path == log_dir(disk) and one.state == "full" for one in report.log_dirs)
