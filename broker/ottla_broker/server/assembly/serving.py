"""The parts of a broker that serve clients and peers, made once its logs are loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ottla_broker.authorization.acls import Acls
from ottla_broker.config.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla_broker.controller.controller import Controller
from ottla_broker.groups.coordinator import GroupCoordinator
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.metadata.prepared import PreparedTopics
from ottla_broker.protocol.api import ApiKey
from ottla_broker.records.compression import Codec
from ottla_broker.replication.append_queue import AppendQueues
from ottla_broker.replication.fetch.engine import FetchEngine
from ottla_broker.replication.fetch.fetch_values import FetchEnvironment
from ottla_broker.replication.local_replicas.inter_broker_context import InterBrokerContext
from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager
from ottla_broker.replication.marker_appends import MarkerAppends
from ottla_broker.replication.replica_selector import chooses_by_rack
from ottla_broker.replication.transaction_verification import TransactionVerification
from ottla_broker.server.assembly.broker_context import BrokerContext
from ottla_broker.server.assembly.core import CoreParts
from ottla_broker.server.assembly.group_topics import GroupTopics
from ottla_broker.server.assembly.internal_topic_log import follow_leadership
from ottla_broker.server.assembly.offsets_topic_log import ReplicatedOffsetsLog
from ottla_broker.server.assembly.transactions import TransactionParts, make_transactions
from ottla_broker.server.edge.key_files import KeyFiles
from ottla_broker.server.handler_api import Services
from ottla_broker.server.log_dir_recovery.directory_events import DirectoryEvents
from ottla_broker.server.log_dir_recovery.readmission import Readmission
from ottla_broker.server.log_dir_recovery.recreation import RecreationTask
from ottla_broker.server.partition_counts import PartitionCounts
from ottla_broker.server.peers.broker_client import BrokerClient
from ottla_broker.server.peers.controller_channels import NetworkControllerChannels
from ottla_broker.server.peers.controller_client import ControllerClient
from ottla_broker.server.peers.producer_ids import ProducerIds
from ottla_broker.server.peers.topic_creation import TopicCreation
from ottla_broker.server.peers.transaction_verifier import NetworkTransactionVerifier
from ottla_broker.server.store.client_metrics_configs import ClientMetricsConfigs
from ottla_broker.server.store.dynamic_config import DynamicConfig
from ottla_broker.server.store.fleet_features import FleetFeatures
from ottla_broker.server.store.stored_tokens import StoredTokens
from ottla_broker.storage.log.record_search import RecordSearch
from ottla_broker.telemetry.client_telemetry import ClientTelemetry
from ottla_broker.telemetry.push_reading import READ_PUSH_JOB
from ottla_broker.telemetry.receiver import SeriesReceiver


@dataclass(frozen=True, slots=True)
class ServingParts:
    """See the module. `services` is what the handlers get."""

    metadata: MetadataCache
    partition_counts: PartitionCounts
    controller_client: ControllerClient
    replica_manager: ReplicaManager
    directory_events: DirectoryEvents
    readmission: Readmission
    recreation: RecreationTask
    group_coordinator: GroupCoordinator
    transactions: TransactionParts
    controller: Controller
    services: Services


@dataclass(frozen=True, slots=True)
class StoredState:
    """What a broker reads of the coordination store before it serves, and follows from then on.

    Args:
        acls: None where no authorizer reads them there.
        tokens: None where delegation tokens are not served.
    """

    dynamic_config: DynamicConfig
    fleet_features: FleetFeatures
    client_metrics_configs: ClientMetricsConfigs
    acls: Acls | None
    tokens: StoredTokens | None


def make_serving(
    context: BrokerContext,
    core: CoreParts,
    stored: StoredState,
    *,
    on_metadata: Callable[[], None],
    broker_epoch: Callable[[], int],
    report_directories: Callable[[], None],
) -> ServingParts:
    """Makes them and starts their background tasks; nothing is served before the listeners are bound.

    `partition_counts` is to be started before that.

    Args:
        on_metadata: called first of all after each UpdateMetadata.
        broker_epoch: of the current registration, -1 before the first.
        report_directories: reports the log directories to the controller, while the broker serves.
    """
    broker_id, config, metrics, logger = context.broker_id, context.config, context.metrics, context.logger
    ports, clock, coordination = context.ports, context.ports.clock, context.ports.coordination
    listener = config.listeners.inter_broker
    connector = context.connector_to(listener)
    metadata = MetadataCache(broker_id)
    metadata.add_listener(on_metadata)
    partition_counts = PartitionCounts(coordination, clock, metadata, logger)
    controller_client = ControllerClient(
        broker_id, connector, clock, metadata, listener, config.controller_socket_timeout_ms
    )
    replica_manager = ReplicaManager(
        broker_id=broker_id,
        config=config,
        clock=clock,
        log_manager=core.log_manager,
        metadata=metadata,
        metrics=metrics,
        inter_broker=_inter_broker_context(context, controller_client, broker_epoch, report_directories),
    )
    replica_manager.start()
    directory_events = DirectoryEvents(broker_id, coordination, clock, logger)
    report = directory_events.report
    readmission = Readmission(broker_id, coordination, clock, replica_manager, stored.dynamic_config, report, logger)
    recreation = RecreationTask(broker_id, coordination, clock, replica_manager, report, logger)
    verifier = NetworkTransactionVerifier(
        broker_id,
        connector,
        clock,
        metadata,
        metrics,
        config,
        partition_count=lambda: partition_counts.of(TRANSACTION_STATE),
        verify_here=lambda *question: transactions.coordinator.verify_partitions(*question),
    )
    group_coordinator = GroupCoordinator(
        clock=clock,
        log=ReplicatedOffsetsLog(
            replica_manager,
            clock,
            verifier,
            codec=Codec(config.offsets_topic_compression_codec),
            load_bytes=config.offsets_load_buffer_size,
        ),
        metrics=metrics,
        config=config,
        partition_count=lambda: partition_counts.of(CONSUMER_OFFSETS),
        topics=GroupTopics(metadata),
    )
    owned = group_coordinator.partitions
    follow_leadership(CONSUMER_OFFSETS, replica_manager, owned.on_election, owned.on_resignation)
    group_coordinator.start()
    producer_ids = ProducerIds(broker_id, coordination)
    marker_appends = MarkerAppends(
        replica_manager, clock, config.request_timeout_ms / 1000, group_coordinator.end_transaction
    )
    transactions = make_transactions(
        context,
        metadata,
        partition_counts,
        replica_manager,
        marker_appends,
        producer_ids.next_for_producer,
        lambda: stored.fleet_features.view,
    )
    channels = NetworkControllerChannels(
        broker_id,
        context.connector_to,
        clock,
        listener,
        config.controller_socket_timeout_ms,
        metrics,
        logger,
        config.listeners.control_plane,
    )
    controller = Controller(
        broker_id=broker_id,
        config=config,
        coordination=coordination,
        clock=clock,
        channels=channels,
        listener=listener,
        metrics=metrics,
    )
    if stored.tokens is not None:
        every_s = config.delegation_token_expiry_check_interval_ms / 1000
        stored.tokens.remove_expired(lambda: controller.is_active, every_s)
    client_telemetry = ClientTelemetry(
        clock,
        stored.client_metrics_configs,
        SeriesReceiver(config.ottla_client_metrics_max_series, metrics),
        metrics,
        config.telemetry_max_bytes,
        partial(ports.workers.run, READ_PUSH_JOB, config.log_dirs[0]),
    )
    client_telemetry.start()
    creation = TopicCreation(config, clock, controller_client, logger)
    services = Services(
        broker_id=broker_id,
        cluster_id=context.cluster_id,
        config=config,
        clock=clock,
        coordination=coordination,
        metrics=metrics,
        metadata=metadata,
        prepared_topics=PreparedTopics(),
        replica_manager=replica_manager,
        append_queues=AppendQueues(ports.workers, clock, metrics),
        transaction_verification=TransactionVerification(verifier),
        marker_appends=marker_appends,
        fetch_engine=FetchEngine(
            FetchEnvironment(replica_manager, metadata, clock, ports.workers, metrics),
            config.max_incremental_fetch_session_cache_slots,
            clock.random.randrange,
            chooses_by_rack=chooses_by_rack(config.replica_selector_class),
        ),
        record_search=RecordSearch(ports.workers),
        controller=controller,
        group_coordinator=group_coordinator,
        transaction_coordinator=transactions.coordinator,
        producer_ids=producer_ids,
        dynamic_config=stored.dynamic_config,
        certificate_stores=KeyFiles(core.tls, core.sasl),
        throttle=core.throttling,
        resolve=ports.network.resolve,
        auto_create=creation.create,
        auto_create_internal=creation.create_internal,
        go_on_in_turns=core.dispatcher.go_on_in_turns,
        listed_apis=core.dispatcher.listed_apis,
        acls=stored.acls,
        delegation_tokens=stored.tokens,
        fleet_features=stored.fleet_features,
        client_metrics_configs=stored.client_metrics_configs,
        client_telemetry=client_telemetry,
    )
    return ServingParts(
        metadata=metadata,
        partition_counts=partition_counts,
        controller_client=controller_client,
        replica_manager=replica_manager,
        directory_events=directory_events,
        readmission=readmission,
        recreation=recreation,
        group_coordinator=group_coordinator,
        transactions=transactions,
        controller=controller,
        services=services,
    )


def _inter_broker_context(
    context: BrokerContext,
    controller_client: ControllerClient,
    broker_epoch: Callable[[], int],
    report_directories: Callable[[], None],
) -> InterBrokerContext:
    config, ports = context.config, context.ports
    connector = context.connector_to(config.listeners.inter_broker)
    return InterBrokerContext(
        broker_epoch=broker_epoch,
        send_alter_partition=lambda version, request: controller_client.ask(ApiKey.ALTER_PARTITION, version, request),
        connect=lambda host, port: BrokerClient(
            connector,
            ports.clock,
            host,
            port,
            client_id=f"broker-{context.broker_id}-fetcher",
            connect_timeout_s=config.replica_socket_timeout_ms / 1000,
            request_timeout_s=config.replica_socket_timeout_ms / 1000,
        ),
        listener=config.listeners.inter_broker,
        report_directories=report_directories,
    )
