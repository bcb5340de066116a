"""The claims of the brokers: one per broker and disk, made before the broker, found by label, never deleted here.

A claim that a broker's StatefulSet names and that is gone is a lost disk: it is reported and not made again, because an
empty volume in its place could be taken for data. Leave to format a volume is given until its directory.id is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ottla_operator.api import names
from ottla_operator.api.condition_reasons import DISKS_READY
from ottla_operator.api.conditions import Condition, condition_false, condition_true, invalid_spec
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    STATEFUL_SET,
    Obj,
    annotation,
    dig,
    is_terminating,
    label,
    name_of,
    new,
    owned,
)
from ottla_operator.model.kafka_cluster import DiskSpec
from ottla_operator.model.quantity import quantity
from ottla_operator.planning.identity import Identities
from ottla_operator.planning.snapshot import ConcernDecision, Snapshot

DATA_ROOT = "/var/lib/ottla"
FIRST_GENERATION = 1
NO_PROVISIONER = "kubernetes.io/no-provisioner"
PERMISSION_KEY = "dirs"
RESIZE_CONDITIONS = ("Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError")
"""Conditions of a claim that tell how far its volume is with becoming larger."""
FROM_REPORTS = ("LogDirNotOnline", "DirectoryIdChanged")
"""The reasons of DisksReady that only a broker can tell, or take back."""


def mount_path(disk: str) -> str:
    """Where a disk is mounted; the log directory is a folder below, since a volume's root may hold lost+found."""
    return f"{DATA_ROOT}/{disk}"


def log_dir(disk: str) -> str:
    """
    >>> log_dir("d0")
    '/var/lib/ottla/d0/log'
    """
    return f"{mount_path(disk)}/log"


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of one disk of one broker. `state` is New, Pending, Bound, Lost or Deleting."""

    name: str
    disk: str
    generation: int
    state: str
    directory_id: str


@dataclass(frozen=True, slots=True)
class DisksDecision:
    """`claims`: by broker id, in the order of the spec. `can_use`: whether brokers may be made from these claims."""

    decision: ConcernDecision
    claims: Mapping[int, tuple[Claim, ...]]
    can_use: bool


def decide_disks(snapshot: Snapshot, identities: Identities, released: Collection[int] = ()) -> DisksDecision:
    """Claims for every broker, what is wrong with them, and which directories each broker may format.

    `released`: brokers that were empty and are gone; their claims are marked and kept.
    """
    spec = snapshot.cluster.brokers
    if wrong := _unusable(snapshot):
        claims = {number: _existing(snapshot, number) for number in identities.racks}
        return DisksDecision(ConcernDecision((wrong,)), claims, can_use=False)
    desired: list[Obj] = []
    claims = {}
    faults: list[Condition] = []
    growing: list[Growing] = []
    for number, rack in identities.racks.items():
        mine: list[Claim] = []
        for index, disk in enumerate(spec.disks):
            live = _live_claim(snapshot, number, disk.name)
            if live is None:
                lost = _was_there(snapshot, number, disk.name)
                if lost is not None:
                    mine.append(Claim(lost, disk.name, FIRST_GENERATION, "Lost", ""))
                    message = f"claim {lost} of broker {number} is gone; its data is lost, the volume is not made again"
                    faults.append(condition_false(DISKS_READY, "ClaimLost", message))
                    continue
                claim_name = names.broker_claim(snapshot.cluster.name, number, disk.name, FIRST_GENERATION)
                mine.append(Claim(claim_name, disk.name, FIRST_GENERATION, "New", ""))
                desired.append(_build(snapshot, number, rack, disk, claim_name, None))
                continue
            faults += _changes(snapshot, index, disk, live, number)
            if (grows := _growing(snapshot, disk, live, number)) is not None:
                growing.append(grows)
            claim = _read(live, disk.name)
            mine.append(claim)
            if claim.state == "Terminating":
                message = f"claim {claim.name} of broker {number} is being deleted; the broker loses it when it stops"
                faults.append(condition_false(DISKS_READY, "ClaimTerminating", message))
            elif claim.state == "Lost":
                message = (
                    f"claim {claim.name} of broker {number} has lost its volume: bring the PersistentVolume back, or "
                    "delete the claim and make one in its place"
                )
                faults.append(condition_false(DISKS_READY, "ClaimLost", message))
            else:
                desired.append(_build(snapshot, number, rack, disk, claim.name, live, is_released=number in released))
        claims[number] = tuple(mine)
        desired.append(_format_permission(snapshot, number, mine))
        faults += _removed(snapshot, number)
        faults += _reported(snapshot, number, mine)
    faults += [condition_false(DISKS_READY, "ResizeFailed", one.message) for one in growing if one.has_failed]
    waiting = _waiting(snapshot, claims) or _unanswered(snapshot) or _resizing(growing)
    condition = faults[0] if faults else waiting or condition_true(DISKS_READY)
    wake = 5.0 if any(_waits_for_id(claim) for mine in claims.values() for claim in mine) else None
    return DisksDecision(ConcernDecision((condition,), tuple(desired), requeue_after_s=wake), claims, can_use=True)


def _waits_for_id(claim: Claim) -> bool:
    return not claim.directory_id and claim.state not in ("Lost", "Terminating")


def brokers_not_to_stop(disks: DisksDecision) -> frozenset[int]:
    """Brokers whose pod must not be deleted: a volume would go with it, or the next pod would not start without it."""
    return frozenset(
        number for number, mine in disks.claims.items() if any(claim.state in ("Terminating", "Lost") for claim in mine)
    )


def has_no_provisioner(snapshot: Snapshot) -> bool:
    """Whether a disk lives on one node for ever, so that its broker can never run elsewhere."""
    return any(
        dig(snapshot.storage_classes.get(disk.storage_class_name), "provisioner") == NO_PROVISIONER
        for disk in snapshot.cluster.brokers.disks
    )


def _unusable(snapshot: Snapshot) -> Condition | None:
    if wrong := snapshot.problems_below("spec.brokers.disks"):
        return invalid_spec(DISKS_READY, wrong)
    if dig(snapshot.resource, "spec", "brokers", "disks") is None:
        return condition_false(DISKS_READY, "NoDisk", "spec.brokers.disks: name at least one disk with a size")
    for index, disk in enumerate(snapshot.cluster.brokers.disks):
        if not disk.size:
            return condition_false(
                DISKS_READY, "NoSize", f"spec.brokers.disks[{index}].size: is required on Kubernetes"
            )
    return None


def _claims_of(snapshot: Snapshot, broker_id: int) -> Iterable[Obj]:
    return (claim for claim in snapshot.all(CLAIM) if label(claim, names.BROKER_ID) == str(broker_id))


def _generation(claim: Obj) -> int:
    text = label(claim, names.GENERATION) or ""
    return int(text) if text.isdecimal() else 0


def _live_claim(snapshot: Snapshot, broker_id: int, disk: str) -> Obj | None:
    """The newest generation of a disk's claim."""
    mine = [claim for claim in _claims_of(snapshot, broker_id) if label(claim, names.DISK) == disk]
    return max(mine, key=_generation, default=None)


