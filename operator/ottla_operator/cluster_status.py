"""The status of a KafkaCluster: its brokers, the roll, the conditions and Ready, which sums them up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ottla_operator.api import names
from ottla_operator.api.condition_reasons import (
    BROKERS_READY,
    CONFIG_VALID,
    DISKS_READY,
    RACKS_READY,
    READY,
    SERVICES_READY,
    ZOOKEEPER_READY,
    reason_of_ready,
)
from ottla_operator.api.conditions import Condition, condition_false, condition_true, invalid_spec, merged
from ottla_operator.api.objects import Obj, dig, has_condition
from ottla_operator.concerns.brokers.brokers import POD_FIELDS, BrokersDecision
from ottla_operator.concerns.brokers.services import SERVICE_FIELDS, bootstrap_address, selector_text
from ottla_operator.concerns.config.config import CONFIG_FIELDS
from ottla_operator.concerns.config.dynamic_config import shown_dynamic_keys
from ottla_operator.concerns.disks.disk_status import disk_entries, last_copies_entries
from ottla_operator.concerns.disks.disks import DISK_FIELDS, DisksDecision
from ottla_operator.concerns.fleet.identity import Identities
from ottla_operator.concerns.roll.roll_status import roll_entry
from ottla_operator.concerns.roll.state import Roll
from ottla_operator.condition_table import MENDED_BY_A_PERSON, NOT_NEEDED_FOR_READY
from ottla_operator.facts.annotation_values import wrong_annotations
from ottla_operator.facts.snapshot import POOL_FIELDS, Snapshot
from ottla_operator.objects.kstatus import decide_kstatus

_FIELDS_OF = {
    ZOOKEEPER_READY: ("spec.zookeeper",),
    RACKS_READY: ("spec.brokers.racks", "spec.brokers.rackKey"),
    BROKERS_READY: (*POOL_FIELDS, *POD_FIELDS, "metadata"),
    DISKS_READY: DISK_FIELDS,
    SERVICES_READY: SERVICE_FIELDS,
    CONFIG_VALID: CONFIG_FIELDS,
}
"""The fields of spec whose problems each condition reports; Ready reports the problems of all others."""


def cluster_status(
    snapshot: Snapshot,
    conditions: Sequence[Condition],
    identities: Identities,
    disks: DisksDecision,
    brokers: BrokersDecision,
    roll: Roll | None,
    contested: Sequence[str],
) -> Obj:
    """The whole new status.

    Args:
        conditions: at least one of each type but Ready, in the order in which Ready looks at them.
        contested: the fields that others change back at each write, object by object.
    """
    found = _one_of_each(conditions)
    existing = 0
    generation = int(dig(snapshot.resource, "metadata", "generation") or 0)
    shown = []
    for broker_id, rack in identities.racks.items():
        pod = snapshot.pod(names.pod_of(names.broker_name(snapshot.cluster.name, broker_id)))
        is_ready = pod is not None and has_condition(pod, "Ready")
        existing += pod is not None or broker_id in snapshot.rolling(names.BROKER)
        entry: Obj = {"id": broker_id, "pool": snapshot.pool_names[broker_id], "rack": rack, "ready": is_ready}
        if node := dig(pod, "spec", "nodeName"):
            entry["node"] = node
        if reasons := brokers.pending.get(broker_id):
            entry["pending"] = list(reasons)
        if keys := shown_dynamic_keys(snapshot, broker_id):
            entry["dynamicConfig"] = keys
        shown.append({**entry, "disks": disk_entries(disks, broker_id)})
    found.append(_with_wrong_annotations(snapshot, _ready(snapshot, found, contested)))
    found += decide_kstatus(found, is_paused=snapshot.cluster.paused)
    status: Obj = {
        "observedGeneration": generation,
        "bootstrap": bootstrap_address(snapshot),
        "replicas": existing,
        "readyReplicas": sum(1 for entry in shown if entry["ready"]),
        "selector": selector_text(snapshot.cluster.name),
        "brokers": shown,
        "conditions": merged(snapshot.status("conditions"), found, generation, snapshot.now),
    }
    cluster_id = snapshot.kafka.cluster_id if snapshot.kafka is not None else snapshot.status("clusterId")
    if cluster_id:
        status["clusterId"] = cluster_id
    if shown_roll := roll_entry(snapshot, roll):
        status["roll"] = shown_roll
    if last_copies := last_copies_entries(disks):
        status["lastCopies"] = last_copies
    return status


def _one_of_each(conditions: Iterable[Condition]) -> list[Condition]:
    """One condition of each type, the first that is not True: a concern that raised has its InternalError there. What a
    person has to mend comes before what only takes its time."""
    kept: dict[str, Condition] = {}
    for condition in conditions:
        before = kept.get(condition.type)
        if before is None or before.status == "True" or (before.status == "False" and _is_first(condition, before)):
            kept[condition.type] = condition
    return list(kept.values())


def _is_first(condition: Condition, other: Condition) -> bool:
    """Whether a person has to mend this one, and not the other."""
    return (
        condition.status != "True" and condition.reason in MENDED_BY_A_PERSON and other.reason not in MENDED_BY_A_PERSON
    )


def _with_wrong_annotations(snapshot: Snapshot, ready: Condition) -> Condition:
    wrong = wrong_annotations(snapshot.resource)
    return replace(ready, message="; ".join([*wrong, *filter(None, [ready.message])])) if wrong else ready


def _ready(snapshot: Snapshot, conditions: list[Condition], contested: Sequence[str]) -> Condition:
    """Ready: a condition that is not True and is needed gives its reason, the first that a person has to mend, else the
    first of all."""
    if snapshot.cluster.paused:
        return condition_false(READY, "Paused", "spec.paused: nothing is changed")
    claimed = {problem for kind in _FIELDS_OF.values() for problem in snapshot.problems_below(*kind)}
    if others := [problem for problem in snapshot.problems if problem not in claimed]:
        return invalid_spec(READY, others)
    open_ = [one for one in conditions if one.status != "True" and one.type not in NOT_NEEDED_FOR_READY]
    for condition in sorted(open_, key=lambda one: one.reason not in MENDED_BY_A_PERSON):
        return condition_false(READY, reason_of_ready(condition.type, condition.reason), condition.message)
    if contested:
        message = f"something else changes it at each write; tried again every ten minutes: {'; '.join(contested)}"
        return condition_false(READY, "ChangedByOthers", message)
    return condition_true(READY)
