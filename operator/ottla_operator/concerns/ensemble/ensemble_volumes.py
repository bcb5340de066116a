"""Decides which ZooKeeper servers may start without data.

A server that has acknowledged transactions and comes back empty must not vote: two such servers outvote the third,
which has the data, and overwrite it. So the operator records with which claims each server has served
(`EnsembleRecord`, in the ensemble's ConfigMap and on each claim, so that either is enough), and a server may start with
an empty volume only with one of these permissions:

    initialize  as long as no server has served: the first start of the ensemble. An empty database may vote.
    join        one server at a time, while a quorum of servers that hold data serves clients. It copies the ensemble's
                data before it votes (ZooKeeper's own guard, db.autocreate=false).
    add         to a server that is being added to the ensemble (`ensemble_resize`) and has no vote yet. Whatever its
                volumes hold comes from an earlier membership and is not used.
    initialize  after a person has declared servers lost (`names.ACCEPT_LOSS`): as few of them as a quorum needs, so
                that every quorum has a server that holds data; all, when none holds any.

Otherwise nothing is created. The start script of a server (`zookeeper_files`) refuses a volume that is not the server's
own without such a permission, so a claim that somebody else has created, or an empty restored one, is not used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from ottla_operator.api import names
from ottla_operator.api.condition_reasons import ZOOKEEPER_READY
from ottla_operator.api.conditions import Condition, condition_false
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    KAFKA_CLUSTER,
    Obj,
    annotation,
    dig,
    has_condition,
    is_terminating,
    label,
    short_hash,
    uid_of,
)
from ottla_operator.concerns.ensemble.observation import EnsembleObservation
from ottla_operator.facts.annotation_values import SHOWN_LENGTH, accepted_losses
from ottla_operator.facts.snapshot import Snapshot
from ottla_operator.objects.pods import container_status

FIRST_GENERATION = 1
Permission = Literal["no", "initialize", "join", "add"]
NO: Permission = "no"
INITIALIZE: Permission = "initialize"
JOIN: Permission = "join"
ADD: Permission = "add"
State = Literal["held", "deleting", "lost", "replaced", "new"]


@dataclass(frozen=True, slots=True)
class EnsembleRecord:
    """The members and which servers have served, in annotations. Of several copies the highest `revision` counts.

    `members`: every server that may have a vote. A server is among them before ZooKeeper gives it a vote, and until
    ZooKeeper has taken its vote away. `joining`: the server that is being added, until it has its vote. `leaving`: the
    member whose vote is being taken away.
    `served`: by server, the uids of the claims with which it served; empty when they are unknown (ensembles of releases
    without a record).
    """

    revision: int
    members: tuple[int, ...]
    served: Mapping[int, tuple[str, ...]]
    joining: int | None = None
    leaving: int | None = None

    @property
    def servers(self) -> tuple[int, ...]:
        """The members and the server that is being added."""
        return tuple(sorted({*self.members, *(() if self.joining is None else (self.joining,))}))

    def to_text(self) -> str:
        """
        >>> EnsembleRecord(2, (1,), {1: ("a",)}, 2).to_text()
        '{"joining":2,"members":[1],"revision":2,"served":{"1":["a"]},"size":1}'
        """
        served = {str(server): list(uids) for server, uids in sorted(self.served.items())}
        value = {"revision": self.revision, "members": list(self.members), "size": len(self.members), "served": served}
        if self.joining is not None:
            value["joining"] = self.joining
        if self.leaving is not None:
            value["leaving"] = self.leaving
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=256)
def parse_ensemble_record(text: str | None) -> EnsembleRecord | None:
    """
    >>> parse_ensemble_record('{"revision":2,"served":{"1":["a"]},"size":1}')
    EnsembleRecord(revision=2, members=(1,), served={1: ('a',)}, joining=None, leaving=None)
    >>> parse_ensemble_record("nonsense") is None
    True
    """
    try:
        value = json.loads(text or "")
        served = {int(server): tuple(map(str, uids)) for server, uids in value["served"].items()}
        members = value.get("members") or range(1, int(value["size"]) + 1)  # earlier releases wrote only the size
        joining, leaving = (None if (one := value.get(key)) is None else int(one) for key in ("joining", "leaving"))
        return EnsembleRecord(int(value["revision"]), tuple(map(int, members)), served, joining, leaving)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


@dataclass(frozen=True, slots=True)
class VolumesDecision:
    """`permissions`: how each server may start with an empty volume. `creatable`: whose missing claims may be created.

    `kept`: the servers whose pod must not be deleted, since a volume would go with it.
    """

    record: EnsembleRecord
    permissions: Mapping[int, Permission]
    creatable: frozenset[int]
    faults: tuple[Condition, ...]
    kept: frozenset[int]


def stored_record(snapshot: Snapshot) -> EnsembleRecord | None:
    """The newest of the copies; None when there is none."""
    found = [parse_ensemble_record(annotation(obj, names.ENSEMBLE)) for obj in _record_holders(snapshot)]
    return max((record for record in found if record is not None), key=lambda record: record.revision, default=None)


def record_of(snapshot: Snapshot, members: Sequence[int]) -> EnsembleRecord:
    """The record. Without one, every server of an existing ensemble counts as having served."""
    stored = stored_record(snapshot)
    if stored is not None:
        return stored
    is_there = any(True for _ in _record_holders(snapshot)) or bool(snapshot.zookeeper_ids())
    return EnsembleRecord(0, tuple(members), dict.fromkeys(members, ()) if is_there else {})


def is_settled(snapshot: Snapshot, members: Sequence[int], roles: Sequence[str]) -> bool:
    """Whether every server has served with the claims that it has now."""
    return all(has_served(snapshot, record_of(snapshot, members), server, roles) for server in members)


def has_served(snapshot: Snapshot, record: EnsembleRecord, server: int, roles: Sequence[str]) -> bool:
    """Whether the record has the server with the claims that it has now."""
    uids = _uids(snapshot, server, roles)
    return uids is not None and record.served.get(server) == uids


def decide_volumes(
    snapshot: Snapshot, observed: EnsembleObservation, record: EnsembleRecord, roles: Sequence[str]
) -> VolumesDecision:
    """Which servers may get a volume and start with an empty one.

    Args:
        record: the members that the ensemble should have, with what is recorded of them.
        roles: the volumes of a server, "data" and perhaps "log".
    """
    served = {server: uids for server, uids in record.served.items() if server in record.servers}
    updated = _updated(snapshot, observed, replace(record, served=served), roles)
    decided = _decide_for_members(snapshot, observed, updated, roles)
    joining = record.joining
    if joining is None or joining in record.members:
        return decided
    permission = NO if has_served(snapshot, decided.record, joining, roles) else ADD
    return replace(
        decided, permissions={**decided.permissions, joining: permission}, creatable=decided.creatable | {joining}
    )


def _decide_for_members(
    snapshot: Snapshot, observed: EnsembleObservation, record: EnsembleRecord, roles: Sequence[str]
) -> VolumesDecision:
    servers = record.members
    states = {server: _state(snapshot, record, server, roles) for server in servers}
    held = [server for server in servers if states[server] in ("held", "deleting")]
    accepted = _accepted(snapshot, record, states)
    never_served = {server for server in servers if states[server] == "new"}
    if record.served and not held and not (set(servers) - accepted - never_served):
        record = EnsembleRecord(record.revision, servers, {})  # a person has declared all data lost: a new ensemble
        states = dict.fromkeys(servers, "new")
    stored = stored_record(snapshot)
    if stored is None or stored != record:
        record = replace(record, revision=1 if stored is None else stored.revision + 1)
    faults = _claim_faults(snapshot, servers, roles)
    kept = frozenset(server for server in servers if states[server] == "deleting")
    if not record.served:
        permissions: dict[int, Permission] = dict.fromkeys(servers, INITIALIZE)
        return VolumesDecision(record, permissions, frozenset(servers), tuple(faults), kept)
    permissions = dict.fromkeys(servers, NO)
    quorum = len(servers) // 2 + 1
    missing = [server for server in servers if states[server] in ("lost", "replaced", "new")]
    next_server = _next_to_replace(snapshot, missing, roles)
    if next_server is not None and _serves(snapshot, observed, held, quorum):
        permissions[next_server] = JOIN
        if states[next_server] != "new":
            faults.append(_replacing(next_server, [server for server in missing if server != next_server]))
        return VolumesDecision(record, permissions, frozenset([next_server]), tuple(faults), kept)
    may_vote = _declared(states, held, accepted, quorum)
    permissions |= dict.fromkeys(may_vote, INITIALIZE)
    lost = [server for server in missing if states[server] != "new" and not _is_ready(snapshot, server)]
    if lost and not may_vote:
        faults.insert(0, _loss(snapshot, observed, record, states, lost, held, quorum, roles))
    return VolumesDecision(record, permissions, frozenset(may_vote), tuple(faults), kept)


def claim_name(snapshot: Snapshot, server: int, role: str) -> str:
    return names.zookeeper_claim(snapshot.cluster.name, server, role, FIRST_GENERATION)


def _record_holders(snapshot: Snapshot) -> Iterable[Obj]:
    """The objects with a copy of the record."""
    files = snapshot.get(CONFIG_MAP, names.zookeeper_service(snapshot.cluster.name))
    if files is not None:
        yield files
    yield from (
        claim
        for claim in snapshot.all(CLAIM)
        if label(claim, names.SERVER_ID) is not None and label(claim, names.REMOVED) != "true"
    )


def _claims(snapshot: Snapshot, server: int, roles: Sequence[str]) -> list[Obj | None]:
    return [snapshot.get(CLAIM, claim_name(snapshot, server, role)) for role in roles]


def _uids(snapshot: Snapshot, server: int, roles: Sequence[str]) -> tuple[str, ...] | None:
    """The uids of a server's claims; None unless every claim exists and has not lost its volume."""
    claims = _claims(snapshot, server, roles)
    if any(claim is None or _has_lost_volume(claim) for claim in claims):
        return None
    return tuple(uid_of(claim) for claim in claims if claim is not None)


