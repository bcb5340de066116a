"""Which log directory a new replica goes to. Pure.

The one with the fewest partitions, among equals the one with the most free bytes, then the first in log.dirs. A
directory that is offline, full or cordoned (KIP-1066) takes nothing new. One that AlterReplicaLogDirs named before the
replica existed comes first while it is there to take it; after that it counts like the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """One log directory that is online and not full. `partitions` counts those being created, and moved, there."""

    path: str
    partitions: int
    free_bytes: int
    is_cordoned: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """`path` is None when no directory takes the replica; `reason` says why, or why this one."""

    path: str | None
    reason: str


def place(candidates: Sequence[Candidate], preferred: str | None = None) -> Placement:
    """Chooses for one new replica; `candidates` in the order of log.dirs.

    >>> d0, d1, d2 = Candidate("/d0", 3, 900), Candidate("/d1", 2, 100), Candidate("/d2", 2, 500)
    >>> place([d0, d1, d2]).path, place([d0, d1, d2], preferred="/d0").path
    ('/d2', '/d0')
    >>> place([d0, Candidate("/d3", 0, 900, is_cordoned=True)]).path
    '/d0'
    >>> place([Candidate("/d3", 0, 900, is_cordoned=True)])
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
            return Placement(one.path, "named before it existed")
    best = min(takers, key=lambda one: (one.partitions, -one.free_bytes))
    return Placement(best.path, f"{best.partitions} partitions, {best.free_bytes} bytes free")


def candidates(
    paths: Sequence[str], homes: Sequence[str], free: Mapping[str, int], cordoned: Sequence[str]
) -> list[Candidate]:
    """`paths`: online and not full; `homes`: the directory of each replica here, of those on their way too."""
    counts = dict.fromkeys(paths, 0)
    for path in homes:
        if path in counts:
            counts[path] += 1
    return [Candidate(path, counts[path], free[path], path in cordoned) for path in paths]


__all__ = ["Candidate", "Placement", "candidates", "place"]
