"""A fleet without a controller: real logs, sockets and handlers, commanded by the test in the controller's place.

The test sends LeaderAndIsr, UpdateMetadata and StopReplica over the wire; AlterPartition is answered by the
controller's own rule (`controller.decisions.isr_changes`) on the states kept here.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.adapters.network import SocketNetwork
from ottla_broker.adapters.workers import ProcessWorkers
from ottla_broker.config import BrokerConfig
from ottla_broker.controller.decisions.isr_changes import IsrChange, decide_isr_change
from ottla_broker.controller.values import LeaderAndIsr
from ottla_broker.jobs import JOBS
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.metadata.prepared import PreparedTopics
from ottla_broker.metrics import Metrics
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import alter_partition as alter_partition_api
from ottla_broker.protocol.generated import fetch as fetch_api
from ottla_broker.protocol.generated import leader_and_isr as leader_and_isr_api
from ottla_broker.protocol.generated import produce as produce_api
from ottla_broker.protocol.generated import update_metadata as update_metadata_api
from ottla_broker.records.batch import batches
from ottla_broker.records.ids import TopicPartition
from ottla_broker.records.record import Record, build_batch, decode_records
from ottla_broker.replication.append_queue import AppendQueues
from ottla_broker.replication.fetch.engine import FetchEngine
from ottla_broker.replication.fetch.fetch_values import FetchEnvironment
from ottla_broker.replication.local_replicas.inter_broker_context import InterBrokerContext
from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager
from ottla_broker.replication.marker_appends import MarkerAppends
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.replica_selector import chooses_by_rack
from ottla_broker.replication.transaction_verification import TransactionVerification
from ottla_broker.server.edge.dispatch import Dispatcher
from ottla_broker.server.edge.socket_server import SocketServer
from ottla_broker.server.edge.throttling import Throttling
from ottla_broker.server.handler_api import Services
from ottla_broker.server.peers.broker_client import BrokerClient
from ottla_broker.server.store.fleet_features import FleetView
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.record_search import RecordSearch
from ottla_broker.storage.log_dirs.directory_callbacks import DirectoryCallbacks
from ottla_broker.storage.log_dirs.log_manager import LogManager
from ottla_broker.storage.log_dirs.settings import LogManagerSettings

CLUSTER_ID = "cluster-of-the-test"
INTERNAL, CLIENT = "INTERNAL", "CLIENT"


class _NoOverrides:
    """The dynamic configuration of a fleet whose topics have no overrides."""

    async def load_topic(self, topic: str) -> None:
        return


_NO_FEATURES: Any = SimpleNamespace(view=FleetView())


class Coordinator:
    """A `TransactionVerifier` in the transaction coordinator's place, to whom every partition is in the transaction."""

    def __init__(self, clock: LoopClock) -> None:
        self._clock = clock
        self.asked: list[tuple[str, int, int, TopicPartition]] = []
        self.error = ErrorCode.NONE
        self.is_silent = False
        self.added: list[TopicPartition] = []
        self.unanswered: list[asyncio.Future[ErrorCode]] = []

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        adds_partition: bool,
    ) -> asyncio.Future[ErrorCode]:
        self.asked.append((transactional_id, producer_id, producer_epoch, partition))
        if adds_partition:
            self.added.append(partition)
        answer: asyncio.Future[ErrorCode] = self._clock.create_future()
        if self.is_silent:
            self.unanswered.append(answer)
        else:
            answer.set_result(self.error)
        return answer

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """To everybody who was not answered yet."""
        for answer in self.unanswered:
            answer.set_result(error)
        self.unanswered.clear()


