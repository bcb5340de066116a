"""Carries out leader moves (`concerns.roll.leader_moves`, steps 2 to 4) through Kafka's own requests.

It may be interrupted between any two requests and done again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ottla_operator.concerns.roll.leader_moves import ours
from ottla_operator.effects.ports import KafkaAdmin
from ottla_operator.facts.fleet_values import PartitionId
from ottla_operator.facts.leader_move import LeaderMove

NOT_OURS_ANY_MORE = ("ReassignmentInProgress", "UnknownTopicOrPartition")
"""Errors of step 4 that end a move: somebody reassigns the partition, or it is deleted."""


@dataclass(frozen=True, slots=True)
class Migration:
    """`refused`: the error of each partition that Kafka refused. `restored`: the moves that are over."""

    refused: dict[PartitionId, str]
    restored: tuple[LeaderMove, ...]


async def migrate(
    client: KafkaAdmin, moves: Sequence[LeaderMove], batch: Collection[int], *, only_restore: bool
) -> Migration:
    """Moves the leaderships away from the batch, and puts the original orders back.

    Args:
        only_restore: moves nothing, only puts orders back.

    Raises:
        KafkaUnavailable: no broker answers. Orders may be left as step 2 made them; the next call puts them back.
    """
    view = await client.view()
    leaders = {(partition.topic, partition.index): partition.leader for partition in view.partitions}
    mine = ours(view, moves)
    refused: dict[PartitionId, str] = {}
    if not only_restore:
        led = [move for move in mine if leaders[move.id] in batch]
        orders = {move.id: move.moved for move in led if move.moved != move.replicas}
        refused |= await client.reorder(orders) if orders else {}
        if elected := [move.id for move in led if move.id not in refused]:
            refused |= await client.elect_leaders(elected)
    orders = {move.id: move.replicas for move in mine if move.moved != move.replicas}
    failed = await client.reorder(orders) if orders else {}
    still = {partition for partition, error in failed.items() if error not in NOT_OURS_ANY_MORE}
    return Migration({**refused, **failed}, tuple(move for move in moves if move.id not in still))
