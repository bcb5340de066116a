"""What exists of the ensemble: its members, and where its transaction logs are, which never changes.

Read in this order: the record of `ensemble_volumes`, StatefulSets, the ConfigMap with the files, claims that a deleted
cluster has left; and from the spec when nothing exists yet.
"""

from __future__ import annotations

from ottla_documents.disk_spec import DiskSpec
from ottla_documents.kafka_cluster import KafkaCluster
from ottla_operator.api import names
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    STATEFUL_SET,
    Obj,
    dig,
    label,
    name_of,
)
from ottla_operator.concerns.ensemble.ensemble_volumes import (
    stored_record,
)
from ottla_operator.concerns.ensemble.zookeeper_files import LOG
from ottla_operator.facts.snapshot import Snapshot


def ensemble_members(snapshot: Snapshot) -> tuple[int, ...] | None:
    """The ids of the ensemble's members; None before it is created."""
    if (record := stored_record(snapshot)) is not None:
        return record.members
    files = snapshot.get(CONFIG_MAP, files_name(snapshot.cluster))
    if text := dig(files, "data", "members"):
        return tuple(range(1, len(str(text).splitlines()) + 1))
    highest = max(snapshot.zookeeper_ids(), default=0)
    return tuple(range(1, highest + 1)) if highest > snapshot.cluster.zookeeper.replicas else None


def first_members(snapshot: Snapshot) -> tuple[int, ...]:
    """The members of an ensemble that is created now: those of spec without claims of an earlier membership.

    The others are added later, which discards what their volumes hold.
    """
    left = {label(claim, names.SERVER_ID) for claim in snapshot.all(CLAIM) if label(claim, names.REMOVED) == "true"}
    return tuple(server for server in spec_members(snapshot) if str(server) not in left) or (1,)


def spec_members(snapshot: Snapshot) -> tuple[int, ...]:
    """The members that spec asks for."""
    return tuple(range(1, snapshot.cluster.zookeeper.replicas + 1))


def disks_of(snapshot: Snapshot) -> list[tuple[str, DiskSpec, str]]:
    """The volumes of each server: (role, disk, field of spec)."""
    spec = snapshot.cluster.zookeeper
    found = [("data", spec.disk, "spec.zookeeper.disk")]
    if has_log_disk(snapshot):
        found.append(("log", spec.log_disk or spec.disk, "spec.zookeeper.logDisk"))
    return found


def roles_of(snapshot: Snapshot) -> list[str]:
    """The roles of a server's volumes: data, and log when transaction logs have a volume of their own."""
    return [role for role, _, _ in disks_of(snapshot)]


def has_log_disk(snapshot: Snapshot) -> bool:
    """Whether transaction logs have a volume of their own.

    A server whose log directory changes does not find its last transactions, so what exists counts before the spec.
    """
    templates = [dig(obj, "spec", "template", "spec", "volumes") or [] for obj in servers_of(snapshot).values()]
    if templates:
        return any(volume.get("name") == "log" for volumes in templates for volume in volumes)
    if text := dig(snapshot.get(CONFIG_MAP, files_name(snapshot.cluster)), "data", "zoo.cfg"):
        return f"dataLogDir={LOG}\n" in str(text)
    if (record := stored_record(snapshot)) is not None and record.served:
        return any(len(uids) > 1 for uids in record.served.values())
    claims = {label(claim, names.DISK) for claim in snapshot.all(CLAIM) if label(claim, names.SERVER_ID) is not None}
    return "log" in claims if claims else snapshot.cluster.zookeeper.log_disk is not None


def servers_of(snapshot: Snapshot) -> dict[int, Obj]:
    """The existing StatefulSets of the ensemble, by server id."""
    found: dict[int, Obj] = {}
    for obj in snapshot.all(STATEFUL_SET):
        number = label(obj, names.SERVER_ID)
        if number is None or not number.isdecimal():
            continue
        if name_of(obj) == names.zookeeper_name(snapshot.cluster.name, int(number)):
            found[int(number)] = obj
    return found


def files_name(cluster: KafkaCluster) -> str:
    return names.zookeeper_service(cluster.name)
