"""The disks of a KafkaCluster: a PersistentVolumeClaim each, and what happens to a volume that has failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

from ottla_operator.model.fields import Fields

DISK_NAME = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
DISK_NAME_LENGTH = 12

OnFailure = Literal["Keep", "Replace"]
ON_FAILURE: tuple[str, ...] = get_args(OnFailure)


@dataclass(frozen=True, slots=True)
class DiskSpec:
    """One log directory of every broker, or a volume of every ZooKeeper server. `size` is a Kubernetes quantity or "".

    `on_failure`: whether a volume that has failed is replaced by an empty one, once the others have all of its data.
    """

    name: str
    size: str = ""
    storage_class_name: str = ""
    on_failure: OnFailure = "Keep"


def parse_broker_disk(fields: Fields) -> DiskSpec:
    name = fields.text("name", None, pattern=DISK_NAME)
    _check_length(fields, name)
    on_failure = cast(OnFailure, fields.choice("onFailure", ON_FAILURE, "Keep"))
    disk = DiskSpec(name, fields.size("size"), fields.text("storageClassName", ""), on_failure)
    fields.finish()
    return disk


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
