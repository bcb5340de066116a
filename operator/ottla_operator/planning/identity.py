"""The ids and racks of brokers, and the conditions RacksReady and SpreadOverNodes.

Labels of claims and StatefulSets record ids and racks; status only shows them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla_operator.api.condition_reasons import BROKERS_READY, RACKS_READY, SPREAD_OVER_NODES
from ottla_operator.api.conditions import Condition, condition_false, condition_true, invalid_spec
from ottla_operator.api.names import CLUSTER_ID, broker_name, pod_of
from ottla_operator.api.objects import CLAIM, POD, annotation, dig, label
from ottla_operator.planning.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Identities:
    """Racks by broker id, in the order of the ids. `waiting`: why no broker was added, or None.

    `surplus`: the brokers to remove, the highest id first; they have their rack here until they are gone.
    """

    racks: Mapping[int, str]
    conditions: tuple[Condition, ...]
    waiting: Condition | None = None
    surplus: tuple[int, ...] = ()


def lowest_free(known: Iterable[int], taken: Collection[int], count: int) -> list[int]:
    """The `count` lowest ids that no broker has and no replica names.

    >>> lowest_free([0, 2], {1}, 2)
    [3, 4]
    """
    used = {*known, *taken}
    found: list[int] = []
    candidate = 0
    while len(found) < count:
        if candidate not in used:
            found.append(candidate)
        candidate += 1
    return found


def spread(current: Mapping[int, str], new: Sequence[int], racks: Sequence[str]) -> dict[int, str]:
    """A rack for each new broker: the one with the fewest brokers, in ties the first of the list.

    >>> spread({0: "a"}, [1, 2, 3], ["a", "b", "c"])
    {1: 'b', 2: 'c', 3: 'a'}
    """
    counts = {rack: sum(1 for given in current.values() if given == rack) for rack in racks}
    chosen: dict[int, str] = {}
    for broker_id in new:
        rack = min(racks, key=lambda rack: counts[rack])
        counts[rack] += 1
        chosen[broker_id] = rack
    return chosen


def racks_of_nodes(snapshot: Snapshot) -> list[str]:
    """The values of the rack label that nodes carry, sorted; none without the right to read nodes."""
    key = snapshot.cluster.brokers.rack_key
    return sorted({value for node in snapshot.nodes or () if (value := label(node, key))})


def adds_brokers(snapshot: Snapshot) -> bool:
    """Whether `decide_identities` may assign ids and racks, which never change afterwards."""
    return len(snapshot.broker_ids()) < snapshot.cluster.brokers.replicas


def decide_identities(snapshot: Snapshot) -> Identities:
    """The ids and racks of the brokers: existing brokers keep theirs, missing brokers get new ones.

    Ids of removed brokers whose claims still exist are assigned first, with their racks: the volumes are there. When
    there are too many brokers those with the highest ids are surplus (`broker_removal`).
    """
    brokers = snapshot.cluster.brokers
    known = snapshot.broker_ids()
    racks = {broker_id: rack for broker_id, rack in known.items() if rack is not None}
    found = racks_of_nodes(snapshot)
    racks_condition = _racks_condition(snapshot, racks, found)
    shown = (racks_condition, _spread_condition(snapshot, racks))
    if wrong := snapshot.problems_below("spec.brokers.replicas", "metadata"):
        return Identities(racks, shown, invalid_spec(BROKERS_READY, wrong))
    if len(known) > brokers.replicas:
        surplus = sorted(known, reverse=True)[: len(known) - brokers.replicas]
        return Identities(racks, shown, surplus=tuple(surplus))
    missing = brokers.replicas - len(known)
    if missing == 0:
        return Identities(racks, shown)
    usable = list(brokers.racks) if brokers.racks else found
    if snapshot.nodes is not None:
        usable = [rack for rack in usable if rack in found]
    if not usable or snapshot.problems_below("spec.brokers.racks", "spec.brokers.rackKey"):
        return Identities(racks, shown, condition_false(BROKERS_READY, "WaitingForRack", racks_condition.message))
    if snapshot.kafka is None and _has_run(snapshot):
        message = "new ids must not be those of replicas, and no broker answers which there are"
        return Identities(racks, shown, condition_false(BROKERS_READY, "WaitingForKafka", message))
    taken = {replica for part in snapshot.kafka.partitions for replica in part.replicas} if snapshot.kafka else set()
    kept = {number: rack for number, rack in snapshot.removed_ids().items() if number not in taken}
    again = list(kept)[:missing]
    racks.update((number, kept[number]) for number in again)
    new = lowest_free([*known, *snapshot.removed_ids()], taken, missing - len(again))
    racks.update(spread(racks, new, usable))
    return Identities(dict(sorted(racks.items())), shown)


def _has_run(snapshot: Snapshot) -> bool:
    return any(annotation(claim, CLUSTER_ID) for claim in snapshot.all(CLAIM))


def _racks_condition(snapshot: Snapshot, racks: Mapping[int, str], found: Sequence[str]) -> Condition:
    """Ordered checks; the first that finds something is the reason."""
    brokers = snapshot.cluster.brokers
    if wrong := snapshot.problems_below("spec.brokers.racks", "spec.brokers.rackKey"):
        return invalid_spec(RACKS_READY, wrong)
    if snapshot.nodes is None and not brokers.racks:
        message = "spec.brokers.racks: name the racks; the operator has no right to read nodes"
        return condition_false(RACKS_READY, "NodesNotReadable", message)
    if snapshot.nodes is not None:
        if not brokers.racks and not found:
            return condition_false(
                RACKS_READY, "NoRack", f"spec.brokers.rackKey: no node carries the label {brokers.rack_key}"
            )
        for index, rack in enumerate(brokers.racks):
            if rack not in found:
                message = f"spec.brokers.racks[{index}]: no node has {brokers.rack_key}={rack}"
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
