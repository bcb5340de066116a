"""AlterPartitionReassignments (key 45, at the controller; KIP-455).

Behaviour
    Reassigns partitions to other replicas, or with null cancels a reassignment. A new list replaces the one of a
    reassignment in progress. The response is sent when the reassignment has begun; ListPartitionReassignments shows
    its progress. A partition named twice gets its last list.
Rights, in this order
    Alter:Cluster (the cluster): the error of the whole answer and of each partition.
Errors, in this order
    whole request: CLUSTER_AUTHORIZATION_FAILED (of each partition, too), NOT_CONTROLLER.
    partition: those of `controller.decisions.reassignment_steps`: INVALID_REPLICA_ASSIGNMENT (empty, a broker twice, a
    negative id, one to add that is not alive), INVALID_REPLICATION_FACTOR (v1: as many replicas as before are
    required), NO_REASSIGNMENT_IN_PROGRESS (nothing to cancel),
    INVALID_REPLICA_ASSIGNMENT (no in-sync replica would remain). Then UNKNOWN_TOPIC_OR_PARTITION, also of a topic that
    is being deleted.
Versions
    1: AllowReplicationFactorChange (KIP-860).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla_broker.authorization.resources import CLUSTER_NAME, AclOperation, ResourceType
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.handler_api import RequestContext, Services

MOST_REPLICAS = 1000
"""Of a partition: no fleet has so many brokers."""

_TOGETHER = 100
"""So many partitions are one change of the controller."""


async def handle(
    services: Services, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Answers for every partition, topics in the order of the request."""
    wanted: dict[TopicPartition, tuple[int, ...] | None] = {
        TopicPartition(topic.name, partition.partition_index): (
            None if partition.replicas is None else tuple(partition.replicas)
        )
        async for topic in context.each(request.topics)
        async for partition in context.each(topic.partitions)
    }
    if not context.may(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        denial = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        refused = await _response(context, request, wanted, dict.fromkeys(wanted, denial))
        refused.error_code, refused.error_message = int(denial.code), denial.message
        return refused
    try:
        results: dict[TopicPartition, KafkaError | None] = {
            name: KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"More than {MOST_REPLICAS} replicas.")
            async for name, replicas in context.each(wanted.items())
            if replicas is not None and len(replicas) > MOST_REPLICAS
        }
        names = [name async for name in context.each(wanted) if name not in results]
        async for first in context.each(range(0, len(names) or 1, _TOGETHER), _TOGETHER):
            some = {name: wanted[name] for name in names[first : first + _TOGETHER]}
            results.update(
                await services.controller.alter_reassignments(
                    some, allows_factor_change=request.allow_replication_factor_change
                )
            )
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(
            error_code=int(error.code),
            error_message=error.message,
            allow_replication_factor_change=request.allow_replication_factor_change,
            responses=[],
        )
    return await _response(context, request, wanted, results)


async def _response(
    context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
    wanted: Iterable[TopicPartition],
    results: Mapping[TopicPartition, KafkaError | None],
) -> AlterPartitionReassignmentsResponse:
    topics = {
        topic.name: ReassignableTopicResponse(name=topic.name, partitions=[])
        async for topic in context.each(request.topics)
    }
    async for partition in context.each(wanted):
        refusal = results[partition]
        topics[partition.topic].partitions.append(
            ReassignablePartitionResponse(
                partition_index=partition.partition,
                error_code=int(ErrorCode.NONE if refusal is None else refusal.code),
                error_message=None if refusal is None else refusal.message,
            )
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, responses=list(topics.values())
    )
