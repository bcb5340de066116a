"""A KafkaCluster with an ensemble of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ottla_operator.facts.intervals import RESYNC_S
from tests.operator.model_based.cluster_invariants import violations_of_cluster
from tests.operator.model_based.cluster_rules import ClusterRules

DISK = {"name": "d0", "size": "1Gi", "storageClassName": "grows", "onFailure": "Replace"}
OWN_ENSEMBLE: dict[str, Any] = {
    "apiVersion": "kafka.ottla.dev/v1alpha1",
    "kind": "KafkaCluster",
    "metadata": {"name": "orders", "namespace": "default"},
    "spec": {
        "imageUpdatePolicy": "FollowOperator",  # an upgrade is one of the things that happen
        "brokers": {"replicas": 2, "disks": [DISK]},
        "zookeeper": {"replicas": 3, "disk": {"size": "1Gi", "onFailure": "Replace"}},
    },
}


class ClusterMachine(ClusterRules):
    """No KafkaTopics."""

    document: ClassVar[dict[str, Any]] = OWN_ENSEMBLE
    rest_s: ClassVar[float] = RESYNC_S + 20

    def violations(self) -> Iterator[str]:
        return violations_of_cluster(self.world)
