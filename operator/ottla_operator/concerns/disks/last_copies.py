"""What a volume that has failed alone has, whether spec accepts to lose it, and what else prevents its replacement.

A partition is lost with a volume when nobody is in sync but its broker and brokers whose nodes are gone. Then nothing
is replaced, unless spec.brokers.overrides[].disks[].acceptDataLoss of each of those brokers says so. The acceptance
counts for the claim of the generation before the one that it names, so for this loss and for no later one. A partition
of which another registered broker has a copy that lags is not given up: an unclean election saves what that one has,
while a broker that comes back empty would make it cut its copy.

While no broker answers it is not known which partitions those are (`blocker_while_unanswered`). When no broker can
start any more, since each has lost volumes, and spec accepts all of that, the first may begin again: the only one with
a volume that is left, or any when none has. Then it answers, and the others go by what it says.

Example: partition t-0 has replicas [1], and the node of broker 1 is gone. With `{id: 1, disks: [{name: d0,
generation: 2, acceptDataLoss: true}]}` claim orders-broker-1-d0-1 is replaced, and t-0 begins again, empty.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ottla_operator.api import names
from ottla_operator.api.fleet import PartitionReport
from ottla_operator.api.objects import POD, Obj, annotation, has_condition, is_terminating, name_of
from ottla_operator.concerns.disks.lost_claims import lost_claims
from ottla_operator.facts.broker_claims import live_claim
from ottla_operator.facts.lost_nodes import pods_without_node, why_out_of_reach
from ottla_operator.facts.snapshot import Snapshot

SHOWN = 5
UNANSWERED = "no broker answers which replicas are in sync"


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


def replacement_blocker(
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
    if snapshot.kafka is None and not is_running:
        return blocker_while_unanswered(snapshot, broker_id, broker_ids, accepted)
    batch = snapshot.status("roll", "batch") or []
    if snapshot.is_rolling() and (is_running or set(batch) - {broker_id}):
        return "a roll is under way"
    if snapshot.kafka is None:
        return UNANSWERED
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


def blocker_while_unanswered(
    snapshot: Snapshot, broker_id: int, broker_ids: Sequence[int], accepted: Collection[int]
) -> str:
    """Why volumes of this broker must not be replaced while no broker answers; "" when they may. Ordered checks.

    A broker that comes back empty leads the partitions that ZooKeeper has it in sync for, and whoever has a copy of
    them cuts it. So nobody may have one: no broker that could run, none whose claims may come back, and no volume that
    is left of another broker.

    Example: both brokers of a cluster have lost d0, and spec accepts it. Broker 1 has d1, so it comes first; broker 0
    waits until it answers. If both have a d1, neither may begin: each could make the other cut what d1 has.
    """
    lost = {broker_id, *_gone_too(snapshot, broker_id, broker_ids)}
    if able := [number for number in broker_ids if number not in lost]:
        return f"{UNANSWERED}; broker {_list(able)} has its volumes: get it to run, and it says what would be lost"
    if running := [number for number in broker_ids if number in snapshot.reports]:
        return f"{UNANSWERED}; broker {_list(running)} still runs"
    if missing := sorted(lost - {*accepted}):
        which = f"the lost claims of broker {_list(missing)}"
        return f"{UNANSWERED}, and none can start; spec.brokers.overrides[].disks[].acceptDataLoss of {which} is needed"
    left = [number for number in sorted(lost) if _has_volume_left(snapshot, number)]
    if len(left) > 1:
        return (
            f"{UNANSWERED}, and none can start; volumes of brokers {_list(left)} are left, and each could make the "
            "others cut their copies: bring a lost claim back, or delete those of all but one, and accept that too"
        )
    if left and left != [broker_id]:
        return f"{UNANSWERED}; broker {left[0]} comes first: volumes of it are left"
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
    """The partitions of `last_copies` that spec gives up, and of which no registered broker has a copy that lags."""
    if broker_id not in accepted or snapshot.kafka is None:
        return []
    partitions = {str(partition): partition for partition in snapshot.kafka.partitions}
    found = []
    for name in last_copies(snapshot, broker_id, broker_ids, is_running=is_running):
        report = partitions.get(name)
        if report is None or (_holders(report) <= {broker_id, *accepted} and not _lagging(snapshot, broker_id, report)):
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
    kept_partitions = [partition for partition in snapshot.kafka.partitions if str(partition) in kept]
    for partition in kept_partitions:
        if lagging := _lagging(snapshot, broker_id, partition):
            return f"; broker {lagging[0]} has a copy of {partition} that lags, and an unclean election saves that"
    holders = {broker_id, *(one for partition in kept_partitions for one in _holders(partition) if one in gone)}
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


def _has_volume_left(snapshot: Snapshot, broker_id: int) -> bool:
    """Whether a broker has a volume that may hold data and is not lost."""
    lost = {one.name for one in lost_claims(snapshot, broker_id)}
    claims = [live_claim(snapshot, broker_id, disk.name) for disk in snapshot.disks_of(broker_id)]
    return any(
        claim is not None
        and name_of(claim) not in lost
        and not why_out_of_reach(snapshot, claim)
        and annotation(claim, names.DIRECTORY_ID) is not None
        for claim in claims
    )


def _list(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))


def _is_only_on(partition: PartitionReport, broker_id: int, gone: Collection[int]) -> bool:
    """Whether nobody is in sync but brokers that are gone, this one or one that it could have been copied to."""
    return broker_id in partition.replicas and bool(partition.in_sync) and {*partition.in_sync} <= {broker_id, *gone}


def _is_ready(snapshot: Snapshot, broker_id: int) -> bool:
    pod = broker_pod(snapshot, broker_id)
    return pod is not None and has_condition(pod, "Ready") and not is_terminating(pod)
