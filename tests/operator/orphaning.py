"""Objects that lose their owners: `kubectl delete --cascade=orphan`, and a backup that is restored without owners."""

from __future__ import annotations

from ottla_operator.api.objects import KINDS, Obj, ResourceKind, dig, name_of, uid_of
from tests.operator.kubernetes import InMemoryKubernetes


def strip_owners(kubernetes: InMemoryKubernetes, owner: Obj) -> None:
    """As the garbage collector does it before it deletes an owner that orphans."""
    for obj in list(kubernetes.objects.values()):
        owners = dig(obj, "metadata", "ownerReferences") or []
        if any(one["uid"] == uid_of(owner) for one in owners):
            left = [one for one in owners if one["uid"] != uid_of(owner)]
            metadata = {key: value for key, value in obj["metadata"].items() if key != "ownerReferences"}
            kubernetes.put({**obj, "metadata": {**metadata, **({"ownerReferences": left} if left else {})}})


def delete_and_orphan(kubernetes: InMemoryKubernetes, kind: ResourceKind, name: str) -> Obj:
    """Deletes a document and leaves what it owned. Returns the document, without its status."""
    owner = kubernetes.there(kind, name)
    strip_owners(kubernetes, owner)
    kubernetes.remove(kind, name)
    return {key: value for key, value in owner.items() if key != "status"}


def ownerless(kubernetes: InMemoryKubernetes, owner: Obj) -> list[str]:
    """The objects of our manager that `owner` does not own, but for claims and the Secret, which is used as it is."""
    return sorted(
        f"{kind}/{name}"
        for (kind, _, name), obj in kubernetes.objects.items()
        if dig(obj, "metadata", "labels", "app.kubernetes.io/managed-by") == "ottla-operator"
        and KINDS[kind].kind not in ("PersistentVolumeClaim", "Pod", "Secret")
        and not any(one["uid"] == uid_of(owner) for one in dig(obj, "metadata", "ownerReferences") or [])
        and name_of(obj) != name_of(owner)
    )
