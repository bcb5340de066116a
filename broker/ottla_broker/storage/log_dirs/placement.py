"""Chooses the log directory of a new replica. Pure.

The directory with the fewest partitions; among equals the one with the most free bytes, then the first in log.dirs. An
offline, full or cordoned (KIP-1066) directory takes no new replica. A directory that AlterReplicaLogDirs named before
the replica existed comes first, if it takes new replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlacementCandidate:
    """An online log directory. `partitions` includes those that are being created, and future replicas."""

    path: str
    partitions: int
    free_bytes: int
    is_cordoned: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """The decision. `path` is None when no directory takes the replica; `reason` says why, or why this one."""

    path: str | None
    reason: str


def place(candidates: Sequence[PlacementCandidate], preferred: str | None = None) -> Placement:
    """Chooses for one new replica; `candidates` in the order of log.dirs.

    >>> Dir = PlacementCandidate
    >>> d0, d1, d2 = Dir("/d0", 3, 900), Dir("/d1", 2, 100), Dir("/d2", 2, 500)
    >>> place([d0, d1, d2]).path, place([d0, d1, d2], preferred="/d0").path
    ('/d2', '/d0')
    >>> place([d0, Dir("/d3", 0, 900, is_cordoned=True)]).path
    '/d0'
    >>> place([Dir("/d3", 0, 900, is_cordoned=True)])
    Placement(path=None, reason='every log directory that is online and has room is cordoned: /d3')
    """
    takers = [one for one in candidates if not one.is_cordoned]
    if not candidates:
        return Placement(None, "no log directory is online and has room")
    if not takers:
        cordoned = ", ".join(one.path for one in candidates)
        return Placement(None, f"every log directory that is online and has room is cordoned: {cordoned}")
    for one in takers:
        if one.path == preferred:
            return Placement(one.path, "named by AlterReplicaLogDirs before the replica existed")
    best = min(takers, key=lambda one: (one.partitions, -one.free_bytes))
    return Placement(best.path, f"{best.partitions} partitions, {best.free_bytes} bytes free")


def candidates(
    paths: Sequence[str], replicas: Mapping[str, int], free: Mapping[str, int], cordoned: Sequence[str]
) -> list[PlacementCandidate]:
    """The candidates of a broker.

    Args:
        paths: the online directories.
        replicas: the number of replicas by directory, of future and of unfinished ones too.
        free: free bytes by path.
        cordoned: the paths of cordoned.log.dirs.
    """
    return [PlacementCandidate(path, replicas.get(path, 0), free[path], path in cordoned) for path in paths]


__all__ = ["Placement", "PlacementCandidate", "candidates", "place"]
