"""What a volume that has failed alone has, whether spec accepts to lose it, and what else prevents its replacement.

A partition is lost with a volume when nobody is in sync but its broker and brokers whose nodes are gone. Then nothing
is replaced, unless spec.brokers.overrides[].disks[].acceptDataLoss of each of those brokers says so. The acceptance
counts for the claim of the generation before the one that it names, so for this loss and for no later one. A partition
of which another registered broker has a copy that lags is not given up: an unclean election saves what that one has,
while a broker that comes back empty would make it cut its copy.

Example: partition t-0 has replicas [1], and the node of broker 1 is gone. With `{id: 1, disks: [{name: d0,
generation: 2, acceptDataLoss: true}]}` claim orders-broker-1-d0-1 is replaced, and t-0 begins again, empty.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ottla_operator.api import names
from ottla_operator.api.fleet import PartitionReport
from ottla_operator.api.objects import POD, Obj, has_condition, is_terminating
from ottla_operator.planning.broker_claims import live_claim
from ottla_operator.planning.lost_claims import lost_claims
from ottla_operator.planning.lost_nodes import pods_without_node, why_out_of_reach
from ottla_operator.planning.snapshot import Snapshot

SHOWN = 5


@dataclass(frozen=True, slots=True)
class LastCopies:
    """The partitions that would be lost with the failed volumes of a broker.

    `is_accepted`: whether spec gives them up.
    """

    broker_id: int
    partitions: tuple[str, ...]
    is_accepted: bool


def accepts_loss(snapshot: Snapshot, broker_id: int, disk: str, generation: int) -> bool:
    """Whether spec accepts to lose what only the claim of this generation has."""
    return any(
        one.accept_data_loss and one.name == disk and one.generation == generation + 1
        for broker in snapshot.cluster.brokers.overrides
        if broker.id == broker_id
        for one in broker.disks
    )


def obstacle(
    snapshot: Snapshot,
    broker_id: int,
    broker_ids: Sequence[int],
    accepted: Collection[int] = (),
    *,
    is_running: bool,
) -> str:
    """Why a volume of this broker must not be replaced now; "" when it may. Ordered checks.

    Args:
        accepted: the brokers for which spec accepts to lose what only their failed volumes have.
        is_running: whether the broker serves its other log directories; else all that it has may be lost.
    """
    batch = snapshot.status("roll", "batch") or []
    if snapshot.is_rolling() and (is_running or set(batch) - {broker_id}):
        return "a roll is under way"
    if snapshot.kafka is None:
        return "no broker answers which replicas are in sync"
    gone = set() if is_running else _gone_too(snapshot, broker_id, broker_ids)
    given_up = set(accepted_losses(snapshot, broker_id, broker_ids, accepted, is_running=is_running))
    lost = last_copies(snapshot, broker_id, broker_ids, is_running=is_running)
    if kept := [partition for partition in lost if partition not in given_up]:
        return f"it has the last copy of {shortened(kept)}{_advice(snapshot, broker_id, kept, gone, accepted)}"
    for other in broker_ids:
        if other == broker_id or other in gone:
            continue
        if not _is_ready(snapshot, other):
            return f"broker {other} is not ready"
        if other not in snapshot.kafka.brokers:
            return f"broker {other} is not registered"
    for partition in snapshot.kafka.partitions:
        if str(partition) in given_up:
            continue
        away = {broker_id, *gone}
        missing = [str(r) for r in partition.replicas if r not in away and r not in partition.in_sync]
        if missing:
            return f"{partition}: replica {', '.join(missing)} is not in sync"
        if not is_running and broker_id in partition.in_sync:
            return f"{partition}: broker {broker_id} still counts as in sync"
    report = snapshot.reports.get(broker_id)
    if report is not None and report.recreation.catching_up:
        return f"{report.recreation.catching_up} replicas that broker {broker_id} has recreated catch up"
    return ""


def last_copies(snapshot: Snapshot, broker_id: int, broker_ids: Sequence[int], *, is_running: bool) -> list[str]:
    """The partitions that would lose all that was acknowledged, with what has failed on this broker and on lost nodes.

    A running broker leads what it alone has on its good disks; nobody leads what was on the dead one. Empty while no
    broker answers.
    """
    if snapshot.kafka is None:
        return []
    gone = set() if is_running else _gone_too(snapshot, broker_id, broker_ids)
    alone = [
        str(partition)
        for partition in snapshot.kafka.partitions
        if _is_only_on(partition, broker_id, gone) and not (is_running and partition.leader == broker_id)
    ]
    only = [str(part) for part in snapshot.kafka.partitions if not part.in_sync and broker_id in part.replicas]
    report = snapshot.reports.get(broker_id)
    reported = list(report.recreation.lost_partitions) if report is not None else []
    if report is not None and report.recreation.lost and not reported:
        reported = [f"{report.recreation.lost} partitions"]
    return list(dict.fromkeys([*alone, *only, *reported]))


def accepted_losses(
    snapshot: Snapshot,
    broker_id: int,
    broker_ids: Sequence[int],
    accepted: Collection[int],
    *,
    is_running: bool,
) -> list[str]:
    """Those of `last_copies` that spec gives up, and of which no registered broker has a copy that lags."""
    if broker_id not in accepted or snapshot.kafka is None:
        return []
    partitions = {str(partition): partition for partition in snapshot.kafka.partitions}
    found = []
    for name in last_copies(snapshot, broker_id, broker_ids, is_running=is_running):
        known = partitions.get(name)
        if known is None or (_holders(known) <= {broker_id, *accepted} and not _lagging(snapshot, broker_id, known)):
            found.append(name)
    return found


def shortened(partitions: Sequence[str], most: int = SHOWN) -> str:
    """
    >>> shortened(["a-0", "a-1", "b-0"], 2)
    'a-0, a-1, …'
    """
    return ", ".join(partitions[:most]) + (", …" if len(partitions) > most else "")


def broker_pod(snapshot: Snapshot, broker_id: int) -> Obj | None:
    return snapshot.get(POD, names.pod_of(names.broker_name(snapshot.cluster.name, broker_id)))


def _advice(
    snapshot: Snapshot, broker_id: int, kept: Sequence[str], gone: Collection[int], accepted: Collection[int]
) -> str:
    """What a person can do about last copies."""
    assert snapshot.kafka is not None, "the caller has looked"
    known = [partition for partition in snapshot.kafka.partitions if str(partition) in kept]
    for partition in known:
        if lagging := _lagging(snapshot, broker_id, partition):
            return f"; broker {lagging[0]} has a copy of {partition} that lags, and an unclean election saves that"
    holders = {broker_id, *(one for partition in known for one in _holders(partition) if one in gone)}
    missing = ", ".join(str(one) for one in sorted(holders - {*accepted}))
    return f"; spec.brokers.overrides[].disks[].acceptDataLoss gives it up (broker {missing})" if missing else ""


def _holders(partition: PartitionReport) -> set[int]:
    """The brokers that may have all that was acknowledged; every replica where nobody is known to be in sync."""
    return {*(partition.in_sync or partition.replicas)}


def _lagging(snapshot: Snapshot, broker_id: int, partition: PartitionReport) -> list[int]:
    """The other registered brokers that have a copy."""
    assert snapshot.kafka is not None, "the caller has looked"
    return [one for one in partition.replicas if one != broker_id and one in snapshot.kafka.brokers]


def _gone_too(snapshot: Snapshot, broker_id: int, broker_ids: Sequence[int]) -> set[int]:
    """The other brokers whose node is gone with volumes of theirs, or whose claims are lost: waiting for them would be
    for ever, and each would wait for the other."""
    pods = [(number, broker_pod(snapshot, number)) for number in broker_ids if number != broker_id]
    return {number for number, _ in pods if lost_claims(snapshot, number)} | {
        number
        for number in pods_without_node(snapshot, pods)
        if any(
            why_out_of_reach(snapshot, live)
            for disk in snapshot.disks_of(number)
            if (live := live_claim(snapshot, number, disk.name)) is not None
        )
    }


def _is_only_on(partition: PartitionReport, broker_id: int, gone: Collection[int]) -> bool:
    """Whether nobody is in sync but brokers that are gone, this one or one that it could have been copied to."""
    return broker_id in partition.replicas and bool(partition.in_sync) and {*partition.in_sync} <= {broker_id, *gone}


def _is_ready(snapshot: Snapshot, broker_id: int) -> bool:
    pod = broker_pod(snapshot, broker_id)
    return pod is not None and has_condition(pod, "Ready") and not is_terminating(pod)
