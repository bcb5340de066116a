"""What a roll asks of Kafka: leader moves (`concerns.roll.leader_moves`, steps 2 to 4) and preferred leader elections.

It may be interrupted between any two requests and done again. What Kafka refuses is not asked for again for a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ottla_operator.api.objects import Obj, dig
from ottla_operator.concerns.roll.leader_moves import ours
from ottla_operator.concerns.roll.observation import RollObservation
from ottla_operator.facts.fleet_values import PartitionId
from ottla_operator.facts.leader_move import LeaderMove
from ottla_operator.facts.refusals import Refusals
from ottla_operator.facts.snapshot import ClusterAction
from ottla_operator.ports import KafkaAdmin

NOT_OURS_ANY_MORE = ("ReassignmentInProgress", "UnknownTopicOrPartition")
"""Errors of step 4 that end a move: somebody reassigns the partition, or it is deleted."""


@dataclass(frozen=True, slots=True)
class MoveLeaders(ClusterAction):
    """Leaderships to move away from a batch; with `only_restore` only the orders of replicas are put back."""

    moves: tuple[LeaderMove, ...]
    batch: tuple[int, ...]
    only_restore: bool


@dataclass(frozen=True, slots=True)
class ElectLeaders(ClusterAction):
    """Preferred leader elections of these partitions."""

    partitions: tuple[PartitionId, ...]


class RollExecutor:
    """Carries out the actions of one cluster's rolls. Every call raises KafkaUnavailable."""

    def __init__(self, monotonic: Callable[[], float], log: logging.Logger) -> None:
        self._log = log
        self._refused_elections: Refusals[PartitionId] = Refusals(monotonic)
        self._refused_moves: Refusals[PartitionId] = Refusals(monotonic)
        self._restored_moves: tuple[LeaderMove, ...] = ()

    def observed(self, clusters_ahead: tuple[str, ...]) -> RollObservation:
        """What came of the last requests."""
        return RollObservation(
            clusters_ahead,
            frozenset(self._refused_elections.now()),
            frozenset(self._refused_moves.now()),
            self._restored_moves,
        )

    async def move_leaders(self, admin: KafkaAdmin, action: MoveLeaders) -> None:
        done = await migrate(admin, action.moves, action.batch, only_restore=action.only_restore)
        self._log.info("leaderships of %d partitions are moved, %d refused", len(action.moves), len(done.refused))
        self._refused_moves.add(done.refused)
        self._restored_moves = (*self._restored_moves, *done.restored)

    async def elect_leaders(self, admin: KafkaAdmin, action: ElectLeaders) -> None:
        refused = await admin.elect_leaders(action.partitions)
        text = "preferred leader election of %d partitions, %d refused"
        self._log.info(text, len(action.partitions), len(refused))
        self._refused_elections.add(refused)

    def wrote_status(self, before: Obj | None, status: Obj) -> None:
        """Forgets which moves are restored when status records others."""
        if dig(status, "roll", "moving") != dig(before, "roll", "moving"):
            self._restored_moves = ()


@dataclass(frozen=True, slots=True)
class Migration:
    """`refused`: the error of each partition that Kafka refused. `restored`: the moves that are over."""

    refused: dict[PartitionId, str]
    restored: tuple[LeaderMove, ...]


async def migrate(
    admin: KafkaAdmin, moves: Sequence[LeaderMove], batch: Collection[int], *, only_restore: bool
) -> Migration:
    """Moves the leaderships away from the batch, and puts the original orders back.

    Args:
        only_restore: moves nothing, only puts orders back.

    Raises:
        KafkaUnavailable: no broker answers. Orders may be left as step 2 made them; the next call puts them back.
    """
    view = await admin.view()
    leaders = {(partition.topic, partition.index): partition.leader for partition in view.partitions}
    mine = ours(view, moves)
    refused: dict[PartitionId, str] = {}
    if not only_restore:
        led = [move for move in mine if leaders[move.id] in batch]
        orders = {move.id: move.moved for move in led if move.moved != move.replicas}
        refused |= await admin.reorder(orders) if orders else {}
        if elected := [move.id for move in led if move.id not in refused]:
            refused |= await admin.elect_leaders(elected)
    orders = {move.id: move.replicas for move in mine if move.moved != move.replicas}
    failed = await admin.reorder(orders) if orders else {}
    still = {partition for partition, error in failed.items() if error not in NOT_OURS_ANY_MORE}
    return Migration({**refused, **failed}, tuple(move for move in moves if move.id not in still))
