"""People and tools that write KafkaTopics, each with what it has read last: kubectl apply, kubectl edit, GitOps."""

from __future__ import annotations

import copy
from typing import Any

from ottla_operator.api.names import GROUP
from ottla_operator.api.objects import KAFKA_TOPIC, Obj, dig, uid_of
from tests.operator.model_based.world import World, topic_of


class Writer:
    """`seen`: the documents as this writer read them last, by name."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.seen: dict[str, Obj] = {}

    def read(self) -> None:
        self.seen = {document["metadata"]["name"]: document for document in self._world.documents()}

    def apply(self, name: str, spec: dict[str, Any]) -> None:
        """`kubectl apply`: creates, or changes whatever is there."""
        there = self._world.find(KAFKA_TOPIC, name)
        if there is None:
            self._put({"apiVersion": f"{GROUP}/v1alpha1", "kind": "KafkaTopic",
                       "metadata": {"name": name, "namespace": "default"}, "spec": copy.deepcopy(spec)})  # fmt: skip
            return
        wanted = {**there, "spec": copy.deepcopy(spec)}
        if topic_of(wanted) == topic_of(there):  # the CRD refuses the others
            self._put(wanted)

    def edit(self, name: str, field: str, value: Any) -> None:
        """`kubectl edit` of what was read before: refused where it has changed since."""
        seen, there = self.seen.get(name), self._world.find(KAFKA_TOPIC, name)
        if seen is None or there is None or _version(seen) != _version(there):
            return
        spec = {key: item for key, item in seen["spec"].items() if key != field}
        self._put({**seen, "spec": spec if value is None else {**spec, field: value}})

    def delete(self, name: str) -> None:
        there = self._world.find(KAFKA_TOPIC, name)
        if there is None:
            return
        if dig(there, "metadata", "deletionTimestamp") is None:
            self._world.changed_at[uid_of(there)] = self._world.loop.time()
            self._world.kubernetes.remove(KAFKA_TOPIC, name)

    def _put(self, document: Obj) -> None:
        before = self._world.find(KAFKA_TOPIC, document["metadata"]["name"])
        if before is not None and before["spec"] == document["spec"]:
            return
        stored = self._world.kubernetes.put(document)
        self._world.changed_at[uid_of(stored)] = self._world.loop.time()
        self.seen[document["metadata"]["name"]] = stored


def _version(document: Obj) -> str:
    return str(document["metadata"]["resourceVersion"])
