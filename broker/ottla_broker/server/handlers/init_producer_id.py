"""InitProducerId (key 22).

Behaviour
    Without a transactional id any broker gives a new producer id with epoch 0, also to a producer that names its
    former one (KIP-360). With a transactional id the transaction coordinator answers: the producer id of the
    transactional id with a raised epoch, which fences every other producer that uses the transactional id. An open
    transaction is aborted first; until its markers are written the producer gets CONCURRENT_TRANSACTIONS.
    From v6 on (KIP-939): with Enable2Pc the transactions of the producer have no timeout. With KeepPreparedTxn an open
    transaction stays open: the producer may end it, and is told with which producer id and epoch it was begun.
Rights, in this order
    Write:TransactionalId (the transactional id): the error of the whole answer.
    IdempotentWrite:Cluster (without one: the cluster, or Write on any topic (KIP-679)): the error of the whole answer.
Errors, in this order
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED (without a transactional id).
    INVALID_REQUEST (producer id without epoch or the other way round; an empty transactional id; KeepPreparedTxn with a
    producer id), TRANSACTIONAL_ID_AUTHORIZATION_FAILED (Enable2Pc without transaction.two.phase.commit.enable),
    INVALID_TRANSACTION_TIMEOUT (not with Enable2Pc), UNKNOWN_SERVER_ERROR (a transactional id of more than 32767
    bytes), COORDINATOR_LOAD_IN_PROGRESS (the partition is loading, or no producer ids can be allocated from ZooKeeper
    at the moment), NOT_COORDINATOR, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, COORDINATOR_NOT_AVAILABLE (the record is
    not committed).
Versions
    1: throttling before the response. 2: flexible. 3: producer id and epoch (KIP-360). 4: PRODUCER_FENCED, which is
    INVALID_PRODUCER_EPOCH before (KIP-588). 5: TRANSACTION_ABORTABLE (KIP-890). 6: two-phase commit (KIP-939).
"""

from __future__ import annotations

from ottla_broker.authorization.resources import CLUSTER_NAME, AclOperation, ResourceType
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.transactions.decisions import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch


async def handle(services: Services, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """With a transactional id it waits until the record is committed."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _failed(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        # Whoever may write to some topic may do so as an idempotent producer (KIP-679).
        if not context.may_any(AclOperation.WRITE, ResourceType.TOPIC) and not context.may(
            AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            return _failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        try:
            producer_id = await services.producer_ids.next_for_producer()
        except KafkaError as error:
            return _failed(error.code)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    answer = await services.transaction_coordinator.initialize(
        request.transactional_id,
        request.transaction_timeout_ms,
        expected,
        has_two_phases=request.enable2_pc,
        keeps_transaction=request.keep_prepared_txn,
    )
    if context.api_version < 4 and answer.error is ErrorCode.PRODUCER_FENCED:
        return _failed(ErrorCode.INVALID_PRODUCER_EPOCH)
    return InitProducerIdResponse(
        error_code=int(answer.error),
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
        ongoing_txn_producer_id=answer.ongoing.producer_id,
        ongoing_txn_producer_epoch=answer.ongoing.producer_epoch,
    )


def _failed(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=int(error), producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
