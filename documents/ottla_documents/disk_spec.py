"""The disks of a KafkaCluster: a PersistentVolumeClaim each, and what happens to a volume that has failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

from ottla_documents.fields import LABEL_FORM, Fields
from ottla_documents.quantity import quantity

DISK_NAME = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
DISK_NAME_LENGTH = 12
HIGHEST_GENERATION = 99_999

OnFailure = Literal["Keep", "Replace"]
ON_FAILURE: tuple[str, ...] = get_args(OnFailure)
DiskState = Literal["Active", "Drain"]
DISK_STATES: tuple[str, ...] = get_args(DiskState)


@dataclass(frozen=True, slots=True)
class AutoGrow:
    """By how much a volume grows that will be full within a day, and up to which size. Quantities."""

    max: str
    step: str


@dataclass(frozen=True, slots=True)
class DiskSpec:
    """One log directory of every broker, or a volume of every ZooKeeper server. `size` is a Kubernetes quantity or "".

    `on_failure`: whether a volume that has failed is replaced by an empty one, once the others have all of its data.
    `state`: with Drain its replicas move to the other log directories of their broker, and no new one is placed there.
    """

    name: str
    size: str = ""
    storage_class_name: str = ""
    on_failure: OnFailure = "Keep"
    state: DiskState = "Active"
    auto_grow: AutoGrow | None = None


@dataclass(frozen=True, slots=True)
class DiskOverride:
    """What is declared of one disk of one broker.

    `generation`: the lowest generation that its claim may have: a larger one than it has drains the disk and replaces
    its volume. `accept_data_loss`: where the volume of the claim of the generation before has failed, or the claim is
    gone, what only it has is given up.
    """

    name: str
    state: DiskState = "Active"
    generation: int = 1
    accept_data_loss: bool = False


def parse_disk_overrides(override: Fields) -> tuple[DiskOverride, ...]:
    """Reads `disks` of an entry of spec.brokers.overrides.

    >>> problems = []
    >>> parse_disk_overrides(Fields({"disks": [{"name": "d1", "state": "Drain"}]}, "spec", problems)), problems
    ((DiskOverride(name='d1', state='Drain', generation=1, accept_data_loss=False),), [])
    """
    found: dict[str, DiskOverride] = {}
    for item in override.items("disks"):
        name = item.text("name", None, pattern=DISK_NAME, form=LABEL_FORM)
        state = cast(DiskState, item.choice("state", DISK_STATES, "Active"))
        generation = item.whole("generation", 1, lowest=1, highest=HIGHEST_GENERATION)
        accepts = item.flag("acceptDataLoss")
        item.finish()
        if accepts and generation == 1:
            item.problem("acceptDataLoss", "needs generation: one more than that of the claim that is lost")
        if name in found:
            item.problem("name", f"{name!r} has two entries")
        found[name] = DiskOverride(name, state, generation, accepts)
    return tuple(found.values())


def parse_broker_disk(fields: Fields) -> DiskSpec:
    name = fields.text("name", None, pattern=DISK_NAME, form=LABEL_FORM)
    _check_length(fields, name)
    on_failure = cast(OnFailure, fields.choice("onFailure", ON_FAILURE, "Keep"))
    state = cast(DiskState, fields.choice("state", DISK_STATES, "Active"))
    size = fields.size("size")
    grow = _parse_auto_grow(fields, size)
    disk = DiskSpec(name, size, fields.text("storageClassName", ""), on_failure, state, grow)
    fields.finish()
    return disk


def _parse_auto_grow(fields: Fields, size: str) -> AutoGrow | None:
    if not fields.has("autoGrow"):
        return None
    child = fields.child("autoGrow")
    found = AutoGrow(child.size("max"), child.size("step"))
    child.finish()
    for name, value in (("max", found.max), ("step", found.step)):
        if not value and not child.values.get(name):
            child.problem(name, "is required")
    if found.max and size and quantity(found.max) < quantity(size):
        child.problem("max", f"{found.max} is less than the size {size}")
    return found if found.max and found.step else None


def parse_ensemble_disk(fields: Fields, *, has_policy: bool) -> DiskSpec:
    """A disk of the ZooKeeper servers; its name has no effect.

    Args:
        has_policy: whether onFailure may be written here; it is for all volumes of a server.
    """
    name = fields.text("name", "")
    _check_length(fields, name)
    on_failure = cast(OnFailure, fields.choice("onFailure", ON_FAILURE, "Keep")) if has_policy else "Keep"
    disk = DiskSpec(name, fields.size("size"), fields.text("storageClassName", ""), on_failure)
    fields.finish()
    return disk


def _check_length(fields: Fields, name: str) -> None:
    if len(name) > DISK_NAME_LENGTH:
        fields.problem("name", f"is longer than {DISK_NAME_LENGTH} characters")
