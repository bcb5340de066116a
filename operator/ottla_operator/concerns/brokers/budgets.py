"""Which broker pods may be evicted: the disruption budgets follow the in-sync sets, not readiness.

A broker is ready before it has caught up, so a budget that counts ready pods lets the next node be drained while the
broker that has just returned is far behind, and partitions fall below min.insync.replicas. There are two budgets, and
each pod is counted by exactly one (the eviction API refuses pods with two):

    orders-brokers         pods with the label in-sync=true; minAvailable N-1 while the fleet is whole, else N
    orders-brokers-behind  all other broker pods; minAvailable N, so none of them is evicted, but a pod whose broker
                           cannot start: nobody waits for it, and its node can be drained

A pod whose container has failed and does not run serves nothing, and in a fleet of one it would keep its node from
being drained for good. So while no pod of a budget that is not ready has a container that runs, these may be evicted
(unhealthyPodEvictionPolicy AlwaysAllow). One that runs may recover its logs or serve while its probe fails: it keeps
its protection, and so do all others of its budget that are not ready.

The operator sets in-sync=true on a pod once it has seen that pod ready and its broker in every ISR it belongs to. The
label is in no template, so the pod that replaces an evicted one does not have it. *Whole* means: every pod is ready and
its broker registered, each partition has all its replicas in sync, and brokers are not being rolled. When that is not
known the strict number applies: no broker answers, a pod is missing, a new fleet. At rest nothing is written.

The interleavings of an eviction (E), the operator's read of Kafka's metadata (L) and its write (W):

- Pod 1 is evicted, returns and is ready but behind; E of pod 2, before any L, or with the operator away for hours (it
  may have run on the drained node): pod 1 lacks the label, N-1 pods count, N-1 are needed: refused. E of pod 1: the
  second budget refuses.
- L sees the fleet whole, E takes pod 1, W relaxes: pod 1 is not ready and its successor has no label: none is evicted.
- L sees a partition that is not whole, W is strict, E in between: E is as safe as it was before L. After W the API
  server refuses every eviction until the disruption controller has seen that generation of the budget.
- The roller and E: status gets the roll, then the budget is strict, then the first pod is deleted, each a write that
  the next waits for. An E before that write is seen by the uncached read of the other pods before the deletion.
- A container restarts in its pod, which keeps the label: the operator sees the pod unready or its replicas out of sync
  and is strict until the ISRs are whole. Without an operator the budget stays as it was.
- A container that crashes runs again before the operator has seen it: an E in between takes a broker that recovers. It
  recovers elsewhere from the same volumes, as after the crash; nothing that another one needs stops.
- A follower falls behind without a restart: strict from the next look on (`facts.intervals.REQUEUE_AFTER_S`).

A paused cluster keeps its budgets as they are: a pod replaced meanwhile has no label, so no other pod is evicted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ottla_operator.api import names
from ottla_operator.api.objects import (
    DISRUPTION_BUDGET,
    POD,
    Obj,
    has_condition,
    is_terminating,
    label,
    new,
    owned,
    uid_of,
)
from ottla_operator.facts.progress import is_progressing, unready_are_down
from ottla_operator.facts.snapshot import ConcernDecision, Snapshot

IN_SYNC = "true"
NOT_WHOLE_REQUEUE_S = 5.0
"""Requeue after this time while the fleet is not whole, so that a waiting drain goes on."""


def decide_budgets(snapshot: Snapshot, broker_ids: Iterable[int]) -> ConcernDecision:
    """Both budgets, and the label of each pod that has been seen in sync."""
    ids = list(broker_ids)
    if not ids:
        return ConcernDecision()
    cluster = snapshot.cluster.name
    blocker = eviction_blocker(snapshot, ids)
    needed = len(ids) if blocker else len(ids) - 1
    pods = [_pod(snapshot, number) for number in ids]
    in_sync = [pod for pod in pods if pod is not None and label(pod, names.IN_SYNC) == IN_SYNC]
    behind = [pod for pod in pods if pod is not None and label(pod, names.IN_SYNC) != IN_SYNC]
    can_go = unready_are_down(behind) or _cannot_start(snapshot, ids)
    selected = {"matchLabels": {**_brokers(cluster), names.IN_SYNC: IN_SYNC}}
    others = {
        "matchLabels": _brokers(cluster),
        "matchExpressions": [{"key": names.IN_SYNC, "operator": "NotIn", "values": [IN_SYNC]}],
    }
    desired = [
        _budget(snapshot, names.brokers_service(cluster), selected, needed, evicts_unready=unready_are_down(in_sync)),
        _budget(snapshot, names.behind_budget(cluster), others, len(ids), evicts_unready=can_go),
    ]
    desired += [_labelled(pod) for pod in _caught_up(snapshot, ids)]
    return ConcernDecision(desired=tuple(desired), requeue_after_s=NOT_WHOLE_REQUEUE_S if blocker else None)


def eviction_blocker(snapshot: Snapshot, broker_ids: Collection[int]) -> str:
    """Why no broker pod may be evicted now; "" when one may. Ordered checks."""
    if snapshot.status("roll", "role") == names.BROKER and snapshot.is_rolling():
        return "brokers are being rolled"
    for broker_id in broker_ids:
        if not _is_ready(_pod(snapshot, broker_id)):
            return f"broker {broker_id} is not ready"
    if snapshot.kafka is None:
        return "no broker answers which replicas are in sync"
    for broker_id in broker_ids:
        if broker_id not in snapshot.kafka.brokers:
            return f"broker {broker_id} is not registered"
    for partition in snapshot.kafka.partitions:
        if missing := [str(replica) for replica in partition.replicas if replica not in partition.in_sync]:
            return f"{partition}: replica {', '.join(missing)} is not in sync"
    return ""


def _cannot_start(snapshot: Snapshot, broker_ids: Iterable[int]) -> bool:
    """Whether pods without the label are not ready, and all of these fail to start. One that recovers its logs is
    waited for, and one whose container ended before may be the last in sync and recover now."""
    unready = [
        (broker_id, pod)
        for broker_id in broker_ids
        if (pod := _pod(snapshot, broker_id)) is not None and label(pod, names.IN_SYNC) != IN_SYNC
        if not _is_ready(pod)
    ]
    if snapshot.kafka is None or not unready:
        return False
    last = {part.in_sync[0] for part in snapshot.kafka.partitions if len(part.in_sync) == 1}
    return all(broker_id not in last and not is_progressing(pod) for broker_id, pod in unready)


def _pod(snapshot: Snapshot, broker_id: int) -> Obj | None:
    return snapshot.get(POD, names.pod_of(names.broker_name(snapshot.cluster.name, broker_id)))


def _is_ready(pod: Obj | None) -> bool:
    return pod is not None and has_condition(pod, "Ready") and not is_terminating(pod)


def _caught_up(snapshot: Snapshot, broker_ids: Iterable[int]) -> list[Obj]:
    """Pods without the label whose brokers are registered and in every ISR they belong to."""
    if snapshot.kafka is None:
        return []
    behind = {replica for part in snapshot.kafka.partitions for replica in part.replicas if replica not in part.in_sync}
    found = []
    for broker_id in broker_ids:
        pod = _pod(snapshot, broker_id)
        if pod is None or label(pod, names.IN_SYNC) == IN_SYNC or broker_id in behind:
            continue
        report = snapshot.reports.get(broker_id)
        is_this_pod = report is not None and report.pod_uid == uid_of(pod)
        if _is_ready(pod) and is_this_pod and broker_id in snapshot.kafka.brokers:
            found.append(pod)
    return found


def _labelled(pod: Obj) -> Obj:
    """The object to apply onto the pod: its label and nothing else."""
    metadata = pod["metadata"]
    return new(POD, str(metadata["namespace"]), str(metadata["name"]), {names.IN_SYNC: IN_SYNC})


def _brokers(cluster: str) -> dict[str, str]:
    return {names.CLUSTER: cluster, "app.kubernetes.io/component": names.BROKER}


def _budget(snapshot: Snapshot, name: str, selector: Obj, needed: int, *, evicts_unready: bool = False) -> Obj:
    """minAvailable as an absolute number: maxUnavailable does not count pods that are missing."""
    cluster = snapshot.cluster
    policy = "AlwaysAllow" if evicts_unready else "IfHealthyBudget"
    spec = {"minAvailable": needed, "selector": selector, "unhealthyPodEvictionPolicy": policy}
    labels = names.labels(cluster.name, names.BROKER)
    return owned(new(DISRUPTION_BUDGET, cluster.namespace, name, labels, spec=spec), snapshot.resource)
