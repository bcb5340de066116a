"""The condition NodesSchedulable: which brokers and servers run on nodes that are cordoned, and what a drain waits for.

Kubernetes does not show a refused eviction, so a cordoned node (spec.unschedulable) is the sign of a drain. The
disruption budgets let one broker after the other be evicted (`budgets`); here it is said which one waits, and for what.
A volume that is on one node binds its pod to that node: an evicted pod waits there until the node is uncordoned.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla_operator.api import names
from ottla_operator.api.condition_reasons import NODES_SCHEDULABLE
from ottla_operator.api.conditions import Condition, condition_false, condition_true
from ottla_operator.api.objects import CLAIM, Obj, dig, label, name_of
from ottla_operator.concerns.brokers.budgets import eviction_blocker
from ottla_operator.facts.lost_nodes import is_on_one_node
from ottla_operator.facts.snapshot import Snapshot

SHOWN = 5


def decide_node_drains(snapshot: Snapshot, broker_ids: Sequence[int]) -> Condition:
    """What each broker and server on a cordoned node waits for."""
    cordoned_pods = pods_on_cordoned_nodes(snapshot)
    if not cordoned_pods:
        return condition_true(NODES_SCHEDULABLE)
    blocker = eviction_blocker(snapshot, list(broker_ids))
    texts, bound, blocked = [], False, False
    for key, number, node in cordoned_pods:
        who = f"{'broker' if key == names.BROKER_ID else 'server'} {number} on cordoned node {node}"
        claims = [claim for claim in snapshot.all(CLAIM) if label(claim, key) == str(number)]
        local = [name_of(claim) for claim in claims if is_on_one_node(snapshot, claim)]
        if local:
            bound = True
            texts.append(
                f"{who} has volumes there ({', '.join(local)}): evicted, it waits until the node is uncordoned"
            )
        elif key == names.BROKER_ID and blocker:
            blocked = True
            texts.append(f"{who} is not evicted now: {blocker}")
        else:
            texts.append(f"{who} may be evicted")
    reason = "EvictionBlocked" if blocked else "VolumesOnNode" if bound else "Cordoned"
    return condition_false(NODES_SCHEDULABLE, reason, "; ".join(texts[:SHOWN]))


def pods_on_cordoned_nodes(snapshot: Snapshot) -> list[tuple[str, int, str]]:
    """(label of the id, id, node) of each broker and server whose pod is on a cordoned node."""
    cordoned = {name_of(node) for node in snapshot.nodes or () if dig(node, "spec", "unschedulable") is True}
    if not cordoned:
        return []
    found = []
    for key, numbers, name in (
        (names.BROKER_ID, list(snapshot.broker_racks), names.broker_name),
        (names.SERVER_ID, snapshot.zookeeper_ids(), names.zookeeper_name),
    ):
        for number in numbers:
            pod: Obj | None = snapshot.pod(names.pod_of(name(snapshot.cluster.name, number)))
            node = str(dig(pod, "spec", "nodeName") or "")
            if node in cordoned:
                found.append((key, number, node))
    return found


def volumes_on_cordoned_nodes(snapshot: Snapshot) -> list[str]:
    """The names of the PersistentVolumes of these pods; none while no node of the cluster is cordoned."""
    return [
        str(volume)
        for key, number, _ in pods_on_cordoned_nodes(snapshot)
        for claim in snapshot.all(CLAIM)
        if label(claim, key) == str(number) and (volume := dig(claim, "spec", "volumeName"))
    ]
