"""Requests that only brokers send, from somebody else: refused as by Apache Kafka 3.9.1 with an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.server.edge.dispatch import LISTED
from tests.beside.comparison import both, difference
from tests.beside.requests import Request

STRANGER = "127.0.0.2"


def _requests() -> Iterator[Request]:
    """Each in every version that Apache Kafka 3.9 serves."""
    for api_key, lowest, name in (
        (ApiKey.LEADER_AND_ISR, 0, "LeaderAndIsrRequest"),
        (ApiKey.STOP_REPLICA, 0, "StopReplicaRequest"),
        (ApiKey.UPDATE_METADATA, 0, "UpdateMetadataRequest"),
        (ApiKey.CONTROLLED_SHUTDOWN, 0, "ControlledShutdownRequest"),
        (ApiKey.ALTER_PARTITION, 0, "AlterPartitionRequest"),
        (ApiKey.ALLOCATE_PRODUCER_IDS, 0, "AllocateProducerIdsRequest"),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 4, "AddPartitionsToTxnRequest"),
    ):
        body = getattr(codec.module(api_key), name)()
        yield from (Request(api_key, version, body) for version in _versions(api_key, lowest))
    markers = codec.module(ApiKey.WRITE_TXN_MARKERS)
    topics = [
        markers.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
        for topic, indexes in (("t", [0, 99]), ("nope", [0]))
    ]
    of = [
        markers.WritableTxnMarker(producer_id=producer_id, producer_epoch=0, transaction_result=True, topics=topics)
        for producer_id in (7, 8)
    ]
    for version in _versions(ApiKey.WRITE_TXN_MARKERS):
        yield Request(ApiKey.WRITE_TXN_MARKERS, version, markers.WriteTxnMarkersRequest(markers=of))
    for version in _versions(ApiKey.FETCH):
        for replica_id in (1, 9):
            yield Request(ApiKey.FETCH, version, _follower_fetch(version, replica_id))


def _follower_fetch(version: int, replica_id: int) -> Any:
    fetch = codec.module(ApiKey.FETCH)
    wanted = fetch.FetchPartition(partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1000)
    topics = [
        fetch.FetchTopic(topic_id=bytes([number] * 16), partitions=[wanted])
        if version >= 13
        else fetch.FetchTopic(topic=name, partitions=[wanted])
        for number, name in ((1, "t"), (2, "nope"))
    ]
    body = fetch.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, session_epoch=-1, topics=topics)
    if version >= 15:
        body.replica_state = fetch.ReplicaState(replica_id=replica_id, replica_epoch=1)
    else:
        body.replica_id = replica_id
    return body


def _versions(api_key: ApiKey, lowest: int = 0) -> range:
    listing = next(one for one in LISTED if one.api_key is api_key)
    return range(max(lowest, listing.lowest), listing.highest + 1)


@pytest.mark.java
def test_what_only_brokers_send_is_refused_as_by_the_authorizer_of_apache_kafka(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with both(tmp_path, zookeeper, STRANGER) as ask:
        for request in _requests():
            ours, theirs = ask(request)
            assert difference(ours, theirs) == "", request
            assert isinstance(ours, dict), request
