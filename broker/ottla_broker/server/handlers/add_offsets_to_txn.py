"""AddOffsetsToTxn (key 25), at the transaction coordinator: the offsets of a group join a transaction.

Behaviour
    Adds the partition of `__consumer_offsets` that has the group's offsets. TxnOffsetCommit follows, to the group
    coordinator. A producer whose last transaction is still ending waits for it, up to 100 ms.
Rights, in this order
    Write:TransactionalId (the transactional id): the error of the whole answer.
    Read:Group (the group): the error of the whole answer.
Errors, in this order
    COORDINATOR_LOAD_IN_PROGRESS (it is not known how many partitions `__consumer_offsets` has), INVALID_REQUEST,
    COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
    CONCURRENT_TRANSACTIONS, COORDINATOR_NOT_AVAILABLE (the record is not committed).
Versions
    1: throttling before the response. 2: PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH before (KIP-588).
    3: flexible. 4: TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from ottla_broker.config.topics import CONSUMER_OFFSETS
from ottla_broker.internal_topics.partitioning import NO_PARTITION
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.transaction_errors import error_code


async def handle(
    services: Services, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Waits until the record is committed."""
    partition = TopicPartition(CONSUMER_OFFSETS, services.group_coordinator.partitions.index_of(request.group_id))
    if partition.partition == NO_PARTITION:
        return AddOffsetsToTxnResponse(error_code=int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    error = await services.transaction_coordinator.add_partitions(
        request.transactional_id, request.producer_id, request.producer_epoch, [partition], waits_for_end=True
    )
    return AddOffsetsToTxnResponse(error_code=error_code(error, context.api_version))
