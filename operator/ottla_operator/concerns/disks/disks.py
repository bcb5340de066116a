"""The disks of brokers: claims, the permission to format, and the condition DisksReady.

Claims are created before the broker. A claim that a broker's StatefulSet names and that is gone is a lost disk: it is
reported and not created again, because an empty volume in its place could be taken for the data. A claim whose volume
has failed may get a successor (`disk_replacement`). A broker has the permission to format a volume until the volume's
directory.id is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ottla_documents.broker_pools import BrokerPool
from ottla_documents.disk_spec import DiskSpec
from ottla_documents.quantity import quantity
from ottla_operator.api import names
from ottla_operator.api.condition_reasons import DISKS_READY
from ottla_operator.api.conditions import Condition, condition_false, condition_true, invalid_spec
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    Obj,
    annotation,
    dig,
    is_terminating,
    label,
    name_of,
    new,
    owned,
)
from ottla_operator.concerns.disks.actions import EmptyLogDirs
from ottla_operator.concerns.disks.disk_drains import NO_DRAINS, DrainDecision, decide_drains, removable, template_names
from ottla_operator.concerns.disks.disk_replacement import NO_PROVISIONER, Replacement, decide_replacements
from ottla_operator.concerns.disks.last_copies import LastCopies, shortened
from ottla_operator.concerns.disks.observation import NO_DISK_OBSERVATION, DiskObservation
from ottla_operator.concerns.disks.volume_growth import is_grown_by_itself, next_size, space_condition
from ottla_operator.concerns.fleet.identity import Identities
from ottla_operator.facts.broker_claims import (
    FIRST_GENERATION,
    Claim,
    build_claim,
    claims_of,
    existing_claims,
    kept_for_strays,
    live_claim,
    log_dir,
    marked_claim,
    mounted_claim,
    named_claim,
    read_claim,
    recorded_name,
    removed_disks,
)
from ottla_operator.facts.snapshot import ConcernDecision, Snapshot
from ottla_operator.facts.volume_expansion import (
    VolumeExpansion,
    allows_expansion,
    expansion_blocker,
    find_expansion,
    requested_size,
    resizing_condition,
)

PERMISSION_KEY = "dirs"
DISK_FIELDS = ("spec.brokers.disks", "spec.brokers.template.persistentVolumeClaim")
FROM_REPORTS = ("LogDirNotOnline", "DirectoryIdChanged", "ReplacementBlocked")
"""The reasons of DisksReady that follow from what brokers report."""


@dataclass(frozen=True, slots=True)
class DisksDecision:
    """`claims`: by broker id, in the order of the spec. `can_use`: whether new brokers may use these claims.

    `kept`: the brokers with a disk that the spec no longer names: their templates stay as they are. `drains`: what is
    asked of brokers whose log directories are emptied.
    """

    decision: ConcernDecision
    claims: Mapping[int, tuple[Claim, ...]]
    can_use: bool
    kept: frozenset[int] = frozenset()
    drains: DrainDecision = NO_DRAINS
    waits: tuple[str, ...] = ()
    """What waits for a maintenance window."""
    last_copies: tuple[LastCopies, ...] = ()


def decide_disks(
    snapshot: Snapshot,
    identities: Identities,
    released: Collection[int] = (),
    observation: DiskObservation = NO_DISK_OBSERVATION,
) -> DisksDecision:
    """The claims of every broker, DisksReady, and the directories that each broker may format.

    Args:
        released: removed brokers, whose claims get the label removed and stay.
    """
    if wrong := _unusable(snapshot):
        claims = {number: existing_claims(snapshot, number) for number in identities.racks}
        return DisksDecision(ConcernDecision((wrong, space_condition(snapshot, observation))), claims, can_use=False)
    desired: list[Obj] = []
    claims = {}
    faults: list[Condition] = []
    growing: list[VolumeExpansion] = []
    drains = decide_drains(snapshot, list(identities.racks), observation)
    replacing = decide_replacements(snapshot, list(identities.racks), drains.drained)
    faults += [one for one in (replacing.condition, drains.condition) if one is not None]
    kept: set[int] = set()
    for number, rack in identities.racks.items():
        mine: list[Claim] = []
        pool = snapshot.pools.get(number)
        if pool is None:  # it keeps all its claims until it is removed
            claims[number] = existing_claims(snapshot, number)
            if number in released:
                live_claims = [snapshot.get(CLAIM, claim.name) for claim in claims[number]]
                desired += [marked_claim(live, is_removed=True) for live in live_claims if live is not None]
            faults += _reported(snapshot, number, claims[number])
            continue
        for index, disk in enumerate(pool.disks):
            if (step := replacing.under_way.get((number, disk.name))) is not None:
                claim, objects = _replaced(snapshot, step, rack, disk)
                mine.append(claim)
                desired += objects
                if claim.state == "Lost":
                    message = f"claim {claim.name} of broker {number} is gone, and no claim replaces it"
                    faults.append(condition_false(DISKS_READY, "ClaimLost", message))
                continue
            live = live_claim(snapshot, number, disk.name)
            if (generation := replacing.next_generations.get((number, disk.name))) is not None:
                name = names.broker_claim(snapshot.cluster.name, number, disk.name, generation)
                mine.append(Claim(name, disk.name, generation, "New", ""))
                if live is not None:
                    desired.append(marked_claim(live, retired="replaced"))
                desired.append(build_claim(snapshot, number, rack, disk, name, None, generation=generation))
                continue
            if live is None:
                lost = recorded_name(snapshot, number, disk.name)
                if lost is not None:
                    mine.append(Claim(lost, disk.name, FIRST_GENERATION, "Lost", ""))
                    message = f"claim {lost} of broker {number} is gone; its data is lost, and no claim replaces it"
                    faults.append(condition_false(DISKS_READY, "ClaimLost", message))
                    continue
                generation = removed_disks(snapshot, number).get(disk.name, 0) + 1
                claim_name = names.broker_claim(snapshot.cluster.name, number, disk.name, generation)
                mine.append(Claim(claim_name, disk.name, generation, "New", ""))
                desired.append(build_claim(snapshot, number, rack, disk, claim_name, None, generation=generation))
                continue
            faults += _changes(snapshot, f"{pool.path_of('disks')}[{index}]", disk, live, number)
            if (grows := find_expansion(snapshot, disk, live, number)) is not None:
                growing.append(grows)
            claim = read_claim(live, disk.name)
            mine.append(claim)
            if claim.state == "Terminating":
                message = f"claim {claim.name} of broker {number} is being deleted; the broker loses it when it stops"
                faults.append(condition_false(DISKS_READY, "ClaimTerminating", message))
            elif claim.state == "Lost":
                message = (
                    f"claim {claim.name} of broker {number} has lost its volume: bring the PersistentVolume back, or "
                    "delete the claim and create one in its place"
                )
                faults.append(condition_false(DISKS_READY, "ClaimLost", message))
            elif marks := {**drains.marks.get(claim.name, {}), **replacing.begin.get(claim.name, {})}:
                desired.append(marked_claim(live, marks, pool=pool.name))
            else:
                released_too = number in released
                grown = next_size(snapshot, disk, live, observation.filling)
                desired.append(
                    build_claim(snapshot, number, rack, disk, claim.name, live, is_released=released_too, grown=grown)
                )
        claims[number] = tuple(mine)
        desired.append(_format_permission(snapshot, number, mine))
        objects, has_removed = _removed(snapshot, number, drains)
        desired += objects
        if has_removed:
            kept.add(number)
        faults += _reported(snapshot, number, mine)
    faults += [condition_false(DISKS_READY, "ResizeFailed", one.message) for one in growing if one.has_failed]
    waiting = _waiting(snapshot, claims) or _unanswered(snapshot) or resizing_condition(growing)
    condition = faults[0] if faults else waiting or _ready(snapshot)
    is_replacing = bool(replacing.begin or replacing.under_way)
    is_waiting = is_replacing or any(_waits_for_id(claim) for mine in claims.values() for claim in mine)
    wake = min([*([5.0] if is_waiting else []), *filter(None, [drains.requeue_after_s])], default=None)
    conditions = (condition, space_condition(snapshot, observation))
    empties = drains.cordons or drains.moves
    actions = (EmptyLogDirs(drains.cordons, drains.moves),) if empties else ()
    decision = ConcernDecision(conditions, tuple(desired), replacing.delete, wake, actions)
    waits = (*drains.waits, *replacing.waits)
    return DisksDecision(decision, claims, True, frozenset(kept), drains, waits, replacing.last_copies)


def _removed(snapshot: Snapshot, number: int, drains: DrainDecision) -> tuple[list[Obj], bool]:
    """The claims to mark of a broker whose disks spec does not name, and whether the broker keeps such a disk."""
    declared = {disk.name for disk in snapshot.disks_of(number)}
    found: list[Obj] = []
    keeps = False
    for claim in claims_of(snapshot, number):
        disk, marks = label(claim, names.DISK) or "", dict(drains.marks.get(name_of(claim), {}))
        if is_terminating(claim):
            continue
        if label(claim, names.RETIRED) is not None:
            if marks:
                found.append(marked_claim(claim, marks))
        elif disk not in declared:
            retired = None
            if not removable(snapshot, drains, number, disk, claim):
                keeps = True
            elif annotation(claim, names.REMOVING) != "true":
                marks[names.REMOVING] = "true"
                keeps = True  # until the mark is there
            elif not template_names(snapshot, number, disk):
                retired = "removed"
            if marks or retired:
                found.append(marked_claim(claim, marks, retired=retired))
    return found, keeps


def _replaced(snapshot: Snapshot, step: Replacement, rack: str, disk: DiskSpec) -> tuple[Claim, list[Obj]]:
    """The claim that the broker's template gets while a disk is being replaced, and the claims to write."""
    number = step.broker_id
    live = snapshot.get(CLAIM, step.successor)
    if step.phase == "call off":
        marks = {names.REPLACED_BY: "", names.REPLACED_BECAUSE: ""}
        return read_claim(step.old, step.disk), [marked_claim(step.old, None if live is not None else marks)]
    if live is None and named_claim(snapshot, number, step.disk) == step.successor:
        return Claim(step.successor, step.disk, step.generation, "Lost", ""), []
    successor = build_claim(snapshot, number, rack, disk, step.successor, live, generation=step.generation)
    old = marked_claim(step.old, retired="replaced" if step.phase == "retire" else None)
    if step.uses_successor and live is not None:
        return read_claim(live, step.disk), [successor, old]
    return read_claim(step.old, step.disk), [successor, old]


