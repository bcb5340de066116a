"""Produce (key 0): appends one batch per partition.

Behaviour
    Each batch is checked, gets its offsets and is queued for its disk before this returns. The response is sent as
    `acks` says: 0 and 1, when the batches are written here; -1, when every in-sync replica has them (at most
    TimeoutMs). With acks=0 no response is sent, but the request counts as in flight until then, so that a slow disk
    slows its clients and does not fill the memory; an error closes the connection, so that the client looks up the
    leader again.
    Message formats 0 and 1 (v0-v2) are stored as format 2. They, and batches of topics with another codec or
    with checks of single records, go through `replication.append_queue`, where they may wait for a worker. A batch
    that begins a transaction in its partition goes through `replication.transaction_verification`, where it waits for
    the transaction coordinator (KIP-890); from v12 on the coordinator adds the partition to the transaction, whatever
    level of transaction.version is finalized: a client that sends these versions does not add it.
Rights, in this order
    Write:TransactionalId (the transactional id, with a transactional batch): the error in every partition.
    Write:Topic (each topic): the error in each of its partitions.
Errors, in this order
    whole request: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_REQUIRED_ACKS, INVALID_PRODUCER_ID_MAPPING
    (transactional batches of several producers).
    partition: TOPIC_AUTHORIZATION_FAILED, INVALID_TOPIC_EXCEPTION (an internal topic, from another client than Kafka's
    admin client), UNKNOWN_TOPIC_ID (v13: an unknown id, or not that of the replica here), UNKNOWN_TOPIC_OR_PARTITION,
    NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR (as NOT_LEADER_OR_FOLLOWER before v4),
    INVALID_RECORD (from v3: no batch, or format 0 or 1), UNSUPPORTED_COMPRESSION_TYPE (zstd before v7),
    NOT_ENOUGH_REPLICAS, then what the log refuses (`storage.Log.append_as_leader`; a transactional batch without a
    transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED), then what the verification says of a transaction
    (INVALID_TXN_STATE, or TRANSACTION_ABORTABLE from v11; INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING;
    NOT_ENOUGH_REPLICAS when the transaction coordinator cannot say now), then what `records.preparation` refuses
    (MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, with record errors from v8); later
    REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER.
Versions
    1: throttle time. 2: message format 1 is allowed. 3: transactional id, message format 2 is required.
    4: KAFKA_STORAGE_ERROR. 5: log start offset, with most refusals too. 7: zstd (KIP-110). 8: record errors (KIP-467).
    9: flexible.
    10: CurrentLeader and NodeEndpoints (KIP-951). 11: TRANSACTION_ABORTABLE may be answered (KIP-890).
    12: partitions are added to the transaction (KIP-890). 13: topic ids (KIP-516).
"""

from __future__ import annotations

import logging
from collections.abc import Set
from functools import partial
from typing import NamedTuple

from ottla_broker.authorization.access import NOTHING
from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.config.topics import INTERNAL_TOPICS
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla_broker.records.batch import HEADER_BYTES, MAGIC, read_header
from ottla_broker.records.errors import NotOneBatch, RecordsRejected
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.delayed import DelayedProduce
from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.transaction_verification import not_in_transaction
from ottla_broker.server.handler_api import RequestContext, Respond, Services
from ottla_broker.server.handlers.shared.leader_hints import NodeHints, current_leader
from ottla_broker.server.handlers.shared.produce_parts import handle_in_parts
from ottla_broker.storage.log.append_checks import AppendInfo, PreparationNeeded
from ottla_broker.storage.log.verification import (
    FROM_CLIENT,
    FROM_CLIENT_THAT_ADDS_NOTHING,
    TransactionalAppend,
    VerificationNeeded,
)

logger = logging.getLogger("ottla.server")

