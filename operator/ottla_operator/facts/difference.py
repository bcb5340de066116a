"""Which of the desired objects have to be written: those that differ from what the API server has.

What others add to our objects stays: an item of a keyed list, a label, a default. A field of ours is written back. When
a webhook or controller changes a field back at each write, the operator stops writing it for a while and reports it
(`ChangedByOthers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla_operator.api import names
from ottla_operator.api.comparison import differences
from ottla_operator.api.objects import (
    CLAIM,
    KINDS,
    POD,
    STATEFUL_SET,
    Obj,
    dig,
    is_terminating,
    name_of,
    short_hash,
    uid_of,
)
from ottla_operator.api.ownership import is_ours
from ottla_operator.facts.snapshot import ContestedFields, Snapshot

_OF_THE_TEMPLATE = ("spec.template", f"metadata.annotations.{names.APPLIED}")

Contested = Mapping[tuple[str, str], ContestedFields]


@dataclass(frozen=True, slots=True)
class Difference:
    """`create`: no object of that name is known. `change`: ours, and not as desired. `foreign`: not ours."""

    create: tuple[Obj, ...]
    change: tuple[Obj, ...]
    foreign: tuple[Obj, ...]


def difference(snapshot: Snapshot, desired: Iterable[Obj]) -> Difference:
    """Sorts the desired objects by what has to be done. A terminating object is left alone until it is gone."""
    create: list[Obj] = []
    change: list[Obj] = []
    foreign: list[Obj] = []
    for obj in desired:
        live = snapshot.get(KINDS[obj["kind"]], name_of(obj))
        if live is None:
            create.append(obj)
        elif dig(obj, "metadata", "ownerReferences") and not is_ours(live, snapshot.resource):
            foreign.append(obj)
        elif not is_terminating(live) and not is_as_declared(snapshot, live, obj):
            change.append(obj)
    return Difference(tuple(create), tuple(change), tuple(foreign))


def stamp(desired: Obj) -> str:
    """A hash of what is declared of an object, without its owner, whose uid differs each time.

    It has the names of annotations and not their values: those are compared, and some depend on the order of events.
    """
    metadata = {key: value for key, value in desired["metadata"].items() if key not in ("ownerReferences", "uid")}
    return short_hash({**desired, "metadata": {**metadata, "annotations": sorted(metadata.get("annotations", {}))}})


def stamped(desired: Obj) -> Obj:
    """`desired` with its stamp, as it is written: so a field that is no longer declared is a difference.

    Claims and pods have none: of a claim no field is ever dropped, and of a pod only one label is ours. What is put
    back of a StatefulSet beside its template (`facts.repairs`) has none either.
    """
    if desired["kind"] in (CLAIM.kind, POD.kind) or _is_without_template(desired):
        return desired
    metadata = desired["metadata"]
    annotations = {**metadata.get("annotations", {}), names.APPLIED: stamp(desired)}
    return {**desired, "metadata": {**metadata, "annotations": annotations}}


def is_as_declared(snapshot: Snapshot, live: Obj, desired: Obj) -> bool:
    """Whether `live` needs no write: it is as desired, but for fields that others change back."""
    return needs_no_write(snapshot.contested, live, desired)


def template_is_as_declared(snapshot: Snapshot, live: Obj, desired: Obj) -> bool:
    """The same of the template of a StatefulSet alone, and of the stamp, which tells that a field was dropped from it.

    The rest has no turn in a roll (`facts.repairs`).
    """
    found = [path for path in differences(live, stamped(desired)) if path.startswith(_OF_THE_TEMPLATE)]
    return set(found) <= set(_contested(snapshot.contested, live, desired))


def needs_no_write(contested: Contested, live: Obj, desired: Obj) -> bool:
    """The same, with the fields that others change back by kind and name of their object."""
    found = differences(live, stamped(desired))
    return not found or set(found) <= set(_contested(contested, live, desired))


def contested_fields(snapshot: Snapshot, desired: Iterable[Obj]) -> list[str]:
    """The fields that are not as declared because others change them back: a line for each object."""
    found: dict[str, None] = {}
    for obj in desired:
        live = snapshot.get(KINDS[obj["kind"]], name_of(obj))
        contested = () if live is None else _contested(snapshot.contested, live, obj)
        if contested and (paths := [path for path in differences(live, stamped(obj)) if path in contested]):
            found[f"{obj['kind']} {name_of(obj)}: {', '.join(paths)}"] = None
    return list(found)


def _contested(contested: Contested, live: Obj, desired: Obj) -> tuple[str, ...]:
    fields = contested.get((desired["kind"], name_of(desired)))
    if fields is None or fields.uid != uid_of(live) or fields.stamp != stamp(desired):
        return ()
    return fields.paths


def _is_without_template(desired: Obj) -> bool:
    return bool(desired["kind"] == STATEFUL_SET.kind) and "template" not in desired["spec"]
