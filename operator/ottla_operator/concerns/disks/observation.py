"""What is known of disks beyond the snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla_operator.api.fleet import LogDirContents


@dataclass(frozen=True, slots=True)
class DiskObservation:
    """What is in log directories, which of them fill up, and which moves between them a broker refused."""

    log_dirs: Mapping[int, Sequence[LogDirContents]] = field(default_factory=dict)
    """Read now: of the brokers to remove and of those with a disk that is being emptied, those that answered."""
    filling: Mapping[tuple[int, str], int] = field(default_factory=dict)
    """The log directories that will be full within so many hours, by broker id and disk."""
    knows_rates: bool = True
    """False while this process has not watched for long enough to say which directories fill up."""
    refused_moves: Mapping[tuple[int, str, int], str] = field(default_factory=dict)
    """Why a broker has refused to move a replica to another log directory a short time ago: broker, topic, index."""


NO_DISK_OBSERVATION = DiskObservation()
