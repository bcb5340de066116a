"""A KafkaCluster and its KafkaTopics together, with everything that can happen to either."""

from __future__ import annotations

from collections.abc import Iterator

from tests.operator.model_based.cluster_invariants import violations_of_cluster
from tests.operator.model_based.cluster_rules import ClusterRules
from tests.operator.model_based.clusters import ClusterMachine
from tests.operator.model_based.invariants import violations_of_topics
from tests.operator.model_based.topic_rules import TopicRules


class FleetMachine(ClusterRules, TopicRules):
    """The cluster may go while it has topics."""

    document = ClusterMachine.document
    rest_s = ClusterMachine.rest_s

    def violations(self) -> Iterator[str]:
        yield from violations_of_cluster(self.world)
        yield from violations_of_topics(self.world)
