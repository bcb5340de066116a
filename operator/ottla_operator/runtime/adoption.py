"""Whether objects that nobody owns may be adopted now, by an uncached read of the document that would own them.

Kubernetes takes the owners away while it deletes a document with `--cascade=orphan`, and the watch of the objects may
be ahead of that of the documents. What the dying document adopted again would be deleted with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla_operator.api.objects import CLAIM, KINDS, POD, Obj, is_terminating, name_of, namespace_of, uid_of
from ottla_operator.api.ownership import is_orphan_of
from ottla_operator.ports import KubernetesApi

NEVER_OWNED = (CLAIM.kind, POD.kind)


async def may_adopt(api: KubernetesApi, resource: Obj, objects: Iterable[Obj]) -> bool:
    """False when something waits to be adopted, and the document is being deleted or is another one by now.

    Raises:
        ApiError: the document could not be read.
    """
    if not any(obj["kind"] not in NEVER_OWNED and is_orphan_of(obj, resource) for obj in objects):
        return True
    current = await api.get(KINDS[resource["kind"]], namespace_of(resource), name_of(resource))
    return current is not None and uid_of(current) == uid_of(resource) and not is_terminating(current)
