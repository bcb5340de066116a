"""Asks transaction coordinators whether partitions belong to transactions, or has them added (KIP-890):
AddPartitionsToTxn with and without VerifyOnly.

Implements `replication.transaction_verification.TransactionVerifier`. Questions for one coordinator that come while a
request to it is on its way go into the next one; a coordinator has at most one request in flight. Ports used: Network,
Clock. A question is asked once: the producer tries again. The coordinator on this broker verifies during the call.

Source: kafka.server.AddPartitionsToTxnManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla_broker.config import BrokerConfig
from ottla_broker.config.inter_broker import inter_broker_versions
from ottla_broker.config.topics import TRANSACTION_STATE
from ottla_broker.internal_topics.partitioning import partition_for
from ottla_broker.metrics import Metrics
from ottla_broker.ports import Clock
from ottla_broker.ports.network import Connector
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.peers.broker_client import BrokerClient, BrokerDisconnected

if TYPE_CHECKING:
    from ottla_broker.metadata.cache import MetadataCache

Answer = asyncio.Future[ErrorCode]
VerifyHere = Callable[[str, int, int, Sequence[TopicPartition]], Mapping[TopicPartition, ErrorCode]]
"""`TransactionCoordinator.verify_partitions` of this broker."""

_FIRST_VERSION_2 = 5
"""Of AddPartitionsToTxn: without VerifyOnly it is of a transaction of version 2."""
_METRICS = "kafka_server_addpartitionstotxnmanager"


class _Transaction:
    """A producer's transaction, and who waits for which of its partitions."""

    __slots__ = ("adds_partitions", "partitions", "producer_epoch", "producer_id")

    def __init__(self, producer_id: int, producer_epoch: int, adds_partitions: bool) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.adds_partitions = adds_partitions
        self.partitions: dict[TopicPartition, list[Answer]] = {}

    def answers(self) -> Iterator[Answer]:
        for answers in self.partitions.values():
            yield from answers


class VerificationBatch:
    """The questions that one request carries. Does no I/O."""

    def __init__(self) -> None:
        self._transactions: dict[str, _Transaction] = {}

    @property
    def adds_partitions(self) -> bool:
        """Whether any of the transactions adds partitions."""
        return any(transaction.adds_partitions for transaction in self._transactions.values())

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        answer: Answer,
        *,
        adds_partition: bool = False,
    ) -> None:
        """A request names a transactional id once: the older of two epochs is fenced, and answered at once. Of two
        questions of one producer that cannot go together, the first is to be asked again."""
        known = self._transactions.get(transactional_id)
        if known is not None and producer_epoch < known.producer_epoch:
            _tell(answer, ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        if known is None or (known.producer_id, known.producer_epoch, known.adds_partitions) != (
            producer_id,
            producer_epoch,
            adds_partition,
        ):
            if known is not None:
                is_fenced = known.producer_epoch < producer_epoch
                error = ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION
                for one in known.answers():
                    _tell(one, error)
            known = self._transactions[transactional_id] = _Transaction(producer_id, producer_epoch, adds_partition)
        known.partitions.setdefault(partition, []).append(answer)

    def request(self) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=transaction.producer_id,
                    producer_epoch=transaction.producer_epoch,
                    verify_only=not transaction.adds_partitions,
                    topics=_topics(transaction.partitions),
                )
                for transactional_id, transaction in self._transactions.items()
            ]
        )

    def complete(self, response: AddPartitionsToTxnResponse) -> None:
        """Answers everybody. A coordinator that cannot verify leaves the check out, as Apache Kafka does."""
        if response.error_code:
            error = ErrorCode.of(response.error_code)
            if error is ErrorCode.UNSUPPORTED_VERSION and not self.adds_partitions:
                error = ErrorCode.NONE
            elif error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                error = ErrorCode.INVALID_TXN_STATE  # it is this broker that may not ask, not the client
            self.fail(error)
            return
        for result in response.results_by_transaction:
            transaction = self._transactions.get(result.transactional_id)
            if transaction is None:
                continue
            for topic in result.topic_results:
                for one in topic.results_by_partition:
                    code = _for_producer(ErrorCode.of(one.partition_error_code))
                    for answer in transaction.partitions.get(TopicPartition(topic.name, one.partition_index), []):
                        _tell(answer, code)
        self.fail(ErrorCode.UNKNOWN_SERVER_ERROR)  # whatever the coordinator left out

    def fail(self, error: ErrorCode) -> None:
        """Answers everybody who has no answer yet."""
        for transaction in self._transactions.values():
            for answer in transaction.answers():
                _tell(answer, error)


