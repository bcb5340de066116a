"""Scaling down: a surplus broker without replicas is removed, one with replicas stays and is reported.

The brokers with the highest ids of a pool are surplus, and those whose pool the document does not name. The rebalance
moves their replicas away (`concerns.rebalance`), unless spec.rebalance.mode says that a person does. Then one is
removed at a time, and each step follows from what the objects and Kafka's metadata show:

1. It runs and is empty: no partition in the metadata names it, its log directories hold no replica (DescribeLogDirs),
   and the rebalance has removed its throttle. Its StatefulSet is scaled to 0, which is SIGTERM and so a controlled
   shutdown. It can come back.
2. It has stopped: there is no pod, and the metadata no longer lists it. If a partition names it now, it is scaled to 1
   again. If not, its claims get the label removed=true.
3. Its claims have the label: its StatefulSet is deleted, after the metadata was read once more.
4. It is gone: no StatefulSet, no claim without the label. Its Service and ConfigMaps are deleted, one at a time.

A topic may be created on the broker between the first look and its stop. The controller announces a partition before it
announces that the partition's broker has left, so metadata that no longer lists the broker has every partition that was
created on it, and a broker that is not registered gets none. Older metadata still lists the broker and proves nothing.

A claim with the label counts for no broker. It stays, and a fleet that grows again first takes the lowest such id with
its claims and rack. With spec.brokers.claimDeletionPolicy Delete it is deleted instead, one at a time, while Kafka's
metadata, read once more, neither lists the broker nor names it. Logs that are not assigned to the broker (`-stray`)
keep no broker from being removed, since nothing reads them; but their claim stays: it may have the only copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla_operator.api import names
from ottla_operator.api.condition_reasons import BROKERS_READY
from ottla_operator.api.conditions import Condition, condition_false
from ottla_operator.api.fleet import LogDirContents
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    POD,
    SERVICE,
    STATEFUL_SET,
    dig,
    is_terminating,
    label,
    name_of,
    uid_of,
)
from ottla_operator.api.ownership import is_ours
from ottla_operator.facts.broker_claims import claims_of, has_strays
from ottla_operator.facts.metadata_source import decide_metadata_source
from ottla_operator.facts.snapshot import Deletion, Snapshot

SHOWN = 5
SOON_S = 1.0


@dataclass(frozen=True, slots=True)
class RemovalDecision:
    """`stopping`: brokers that must not run. `released`: those of them whose claims get the label removed.

    `empty`: surplus brokers that hold nothing for certain, those of `stopping` among them.
    `condition`: what is under way, or which replicas prevent it; None without surplus brokers.
    """

    stopping: tuple[int, ...] = ()
    released: tuple[int, ...] = ()
    empty: frozenset[int] = frozenset()
    condition: Condition | None = None
    delete: Deletion | None = None
    requeue_after_s: float | None = None


def decide_removal(
    snapshot: Snapshot,
    surplus: Sequence[int],
    racks: Iterable[int],
    log_dirs: Mapping[int, Sequence[LogDirContents]],
) -> RemovalDecision:
    """The next step for the `surplus` brokers (highest id first) and for the leftovers of removed ones.

    Args:
        log_dirs: what is in the log directories of those that answered, read now.
    """
    stopped = [broker_id for broker_id in surplus if is_stopped(snapshot, broker_id)]
    stopping: list[int] = []
    held_by: dict[int, list[str]] = {}
    unknown: list[int] = []
    empty: set[int] = set()
    for broker_id in [*stopped, *(number for number in surplus if number not in stopped)]:
        if snapshot.get(STATEFUL_SET, names.broker_name(snapshot.cluster.name, broker_id)) is None:
            continue  # only claims without the label exist: it may hold data, so it is created first
        held = held_replicas(snapshot, broker_id, log_dirs.get(broker_id))
        if held == []:
            empty.add(broker_id)
        if held:
            held_by[broker_id] = held
        elif broker_id in stopped:
            stopping.append(broker_id)  # an unknown answer changes nothing
        elif held is None:
            unknown.append(broker_id)
        elif (
            not stopping and not _roll_restarts_another(snapshot, broker_id) and not _is_throttled(snapshot, broker_id)
        ):
            stopping.append(broker_id)
    released = tuple(number for number in stopping if number in empty and _is_gone(snapshot, number))
    delete = next((found for number in released if (found := _stateful_set(snapshot, number)) is not None), None)
    known_ids = {*racks, *snapshot.broker_racks}
    delete = delete or _leftover(snapshot, known_ids) or _claim_of_removed(snapshot, known_ids)
    condition = _condition(snapshot, surplus, stopping, held_by, unknown)
    requeue_after_s = SOON_S if stopping or delete else None
    return RemovalDecision(tuple(stopping), released, frozenset(empty), condition, delete, requeue_after_s)


def held_replicas(snapshot: Snapshot, broker_id: int, log_dirs: Sequence[LogDirContents] | None) -> list[str] | None:
    """The partitions with a replica on the broker; None while that is not known for certain.

    The log directories of a registered broker count too: replicas of topics in deletion, and future replicas. Metadata
    that may be old proves nothing, nor does that which lacks a broker with a session.
    """
    if snapshot.kafka is None or not decide_metadata_source(snapshot.reports).is_current:
        return None
    named = [str(partition) for partition in snapshot.kafka.partitions if broker_id in partition.replicas]
    if named:
        return named
    if broker_id not in snapshot.kafka.brokers:
        report = snapshot.reports.get(broker_id)
        return None if report is not None and report.session == "connected" else []
    return None if log_dirs is None else [str(replica) for one in log_dirs for replica in one.replicas]


def is_stopped(snapshot: Snapshot, broker_id: int) -> bool:
    """Whether the broker's StatefulSet is scaled to 0."""
    live = snapshot.get(STATEFUL_SET, names.broker_name(snapshot.cluster.name, broker_id))
    return live is not None and dig(live, "spec", "replicas") == 0


