"""DescribeLogDirs (key 35).

Behaviour
    Every log directory of this broker, in the order of log.dirs, with the requested replicas in it (null topics: all of
    them), their bytes, and their lag in records: of a replica behind the high watermark, of a future replica
    (IsFutureKey) behind the current replica. -1 for a log without a known leader.
Rights, in this order
    Describe:Cluster (the cluster): the error of the whole answer (v3+), no result.
Errors, per directory
    KAFKA_STORAGE_ERROR: it is offline.
Versions
    0: KIP-113. 1: throttling after the response (KIP-219). 2: flexible. 3: an error for the whole response (KIP-784).
    4: bytes of the file system and those that can still be written (KIP-827). 5: whether the directory is cordoned
    (KIP-1066).
"""

from __future__ import annotations

from ottla_broker.protocol.generated.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla_broker.replication.local_replicas.alter_log_dirs import DescribedDirectory
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(
    services: Services, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    wanted: dict[str, dict[int, None]] | None = None
    if request.topics is not None:
        wanted = {}
        async for topic in context.each(request.topics):
            indexes = wanted.setdefault(topic.topic, {})
            async for index in context.each(topic.partitions):
                indexes[index] = None
    return DescribeLogDirsResponse(
        results=[
            await _result(context, directory)
            for directory in await services.replica_manager.alter_log_dirs.describe(wanted)
        ]
    )


async def _result(context: RequestContext, directory: DescribedDirectory) -> DescribeLogDirsResult:
    topics: dict[str, DescribeLogDirsTopic] = {}
    async for replica in context.each(sorted(directory.replicas, key=lambda one: (one.topic_partition, one.is_future))):
        name, index = replica.topic_partition
        if name not in topics:
            topics[name] = DescribeLogDirsTopic(name=name, partitions=[])
        topics[name].partitions.append(
            DescribeLogDirsPartition(
                partition_index=index,
                partition_size=replica.size_bytes,
                offset_lag=replica.offset_lag,
                is_future_key=replica.is_future,
            )
        )
    return DescribeLogDirsResult(
        error_code=int(directory.error),
        log_dir=directory.path,
        topics=list(topics.values()),
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
        is_cordoned=directory.is_cordoned,
    )