class Node:
    """One broker without registration, controller and groups."""

    def __init__(self, fleet: Fleet, broker_id: int, directory: Path, settings: dict[str, str]) -> None:
        self.fleet = fleet
        self.broker_id = broker_id
        self.config = BrokerConfig.from_mapping(
            {
                "broker.id": str(broker_id),
                "log.dirs": str(directory),
                "listeners": "INTERNAL://127.0.0.1:0,CLIENT://127.0.0.1:0",
                "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENT:PLAINTEXT",
                "inter.broker.listener.name": INTERNAL,
                "zookeeper.connect": "127.0.0.1:1",
                "replica.fetch.backoff.ms": "20",
                "replica.fetch.wait.max.ms": "200",
                **settings,
            }
        )
        self.clock = LoopClock()
        self.network = SocketNetwork()
        self.disk = DirectoryDisk(str(directory))
        self.workers = ProcessWorkers(JOBS)
        self.metrics = Metrics()
        self.metadata = MetadataCache(broker_id)
        self.failures: list[BaseException] = []
        self.overrides: dict[str, str] = {}
        """The configuration of every topic, as logs that are made from now on see it."""
        self.clock.on_task_failure = lambda name, error: self.failures.append(error)
        self.log_manager = LogManager(
            {str(directory): self.disk},
            self.clock,
            self.workers,
            LogManagerSettings(),
            lambda topic: LogConfig(
                self.config.topic_config(self.overrides),
                verifies_transactions=self.config.transaction_partition_verification_enable,
            ),
            DirectoryCallbacks(lambda path, error: self.failures.append(error)),
        )
        self.dispatcher = Dispatcher(self.clock)
        self.throttling = Throttling(self.clock, self.config, self.metrics)
        self.server = SocketServer(
            self.network, self.clock, self.config, self.dispatcher, self.throttling, self.metrics
        )
        self.ports: dict[str, int] = {}
        self.manager: ReplicaManager
        self.is_running = False

    async def start(self) -> None:
        await self.log_manager.inspect()
        await self.log_manager.claim(self.broker_id, CLUSTER_ID)
        await self.log_manager.load()
        self.manager = ReplicaManager(
            broker_id=self.broker_id,
            config=self.config,
            clock=self.clock,
            log_manager=self.log_manager,
            metadata=self.metadata,
            metrics=self.metrics,
            inter_broker=InterBrokerContext(
                broker_epoch=lambda: 100 + self.broker_id,
                send_alter_partition=self.fleet.alter_partition,
                connect=lambda host, port: BrokerClient(
                    self.network, self.clock, host, port, client_id=f"broker-{self.broker_id}-fetcher"
                ),
                listener=INTERNAL,
                report_directories=self.report_directories,
            ),
        )
        self.manager.start()
        absent: Any = None
        no_overrides: Any = _NoOverrides()
        self.dispatcher.services = Services(
            broker_id=self.broker_id,
            cluster_id=CLUSTER_ID,
            config=self.config,
            clock=self.clock,
            coordination=absent,
            metrics=self.metrics,
            metadata=self.metadata,
            prepared_topics=PreparedTopics(),
            replica_manager=self.manager,
            append_queues=AppendQueues(self.workers, self.clock, self.metrics),
            transaction_verification=TransactionVerification(self.fleet.coordinator),
            marker_appends=MarkerAppends(
                self.manager, self.clock, self.config.request_timeout_ms / 1000, self._end_group_transaction
            ),
            fetch_engine=FetchEngine(
                FetchEnvironment(self.manager, self.metadata, self.clock, self.workers, self.metrics),
                self.config.max_incremental_fetch_session_cache_slots,
                self.clock.random.randrange,
                chooses_by_rack=chooses_by_rack(self.config.replica_selector_class),
            ),
            record_search=RecordSearch(self.workers),
            controller=absent,
            group_coordinator=absent,
            transaction_coordinator=absent,
            producer_ids=absent,
            certificate_stores=absent,
            dynamic_config=no_overrides,
            throttle=self.throttling,
            resolve=absent,
            auto_create=self.fleet.auto_create,
            auto_create_internal=absent,
            go_on_in_turns=self.dispatcher.go_on_in_turns,
            listed_apis=self.dispatcher.listed_apis,
            fleet_features=_NO_FEATURES,
            client_metrics_configs=absent,
            client_telemetry=absent,
            acls=None,
            delegation_tokens=None,
        )
        for endpoint in self.config.listeners.bound:
            self.ports[endpoint.listener] = await self.server.bind(endpoint)
        self.is_running = True

    def _end_group_transaction(self, *marker: Any, is_commit: bool) -> None:
        assert self.dispatcher.services is not None
        self.dispatcher.services.group_coordinator.end_transaction(*marker, is_commit=is_commit)

    def report_directories(self) -> None:
        """The controller is to ask again about this broker's replicas: it has none."""

    def kill(self) -> None:
        """Ends it as a crash does, but that queued writes may still reach the disk."""
        self.is_running = False
        self.network.close()
        self.clock.cancel_all()
        self.workers.close()
        self.disk.close()

    def partition(self, topic: str, index: int = 0) -> Partition:
        found = self.manager.partition(topic, index)
        assert found is not None
        return found


