"""ElectLeaders (key 43, at the controller; KIP-460): elects preferred replicas, or any where there is no leader.

Behaviour
    Type 0 elects the first replica of the assignment if it is online and in sync; type 1 any online replica of a
    partition without leader, in sync if there is one, else one out of sync, which loses records. Null partitions mean
    all; those that need no election are then left out of the response. The response is sent when this broker knows the
    new leaders.
Rights, in this order
    Alter:Cluster (the cluster): the error of the whole answer (v1+) and of each named partition.
Errors, in this order, for each partition
    CLUSTER_AUTHORIZATION_FAILED. NOT_CONTROLLER. INVALID_REQUEST (an election type that does not exist: for the whole
    response too, from version 1). UNKNOWN_TOPIC_OR_PARTITION. INVALID_TOPIC_EXCEPTION (being deleted).
    ELECTION_NOT_NEEDED (the preferred replica leads; type 1: there is a leader). PREFERRED_LEADER_NOT_AVAILABLE, for
    type 1 ELIGIBLE_LEADERS_NOT_AVAILABLE. REQUEST_TIMED_OUT: elected, not yet known here.
Versions
    0: preferred replicas alone (KIP-183). 1: ElectionType, an error for the whole response (KIP-460). 2: flexible.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla_broker.authorization.resources import CLUSTER_NAME, AclOperation, ResourceType
from ottla_broker.controller.acts.requested_elections import ElectionResult, ElectionType
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(services: Services, context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """One result per partition, sorted by topic and partition."""
    requested = (
        None
        if request.topic_partitions is None
        else {
            TopicPartition(topic.topic, partition): None
            async for topic in context.each(request.topic_partitions)
            async for partition in context.each(topic.partitions)
        }
    )
    if not context.may(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        denial = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        refused = [ElectionResult(partition, denial, None) async for partition in context.each(requested or ())]
        return await _response(context, refused, denial if context.api_version else ErrorCode.NONE)
    try:
        election_type = ElectionType(request.election_type)
    except ValueError:
        error = KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}.")
        return await _response(context, _for_each(requested or (), error), error.code)
    try:
        results = await services.controller.elect_leaders(requested, election_type, timeout_ms=request.timeout_ms)
    except KafkaError as error:
        return await _response(context, _for_each(_all_known(services) if requested is None else requested, error))
    return await _response(context, results)


def _all_known(services: Services) -> list[TopicPartition]:
    topics = services.metadata.topics
    return [TopicPartition(name, partition) for name in sorted(topics) for partition in topics[name].partitions]


def _for_each(partitions: Iterable[TopicPartition], error: KafkaError) -> list[ElectionResult]:
    return [ElectionResult(partition, error.code, error.message) for partition in sorted(partitions)]


async def _response(
    context: RequestContext, results: Iterable[ElectionResult], error: ErrorCode = ErrorCode.NONE
) -> ElectLeadersResponse:
    topics: dict[str, ReplicaElectionResult] = {}
    async for result in context.each(results):
        name, partition = result.partition
        topic = topics.setdefault(name, ReplicaElectionResult(topic=name))
        topic.partition_result.append(
            PartitionResult(partition_id=partition, error_code=int(result.error), error_message=result.message)
        )
    return ElectLeadersResponse(error_code=int(error), replica_election_results=list(topics.values()))
