"""TxnOffsetCommit (key 28).

Behaviour
    Appends the offsets to `__consumer_offsets` as a batch of the producer's transaction (KIP-98), and responds once
    `offsets.commit.required.acks` is met. They take effect with the transaction's commit marker. The transaction is
    verified with its coordinator first (KIP-890). A null metadata becomes an empty one.
Rights, in this order
    Write:TransactionalId (the transactional id): the error in every partition.
    Read:Group (the group): the error in every partition.
    Read:Topic (each topic): the error in each of its partitions.
Errors, per partition, in this order
    UNKNOWN_TOPIC_OR_PARTITION (for these alone; the others are committed), INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, those of the verification (the transaction coordinator's, where
    INVALID_PRODUCER_EPOCH stands for PRODUCER_FENCED; COORDINATOR_LOAD_IN_PROGRESS when it does not answer),
    FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, OFFSET_METADATA_TOO_LARGE, and the errors of the append:
    INVALID_TXN_STATE, INVALID_PRODUCER_EPOCH, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_COMMIT_OFFSET_SIZE,
    REQUEST_TIMED_OUT.
Versions
    1: the client waits when it is throttled. 2: leader epoch (KIP-320); COORDINATOR_LOAD_IN_PROGRESS, which is
    COORDINATOR_NOT_AVAILABLE before. 3: member, group instance id and generation (KIP-447); flexible.
    4: TRANSACTION_ABORTABLE, which is INVALID_TXN_STATE before. 5: the coordinator of the transaction adds the group's
    partition of `__consumer_offsets` to it (both KIP-890).
"""

from __future__ import annotations

from ottla_broker.groups.coordinator import CommittingMember
from ottla_broker.groups.offsets import CommittedOffset
from ottla_broker.internal_topics.topic_log import TransactionalProducer
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.transaction_verification import known_to_client
from ottla_broker.server.handler_api import RequestContext, Services

_FIRST_VERSION_WITH_LOADING = 2
_FIRST_VERSION_WITH_ABORTABLE = 4
_FIRST_VERSION_THAT_ADDS = 5


async def handle(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    results: dict[TopicPartition, ErrorCode] = {}
    commits: dict[TopicPartition, CommittedOffset] = {}
    now_ms = services.clock.now_ms()
    async for topic in context.each(request.topics):
        async for partition in context.each(topic.partitions):
            name = TopicPartition(topic.name, partition.partition_index)
            if services.metadata.partition(topic.name, partition.partition_index) is None:
                results[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            results[name] = ErrorCode.NONE  # keeps the request's order in the response
            commits[name] = CommittedOffset(
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                now_ms,
            )
    if commits:
        errors = await services.group_coordinator.commit_in_transaction(
            request.group_id,
            TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch),
            CommittingMember(request.member_id, request.group_instance_id, request.generation_id),
            commits,
            adds_partition=context.api_version >= _FIRST_VERSION_THAT_ADDS,
        )
        async for name, error in context.each(errors.items()):
            results[name] = _of_version(error, context.api_version)
    topics: dict[str, list[TxnOffsetCommitResponsePartition]] = {}
    async for (topic_name, index), error in context.each(results.items()):
        topics.setdefault(topic_name, []).append(
            TxnOffsetCommitResponsePartition(partition_index=index, error_code=int(error))
        )
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(name=name, partitions=partitions)
            async for name, partitions in context.each(topics.items())
        ]
    )


def _of_version(error: ErrorCode, version: int) -> ErrorCode:
    """Producers before version 2 could crash on COORDINATOR_LOAD_IN_PROGRESS.

    >>> _of_version(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1).name
    'COORDINATOR_NOT_AVAILABLE'
    """
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_VERSION_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return known_to_client(error, knows_abortable=version >= _FIRST_VERSION_WITH_ABORTABLE)
