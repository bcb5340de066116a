"""What others have changed of a StatefulSet beside its template, which is put back at once, whatever a roll waits for.

The template has its turn in a roll. Everything else has none: with `replicas: 2` a second server or broker would run
on the volumes of the first, and with a RollingUpdate Kubernetes itself would restart pods. What is put back follows
from the StatefulSet itself: its labels are those of its selector, which nobody can change. So it is known also while it
is not known how a member should run. A StatefulSet that nobody owns is adopted in the same way, which restarts nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ottla_operator.api import names
from ottla_operator.api.objects import (
    CONFIG_MAP,
    STATEFUL_SET,
    Obj,
    dig,
    is_terminating,
    lasting_label,
    name_of,
    namespace_of,
    new,
    owned,
)
from ottla_operator.api.ownership import is_orphan_of, is_ours
from ottla_operator.facts.difference import is_as_declared
from ottla_operator.facts.snapshot import Snapshot
from ottla_operator.objects.pods import REVISION_HISTORY, UPDATE_STRATEGY

MEMBERS = {names.BROKER: names.BROKER_ID, names.ZOOKEEPER: names.SERVER_ID}
"""The label with the number of a member, by component."""


def decide_repairs(
    snapshot: Snapshot, running: Collection[tuple[str, int]], written: Collection[str]
) -> tuple[Obj, ...]:
    """The StatefulSets of members, without their templates, of which something has to be put back.

    Args:
        running: the members that have to run, by component and number. Others may be stopped, and never run twice.
        written: the names of StatefulSets that are written as a whole.
    """
    found: list[Obj] = []
    for live in snapshot.all(STATEFUL_SET):
        component = lasting_label(live, "app.kubernetes.io/component") or ""
        number = lasting_label(live, MEMBERS.get(component, "")) or ""
        if name_of(live) in written or is_terminating(live) or not is_ours(live, snapshot.resource):
            continue
        replicas = dig(live, "spec", "replicas")
        if replicas != 0 or (number.isdecimal() and (component, int(number)) in running):
            replicas = 1
        repaired = beside_template(live, snapshot.resource, replicas)
        if not is_as_declared(snapshot, live, repaired):
            found.append(repaired)
    return tuple(found)


def beside_template(live: Obj, resource: Obj, replicas: int) -> Obj:
    """What the operator declares of a StatefulSet beside its template, and beside what nobody can change."""
    labels = dig(live, "spec", "selector", "matchLabels") or {}
    spec: Obj = {"replicas": replicas, "updateStrategy": UPDATE_STRATEGY, "revisionHistoryLimit": REVISION_HISTORY}
    if dig(live, "spec", "ordinals") is not None:
        spec["ordinals"] = {"start": 0}  # its pod would have another name
    return owned(new(STATEFUL_SET, namespace_of(live), name_of(live), labels, spec=spec), resource)


def adopted_config_maps(snapshot: Snapshot, written: Collection[str]) -> Iterator[Obj]:
    """The ConfigMaps that nobody owns and nothing declares any more, as they are: pods may still run with them.

    Args:
        written: the names of those that are written anyway.
    """
    for live in snapshot.all(CONFIG_MAP):
        if name_of(live) not in written and is_orphan_of(live, snapshot.resource) and not is_terminating(live):
            labels = dig(live, "metadata", "labels")
            kept = new(CONFIG_MAP, namespace_of(live), name_of(live), labels, data=live.get("data") or {})
            yield owned(kept, snapshot.resource)


def foreign_members(snapshot: Snapshot, member_names: Collection[str]) -> Iterator[Obj]:
    """The StatefulSets with the names of members that somebody else owns."""
    for live in snapshot.all(STATEFUL_SET):
        if name_of(live) in member_names and not is_ours(live, snapshot.resource):
            yield live