_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)
_MAGIC_OFFSET = 16
_CODEC_OFFSET = 22
_ZSTD = 4
_TIMED_OUT = int(ErrorCode.REQUEST_TIMED_OUT)
_ADMIN_CLIENT = "__admin_client"
_FIRST_VERSION_OF_FORMAT_2 = 3
_FIRST_VERSION_WITH_STORAGE_ERRORS = 4
_FIRST_VERSION_WITH_ZSTD = 7
_FIRST_VERSION_WITH_HINTS = 10
_FIRST_VERSION_WITH_ABORTABLE = 11
_FIRST_VERSION_THAT_ADDS = 12
_FIRST_VERSION_WITH_TOPIC_IDS = 13
_KNOWN_REFUSALS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""Apache Kafka sends them without the log start offset, and any other with it: a producer whose state has expired
learns from it whether its records were deleted."""
_OLD_FORMAT = KafkaError(ErrorCode.INVALID_RECORD, "from version 3 on a produce request carries batches of format 2")


def handle(
    services: Services, context: RequestContext, request: ProduceRequest, respond: Respond[ProduceResponse]
) -> None:
    """Responds through `respond` once; with None for acks=0."""
    manager = services.replica_manager
    version = context.api_version
    if version >= _FIRST_VERSION_WITH_TOPIC_IDS:
        _resolve_topic_ids(manager, request)
    if manager.paused and manager.alter_log_dirs.wait_for_swap(
        request.topic_data, partial(handle, services, context, request, respond)
    ):
        return
    acks = request.acks
    denied: Set[str] = NOTHING
    if context.connection.access is not None:
        denied = context.denied(AclOperation.WRITE, ResourceType.TOPIC, [topic.name for topic in request.topic_data])
        if request.transactional_id is not None and not _may_write_transactions(
            context, request, request.transactional_id
        ):
            if acks == 0:
                context.close_connection("a produce request with acks=0 may not use its transactional id")
            else:
                respond(_refusal_of_all(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
            return
    if acks not in (1, -1, 0):
        respond(_refusal_of_all(request, ErrorCode.INVALID_REQUIRED_ACKS))
        return
    transaction = None
    if request.transactional_id is not None:
        transaction = FROM_CLIENT if version < _FIRST_VERSION_THAT_ADDS else FROM_CLIENT_THAT_ADDS_NOTHING
        if _has_several_producers(request):
            if acks == 0:
                context.close_connection("a produce request with acks=0 has transactional batches of several producers")
            else:
                respond(_refusal_of_all(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
            return
    response = ProduceResponse(responses=[])
    delayed = DelayedProduce(partial(_finish, services, context, respond, response, acks))
    delayed.pending = 1  # this function, until it has handled every partition
    waiting: _WaitingBatches | None = None
    for topic in request.topic_data:
        name = topic.name
        by_index = manager.topics.get(name)
        is_read_only = name in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT
        entries: list[PartitionProduceResponse] = []
        response.responses.append(TopicProduceResponse(name=name, topic_id=topic.topic_id, partition_responses=entries))
        for data in topic.partition_data:
            index = data.index
            entry = PartitionProduceResponse(index=index)
            entries.append(entry)
            partition = None if by_index is None else by_index.get(index)
            # The reader gives slices of the frame.
            records: memoryview | None = data.records  # type: ignore[assignment]
            if name in denied:
                _refuse(entry, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), context, acks, name)
                entry.error_message = None
                continue
            if partition is None or is_read_only or partition.log.state.is_failed:
                if not name and version >= _FIRST_VERSION_WITH_TOPIC_IDS:
                    refusal = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                else:
                    refusal = _refusal(services, name, index, partition, is_read_only)
                _refuse(entry, refusal, context, acks, name)
                if records is not None and acks != 0:
                    topic_id = topic.topic_id if topic.topic_id != ZERO_UUID else manager.metadata.topic_id(name)
                    manager.refused_batches.on_refusal(
                        refusal.code, TopicPartition(name, index), topic_id, records, None
                    )
                continue
            if (records is None or version < _FIRST_VERSION_WITH_ZSTD) and (error := _format_error(records, version)):
                _refuse(entry, error, context, acks, name)
                continue
            assert records is not None
            try:
                info = partition.append(records, acks, False, transaction)
            except KafkaError as refusal:
                _refuse(entry, refusal, context, acks, name, partition, records)
            except (PreparationNeeded, VerificationNeeded) as needed:
                if version >= _FIRST_VERSION_OF_FORMAT_2 and records[_MAGIC_OFFSET] < 2:
                    _refuse(entry, _OLD_FORMAT, context, acks, name)
                    continue
                if waiting is None:
                    waiting = _WaitingBatches(services, context, acks, request.transactional_id, delayed)
                waiting.add(_WaitingBatch(partition, records, entry, transaction), needed)
            else:
                _on_appended(partition, info, acks, entry, delayed)
    if acks == -1 and delayed.pending > 1:
        # 0 and 1 wait for this broker's own disk alone: a write, or its failure, always ends that.
        manager.wheel.arm(delayed, max(0, request.timeout_ms) / 1000)
    delayed.one_done()


async def handle_long(
    services: Services, context: RequestContext, request: ProduceRequest, respond: Respond[ProduceResponse]
) -> None:
    """A request of many partitions: a few of them at once."""
    await handle_in_parts(context, request, respond, partial(handle, services, context))


class _WaitingBatch(NamedTuple):
    """One that waits, and its place in the response."""

    partition: Partition
    records: memoryview
    entry: PartitionProduceResponse
    transaction: TransactionalAppend | None
    is_prepared: bool = False
    is_verified: bool = False


def _on_appended(
    partition: Partition, info: AppendInfo, acks: int, entry: PartitionProduceResponse, delayed: DelayedProduce
) -> None:
    """Fills the entry of an appended batch; the request waits for what `acks` says, if that has not happened yet."""
    log = partition.log.state
    last = info.last_offset
    entry.error_code = 0
    entry.base_offset = info.first_offset
    entry.log_append_time_ms = info.log_append_time_ms
    entry.log_start_offset = log.log_start_offset
    if acks >= 0:
        if log.log_end_offset <= last:
            partition.acks_leader.add(last + 1, delayed, entry)
    elif log.high_watermark <= last:
        partition.acks_all.add(last + 1, delayed, entry)
    else:
        entry.error_code = partition.acknowledgement()


class _WaitingBatches:
    """The partitions of one request whose batches are not appended at once: they are prepared, or their transaction is
    verified, in order with others of their partitions."""

    __slots__ = ("_acks", "_context", "_delayed", "_services", "_transactional_id")

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        acks: int,
        transactional_id: str | None,
        delayed: DelayedProduce,
    ) -> None:
        self._services = services
        self._context = context
        self._acks = acks
        self._transactional_id = transactional_id
        self._delayed = delayed

    def add(self, batch: _WaitingBatch, reason: PreparationNeeded | VerificationNeeded) -> None:
        self._delayed.pending += 1
        # What the response says when the time is up before the batch is ready.
        batch.entry.error_code = _TIMED_OUT
        batch.entry.base_offset = -1
        self._wait(batch, reason)

    def _wait(self, batch: _WaitingBatch, reason: PreparationNeeded | VerificationNeeded) -> None:
        if isinstance(reason, PreparationNeeded):
            self._services.append_queues.add(batch.partition, batch.records, partial(self._on_prepared, batch))
        else:
            assert self._transactional_id is not None
            self._services.transaction_verification.add(
                batch.partition,
                self._transactional_id,
                reason,
                partial(self._on_verified, batch),
                knows_abortable=self._context.api_version >= _FIRST_VERSION_WITH_ABORTABLE,
                adds_partition=self._context.api_version >= _FIRST_VERSION_THAT_ADDS,
            )

    def _on_prepared(self, batch: _WaitingBatch, outcome: memoryview | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            self._end(batch, outcome)
        else:
            self._append(batch._replace(records=outcome, is_prepared=True))

    def _on_verified(self, batch: _WaitingBatch, outcome: TransactionalAppend | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            self._end(batch, outcome, asked_log=False)
        else:
            self._append(batch._replace(transaction=outcome, is_verified=True))

    def _append(self, batch: _WaitingBatch) -> None:
        partition, entry = batch.partition, batch.entry
        try:
            info = partition.append(batch.records, self._acks, batch.is_prepared, batch.transaction)
        except KafkaError as error:
            self._end(batch, error)
        except PreparationNeeded as needed:
            self._wait(batch, needed)
        except VerificationNeeded as needed:
            if batch.is_verified:
                self._end(batch, not_in_transaction())
            else:
                self._wait(batch, needed)
        except Exception as error:
            # The batches behind it in the queue are appended all the same.
            logger.exception("a batch of %s that had to wait cannot be appended", partition.topic_partition)
            self._context.close_connection(f"internal error in PRODUCE: {error!r}")
            self._delayed.one_done()
        else:
            _on_appended(partition, info, self._acks, entry, self._delayed)
            self._delayed.one_done()

    def _end(self, batch: _WaitingBatch, error: KafkaError, *, asked_log: bool = True) -> None:
        partition = batch.partition
        _refuse(batch.entry, error, self._context, self._acks, partition.topic, partition, batch.records)
        if not asked_log:
            batch.entry.log_start_offset = -1
        self._delayed.one_done()


def _may_write_transactions(context: RequestContext, request: ProduceRequest, transactional_id: str) -> bool:
    """Whether the principal may use the transactional id; it needs no right without a transactional batch."""
    return not _transactional_producers(request) or context.may(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    )


def _has_several_producers(request: ProduceRequest) -> bool:
    """Whether the transactional batches of a request are of more than one producer, or of several of its epochs."""
    return len({producer for producer in _transactional_producers(request) if producer[0] >= 0}) > 1


def _transactional_producers(request: ProduceRequest) -> set[tuple[int, int]]:
    """Producer id and epoch of each transactional batch."""
    producers = set()
    for topic in request.topic_data:
        for data in topic.partition_data:
            # The reader gives slices of the frame.
            records: memoryview | None = data.records  # type: ignore[assignment]
            if records is not None and len(records) >= HEADER_BYTES and records[_MAGIC_OFFSET] == MAGIC:
                header = read_header(records)
                if header.is_transactional:
                    producers.add((header.producer_id, header.producer_epoch))
    return producers


def _refusal(services: Services, name: str, index: int, partition: Partition | None, is_read_only: bool) -> KafkaError:
    """Why nothing can be appended to a partition."""
    if is_read_only and partition is not None:
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients do not write to {name}")
    found = services.replica_manager.partition_or_error(name, index)
    return KafkaError(found if isinstance(found, ErrorCode) else ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _resolve_topic_ids(manager: ReplicaManager, request: ProduceRequest) -> None:
    """Gives each topic its name; "" where the id is unknown, or the replicas here are those of an earlier topic."""
    for topic in request.topic_data:
        name = manager.topic_name(topic.topic_id) or ""
        local = manager.topics.get(name)
        if local is not None and any(partition.topic_id != topic.topic_id for partition in local.values()):
            name = ""
        topic.name = name


def _format_error(records: memoryview | None, version: int) -> KafkaError | None:
    """What the request's version does not allow; the log checks the rest."""
    if records is None:
        return KafkaError(ErrorCode.INVALID_RECORD, "a produce request carries one batch per partition, this one none")
    if len(records) > _CODEC_OFFSET and records[_MAGIC_OFFSET] == 2 and records[_CODEC_OFFSET] & 7 == _ZSTD:
        return KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
    return None