@dataclass
class Topic:
    topic_id: bytes
    states: dict[int, LeaderAndIsr] = field(default_factory=dict)
    replicas: dict[int, tuple[int, ...]] = field(default_factory=dict)
    adding: tuple[int, ...] = ()
    """Of all partitions."""


class Fleet:
    """The nodes, and the states that a controller would keep."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self._directory = directory
        self._settings = settings or {}
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self.controller_epoch = 1
        self.clock = LoopClock()
        self.network = SocketNetwork()
        self.isr_requests: list[tuple[int, tuple[int, ...]]] = []
        self.alter_partition_versions: list[int] = []
        self.is_controller_answering = True
        self.controller_failure: Exception = ConnectionError("the controller is away")
        """What comes of AlterPartition while it does not."""
        self.coordinator = Coordinator(self.clock)
        self.unanswered = 0
        """AlterPartition requests that the controller did not answer."""
        self._clients: list[BrokerClient] = []

    async def start(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            directory = self._directory / f"broker-{broker_id}"
            directory.mkdir(exist_ok=True)
            self.nodes[broker_id] = node = Node(self, broker_id, directory, self._settings)
            await node.start()
        await self.send_metadata()

    def stop(self) -> None:
        self.network.close()
        self.clock.cancel_all()
        for node in self.nodes.values():
            if node.is_running:
                node.kill()
        failures = [failure for node in self.nodes.values() for failure in node.failures]
        assert not failures, failures

    @property
    def live(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_running]

    async def client(self, broker_id: int, listener: str = CLIENT) -> BrokerClient:
        port = self.nodes[broker_id].ports[listener]
        client = BrokerClient(
            *(self.network, self.clock, "127.0.0.1", port),
            client_id="test",
            connect_timeout_s=60,
            request_timeout_s=120,
        )
        await client.connect()
        return client

    # In the controller's place

    async def create(
        self, topic: str, replicas: tuple[int, ...], *, partitions: int = 1, isr: tuple[int, ...] | None = None
    ) -> None:
        made = self.topics[topic] = Topic(topic_id_of(topic))
        for index in range(partitions):
            made.replicas[index] = replicas
            made.states[index] = LeaderAndIsr(replicas[0], 0, isr or replicas, self.controller_epoch, 0)
        await self.command(topic, is_new=True)

    async def elect(
        self, topic: str, leader: int, isr: tuple[int, ...], index: int = 0, to: Iterable[int] | None = None
    ) -> None:
        state = self.topics[topic].states[index]
        self.topics[topic].states[index] = replace(
            state,
            leader=leader,
            leader_epoch=state.leader_epoch + 1,
            isr=isr,
            partition_epoch=state.partition_epoch + 1,
        )
        await self.command(topic, to=to)

    async def command(
        self, topic: str, *, is_new: bool = False, to: Iterable[int] | None = None, version: int = 7
    ) -> dict[int, list[int]]:
        """LeaderAndIsr, then UpdateMetadata, to the live replicas: error codes by broker."""
        found = {}
        for node in self.live:
            if to is None or node.broker_id in to:
                found[node.broker_id] = await self._leader_and_isr(node, topic, is_new, version)
        await self.send_metadata()
        return found

    async def _leader_and_isr(self, node: Node, topic: str, is_new: bool, version: int) -> list[int]:
        known = self.topics[topic]
        states = [
            leader_and_isr_api.LeaderAndIsrPartitionState(
                partition_index=index,
                controller_epoch=state.controller_epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=list(state.isr),
                partition_epoch=state.partition_epoch,
                replicas=list(known.replicas[index]),
                adding_replicas=list(known.adding),
                is_new=is_new,
            )
            for index, state in known.states.items()
            if node.broker_id in known.replicas[index]
        ]
        if not states:
            return []
        request = leader_and_isr_api.LeaderAndIsrRequest(
            controller_id=0,
            controller_epoch=self.controller_epoch,
            broker_epoch=-1,
            type=1,
            topic_states=[
                leader_and_isr_api.LeaderAndIsrTopicState(
                    topic_name=topic, topic_id=known.topic_id, partition_states=states
                )
            ],
        )
        response = await self.ask(node.broker_id, ApiKey.LEADER_AND_ISR, version, request, INTERNAL)
        assert response.error_code == 0
        return [error.error_code for answered in response.topics for error in answered.partition_errors]

    async def send_metadata(self) -> None:
        request = update_metadata_api.UpdateMetadataRequest(
            controller_id=0,
            controller_epoch=self.controller_epoch,
            broker_epoch=-1,
            topic_states=[
                update_metadata_api.UpdateMetadataTopicState(
                    topic_name=name,
                    topic_id=topic.topic_id,
                    partition_states=[
                        update_metadata_api.UpdateMetadataPartitionState(
                            partition_index=index,
                            controller_epoch=state.controller_epoch,
                            leader=state.leader,
                            leader_epoch=state.leader_epoch,
                            isr=list(state.isr),
                            zk_version=state.partition_epoch,
                            replicas=list(topic.replicas[index]),
                        )
                        for index, state in topic.states.items()
                    ],
                )
                for name, topic in self.topics.items()
            ],
            live_brokers=[
                update_metadata_api.UpdateMetadataBroker(
                    id=node.broker_id,
                    endpoints=[
                        update_metadata_api.UpdateMetadataEndpoint(
                            host="127.0.0.1", port=port, listener=listener, security_protocol=0
                        )
                        for listener, port in node.ports.items()
                    ],
                    rack=f"rack-{node.broker_id}",
                )
                for node in self.live
            ],
        )
        for node in self.live:
            response = await self.ask(node.broker_id, ApiKey.UPDATE_METADATA, 8, request, INTERNAL)
            assert response.error_code == 0

    async def alter_partition(
        self, version: int, request: alter_partition_api.AlterPartitionRequest
    ) -> alter_partition_api.AlterPartitionResponse:
        if not self.is_controller_answering:
            self.unanswered += 1
            raise self.controller_failure
        frame = b"".join(bytes(c) for c in codec.frame_request(int(ApiKey.ALTER_PARTITION), version, 1, "", request))
        header = codec.read_request_header(memoryview(frame)[4:])
        request = alter_partition_api.read_request(version, memoryview(frame)[4:], header.body_offset)
        self.alter_partition_versions.append(version)
        names = {topic.topic_id: name for name, topic in self.topics.items()}
        answers = []
        for asked_topic in request.topics:
            topic = self.topics[asked_topic.topic_name if version < 2 else names[asked_topic.topic_id]]
            parts = []
            for asked in asked_topic.partitions:
                current = topic.states[asked.partition_index]
                members = (
                    [(member, -1) for member in asked.new_isr]
                    if version < 3
                    else [(member.broker_id, -1) for member in asked.new_isr_with_epochs]
                )
                self.isr_requests.append((asked.partition_index, tuple(broker for broker, _ in members)))
                decision = decide_isr_change(
                    IsrChange(request.broker_id, asked.leader_epoch, asked.partition_epoch, members),
                    current,
                    replicas=topic.replicas[asked.partition_index],
                    online={node.broker_id for node in self.live},
                    broker_epochs={},
                    version=version,
                )
                part = alter_partition_api.ResponsePartitionData(
                    partition_index=asked.partition_index, error_code=int(decision.error)
                )
                if decision.error is ErrorCode.NONE:
                    if decision.write is not None:
                        current = replace(decision.write, partition_epoch=current.partition_epoch + 1)
                        topic.states[asked.partition_index] = current
                    part.leader_id, part.leader_epoch = current.leader, current.leader_epoch
                    part.isr, part.partition_epoch = list(current.isr), current.partition_epoch
                parts.append(part)
            answers.append(
                alter_partition_api.ResponseTopicData(
                    topic_name=asked_topic.topic_name, topic_id=asked_topic.topic_id, partitions=parts
                )
            )
        return alter_partition_api.AlterPartitionResponse(topics=answers)

    async def auto_create(self, names: Iterable[str]) -> dict[str, int]:
        for name in names:
            await self.create(name, tuple(node.broker_id for node in self.live))
        return dict.fromkeys(names, 0)

    # As a client

    async def ask(self, broker_id: int, api_key: ApiKey, version: int, request: Any, listener: str = CLIENT) -> Any:
        client = await self.client(broker_id, listener)
        try:
            return await client.send(int(api_key), version, request)
        finally:
            client.close()

    async def produce(
        self,
        broker_id: int,
        topic: str,
        *values: str,
        acks: int = -1,
        index: int = 0,
        version: int = 11,
        timeout_ms: int = 25_000,
    ) -> Any:
        """One batch; gives the partition's part of the answer."""
        request = produce_request(topic, batch(*values), acks=acks, index=index, timeout_ms=timeout_ms)
        response = await self.ask(broker_id, ApiKey.PRODUCE, version, request)
        return response.responses[0].partition_responses[0]

    async def fetch(
        self, broker_id: int, topic: str, offset: int = 0, *, index: int = 0, version: int = 17, **fields: Any
    ) -> Any:
        """One partition; gives its part of the answer."""
        request = fetch_request(self.topics[topic].topic_id, topic, offset, index=index, **fields)
        response = await self.ask(broker_id, ApiKey.FETCH, version, request)
        assert response.error_code == 0
        return response.responses[0].partitions[0]

    async def values(self, broker_id: int, topic: str, index: int = 0) -> list[str]:
        """All that a consumer reads."""
        found: list[str] = []
        offset = 0
        while True:
            data = await self.fetch(broker_id, topic, offset, index=index)
            assert data.error_code == 0, data
            if not data.records:
                return found
            more = values_of(data.records)
            found += more
            offset += len(more)


