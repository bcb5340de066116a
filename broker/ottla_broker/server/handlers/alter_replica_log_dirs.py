"""AlterReplicaLogDirs (key 34).

Behaviour
    Starts a future replica of each named replica in the named log directory, and responds; DescribeLogDirs shows the
    progress. The current replica serves until its future replica has caught up. Naming another directory replaces
    the future replica, naming the current one cancels it. A replica that is not here yet will be created in the
    directory: that is how kafka-reassign-partitions places a new one, so the response has an error and the directory
    is recorded. Of a replica named twice the last directory counts.
Rights, in this order
    Alter:Cluster (the cluster): the error in every partition.
Errors, per partition, in this order
    CLUSTER_AUTHORIZATION_FAILED, INVALID_TOPIC_EXCEPTION (the topic's name is too long for the directory name of a
    future log), LOG_DIR_NOT_FOUND (not in log.dirs), KAFKA_STORAGE_ERROR (that directory is offline or full),
    INVALID_REPLICA_ASSIGNMENT (it is cordoned, KIP-1066), KAFKA_STORAGE_ERROR (the replica's directory, or any other
    one, is offline), UNKNOWN_TOPIC_OR_PARTITION (there is no such partition), REPLICA_NOT_AVAILABLE (this broker has
    no replica of it); for both of these the directory is recorded.
Versions
    0: KIP-113. 1: throttling after the answer (KIP-219). 2: flexible.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla_broker.authorization.resources import CLUSTER_NAME, AclOperation, ResourceType
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(
    services: Services, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    targets = {
        TopicPartition(topic.name, index): directory.path
        async for directory in context.each(request.dirs)
        async for topic in context.each(directory.topics)
        async for index in context.each(topic.partitions)
    }
    errors: dict[str, dict[int, ErrorCode]] = {}
    if not context.may(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        found: Mapping[TopicPartition, ErrorCode] = dict.fromkeys(targets, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    else:
        found = await services.replica_manager.alter_log_dirs.alter(targets)
    async for tp, error in context.each(found.items()):
        errors.setdefault(tp.topic, {})[tp.partition] = error
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=int(error))
                    async for index, error in context.each(by_index.items())
                ],
            )
            async for name, by_index in context.each(errors.items())
        ]
    )