class _Coordinator:
    """One broker that coordinates transactions: its connection and the next request."""

    __slots__ = ("client", "is_sending", "next_batch")

    def __init__(self, client: BrokerClient) -> None:
        self.client = client
        self.next_batch: VerificationBatch | None = None
        self.is_sending = False


class NetworkTransactionVerifier:
    """See the module."""

    def __init__(
        self,
        broker_id: int,
        connector: Connector,
        clock: Clock,
        metadata: MetadataCache,
        metrics: Metrics,
        config: BrokerConfig,
        *,
        partition_count: Callable[[], int | None],
        verify_here: VerifyHere,
    ) -> None:
        """
        Args:
            config: below inter.broker.protocol.version 3.6 the fleet's coordinators cannot verify, and every answer is
                NONE.
            partition_count: of `__transaction_state`; None while it is not known.
        """
        self._broker_id = broker_id
        self._partition_count = partition_count
        self._verify_here = verify_here
        self._client_id = f"broker-{broker_id}-transaction-verifier"
        self._connector = connector
        self._clock = clock
        self._metadata = metadata
        self._listener = config.listeners.inter_broker
        self._api_version = inter_broker_versions(config.inter_broker_protocol_version).add_partitions_to_txn
        self._timeout_s = config.request_timeout_ms / 1000
        self._coordinators: dict[tuple[str, int], _Coordinator] = {}
        self._failures = metrics.counter(
            f"{_METRICS}_verificationfailure", "Partitions whose place in a transaction could not be verified."
        )
        self._time = metrics.histogram(
            f"{_METRICS}_verificationtime_seconds", "How long the verification of a partition in a transaction takes."
        )

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        adds_partition: bool = False,
    ) -> Answer:
        answer: Answer = self._clock.create_future()
        answer.add_done_callback(partial(self._count, self._clock.monotonic()))
        if self._api_version is None and not adds_partition:
            answer.set_result(ErrorCode.NONE)
            return answer
        leader = self._leader_of(transactional_id)
        if leader == self._broker_id and not adds_partition:
            producer = (transactional_id, producer_id, producer_epoch)
            answer.set_result(_for_producer(self._verify_here(*producer, (partition,))[partition]))
            return answer
        coordinator = None if leader is None else self._coordinator_on(leader)
        if coordinator is None:
            answer.set_result(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return answer
        if coordinator.next_batch is None:
            coordinator.next_batch = VerificationBatch()
        coordinator.next_batch.add(
            transactional_id, producer_id, producer_epoch, partition, answer, adds_partition=adds_partition
        )
        if not coordinator.is_sending:
            coordinator.is_sending = True
            # What is asked in this turn of the loop goes into one request.
            self._clock.spawn(self._send(coordinator), name="verify transactions")
        return answer

    def _leader_of(self, transactional_id: str) -> int | None:
        index = partition_for(transactional_id, self._partition_count())
        found = self._metadata.partition(TRANSACTION_STATE, index)
        return None if found is None else found.leader

    def _coordinator_on(self, broker_id: int) -> _Coordinator | None:
        endpoint = self._metadata.endpoint(broker_id, self._listener)
        if endpoint is None:
            return None
        address = (endpoint.host, endpoint.port)
        if address not in self._coordinators:
            client = BrokerClient(
                self._connector,
                self._clock,
                *address,
                client_id=self._client_id,
                connect_timeout_s=self._timeout_s,
                request_timeout_s=self._timeout_s,
            )
            self._coordinators[address] = _Coordinator(client)
        return self._coordinators[address]

    async def _send(self, coordinator: _Coordinator) -> None:
        try:
            while (batch := coordinator.next_batch) is not None:
                coordinator.next_batch = None
                # Only a fleet of ours lists what asks for it, and the version tells the coordinator that the producer
                # uses transaction.version 2.
                version = _FIRST_VERSION_2 if batch.adds_partitions else self._api_version
                assert version is not None
                try:
                    await coordinator.client.connect()
                    response = await coordinator.client.send(ApiKey.ADD_PARTITIONS_TO_TXN, version, batch.request())
                except BrokerDisconnected:
                    batch.fail(ErrorCode.NETWORK_EXCEPTION)
                else:
                    batch.complete(response)
                finally:
                    batch.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
        finally:
            coordinator.is_sending = False

    def _count(self, started: float, answer: Answer) -> None:
        self._time.observe(self._clock.monotonic() - started)
        if not answer.cancelled() and answer.result() is not ErrorCode.NONE:
            self._failures.inc()


def _topics(partitions: dict[TopicPartition, list[Answer]]) -> list[AddPartitionsToTxnTopic]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    return [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic.items()]


def _for_producer(error: ErrorCode) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error


def _tell(answer: Answer, error: ErrorCode) -> None:
    if not answer.done():
        answer.set_result(error)
