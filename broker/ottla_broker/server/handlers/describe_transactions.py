"""DescribeTransactions (key 65, at the coordinators; KIP-664): describes transactions by transactional id.

Behaviour
    One result for each id, in the order of the request. The partitions are those of the open transaction; while it is
    ending, those that have no marker yet.
Rights, in this order
    Describe:TransactionalId (each transactional id): the error of the transaction.
    Describe:Topic (each topic of a transaction): left out of the answer.
Errors, in this order, for each id
    COORDINATOR_NOT_AVAILABLE (the broker is stopping), INVALID_REQUEST (an empty one), COORDINATOR_LOAD_IN_PROGRESS,
    NOT_COORDINATOR, TRANSACTIONAL_ID_NOT_FOUND.
Versions
    0 is the only one, and flexible.
"""

from __future__ import annotations

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.protocol.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.transactions.states import STATE_NAMES


async def handle(
    services: Services, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Answers from memory."""
    wanted = await context.distinct(request.transactional_ids)
    return DescribeTransactionsResponse(
        transaction_states=[
            await _describe(services, context, transactional_id) async for transactional_id in context.each(wanted)
        ]
    )


async def _describe(services: Services, context: RequestContext, transactional_id: str) -> TransactionState:
    error, metadata = services.transaction_coordinator.describe(transactional_id)
    if metadata is None:
        return TransactionState(transactional_id=transactional_id, error_code=int(error))
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(index)
    state = TransactionState(
        transactional_id=transactional_id,
        transaction_state=STATE_NAMES[metadata.state],
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_timestamp_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
    )
    hidden = await context.denied_of_many(AclOperation.DESCRIBE, ResourceType.TOPIC, topics, logs=False)
    state.topics = [
        TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items() if topic not in hidden
    ]
    return state
