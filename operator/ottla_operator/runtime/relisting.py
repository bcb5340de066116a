"""Compares a cache with what the API server lists of a kind, page by page."""

from __future__ import annotations

from collections.abc import Callable

from ottla_operator.api.objects import Obj, ResourceKind, dig, uid_of
from ottla_operator.ports import KubernetesApi
from ottla_operator.runtime.object_cache import ObjectCache


async def relist(
    api: KubernetesApi,
    cache: ObjectCache,
    kind: ResourceKind,
    namespace: str | None,
    labels: str,
    on_event: Callable[[str | None, Obj], None],
) -> tuple[list[Obj], str]:
    """Gives each listed object to `on_event`, and removes from the cache what the list does not have. Reads only.

    Args:
        namespace: None: all.
        labels: a label selector; "" matches all.

    Returns:
        What was removed, and the resource version of the list.

    Raises:
        ApiError: it cannot be listed.
    """
    before = frozenset(
        uid_of(obj) for obj in cache.all(kind) if namespace is None or dig(obj, "metadata", "namespace") == namespace
    )
    uids: set[str] = set()
    page = await api.list_page(kind, namespace, labels)
    while True:
        for obj in page.items:
            uids.add(uid_of(obj))
            on_event(None, obj)
        if not page.rest:
            break
        page = await api.list_page(kind, namespace, labels, page.rest)
    return cache.keep_only(kind, before, frozenset(uids)), page.version