def _is_gone(snapshot: Snapshot, broker_id: int) -> bool:
    name = names.broker_name(snapshot.cluster.name, broker_id)
    return (
        is_stopped(snapshot, broker_id)
        and snapshot.get(POD, names.pod_of(name)) is None
        and snapshot.kafka is not None
        and broker_id not in snapshot.kafka.brokers
    )


def _is_throttled(snapshot: Snapshot, broker_id: int) -> bool:
    """Whether a rebalance may have set a throttle on the broker, and it is there to remove it."""
    throttled = snapshot.status("rebalance", "throttled", "brokers") or ()
    return broker_id in throttled and snapshot.kafka is not None and broker_id in snapshot.kafka.brokers


def _roll_restarts_another(snapshot: Snapshot, broker_id: int) -> bool:
    """Whether a roll restarts another broker now: one at a time."""
    batch = snapshot.status("roll", "batch") or []
    return bool(batch) and batch != [broker_id]


def _stateful_set(snapshot: Snapshot, broker_id: int) -> Deletion | None:
    """The deletion of the broker's StatefulSet, once every claim of the broker has the label."""
    for claim in snapshot.all(CLAIM):
        is_kept = label(claim, names.REMOVED) == "true" or label(claim, names.RETIRED) is not None
        if label(claim, names.BROKER_ID) == str(broker_id) and not is_kept:
            return None
    live = snapshot.own(STATEFUL_SET, names.broker_name(snapshot.cluster.name, broker_id))
    if live is None:
        return None
    reason = f"{_field(snapshot, broker_id)}, and broker {broker_id} is empty"
    return Deletion(STATEFUL_SET, name_of(live), uid_of(live), reason, empty_broker=broker_id)


def _field(snapshot: Snapshot, broker_id: int) -> str:
    """What of spec has one broker less."""
    pool = snapshot.pools.get(broker_id)
    if pool is None:
        return f"spec.brokers.pools does not name {snapshot.pool_names.get(broker_id)}"
    return f"{pool.path}.replicas: {pool.replicas}"


def _leftover(snapshot: Snapshot, known_ids: set[int]) -> Deletion | None:
    """The deletion of a Service or ConfigMap of a broker that no longer exists."""
    for kind in (SERVICE, CONFIG_MAP):
        for obj in snapshot.all(kind):
            number = label(obj, names.BROKER_ID)
            if number is None or not number.isdecimal() or int(number) in known_ids:
                continue
            if is_ours(obj, snapshot.resource):
                absent = (STATEFUL_SET, names.broker_name(snapshot.cluster.name, int(number)))
                return Deletion(kind, name_of(obj), uid_of(obj), f"broker {number} is gone", while_absent=absent)
    return None


def _claim_of_removed(snapshot: Snapshot, known_ids: set[int]) -> Deletion | None:
    """The deletion of a claim of a broker that was removed, when spec asks for it."""
    if snapshot.cluster.brokers.claim_deletion_policy != "Delete" or snapshot.kafka is None:
        return None
    named = {replica for partition in snapshot.kafka.partitions for replica in partition.replicas}
    for number in snapshot.removed_ids():
        if number in known_ids or number in named or number in snapshot.kafka.brokers:
            continue
        for claim in claims_of(snapshot, number):
            if not is_terminating(claim) and not has_strays(claim):
                reason = f"spec.brokers.claimDeletionPolicy is Delete, and broker {number} was removed"
                absent = (STATEFUL_SET, names.broker_name(snapshot.cluster.name, number))
                return Deletion(CLAIM, name_of(claim), uid_of(claim), reason, while_absent=absent, empty_broker=number)
    return None


def _condition(
    snapshot: Snapshot,
    surplus: Sequence[int],
    stopping: Sequence[int],
    held_by: dict[int, list[str]],
    unknown: Sequence[int],
) -> Condition | None:
    if not surplus:
        return None
    field = "; ".join(dict.fromkeys(_field(snapshot, broker_id) for broker_id in surplus))
    if stopping:
        return condition_false(
            BROKERS_READY, "BeingRemoved", f"{field}; broker {stopping[0]} is empty and is being removed"
        )
    if held_by:
        texts = []
        for broker_id, held in sorted(held_by.items()):
            more = ", …" if len(held) > SHOWN else ""
            texts.append(f"broker {broker_id} holds {len(held)} replicas ({', '.join(held[:SHOWN])}{more})")
        message = f"{field}; {'; '.join(texts)}"
        if snapshot.cluster.rebalance.mode != "Auto":
            message += "; a broker is removed once they are moved away (kafka-reassign-partitions, spec.rebalance.mode)"
            return condition_false(BROKERS_READY, "HoldReplicas", message)
        if reason := snapshot.status("rebalance", "reason"):
            return condition_false(BROKERS_READY, "HoldReplicas", f"{message}; the rebalance: {reason}")
        if snapshot.status("rebalance") is not None:
            return condition_false(BROKERS_READY, "BeingRemoved", f"{message}; they are being moved away")
        return condition_false(BROKERS_READY, "HoldReplicas", f"{message}; a broker is removed once it holds none")
    if unknown:
        message = f"{field}; not known yet which replicas broker {', '.join(map(str, unknown))} holds"
        return condition_false(BROKERS_READY, "WaitingForKafka", message)
    return condition_false(BROKERS_READY, "BeingRemoved", f"{field}; broker {surplus[0]} is removed next")
