"""An ensemble without a quorum: the servers that do not serve get their templates at once, outside of a roll.

A roll waits until each member is ready before it restarts the next, and a ZooKeeper server is ready only with a quorum.
So without a quorum a roll would never go on: after a correction of an image that does not exist, or when somebody has
scaled the ensemble to zero. There is nothing to protect meanwhile: without a quorum no client is served, and a restart
loses no data. The servers that do not serve are read once more before a pod is deleted: after a restart of all of them
the watch may show them as not ready for some time.

A server that does not run gets its template in any case. A server that runs and only lacks the quorum gets it once
another server has started with that template: a template that does not start must not reach servers that a short
network failure has separated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ottla_operator.api import names
from ottla_operator.api.objects import POD, STATEFUL_SET, Obj, dig, has_condition, is_terminating, name_of, uid_of
from ottla_operator.facts.difference import template_is_as_declared
from ottla_operator.facts.revisions import has_current_revision, revisions_known
from ottla_operator.facts.snapshot import Deletion, Snapshot
from ottla_operator.objects.pods import container_status


@dataclass(frozen=True, slots=True)
class QuorumRecovery:
    """`apply`: the servers whose StatefulSet is written; `delete`: one pod of an earlier template."""

    apply: tuple[int, ...] = ()
    delete: Deletion | None = None


def decide_quorum_recovery(
    snapshot: Snapshot, stateful_sets: Mapping[int, Obj], members: Collection[int], kept: frozenset[int]
) -> QuorumRecovery:
    """The templates to write and a pod to delete; nothing while there is a quorum.

    Args:
        stateful_sets: the StatefulSet of every server as it should be.
        members: the servers that may have a vote.
        kept: the servers whose pod must not be deleted.
    """
    serving, outdated, has_started = 0, [], False
    unready: list[str] = []
    pods: dict[int, Obj] = {}
    for server, stateful_set in stateful_sets.items():
        live = snapshot.own(STATEFUL_SET, name_of(stateful_set))
        pod = snapshot.get(POD, names.pod_of(name_of(stateful_set)))
        if pod is not None:
            pods[server] = pod
        if pod is not None and has_condition(pod, "Ready") and not is_terminating(pod):
            serving += server in members
            continue
        unready.append(names.pod_of(name_of(stateful_set)))
        if live is not None:
            is_current = template_is_as_declared(snapshot, live, stateful_set)
            if is_current and (pod is None or (revisions_known(live) and has_current_revision(live, pod))):
                has_started = has_started or (pod is not None and _has_started(pod))
            else:
                outdated.append(server)
    if serving > len(members) // 2:
        return QuorumRecovery()
    next_ones = [server for server in outdated if has_started or not _has_started(pods.get(server))]
    apply = tuple(server for server in next_ones if not _is_current(snapshot, stateful_sets[server]))
    for server in next_ones:
        pod = pods.get(server)
        live = snapshot.own(STATEFUL_SET, name_of(stateful_sets[server]))
        if pod is None or live is None or server in apply or server in kept or is_terminating(pod):
            continue
        if revisions_known(live):
            reason = f"ensemble without a quorum: server {server}"
            return QuorumRecovery(apply, Deletion(POD, name_of(pod), uid_of(pod), reason, while_unready=tuple(unready)))
    return QuorumRecovery(apply)


def _is_current(snapshot: Snapshot, stateful_set: Obj) -> bool:
    live = snapshot.own(STATEFUL_SET, name_of(stateful_set))
    return live is not None and template_is_as_declared(snapshot, live, stateful_set)


def _has_started(pod: Obj | None) -> bool:
    """Whether the server has passed its startup probe: the image exists and the process runs."""
    return dig(container_status(pod, names.ZOOKEEPER), "started") is True
