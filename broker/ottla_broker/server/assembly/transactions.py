"""Makes the transaction coordinator of a broker, with its log and its way to other brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ottla_broker.config.features import TRANSACTION_VERSION
from ottla_broker.config.topics import TRANSACTION_STATE
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.records.compression import Codec
from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager
from ottla_broker.replication.marker_appends import MarkerAppends
from ottla_broker.server.assembly.broker_context import BrokerContext
from ottla_broker.server.assembly.internal_topic_log import ReplicatedTopicLog, follow_leadership
from ottla_broker.server.deleted_partitions import DeletedPartitions
from ottla_broker.server.partition_counts import PartitionCounts
from ottla_broker.server.peers.local_markers import LocalMarkers
from ottla_broker.server.peers.marker_requests import MarkerRequests
from ottla_broker.server.store.fleet_features import FleetView
from ottla_broker.transactions.coordinator import TransactionCoordinator


@dataclass(frozen=True, slots=True)
class TransactionParts:
    """The coordinator, and its connections to the leaders of partitions."""

    coordinator: TransactionCoordinator
    marker_requests: MarkerRequests

    def close(self) -> None:
        self.coordinator.close()
        self.marker_requests.close()


def make_transactions(
    context: BrokerContext,
    metadata: MetadataCache,
    partition_counts: PartitionCounts,
    replica_manager: ReplicaManager,
    marker_appends: MarkerAppends,
    next_producer_id: Callable[[], Awaitable[int]],
    fleet: Callable[[], FleetView],
) -> TransactionParts:
    """Makes it and starts its background tasks; it coordinates what `replica_manager` leads from then on."""
    broker_id, config, ports = context.broker_id, context.config, context.ports
    marker_requests = MarkerRequests(
        broker_id,
        context.connector_to(config.listeners.inter_broker),
        ports.clock,
        metadata,
        config,
        lambda: fleet().is_ours,
        DeletedPartitions(ports.coordination, ports.clock, context.logger).is_deleted,
    )
    coordinator = TransactionCoordinator(
        clock=ports.clock,
        log=ReplicatedTopicLog(
            TRANSACTION_STATE,
            replica_manager,
            ports.clock,
            codec=Codec.NONE,
            load_bytes=config.transaction_state_log_load_buffer_size,
        ),
        leaders=marker_requests,
        markers_here=LocalMarkers(broker_id, marker_appends),
        metrics=context.metrics,
        config=config,
        next_producer_id=next_producer_id,
        partition_count=lambda: partition_counts.of(TRANSACTION_STATE),
        finalized_version=lambda: fleet().finalized.get(TRANSACTION_VERSION, 0),
    )
    owned = coordinator.partitions
    follow_leadership(TRANSACTION_STATE, replica_manager, owned.on_election, owned.on_resignation)
    metadata.add_listener(coordinator.on_metadata)
    coordinator.start()
    return TransactionParts(coordinator, marker_requests)
