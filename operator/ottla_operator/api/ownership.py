"""Which objects belong to a KafkaCluster or a KafkaPipeline: those that it owns, and those that nobody owns any more.

An object with our name and labels and without any owner has lost its owner: `kubectl delete --cascade=orphan`, or a
backup that was restored without owners. It is adopted. An object with another owner is not, also when that is a former
document of the same name: Kubernetes' garbage collector is deleting what a uid owns that does not exist any more.
"""

from __future__ import annotations

from ottla_operator.api import names
from ottla_operator.api.objects import KAFKA_PIPELINE, Obj, dig, is_owned_by, label, name_of, namespace_of


def is_orphan_of(obj: Obj, owner: Obj) -> bool:
    """Whether nobody owns the object, and its labels say that the operator made it for this document.

    >>> owner = {"kind": "KafkaCluster", "metadata": {"name": "orders", "uid": "2"}}
    >>> orphan = {"metadata": {"name": "a", "labels": names.labels("orders", "broker")}}
    >>> of_the_former = {"metadata": {**orphan["metadata"], "ownerReferences": [{"uid": "1"}]}}
    >>> is_orphan_of(orphan, owner), is_orphan_of(of_the_former, owner), is_orphan_of({"metadata": {}}, owner)
    (True, False, False)
    """
    key = names.PIPELINE if owner["kind"] == KAFKA_PIPELINE.kind else names.CLUSTER
    return (
        not dig(obj, "metadata", "ownerReferences")
        and label(obj, key) == name_of(owner)
        and label(obj, "app.kubernetes.io/managed-by") == names.FIELD_MANAGER
        and namespace_of(obj) == namespace_of(owner)
    )


def is_ours(obj: Obj, owner: Obj) -> bool:
    """Whether the document owns the object, or adopts it next."""
    return is_owned_by(obj, owner) or is_orphan_of(obj, owner)
