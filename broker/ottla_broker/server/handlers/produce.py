"""Produce (key 0): appends one batch per partition.

Behaviour
    Each batch is checked, gets its offsets and is queued for its disk before this returns. The answer leaves when
    what `acks` asks for has happened: 0 and 1, when the batches are written here; -1, when every in-sync replica has
    them (at most TimeoutMs). With acks=0 nothing goes on the wire, but the request counts as under way until then, so
    that a slow disk slows its clients and does not fill the memory; an error closes the connection, so that the
    client looks for the leader again.
Errors, in this order
    whole request: INVALID_REQUIRED_ACKS, TRANSACTIONAL_ID_AUTHORIZATION_FAILED (a transactional id: there are no
    transactions yet).
    partition: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR (as NOT_LEADER_OR_FOLLOWER
    before v4), UNSUPPORTED_COMPRESSION_TYPE (zstd before v7), NOT_ENOUGH_REPLICAS, then what the log refuses
    (`storage.Log.append_as_leader`: UNSUPPORTED_FOR_MESSAGE_FORMAT for formats 0 and 1, ...); later REQUEST_TIMED_OUT,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER.
Versions
    1: throttle time. 2: message format 1 is allowed. 3: transactional id, message format 2 is required.
    4: KAFKA_STORAGE_ERROR. 5: log start offset. 7: zstd (KIP-110). 8: record errors (KIP-467). 9: flexible.
    10: CurrentLeader and NodeEndpoints (KIP-951). 11: TRANSACTION_ABORTABLE may be answered (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla_broker.replication.delayed import DelayedProduce
from ottla_broker.server.context import RequestContext, Services
from ottla_broker.server.leader_hints import NodeHints, current_leader

_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)
_MAGIC_OFFSET = 16
_CODEC_OFFSET = 22
_ZSTD = 4


def handle(services: Services, context: RequestContext, request: Any, respond: Callable[[Any], None]) -> None:
    """Answers through `respond` once; with None for acks=0."""
    acks = request.acks
    if request.transactional_id is not None:
        _refuse_all(context, request, respond, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    if acks not in (1, -1, 0):
        _refuse_all(context, request, respond, ErrorCode.INVALID_REQUIRED_ACKS)
        return
    manager = services.replica_manager
    version = context.api_version
    response = ProduceResponse(responses=[])
    waiting: DelayedProduce | None = None
    has_errors = False
    for topic in request.topic_data:
        name = topic.name
        by_index = manager.topics.get(name)
        entries: list[PartitionProduceResponse] = []
        response.responses.append(TopicProduceResponse(name=name, partition_responses=entries))
        for data in topic.partition_data:
            index = data.index
            entry = PartitionProduceResponse(index=index)
            entries.append(entry)
            partition = None if by_index is None else by_index.get(index)
            records = data.records
            try:
                if partition is None or partition.log.is_failed:
                    found = manager.partition_or_error(name, index)
                    raise KafkaError(found if isinstance(found, ErrorCode) else ErrorCode.NOT_LEADER_OR_FOLLOWER)
                if records is None or version < 7:
                    _check_version(records, version)
                info = partition.append(records, acks)
            except KafkaError as error:
                has_errors = True
                _set_error(entry, error, version)
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


def _nothing(respond: Callable[[Any], None]) -> Callable[[], None]:
    return lambda: respond(None)


def _check_version(records: memoryview | None, version: int) -> None:
    """What depends on the request's version; the log checks the rest."""
    if records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a produce request carries one batch per partition, this one none")
    if len(records) > _CODEC_OFFSET and records[_MAGIC_OFFSET] == 2 and records[_CODEC_OFFSET] & 7 == _ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")


def _set_error(entry: PartitionProduceResponse, error: KafkaError, version: int) -> None:
    code = int(error.code)
    entry.error_code = _NOT_LEADER if code == _STORAGE_ERROR and version < 4 else code
    entry.base_offset = -1
    entry.error_message = error.message


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
