"""Writes the objects of one KafkaCluster: server-side applies of what differs, and guarded deletions.

An object that belongs to somebody else is never written. A deletion happens only after an uncached read.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ottla_operator.api import names
from ottla_operator.api.objects import (
    CONFIG_MAP,
    KINDS,
    POD,
    STATEFUL_SET,
    Obj,
    dig,
    has_condition,
    is_owned_by,
    is_terminating,
    name_of,
    uid_of,
)
from ottla_operator.facts.contested_writes import ContestedWrites
from ottla_operator.facts.difference import difference, stamped
from ottla_operator.facts.repairs import beside_template
from ottla_operator.facts.snapshot import BatchProof, Deletion, Snapshot
from ottla_operator.ports import ApiError, KubernetesApi
from ottla_operator.runtime.object_cache import Key, ObjectCache
from ottla_operator.runtime.object_changes import ObjectChanges


@dataclass(frozen=True, slots=True)
class WriteResult:
    """`foreign`: desired objects whose names belong to somebody else. `error`: the first write that failed."""

    foreign: tuple[Obj, ...]
    error: ApiError | None


class ObjectWriter:
    """Writes for one KafkaCluster, and puts the answers into the cache."""

    def __init__(
        self, key: Key, cache: ObjectCache, api: KubernetesApi, contested: ContestedWrites, log: logging.Logger
    ) -> None:
        self._key = key
        self._cache = cache
        self._api = api
        self._changes = ObjectChanges(cache, api, contested, log, (CONFIG_MAP,))
        self._log = log

    async def apply(self, snapshot: Snapshot, desired: Sequence[Obj], repairs: Sequence[Obj] = ()) -> WriteResult:
        """Applies what differs. One object that cannot be written does not stop the others.

        Args:
            repairs: what has to be put back of StatefulSets (`facts.repairs`).
        """
        changed = difference(snapshot, desired)
        foreign = list(changed.foreign)
        failed: ApiError | None = None
        for obj in repairs:
            live = snapshot.get(KINDS[obj["kind"]], name_of(obj))
            assert live is not None, "only what exists is put back"
            try:
                await self._changes.put_back(obj, live)
            except ApiError as error:
                failed = failed or error
        for obj in changed.create:
            kind = KINDS[obj["kind"]]
            try:
                there = await self._api.get(kind, self._key[0], name_of(obj))
                if there is None:
                    self._cache.put(await self._api.apply(stamped(obj)))
                elif dig(there, "metadata", "labels", names.CLUSTER) == self._key[1]:
                    self._cache.put(there)  # ours: the watch is behind
                elif is_owned_by(there, snapshot.resource):  # the label by which it is watched was removed
                    if kind == STATEFUL_SET:  # its template has its turn in a roll
                        there_too = beside_template(there, snapshot.resource, int(dig(obj, "spec", "replicas")))
                        await self._changes.put_back(there_too, there)
                    else:
                        await self._changes.change(obj, there)
                else:
                    foreign.append(obj)
            except ApiError as error:
                failed = failed or error
        for obj in changed.change:
            live = snapshot.get(KINDS[obj["kind"]], name_of(obj))
            assert live is not None, "only what exists is changed"
            try:
                await self._changes.change(obj, live)
            except ApiError as error:
                failed = failed or error
        return WriteResult(tuple(foreign), failed)

    async def delete(
        self,
        deletion: Deletion,
        is_empty: Callable[[int], Awaitable[bool]],
        stop_blocker: Callable[[BatchProof], Awaitable[str]],
    ) -> None:
        """Does one deletion, if uncached reads show that everything that it relies on still holds.

        Args:
            is_empty: whether Kafka, asked now, has no replica on a broker and does not list it.
            stop_blocker: why Kafka's metadata, read now, does not allow to stop a batch; "" when it does.
        """
        there: list[Obj] = []
        for name, uid in ((deletion.name, deletion.uid), *deletion.further):
            live = await self._api.get(deletion.kind, self._key[0], name)
            if live is not None and uid_of(live) == uid and not is_terminating(live):
                there.append(live)
            elif live is not None:
                self._cache.put(live)
        if not there:
            return
        if why := await self._why_pods_differ(deletion):
            self._log.info("%s %s is not deleted: %s", deletion.kind.kind, deletion.name, why)
            return
        if deletion.while_absent is not None:
            kind, name = deletion.while_absent
            if (blocking := await self._api.get(kind, self._key[0], name)) is not None:
                self._cache.put(blocking)
                return
        if deletion.empty_broker is not None and not await is_empty(deletion.empty_broker):
            return
        if deletion.proof is not None and (why := await stop_blocker(deletion.proof)):
            self._log.info("%s %s is not deleted: %s", deletion.kind.kind, deletion.name, why)
            return
        for obj in there:
            self._log.info("deleting %s %s: %s", deletion.kind.kind, name_of(obj), deletion.reason)
            await self._api.delete(deletion.kind, self._key[0], name_of(obj), uid_of(obj))
        for obj in there:
            after = await self._api.get(deletion.kind, self._key[0], name_of(obj))
            if after is None or uid_of(after) != uid_of(obj):
                self._cache.remove(obj, is_final=True)
            else:
                self._cache.put(after)

    async def _why_pods_differ(self, deletion: Deletion) -> str:
        """Which pods are not as a deletion relies on, ready or not ready; "" when none. The cache gets those."""
        differing = []
        for name in (*deletion.while_ready, *deletion.while_unready):
            pod = await self._api.get(POD, self._key[0], name)
            is_ready = pod is not None and not is_terminating(pod) and has_condition(pod, "Ready")
            if is_ready != (name in deletion.while_ready):
                differing.append(f"pod {name} is {'ready by now' if is_ready else 'not ready'}")
                if pod is not None:
                    self._cache.put(pod)
        return ", ".join(differing)
