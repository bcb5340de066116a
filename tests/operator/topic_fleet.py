"""KafkaTopics of an in-memory cluster, with the task that reconciles them."""

from __future__ import annotations

import copy
import time
from typing import Any

from ottla_operator.api.objects import KAFKA_TOPIC, Obj, dig
from ottla_operator.runtime.prerequisites import Prerequisites
from ottla_operator.runtime.task_context import TaskContext
from ottla_operator.runtime.topic_task import TopicTask
from tests.operator.fleet import KEY, Fleet

FLIGHTS: dict[str, Any] = {
    "apiVersion": "kafka.ottla.dev/v1alpha1",
    "kind": "KafkaTopic",
    "metadata": {"name": "flights", "namespace": "default"},
    "spec": {"clusterRef": {"name": "orders"}, "partitions": 12, "replicas": 3, "config": {"retention.ms": 604800000}},
}


class Topics:
    """The topics of a running fleet, with their task."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.kubernetes = fleet.kubernetes
        self.kafka = fleet.kafka
        self.restart_operator()

    def restart_operator(self) -> None:
        self.fleet.restart_operator()
        fleet = self.fleet
        prerequisites = Prerequisites(fleet.kubernetes, lambda: float(fleet.environment.passed_s))
        context = TaskContext(fleet.cache, fleet.kubernetes, fleet.environment, time.monotonic, prerequisites)
        self.task = TopicTask(KEY, context, lambda: [0, 1, 2])

    def apply(self, document: dict[str, Any] = FLIGHTS, **spec: Any) -> None:
        name = document["metadata"]["name"]
        there = self.fleet.kubernetes.objects.get(("KafkaTopic", "default", name))
        wanted = copy.deepcopy(document)
        wanted["spec"] |= spec
        wanted["spec"] = {key: value for key, value in wanted["spec"].items() if value is not None}
        self.fleet.kubernetes.put({**(there or wanted), "spec": wanted["spec"]})

    async def settle(self) -> None:
        for _ in range(10):
            writes = len(self.fleet.kubernetes.writes)
            self.task.queue_all()
            while len(self.task.queue):
                await self.task.reconcile_batch()
            if len(self.fleet.kubernetes.writes) == writes:
                return
        raise AssertionError("no rest")

    def there(self, name: str = "flights") -> Obj:
        return self.fleet.kubernetes.there(KAFKA_TOPIC, name)

    def ready(self, name: str = "flights") -> tuple[str, str]:
        condition = dig(self.there(name), "status", "conditions", 0)
        return condition["status"], condition["reason"]

    def message(self, name: str = "flights") -> str:
        return str(dig(self.there(name), "status", "conditions", 0, "message"))

    def is_listed(self, name: str = "flights") -> bool:
        return name in self.fleet.kubernetes.names(KAFKA_TOPIC)


def document(name: str, **spec: Any) -> dict[str, Any]:
    """A KafkaTopic like FLIGHTS; None takes a field away."""
    made = copy.deepcopy(FLIGHTS)
    made["metadata"]["name"] = name
    made["spec"] = {key: value for key, value in (made["spec"] | spec).items() if value is not None}
    return made
