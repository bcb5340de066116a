"""The ZooKeeper ensemble of a KafkaCluster: what of it is written, and the condition ZooKeeperReady.

Templates of servers that exist are not written here: the roller writes each when it restarts that server. With
spec.zookeeper.connect nothing is created. `ensemble_volumes` decides which servers may start without data.

`ensemble_resize` decides which servers join and leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ottla_documents.disk_spec import DiskSpec
from ottla_documents.quantity import quantity_bytes
from ottla_operator.api import names
from ottla_operator.api.condition_reasons import ZOOKEEPER_READY
from ottla_operator.api.conditions import Condition, condition_false, condition_true, invalid_spec
from ottla_operator.api.objects import (
    CLAIM,
    SERVICE,
    STATEFUL_SET,
    Obj,
    dig,
    has_condition,
    name_of,
)
from ottla_operator.concerns.ensemble.actions import Reconfigure
from ottla_operator.concerns.ensemble.ensemble_resize import ResizeDecision, claim_to_delete, decide_resize, is_resizing
from ottla_operator.concerns.ensemble.ensemble_volumes import (
    EnsembleRecord,
    VolumesDecision,
    claim_name,
    decide_volumes,
    is_settled,
    record_of,
)
from ottla_operator.concerns.ensemble.lost_servers import decide_lost_servers, servers_without_node
from ottla_operator.concerns.ensemble.observation import NO_ENSEMBLE_OBSERVATION, EnsembleObservation
from ottla_operator.concerns.ensemble.zookeeper_layout import (
    disks_of,
    ensemble_members,
    first_members,
    has_log_disk,
    roles_of,
    spec_members,
)
from ottla_operator.concerns.ensemble.zookeeper_objects import (
    POD_FIELDS,
    disruption_budget,
    files_config_map,
    server_claim,
    server_stateful_set,
    service,
)
from ottla_operator.facts.progress import excused
from ottla_operator.facts.snapshot import ConcernDecision, Snapshot
from ottla_operator.objects.pods import (
    not_ready_reason,
)


@dataclass(frozen=True, slots=True)
class EnsembleDecision:
    """`stateful_sets`: each server's as it should be, by server id; empty with spec.zookeeper.connect.

    `kept`: the servers whose pod must not be deleted, since a volume would go with it. `members`: the servers that may
    have a vote. `can_serve`: the members are ready, whatever else ZooKeeperReady reports.
    """

    decision: ConcernDecision
    stateful_sets: Mapping[int, Obj]
    needs_secret: bool = False
    kept: frozenset[int] = frozenset()
    members: tuple[int, ...] = ()
    can_serve: bool = False


def decide_zookeeper(snapshot: Snapshot, observed: EnsembleObservation = NO_ENSEMBLE_OBSERVATION) -> EnsembleDecision:
    """The objects of the ensemble to write, without the templates of existing servers, and ZooKeeperReady."""
    cluster = snapshot.cluster
    spec = cluster.zookeeper
    faults = _spec_faults(snapshot)
    is_incomplete = bool(snapshot.problems_below(*POD_FIELDS))
    if spec.connect:
        condition = faults[0] if faults else condition_true(ZOOKEEPER_READY, "ExistingEnsemble", spec.connect)
        return EnsembleDecision(ConcernDecision((condition,), is_incomplete=is_incomplete), {}, can_serve=not faults)
    exists = ensemble_members(snapshot)
    if faults and exists is None:
        return EnsembleDecision(ConcernDecision(tuple(faults[:1]), is_incomplete=is_incomplete), {})
    roles = roles_of(snapshot)
    record = record_of(snapshot, exists or first_members(snapshot))
    resize = decide_resize(snapshot, record, _wanted(snapshot, record), roles, observed)
    volumes = decide_volumes(snapshot, observed, resize.record, roles)
    faults = [*volumes.faults, *faults]
    servers = sorted({*resize.record.members, *([resize.starts] if resize.starts is not None else [])})
    desired: list[Obj] = [disruption_budget(snapshot, servers), files_config_map(snapshot, volumes)]
    has_service = snapshot.get(SERVICE, names.zookeeper_service(cluster.name)) is not None
    if not has_service or not snapshot.problems_below("spec.zookeeper.template.service"):
        desired.append(service(snapshot))
    stateful_sets: dict[int, Obj] = {}
    for server in servers:
        is_whole = True
        for role, disk, field in disks_of(snapshot):
            is_there = snapshot.get(CLAIM, claim_name(snapshot, server, role)) is not None
            if is_there or server in volumes.creatable:
                desired.append(server_claim(snapshot, server, role, disk, volumes))
            else:
                is_whole = False
            faults += _claim_faults(snapshot, server, role, disk, field)
        if is_incomplete:
            continue  # not known how a server should be: existing ones stay as they are
        stateful_sets[server] = server_stateful_set(snapshot, observed, server)
        if is_whole and snapshot.get(STATEFUL_SET, names.zookeeper_name(cluster.name, server)) is None:
            desired.append(stateful_sets[server])
    desired += _of_servers_that_left(snapshot, observed, resize, volumes)
    lost = decide_lost_servers(snapshot, observed, resize.record.members, roles)
    marked = {name_of(claim): claim for claim in lost.desired}
    desired = [marked.get(name_of(obj), obj) if obj["kind"] == CLAIM.kind else obj for obj in desired]
    faults = [*lost.conditions, *faults]
    ready = _readiness(snapshot, resize.record.members, has_served=bool(volumes.record.served))
    condition = faults[0] if faults else ready
    if condition.status == "True" and resize.condition is not None:
        condition = resize.condition
    pauses = [one for one in (lost.requeue_after_s, resize.requeue_after_s) if one is not None]
    delete = lost.delete or resize.delete
    if delete is None and condition.status == "True":
        delete = claim_to_delete(snapshot, record, _wanted(snapshot, record))
    change = None if delete is not None else resize.reconfiguration
    decision = ConcernDecision(
        (condition,),
        tuple(desired),
        delete,
        min(pauses, default=None),
        actions=() if change is None else (Reconfigure(change, leader_pod(snapshot, observed)),),
        is_incomplete=is_incomplete,
    )
    return EnsembleDecision(
        decision,
        stateful_sets,
        observed.super_secret is None,
        volumes.kept,
        resize.record.members,
        can_serve=not faults and ready.status == "True",
    )


def leader_pod(snapshot: Snapshot, observed: EnsembleObservation) -> Obj | None:
    """The pod of the only server that says it leads; None when there is none, or two."""
    leader = observed.leading_server()
    return None if leader is None else snapshot.pod(names.pod_of(names.zookeeper_name(snapshot.cluster.name, leader)))


def needs_reports(snapshot: Snapshot) -> bool:
    """Whether the servers have to be asked with srvr: until each has served with the claims that it has now.

    And while one has no node: before it is replaced the others have to serve. And while the ensemble is resized, or
    rolled: the leader is the last.
    """
    if snapshot.cluster.zookeeper.connect:
        return False
    members = ensemble_members(snapshot) or first_members(snapshot)
    return (
        not is_settled(snapshot, members, roles_of(snapshot))
        or bool(servers_without_node(snapshot, members))
        or needs_membership(snapshot)
        or snapshot.status("roll", "role") == names.ZOOKEEPER
    )


def needs_membership(snapshot: Snapshot) -> bool:
    """Whether the leader has to be asked who the members are: while the ensemble is resized."""
    members = ensemble_members(snapshot)
    if snapshot.cluster.zookeeper.connect or members is None:
        return False
    record = record_of(snapshot, members)
    return is_resizing(snapshot, record, _wanted(snapshot, record))


def _wanted(snapshot: Snapshot, record: EnsembleRecord) -> tuple[int, ...]:
    """The members that spec asks for; those that there are while spec.zookeeper cannot be read."""
    return record.members if snapshot.problems_below("spec.zookeeper") else spec_members(snapshot)


def _of_servers_that_left(
    snapshot: Snapshot, observed: EnsembleObservation, resize: ResizeDecision, volumes: VolumesDecision
) -> list[Obj]:
    """What is left of servers that must not run any more: StatefulSets without a pod, and released claims."""
    found: list[Obj] = []
    for server in resize.stopped:
        stateful_set = server_stateful_set(snapshot, observed, server)
        if snapshot.own(STATEFUL_SET, name_of(stateful_set)) is not None:
            found.append({**stateful_set, "spec": {**stateful_set["spec"], "replicas": 0}})
    for server in resize.released:
        for role, disk, _ in disks_of(snapshot):
            if snapshot.get(CLAIM, claim_name(snapshot, server, role)) is not None:
                found.append(server_claim(snapshot, server, role, disk, volumes, is_removed=True))
    return found


def _spec_faults(snapshot: Snapshot) -> list[Condition]:
    """The problems of spec.zookeeper itself; the first one is shown."""
    found: list[Condition] = []
    if wrong := snapshot.problems_below("spec.zookeeper", "metadata"):
        found.append(invalid_spec(ZOOKEEPER_READY, wrong))
    spec = snapshot.cluster.zookeeper
    if not spec.connect and has_log_disk(snapshot) != (spec.log_disk is not None):
        act = "adding" if spec.log_disk is not None else "removing"
        message = f"spec.zookeeper.logDisk: {act} it is not supported; the ensemble keeps its log where it is"
        found.append(condition_false(ZOOKEEPER_READY, "LogDiskChanged", message))
    if not spec.connect and not spec.disk.size:
        found.append(condition_false(ZOOKEEPER_READY, "NoSize", "spec.zookeeper.disk.size: is required on Kubernetes"))
    return found


def _claim_faults(snapshot: Snapshot, server: int, role: str, disk: DiskSpec, field: str) -> list[Condition]:
    name = claim_name(snapshot, server, role)
    live = snapshot.get(CLAIM, name)
    if live is None or not disk.size:
        return []
    requested = str(dig(live, "spec", "resources", "requests", "storage") or "0")
    if quantity_bytes(disk.size) != quantity_bytes(requested):
        message = f"{field}.size: changing {requested} of claim {name} to {disk.size} is not supported"
        return [condition_false(ZOOKEEPER_READY, "DiskResizeNotSupported", message)]
    return []


def _readiness(snapshot: Snapshot, servers: Sequence[int], *, has_served: bool) -> Condition:
    """ZooKeeperReady: a roll excuses the server that it restarts, and never an ensemble without a quorum."""
    waiting: list[str] = []
    down: list[str] = []
    pods = {
        server: snapshot.pod(names.pod_of(names.zookeeper_name(snapshot.cluster.name, server))) for server in servers
    }
    rolling = excused(snapshot, names.ZOOKEEPER, pods)
    for server, pod in pods.items():
        if pod is None or not has_condition(pod, "Ready"):
            why = snapshot.creation_failure(names.zookeeper_name(snapshot.cluster.name, server))
            down.append(f"{server} has no pod{why}" if pod is None else f"{server} {not_ready_reason(pod)}")
            if server not in rolling:
                waiting.append(down[-1])
    if has_served and len(servers) - len(down) <= len(servers) // 2:
        return condition_false(ZOOKEEPER_READY, "NoQuorum", f"no server serves clients; servers: {', '.join(down)}")
    if waiting:
        return condition_false(ZOOKEEPER_READY, "WaitingForServers", f"servers not ready: {', '.join(waiting)}")
    return condition_true(ZOOKEEPER_READY)
