"""What the operator stands on: the fields of its CustomResourceDefinitions and its rights.

While a definition lacks a field that this release needs, the API server drops the field from every object that it reads
and writes. So an object without the field is no document from which the field was taken away, and a status that was
written is not the one that is there. Before the operator acts on another spec than it has acted on, it reads the
definition: a changed spec is seen after the change of the definition that may have caused it. It also reads it at the
start, when a status comes back with less than was written, once a minute, and twice until nothing is lacking.

Rights are looked at before the first act for a kind in a namespace, after a refusal, and every half minute until none
is lacking. At rest they are not read.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ottla_operator.api.condition_reasons import DEFINITION_OUTDATED, READY, RIGHTS_MISSING
from ottla_operator.api.conditions import Condition, merged
from ottla_operator.api.definitions import dropped, fields_of, has_field, lacking, was_set
from ottla_operator.api.names import GROUP
from ottla_operator.api.needed_fields import NEEDED_FIELDS
from ottla_operator.api.objects import DEFINITION, Obj, ResourceKind, dig, name_of, namespace_of, uid_of
from ottla_operator.api.rights import NEEDED_RIGHTS
from ottla_operator.ports import ApiError, KubernetesApi

AGAIN_S = 30.0
READ_EVERY_S = 60.0
"""How often a definition is read while it lacks nothing: a write stores the object without the fields that it lacks."""
UNREADABLE_S = 600.0
"""How long the fields that a status lost count as lacking when the definition cannot be read."""
SHOWN = 5
MOST_SPECS = 20_000


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What is lacking for an object. `reason`: of Ready. `fields`: those that the definition of its kind lacks."""

    reason: str
    message: str
    fields: tuple[str, ...] = ()


@dataclass(slots=True)
class _LastRead:
    """What was lacking when it was read last."""

    lacking: tuple[str, ...] = ()
    read_at: float = -math.inf
    is_suspect: bool = True
    """Whether something has shown that it may be otherwise by now."""


@dataclass(slots=True)
class _LastFields(_LastRead):
    """The fields that a definition lacked when it was read last."""

    lost: tuple[str, ...] = ()
    """What a status lost when it was written."""
    was_read: bool = False
    specs: dict[str, object] = field(default_factory=dict)
    """The spec for which the definition was read, by uid."""


