"""The KubernetesApi port around another one: it reports every write, and whether it failed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from ottla_operator.api.objects import Obj, ResourceKind
from ottla_operator.api.rights import Right
from ottla_operator.ports import ApiError, KubernetesApi, ListPage

_Result = TypeVar("_Result")


class CountedApi:
    """Passes every call on.

    Args:
        wrote: gets verb, kind and whether the call failed, after each call that may change something.
    """

    def __init__(self, api: KubernetesApi, wrote: Callable[[str, str, bool], None]) -> None:
        self._api = api
        self._wrote = wrote

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Obj | None:
        return await self._api.get(kind, namespace, name)

    async def list(self, kind: ResourceKind, namespace: str | None, selector: str, fields: str = "") -> Sequence[Obj]:
        return await self._api.list(kind, namespace, selector, fields)

    async def list_page(self, kind: ResourceKind, namespace: str | None, selector: str, rest: str = "") -> ListPage:
        return await self._api.list_page(kind, namespace, selector, rest)

    async def create(self, obj: Obj) -> Obj:
        return await self._counted("create", obj["kind"], self._api.create(obj))

    async def is_valid(self, obj: Obj) -> bool:
        return await self._api.is_valid(obj)

    async def apply(self, obj: Obj) -> Obj:
        return await self._counted("apply", obj["kind"], self._api.apply(obj))

    async def replace_status(self, obj: Obj) -> Obj:
        return await self._counted("status", obj["kind"], self._api.replace_status(obj))

    async def set_finalizers(
        self, obj: Obj, finalizers: Sequence[str], annotations: Mapping[str, str | None] | None = None
    ) -> Obj:
        return await self._counted("finalizers", obj["kind"], self._api.set_finalizers(obj, finalizers, annotations))

    async def replace(self, obj: Obj) -> Obj:
        return await self._counted("replace", obj["kind"], self._api.replace(obj))

    async def delete(self, kind: ResourceKind, namespace: str, name: str, uid: str) -> bool:
        return await self._counted("delete", kind.kind, self._api.delete(kind, namespace, name, uid))

    async def lacking_rights(self, namespace: str, wanted: Sequence[Right]) -> Sequence[Right]:
        return await self._api.lacking_rights(namespace, wanted)

    async def _counted(self, verb: str, kind: str, call: Awaitable[_Result]) -> _Result:
        try:
            result = await call
        except ApiError:
            self._wrote(verb, kind, True)
            raise
        self._wrote(verb, kind, False)
        return result
