"""The PersistentVolumeClaims of brokers: found by their labels, read, and built as they should be.

A broker has one claim for each disk. What is wrong with claims is reported by `disks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla_documents.disk_spec import DiskSpec
from ottla_operator.api import names
from ottla_operator.api.objects import (
    CLAIM,
    POD,
    STATEFUL_SET,
    Obj,
    annotation,
    dig,
    is_terminating,
    label,
    name_of,
    new,
)
from ottla_operator.facts.snapshot import Snapshot
from ottla_operator.facts.volume_expansion import requested_size, size_to_request
from ottla_operator.objects.pod_template import claim_with_metadata

DATA_ROOT = "/var/lib/ottla"
FIRST_GENERATION = 1


def mount_path(disk: str) -> str:
    """Where a disk is mounted. Its log directory is below, since the root of a volume may have lost+found."""
    return f"{DATA_ROOT}/{disk}"


def log_dir(disk: str) -> str:
    """
    >>> log_dir("d0")
    '/var/lib/ottla/d0/log'
    """
    return f"{mount_path(disk)}/log"


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of one disk of one broker. `state` is New, Pending, Bound, Lost or Terminating."""

    name: str
    disk: str
    generation: int
    state: str
    directory_id: str


def claims_of(snapshot: Snapshot, broker_id: int) -> Iterable[Obj]:
    return snapshot.broker_claims.get(str(broker_id), ())


def generation_of(claim: Obj) -> int:
    text = label(claim, names.GENERATION) or ""
    return int(text) if text.isdecimal() else 0


def live_claim(snapshot: Snapshot, broker_id: int, disk: str) -> Obj | None:
    """The claim of a disk with the highest generation, None when there is none. Retired claims do not count."""
    mine = [
        claim
        for claim in claims_of(snapshot, broker_id)
        if label(claim, names.DISK) == disk and label(claim, names.RETIRED) is None
    ]
    return max(mine, key=generation_of, default=None)


def removed_disks(snapshot: Snapshot, broker_id: int) -> dict[str, int]:
    """The disks that a broker has no more because they were removed from spec, with the generation they had."""
    found: dict[str, int] = {}
    for claim in claims_of(snapshot, broker_id):
        disk = label(claim, names.DISK) or ""
        if label(claim, names.RETIRED) == "removed" and live_claim(snapshot, broker_id, disk) is None:
            found[disk] = max(found.get(disk, 0), generation_of(claim))
    return found


def has_strays(claim: Obj) -> bool:
    """Whether logs on the volume are not assigned to its broker: they may be the only copy of records."""
    return (annotation(claim, names.STRAYS) or "0") != "0"


def kept_for_strays(snapshot: Snapshot) -> list[str]:
    """The claims that no broker has any more, and that are not deleted though spec says so."""
    if snapshot.cluster.brokers.claim_deletion_policy != "Delete":
        return []
    return [
        name_of(claim)
        for claim in snapshot.all(CLAIM)
        if label(claim, names.BROKER_ID) is not None
        and (label(claim, names.REMOVED) == "true" or label(claim, names.RETIRED) is not None)
        and has_strays(claim)
    ]


def read_claim(claim: Obj, disk: str) -> Claim:
    state = "Terminating" if is_terminating(claim) else str(dig(claim, "status", "phase") or "Pending")
    return Claim(name_of(claim), disk, generation_of(claim), state, annotation(claim, names.DIRECTORY_ID) or "")


def existing_claims(snapshot: Snapshot, broker_id: int) -> tuple[Claim, ...]:
    disks = dict.fromkeys(label(claim, names.DISK) or "" for claim in claims_of(snapshot, broker_id))
    live = [(disk, live_claim(snapshot, broker_id, disk)) for disk in disks]
    return tuple(read_claim(claim, disk) for disk, claim in live if claim is not None)


def recorded_name(snapshot: Snapshot, broker_id: int, disk: str) -> str | None:
    """The name of a claim that existed: the broker's StatefulSet or another claim of the broker has recorded it.

    Claims are created before the StatefulSet that names them, so a name in a template proves that the claim existed.
    """
    if named := named_claim(snapshot, broker_id, disk):
        return named
    name = names.broker_claim(snapshot.cluster.name, broker_id, disk, FIRST_GENERATION)
    recorded = [(annotation(claim, names.DISKS) or "").split(",") for claim in claims_of(snapshot, broker_id)]
    if disk in removed_disks(snapshot, broker_id):
        return None
    return name if any(disk in disks for disks in recorded) else None


def named_claim(snapshot: Snapshot, broker_id: int, disk: str) -> str:
    """The claim of a disk that the broker's StatefulSet names; "" when it names none."""
    stateful_set = snapshot.get(STATEFUL_SET, names.broker_name(snapshot.cluster.name, broker_id))
    volumes = dig(stateful_set, "spec", "template", "spec", "volumes")
    return _volume_claim(volumes, disk, names.broker_name(snapshot.cluster.name, broker_id))


