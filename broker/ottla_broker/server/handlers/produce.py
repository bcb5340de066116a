"""Produce (key 0): appends one batch per partition.

Behaviour
    Each batch is checked, gets its offsets and is queued for its disk before this returns. The answer leaves when
    what `acks` asks for has happened: 0 and 1, when the batches are written here; -1, when every in-sync replica has
    them (at most TimeoutMs). With acks=0 nothing goes on the wire, but the request counts as under way until then, so
    that a slow disk slows its clients and does not fill the memory; an error closes the connection, so that the
    client looks for the leader again.
    Message formats 0 and 1 (v0-v2) are stored as format 2. They, and batches of topics that ask for another codec or
    for checks of single records, go through `replication.append_queue`, where they may wait for a worker.
Errors, in this order
    whole request: INVALID_REQUIRED_ACKS.
    partition: INVALID_TOPIC_EXCEPTION (an internal topic, by another client than Kafka's admin one),
    UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR (as NOT_LEADER_OR_FOLLOWER before v4),
    INVALID_RECORD (from v3: no batch, or format 0 or 1), UNSUPPORTED_COMPRESSION_TYPE (zstd before v7),
    NOT_ENOUGH_REPLICAS, then what the log refuses (`storage.Log.append_as_leader`; a transactional batch without a
    transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED), then what `records.preparation` refuses
    (MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, with record errors from v8); later
    REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER.
Versions
    1: throttle time. 2: message format 1 is allowed. 3: transactional id, message format 2 is required.
    4: KAFKA_STORAGE_ERROR. 5: log start offset, with most refusals too. 7: zstd (KIP-110). 8: record errors (KIP-467).
    9: flexible.
    10: CurrentLeader and NodeEndpoints (KIP-951). 11: TRANSACTION_ABORTABLE may be answered (KIP-890).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla_broker.config.topics import INTERNAL_TOPICS
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla_broker.records.errors import NotOneBatch, RecordsRejected
from ottla_broker.replication.delayed import DelayedProduce
from ottla_broker.replication.partition import Partition
from ottla_broker.server.context import RequestContext, Services
from ottla_broker.server.handlers.shared.leader_hints import NodeHints, current_leader
from ottla_broker.storage.log.append import AppendInfo, PreparationNeeded

logger = logging.getLogger("ottla.server")

_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)
_MAGIC_OFFSET = 16
_CODEC_OFFSET = 22
_ZSTD = 4
_TIMED_OUT = int(ErrorCode.REQUEST_TIMED_OUT)
_ADMIN_CLIENT = "__admin_client"
_KNOWN_REFUSALS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""Apache Kafka answers them without the log start offset, and any other with it: a producer that nobody knows any more
learns from it whether its records were deleted."""
_OLD_FORMAT = KafkaError(ErrorCode.INVALID_RECORD, "from version 3 on a produce request carries batches of format 2")


def handle(services: Services, context: RequestContext, request: Any, respond: Callable[[Any], None]) -> None:
    """Answers through `respond` once; with None for acks=0."""
    manager = services.replica_manager
    if manager.held and manager.moves.wait_for_swap(
        request.topic_data, partial(handle, services, context, request, respond)
    ):
        return
    acks = request.acks
    if acks not in (1, -1, 0):
        _refuse_all(context, request, respond, ErrorCode.INVALID_REQUIRED_ACKS)
        return
    version = context.api_version
    is_transactional = request.transactional_id is not None
    response = ProduceResponse(responses=[])
    waiting: DelayedProduce | None = None
    prepared: _Prepared | None = None
    has_errors = False
    for topic in request.topic_data:
        name = topic.name
        by_index = manager.topics.get(name)
        is_internal = name in INTERNAL_TOPICS
        entries: list[PartitionProduceResponse] = []
        response.responses.append(TopicProduceResponse(name=name, partition_responses=entries))
        for data in topic.partition_data:
            index = data.index
            entry = PartitionProduceResponse(index=index)
            entries.append(entry)
            partition = None if by_index is None else by_index.get(index)
            records = data.records
            refused_by: Partition | None = None
            try:
                if is_internal and partition is not None and context.client_id != _ADMIN_CLIENT:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients do not write to {name}")
                if partition is None or partition.log.is_failed:
                    found = manager.partition_or_error(name, index)
                    raise KafkaError(found if isinstance(found, ErrorCode) else ErrorCode.NOT_LEADER_OR_FOLLOWER)
                if records is None or version < 7:
                    _check_version(records, version)
                refused_by = partition
                info = partition.append(records, acks, False, is_transactional)
            except KafkaError as error:
                has_errors = True
                _set_error(entry, error, version, refused_by)
                continue
            except PreparationNeeded:
                assert partition is not None
                if version >= 3 and records[_MAGIC_OFFSET] < 2:
                    has_errors = True
                    _set_error(entry, _OLD_FORMAT, version)
                    continue
                if waiting is None:
                    finish = partial(_finish, services, context, respond, response) if acks else _nothing(respond)
                    waiting = DelayedProduce(finish)
                if prepared is None:
                    prepared = _Prepared(services, context, acks, waiting, is_transactional)
                prepared.add(partition, records, entry)
                continue
            log = partition.log
            last = info.last_offset
            entry.base_offset = info.first_offset
            entry.log_append_time_ms = info.log_append_time_ms
            entry.log_start_offset = log.log_start_offset
            if acks >= 0:
                if log.log_end_offset <= last:
                    if waiting is None:
                        finish = partial(_finish, services, context, respond, response) if acks else _nothing(respond)
                        waiting = DelayedProduce(finish)
                    partition.acks_leader.add(last + 1, waiting, entry)
            else:
                if log.high_watermark <= last:
                    if waiting is None:
                        waiting = DelayedProduce(partial(_finish, services, context, respond, response))
                    partition.acks_all.add(last + 1, waiting, entry)
                else:
                    entry.error_code = partition.acknowledgement()
    if acks == 0:
        if has_errors:
            context.close_connection(_why(response))
        elif waiting is None:
            respond(None)
    elif waiting is None:
        _finish(services, context, respond, response)
    elif acks != 1:  # 0 and 1 wait for this broker's own disk alone: a write, or its failure, always ends that
        manager.wheel.arm(waiting, max(0, request.timeout_ms) / 1000)
    if prepared is not None:
        prepared.let_go()


