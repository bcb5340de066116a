"""What of the desired objects has to be written: nothing, where the cluster already says it.

What others add to our objects stays: an item of a keyed list, a label, a default. What is ours is written back. Where
that has no effect, because an admission webhook or a controller changes it again at each write, writing is given up for
a while and shown (`ChangedByOthers`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla_operator.api import names
from ottla_operator.api.comparison import differences
from ottla_operator.api.objects import CLAIM, KINDS, POD, Obj, dig, is_owned_by, is_terminating, name_of, short_hash
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
        elif not is_terminating(live) and not is_as_declared(snapshot, live, obj):
            change.append(obj)
    return Difference(tuple(create), tuple(change), tuple(foreign))


def stamp(desired: Obj) -> str:
    """A hash of what is declared of an object, but for its owner, whose uid is another one each time.

    Of annotations it has the names: their values are compared, and some list what happened in the order it did.
    """
    metadata = {key: value for key, value in desired["metadata"].items() if key not in ("ownerReferences", "uid")}
    return short_hash({**desired, "metadata": {**metadata, "annotations": sorted(metadata.get("annotations", {}))}})


def stamped(desired: Obj) -> Obj:
    """`desired` as it is written: with its stamp, so that leaving something out of it is a difference.

    A claim is declared from what it is itself, and nothing of it is ever left out; of a pod one label is ours.
    """
    if desired["kind"] in (CLAIM.kind, POD.kind):
        return desired
    metadata = desired["metadata"]
    annotations = {**metadata.get("annotations", {}), names.APPLIED: stamp(desired)}
    return {**desired, "metadata": {**metadata, "annotations": annotations}}


def is_as_declared(snapshot: Snapshot, live: Obj, desired: Obj) -> bool:
    """Whether writing `desired` is of any use."""
    found = differences(live, stamped(desired))
    return not found or set(found) <= set(_overridden(snapshot, desired))


def contested_fields(snapshot: Snapshot, desired: Iterable[Obj]) -> list[str]:
    """What is not as declared and stays so, object by object."""
    found: dict[str, None] = {}
    for obj in desired:
        given_up = _overridden(snapshot, obj)
        live = snapshot.get(KINDS[obj["kind"]], name_of(obj)) if given_up else None
        if live is not None and (paths := [path for path in differences(live, stamped(obj)) if path in given_up]):
            found[f"{obj['kind']} {name_of(obj)}: {', '.join(paths)}"] = None
    return list(found)


def _overridden(snapshot: Snapshot, desired: Obj) -> tuple[str, ...]:
    known = snapshot.overridden.get((desired["kind"], name_of(desired)))
    return known.paths if known is not None and known.stamp == stamp(desired) else ()