def _refuse(
    entry: PartitionProduceResponse,
    error: KafkaError,
    context: RequestContext,
    acks: int,
    topic: str,
    refused_by: Partition | None = None,
    records: memoryview | None = None,
) -> None:
    """`refused_by` had the records and did not append them. With acks=0 the connection is closed."""
    if refused_by is not None and records is not None and acks != 0:
        refused_by.on_refusal(error.code, records)
    if refused_by is not None and error.code not in _KNOWN_REFUSALS and not isinstance(error, NotOneBatch):
        entry.log_start_offset = refused_by.log.state.log_start_offset
    entry.error_code = int(error.code)
    entry.base_offset = -1
    entry.error_message = error.message
    if isinstance(error, RecordsRejected):
        entry.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]
    if acks == 0:
        context.close_connection(f"a produce request with acks=0 got {error.code.name} for {topic}-{entry.index}")


def _finish(
    services: Services,
    context: RequestContext,
    respond: Respond[ProduceResponse],
    response: ProduceResponse,
    acks: int,
) -> None:
    if acks == 0:
        respond(None)
        return
    version = context.api_version
    if version >= _FIRST_VERSION_WITH_HINTS or version < _FIRST_VERSION_WITH_STORAGE_ERRORS:
        _adapt(services, context, response)
    respond(response)


def _adapt(services: Services, context: RequestContext, response: ProduceResponse) -> None:
    """What only some versions carry, looked for in failed partitions alone."""
    version = context.api_version
    hints: NodeHints | None = None
    for topic in response.responses:
        for entry in topic.partition_responses:
            if entry.error_code == _NOT_LEADER and version >= _FIRST_VERSION_WITH_HINTS:
                leader, epoch = current_leader(services, topic.name, entry.index)
                entry.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                hints = hints or NodeHints(services, context.listener)
                hints.add(leader)
            elif entry.error_code == _STORAGE_ERROR and version < _FIRST_VERSION_WITH_STORAGE_ERRORS:
                entry.error_code = _NOT_LEADER
    if hints is not None:
        response.node_endpoints = [
            NodeEndpoint(node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker, endpoint in hints
        ]


def _refusal_of_all(request: ProduceRequest, error: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=int(error), base_offset=-1)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
