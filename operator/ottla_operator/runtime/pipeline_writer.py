"""Writes the objects of one KafkaPipeline: server-side applies of what differs, deletions, and its status.

An object that belongs to somebody else is never written. A deletion names the uid. What is deleted for a field that is
immutable (`object_changes`) is created when its pods are gone: `concerns.pipelines.pipelines` waits for that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from ottla_operator.api import names
from ottla_operator.api.objects import (
    CONFIG_MAP,
    KINDS,
    Obj,
    dig,
    is_owned_by,
    is_terminating,
    label,
    name_of,
    namespace_of,
    uid_of,
)
from ottla_operator.api.ownership import is_ours
from ottla_operator.concerns.pipelines.pipelines import WORKLOADS
from ottla_operator.facts.contested_writes import ContestedWrites
from ottla_operator.facts.difference import needs_no_write, stamped
from ottla_operator.ports import KubernetesApi
from ottla_operator.runtime.event_writer import emit_events
from ottla_operator.runtime.object_cache import ObjectCache
from ottla_operator.runtime.object_changes import ObjectChanges


class PipelineWriter:
    """Writes, and puts the answers into the cache."""

    def __init__(self, cache: ObjectCache, api: KubernetesApi, contested: ContestedWrites, log: logging.Logger) -> None:
        self._cache = cache
        self._api = api
        self._contested = contested
        self._log = log
        self._changes = ObjectChanges(cache, api, contested, log, (*WORKLOADS, CONFIG_MAP))

    async def apply(self, resource: Obj, desired: Sequence[Obj]) -> list[Obj]:
        """Applies what differs, in order.

        Returns:
            The desired objects whose names belong to somebody else.

        Raises:
            ApiError: a write was refused; what comes after it is not written.
        """
        foreign: list[Obj] = []
        for obj in desired:
            kind = KINDS[obj["kind"]]
            live = self._cache.get(kind, namespace_of(obj), name_of(obj))
            if live is None:
                live = await self._api.get(kind, namespace_of(obj), name_of(obj))  # the watch may be behind
            if live is None:
                self._cache.put(await self._api.apply(stamped(obj)))
            elif not _is_ours(resource, obj, live):
                foreign.append(obj)
            elif not is_terminating(live) and not self._is_as_declared(resource, live, obj):
                await self._changes.change(obj, live)
        return foreign

    def _is_as_declared(self, resource: Obj, live: Obj, obj: Obj) -> bool:
        loses_owner = is_owned_by(live, resource) and not dig(obj, "metadata", "ownerReferences")
        return not loses_owner and needs_no_write(self._contested.known(), live, obj)

    async def delete(self, deletions: Iterable[tuple[Obj, str]]) -> None:
        """Deletes objects, each with its reason. Raises ApiError."""
        for obj, reason in deletions:
            self._log.info("deleting %s %s: %s", obj["kind"], name_of(obj), reason)
            await self._api.delete(KINDS[obj["kind"]], namespace_of(obj), name_of(obj), uid_of(obj))

    async def write_status(self, resource: Obj, status: Obj, transitions: Sequence[Obj]) -> Obj | None:
        """Writes the status where it differs, and its Events. Returns the answer, None when it does not differ.

        Raises:
            ApiError: it was refused.
        """
        if (resource.get("status") or {}) == status:
            return None
        answer = await self._api.replace_status({**resource, "status": status})
        self._cache.put(answer)
        await emit_events(self._api, self._log, transitions)
        return answer


def _is_ours(resource: Obj, desired: Obj, live: Obj) -> bool:
    """Whether the pipeline owns the object, or adopts it; a claim that outlives its pipeline belongs to the next one of
    its name."""
    if is_ours(live, resource):
        return True
    is_claim = desired["kind"] == "PersistentVolumeClaim"
    owners = dig(live, "metadata", "ownerReferences") or []
    return is_claim and not owners and label(live, names.PIPELINE) == name_of(resource)