def _has_lost_volume(claim: Obj) -> bool:
    return bool(dig(claim, "status", "phase") == "Lost")


def _state(snapshot: Snapshot, record: EnsembleRecord, server: int, roles: Sequence[str]) -> State:
    recorded = record.served.get(server)
    uids = _uids(snapshot, server, roles)
    if recorded is None:
        return "new"
    if uids is None:
        return "lost"
    if recorded not in ((), uids):
        return "replaced"
    claims = _claims(snapshot, server, roles)
    return "deleting" if any(claim is not None and is_terminating(claim) for claim in claims) else "held"


def _pod(snapshot: Snapshot, server: int) -> Obj | None:
    return snapshot.pod(names.pod_of(names.zookeeper_name(snapshot.cluster.name, server)))


def _is_ready(snapshot: Snapshot, server: int) -> bool:
    pod = _pod(snapshot, server)
    return pod is not None and has_condition(pod, "Ready") and not is_terminating(pod)


def is_serving(snapshot: Snapshot, observed: EnsembleObservation, server: int) -> bool:
    """Whether the server's current pod has answered in this reconciliation that it serves clients."""
    pod, report = _pod(snapshot, server), observed.servers.get(server)
    return (
        pod is not None
        and not is_terminating(pod)
        and report is not None
        and (report.pod_uid == uid_of(pod) and report.is_serving)
    )


