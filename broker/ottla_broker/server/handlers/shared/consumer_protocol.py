"""Whether this broker serves groups of the consumer rebalance protocol (KIP-848)."""

from __future__ import annotations

from ottla_broker.config.features import GROUP_VERSION
from ottla_broker.server.handler_api import Services

CONSUMER_PROTOCOL = "consumer"
FIRST_LEVEL = 1
"""Of the feature group.version."""


def serves_consumer_groups(services: Services) -> bool:
    """Whether group.version is finalized, and `group.coordinator.rebalance.protocols` has `consumer`.

    The key alone does not do it: a broker of Apache Kafka 3.9 in ZooKeeper mode has no such groups, and could become
    the coordinator. A fleet finalizes the feature when all of its brokers are ours.
    """
    level = services.fleet_features.view.finalized.get(GROUP_VERSION, 0)
    return level >= FIRST_LEVEL and CONSUMER_PROTOCOL in services.config.group_coordinator_rebalance_protocols
