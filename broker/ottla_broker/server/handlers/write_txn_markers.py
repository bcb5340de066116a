"""WriteTxnMarkers (key 27): a transaction coordinator ends transactions in the partitions that this broker leads.

Behaviour
    Each producer's marker is appended to each partition as a control batch, and the response is sent when every in-sync
    replica has it, after request.timeout.ms at the latest: the coordinator retries until all have succeeded, so a
    marker may come twice, and is then written twice. One result for each producer id, however often it was named.
    A partition of __consumer_offsets gets its marker too: the offsets that the transaction committed before it take
    effect, or are dropped, once the marker is committed.
Rights, in this order
    ClusterAction:Cluster (the cluster, or Alter:Cluster): the error in every partition.
Errors, in this order, per partition
    KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, NOT_ENOUGH_REPLICAS,
    INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED; later REQUEST_TIMED_OUT,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER.
Versions
    1: flexible. 2: TransactionVersion: a marker of a transaction of version 2 does not end the next one (KIP-1228).
"""

from __future__ import annotations

import asyncio
from functools import partial

from ottla_broker.protocol.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.marker_appends import MarkerResults, MarkerToAppend
from ottla_broker.server.handler_api import RequestContext, Respond, Services


def handle(
    services: Services,
    context: RequestContext,
    request: WriteTxnMarkersRequest,
    respond: Respond[WriteTxnMarkersResponse],
) -> None:
    """Responds once, possibly later."""
    markers = [
        _marker(
            marker, [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
        )
        for marker in request.markers
    ]
    services.marker_appends.append(markers, partial(_respond, respond))


async def handle_long(
    services: Services,
    context: RequestContext,
    request: WriteTxnMarkersRequest,
    respond: Respond[WriteTxnMarkersResponse],
) -> None:
    """A request of many partitions is read and answered in turns; its markers are appended so in any case."""
    markers = [
        _marker(
            marker,
            [
                TopicPartition(topic.name, index)
                async for topic in context.each(marker.topics)
                async for index in context.each(topic.partition_indexes)
            ],
        )
        async for marker in context.each(request.markers)
    ]
    written: asyncio.Future[MarkerResults] = services.clock.create_future()
    services.marker_appends.append(markers, partial(_complete, written))
    results = await written
    answered = []
    async for producer_id in context.each(results):
        topics: dict[str, WritableTxnMarkerTopicResult] = {}
        async for (name, index), marker in context.each(results[producer_id].items()):
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = WritableTxnMarkerTopicResult(name=name, partitions=[])
            topic.partitions.append(
                WritableTxnMarkerPartitionResult(partition_index=index, error_code=marker.error_code)
            )
        answered.append(WritableTxnMarkerResult(producer_id=producer_id, topics=list(topics.values())))
    respond(WriteTxnMarkersResponse(markers=answered))


def _complete(written: asyncio.Future[MarkerResults], results: MarkerResults) -> None:
    if not written.done():  # cancelled: the broker stops
        written.set_result(results)


def _marker(marker: WritableTxnMarker, partitions: list[TopicPartition]) -> MarkerToAppend:
    return MarkerToAppend(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        marker.transaction_version,
        partitions,
    )


def _respond(respond: Respond[WriteTxnMarkersResponse], results: MarkerResults) -> None:
    respond(
        WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=index, error_code=error_code)
                                for index, error_code in partitions.items()
                            ],
                        )
                        for name, partitions in _by_topic(results, producer_id).items()
                    ],
                )
                for producer_id in results
            ]
        )
    )


def _by_topic(results: MarkerResults, producer_id: int) -> dict[str, dict[int, int]]:
    topics: dict[str, dict[int, int]] = {}
    for (topic, index), written in results[producer_id].items():
        topics.setdefault(topic, {})[index] = written.error_code
    return topics