def _read(claim: Obj, disk: str) -> Claim:
    state = "Terminating" if is_terminating(claim) else str(dig(claim, "status", "phase") or "Pending")
    return Claim(name_of(claim), disk, _generation(claim), state, annotation(claim, names.DIRECTORY_ID) or "")


def _existing(snapshot: Snapshot, broker_id: int) -> tuple[Claim, ...]:
    disks = dict.fromkeys(label(claim, names.DISK) or "" for claim in _claims_of(snapshot, broker_id))
    live = [(disk, _live_claim(snapshot, broker_id, disk)) for disk in disks]
    return tuple(_read(claim, disk) for disk, claim in live if claim is not None)


def _was_there(snapshot: Snapshot, broker_id: int, disk: str) -> str | None:
    """The name of a claim that existed: the broker's StatefulSet names it, or another claim of the broker tells of it.

    Claims are made before the StatefulSet that names them, so a name in a template proves that the claim was there.
    """
    name = names.broker_claim(snapshot.cluster.name, broker_id, disk, FIRST_GENERATION)
    stateful_set = snapshot.get(STATEFUL_SET, names.broker_name(snapshot.cluster.name, broker_id))
    for volume in dig(stateful_set, "spec", "template", "spec", "volumes") or []:
        if volume.get("name") == disk and "persistentVolumeClaim" in volume:
            return str(volume["persistentVolumeClaim"]["claimName"])
    told = [(annotation(claim, names.DISKS) or "").split(",") for claim in _claims_of(snapshot, broker_id)]
    return name if any(disk in disks for disks in told) else None


