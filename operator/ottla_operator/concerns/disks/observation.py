"""What is known of disks beyond the snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DiskObservation:
    """Which disks fill up, and which moves between them a broker refused."""

    filling: Mapping[tuple[int, str], int] = field(default_factory=dict)
    """The log directories that will be full within so many hours, by broker id and disk."""
    refused_moves: Mapping[tuple[int, str, int], str] = field(default_factory=dict)
    """Why a broker has refused to move a replica to another log directory a short time ago: broker, topic, index."""


NO_DISK_OBSERVATION = DiskObservation()
