"""A leadership that leaves a broker before it restarts. How moves are made: `concerns.roll.leader_moves`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla_operator.facts.fleet_values import PartitionId


@dataclass(frozen=True, slots=True)
class LeaderMove:
    """One leadership that moves to `leader`, one of `replicas`, the assignment in its original order.

    >>> LeaderMove("t", 0, (1, 2, 3), 3).moved
    (3, 1, 2)
    """

    topic: str
    index: int
    replicas: tuple[int, ...]
    leader: int

    @property
    def id(self) -> PartitionId:
        return self.topic, self.index

    @property
    def moved(self) -> tuple[int, ...]:
        """The order in which `leader` is preferred."""
        return (self.leader, *(replica for replica in self.replicas if replica != self.leader))

    def to_status(self) -> dict[str, Any]:
        return {"topic": self.topic, "partition": self.index, "replicas": list(self.replicas), "leader": self.leader}