def brokers_not_to_stop(disks: DisksDecision) -> frozenset[int]:
    """The brokers whose pod must not be deleted: a volume would go with it, or the next pod would not start."""
    return frozenset(
        number for number, mine in disks.claims.items() if any(claim.state in ("Terminating", "Lost") for claim in mine)
    )


def has_no_provisioner(snapshot: Snapshot, pool: BrokerPool) -> bool:
    """Whether a disk is on one node for good, so that its broker cannot run elsewhere."""
    return any(
        dig(snapshot.storage_classes.get(disk.storage_class_name), "provisioner") == NO_PROVISIONER
        for disk in pool.disks
    )


def _waits_for_id(claim: Claim) -> bool:
    return not claim.directory_id and claim.state not in ("Lost", "Terminating")


def _ready(snapshot: Snapshot) -> Condition:
    """DisksReady True, with the claims that stay though spec has those of removed brokers and disks deleted."""
    if not (kept := kept_for_strays(snapshot)):
        return condition_true(DISKS_READY)
    text = (
        f"not deleted: claim {shortened(kept)}; logs that are not assigned to its broker (-stray) are on the volume; "
        "delete the claim when nobody needs their records"
    )
    return condition_true(DISKS_READY, "StraysKept", text)


def _unusable(snapshot: Snapshot) -> Condition | None:
    if wrong := snapshot.problems_below(*DISK_FIELDS):
        return invalid_spec(DISKS_READY, wrong)
    for pool in snapshot.cluster.brokers.pools:
        field = pool.path_of("disks")
        if "disks" not in pool.written:
            return condition_false(DISKS_READY, "NoDisk", f"{field}: name at least one disk with a size")
        for index, disk in enumerate(pool.disks):
            if not disk.size:
                return condition_false(DISKS_READY, "NoSize", f"{field}[{index}].size: is required on Kubernetes")
    return None


