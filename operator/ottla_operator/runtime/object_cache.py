"""What we know of the API server: the newest of what watches delivered and what our own writes were answered with.

A watch may lag behind our writes. An event older than what a write returned is dropped, and so is an event of an object
that we saw deleted; a pass therefore reads its own writes. Resource versions are compared as numbers, which the API
defines for objects of one kind.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping

from ottla_operator.api.names import CLUSTER
from ottla_operator.api.objects import KAFKA_TOPIC, NODE, Obj, ResourceKind, dig, label, name_of, uid_of
from ottla_operator.model.kafka_topic import declared_topic

Key = tuple[str, str]
"""(namespace, name) of a KafkaCluster."""
TOMBSTONES = 10_000


class ObjectCache:
    """Objects by kind, namespace and name, with the objects of each cluster at hand."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[Key, Obj]] = {}
        self._of_cluster: dict[Key, dict[str, dict[str, Obj]]] = {}
        self._of_topic: dict[tuple[Key, str], dict[str, Obj]] = {}
        self._deleted: OrderedDict[str, float] = OrderedDict()
        """By uid: the newest version that is known to be gone."""

    def put(self, obj: Obj) -> bool:
        """Takes an object as a watch or a write gave it; False when it tells nothing new."""
        if _version(obj) <= self._deleted.get(uid_of(obj), -1):
            return False
        key = _key(obj)
        kind = str(obj["kind"])
        before = self._objects.get(kind, {}).get(key)
        if before is not None and uid_of(before) == uid_of(obj) and _version(obj) <= _version(before):
            return False
        self._objects.setdefault(kind, {})[key] = obj
        if before is not None:
            self._unindex(before)
        if (cluster := cluster_of(obj)) is not None:
            self._of_cluster.setdefault(cluster, {}).setdefault(kind, {})[name_of(obj)] = obj
            if kind == KAFKA_TOPIC.kind and (topic := declared_topic(obj)):
                self._of_topic.setdefault((cluster, topic), {})[name_of(obj)] = obj
        return True

    def remove(self, obj: Obj, *, is_final: bool = False) -> bool:
        """Notes that an object is gone, as `obj` shows it last.

        For a watch by label an object is gone, too, when somebody takes its label away, and it comes back with a newer
        version. `is_final`: it does not exist any more, and nothing later is news of it.
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

    def keep_only(self, kind: ResourceKind, known: frozenset[str], found: frozenset[str]) -> list[Obj]:
        """Forgets objects that a list did not have: `known` are the uids before the list, `found` those in it.

        A watch that broke off tells nothing of what was deleted meanwhile.
        """
        gone = [obj for obj in self.all(kind) if uid_of(obj) in known and uid_of(obj) not in found]
        for obj in gone:
            self.remove(obj)
        return gone

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Obj | None:
        return self._objects.get(kind.kind, {}).get((namespace, name))

    def of_cluster(self, cluster: Key) -> Mapping[str, Mapping[str, Obj]]:
        """The objects that carry the label of a cluster, by kind and name."""
        return {kind: dict(objects) for kind, objects in self._of_cluster.get(cluster, {}).items()}

    def of_topic(self, cluster: Key, topic: str) -> list[Obj]:
        """The KafkaTopics of a cluster that name a topic, those that are being deleted among them."""
        return list(self._of_topic.get((cluster, topic), {}).values())

    def all(self, kind: ResourceKind) -> Iterator[Obj]:
        """In the order of namespace and name."""
        objects = self._objects.get(kind.kind, {})
        return (objects[key] for key in sorted(objects))

    def nodes(self) -> tuple[Obj, ...]:
        return tuple(self.all(NODE))

    def _unindex(self, obj: Obj) -> None:
        cluster = cluster_of(obj)
        if cluster is None:
            return
        kinds = self._of_cluster.get(cluster, {})
        kinds.get(str(obj["kind"]), {}).pop(name_of(obj), None)
        if obj["kind"] == KAFKA_TOPIC.kind and (topic := declared_topic(obj)):
            documents = self._of_topic.get((cluster, topic), {})
            documents.pop(name_of(obj), None)
            if not documents:
                self._of_topic.pop((cluster, topic), None)


def cluster_of(obj: Obj) -> Key | None:
    """The cluster that an object belongs to: by its label, a KafkaTopic by its reference."""
    if obj["kind"] == KAFKA_TOPIC.kind:
        name = dig(obj, "spec", "clusterRef", "name")
        return None if not isinstance(name, str) else (str(dig(obj, "metadata", "namespace") or ""), name)
    value = label(obj, CLUSTER)
    return None if value is None else (str(dig(obj, "metadata", "namespace") or ""), value)


def _key(obj: Obj) -> Key:
    return str(dig(obj, "metadata", "namespace") or ""), name_of(obj)


def _version(obj: Obj) -> int:
    text = str(dig(obj, "metadata", "resourceVersion") or "0")
    return int(text) if text.isdecimal() else 0
