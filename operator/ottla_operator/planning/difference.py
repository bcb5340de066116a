"""What of the desired objects has to be written: nothing, where the cluster already says it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla_operator.api.objects import KINDS, Obj, covers, dig, is_deleting, is_owned_by, name_of
from ottla_operator.planning.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Difference:
    """`create`: nobody has the name as far as we see. `change`: ours, and not as desired. `foreign`: not ours."""

    create: tuple[Obj, ...]
    change: tuple[Obj, ...]
    foreign: tuple[Obj, ...]


def difference(snapshot: Snapshot, desired: Iterable[Obj]) -> Difference:
    """Splits the desired objects. One that is being deleted is left alone until it is gone."""
    create: list[Obj] = []
    change: list[Obj] = []
    foreign: list[Obj] = []
    for obj in desired:
        live = snapshot.get(KINDS[obj["kind"]], name_of(obj))
        if live is None:
            create.append(obj)
        elif dig(obj, "metadata", "ownerReferences") and not is_owned_by(live, snapshot.resource):
            foreign.append(obj)
        elif not is_deleting(live) and not covers(live, obj):
            change.append(obj)
    return Difference(tuple(create), tuple(change), tuple(foreign))
