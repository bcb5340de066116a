"""Produce (key 0): appends one batch per partition.

Behaviour
    Each batch is checked, gets its offsets and is queued for its disk before this returns. The response is sent as
    `acks` says: 0 and 1, when the batches are written here; -1, when every in-sync replica has them (at most
    TimeoutMs). With acks=0 no response is sent, but the request counts as in flight until then, so that a slow disk
    slows its clients and does not fill the memory; an error closes the connection, so that the client looks up the
    leader again.
    Message formats 0 and 1 (v0-v2) are stored as format 2. They, and batches of topics with another codec or
    with checks of single records, go through `replication.append_queue`, where they may wait for a worker.
Errors, in this order
    whole request: INVALID_REQUIRED_ACKS.
    partition: INVALID_TOPIC_EXCEPTION (an internal topic, from another client than Kafka's admin client),
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
from functools import partial

from ottla_broker.config.topics import INTERNAL_TOPICS
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
from ottla_broker.records.errors import NotOneBatch, RecordsRejected
from ottla_broker.replication.delayed import DelayedProduce
from ottla_broker.replication.partition import Partition
from ottla_broker.server.handler_api import RequestContext, Respond, Services
from ottla_broker.server.handlers.shared.leader_hints import NodeHints, current_leader
from ottla_broker.storage.log.append_checks import PreparationNeeded

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
    """Answers through `respond` once; with None for acks=0."""
    manager = services.replica_manager
    if manager.held and manager.moves.wait_for_swap(
        request.topic_data, partial(handle, services, context, request, respond)
    ):
        return
    if request.acks not in (1, -1, 0):
        respond(_refusal_of_all(request, ErrorCode.INVALID_REQUIRED_ACKS))
        return
    _Produce(services, context, request, respond).start()


class _Produce:
    """One produce request from its arrival to its response.

    A batch is appended at once, or after its turn in the append queue of its partition; either way `_append` says what
    follows: the entry of the response has its offsets, and the request waits for what `acks` asks for, if that has not
    happened yet. What waits is one `DelayedProduce`; `start` itself counts as pending until every partition has been
    looked at.
    """

    __slots__ = ("_acks", "_context", "_delayed", "_is_transactional", "_request", "_respond", "_response", "_services")

    def __init__(
        self, services: Services, context: RequestContext, request: ProduceRequest, respond: Respond[ProduceResponse]
    ) -> None:
        self._services = services
        self._context = context
        self._request = request
        self._respond = respond
        self._acks = request.acks
        self._is_transactional = request.transactional_id is not None
        self._response = ProduceResponse(responses=[])
        self._delayed: DelayedProduce | None = None

    def start(self) -> None:
        """Appends or queues every batch; responds, or waits."""
        manager = self._services.replica_manager
        version = self._context.api_version
        responses = self._response.responses
        for topic in self._request.topic_data:
            name = topic.name
            by_index = manager.topics.get(name)
            is_read_only = name in INTERNAL_TOPICS and self._context.client_id != _ADMIN_CLIENT
            entries: list[PartitionProduceResponse] = []
            responses.append(TopicProduceResponse(name=name, partition_responses=entries))
            for data in topic.partition_data:
                index = data.index
                entry = PartitionProduceResponse(index=index)
                entries.append(entry)
                partition = None if by_index is None else by_index.get(index)
                # The reader gives slices of the frame.
                records: memoryview | None = data.records  # type: ignore[assignment]
                if partition is None or is_read_only or partition.log.state.is_failed:
                    self._refuse(entry, name, self._obstacle(name, index, partition, is_read_only))
                elif (records is None or version < _FIRST_VERSION_WITH_ZSTD) and (error := _misfit(records, version)):
                    self._refuse(entry, name, error)
                else:
                    assert records is not None
                    try:
                        self._append(partition, records, entry, False)
                    except PreparationNeeded:
                        self._queue(partition, records, entry)
        self._wait_or_finish()

    def _obstacle(self, name: str, index: int, partition: Partition | None, is_read_only: bool) -> KafkaError:
        """Why nothing can be appended to a partition."""
        if is_read_only and partition is not None:
            return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients do not write to {name}")
        found = self._services.replica_manager.partition_or_error(name, index)
        return KafkaError(found if isinstance(found, ErrorCode) else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _append(
        self, partition: Partition, records: memoryview, entry: PartitionProduceResponse, is_prepared: bool
    ) -> None:
        """Appends a batch and fills its entry; raises PreparationNeeded where it goes through the append queue."""
        acks = self._acks
        try:
            info = partition.append(records, acks, is_prepared, self._is_transactional)
        except KafkaError as error:
            self._refuse(entry, partition.topic, error, partition)
            return
        log = partition.log.state
        last = info.last_offset
        entry.error_code = 0
        entry.base_offset = info.first_offset
        entry.log_append_time_ms = info.log_append_time_ms
        entry.log_start_offset = log.log_start_offset
        if acks >= 0:
            if log.log_end_offset <= last:
                partition.acks_leader.add(last + 1, self._delayed or self._delay(), entry)
        elif log.high_watermark <= last:
            partition.acks_all.add(last + 1, self._delayed or self._delay(), entry)
        else:
            entry.error_code = partition.acknowledgement()

    def _queue(self, partition: Partition, records: memoryview, entry: PartitionProduceResponse) -> None:
        """Has a batch prepared, in order with the others of its partition."""
        if self._context.api_version >= _FIRST_VERSION_OF_FORMAT_2 and records[_MAGIC_OFFSET] < 2:
            self._refuse(entry, partition.topic, _OLD_FORMAT)
            return
        delayed = self._delayed or self._delay()
        delayed.pending += 1
        # What the response says when the time is up before the batch is ready.
        entry.error_code = _TIMED_OUT
        entry.base_offset = -1
        self._services.append_queues.add(partition, records, partial(self._on_ready, delayed, partition, entry))

    def _on_ready(
        self,
        delayed: DelayedProduce,
        partition: Partition,
        entry: PartitionProduceResponse,
        outcome: memoryview | KafkaError,
    ) -> None:
        try:
            if isinstance(outcome, KafkaError):
                self._refuse(entry, partition.topic, outcome, partition)
            else:
                self._append(partition, outcome, entry, True)
        except Exception as error:
            # The batches behind it in the queue are appended all the same.
            logger.exception("a prepared batch of %s cannot be appended", partition.topic_partition)
            self._context.close_connection(f"internal error in PRODUCE: {error!r}")
        delayed.one_done()

    def _delay(self) -> DelayedProduce:
        """The request waits from now on."""
        delayed = self._delayed = DelayedProduce(self._finish)
        delayed.pending = 1
        return delayed

    def _wait_or_finish(self) -> None:
        delayed = self._delayed
        if delayed is None:
            # With acks=0 and a refused batch the connection is closed: there is no response.
            if self._acks or not self._has_errors():
                self._finish()
            return
        if self._acks == -1:  # 0 and 1 wait for this broker's own disk alone: a write, or its failure, ends that
            self._services.replica_manager.wheel.arm(delayed, max(0, self._request.timeout_ms) / 1000)
        delayed.one_done()

    def _has_errors(self) -> bool:
        return any(entry.error_code for topic in self._response.responses for entry in topic.partition_responses)

    def _refuse(
        self, entry: PartitionProduceResponse, topic: str, error: KafkaError, refused_by: Partition | None = None
    ) -> None:
        """`refused_by` had the records and did not append them."""
        if refused_by is not None and error.code not in _KNOWN_REFUSALS and not isinstance(error, NotOneBatch):
            entry.log_start_offset = refused_by.log.log_start_offset
        entry.error_code = int(error.code)
        entry.base_offset = -1
        entry.error_message = error.message
        if isinstance(error, RecordsRejected):
            entry.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in error.record_errors
            ]
        if self._acks == 0:
            self._context.close_connection(
                f"a produce request with acks=0 got {error.code.name} for {topic}-{entry.index}"
            )

    def _finish(self) -> None:
        if self._acks == 0:
            self._respond(None)
            return
        version = self._context.api_version
        if version >= _FIRST_VERSION_WITH_HINTS or version < _FIRST_VERSION_WITH_STORAGE_ERRORS:
            _adapt(self._services, self._context, self._response)
        self._respond(self._response)


def _misfit(records: memoryview | None, version: int) -> KafkaError | None:
    """What the request's version does not allow; the log checks the rest."""
    if records is None:
        return KafkaError(ErrorCode.INVALID_RECORD, "a produce request carries one batch per partition, this one none")
    if len(records) > _CODEC_OFFSET and records[_MAGIC_OFFSET] == 2 and records[_CODEC_OFFSET] & 7 == _ZSTD:
        return KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
    return None


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
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=int(error), base_offset=-1)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