class _Prepared:
    """The partitions of one request whose batches go through the append queues.

    They hold the request back until it has been looked at as a whole: the first of them may be done at once.
    """

    __slots__ = ("_acks", "_context", "_is_transactional", "_services", "_waiting")

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        acks: int,
        waiting: DelayedProduce,
        is_transactional: bool,
    ) -> None:
        self._services = services
        self._context = context
        self._acks = acks
        self._is_transactional = is_transactional
        self._waiting = waiting
        waiting.pending += 1

    def let_go(self) -> None:
        self._waiting.one_done()

    def add(self, partition: Partition, records: memoryview, entry: PartitionProduceResponse) -> None:
        self._waiting.pending += 1
        # What it says when the time is up before the batch is ready.
        entry.error_code = _TIMED_OUT
        entry.base_offset = -1
        self._services.append_queues.add(partition, records, partial(self._on_ready, partition, entry))

    def _on_ready(
        self, partition: Partition, entry: PartitionProduceResponse, outcome: memoryview | KafkaError
    ) -> None:
        try:
            if isinstance(outcome, KafkaError):
                raise outcome
            info = partition.append(outcome, self._acks, True, self._is_transactional)
        except KafkaError as error:
            if self._acks == 0:
                self._context.close_connection(
                    f"a produce request with acks=0 got {error.code.name} for {partition.topic_partition}"
                )
            _set_error(entry, error, self._context.api_version, partition)
        except Exception as error:
            # The batches behind it in the queue still have their turn.
            logger.exception("a prepared batch of %s cannot be appended", partition.topic_partition)
            self._context.close_connection(f"internal error in PRODUCE: {error!r}")
        else:
            self._appended(partition, entry, info)
        self._waiting.one_done()

    def _appended(self, partition: Partition, entry: PartitionProduceResponse, info: AppendInfo) -> None:
        log = partition.log
        last = info.last_offset
        entry.error_code = 0
        entry.base_offset = info.first_offset
        entry.log_append_time_ms = info.log_append_time_ms
        entry.log_start_offset = log.log_start_offset
        if self._acks >= 0:
            if log.log_end_offset <= last:
                partition.acks_leader.add(last + 1, self._waiting, entry)
        elif log.high_watermark <= last:
            partition.acks_all.add(last + 1, self._waiting, entry)
        else:
            entry.error_code = partition.acknowledgement()


def _nothing(respond: Callable[[Any], None]) -> Callable[[], None]:
    return lambda: respond(None)


def _check_version(records: memoryview | None, version: int) -> None:
    """What depends on the request's version; the log checks the rest."""
    if records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a produce request carries one batch per partition, this one none")
    if len(records) > _CODEC_OFFSET and records[_MAGIC_OFFSET] == 2 and records[_CODEC_OFFSET] & 7 == _ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")


def _set_error(
    entry: PartitionProduceResponse, error: KafkaError, version: int, refused_by: Partition | None = None
) -> None:
    """`refused_by` had the records, and would not append them."""
    code = int(error.code)
    if refused_by is not None and error.code not in _KNOWN_REFUSALS and not isinstance(error, NotOneBatch):
        entry.log_start_offset = refused_by.log.log_start_offset
    entry.error_code = _NOT_LEADER if code == _STORAGE_ERROR and version < 4 else code
    entry.base_offset = -1
    entry.error_message = error.message
    if isinstance(error, RecordsRejected):
        entry.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]


def _finish(
    services: Services, context: RequestContext, respond: Callable[[Any], None], response: ProduceResponse
) -> None:
    version = context.api_version
    if version >= 10 or version < 4:
        _adapt(services, context, response)
    respond(response)


def _adapt(services: Services, context: RequestContext, response: ProduceResponse) -> None:
    """What only some versions carry, looked for in failed partitions alone."""
    version = context.api_version
    hints: NodeHints | None = None
    for topic in response.responses:
        for entry in topic.partition_responses:
            if entry.error_code == _NOT_LEADER and version >= 10:
                leader, epoch = current_leader(services, topic.name, entry.index)
                entry.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                hints = hints or NodeHints(services, context.listener)
                hints.add(leader)
            elif entry.error_code == _STORAGE_ERROR and version < 4:
                entry.error_code = _NOT_LEADER
    if hints is not None:
        response.node_endpoints = [
            NodeEndpoint(node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker, endpoint in hints
        ]


def _refuse_all(context: RequestContext, request: Any, respond: Callable[[Any], None], error: ErrorCode) -> None:
    if request.acks == 0:
        context.close_connection(f"a produce request with acks=0 got {error.name}")
        return
    respond(
        ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(index=data.index, error_code=int(error), base_offset=-1)
                        for data in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )
    )


def _why(response: ProduceResponse) -> str:
    for topic in response.responses:
        for entry in topic.partition_responses:
            if entry.error_code:
                error = ErrorCode.of(entry.error_code)
                return f"a produce request with acks=0 got {error.name} for {topic.name}-{entry.index}"
    return ""
