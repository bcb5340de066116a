"""Which claims of brokers get a successor, an empty volume in their place, and how far that is.

    a volume has failed      its log directory is offline for REPLACE_AFTER_S, or the only node that has it is gone
    the old claim is marked  annotation replaced-by with the name of the successor, and replaced-because
    the successor is created the next generation of the claim, with the permission to format it
    the broker restarts      in a roll, with the successor; it fetches from the leaders what it has to have
    the old claim retires    label retired, once the broker has reported a directory on the successor
    it stays, or is deleted  spec.brokers.claimDeletionPolicy

Each line is written before the next begins, so an operator that crashes reads from the claims how far it was. A volume
is replaced only while `replacement_blocker` finds nothing: one broker at a time, nothing on it is the last copy of
anything that spec does not give up (`last_copies`), and all replicas of the other brokers are in sync. When the old log
directory serves again before the broker has restarted, the replacement is called off: records may be in it by then that
are nowhere else.

A claim that was deleted, or whose volume is gone, cannot be marked: with its loss accepted the next generation is
created at once (`lost_claims`). Nothing that has failed is replaced unless spec.brokers.disks[].onFailure is Replace,
or spec accepts the loss of what only it has. A volume that works is replaced the same way once its log directory is
cordoned and empty (`disk_drains`), when spec asks for another generation or class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from ottla_documents.disk_spec import DiskSpec
from ottla_documents.quantity import quantity
from ottla_operator.api import names
from ottla_operator.api.condition_reasons import DISKS_READY
from ottla_operator.api.conditions import Condition, condition_false
from ottla_operator.api.objects import (
    CLAIM,
    STATEFUL_SET,
    Obj,
    annotation,
    dig,
    is_terminating,
    label,
    name_of,
    uid_of,
)
from ottla_operator.concerns.disks.disk_drains import REQUESTED, Drain, find_drains
from ottla_operator.concerns.disks.last_copies import (
    LastCopies,
    accepted_losses,
    accepts_loss,
    broker_pod,
    last_copies,
    replacement_blocker,
    shortened,
)
from ottla_operator.concerns.disks.lost_claims import lost_claims
from ottla_operator.facts.broker_claims import (
    claims_of,
    generation_of,
    has_strays,
    live_claim,
    log_dir,
    mounted_claim,
    named_claim,
)
from ottla_operator.facts.lost_nodes import (
    fits,
    is_gone_for_long,
    pods_without_node,
    why_out_of_reach,
)
from ottla_operator.facts.maintenance import decide_maintenance
from ottla_operator.facts.snapshot import Deletion, Snapshot

REPLACE_AFTER_S = 300.0
"""How long a log directory has to be offline: until then it may come back, as when a path to the storage was lost."""
NO_PROVISIONER = "kubernetes.io/no-provisioner"
SHOWN = 5
RECORDED = 100
"""How many partitions the mark of an accepted loss names."""

Cause = Literal["LogDirOffline", "NodeGone", "ClaimLost", "Requested"]
Phase = Literal["create", "wait for volume", "restart", "retire", "call off"]


@dataclass(frozen=True, slots=True)
class Replacement:
    """A claim that is being replaced. `old`: the marked claim. `successor`: the name of the next one."""

    broker_id: int
    disk: str
    old: Obj
    successor: str
    generation: int
    phase: Phase

    @property
    def uses_successor(self) -> bool:
        """Whether the broker's template names the successor."""
        return self.phase in ("restart", "retire")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A broker with volumes that have failed, and are to be replaced together. `claims`: each with what is wrong."""

    broker_id: int
    cause: Cause
    claims: Mapping[str, str]
    keeps: tuple[str, ...] = ()
    """Claims that have failed and whose policy is Keep."""
    accepts_loss: bool = False
    """Whether spec accepts, for each of its failed claims, to lose what only they have."""

    @property
    def is_running(self) -> bool:
        """Whether the broker serves its other log directories; else all that it has may be lost."""
        return self.cause not in ("NodeGone", "ClaimLost")


@dataclass(frozen=True, slots=True)
class ReplacementDecision:
    """`under_way`: by broker id and disk. `begin`: the annotations of the claims to mark, by name.

    `condition`: what is under way, what prevents it, or what has failed for good; None when nothing has.
    """

    under_way: Mapping[tuple[int, str], Replacement] = field(default_factory=dict)
    begin: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    condition: Condition | None = None
    delete: Deletion | None = None
    waits: tuple[str, ...] = ()
    """What waits for a maintenance window."""
    last_copies: tuple[LastCopies, ...] = ()
    """What would be lost with the volumes that have failed."""
    next_generations: Mapping[tuple[int, str], int] = field(default_factory=dict)
    """The generation of the empty claim that takes the place of a lost one, by broker id and disk."""


def decide_replacements(
    snapshot: Snapshot, broker_ids: Sequence[int], drained: Mapping[tuple[int, str], Drain]
) -> ReplacementDecision:
    """The replacements under way, and the claims to mark for the next one.

    Args:
        drained: the disks that are cordoned and empty, by broker id and disk.
    """
    under_way = {(one.broker_id, one.disk): one for number in broker_ids for one in _under_way(snapshot, number)}
    begin: Mapping[str, Mapping[str, str]] = {}
    next_generations: dict[tuple[int, str], int] = {}
    condition = _progress(under_way)
    requested = [
        Candidate(one.broker_id, "Requested", {name_of(one.claim): one.successor})
        for key, one in drained.items()
        if one.successor and key not in under_way
    ]
    waits: tuple[str, ...] = ()
    if requested and decide_maintenance(snapshot).waits_for:
        waits = tuple(f"replacement of claim {name}" for one in requested for name in one.claims)
        requested = []
    failed = _candidates(snapshot, broker_ids, under_way)
    accepted = frozenset(one.broker_id for one in failed if one.accepts_loss)
    shown = [
        LastCopies(one.broker_id, tuple(lost), one.accepts_loss)
        for one in failed
        if (lost := last_copies(snapshot, one.broker_id, broker_ids, is_running=one.is_running))
    ]
    for candidate in [*failed, *requested]:
        why = _not_yet(snapshot, candidate, broker_ids, under_way, accepted)
        if why is None and candidate.cause == "ClaimLost":  # there may be no claim to mark
            mine = lost_claims(snapshot, candidate.broker_id)
            next_generations = {(candidate.broker_id, one.disk): one.generation + 1 for one in mine}
            break
        if why is None:
            lost = accepted_losses(snapshot, candidate.broker_id, broker_ids, accepted, is_running=candidate.is_running)
            begin = _marks(snapshot, candidate, lost)
            break
        condition = condition or why
    deletion = _deletion(snapshot, broker_ids, under_way)
    return ReplacementDecision(under_way, begin, condition, deletion, waits, tuple(shown), next_generations)


def replaces_failed_volume(snapshot: Snapshot, broker_id: int) -> bool:
    """Whether a volume of this broker that has failed is being replaced, so that its restart repairs it."""
    return any(
        annotation(claim, names.REPLACED_BY)
        and label(claim, names.RETIRED) is None
        and not (annotation(claim, names.REPLACED_BECAUSE) or "").startswith(REQUESTED)
        for claim in claims_of(snapshot, broker_id)
    )


def _under_way(snapshot: Snapshot, broker_id: int) -> list[Replacement]:
    found = []
    for claim in claims_of(snapshot, broker_id):
        successor, disk = annotation(claim, names.REPLACED_BY), label(claim, names.DISK)
        if not successor or disk is None or label(claim, names.RETIRED) is not None:
            continue
        phase = _phase(snapshot, broker_id, disk, claim, successor)
        found.append(Replacement(broker_id, disk, claim, successor, generation_of(claim) + 1, phase))
    return found


def _phase(snapshot: Snapshot, broker_id: int, disk: str, old: Obj, successor: str) -> Phase:
    if _serves_again(snapshot, broker_id, disk, old):
        return "call off"
    live = snapshot.get(CLAIM, successor)
    if live is None:
        return "create"
    if mounted_claim(snapshot, broker_id, disk) == successor:
        return "retire" if annotation(live, names.DIRECTORY_ID) else "restart"
    return (
        "restart" if dig(live, "status", "phase") == "Bound" or _binds_with_pod(snapshot, live) else "wait for volume"
    )


def _serves_again(snapshot: Snapshot, broker_id: int, disk: str, old: Obj) -> bool:
    """Whether the broker, on the old claim, reports the log directory as usable."""
    report = snapshot.reports.get(broker_id)
    if (annotation(old, names.REPLACED_BECAUSE) or "").startswith(REQUESTED):
        return False  # it is cordoned and empty
    if report is None or mounted_claim(snapshot, broker_id, disk) != name_of(old) or is_terminating(old):
        return False
    return any(one.path == log_dir(disk) and one.state != "offline" for one in report.log_dirs)


def _binds_with_pod(snapshot: Snapshot, claim: Obj) -> bool:
    """Whether a claim is bound only when a pod that uses it is scheduled. A class that cannot be read may be such."""
    storage_class = snapshot.storage_classes.get(str(dig(claim, "spec", "storageClassName") or ""))
    return not storage_class or storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"


def _candidates(
    snapshot: Snapshot, broker_ids: Sequence[int], under_way: Mapping[tuple[int, str], Replacement]
) -> list[Candidate]:
    """The brokers with failed volumes that are not being replaced yet; those whose node is gone first."""
    gone, offline = [], []
    pods = [(number, broker_pod(snapshot, number)) for number in broker_ids]
    for number in pods_without_node(snapshot, pods):
        gone += _candidate(snapshot, number, "NodeGone", under_way)
    for number in broker_ids:
        if number in snapshot.reports:
            offline += _candidate(snapshot, number, "LogDirOffline", under_way)
    found = [*gone, *offline]
    candidate_ids = {one.broker_id for one in found}
    return [*found, *(one for number in broker_ids if number not in candidate_ids for one in _lost(snapshot, number))]


def _lost(snapshot: Snapshot, number: int) -> list[Candidate]:
    """A broker that does not start because claims of it are lost."""
    lost = lost_claims(snapshot, number)
    refused = tuple(one.name for one in lost if not accepts_loss(snapshot, number, one.disk, one.generation))
    claims = {one.name: one.what for one in lost}
    return [Candidate(number, "ClaimLost", claims, refused, accepts_loss=not refused)] if lost else []


def _candidate(
    snapshot: Snapshot, number: int, cause: Cause, under_way: Mapping[tuple[int, str], Replacement]
) -> list[Candidate]:
    failed, keeps, refused = {}, [], False
    for disk in snapshot.disks_of(number):
        live = live_claim(snapshot, number, disk.name)
        if live is None or (number, disk.name) in under_way or is_terminating(live):
            continue
        wrong = why_out_of_reach(snapshot, live) if cause == "NodeGone" else _offline(snapshot, number, disk, live)
        if not wrong:
            continue
        accepts = accepts_loss(snapshot, number, disk.name, generation_of(live))
        refused = refused or not accepts
        if disk.on_failure == "Keep" and not accepts:
            keeps.append(name_of(live))
        if disk.on_failure == "Replace" or accepts or cause == "NodeGone":  # a kept one is reported all the same
            failed[name_of(live)] = wrong
    return [Candidate(number, cause, failed, tuple(keeps), accepts_loss=not refused)] if failed else []


def _offline(snapshot: Snapshot, number: int, disk: DiskSpec, live: Obj) -> str:
    """What is wrong with a disk that the broker reports as offline; "" when it is not, or runs on another claim."""
    if mounted_claim(snapshot, number, disk.name) != name_of(live):
        return ""
    for one in snapshot.reports[number].log_dirs:
        if one.path == log_dir(disk.name) and one.state == "offline":
            return f"log directory {disk.name} of broker {number} (claim {name_of(live)}) is offline"
    return ""


def _not_yet(
    snapshot: Snapshot,
    candidate: Candidate,
    broker_ids: Sequence[int],
    under_way: Mapping[tuple[int, str], Replacement],
    accepted: frozenset[int],
) -> Condition | None:
    """Why the claims of a candidate are not marked in this reconciliation; None when they are."""
    number = candidate.broker_id
    what = "; ".join(f"claim {name} of broker {number}: {text}" for name, text in candidate.claims.items())
    if candidate.cause != "NodeGone":
        what = "; ".join(candidate.claims.values())
    if candidate.cause == "ClaimLost" and candidate.keeps:
        return condition_false(DISKS_READY, "ClaimLost", _restore(snapshot, candidate, broker_ids, what))
    if candidate.cause == "NodeGone":
        if candidate.keeps:
            return condition_false(
                DISKS_READY, "NodeGone", f"{what}; spec.brokers.disks[].onFailure of these disks is Keep"
            )
    elif candidate.cause == "LogDirOffline" and not _is_offline_for_long(snapshot, candidate):
        return condition_false(DISKS_READY, "LogDirNotOnline", what)
    elif candidate.keeps:
        text = f"{what}; {', '.join(candidate.keeps)} has failed too, and its onFailure is Keep"
        return condition_false(DISKS_READY, "ReplacementBlocked", text)
    others = sorted({broker for broker, _ in under_way} - {number})
    why = f"a disk of broker {others[0]} is being replaced" if others else ""
    why = why or replacement_blocker(snapshot, number, broker_ids, accepted, is_running=candidate.is_running)
    why = why or _no_volume(snapshot, candidate)
    if not why:
        claims = [claim for name in candidate.claims if (claim := snapshot.get(CLAIM, name)) is not None]
        if candidate.cause == "NodeGone" and not is_gone_for_long(snapshot, claims):
            return condition_false(DISKS_READY, "NodeGone", what)
        return None
    reason = candidate.cause if candidate.cause in ("NodeGone", "ClaimLost") else "ReplacementBlocked"
    return condition_false(DISKS_READY, reason, f"{what}; not replaced yet: {why}")


def _restore(snapshot: Snapshot, candidate: Candidate, broker_ids: Sequence[int], what: str) -> str:
    """What a person can do about lost claims; while no broker answers about those of all brokers."""
    brokers = [candidate.broker_id]
    if snapshot.kafka is None:
        brokers = [number for number in broker_ids if lost_claims(snapshot, number)]
    entries = []
    for number in brokers:
        disks = [
            f"{{name: {one.disk}, generation: {one.generation + 1}, acceptDataLoss: true}}"
            for one in lost_claims(snapshot, number)
        ]
        entries.append(f"{{id: {number}, disks: [{', '.join(disks)}]}}")
    unknown = "; no broker answers, so it is not known what else has the data" if snapshot.kafka is None else ""
    return (
        f"{what}; its data is lost unless the claim comes back, and none replaces it by itself{unknown}; "
        f"spec.brokers.overrides [{', '.join(entries)}] gives the broker an empty volume"
    )


def _is_offline_for_long(snapshot: Snapshot, candidate: Candidate) -> bool:
    report = snapshot.reports[candidate.broker_id]
    now_ms = datetime.fromisoformat(snapshot.now).timestamp() * 1000
    disks = {disk.name for disk in snapshot.disks_of(candidate.broker_id)}
    failed = [
        one
        for disk in disks
        for one in report.log_dirs
        if one.path == log_dir(disk)
        and one.state == "offline"
        and mounted_claim(snapshot, candidate.broker_id, disk) in candidate.claims
    ]
    return all(0 < one.since_ms <= now_ms - REPLACE_AFTER_S * 1000 for one in failed)


def _no_volume(snapshot: Snapshot, candidate: Candidate) -> str:
    """Why no volume is available for a broker that runs, where nothing provisions volumes; "" when there is one.

    Its pod would not start without, and its good disks would be missing too.
    """
    if candidate.cause == "NodeGone":
        return ""
    node = dig(broker_pod(snapshot, candidate.broker_id), "spec", "nodeName")
    taken: set[str] = set()
    for disk in snapshot.disks_of(candidate.broker_id):
        live = live_claim(snapshot, candidate.broker_id, disk.name)
        if live is None or name_of(live) not in candidate.claims or not has_no_provisioner(snapshot, disk, live):
            continue
        class_name = disk.storage_class_name or str(dig(live, "spec", "storageClassName") or "")
        found = [
            name
            for name, volume in sorted(snapshot.volumes.items())
            if name not in taken
            and dig(volume, "status", "phase") == "Available"
            and dig(volume, "spec", "storageClassName") == class_name
            and quantity(dig(volume, "spec", "capacity", "storage") or "0") >= quantity(disk.size)
            and _is_on(snapshot, volume, str(node))
        ]
        if not found:
            return f"no PersistentVolume of class {class_name} with {disk.size} is available on node {node}"
        taken.add(found[0])
    return ""


def has_no_provisioner(snapshot: Snapshot, disk: DiskSpec, live: Obj) -> bool:
    name = disk.storage_class_name or str(dig(live, "spec", "storageClassName") or "")
    return bool(dig(snapshot.storage_classes.get(name), "provisioner") == NO_PROVISIONER)


def needs_all_volumes(snapshot: Snapshot) -> bool:
    """Whether a disk that is to be replaced can only get a PersistentVolume that exists already."""
    waiting = [one for one in find_drains(snapshot, snapshot.broker_racks) if one.successor]
    for one in waiting:
        spec = next((disk for disk in snapshot.disks_of(one.broker_id) if disk.name == one.disk), None)
        if spec is not None and has_no_provisioner(snapshot, spec, one.claim):
            return True
    for number, report in snapshot.reports.items():
        offline = {one.path for one in report.log_dirs if one.state == "offline"}
        for disk in snapshot.disks_of(number):
            if disk.on_failure == "Keep" or log_dir(disk.name) not in offline:
                continue
            live = live_claim(snapshot, number, disk.name)
            if live is not None and has_no_provisioner(snapshot, disk, live):
                return True
    return False


def _is_on(snapshot: Snapshot, volume: Obj, node: str) -> bool:
    terms = dig(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms") or []
    nodes = [one for one in snapshot.nodes or () if name_of(one) == node]
    return not terms or snapshot.nodes is None or any(fits(term, one) for term in terms for one in nodes)


def _marks(snapshot: Snapshot, candidate: Candidate, lost: Sequence[str]) -> dict[str, dict[str, str]]:
    """The annotations of the claims to replace. `lost`: the partitions whose loss spec accepts."""
    found: dict[str, dict[str, str]] = {}
    for name, text in candidate.claims.items():
        claim = snapshot.get(CLAIM, name)
        assert claim is not None, "candidates are existing claims"
        disk, generation = label(claim, names.DISK) or "", generation_of(claim) + 1
        successor = names.broker_claim(snapshot.cluster.name, candidate.broker_id, disk, generation)
        found[name] = {names.REPLACED_BY: successor, names.REPLACED_BECAUSE: f"{candidate.cause}: {text}"}
        if lost:
            found[name] |= {names.ACCEPTED_LOSS: shortened(lost, RECORDED)}
    return found


def _progress(under_way: Mapping[tuple[int, str], Replacement]) -> Condition | None:
    texts = {
        "create": "it is created",
        "wait for volume": "it waits for a volume",
        "restart": "the broker restarts with it",
        "retire": "the broker has it",
        "call off": "the log directory serves again, and the replacement is called off",
    }
    found = [
        f"claim {name_of(one.old)} of broker {one.broker_id} is replaced by {one.successor}: {texts[one.phase]} "
        f"({annotation(one.old, names.REPLACED_BECAUSE)})"
        for one in under_way.values()
    ]
    return condition_false(DISKS_READY, "Replacing", "; ".join(found[:SHOWN])) if found else None


def _deletion(
    snapshot: Snapshot, broker_ids: Sequence[int], under_way: Mapping[tuple[int, str], Replacement]
) -> Deletion | None:
    """The successor of a replacement that was called off; else, with claimDeletionPolicy Delete, a retired claim."""
    for one in under_way.values():
        live = snapshot.get(CLAIM, one.successor)
        if one.phase != "call off" or live is None or is_terminating(live) or annotation(live, names.DIRECTORY_ID):
            continue
        if named_claim(snapshot, one.broker_id, one.disk) != one.successor:
            return Deletion(CLAIM, one.successor, uid_of(live), f"claim {name_of(one.old)} serves again")
    if snapshot.cluster.brokers.claim_deletion_policy != "Delete":
        return None
    for number in broker_ids:
        for claim in claims_of(snapshot, number):
            disk = label(claim, names.DISK) or ""
            if label(claim, names.RETIRED) is None or is_terminating(claim) or has_strays(claim):
                continue
            if name_of(claim) in (mounted_claim(snapshot, number, disk), named_claim(snapshot, number, disk)):
                continue
            if annotation(claim, names.CORDONED) == "true":
                continue
            if snapshot.get(STATEFUL_SET, names.broker_name(snapshot.cluster.name, number)) is not None:
                reason = f"spec.brokers.claimDeletionPolicy is Delete, and broker {number} has {disk} on another claim"
                return Deletion(CLAIM, name_of(claim), uid_of(claim), reason)
    return None
