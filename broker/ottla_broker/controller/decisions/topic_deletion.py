"""Decides the next step of a topic's deletion: which replicas to delete now, which must wait, when it is complete.

Pure. `decide_deletion` takes one topic that has a marker in /admin/delete_topics. Not here: sending StopReplica and
removing the znodes (`acts.topic_deletions`).

The phases
1. The brokers remove the topic from their metadata (UpdateMetadata with leader -2): clients no longer see it.
2. Every online replica is stopped and deleted. An offline one becomes ineligible and the topic waits; when its broker
   returns, the replica is tried again, as after an error.
3. Once all replicas are deleted the znodes go: partition states, the topic, its configuration, the marker.

The marker outlives a failover: the next controller starts from phase 1, and a broker that has already deleted a replica
answers the second deletion with success.

Source: TopicDeletionManager of Apache Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.replica_states import ReplicaState
from ottla_broker.controller.values import Replica


@dataclass(frozen=True, slots=True)
class DeletionStep:
    """What to do now for one topic. All empty: wait for responses or for a broker."""

    delete: tuple[Replica, ...]
    """Stop and delete these."""
    wait_for: tuple[Replica, ...]
    """These are offline: mark them ineligible."""
    is_complete: bool
    reason: str


def decide_deletion(context: ControllerContext, topic: str) -> DeletionStep:
    """The next step of a topic that is being deleted."""
    delete: list[Replica] = []
    offline: list[Replica] = []
    pending = 0
    replicas = context.replicas_of_topic(topic)
    for replica in replicas:
        state = context.replica_state(replica)
        if state is ReplicaState.DELETION_SUCCESSFUL:
            continue
        pending += 1
        if not context.is_online(replica):
            if state is not ReplicaState.DELETION_INELIGIBLE:
                offline.append(replica)
        elif state is not ReplicaState.DELETION_STARTED:
            delete.append(replica)
    if not pending:
        return DeletionStep((), (), True, f"all {len(replicas)} replicas are deleted")
    return DeletionStep(
        tuple(delete),
        tuple(offline),
        False,
        f"{len(delete)} replicas to delete, {len(offline)} offline, {pending} of {len(replicas)} not yet gone",
    )
