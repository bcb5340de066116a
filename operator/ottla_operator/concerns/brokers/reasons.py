"""The conditions of brokers, their Services, budgets and nodes, and their reasons."""

from __future__ import annotations

from ottla_operator.api.condition_reasons import (
    BROKERS_READY,
    CLUSTER,
    NODES_SCHEDULABLE,
    SERVICES_READY,
    ConditionType,
    of_cluster,
    usual_reasons,
)

TYPES = (
    ConditionType(CLUSTER, BROKERS_READY, "The declared number of brokers is there and each of them is ready"),
    ConditionType(CLUSTER, SERVICES_READY, "The Services and disruption budgets are as declared"),
    ConditionType(
        CLUSTER, NODES_SCHEDULABLE, "No node that runs a broker or ZooKeeper server is cordoned",
        is_needed_for_ready=False,
    ),
)  # fmt: skip

REASONS = (
    *usual_reasons(BROKERS_READY),
    *usual_reasons(SERVICES_READY),
    *usual_reasons(NODES_SCHEDULABLE, follows_spec=False),
    of_cluster(
        SERVICES_READY, "False", "Paused", "Services do not exist, and none is created while spec.paused is true.",
        "Set spec.paused to false.",
    ),
    of_cluster(
        BROKERS_READY, "False", "WaitingToCreate", "New brokers wait for the conditions that the message names.",
        "See those conditions.",
    ),
    of_cluster(
        BROKERS_READY, "False", "WaitingForBrokers", "Brokers are not ready, and not because a roll restarts them.",
        "If it lasts, read in the message why their pods are not ready.",
    ),
    of_cluster(
        BROKERS_READY, "False", "ZooKeeperSessionLost",
        "Brokers have had no session with ZooKeeper for 15 s or more. They serve on, outside of the cluster.",
        "See ZooKeeperReady; look for a network that parts brokers and ZooKeeper.",
    ),
    of_cluster(
        NODES_SCHEDULABLE, "False", "Cordoned",
        "Nodes that run brokers or servers are cordoned; their pods may be evicted, one broker at a time.",
        "Nothing: kubectl drain goes on by itself.",
    ),
    of_cluster(
        NODES_SCHEDULABLE, "False", "VolumesOnNode",
        "Nodes that run brokers or servers are cordoned, and the volumes of these are on the node.",
        "Uncordon the node after its maintenance. If it does not come back: docs/operating/kubernetes-failures.md, "
        "When a node is gone with its disks.",
    ),
    of_cluster(
        NODES_SCHEDULABLE, "False", "EvictionBlocked",
        "A broker on a cordoned node is not evicted now, because another replica or broker is missing.",
        "Nothing; the drain goes on once what the message names is back.",
    ),
)  # fmt: skip
