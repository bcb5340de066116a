"""The ids, racks and pools of brokers, and the conditions RacksReady and SpreadOverNodes.

Labels of claims and StatefulSets record ids, racks and pools; status only shows them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ottla_documents.broker_pools import MAIN_POOL, BrokerPool, free_ids, missing, surplus
from ottla_documents.kafka_cluster import DEFAULT_REPLICAS
from ottla_documents.schema.marks import Problem
from ottla_operator.api.condition_reasons import BROKERS_READY, RACKS_READY, SPREAD_OVER_NODES
from ottla_operator.api.conditions import Condition, condition_false, condition_true, invalid_spec
from ottla_operator.api.names import BROKER_ID, CLUSTER_ID, DISK, DISKS, POOL, broker_name, pod_of
from ottla_operator.api.objects import CLAIM, POD, annotation, dig, is_terminating, label
from ottla_operator.facts.broker_claims import claims_of
from ottla_operator.facts.snapshot import POOL_FIELDS, Snapshot


@dataclass(frozen=True, slots=True)
class Identities:
    """Racks by broker id, in the order of the ids. `waiting`: why a broker was not added, or None.

    `surplus`: the brokers to remove, the highest id first; they have their rack here until they are gone. `joining`:
    the pools of the brokers that are added.
    """

    racks: Mapping[int, str]
    conditions: tuple[Condition, ...]
    waiting: Condition | None = None
    surplus: tuple[int, ...] = ()
    joining: Mapping[int, str] = field(default_factory=dict)


def spread(
    current: Mapping[int, str], new: Sequence[int], racks: Sequence[str], pool: Collection[int] | None = None
) -> dict[int, str]:
    """A rack for each new broker: the one with the fewest brokers of its pool, then of all, in ties the first.

    Args:
        pool: the current brokers of the pool; None for all.

    >>> spread({0: "a"}, [1, 2, 3], ["a", "b", "c"])
    {1: 'b', 2: 'c', 3: 'a'}
    >>> spread({0: "b", 1: "c"}, [2, 3], ["a", "b", "c"], pool=[])
    {2: 'a', 3: 'b'}
    """
    of_all = {rack: sum(1 for given in current.values() if given == rack) for rack in racks}
    mine = [current[number] for number in (current if pool is None else pool) if number in current]
    of_pool = {rack: mine.count(rack) for rack in racks}
    chosen: dict[int, str] = {}
    for broker_id in new:
        rack = min(racks, key=lambda rack: (of_pool[rack], of_all[rack]))
        of_all[rack] += 1
        of_pool[rack] += 1
        chosen[broker_id] = rack
    return chosen


def racks_of_nodes(snapshot: Snapshot) -> list[str]:
    """The values of the rack label that nodes carry, sorted; none without the right to read nodes."""
    key = snapshot.cluster.brokers.rack_key
    return sorted({value for node in snapshot.nodes or () if (value := label(node, key))})


def adds_brokers(snapshot: Snapshot) -> bool:
    """Whether `decide_identities` may assign ids and racks, which never change afterwards."""
    if snapshot.problems_below(*POOL_FIELDS):
        return False
    return bool(missing(snapshot.cluster.brokers.pools, snapshot.pools))


def find_count_problems(snapshot: Snapshot) -> tuple[Problem, ...]:
    """The problem of a document without `replicas` and `pools`, where its default would remove brokers that there are.

    The default is that of a new cluster: it ends no pool and removes no broker, since nobody has asked for that.
    """
    brokers = snapshot.cluster.brokers
    if brokers.has_replicas or brokers.has_pools:
        return ()
    recorded = snapshot.recorded_pools()
    pools = sorted({*recorded.values()} - {MAIN_POOL})
    if pools:
        why = f"brokers are of pools that the document does not name ({', '.join(pools)})"
    elif len(recorded) > DEFAULT_REPLICAS:
        why = f"there are more brokers than the default of {DEFAULT_REPLICAS}"
    else:
        return ()
    return (Problem("spec.brokers.replicas", f"is required while {why}; {len(recorded)} keeps all of them"),)


def brokers_to_remove(snapshot: Snapshot) -> tuple[int, ...]:
    """The brokers that a pool has too many, and those whose pool the document does not name, the highest id first."""
    if snapshot.problems_below(*POOL_FIELDS, "metadata"):
        return ()
    return surplus(snapshot.pools, snapshot.broker_racks)


def decide_identities(snapshot: Snapshot) -> Identities:
    """The ids, racks and pools of the brokers: existing brokers keep theirs, missing brokers get new ones.

    Ids of removed brokers whose claims still exist are assigned first, to the pool that they had, with their racks: the
    volumes are there. When a pool has too many brokers those with the highest ids are surplus (`broker_removal`).
    """
    brokers = snapshot.cluster.brokers
    recorded = snapshot.broker_racks
    racks = {broker_id: rack for broker_id, rack in recorded.items() if rack is not None}
    node_racks = racks_of_nodes(snapshot)
    racks_condition = _racks_condition(snapshot, racks, node_racks)
    shown = (racks_condition, _spread_condition(snapshot, racks))
    if wrong := snapshot.problems_below(*POOL_FIELDS, "metadata"):
        return Identities(racks, shown, invalid_spec(BROKERS_READY, wrong))
    leaving = brokers_to_remove(snapshot)
    lacks = missing(brokers.pools, snapshot.pools)
    if not lacks:
        return Identities(racks, shown, surplus=leaving)
    if snapshot.problems_below("spec.brokers.racks", "spec.brokers.rackKey"):
        waiting = condition_false(BROKERS_READY, "WaitingForRack", racks_condition.message)
        return Identities(racks, shown, waiting, leaving)
    taken = {replica for part in snapshot.kafka.partitions for replica in part.replicas} if snapshot.kafka else set()
    joining: dict[int, str] = {}
    reasons: list[Condition] = []
    for pool in brokers.pools:
        count = lacks.get(pool.name, 0)
        usable = _usable_racks(snapshot, pool, node_racks)
        if not count:
            continue
        if not usable:
            reasons.append(condition_false(BROKERS_READY, "WaitingForRack", racks_condition.message))
            continue
        if snapshot.kafka is None and _has_run(snapshot):
            message = "new ids must not be those of replicas, and no broker answers which there are"
            return Identities(racks, shown, condition_false(BROKERS_READY, "WaitingForKafka", message), leaving)
        kept = {number: rack for number, rack in _removed_of(snapshot, pool).items() if number not in taken}
        again = list(kept)[:count]
        racks.update((number, kept[number]) for number in again)
        used = [*recorded, *snapshot.removed_ids(), *joining, *taken]
        new = free_ids(pool, brokers.pools, used, count - len(again))
        mine = [number for number, other in snapshot.pools.items() if other.name == pool.name] + again
        racks.update(spread(racks, new, usable, mine))
        joining |= dict.fromkeys((*again, *new), pool.name)
        if len(again) + len(new) < count:
            text = f"{pool.path}.idRange: no id is free for a broker of pool {pool.name}; claims and replicas have them"
            reasons.append(condition_false(BROKERS_READY, "NoFreeId", text))
    return Identities(dict(sorted(racks.items())), shown, reasons[0] if reasons else None, leaving, joining)


def _usable_racks(snapshot: Snapshot, pool: BrokerPool, node_racks: Sequence[str]) -> list[str]:
    usable = list(pool.racks) if pool.racks else list(node_racks)
    return usable if snapshot.nodes is None else [rack for rack in usable if rack in node_racks]


def _removed_of(snapshot: Snapshot, pool: BrokerPool) -> dict[int, str]:
    """The removed brokers whose claims a new broker of this pool may take, with their racks.

    All claims have to be there: without one of them the broker would not start.
    """
    if snapshot.cluster.brokers.claim_deletion_policy == "Delete":
        return {}
    removed = {number: rack for number, rack in snapshot.removed_ids().items() if _has_all_claims(snapshot, number)}
    if not snapshot.cluster.brokers.has_pools:
        return removed
    had = {label(claim, BROKER_ID) for claim in snapshot.all(CLAIM) if label(claim, POOL) == pool.name}
    return {
        number: rack
        for number, rack in removed.items()
        if str(number) in had and (pool.id_range is None or number in pool.id_range)
    }


def _has_all_claims(snapshot: Snapshot, number: int) -> bool:
    claims = list(claims_of(snapshot, number))
    recorded = {disk for claim in claims for disk in (annotation(claim, DISKS) or "").split(",") if disk}
    return recorded <= {label(claim, DISK) for claim in claims} and not any(is_terminating(claim) for claim in claims)


def _has_run(snapshot: Snapshot) -> bool:
    return any(annotation(claim, CLUSTER_ID) for claim in snapshot.all(CLAIM))


def _racks_condition(snapshot: Snapshot, racks: Mapping[int, str], node_racks: Sequence[str]) -> Condition:
    """Ordered checks; the first that finds something is the reason."""
    brokers = snapshot.cluster.brokers
    if wrong := snapshot.problems_below("spec.brokers.racks", "spec.brokers.rackKey"):
        return invalid_spec(RACKS_READY, wrong)
    if snapshot.nodes is None and not all(pool.racks for pool in brokers.pools):
        message = "spec.brokers.racks: name the racks; the operator has no right to read nodes"
        return condition_false(RACKS_READY, "NodesNotReadable", message)
    if snapshot.nodes is not None:
        if not node_racks and not all(pool.racks for pool in brokers.pools):
            return condition_false(
                RACKS_READY, "NoRack", f"spec.brokers.rackKey: no node carries the label {brokers.rack_key}"
            )
        for pool in brokers.pools:
            for index, rack in enumerate(pool.racks):
                if rack not in node_racks:
                    message = f"{pool.path_of('racks')}[{index}]: no node has {brokers.rack_key}={rack}"
                    return condition_false(RACKS_READY, "NoNodeInRack", message)
        nodes = {dig(node, "metadata", "name"): node for node in snapshot.nodes}
        for broker_id, rack in racks.items():
            pod = snapshot.get(POD, pod_of(broker_name(snapshot.cluster.name, broker_id)))
            node = nodes.get(dig(pod, "spec", "nodeName"))
            if node is None:
                continue
            actual = label(node, brokers.rack_key)
            if actual != rack:
                message = f"broker {broker_id} belongs to rack {rack} and runs in {actual or 'none'}"
                return condition_false(RACKS_READY, "RackMismatch", message)
    return condition_true(RACKS_READY)


def _spread_condition(snapshot: Snapshot, racks: Mapping[int, str]) -> Condition:
    """SpreadOverNodes: whether every broker has a node of its own. Ready does not need it."""
    by_node: dict[str, list[int]] = {}
    for broker_id in racks:
        pod = snapshot.get(POD, pod_of(broker_name(snapshot.cluster.name, broker_id)))
        if (name := dig(pod, "spec", "nodeName")) is not None:
            by_node.setdefault(str(name), []).append(broker_id)
    shared = [
        f"brokers {', '.join(map(str, together))} share node {name}"
        for name, together in sorted(by_node.items())
        if len(together) > 1
    ]
    return (
        condition_false(SPREAD_OVER_NODES, "SharedNode", "; ".join(shared[:5]))
        if shared
        else condition_true(SPREAD_OVER_NODES)
    )
