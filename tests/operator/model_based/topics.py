"""KafkaTopics of a small fleet whose ZooKeeper is somebody else's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from tests.operator.model_based.invariants import violations_of_topics
from tests.operator.model_based.topic_rules import TopicRules

SMALL: dict[str, Any] = {
    "apiVersion": "kafka.ottla.dev/v1alpha1",
    "kind": "KafkaCluster",
    "metadata": {"name": "orders", "namespace": "default"},
    "spec": {
        "brokers": {"replicas": 2, "disks": [{"name": "d0", "size": "1Gi"}]},
        "zookeeper": {"connect": "zk:2181"},
    },
}


class TopicMachine(TopicRules):
    """The cluster only stands by."""

    document: ClassVar[dict[str, Any]] = SMALL
    standing_by: ClassVar[int] = 2
    begin_s: ClassVar[float] = 1.0

    def violations(self) -> Iterator[str]:
        return violations_of_topics(self.world)
