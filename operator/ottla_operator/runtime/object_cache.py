"""The newest known version of each object, from watch events and from the answers to our own writes.

A watch may be behind our writes. An event that is older than the answer to a write is dropped, and so is an event of an
object that is known to be deleted; so a reconciliation reads its own writes. Resource versions are compared as numbers,
which the Kubernetes API defines for objects of one kind.
"""

from __future__ import annotations

import math
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ottla_documents.kafka_topic import declared_topic
from ottla_operator.api.names import CLUSTER, PIPELINE
from ottla_operator.api.objects import (
    KAFKA_TOPIC,
    NAMESPACE,
    NODE,
    Obj,
    ResourceKind,
    dig,
    is_terminating,
    label,
    name_of,
    namespace_of,
    uid_of,
)

Key = tuple[str, str]
"""(namespace, name) of a KafkaCluster."""
TOMBSTONES = 10_000
_NOT_KEPT = ("managedFields",)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class ObjectCache:
    """Objects by kind, namespace and name, indexed by cluster and by topic.

    Args:
        owner_of: what the objects are indexed by in place of their cluster.
    """

    def __init__(self, owner_of: Callable[[Obj], Key | None] | None = None) -> None:
        self._owner_of = owner_of or cluster_of
        self._objects: dict[str, dict[Key, Obj]] = {}
        self._of_cluster: dict[Key, dict[str, dict[str, Obj]]] = {}
        self._of_topic: dict[tuple[Key, str], dict[str, Obj]] = {}
        self._deleted: OrderedDict[str, float] = OrderedDict()
        """The newest version that is known to be deleted, by uid."""

    def put(self, obj: Obj) -> bool:
        """Stores an object of a watch event or an answer; False when a version as new is known."""
        if _version(obj) <= self._deleted.get(uid_of(obj), -1):
            return False
        key = _key(obj)
        kind = str(obj["kind"])
        before = self._objects.get(kind, {}).get(key)
        if before is not None and uid_of(before) == uid_of(obj) and _version(obj) <= _version(before):
            return False
        obj = _kept(obj)
        self._objects.setdefault(kind, {})[key] = obj
        if before is not None:
            self._unindex(before)
        if (cluster := self._owner_of(obj)) is not None:
            name = name_in_cluster(cluster, obj)
            self._of_cluster.setdefault(cluster, {}).setdefault(kind, {})[name] = obj
            if kind == KAFKA_TOPIC.kind and (topic := declared_topic(obj)):
                self._of_topic.setdefault((cluster, topic), {})[name] = obj
        return True

    def remove(self, obj: Obj, *, is_final: bool = False) -> bool:
        """Removes an object. `obj` is its last version; False when another object has its name.

        A watch by label also reports an object as deleted when its label is removed; it may come back later.

        Args:
            is_final: the object no longer exists, so no later version of it is accepted.
        """
        uid = uid_of(obj)
        if uid:
            self._deleted[uid] = max(math.inf if is_final else _version(obj), self._deleted.get(uid, -1))
            while len(self._deleted) > TOMBSTONES:
                self._deleted.popitem(last=False)
        key = _key(obj)
        before = self._objects.get(str(obj["kind"]), {}).get(key)
        if before is None or uid_of(before) != uid:
            return False
        del self._objects[str(obj["kind"])][key]
        self._unindex(before)
        return True

    def keep_only(self, kind: ResourceKind, cached_uids: frozenset[str], listed_uids: frozenset[str]) -> list[Obj]:
        """Removes the objects that a list did not have: a broken watch does not report what was deleted meanwhile.

        Args:
            cached_uids: the uids in the cache before the list.
            listed_uids: the uids in the list.
        """
        gone = [obj for obj in self.all(kind) if uid_of(obj) in cached_uids and uid_of(obj) not in listed_uids]
        for obj in gone:
            self.remove(obj)
        return gone

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Obj | None:
        return self._objects.get(kind.kind, {}).get((namespace, name))

    def of_cluster(self, cluster: Key) -> Mapping[str, Mapping[str, Obj]]:
        """The objects of a cluster, by kind and `name_in_cluster`."""
        return {kind: dict(objects) for kind, objects in self._of_cluster.get(cluster, {}).items()}

    def of_topic(self, cluster: Key, topic: str) -> list[Obj]:
        """The KafkaTopics of a cluster that name a topic, terminating ones too."""
        return list(self._of_topic.get((cluster, topic), {}).values())

    def all(self, kind: ResourceKind) -> Iterator[Obj]:
        """The objects of a kind, sorted by namespace and name."""
        objects = self._objects.get(kind.kind, {})
        return (objects[key] for key in sorted(objects))

    def nodes(self) -> tuple[Obj, ...]:
        return tuple(self.all(NODE))

    def is_namespace_terminating(self, namespace: str) -> bool:
        """Whether Kubernetes is deleting the namespace, and everything in it."""
        found = self.get(NAMESPACE, "", namespace)
        return found is not None and is_terminating(found)

    def _unindex(self, obj: Obj) -> None:
        cluster = self._owner_of(obj)
        if cluster is None:
            return
        kinds = self._of_cluster.get(cluster, {})
        name = name_in_cluster(cluster, obj)
        kinds.get(str(obj["kind"]), {}).pop(name, None)
        if obj["kind"] == KAFKA_TOPIC.kind and (topic := declared_topic(obj)):
            documents = self._of_topic.get((cluster, topic), {})
            documents.pop(name, None)
            if not documents:
                self._of_topic.pop((cluster, topic), None)


