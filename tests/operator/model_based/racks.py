"""A KafkaCluster whose racks have two brokers each, so that its rolls have batches of two."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

from hypothesis.stateful import rule

from tests.operator.model_based.clusters import OWN_ENSEMBLE, ClusterMachine

PARTITIONS = [("data", 0, (0, 1)), ("data", 1, (1, 2)), ("data", 2, (2, 3)), ("data", 3, (3, 0)), ("one", 0, (0, 2))]
"""Brokers 0 and 2 share a rack, and 1 and 3; the partition of topic one has both its replicas in one."""


def _two_racks() -> dict[str, Any]:
    document = copy.deepcopy(OWN_ENSEMBLE)
    document["spec"]["brokers"] |= {"replicas": 4, "racks": ["zone-a", "zone-b"]}
    document["spec"]["rebalance"] = {"mode": "Off"}  # so that only rolls change orders of replicas, for a moment
    return document


class RackMachine(ClusterMachine):
    """As a cluster, with more brokers and partitions."""

    document: ClassVar[dict[str, Any]] = _two_racks()

    def __init__(self) -> None:
        super().__init__()
        self.world.kafka.partitions = list(PARTITIONS)

    @rule()
    def topic_one_may_lose_a_replica(self) -> None:
        self.world.kafka.minimums = {"one": 1}

    def at_rest(self) -> None:
        super().at_rest()
        assert self.world.kafka.partitions == PARTITIONS, "every order of replicas is as it was"
