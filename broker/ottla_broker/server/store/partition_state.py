"""A partition's assignment and state in the coordination store, as the LeaderAndIsr that the controller would send."""

from __future__ import annotations

from ottla_broker.coordination import znodes
from ottla_broker.ports import Coordination
from ottla_broker.ports.coordination import NoNode
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.replica_states.commands import LeadershipCommand


async def read_assignment(coordination: Coordination, topic: str) -> znodes.TopicAssignment | None:
    """None for a topic that is gone. CoordinationError, ZnodeError."""
    try:
        data, _ = await coordination.get(znodes.topic_path(topic))
    except NoNode:
        return None
    return znodes.TopicAssignment.decode(topic, data)


async def read_command(
    coordination: Coordination, partition: TopicPartition, assignment: znodes.TopicAssignment | None
) -> LeadershipCommand | None:
    """The LeaderAndIsr of the partition's state; None for a partition that is gone. CoordinationError,
    ZnodeError."""
    replicas = () if assignment is None else assignment.partitions.get(partition.partition, ())
    if assignment is None or not replicas:
        return None
    try:
        data, stat = await coordination.get(znodes.PartitionStateZnode.path(*partition))
    except NoNode:
        return None
    state = znodes.PartitionStateZnode.decode(*partition, data)
    return LeadershipCommand(
        partition,
        ZERO_UUID if assignment.topic_id is None else assignment.topic_id.bytes,
        state.leader,
        state.leader_epoch,
        stat.version,
        state.controller_epoch,
        state.isr,
        tuple(replicas),
        False,
    )