def mounted_claim(snapshot: Snapshot, broker_id: int, disk: str) -> str:
    """The claim of a disk that the broker's pod has; "" without a pod. What the broker reports is of that claim."""
    pod = snapshot.get(POD, names.pod_of(names.broker_name(snapshot.cluster.name, broker_id)))
    return _volume_claim(dig(pod, "spec", "volumes"), disk, names.broker_name(snapshot.cluster.name, broker_id))


def _volume_claim(volumes: Iterable[Obj] | None, disk: str, broker: str) -> str:
    """The claim of a volume; not that of a volume of the same name that a user's template has added."""
    for volume in volumes or []:
        claim = str(dig(volume, "persistentVolumeClaim", "claimName") or "")
        if volume.get("name") == disk and claim.startswith(f"{broker}-{disk}-"):
            return claim
    return ""


def build_claim(
    snapshot: Snapshot,
    number: int,
    rack: str,
    disk: DiskSpec,
    name: str,
    live: Obj | None,
    *,
    generation: int = FIRST_GENERATION,
    is_released: bool = False,
    grown: str = "",
) -> Obj:
    """The claim as it should be. Of an existing one only labels, annotations and a larger size can change.

    Args:
        generation: that of a new claim.
        grown: a size to request instead of the declared one.
    """
    cluster = snapshot.cluster
    generation = generation_of(live) if live is not None else generation
    annotations: dict[str, str] = {}
    for key in (names.CLUSTER_ID, names.DIRECTORY_ID, names.CORDONED, names.REMOVING, names.STRAYS):
        if live is not None and (value := annotation(live, key)):
            annotations[key] = value
    report = snapshot.reports.get(number)
    if (
        live is not None
        and report is not None
        and report.cluster_id
        and mounted_claim(snapshot, number, disk.name) == name
    ):
        annotations.setdefault(names.CLUSTER_ID, report.cluster_id)
        for directory in report.log_dirs:
            if directory.path == log_dir(disk.name) and directory.directory_id:
                annotations.setdefault(names.DIRECTORY_ID, directory.directory_id)
                if directory.strays or names.STRAYS in annotations:
                    annotations[names.STRAYS] = str(directory.strays)
    present = [
        other.name for other in snapshot.disks_of(number) if live_claim(snapshot, number, other.name) is not None
    ]
    recorded = (annotation(live, names.DISKS) or "").split(",") if live is not None else []
    listed = {*filter(None, recorded), *present, disk.name} - removed_disks(snapshot, number).keys()
    annotations[names.DISKS] = ",".join(sorted(listed))
    spec: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": disk.size}}}
    if live is not None:
        spec = {
            "accessModes": dig(live, "spec", "accessModes") or ["ReadWriteOnce"],
            "resources": {"requests": {"storage": grown or size_to_request(snapshot, disk, live)}},
        }
    elif disk.storage_class_name:
        spec["storageClassName"] = disk.storage_class_name
    labels = names.labels(
        cluster.name,
        names.BROKER,
        pool=snapshot.pool_names[number],
        broker_id=str(number),
        rack=rack,
        disk=disk.name,
        generation=str(generation),
    )
    if is_released or (live is not None and label(live, names.REMOVED) is not None):
        labels[names.REMOVED] = "true" if is_released else "false"
    claim = new(CLAIM, cluster.namespace, name, labels, spec=spec)
    claim["metadata"]["annotations"] = annotations
    if live is not None and (storage_class := dig(live, "spec", "storageClassName")):
        spec["storageClassName"] = storage_class
    pool = snapshot.pools.get(number)
    return claim if pool is None else claim_with_metadata(claim, pool.template.claim, live)


def marked_claim(
    live: Obj,
    annotations: Mapping[str, str] | None = None,
    *,
    retired: str | None = None,
    pool: str | None = None,
    is_removed: bool = False,
) -> Obj:
    """An existing claim with everything that is ours as it is, and these annotations and labels in addition."""
    kept = {
        key: str(value)
        for key, value in (dig(live, "metadata", "annotations") or {}).items()
        if key.startswith(f"{names.GROUP}/")
    }
    labels = {
        key: str(value)
        for key, value in (dig(live, "metadata", "labels") or {}).items()
        if key.startswith((f"{names.GROUP}/", "app.kubernetes.io/"))
    }
    for key, value in ((names.RETIRED, retired), (names.POOL, pool), (names.REMOVED, "true" if is_removed else None)):
        if value is not None:
            labels[key] = value
    spec: Obj = {
        "accessModes": dig(live, "spec", "accessModes") or ["ReadWriteOnce"],
        "resources": {"requests": {"storage": requested_size(live)}},
    }
    if storage_class := dig(live, "spec", "storageClassName"):
        spec["storageClassName"] = storage_class
    marked = new(CLAIM, str(live["metadata"]["namespace"]), name_of(live), labels, spec=spec)
    marked["metadata"]["annotations"] = {**kept, **(annotations or {})}
    return marked