def _changes(snapshot: Snapshot, field: str, disk: DiskSpec, live: Obj, number: int) -> list[Condition]:
    """The changes that the spec asks of an existing claim, in this field, and that are not possible."""
    found: list[Condition] = []
    declared, requested = quantity(disk.size), quantity(requested_size(live))
    if declared < requested and not is_grown_by_itself(disk, live):
        message = (
            f"{field}.size: {disk.size} is less than {requested_size(live)} of broker {number}; volumes never shrink"
        )
        found.append(condition_false(DISKS_READY, "SizeDecreased", message))
    elif declared > requested and not allows_expansion(snapshot, live):
        message = f"{field}.size: claim {name_of(live)} cannot grow to {disk.size}: {expansion_blocker(snapshot, live)}"
        found.append(condition_false(DISKS_READY, "ExpansionNotAllowed", message))
    return found


def _reported(snapshot: Snapshot, number: int, claims: Iterable[Claim]) -> list[Condition]:
    """The log directories that the broker reports as not online, or with another id than the claim has recorded."""
    report = snapshot.reports.get(number)
    if report is None:
        return []
    by_path = {directory.path: directory for directory in report.log_dirs}
    found: list[Condition] = []
    for claim in claims:
        directory = by_path.get(log_dir(claim.disk))
        if directory is None or mounted_claim(snapshot, number, claim.disk) != claim.name:
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
    """The last reported fault of a log directory, while its broker does not answer: a restart repairs no disk."""
    silent = [number for number in snapshot.broker_racks if number not in snapshot.reports]
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
    """The ConfigMap with the log directories that a broker may format.

    The container reads it when it starts, so a change of it needs no restart.
    """
    cluster = snapshot.cluster
    leave = [log_dir(claim.disk) for claim in claims if not claim.directory_id and claim.state != "Lost"]
    labels = names.labels(cluster.name, names.BROKER, pool=snapshot.pool_names[number], broker_id=str(number))
    name = names.format_permission(cluster.name, number)
    leave_map = new(CONFIG_MAP, cluster.namespace, name, labels, data={PERMISSION_KEY: ",".join(leave)})
    return owned(leave_map, snapshot.resource)
