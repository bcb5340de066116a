"""Resizing the ensemble: which server joins or leaves next, and what of a server that has left is removed.

ZooKeeper's own incremental reconfiguration changes the members, one server at a time. Every step follows from spec, the
record of `ensemble_volumes`, the objects, and the configuration that the leader has committed (read with a sync, so
after every reconfiguration that was sent before):

    A server joins                                                      what is written
    1. every member serves                                              record: joining
    2. the record has it                                                its claims and StatefulSet, permission `add`
    3. it serves as a follower without a vote: it has all data          record: it has served; no permission any more
    4. the record has that                                              record: it is a member
    5. the record has that, every member serves                         reconfiguration: it joins
    6. the configuration has it                                         record: joining ends

    A server leaves
    1. every server that stays serves                                   record: leaving
    2. the record has it, and every server that stays serves            reconfiguration: it leaves
    3. the configuration does not have it                               record: it is no member
    4. the record has that                                              its StatefulSet is scaled to 0
    5. its pod is gone                                                  its claims get the label removed=true
    6. they have it                                                     its StatefulSet is deleted

So the record names every server that may have a vote, and an operator that crashes between two writes goes on from
what it reads. No step is taken while the configuration is not known: without a quorum nothing joins, leaves or is
removed. The next server waits until the one before has joined, or is gone: two servers that have left and run on would
elect each other by the configuration of before. Those that do not serve leave first, then those with the highest id,
the leader last.

A spec that changes meanwhile changes the direction at any step. Claims stay; a server that joins again gets them
without what they hold. With spec.zookeeper.claimDeletionPolicy Delete the claims of servers that have left are deleted,
one by one, while the ensemble has the members of spec and all of them serve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ottla_operator.api import names
from ottla_operator.api.condition_reasons import ZOOKEEPER_READY
from ottla_operator.api.conditions import Condition, condition_false
from ottla_operator.api.fleet import MembershipReport, Reconfiguration
from ottla_operator.api.objects import CLAIM, POD, STATEFUL_SET, is_terminating, label, name_of, uid_of
from ottla_operator.concerns.ensemble.ensemble_volumes import (
    EnsembleRecord,
    claim_name,
    has_served,
    is_serving,
    stored_record,
)
from ottla_operator.concerns.ensemble.observation import EnsembleObservation
from ottla_operator.concerns.ensemble.zookeeper_files import member
from ottla_operator.facts.snapshot import Deletion, Snapshot

SOON_S = 2.0


@dataclass(frozen=True, slots=True)
class ResizeDecision:
    """`record`: the record as it has to be written.

    `starts`: the server that is being added may have its objects. `stopped`: servers that have left and must not run;
    `released`: those of them whose claims get the label removed. `condition`: what is under way and what it waits for,
    None when the ensemble has the members of spec.
    """

    record: EnsembleRecord
    starts: int | None = None
    stopped: tuple[int, ...] = ()
    released: tuple[int, ...] = ()
    delete: Deletion | None = None
    reconfiguration: Reconfiguration | None = None
    condition: Condition | None = None
    requeue_after_s: float | None = None


def is_resizing(snapshot: Snapshot, record: EnsembleRecord, declared: Sequence[int]) -> bool:
    """Whether the ensemble has other members than `declared`, or something is left of a server that has left."""
    return bool(
        record.joining is not None
        or record.leaving is not None
        or set(record.members) != set(declared)
        or set(snapshot.zookeeper_ids()) - set(record.members)
    )


def decide_resize(
    snapshot: Snapshot,
    record: EnsembleRecord,
    declared: Sequence[int],
    roles: Sequence[str],
    observed: EnsembleObservation,
) -> ResizeDecision:
    """The next step towards the members `declared`.

    Args:
        record: as it is stored; the members of the ensemble.
        roles: the volumes of a server, "data" and perhaps "log".
    """
    if not is_resizing(snapshot, record, declared):
        return ResizeDecision(record)
    starts = record.joining if _is_stored(snapshot, record) else None
    if not record.served:
        return _waits(record, starts, declared, "the ensemble has not served yet")
    if observed.membership is None:
        silent = _silent(snapshot, observed, record.members)
        why = f"server {_list(silent)} does not serve" if silent else "its leader does not answer"
        return _waits(record, starts, declared, why)
    voters = tuple(sorted(observed.membership.servers))
    if foreign := _foreign(snapshot, observed.membership):
        return _waits(
            record, starts, declared, f"its configuration has servers that are not of this cluster: {foreign}"
        )
    if (changed := _recorded(record, voters, declared)) != record:
        return _goes_on(changed, starts if changed.joining == record.joining else None, declared, "")
    if leftover := sorted(set(snapshot.zookeeper_ids()) - {*record.servers, *voters}):
        return _remove(snapshot, record, leftover[-1], declared, roles)
    if snapshot.status("roll", "role") == names.ZOOKEEPER:
        return _waits(record, starts, declared, "a roll restarts the servers")
    joining = next((server for server in declared if server not in voters), None)
    if joining is not None:
        return _join(snapshot, record, voters, joining, starts, declared, roles, observed)
    return _leave(snapshot, record, voters, [server for server in voters if server not in declared], declared, observed)


def _recorded(record: EnsembleRecord, voters: Sequence[int], declared: Sequence[int]) -> EnsembleRecord:
    """The record with what the configuration shows: who has its vote, and who has lost it."""
    members = {server for server in record.members if server in voters or server in declared} | set(voters)
    joining = record.joining
    if joining is not None and (joining in voters or joining not in declared):
        joining = None
    leaving = record.leaving
    if leaving is not None and leaving in declared:
        joining = leaving if joining is None and leaving not in voters else joining
        leaving = None
    elif leaving not in voters:
        leaving = None
    served = {server: uids for server, uids in record.served.items() if server in members or server == joining}
    return replace(record, members=tuple(sorted(members)), joining=joining, leaving=leaving, served=served)


def _join(
    snapshot: Snapshot,
    record: EnsembleRecord,
    voters: Sequence[int],
    joining: int,
    starts: int | None,
    declared: Sequence[int],
    roles: Sequence[str],
    observed: EnsembleObservation,
) -> ResizeDecision:
    if silent := _silent(snapshot, observed, voters):
        return _waits(record, starts, declared, f"server {_list(silent)} does not serve")
    if record.joining is None:
        return _goes_on(replace(record, joining=joining), None, declared, f"server {joining} is added")
    joining = record.joining
    if not has_served(snapshot, record, joining, roles) or not is_serving(snapshot, observed, joining):
        return _waits(record, starts, declared, f"server {joining} starts and copies the data of the others")
    if joining not in record.members:
        members = tuple(sorted({*record.members, joining}))
        return _goes_on(replace(record, members=members), starts, declared, f"server {joining} joins")
    assert observed.membership is not None, "it has been checked"
    change = Reconfiguration(observed.membership.version, joining=member(snapshot.cluster, joining))
    return replace(
        _goes_on(record, starts, declared, _refusal(observed, f"server {joining} joins")), reconfiguration=change
    )


def _leave(
    snapshot: Snapshot,
    record: EnsembleRecord,
    voters: Sequence[int],
    surplus: Sequence[int],
    declared: Sequence[int],
    observed: EnsembleObservation,
) -> ResizeDecision:
    if not surplus:
        return _goes_on(record, None, declared, "")
    leader = observed.leading_server()
    leaving = min(surplus, key=lambda server: (is_serving(snapshot, observed, server), server == leader, -server))
    if silent := _silent(snapshot, observed, [server for server in voters if server != leaving]):
        return _waits(record, None, declared, f"server {_list(silent)} does not serve")
    if record.leaving != leaving:
        return _goes_on(replace(record, leaving=leaving), None, declared, f"server {leaving} leaves")
    assert observed.membership is not None, "it has been checked"
    change = Reconfiguration(observed.membership.version, leaving=leaving)
    return replace(
        _goes_on(record, None, declared, _refusal(observed, f"server {leaving} leaves")), reconfiguration=change
    )


def _remove(
    snapshot: Snapshot, record: EnsembleRecord, server: int, declared: Sequence[int], roles: Sequence[str]
) -> ResizeDecision:
    """The next step of removing a server that has left: neither the record nor the configuration has it."""
    name = names.zookeeper_name(snapshot.cluster.name, server)
    text = f"server {server} has left and is removed"
    live = snapshot.own(STATEFUL_SET, name)
    found = replace(_goes_on(record, None, declared, text), stopped=(server,))
    if snapshot.pod(names.pod_of(name)) is not None:
        return found
    claims = [snapshot.get(CLAIM, claim_name(snapshot, server, role)) for role in roles]
    if any(claim is not None and label(claim, names.REMOVED) != "true" for claim in claims):
        return replace(found, released=(server,))
    if live is None:
        return found
    return replace(
        found, delete=Deletion(STATEFUL_SET, name, uid_of(live), text, while_absent=(POD, names.pod_of(name)))
    )


def claim_to_delete(snapshot: Snapshot, record: EnsembleRecord, declared: Sequence[int]) -> Deletion | None:
    """A claim of a server that has left, when spec says so; None when there is none.

    Args:
        declared: the servers of spec. A server that is to join again keeps its claims.
    """
    if snapshot.cluster.zookeeper.claim_deletion_policy != "Delete" or is_resizing(snapshot, record, declared):
        return None
    for claim in snapshot.all(CLAIM):
        number = label(claim, names.SERVER_ID) or ""
        if label(claim, names.REMOVED) != "true" or not number.isdecimal() or is_terminating(claim):
            continue
        if int(number) in {*record.servers, *declared}:
            continue
        pod = names.pod_of(names.zookeeper_name(snapshot.cluster.name, int(number)))
        reason = f"spec.zookeeper.claimDeletionPolicy is Delete, and server {number} has left"
        return Deletion(CLAIM, name_of(claim), uid_of(claim), reason, while_absent=(POD, pod))
    return None


def _is_stored(snapshot: Snapshot, record: EnsembleRecord) -> bool:
    return (stored := stored_record(snapshot)) is not None and stored.joining == record.joining


def _silent(snapshot: Snapshot, observed: EnsembleObservation, servers: Sequence[int]) -> list[int]:
    return [server for server in servers if not is_serving(snapshot, observed, server)]


def _foreign(snapshot: Snapshot, membership: MembershipReport) -> str:
    """The servers of the configuration whose addresses are not those of this cluster's pods."""
    return ", ".join(
        f"server.{server}={text}"
        for server, text in sorted(membership.servers.items())
        if text.partition(":")[0] != member(snapshot.cluster, server).partition("=")[2].partition(":")[0]
    )


def _refusal(observed: EnsembleObservation, what: str) -> str:
    failure = observed.failure
    is_of_now = observed.membership is not None and failure.version == observed.membership.version
    return f"{what}; ZooKeeper has refused it: {failure.why}" if is_of_now and failure.why else what


def _list(servers: Sequence[int]) -> str:
    return ", ".join(map(str, servers))


def _waits(record: EnsembleRecord, starts: int | None, declared: Sequence[int], why: str) -> ResizeDecision:
    return _goes_on(record, starts, declared, f"waits: {why}")


def _goes_on(record: EnsembleRecord, starts: int | None, declared: Sequence[int], what: str) -> ResizeDecision:
    message = f"spec.zookeeper.replicas is {len(declared)}, the members are {_list(record.members)}"
    condition = condition_false(ZOOKEEPER_READY, "Resizing", f"{message}; {what}" if what else message)
    return ResizeDecision(record, starts, condition=condition, requeue_after_s=SOON_S)