class Prerequisites:
    """What is lacking, by kind and namespace. One for a process."""

    def __init__(
        self, api: KubernetesApi, monotonic: Callable[[], float], needed: Mapping[str, Sequence[str]] = NEEDED_FIELDS
    ) -> None:
        """`needed`: by kind, the fields that the operator needs."""
        self._api = api
        self._monotonic = monotonic
        self._needed = needed
        self._fields: dict[str, _LastFields] = {}
        self._rights: dict[tuple[str, str], _LastRead] = {}
        self.unlisted: frozenset[str] = frozenset()
        """The served namespaces whose objects may not be listed: what is not seen there is not missing."""
        self._writable: dict[tuple[str, str], bool] = {}
        """Whether a status may be written, by uid and message."""
        self._log = logging.getLogger("ottla.operator")

    async def may_write_status(self, kind: ResourceKind, resource: Obj, shortfall: Shortfall) -> bool:
        """Whether no field of a spec is lost by a write to the object: the API server stores what the definition has.

        What is not written is there again once the definition is. Raises ApiError.
        """
        lacking_in_spec = [path for path in shortfall.fields if path.startswith("spec")]
        key = (uid_of(resource), shortfall.message)
        if not lacking_in_spec:
            return True
        if key not in self._writable:
            there = await self._api.get(kind, namespace_of(resource), name_of(resource)) or resource
            self._writable[key] = not any(
                has_field(resource, path) or has_field(there, path) or was_set(there, path) for path in lacking_in_spec
            )
        return self._writable[key]

    async def shortfall(self, kind: ResourceKind, namespace: str, resources: Sequence[Obj]) -> Shortfall | None:
        """What is lacking to act for objects of a kind in a namespace; None when nothing is.

        Raises:
            ApiError: the definition could not be read, and not because the right to it is missing.
        """
        if fields := await self._lacking_fields(kind, resources):
            return Shortfall(
                DEFINITION_OUTDATED,
                f"the CustomResourceDefinition {_definition(kind)} is older than the operator and lacks "
                f"{_shown(fields)}; nothing is changed until the one of this release is applied (crds/)",
                fields,
            )
        if namespace in self.unlisted:
            return Shortfall(RIGHTS_MISSING, f"the operator may not list the objects in {namespace}")
        if rights := await self._lacking_rights(kind, namespace):
            return Shortfall(
                RIGHTS_MISSING, f"the operator may not {_shown(rights)} in {namespace}; nothing is changed until it may"
            )
        return None

    def wrote_status(self, kind: ResourceKind, status: Obj, answer: Obj) -> None:
        """Looks at the answer to a write of a status: an API server drops what the definition lacks."""
        if lost := tuple(dict.fromkeys(dropped(status, answer.get("status"), "status"))):
            last = self._fields.setdefault(kind.kind, _LastFields())
            last.lost, last.is_suspect = lost, True

    def was_refused(self, kind: ResourceKind, namespace: str, error: BaseException) -> None:
        """Looks at an error of an act for an object: a right may be gone."""
        last = self._rights.get((kind.kind, namespace))
        if last is not None and isinstance(error, ApiError) and error.status == 403:
            last.is_suspect = True

    def note_unlisted(self, namespaces: Collection[str]) -> None:
        """Records the served namespaces that could not be listed."""
        if found := set(namespaces) - self.unlisted:
            self._log.warning(
                "the operator may not list the objects in %s; nothing is changed there", _shown(sorted(found))
            )
        self.unlisted = frozenset(namespaces)

    def lacking_now(self) -> list[tuple[str, str, str]]:
        """(kind, namespace, reason) of everything that is lacking; a definition has no namespace."""
        found = [(kind, "", DEFINITION_OUTDATED) for kind, last in self._fields.items() if last.lacking]
        found += [("", namespace, RIGHTS_MISSING) for namespace in sorted(self.unlisted)]
        return found + [(*key, RIGHTS_MISSING) for key, last in self._rights.items() if last.lacking]

    async def _lacking_fields(self, kind: ResourceKind, resources: Sequence[Obj]) -> tuple[str, ...]:
        last = self._fields.setdefault(kind.kind, _LastFields())
        specs = {uid_of(one): one.get("spec") for one in resources}
        is_new = any(uid not in last.specs or last.specs[uid] != spec for uid, spec in specs.items())
        now = self._monotonic()
        is_due = now >= last.read_at + (AGAIN_S if last.lacking else READ_EVERY_S)
        if not last.is_suspect and not (is_new and not last.lacking) and not is_due:
            return last.lacking
        definition = await self._read_definition(kind, last)
        last.was_read = last.was_read or definition is not None
        if definition is not None:
            found, last.lost = lacking(self._needed.get(kind.kind, ()), fields_of(definition)), ()
        else:
            found = last.lost if last.is_suspect or now < last.read_at + UNREADABLE_S else ()
        self._note(last, found, f"the CustomResourceDefinition {_definition(kind)} lacks")
        if not found:
            last.lost = ()
            self._writable.clear()
            if len(last.specs) > MOST_SPECS:
                last.specs.clear()
            last.specs |= specs
        if definition is not None or last.is_suspect or not found:
            last.read_at = now
        last.is_suspect = False
        return found

    async def _read_definition(self, kind: ResourceKind, last: _LastFields) -> Obj | None:
        """None when it may not be read: then only a status that lost fields shows that it is older.

        Raises:
            ApiError: for another reason, or although it could be read before.
        """
        try:
            return await self._api.get(DEFINITION, "", _definition(kind))
        except ApiError as error:
            if error.status != 403 or last.was_read:
                raise
            self._log.debug("the CustomResourceDefinition %s may not be read", _definition(kind))
            return None

    async def _lacking_rights(self, kind: ResourceKind, namespace: str) -> tuple[str, ...]:
        last = self._rights.setdefault((kind.kind, namespace), _LastRead())
        now = self._monotonic()
        if not last.is_suspect and not _is_due(last, now):
            return last.lacking
        try:
            lacks = await self._api.lacking_rights(namespace, NEEDED_RIGHTS[kind.kind])
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            lacks = ()  # an API server that reviews nothing; a refused act says what is missing
        self._note(last, tuple(map(str, lacks)), f"for a {kind.kind} in {namespace} the operator may not")
        last.read_at, last.is_suspect = now, False
        return last.lacking

    def _note(self, last: _LastRead, lacking: tuple[str, ...], what: str) -> None:
        if lacking != last.lacking:
            if lacking:
                self._log.warning("%s %s; nothing is changed there until it is otherwise", what, _shown(lacking))
            else:
                self._log.info("nothing is lacking any more: %s what was needed", what)
        last.lacking = lacking


def _is_due(last: _LastRead, now: float) -> bool:
    return bool(last.lacking) and now >= last.read_at + AGAIN_S


def _definition(kind: ResourceKind) -> str:
    return f"{kind.plural}.{GROUP}"


def _shown(lacking: Sequence[str]) -> str:
    more = f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
    return ", ".join(lacking[:SHOWN]) + more


def status_with(resource: Obj, ready: Condition, now: str) -> Obj:
    """The status of an object with another Ready; the rest is as it was."""
    before = resource.get("status") or {}
    conditions = before.get("conditions") or []
    generation = int(dig(resource, "metadata", "generation") or 0)
    changed = merged(conditions, [ready], generation, now)
    others = [item for item in conditions if item.get("type") != READY]
    return {**before, "conditions": sorted([*others, *changed], key=lambda item: str(item["type"]))}