def cluster_of(obj: Obj) -> Key | None:
    """The cluster that an object belongs to: by its label, a KafkaTopic by its reference."""
    if obj["kind"] == KAFKA_TOPIC.kind:
        name = dig(obj, "spec", "clusterRef", "name")
        namespace = dig(obj, "spec", "clusterRef", "namespace") or namespace_of(obj)
        return (namespace, name) if isinstance(name, str) and isinstance(namespace, str) else None
    value = label(obj, CLUSTER)
    return None if value is None else (namespace_of(obj), value)


def pipeline_of(obj: Obj) -> Key | None:
    """The KafkaPipeline that an object belongs to, by its label."""
    value = label(obj, PIPELINE)
    return None if value is None else (namespace_of(obj), value)


def name_in_cluster(cluster: Key, obj: Obj) -> str:
    """The name of an object of a cluster, for a KafkaTopic of another namespace with that.

    >>> flights = {"metadata": {"name": "flights", "namespace": "team-a"}}
    >>> name_in_cluster(("team-a", "orders"), flights), name_in_cluster(("kafka", "orders"), flights)
    ('flights', 'team-a/flights')
    """
    namespace = namespace_of(obj)
    return name_of(obj) if namespace == cluster[0] else f"{namespace}/{name_of(obj)}"


def _kept(obj: Obj) -> Obj:
    """What is kept of an object: without two fields that are most of it and that nothing reads, and with shared keys.

    >>> _kept({"metadata": {"name": "a", "managedFields": [], "annotations": {_LAST_APPLIED: "{}"}}})
    {'metadata': {'name': 'a', 'annotations': {}}}
    """
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _NOT_KEPT}
    if _LAST_APPLIED in (metadata.get("annotations") or {}):
        annotations = metadata["annotations"]
        metadata["annotations"] = {key: value for key, value in annotations.items() if key != _LAST_APPLIED}
    return {sys.intern(key): _shared(value) for key, value in {**obj, "metadata": metadata}.items()}


def _shared(value: Any) -> Any:
    """The same value: each answer of the API server has its keys as texts of their own."""
    if isinstance(value, dict):
        return {sys.intern(key): _shared(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shared(item) for item in value]
    return value


def _key(obj: Obj) -> Key:
    return namespace_of(obj), name_of(obj)


def _version(obj: Obj) -> int:
    text = str(dig(obj, "metadata", "resourceVersion") or "0")
    return int(text) if text.isdecimal() else 0