def holds_and_serves(snapshot: Snapshot, observed: EnsembleObservation, server: int, roles: Sequence[str]) -> bool:
    """Whether a server serves clients now, with the claims with which it is recorded to have served."""
    stored = stored_record(snapshot)
    uids = _uids(snapshot, server, roles)
    return (
        stored is not None
        and uids is not None
        and stored.served.get(server) == uids
        and is_serving(snapshot, observed, server)
    )


def _updated(
    snapshot: Snapshot, observed: EnsembleObservation, record: EnsembleRecord, roles: Sequence[str]
) -> EnsembleRecord:
    """The record with the servers that serve now. A container has not mounted a claim that is younger than itself."""
    served = dict(record.served)
    for server in record.servers:
        uids = _uids(snapshot, server, roles)
        if uids is None or served.get(server) == uids or not is_serving(snapshot, observed, server):
            continue
        container = container_status(_pod(snapshot, server), names.ZOOKEEPER)
        started = str(dig(container, "state", "running", "startedAt") or "")
        made = [str(dig(claim, "metadata", "creationTimestamp") or "") for claim in _claims(snapshot, server, roles)]
        if not started or max(made) <= started:
            served[server] = uids
    return replace(record, served=served)


def _serves(snapshot: Snapshot, observed: EnsembleObservation, held: Sequence[int], quorum: int) -> bool:
    """Whether a quorum of servers that hold data serves now, one of them as the leader."""
    serving = [server for server in held if is_serving(snapshot, observed, server)]
    leads = any(observed.servers[server].mode != "follower" for server in serving)
    return leads and len(serving) >= quorum


def _next_to_replace(snapshot: Snapshot, missing: Sequence[int], roles: Sequence[str]) -> int | None:
    """The server to replace next: one that has its new claims already, then the lowest id."""
    begun = [server for server in missing if _uids(snapshot, server, roles) is not None]
    possible = [
        server
        for server in missing
        if not any(claim is not None and _has_lost_volume(claim) for claim in _claims(snapshot, server, roles))
    ]
    return next(iter([*begun, *possible]), None)


