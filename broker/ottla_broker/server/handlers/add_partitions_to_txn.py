"""AddPartitionsToTxn (key 24), at the transaction coordinator: adds partitions to a transaction, or verifies them.

Behaviour
    Versions 0 to 3 come from producers and name one transaction. Versions 4 and above come from brokers and name any
    number; each is handled on its own, and with VerifyOnly nothing is added: the leader of a partition asks whether
    it is in the transaction; without VerifyOnly it adds the partition for a producer of transaction.version 2 (both
    KIP-890). A producer whose last transaction is still ending waits for it, up to 100 ms, on its own connection; a
    broker's request does not, as it speaks for several producers. One partition that does not exist, or that a
    producer names of an internal topic, keeps out all others of its transaction.
Rights, in this order
    ClusterAction:Cluster (a request of a broker (v4+)): the error of the whole answer.
    Write:TransactionalId (the transactional id (v0 to v3)): the error in every partition.
    Write:Topic (each topic (v0 to v3)): the error in its partitions, OPERATION_NOT_ATTEMPTED in all others.
Errors, in this order, per partition
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED (also for an internal topic, from a producer: its
    offsets get there with AddOffsetsToTxn),
    UNKNOWN_TOPIC_OR_PARTITION, OPERATION_NOT_ATTEMPTED (another one of the transaction has one of these),
    INVALID_REQUEST, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
    CONCURRENT_TRANSACTIONS, TRANSACTION_ABORTABLE (VerifyOnly, and not in the transaction), COORDINATOR_NOT_AVAILABLE
    (the record is not committed).
Versions
    1: throttling before the response. 2: PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH before (KIP-588).
    3: flexible. 4: several transactions, VerifyOnly. 5: TRANSACTION_ABORTABLE (both KIP-890).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set

from ottla_broker.authorization.access import NOTHING
from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.config import INTERNAL_TOPICS
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.transaction_errors import error_code

_FIRST_VERSION_FROM_BROKERS = 4
_FIRST_VERSION_2 = 5
"""A broker that adds partitions with it does so for a producer of transaction.version 2."""


async def handle(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Waits until the records of all transactions are committed."""
    version = context.api_version
    if version < _FIRST_VERSION_FROM_BROKERS:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        partitions = await _partitions(context, transaction)
        if not context.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id):
            refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=await _results(context, dict.fromkeys(partitions, refusal))
            )
        names = (partition.topic for partition in partitions)
        denied = await context.denied_of_many(AclOperation.WRITE, ResourceType.TOPIC, names)
        errors = await _refused(services, context, partitions, denied)
        if not errors:
            errors = await _handle_transaction(services, transaction, version, partitions)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _results(context, errors))
    refused: dict[int, Mapping[TopicPartition, ErrorCode]] = {}
    running: dict[int, asyncio.Task[Mapping[TopicPartition, ErrorCode]]] = {}
    async for number, transaction in context.each(enumerate(request.transactions), 10):
        partitions = await _partitions(context, transaction)
        errors = await _refused(services, context, partitions)
        if errors:
            refused[number] = errors
        else:
            handled = _handle_transaction(services, transaction, version, partitions)
            running[number] = services.clock.spawn(handled, name="add partitions to a transaction")
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=await _results(context, refused.get(number) or await running[number]),
            )
            async for number, transaction in context.each(enumerate(request.transactions))
        ]
    )


async def _handle_transaction(
    services: Services,
    transaction: AddPartitionsToTxnTransaction,
    version: int,
    partitions: Sequence[TopicPartition],
) -> Mapping[TopicPartition, ErrorCode]:
    is_from_producer = version < _FIRST_VERSION_FROM_BROKERS
    coordinator = services.transaction_coordinator
    transaction_version = 2 if version >= _FIRST_VERSION_2 else 0
    producer = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return coordinator.verify_partitions(*producer, partitions)
    error = await coordinator.add_partitions(*producer, partitions, transaction_version, waits_for_end=is_from_producer)
    return dict.fromkeys(partitions, error)


async def _partitions(context: RequestContext, transaction: AddPartitionsToTxnTransaction) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index)
        async for topic in context.each(transaction.topics)
        async for index in context.each(topic.partitions)
    ]


async def _refused(
    services: Services,
    context: RequestContext,
    partitions: Sequence[TopicPartition],
    denied: Set[str] = NOTHING,
) -> Mapping[TopicPartition, ErrorCode]:
    """The errors of a transaction with a partition that cannot be added, empty without one."""
    is_from_producer = context.api_version < _FIRST_VERSION_FROM_BROKERS
    refused: dict[TopicPartition, ErrorCode] = {}
    async for one in context.each(partitions):
        if one.topic in denied or (is_from_producer and one.topic in INTERNAL_TOPICS):
            refused[one] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif services.metadata.partition(one.topic, one.partition) is None:
            refused[one] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not refused:
        return {}
    return {
        partition: refused.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED)
        async for partition in context.each(partitions)
    }


async def _results(
    context: RequestContext, errors: Mapping[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    async for (topic, index), error in context.each(errors.items()):
        result = AddPartitionsToTxnPartitionResult(
            partition_index=index, partition_error_code=error_code(error, context.api_version)
        )
        topics.setdefault(topic, []).append(result)
    return [AddPartitionsToTxnTopicResult(name=name, results_by_partition=results) for name, results in topics.items()]
