"""How a leader asks transaction coordinators, over real sockets (KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.network import SocketNetwork
from ottla_broker.config import BrokerConfig
from ottla_broker.config.topics import TRANSACTION_STATE
from ottla_broker.internal_topics.partitioning import partition_for
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.metrics import Metrics
from ottla_broker.ports.network import Connection, Listener
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import add_partitions_to_txn as api
from ottla_broker.protocol.generated import update_metadata as um
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.peers.transaction_verifier import NetworkTransactionVerifier, VerificationBatch

LISTENER = "INTERNAL"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NONE = ErrorCode.NONE


class Coordinator:
    """A broker that answers AddPartitionsToTxn when the test says so."""

    def __init__(self) -> None:
        self.listener: Listener
        self.requests: asyncio.Queue[tuple[Connection, int, Any]] = asyncio.Queue()
        self.versions: list[int] = []

    def accept(self, connection: Connection) -> _Session:
        return _Session(self, connection)

    async def next_request(self) -> Any:
        """The request that is to be answered next."""
        found = await self.requests.get()
        self.requests._queue.appendleft(found)  # type: ignore[attr-defined]
        return found[2]

    async def answer(self, codes: dict[tuple[str, TopicPartition], ErrorCode], error: ErrorCode = NONE) -> None:
        """NONE for what is not named."""
        connection, correlation_id, request = await self.requests.get()
        response = api.AddPartitionsToTxnResponse(
            error_code=int(error),
            results_by_transaction=[
                api.AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=[
                        api.AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                api.AddPartitionsToTxnPartitionResult(
                                    partition_index=index,
                                    partition_error_code=int(
                                        codes.get(
                                            (transaction.transactional_id, TopicPartition(topic.name, index)), NONE
                                        )
                                    ),
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in transaction.topics
                    ],
                )
                for transaction in request.transactions
            ],
        )
        key = int(ApiKey.ADD_PARTITIONS_TO_TXN)
        connection.send(codec.frame_response(key, self.versions[-1], correlation_id, response))


class _Session:
    def __init__(self, coordinator: Coordinator, connection: Connection) -> None:
        self._coordinator = coordinator
        self._connection = connection

    def on_frame(self, frame: memoryview) -> None:
        header = codec.read_request_header(frame)
        assert header.api_key == ApiKey.ADD_PARTITIONS_TO_TXN
        request = api.read_request(header.api_version, memoryview(bytes(frame)), header.body_offset)
        self._coordinator.versions.append(header.api_version)
        self._coordinator.requests.put_nowait((self._connection, header.correlation_id, request))

    def on_sent(self) -> None: ...

    def on_close(self, reason: str) -> None: ...


class Fleet:
    """Coordinators 0 and 1, each of half of the partitions of `__transaction_state`, and the verifier of broker 7."""

    def __init__(self, network: SocketNetwork) -> None:
        self.network = network
        self.metadata = MetadataCache(7)
        self.metrics = Metrics()
        self.partition_count: int | None = 2
        self.coordinators = [Coordinator(), Coordinator()]
        self.here: dict[TopicPartition, ErrorCode] = {}
        """What the coordinator on broker 7 answers, NONE for what is not named."""
        self.asked_here: list[tuple[str, int, int]] = []

    async def start(self) -> None:
        for one in self.coordinators:
            one.listener = await self.network.listen("127.0.0.1", 0, one.accept, max_frame_bytes=1 << 20)
        self.elect(0, 1)

    def verifier(
        self, protocol_version: str = "3.9", request_timeout_ms: int = 3_600_000
    ) -> NetworkTransactionVerifier:
        config = BrokerConfig.from_mapping(
            {
                "listeners": f"{LISTENER}://127.0.0.1:0",
                "listener.security.protocol.map": f"{LISTENER}:PLAINTEXT",
                "inter.broker.listener.name": LISTENER,
                "inter.broker.protocol.version": protocol_version,
                "request.timeout.ms": str(request_timeout_ms),
            }
        )
        return NetworkTransactionVerifier(
            *(7, self.network, LoopClock(), self.metadata, self.metrics, config),
            partition_count=lambda: self.partition_count,
            verify_here=self.verify_here,
        )

    def verify_here(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        self.asked_here.append((transactional_id, producer_id, producer_epoch))
        return {partition: self.here.get(partition, NONE) for partition in partitions}

    def elect(self, *leaders: int) -> None:
        states = [
            um.UpdateMetadataPartitionState(partition_index=index, leader=leader, isr=[leader], replicas=[leader])
            for index, leader in enumerate(leaders)
        ]
        topics = [um.UpdateMetadataTopicState(topic_name=TRANSACTION_STATE, partition_states=states)] if states else []
        brokers = [
            um.UpdateMetadataBroker(
                id=number,
                endpoints=[
                    um.UpdateMetadataEndpoint(
                        host="127.0.0.1", port=one.listener.port, listener=LISTENER, security_protocol=0
                    )
                ],
            )
            for number, one in enumerate(self.coordinators)
        ]
        request = um.UpdateMetadataRequest(controller_id=7, controller_epoch=1, topic_states=topics)
        request.live_brokers = brokers
        self.metadata.update(request)

    def id_of(self, coordinator: int, number: int = 0) -> str:
        """The `number`th transactional id of that coordinator."""
        names = (f"tx-{n}" for n in range(1000))
        return [name for name in names if partition_for(name, 2) == coordinator][number]


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    network = SocketNetwork()
    fleet = Fleet(network)
    await fleet.start()
    yield fleet
    network.close()


@pytest.mark.parametrize(("protocol_version", "api_version"), [("3.6", 4), ("3.9", 5)])
async def test_one_request_carries_what_is_asked_of_a_coordinator_together(
    fleet: Fleet, protocol_version: str, api_version: int
) -> None:
    verifier = fleet.verifier(protocol_version)
    a, b, elsewhere = fleet.id_of(0), fleet.id_of(0, 1), fleet.id_of(1)
    answers = [
        verifier.verify(a, 7, 3, T0),
        verifier.verify(a, 7, 3, T1),
        verifier.verify(b, 8, 0, T0),
        verifier.verify(elsewhere, 9, 0, T0),
    ]
    first, second = fleet.coordinators
    request = await first.next_request()
    assert [
        (one.transactional_id, one.producer_id, one.producer_epoch, one.verify_only) for one in request.transactions
    ] == [(a, 7, 3, True), (b, 8, 0, True)]
    assert [(topic.name, topic.partitions) for topic in request.transactions[0].topics] == [("t", [0, 1])]
    await first.answer({(a, T1): ErrorCode.TRANSACTION_ABORTABLE, (b, T0): ErrorCode.PRODUCER_FENCED})
    await second.answer({})
    # PRODUCER_FENCED is for the producer's own requests to the coordinator: Produce knows INVALID_PRODUCER_EPOCH.
    expected = [NONE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_EPOCH, NONE]
    assert await asyncio.gather(*answers) == expected
    assert first.versions == [api_version]


async def test_what_is_asked_meanwhile_goes_into_the_next_request(fleet: Fleet) -> None:
    verifier, first = fleet.verifier(), fleet.coordinators[0]
    a, b, c = (fleet.id_of(0, number) for number in range(3))
    answers = [verifier.verify(a, 7, 0, T0)]
    await first.next_request()
    answers += [verifier.verify(b, 8, 0, T0), verifier.verify(c, 9, 0, T0)]
    await first.answer({})
    request = await first.next_request()
    assert [one.transactional_id for one in request.transactions] == [b, c]
    await first.answer({})
    assert await asyncio.gather(*answers) == [NONE] * 3


async def test_the_coordinator_on_the_same_broker_is_asked_without_a_request(fleet: Fleet) -> None:
    verifier = fleet.verifier()
    fleet.elect(7, 1)
    fleet.here = {T1: ErrorCode.PRODUCER_FENCED}
    name = fleet.id_of(0)
    answers = [verifier.verify(name, 7, 3, partition) for partition in (T0, T1)]
    assert await asyncio.gather(*answers) == [NONE, ErrorCode.INVALID_PRODUCER_EPOCH]
    assert fleet.asked_here == [(name, 7, 3)] * 2
    assert fleet.coordinators[0].requests.empty()


@pytest.mark.parametrize("protocol_version", ["3.5", "3.6", "3.9"])
async def test_a_partition_that_the_producer_does_not_add_is_added(fleet: Fleet, protocol_version: str) -> None:
    """Version 5 tells the coordinator that the producer uses transaction.version 2."""
    verifier, first = fleet.verifier(protocol_version), fleet.coordinators[0]
    answers = [verifier.verify(fleet.id_of(0), 7, 3, partition, adds_partition=True) for partition in (T0, T1)]
    request = await first.next_request()
    assert [(one.producer_id, one.producer_epoch, one.verify_only) for one in request.transactions] == [(7, 3, False)]
    await first.answer({(fleet.id_of(0), T1): ErrorCode.CONCURRENT_TRANSACTIONS})
    assert await asyncio.gather(*answers) == [NONE, ErrorCode.CONCURRENT_TRANSACTIONS]
    assert first.versions == [5]


async def test_a_partition_is_not_taken_as_added_when_the_coordinator_cannot_add(fleet: Fleet) -> None:
    answer = fleet.verifier().verify(fleet.id_of(0), 7, 0, T0, adds_partition=True)
    await fleet.coordinators[0].answer({}, ErrorCode.UNSUPPORTED_VERSION)
    assert await answer is ErrorCode.UNSUPPORTED_VERSION


async def test_a_coordinator_that_is_not_known_is_not_available(fleet: Fleet) -> None:
    verifier = fleet.verifier()
    fleet.elect(-1, 1)
    assert await verifier.verify(fleet.id_of(0), 7, 0, T0) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    fleet.elect(5, 1)  # a broker that is not alive
    assert await verifier.verify(fleet.id_of(0), 7, 0, T0) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    fresh = Fleet(fleet.network)
    assert await fresh.verifier().verify("tx", 7, 0, T0) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_no_coordinator_is_asked_while_it_is_not_known_how_many_partitions_there_are(fleet: Fleet) -> None:
    fleet.partition_count = None
    answer = fleet.verifier().verify(fleet.id_of(0), 7, 0, T0)
    assert await answer is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_partition_without_a_leader_changes_no_other_coordinator(fleet: Fleet) -> None:
    fleet.partition_count = 3  # the metadata have two of them
    found = next(name for name in (f"tx-{n}" for n in range(1000)) if partition_for(name, 3) != partition_for(name, 2))
    coordinator = partition_for(found, 3)
    answer = fleet.verifier().verify(found, 7, 0, T0)
    if coordinator == 2:
        assert await answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
        return
    await fleet.coordinators[coordinator].answer({})
    assert await answer is NONE


async def test_a_coordinator_that_does_not_answer_is_a_network_exception(fleet: Fleet) -> None:
    verifier, first = fleet.verifier(), fleet.coordinators[0]
    answer = verifier.verify(fleet.id_of(0), 7, 0, T0)
    connection, _, _ = await first.requests.get()
    connection.close()
    assert await answer is ErrorCode.NETWORK_EXCEPTION
    again = verifier.verify(fleet.id_of(0), 7, 0, T0)
    await first.answer({})
    assert await again is NONE
    silent = fleet.verifier(request_timeout_ms=20)
    assert await silent.verify(fleet.id_of(0), 7, 0, T0) is ErrorCode.NETWORK_EXCEPTION
    failures = fleet.metrics.counter("kafka_server_addpartitionstotxnmanager_verificationfailure", "")
    assert failures.value == 2


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNSUPPORTED_VERSION, NONE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_an_error_of_the_whole_response_is_that_of_each_partition(
    fleet: Fleet, error: ErrorCode, expected: ErrorCode
) -> None:
    verifier = fleet.verifier()
    answers = [verifier.verify(fleet.id_of(0), 7, 0, T0), verifier.verify(fleet.id_of(0, 1), 8, 0, T0)]
    await fleet.coordinators[0].answer({}, error)
    assert await asyncio.gather(*answers) == [expected] * 2


async def test_a_fleet_of_an_older_release_verifies_nothing(fleet: Fleet) -> None:
    assert await fleet.verifier("3.5").verify(fleet.id_of(0), 7, 0, T0) is NONE
    assert fleet.coordinators[0].requests.empty()


async def test_the_older_of_two_producers_of_a_transactional_id_is_fenced_at_once() -> None:
    clock, batch = LoopClock(), VerificationBatch()
    older, newer, oldest, same, other = (clock.create_future() for _ in range(5))
    batch.add("tx", 7, 1, T0, older)
    batch.add("tx", 7, 2, T0, newer)
    batch.add("tx", 7, 0, T0, oldest)
    batch.add("tx", 7, 2, T0, same)
    assert [older.result(), oldest.result()] == [ErrorCode.INVALID_PRODUCER_EPOCH] * 2
    assert not newer.done() and not same.done()
    batch.add("tx", 8, 2, T0, other)  # another id at the same epoch: the transactional id had expired
    assert [newer.result(), same.result()] == [ErrorCode.NETWORK_EXCEPTION] * 2
    (transaction,) = batch.request().transactions
    assert (transaction.producer_id, transaction.producer_epoch) == (8, 2)
    batch.complete(api.AddPartitionsToTxnResponse())
    assert other.result() is ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator left it out"