def token(snapshot: Snapshot, record: EnsembleRecord, server: int) -> str:
    """The token that declares the loss of a server's present data. It is not valid for a later loss."""
    uids = record.served.get(server)
    return f"{server}-{short_hash([uid_of(snapshot.resource), server, None if uids is None else list(uids)])[:8]}"


def _accepted(snapshot: Snapshot, record: EnsembleRecord, states: Mapping[int, State]) -> set[int]:
    """The servers whose data a person has declared lost; not those that have their volumes."""
    given = accepted_losses(snapshot.resource)
    return {
        server
        for server, state in states.items()
        if state in ("lost", "replaced", "new") and token(snapshot, record, server) in given
    }


def _declared(states: Mapping[int, State], held: Sequence[int], accepted: set[int], quorum: int) -> list[int]:
    """The servers that may vote with an empty database because a person has declared them lost.

    They are fewer than a quorum, so every quorum has a server with data, and the data wins. A claim of unknown content
    may have newer data: as long as there is one that is not declared lost, no server gets the permission.
    """
    need = quorum - len(held)
    unknown = [server for server, state in states.items() if state == "replaced" and server not in accepted]
    if not held or need <= 0 or unknown or len(accepted) < need:
        return []
    return sorted(accepted)[:need]


def _claim_faults(snapshot: Snapshot, servers: Iterable[int], roles: Sequence[str]) -> list[Condition]:
    found = []
    for server in servers:
        for claim in _claims(snapshot, server, roles):
            if claim is None:
                continue
            name = claim["metadata"]["name"]
            if is_terminating(claim):
                message = f"claim {name} of server {server} is being deleted; the server loses it when its pod stops"
                found.append(condition_false(ZOOKEEPER_READY, "ClaimTerminating", message))
            elif _has_lost_volume(claim):
                message = (
                    f"claim {name} of server {server} has lost its volume: bring the PersistentVolume back, or delete "
                    "the claim to have the server replaced"
                )
                found.append(condition_false(ZOOKEEPER_READY, "ClaimLost", message))
    return found


def _replacing(server: int, waits: Sequence[int]) -> Condition:
    after = f"; after it: {', '.join(map(str, waits))}" if waits else ""
    message = f"server {server} starts with other claims than it served with, and copies the data of the others{after}"
    return condition_false(ZOOKEEPER_READY, "ReplacingServer", message)


def _loss(
    snapshot: Snapshot,
    observed: EnsembleObservation,
    record: EnsembleRecord,
    states: Mapping[int, State],
    lost: Sequence[int],
    held: Sequence[int],
    quorum: int,
    roles: Sequence[str],
) -> Condition:
    """ClaimLost: what is lost, why nothing is created in its place, and what a person can do."""
    gone = [
        name
        for server in lost
        for name, claim in zip(
            (claim_name(snapshot, server, role) for role in roles), _claims(snapshot, server, roles), strict=True
        )
        if claim is None or states[server] == "replaced"
    ]
    serving = sum(1 for server in held if is_serving(snapshot, observed, server))
    what = (
        f"servers {', '.join(map(str, lost))} do not have the volumes that they served with ({', '.join(gone[:6])}). "
        f"Empty ones could overwrite what is left, so nothing is created: of the {quorum} servers that a quorum needs "
        f"{len(held)} hold data and {serving} serve. "
    )
    if len(held) >= quorum:
        return condition_false(ZOOKEEPER_READY, "ClaimLost", f"{what}Get servers {', '.join(map(str, held))} to run.")
    needed = [token(snapshot, record, server) for server in lost]
    tokens = ",".join(needed)
    others = [one for one in accepted_losses(snapshot.resource) if one not in needed]
    wrong = f" (the annotation has {others[0][:SHOWN_LENGTH]}, which declares none of them lost)" if others else ""
    cluster = snapshot.cluster
    command = (
        f"kubectl annotate -n {cluster.namespace} {KAFKA_CLUSTER.kind.lower()} {cluster.name} --overwrite "
        f"{names.ACCEPT_LOSS}={tokens}"
    )
    return condition_false(
        ZOOKEEPER_READY,
        "ClaimLost",
        f"{what}Restore the claims with their volumes; or, what only they held is then lost, declare it: {command}"
        f"{wrong}",
    )
