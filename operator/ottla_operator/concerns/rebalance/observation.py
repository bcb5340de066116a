"""What a rebalance knows beyond the snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla_operator.api.fleet import LogDirContents
from ottla_operator.facts.fleet_values import PartitionId


@dataclass(frozen=True, slots=True)
class RebalanceObservation:
    """What the brokers store and move, and what they refused to move."""

    log_dir_usage: Mapping[int, Sequence[LogDirContents]] = field(default_factory=dict)
    """What all brokers answered some time ago: for where replicas should be, not for what may be deleted."""
    reassignments: Mapping[PartitionId, tuple[tuple[int, ...], ...]] | None = None
    """(adding, removing) of every reassignment under way; None while the controller does not answer."""
    refused: Mapping[PartitionId, str] = field(default_factory=dict)
    """Why the brokers have refused to move a partition a short time ago."""


NO_REBALANCE_OBSERVATION = RebalanceObservation()
