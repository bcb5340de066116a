"""Kubernetes objects as mappings, and functions that read them.

Objects are built in `concerns`, read and written in `effects`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla_operator.api.names import GROUP

Obj = dict[str, Any]
"""One object, as in JSON. It is never changed in place."""


class ResourceKind(NamedTuple):
    """A kind of object and its place in the API. `plural`: the name in URLs."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True


CONFIG_MAP = ResourceKind("v1", "ConfigMap", "configmaps")
SECRET = ResourceKind("v1", "Secret", "secrets")
SERVICE = ResourceKind("v1", "Service", "services")
POD = ResourceKind("v1", "Pod", "pods")
CLAIM = ResourceKind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
VOLUME = ResourceKind("v1", "PersistentVolume", "persistentvolumes", namespaced=False)
NODE = ResourceKind("v1", "Node", "nodes", namespaced=False)
EVENT = ResourceKind("v1", "Event", "events")
NAMESPACE = ResourceKind("v1", "Namespace", "namespaces", namespaced=False)
STATEFUL_SET = ResourceKind("apps/v1", "StatefulSet", "statefulsets")
JOB = ResourceKind("batch/v1", "Job", "jobs")
CRON_JOB = ResourceKind("batch/v1", "CronJob", "cronjobs")
SERVICE_ACCOUNT = ResourceKind("v1", "ServiceAccount", "serviceaccounts")
ROLE = ResourceKind("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING = ResourceKind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
DISRUPTION_BUDGET = ResourceKind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
STORAGE_CLASS = ResourceKind("storage.k8s.io/v1", "StorageClass", "storageclasses", namespaced=False)
DEFINITION = ResourceKind(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
LEASE = ResourceKind("coordination.k8s.io/v1", "Lease", "leases")
KAFKA_CLUSTER = ResourceKind(f"{GROUP}/v1alpha1", "KafkaCluster", "kafkaclusters")
KAFKA_TOPIC = ResourceKind(f"{GROUP}/v1alpha1", "KafkaTopic", "kafkatopics")
KAFKA_PIPELINE = ResourceKind(f"{GROUP}/v1alpha1", "KafkaPipeline", "kafkapipelines")
KINDS = {
    kind.kind: kind
    for kind in (
        CONFIG_MAP, SECRET, SERVICE, POD, CLAIM, VOLUME, NODE, EVENT, NAMESPACE, STATEFUL_SET, DISRUPTION_BUDGET,
        STORAGE_CLASS, LEASE, KAFKA_CLUSTER, KAFKA_TOPIC, KAFKA_PIPELINE, JOB, CRON_JOB, SERVICE_ACCOUNT,
        ROLE, ROLE_BINDING, DEFINITION,
    )
}  # fmt: skip


def new(kind: ResourceKind, namespace: str, name: str, labels: Mapping[str, str], **parts: Any) -> Obj:
    """An object with its metadata. `parts`: its top-level fields, such as spec or data."""
    metadata = {"name": name, "namespace": namespace, "labels": dict(labels)}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **parts}


def dig(value: Any, *path: str | int) -> Any:
    """The value at a path; None where the path ends early.

    >>> dig({"spec": {"disks": [{"name": "d0"}]}}, "spec", "disks", 0, "name")
    'd0'
    >>> dig({"spec": {}}, "spec", "disks", 0, "name") is None
    True
    """
    for key in path:
        if type(value) is dict:  # what was JSON; to ask an abstract class is several times as slow
            value = value.get(key)
        elif isinstance(key, str):
            value = value.get(key) if isinstance(value, Mapping) else None
        else:
            value = value[key] if isinstance(value, list) and -len(value) <= key < len(value) else None
        if value is None:
            return None
    return value


def name_of(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def namespace_of(obj: Obj) -> str:
    """ "" for an object without a namespace."""
    return str(dig(obj, "metadata", "namespace") or "")


def uid_of(obj: Obj) -> str:
    return str(obj["metadata"].get("uid", ""))


def label(obj: Obj, key: str) -> str | None:
    value = dig(obj, "metadata", "labels", key)
    return None if value is None else str(value)


def lasting_label(obj: Obj, key: str) -> str | None:
    """The label; that of a StatefulSet as its selector has it, which nobody can change."""
    value = dig(obj, "spec", "selector", "matchLabels", key) if obj.get("kind") == STATEFUL_SET.kind else None
    return label(obj, key) if value is None else str(value)


def annotation(obj: Obj, key: str) -> str | None:
    value = dig(obj, "metadata", "annotations", key)
    return None if value is None else str(value)


def is_terminating(obj: Obj) -> bool:
    """Whether the object has a deletionTimestamp."""
    return dig(obj, "metadata", "deletionTimestamp") is not None


def owner_reference(owner: Obj) -> Obj:
    """The controller reference to `owner`: Kubernetes deletes the object after its owner."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_owned_by(obj: Obj, owner: Obj) -> bool:
    references = dig(obj, "metadata", "ownerReferences") or []
    return any(reference.get("uid") == uid_of(owner) for reference in references)


def owned(obj: Obj, owner: Obj) -> Obj:
    """`obj` with the owner reference of `owner`."""
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [owner_reference(owner)]}}


def has_condition(obj: Obj, kind: str, status: str = "True") -> bool:
    conditions = dig(obj, "status", "conditions") or []
    return any(item.get("type") == kind and item.get("status") == status for item in conditions)


def short_hash(value: Any) -> str:
    """Ten hexadecimal digits that stand for a value of JSON types."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


def by_name(objects: Iterable[Obj]) -> dict[str, Obj]:
    return {name_of(obj): obj for obj in objects}
