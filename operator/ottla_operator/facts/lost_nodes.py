"""Which volumes are out of reach for good because the only node that has them is gone.

A volume that is on one node (a local volume, or one of a CSI driver with a topology key of its own for nodes) names
that node in its nodeAffinity. It is out of reach when no Node object fits, or when each that fits has the taint
node.kubernetes.io/out-of-service, with which a person declares a node shut down. A node that is unreachable, cordoned
or not ready may come back with its disks, and proves nothing. Volumes that only name a zone or region are not on one
node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla_operator.api import names
from ottla_operator.api.objects import CLAIM, Obj, dig, has_condition, is_terminating, label, name_of, uid_of
from ottla_operator.facts.snapshot import Snapshot

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
NODE_GONE_AFTER_S = 60.0
"""How long a node has to be gone without a break: a kubelet that registers again is back by then."""
AREAS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
"""Keys that many nodes share."""


def why_out_of_reach(snapshot: Snapshot, claim: Obj) -> str:
    """Why the volume of a claim cannot be reached again; "" when it may be, or when that is not known."""
    volume = snapshot.volumes.get(str(dig(claim, "spec", "volumeName") or ""))
    terms = dig(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms") or []
    if snapshot.nodes is None or not terms or not all(_names_a_node(term) for term in terms):
        return ""
    fitting = [node for node in snapshot.nodes if any(fits(term, node) for term in terms)]
    wanted = ", ".join(sorted({value for term in terms for value in _values(term)}))
    if not fitting:
        if any(name_of(node) in _values(term) for term in terms for node in snapshot.nodes):
            return ""  # the node is there, and its labels have changed
        return f"its volume is on node {wanted}, which does not exist"
    if all(is_out_of_service(node) for node in fitting):
        return f"its volume is on node {wanted}, which is out of service ({OUT_OF_SERVICE})"
    return ""


def is_on_one_node(snapshot: Snapshot, claim: Obj) -> bool:
    """Whether the volume of a claim is on a node of its own; False while the volume is not known."""
    volume = snapshot.volumes.get(str(dig(claim, "spec", "volumeName") or ""))
    terms = dig(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms") or []
    return bool(terms) and all(_names_a_node(term) for term in terms)


def is_out_of_service(node: Obj) -> bool:
    return any(taint.get("key") == OUT_OF_SERVICE for taint in dig(node, "spec", "taints") or [])


def is_gone_for_long(snapshot: Snapshot, claims: Iterable[Obj]) -> bool:
    """Whether the volume of each claim has been out of reach for so long that its node does not come back by itself.

    As far as this process has seen it. So it is asked last, when nothing else keeps the claims: a status that says what
    else does would be another one whenever the operator starts.
    """
    return all(snapshot.gone_for_s.get(uid_of(claim), 0.0) >= NODE_GONE_AFTER_S for claim in claims)


def pods_without_node(snapshot: Snapshot, pods: Iterable[tuple[int, Obj | None]]) -> list[int]:
    """The members whose pod is not ready and has no node that could run it: their volumes are looked at."""
    nodes = {name_of(node): node for node in snapshot.nodes or ()}
    found = []
    for number, pod in pods:
        if pod is None or is_terminating(pod) or not has_condition(pod, "Ready"):
            node = nodes.get(str(dig(pod, "spec", "nodeName") or ""))
            if node is None or is_out_of_service(node):
                found.append(number)
    return found


def volumes_to_read(snapshot: Snapshot) -> list[str]:
    """The names of the PersistentVolumes of the brokers and servers whose pod has no node; none at rest."""
    if snapshot.nodes is None:
        return []
    found = []
    for key, numbers, name in (
        (names.BROKER_ID, list(snapshot.broker_racks), names.broker_name),
        (names.SERVER_ID, snapshot.zookeeper_ids(), names.zookeeper_name),
    ):
        pods = [(number, snapshot.pod(names.pod_of(name(snapshot.cluster.name, number)))) for number in numbers]
        for number in pods_without_node(snapshot, pods):
            found += [
                str(volume)
                for claim in snapshot.all(CLAIM)
                if label(claim, key) == str(number) and (volume := dig(claim, "spec", "volumeName"))
            ]
    return found


def _names_a_node(term: Obj) -> bool:
    keys = {str(item.get("key")) for item in term.get("matchExpressions") or []}
    return bool(term.get("matchFields")) or bool(keys - set(AREAS))


def _values(term: Obj) -> list[str]:
    """The names of nodes in a term, as far as it has any."""
    items = [*(term.get("matchFields") or []), *(term.get("matchExpressions") or [])]
    return [str(value) for item in items if item.get("key") not in AREAS for value in item.get("values") or []]


def fits(term: Obj, node: Obj) -> bool:
    labels = dig(node, "metadata", "labels") or {}
    fields = {"metadata.name": name_of(node)}
    return all(_holds(item, labels) for item in term.get("matchExpressions") or []) and all(
        _holds(item, fields) for item in term.get("matchFields") or []
    )


def _holds(item: Obj, values: dict[str, Any]) -> bool:
    """One requirement of a node selector; one that compares numbers counts as fulfilled, which proves nothing."""
    value, wanted = values.get(str(item.get("key"))), item.get("values") or []
    operator = item.get("operator")
    if operator == "In":
        return value in wanted
    if operator == "NotIn":
        return value not in wanted
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    return True
