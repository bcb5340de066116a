"""The conditions of the ZooKeeper ensemble, and their reasons."""

from __future__ import annotations

from ottla_operator.api.condition_reasons import (
    CLUSTER,
    WAIT,
    ZOOKEEPER_READY,
    ConditionType,
    of_cluster,
    usual_reasons,
)

TYPES = (
    ConditionType(CLUSTER, ZOOKEEPER_READY, "The ZooKeeper ensemble is as declared and each of its servers is ready"),
)  # fmt: skip

REASONS = (
    *usual_reasons(ZOOKEEPER_READY),
    of_cluster(
        ZOOKEEPER_READY, "True", "ExistingEnsemble",
        "spec.zookeeper.connect names an ensemble that exists. The operator does not look at it.",
    ),
    of_cluster(
        ZOOKEEPER_READY, "False", "NoSize", "spec.zookeeper.disk.size is absent.", "Set it; Kubernetes needs a size.",
    ),
    of_cluster(
        ZOOKEEPER_READY, "False", "Resizing",
        "Servers join or leave the ensemble, one at a time, until it has spec.zookeeper.replicas. The members serve.",
        "Wait. If it lasts, read in the message which server it waits for and why.",
    ),
    of_cluster(
        ZOOKEEPER_READY, "False", "DiskResizeNotSupported",
        "The size of a disk in spec.zookeeper differs from its claims. The claims keep their size.",
        "Set the size to the one that the message names.",
    ),
    of_cluster(
        ZOOKEEPER_READY, "False", "LogDiskChanged",
        "spec.zookeeper.logDisk was added or removed. The ensemble keeps its transaction logs where they are.",
        "Undo the change.",
    ),
    of_cluster(
        ZOOKEEPER_READY, "False", "ClaimTerminating",
        "The claim of a running server was deleted. The server loses the volume when its pod stops; no roll stops it.",
        "To replace the server, delete its pod while the other servers are ready.",
    ),
    of_cluster(
        ZOOKEEPER_READY, "False", "ClaimLost",
        "Servers do not have the volumes that they served with. Where an empty volume could overwrite the data of the "
        "others, nothing is created.",
        "Restore the claims with their volumes, get the servers that the message names to run, or declare the loss "
        "with the command in the message.",
        needs_person=True,
    ),
    of_cluster(
        ZOOKEEPER_READY, "False", "NodeGone",
        "The volumes of a server are on a node that does not exist any more or is out of service. With "
        "spec.zookeeper.disk.onFailure Replace the server gets new ones while all other servers serve.",
        "Bring the node back, or set onFailure to Replace; get the servers that the message names to run.",
        needs_person=True,
    ),
    of_cluster(
        ZOOKEEPER_READY, "False", "ReplacingServer",
        "A server starts on new volumes and copies the data of the others; one server at a time.", WAIT,
    ),
    of_cluster(
        ZOOKEEPER_READY, "False", "NoQuorum", "Fewer servers than a quorum are ready, so ZooKeeper serves no client.",
        "Read in the message why the servers are not ready; get a majority of them to run.",
    ),
    of_cluster(
        ZOOKEEPER_READY, "False", "WaitingForServers", "Servers are not ready.",
        "If it lasts, read in the message why their pods are not ready.",
    ),
)  # fmt: skip
