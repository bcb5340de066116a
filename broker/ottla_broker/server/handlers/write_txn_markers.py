"""WriteTxnMarkers (key 27): a transaction coordinator ends transactions in the partitions that this broker leads.

Behaviour
    Each producer's marker is appended to each partition as a control batch, and the response is sent when every in-sync
    replica has it, after request.timeout.ms at the latest: the coordinator retries until all have succeeded, so a
    marker may come twice, and is then written twice. One result for each producer id, however often it was named.
    A partition of __consumer_offsets gets its marker too: the offsets that the transaction committed before it take
    effect, or are dropped, once the marker is committed.
Errors, in this order, per partition
    KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, NOT_ENOUGH_REPLICAS,
    INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED; later REQUEST_TIMED_OUT,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER.
Versions
    1: flexible. 2: TransactionVersion: a marker of a transaction of version 2 does not end the next one (KIP-1228).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ottla_broker.config.topics import CONSUMER_OFFSETS
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla_broker.records.control_records import ControlType, EndTransactionMarker
from ottla_broker.replication.delayed import DelayedProduce
from ottla_broker.server.handler_api import RequestContext, Respond, Services


class _MarkerOutcome:
    """One marker in one partition, as the partition's queue of acknowledgements sees it."""

    __slots__ = ("base_offset", "error_code")

    def __init__(self) -> None:
        self.error_code = 0
        self.base_offset = -1


_Results = dict[int, dict[str, dict[int, _MarkerOutcome]]]
"""Producer id to topic to partition index."""


class _GroupMarker(NamedTuple):
    """A marker in a partition of __consumer_offsets, and the epoch in which it was appended."""

    partition: int
    leader_epoch: int
    producer_id: int
    offset: int
    is_commit: bool
    written: _MarkerOutcome


def handle(
    services: Services,
    context: RequestContext,
    request: WriteTxnMarkersRequest,
    respond: Respond[WriteTxnMarkersResponse],
) -> None:
    """Responds once, possibly later."""
    results: _Results = {}
    group_markers: list[_GroupMarker] = []
    waiting = DelayedProduce(partial(_finish, services, respond, results, group_markers))
    for marker in request.markers:
        kind = ControlType.COMMIT if marker.transaction_result else ControlType.ABORT
        end = EndTransactionMarker(kind, marker.coordinator_epoch)
        topics = results.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            partitions = topics.setdefault(topic.name, {})
            for index in topic.partition_indexes:
                written = partitions[index] = _MarkerOutcome()
                try:
                    leader_epoch, offset = _append(services, topic.name, index, end, marker, waiting, written)
                except KafkaError as error:
                    written.error_code = int(error.code)
                    continue
                if topic.name == CONSUMER_OFFSETS:
                    is_commit = kind is ControlType.COMMIT
                    group_markers.append(
                        _GroupMarker(index, leader_epoch, marker.producer_id, offset, is_commit, written)
                    )
    if waiting.pending:
        services.replica_manager.wheel.arm(waiting, services.config.request_timeout_ms / 1000)
    else:
        _finish(services, respond, results, group_markers)


def _append(
    services: Services,
    topic: str,
    index: int,
    end: EndTransactionMarker,
    marker: WritableTxnMarker,
    waiting: DelayedProduce,
    written: _MarkerOutcome,
) -> tuple[int, int]:
    """Returns the leader epoch of the append and the marker's offset."""
    partition = services.replica_manager.partition_or_error(topic, index)
    if isinstance(partition, ErrorCode):
        raise KafkaError(partition)
    info = partition.append_marker(end, marker.producer_id, marker.producer_epoch, marker.transaction_version)
    if partition.log.high_watermark <= info.last_offset:
        partition.acks_all.add(info.last_offset + 1, waiting, written)
    else:
        written.error_code = partition.acknowledgement()
    return partition.leader_epoch, info.first_offset


def _finish(
    services: Services,
    respond: Respond[WriteTxnMarkersResponse],
    results: _Results,
    group_markers: Sequence[_GroupMarker],
) -> None:
    coordinator = services.group_coordinator
    for partition, leader_epoch, producer_id, offset, is_commit, written in group_markers:
        if not written.error_code:
            coordinator.end_transaction(partition, leader_epoch, producer_id, offset, is_commit=is_commit)
    respond(
        WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=index, error_code=written.error_code)
                                for index, written in partitions.items()
                            ],
                        )
                        for name, partitions in topics.items()
                    ],
                )
                for producer_id, topics in results.items()
            ]
        )
    )
