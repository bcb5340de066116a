"""Changes objects that exist, also those whose change the API server refuses.

A server-side apply is refused with 422 for three reasons, which further requests tell apart:

    replace it by a PUT   is taken             fields of others are not valid together with ours: ours count
    create it, dry run    is taken             a field of it is immutable: it is deleted, and the next
                                               reconciliation creates it
    create it, dry run    is refused as well   it is not valid, whatever exists: it stays as it is, and the first
                                               error counts

Which fields are immutable is what the API server knows (ValidateStatefulSetUpdate, ValidateJobUpdate and
ValidateConfigMapUpdate of Kubernetes); no list of them is here.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from ottla_operator.api.comparison import differences
from ottla_operator.api.objects import (
    CRON_JOB,
    DISRUPTION_BUDGET,
    JOB,
    KINDS,
    SERVICE,
    STATEFUL_SET,
    Obj,
    ResourceKind,
    dig,
    is_terminating,
    name_of,
    namespace_of,
    uid_of,
)
from ottla_operator.facts.contested_writes import ContestedWrites
from ottla_operator.facts.difference import stamped
from ottla_operator.ports import ApiError, KubernetesApi
from ottla_operator.runtime.object_cache import ObjectCache

_REPLACED = (STATEFUL_SET, JOB, CRON_JOB, SERVICE, DISRUPTION_BUDGET)
"""Kinds that several writers give fields to; the operator has the right to update them."""
_ATTEMPTS = 3
_INVALID = " is invalid: "
"""How an API server begins what its validation has found (NewInvalid of apimachinery). A ValidatingAdmissionPolicy
answers 422 too, with words of its own."""


class ObjectChanges:
    """Changes the objects of one resource, puts the answers into the cache, and notes what others change back."""

    def __init__(
        self,
        cache: ObjectCache,
        api: KubernetesApi,
        contested: ContestedWrites,
        log: logging.Logger,
        recreated: Collection[ResourceKind],
    ) -> None:
        """`recreated`: kinds of which an object may be deleted for a field that is immutable. Never claims."""
        self._cache = cache
        self._api = api
        self._contested = contested
        self._log = log
        self._recreated = recreated

    async def change(self, obj: Obj, live: Obj) -> None:
        """Applies our fields of an existing object, or deletes it so that it can be created with them.

        Raises:
            ApiError: the write was refused, and the object is as it was.
        """
        desired = stamped(obj)
        before = differences(live, desired)
        try:
            answer = await self._api.apply({**desired, "metadata": {**desired["metadata"], "uid": uid_of(live)}})
        except ApiError as error:
            if error.status != 422 or not dig(obj, "metadata", "ownerReferences"):
                raise
            replaced = await self._replace(desired, live, error)
            if replaced is None:
                return
            answer = replaced
        self._contested.note(obj, before, answer)
        self._cache.put(answer)

    async def put_back(self, obj: Obj, live: Obj) -> None:
        """Puts back what others have changed of an object, and makes it ours when nobody owns it.

        Args:
            obj: a part of an object: top-level fields of its spec, labels, its owner. What it does not name stays,
                also what others have written since.

        Raises:
            ApiError: the write was refused, and the object is as it was.
        """
        kind = KINDS[obj["kind"]]
        for attempt in range(_ATTEMPTS):
            current = await self._api.get(kind, namespace_of(live), name_of(live))
            if current is None or uid_of(current) != uid_of(live) or is_terminating(current):
                return
            differing = differences(current, obj)
            if not differing:
                self._cache.put(current)  # the watch is behind
                return
            metadata = dict(current["metadata"])
            metadata["labels"] = {**(metadata.get("labels") or {}), **obj["metadata"]["labels"]}
            if not metadata.get("ownerReferences"):
                metadata["ownerReferences"] = obj["metadata"]["ownerReferences"]
            try:
                answer = await self._api.replace(
                    {**current, "metadata": metadata, "spec": {**current["spec"], **obj["spec"]}}
                )
            except ApiError as error:
                if error.status == 409 and attempt < _ATTEMPTS - 1:
                    continue  # its controller has written its status meanwhile
                raise
            self._log.info("%s %s: others have changed %s; put back", kind.kind, name_of(live), ", ".join(differing))
            self._contested.note(obj, differing, answer)
            self._cache.put(answer)
            return

    async def _replace(self, desired: Obj, live: Obj, refused: ApiError) -> Obj | None:
        """The object as it was replaced; None when it is gone. Raises `refused` where nothing helps."""
        kind = KINDS[desired["kind"]]
        current = await self._api.get(kind, namespace_of(live), name_of(live))
        if current is None or uid_of(current) != uid_of(live):
            return None
        if kind in _REPLACED:
            metadata = dict(current["metadata"])
            for part in ("labels", "annotations"):
                metadata[part] = {**metadata.get(part, {}), **desired["metadata"].get(part, {})}
            try:
                answer = await self._api.replace({**current, **desired, "metadata": metadata})
            except ApiError as error:
                if error.status != 422:
                    raise
            else:
                self._log.info(
                    "%s %s is replaced: fields of others are not valid together with ours", kind.kind, name_of(live)
                )
                return answer
        is_about_fields = _INVALID in refused.message  # a policy of the cluster that says no is not got round
        if kind not in self._recreated or not is_about_fields or not await self._api.is_valid(desired):
            raise refused
        self._log.info("deleting %s %s to create it again: %s", kind.kind, name_of(live), refused.message)
        if await self._api.delete(kind, namespace_of(live), name_of(live), uid_of(live)):
            self._cache.remove(live, is_final=True)
        return None
