"""Which leaderships leave a batch before its brokers stop, and how: another replica is preferred for a moment.

Kafka elects only the preferred replica on request (ElectLeaders, KIP-460): the first of the assignment. So for up to
`MOVES_PER_BROKER` partitions of each broker of the batch at a time, `MOVES_PER_STEP` in all, the operator

    1  records the moves, with the original orders of replicas, in status.roll.moving
    2  puts the replica that is to lead first        AlterPartitionReassignments (KIP-455), the same replicas
    3  elects the preferred leaders                  ElectLeaders
    4  puts the original orders back                 AlterPartitionReassignments

and only then goes on to the next ones. The leader stays where it is in 4: an order alone elects nobody. No replica is
copied, and any controller that knows these requests does it, Apache Kafka's too. Only the controller's answer to 4 ends
a move: metadata of a broker may be behind. So an operator that is killed finds the moves in status, knows of no answer,
and does 2 to 4 again, or only 4. A partition whose assignment is by then neither of the two orders has been reassigned
by somebody else and is left alone, as are partitions that are being reassigned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from ottla_operator.api.fleet import ClusterMetadata, PartitionReport
from ottla_operator.facts.fleet_values import PartitionId
from ottla_operator.facts.leader_move import LeaderMove

MOVES_PER_BROKER = 100
"""How many partitions one step moves away from one broker: the clients of these refresh their metadata. The brokers of
a batch are left in the same steps, or a batch would take as many steps as its brokers one by one."""
MOVES_PER_STEP = 1000
"""How many in all: their orders stand in status meanwhile (about 100 bytes each)."""


def move_from_status(item: object) -> LeaderMove | None:
    """Parses one entry of status.roll.moving."""
    if not isinstance(item, Mapping):
        return None
    topic, index, replicas, leader = (item.get(name) for name in ("topic", "partition", "replicas", "leader"))
    if not (isinstance(topic, str) and isinstance(index, int) and isinstance(leader, int)):
        return None
    if not (isinstance(replicas, list | tuple) and leader in replicas and all(isinstance(r, int) for r in replicas)):
        return None
    return LeaderMove(topic, index, tuple(replicas), leader)


def movable(
    view: ClusterMetadata, batch: Collection[int], refused: Collection[PartitionId] = ()
) -> tuple[PartitionReport, ...]:
    """The partitions that the batch leads and that another broker can lead.

    `refused`: partitions whose move Kafka refused a short time ago.
    """
    return tuple(
        partition
        for partition in view.partitions
        if partition.leader in batch
        and (partition.topic, partition.index) not in refused
        and _next_leader(partition, view, batch) is not None
    )


def next_moves(
    view: ClusterMetadata, batch: Collection[int], partitions: Iterable[PartitionReport]
) -> tuple[LeaderMove, ...]:
    """The moves of the first of these partitions of each broker: to the replica that controlled shutdown would choose.

    >>> orders = [(1, 0, 2), (1, 0, 2), (3, 0, 2)]
    >>> led = [PartitionReport("t", number, order[0], order, order) for number, order in enumerate(orders)]
    >>> [(move.index, move.leader) for move in next_moves(ClusterMetadata("c", 0, (0, 1, 2, 3), ()), (1, 3), led)]
    [(0, 0), (1, 0), (2, 0)]
    """
    found: list[LeaderMove] = []
    of_broker: Counter[int] = Counter()
    for partition in partitions:
        leader = _next_leader(partition, view, batch)
        if leader is None or of_broker[partition.leader] >= MOVES_PER_BROKER:
            continue
        of_broker[partition.leader] += 1
        found.append(LeaderMove(partition.topic, partition.index, partition.replicas, leader))
        if len(found) == MOVES_PER_STEP:
            break
    return tuple(found)


def ours(view: ClusterMetadata, moves: Iterable[LeaderMove]) -> tuple[LeaderMove, ...]:
    """The moves whose partitions have one of their two orders. Every other assignment is somebody else's."""
    now = {(partition.topic, partition.index): partition.replicas for partition in view.partitions}
    return tuple(move for move in moves if now.get(move.id) in (move.replicas, move.moved))


def _next_leader(partition: PartitionReport, view: ClusterMetadata, batch: Collection[int]) -> int | None:
    """The first replica in sync, registered and outside of the batch."""
    for replica in partition.replicas:
        if replica not in batch and replica in partition.in_sync and replica in view.brokers:
            return replica
    return None
