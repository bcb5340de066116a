"""A ZooKeeper server whose node is gone with its volumes: its claims are deleted, and it is replaced.

`ensemble_volumes` replaces a server whose claims do not exist, one at a time, while a quorum that holds data serves. A
claim whose volume is on a node that is gone still exists, so it has to go first. That happens only with
spec.zookeeper.disk.onFailure Replace, after the node has been gone for a minute, while every other server serves with
the claims with which it is recorded. The claim is marked (annotation replaced-because) before it is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla_operator.api import names
from ottla_operator.api.condition_reasons import ZOOKEEPER_READY
from ottla_operator.api.conditions import Condition, condition_false
from ottla_operator.api.objects import CLAIM, Obj, annotation, is_terminating, name_of, uid_of
from ottla_operator.concerns.ensemble.ensemble_volumes import claim_name, holds_and_serves
from ottla_operator.concerns.ensemble.observation import EnsembleObservation
from ottla_operator.facts.broker_claims import marked_claim
from ottla_operator.facts.lost_nodes import is_gone_for_long, pods_without_node, why_out_of_reach
from ottla_operator.facts.snapshot import ConcernDecision, Deletion, Snapshot

FIELD = "spec.zookeeper.disk.onFailure"


@dataclass(frozen=True, slots=True)
class LostServer:
    """A server whose pod has no node, and its claims whose volumes are out of reach, each with why."""

    server: int
    claims: tuple[tuple[Obj, str], ...]

    @property
    def text(self) -> str:
        return "; ".join(f"claim {name_of(claim)} of server {self.server}: {why}" for claim, why in self.claims)


def servers_without_node(snapshot: Snapshot, members: Sequence[int]) -> list[int]:
    """The servers whose volumes may be lost: the others have to be asked whether they serve."""
    if snapshot.nodes is None or snapshot.cluster.zookeeper.disk.on_failure != "Replace":
        return []
    pods = [
        (server, snapshot.pod(names.pod_of(names.zookeeper_name(snapshot.cluster.name, server)))) for server in members
    ]
    return pods_without_node(snapshot, pods)


def decide_lost_servers(
    snapshot: Snapshot, observed: EnsembleObservation, members: Sequence[int], roles: Sequence[str]
) -> ConcernDecision:
    """The claim to mark or delete next, and ZooKeeperReady False NodeGone; nothing when no server has lost its node."""
    lost = _lost_servers(snapshot, members, roles)
    if not lost:
        return ConcernDecision()
    first = lost[0]
    if snapshot.cluster.zookeeper.disk.on_failure != "Replace":
        return ConcernDecision((_gone(f"{first.text}; {FIELD} is Keep"),))
    others = [server for server in members if server != first.server]
    if silent := [server for server in others if not holds_and_serves(snapshot, observed, server, roles)]:
        text = f"{first.text}; not replaced yet: server {', '.join(map(str, silent))} does not serve with its data"
        return ConcernDecision((_gone(text),), requeue_after_s=5.0)
    if len(members) < 3:
        return ConcernDecision((_gone(f"{first.text}; not replaced: no other server has its data"),))
    if not is_gone_for_long(snapshot, [claim for claim, _ in first.claims]):  # last
        return ConcernDecision((_gone(first.text),), requeue_after_s=5.0)
    claim, why = first.claims[0]
    text = f"{first.text}; it gets new volumes and copies the data of the others"
    if not annotation(claim, names.REPLACED_BECAUSE):
        marked = marked_claim(claim, {names.REPLACED_BECAUSE: f"NodeGone: {why}"})
        return ConcernDecision((_gone(text),), (marked,), requeue_after_s=1.0)
    deletion = Deletion(CLAIM, name_of(claim), uid_of(claim), f"server {first.server} is replaced: {why}")
    return ConcernDecision((_gone(text),), delete=deletion, requeue_after_s=1.0)


def _lost_servers(snapshot: Snapshot, members: Sequence[int], roles: Sequence[str]) -> list[LostServer]:
    found = []
    pods = [
        (server, snapshot.pod(names.pod_of(names.zookeeper_name(snapshot.cluster.name, server)))) for server in members
    ]
    for server in pods_without_node(snapshot, pods):
        claims = [snapshot.get(CLAIM, claim_name(snapshot, server, role)) for role in roles]
        gone = [
            (claim, why)
            for claim in claims
            if claim is not None and not is_terminating(claim) and (why := why_out_of_reach(snapshot, claim))
        ]
        if gone:
            found.append(LostServer(server, tuple(gone)))
    return found


def _gone(message: str) -> Condition:
    return condition_false(ZOOKEEPER_READY, "NodeGone", message)
