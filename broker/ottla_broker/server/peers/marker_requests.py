"""MarkerRequests: finds the leaders of partitions in the metadata, and sends WriteTxnMarkers to them.

Implements `transactions.marker_sender.PartitionLeaders`. One connection to each broker, opened when it is first needed;
markers for partitions of this broker go through `local_markers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla_broker.config import BrokerConfig
from ottla_broker.config.inter_broker import inter_broker_versions
from ottla_broker.metadata.cache import BrokerEndpoint, MetadataCache
from ottla_broker.ports import Clock
from ottla_broker.ports.network import Connector
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.peers.broker_client import BrokerClient, BrokerDisconnected
from ottla_broker.transactions.markers import NO_LEADER, Marker

_WITH_TRANSACTION_VERSION = 2


class MarkerRequests:
    """See `ottla_broker.transactions.marker_sender.PartitionLeaders`."""

    def __init__(
        self,
        broker_id: int,
        connector: Connector,
        clock: Clock,
        metadata: MetadataCache,
        config: BrokerConfig,
        fleet_is_ours: Callable[[], bool],
        is_deleted: Callable[[TopicPartition], bool],
    ) -> None:
        """
        Args:
            fleet_is_ours: every registered broker is one of ours, and reads the version of a transaction.
            is_deleted: of a partition that the metadata lack; False also while that is not known.
        """
        self._connector = connector
        self._clock = clock
        self._metadata = metadata
        self._client_id = f"broker-{broker_id}-txn-marker-sender"
        self._listener = config.listeners.inter_broker
        self._timeout_s = config.request_timeout_ms / 1000
        self._version = inter_broker_versions(config.inter_broker_protocol_version).write_txn_markers
        self._fleet_is_ours = fleet_is_ours
        self._is_deleted = is_deleted
        self._clients: dict[int, BrokerClient] = {}

    def leader(self, partition: TopicPartition) -> int | None:
        """None once it is known that the partition is deleted: one that has never had a leader, or whose state the
        controller cannot read, is not in the metadata either, and waits for its leader."""
        if not self._metadata.is_ready:
            return NO_LEADER
        found = self._metadata.partition(partition.topic, partition.partition)
        if found is None:
            return None if self._is_deleted(partition) else NO_LEADER
        return NO_LEADER if self._metadata.endpoint(found.leader, self._listener) is None else found.leader

    async def write_markers(
        self, broker_id: int, markers: Sequence[Marker]
    ) -> Mapping[int, Mapping[TopicPartition, ErrorCode]]:
        """Waits for the response for request.timeout.ms at most."""
        endpoint = self._metadata.endpoint(broker_id, self._listener)
        if endpoint is None:
            raise BrokerDisconnected(f"broker {broker_id} is not alive")
        client = self._client(broker_id, endpoint)
        await client.connect()
        request = WriteTxnMarkersRequest(markers=[_entry(marker) for marker in markers])
        version = self._version
        if self._fleet_is_ours() and any(marker.transaction_version for marker in markers):
            version = _WITH_TRANSACTION_VERSION
        return _errors(await client.send(ApiKey.WRITE_TXN_MARKERS, version, request))

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _client(self, broker_id: int, endpoint: BrokerEndpoint) -> BrokerClient:
        client = self._clients.get(broker_id)
        if client is not None and (client.host, client.port) != (endpoint.host, endpoint.port):
            client.close()
            client = None
        if client is None:
            client = self._clients[broker_id] = BrokerClient(
                self._connector,
                self._clock,
                endpoint.host,
                endpoint.port,
                client_id=self._client_id,
                connect_timeout_s=self._timeout_s,
                request_timeout_s=self._timeout_s,
            )
        return client


def _entry(marker: Marker) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in marker.partitions:
        topics.setdefault(topic, []).append(index)
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.is_commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


def _errors(response: Any) -> dict[int, dict[TopicPartition, ErrorCode]]:
    return {
        result.producer_id: {
            TopicPartition(topic.name, one.partition_index): ErrorCode.of(one.error_code)
            for topic in result.topics
            for one in topic.partitions
        }
        for result in response.markers
    }