def _build(
    snapshot: Snapshot,
    number: int,
    rack: str,
    disk: DiskSpec,
    name: str,
    live: Obj | None,
    *,
    is_released: bool = False,
) -> Obj:
    """The claim as it should be. Of an existing one only labels, annotations and a larger size can change."""
    cluster = snapshot.cluster
    generation = _generation(live) if live is not None else FIRST_GENERATION
    annotations: dict[str, str] = {}
    for key in (names.CLUSTER_ID, names.DIRECTORY_ID):
        if live is not None and (known := annotation(live, key)):
            annotations[key] = known
    report = snapshot.reports.get(number)
    if live is not None and report is not None and report.cluster_id:
        annotations.setdefault(names.CLUSTER_ID, report.cluster_id)
        for directory in report.log_dirs:
            if directory.path == log_dir(disk.name) and directory.directory_id:
                annotations.setdefault(names.DIRECTORY_ID, directory.directory_id)
    present = [other.name for other in cluster.brokers.disks if _live_claim(snapshot, number, other.name) is not None]
    told = (annotation(live, names.DISKS) or "").split(",") if live is not None else []
    annotations[names.DISKS] = ",".join(sorted({*filter(None, told), *present, disk.name}))
    spec: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": disk.size}}}
    if live is not None:
        spec = {
            "accessModes": dig(live, "spec", "accessModes") or ["ReadWriteOnce"],
            "resources": {"requests": {"storage": _size(snapshot, disk, live)}},
        }
    elif disk.storage_class_name:
        spec["storageClassName"] = disk.storage_class_name
    labels = names.labels(
        cluster.name,
        names.BROKER,
        pool=names.MAIN_POOL,
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
    return claim


def _requested(live: Obj) -> str:
    return str(dig(live, "spec", "resources", "requests", "storage") or "0")


def _can_grow(snapshot: Snapshot, live: Obj) -> bool:
    storage_class = snapshot.storage_classes.get(str(dig(live, "spec", "storageClassName")))
    return dig(storage_class, "allowVolumeExpansion") is True


def _why_not(snapshot: Snapshot, live: Obj) -> str:
    name = str(dig(live, "spec", "storageClassName") or "")
    if not name:
        return "it has no storage class"
    if not snapshot.storage_classes.get(name):
        return f"the storage class {name} does not exist, or may not be read"
    return f"the storage class {name} does not let volumes grow (allowVolumeExpansion)"


@dataclass(frozen=True, slots=True)
class Growing:
    """A claim whose volume is smaller than declared. `message` has what Kubernetes says of that."""

    message: str
    has_failed: bool


def _growing(snapshot: Snapshot, disk: DiskSpec, live: Obj, number: int) -> Growing | None:
    """A larger request is a wish: a volume is as large as status.capacity says, and something has to resize it."""
    if dig(live, "status", "phase") != "Bound" or is_terminating(live):
        return None
    capacity = dig(live, "status", "capacity", "storage")
    if capacity is None:  # Kubernetes writes it together with the phase
        return None
    if quantity(capacity) >= quantity(disk.size) or (
        quantity(disk.size) > quantity(_requested(live)) and not _can_grow(snapshot, live)
    ):
        return None
    told = [
        f"{item.get('type')}{': ' if item.get('message') else ''}{item.get('message') or ''}"
        for item in dig(live, "status", "conditions") or []
        if item.get("type") in RESIZE_CONDITIONS and item.get("status") == "True"
    ]
    phase = str(dig(live, "status", "allocatedResourceStatuses", "storage") or "")
    if phase:
        told.insert(0, phase)
    text = "; ".join(told) or "nothing has begun to resize it"
    message = f"claim {name_of(live)} of broker {number} has {capacity} of {disk.size}: {text}"
    return Growing(message, any("Error" in item.partition(":")[0] or "Infeasible" in item for item in told))


def _resizing(growing: Iterable[Growing]) -> Condition | None:
    messages = [one.message for one in growing]
    return condition_false(DISKS_READY, "Resizing", "; ".join(messages[:5])) if messages else None


def _size(snapshot: Snapshot, disk: DiskSpec, live: Obj) -> str:
    """The size to ask for: the larger one where the class allows growing, else what is there."""
    requested = _requested(live)
    grows = quantity(disk.size) > quantity(requested)
    return disk.size if grows and _can_grow(snapshot, live) else requested


def _changes(snapshot: Snapshot, index: int, disk: DiskSpec, live: Obj, number: int) -> list[Condition]:
    """What the spec asks of an existing claim and cannot be done."""
    field = f"spec.brokers.disks[{index}]"
    storage_class = dig(live, "spec", "storageClassName")
    found: list[Condition] = []
    if disk.storage_class_name and storage_class not in (None, disk.storage_class_name):
        message = f"{field}.storageClassName: claims of {disk.name} have {storage_class}; changing it is not supported"
        found.append(condition_false(DISKS_READY, "StorageClassChanged", message))
    wanted, requested = quantity(disk.size), quantity(_requested(live))
    if wanted < requested:
        message = f"{field}.size: {disk.size} is less than {_requested(live)} of broker {number}; volumes never shrink"
        found.append(condition_false(DISKS_READY, "SizeDecreased", message))
    elif wanted > requested and not _can_grow(snapshot, live):
        message = f"{field}.size: claim {name_of(live)} cannot grow to {disk.size}: {_why_not(snapshot, live)}"
        found.append(condition_false(DISKS_READY, "ExpansionNotAllowed", message))
    return found


def _removed(snapshot: Snapshot, number: int) -> list[Condition]:
    wanted = {disk.name for disk in snapshot.cluster.brokers.disks}
    gone = sorted({label(claim, names.DISK) or "" for claim in _claims_of(snapshot, number)} - wanted)
    if not gone:
        return []
    message = (
        f"spec.brokers.disks: {', '.join(gone)} of broker {number} is no longer named; removing and renaming "
        "disks is not supported, and the broker keeps what it has"
    )
    return [condition_false(DISKS_READY, "DiskRemoved", message)]


def keeps_disks(snapshot: Snapshot, number: int) -> bool:
    """Whether a broker has a disk that the spec no longer names, so that its template must stay as it is."""
    return bool(_removed(snapshot, number))


def _reported(snapshot: Snapshot, number: int, claims: Iterable[Claim]) -> list[Condition]:
    """What the broker itself says of its directories."""
    report = snapshot.reports.get(number)
    if report is None:
        return []
    by_path = {directory.path: directory for directory in report.log_dirs}
    found: list[Condition] = []
    for claim in claims:
        directory = by_path.get(log_dir(claim.disk))
        if directory is None:
            continue
        if directory.state != "online":
            message = f"log directory {claim.disk} of broker {number} (claim {claim.name}) is {directory.state}"
            found.append(condition_false(DISKS_READY, "LogDirNotOnline", message))
        elif claim.directory_id and directory.directory_id and claim.directory_id != directory.directory_id:
            message = (
                f"claim {claim.name} of broker {number} held directory {claim.directory_id} and now shows "
                f"{directory.directory_id}"
            )
            found.append(condition_false(DISKS_READY, "DirectoryIdChanged", message))
    return found


def _unanswered(snapshot: Snapshot) -> Condition | None:
    """What was last known of a directory, while a broker does not tell: that it restarts mends no disk."""
    silent = [number for number in snapshot.broker_ids() if number not in snapshot.reports]
    for before in snapshot.status("conditions") or []:
        message = str(before.get("message", ""))
        if before.get("type") != DISKS_READY or before.get("reason") not in FROM_REPORTS:
            continue
        if any(f" of broker {number} " in message for number in silent):
            return condition_false(DISKS_READY, before["reason"], message)
    return None


def _waiting(snapshot: Snapshot, claims: Mapping[int, tuple[Claim, ...]]) -> Condition | None:
    unbound = [claim.name for mine in claims.values() for claim in mine if claim.state != "Bound"]
    if unbound:
        return condition_false(DISKS_READY, "WaitingForVolumes", f"not bound yet: {', '.join(unbound[:5])}")
    return None


def _format_permission(snapshot: Snapshot, number: int, claims: Iterable[Claim]) -> Obj:
    """The directories a broker may format. Read when its container starts, so that withdrawing leave is no roll."""
    cluster = snapshot.cluster
    leave = [log_dir(claim.disk) for claim in claims if not claim.directory_id and claim.state != "Lost"]
    labels = names.labels(cluster.name, names.BROKER, pool=names.MAIN_POOL, broker_id=str(number))
    name = names.format_permission(cluster.name, number)
    leave_map = new(CONFIG_MAP, cluster.namespace, name, labels, data={PERMISSION_KEY: ",".join(leave)})
    return owned(leave_map, snapshot.resource)
