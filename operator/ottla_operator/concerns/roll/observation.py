"""What a roll knows beyond the snapshot: whom it waits for, and what came of its last requests to Kafka."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ottla_operator.facts.fleet_values import PartitionId
from ottla_operator.facts.leader_move import LeaderMove


@dataclass(frozen=True, slots=True)
class RollObservation:
    """Whom a roll waits for, and what Kafka answered to its last requests."""

    clusters_ahead: tuple[str, ...] = ()
    """The clusters, as namespace/name, whose rolls this one waits for (`concerns.roll.turns`)."""
    refused_elections: Collection[PartitionId] = ()
    """Partitions whose preferred leader election the controller refused a short time ago."""
    refused_moves: Collection[PartitionId] = ()
    """Partitions whose leadership Kafka refused to move a short time ago."""
    restored_moves: tuple[LeaderMove, ...] = ()
    """The last moves whose original orders of replicas the controller has confirmed to this process."""


NO_ROLL_OBSERVATION = RollObservation()
