"""The conditions of racks, ids and the number of brokers, and their reasons."""

from __future__ import annotations

from ottla_operator.api.condition_reasons import (
    BROKERS_READY,
    CLUSTER,
    RACKS_READY,
    SPREAD_OVER_NODES,
    WAIT,
    ConditionType,
    of_cluster,
    usual_reasons,
)

TYPES = (
    ConditionType(CLUSTER, RACKS_READY, "Every rack exists and each broker runs in its rack"),
    ConditionType(
        CLUSTER, SPREAD_OVER_NODES, "No two brokers run on one node",
        is_needed_for_ready=False,
    ),
)  # fmt: skip

REASONS = (
    *usual_reasons(RACKS_READY),
    *usual_reasons(SPREAD_OVER_NODES, follows_spec=False, may_fail=False),
    of_cluster(
        RACKS_READY, "False", "NodesNotReadable", "The operator may not read nodes and spec.brokers.racks is absent.",
        "Name the racks in spec.brokers.racks, or install the chart with readNodes=true.",
        needs_person=True,
    ),
    of_cluster(
        RACKS_READY, "False", "NoRack", "No node carries the label spec.brokers.rackKey.",
        "Label the nodes, or create the KafkaCluster with a rackKey that they carry.",
        needs_person=True,
    ),
    of_cluster(
        RACKS_READY, "False", "NoNodeInRack", "No node carries a rack that spec.brokers.racks names.",
        "Correct the name, or label or add a node in that rack.",
        needs_person=True,
    ),
    of_cluster(
        RACKS_READY, "False", "RackMismatch", "A broker runs on a node whose rack label is not the broker's rack.",
        "Give the node its label back, or move the pod: delete it once a node of the broker's rack has room.",
        needs_person=True,
    ),
    of_cluster(
        BROKERS_READY, "False", "WaitingForRack", "New brokers need a rack, and there is none; RacksReady says why.",
        "See RacksReady.",
    ),
    of_cluster(
        BROKERS_READY, "False", "WaitingForKafka",
        "No broker answers which replicas there are. A new broker must not get the id of an existing replica, and a "
        "broker is removed only when it is known to be empty.",
        "Get a broker to run; BrokersReady and the pods say what is wrong with them.",
    ),
    of_cluster(
        BROKERS_READY, "False", "NoFreeId",
        "A pool lacks brokers, and no id of its idRange is free: brokers, kept claims of other pools or replicas have "
        "them.",
        "Widen spec.brokers.pools[].idRange, or delete claims of removed brokers that nobody needs.",
        needs_person=True,
    ),
    of_cluster(
        BROKERS_READY, "False", "HoldReplicas",
        "spec.brokers.replicas, or that of a pool, is smaller than the number of brokers, or a pool is not named now, "
        "and the brokers to remove hold replicas.",
        "See what the message says is in the way. With spec.rebalance.mode DryRun or Off: move the replicas with "
        "kafka-reassign-partitions. Or set the number back.",
    ),
    of_cluster(
        BROKERS_READY, "False", "BeingRemoved",
        "A broker is being emptied and then removed (spec.brokers.replicas or pools).", WAIT,
    ),
    of_cluster(
        SPREAD_OVER_NODES, "False", "SharedNode", "Several brokers run on one node, and fail together with it.",
        "Add nodes, or free the ones that there are; then delete one of the pods.",
    ),
    of_cluster(
        BROKERS_READY, "Unknown", "DesiredStateUnknown", "Which brokers there should be is not known; see RacksReady.",
        "See RacksReady.",
    ),
)  # fmt: skip