def topic_id_of(topic: str) -> bytes:
    """The id that `Fleet.create` gives it."""
    return uuid.uuid5(uuid.NAMESPACE_DNS, topic).bytes


def batch(*values: str) -> bytes:
    return bytes(build_batch([Record(offset, 1_000, None, value.encode()) for offset, value in enumerate(values)]))


def values_of(records: memoryview) -> list[str]:
    """Of every whole batch; a partial one at the end is left, as clients do."""
    return [
        bytes(record.value or b"").decode()
        for position, header in batches(records)
        for record in decode_records(records[position : position + header.size])
    ]


def produce_request(topic: str, records: bytes, *, acks: int = -1, index: int = 0, timeout_ms: int = 25_000) -> Any:
    return produce_api.ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            produce_api.TopicProduceData(
                name=topic, partition_data=[produce_api.PartitionProduceData(index=index, records=records)]
            )
        ],
    )


def fetch_request(
    topic_id: bytes,
    topic: str,
    offset: int = 0,
    *,
    index: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
) -> Any:
    return fetch_api.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[
            fetch_api.FetchTopic(
                topic=topic,
                topic_id=topic_id,
                partitions=[
                    fetch_api.FetchPartition(
                        partition=index,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        current_leader_epoch=current_leader_epoch,
                        last_fetched_epoch=last_fetched_epoch,
                    )
                ],
            )
        ],
    )


async def until(condition: Any, what: str) -> None:
    """Waits for a state that comes about in tasks of the brokers; gives up after what is long for any machine."""
    deadline = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.01)
