"""KafkaTopics of a small fleet whose ZooKeeper is somebody else's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from tests.operator.model_based.topic_rules import TopicRules
from tests.operator.model_based.truths import untruths_of_topics

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

    def untruths(self) -> Iterator[str]:
        return untruths_of_topics(self.world)
