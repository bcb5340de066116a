"""The handlers of the transaction coordinator's APIs, in every version: through the generated readers and writers."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.config.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla_broker.internal_topics.partitioning import partition_for
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import add_partitions_to_txn as add
from ottla_broker.protocol.generated import update_metadata as um
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.edge.dispatch import served as served_listings
from ottla_broker.transactions.states import TransactionState
from tests.broker.groups.surroundings import in_virtual_time
from tests.broker.server.contexts import handler_context
from tests.broker.transactions.surroundings import T0, Broker, started

PARTITIONS = 4
LISTINGS = {listing.api_key: listing for listing in served_listings({})}


class Server:
    """Broker 7 with its transaction coordinator; topic `t` has two partitions."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.metadata = MetadataCache(7)
        self.created: list[str] = []
        self.offsets_count: int | None = 50
        """Of `__consumer_offsets`."""
        self.services = SimpleNamespace(
            broker_id=7,
            clock=broker.clock,
            metadata=self.metadata,
            transaction_coordinator=broker.coordinator,
            group_coordinator=SimpleNamespace(
                partitions=SimpleNamespace(index_of=lambda group: partition_for(group, self.offsets_count))
            ),
            auto_create_internal=self._create,
        )
        self.add_topic("t", 2)

    async def _create(self, name: str) -> int:
        self.created.append(name)
        return 0

    def add_topic(self, name: str, partitions: int, leader: int = 7) -> None:
        states = [
            um.UpdateMetadataPartitionState(partition_index=index, leader=leader, isr=[leader], replicas=[leader])
            for index in range(partitions)
        ]
        endpoint = um.UpdateMetadataEndpoint(host="kafka-7", port=9092, listener="CLIENT", security_protocol=0)
        topic = um.UpdateMetadataTopicState(topic_name=name, partition_states=states)
        live = [um.UpdateMetadataBroker(id=leader, endpoints=[endpoint])]
        self.metadata.update(
            um.UpdateMetadataRequest(controller_id=7, controller_epoch=1, topic_states=[topic], live_brokers=live)
        )

    async def call(self, api: ApiKey, version: int, **fields: Any) -> Any:
        module = codec.module(api)
        request_class = getattr(module, f"{codec.spec(api).name}Request")
        sent = b"".join(module.write_request(version, request_class(**fields)))
        request = module.read_request(version, memoryview(sent))
        context = handler_context(api_version=version, client_id="app", listener="CLIENT", peer=("127.0.0.1", 5))
        handler = importlib.import_module(f"ottla_broker.server.handlers.{LISTINGS[api].module}")
        response = await handler.handle(self.services, context, request)
        answered = b"".join(module.write_response(version, response))
        return module.read_response(version, memoryview(answered))

    async def add_partitions(self, version: int, *, verify_only: bool = False, **fields: Any) -> dict[Any, int]:
        """The error code by partition; below version 4 and above."""
        topics = [
            add.AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in fields["topics"].items()
        ]
        names = ("transactional_id", "producer_id", "producer_epoch")
        if version < 4:
            before_4 = {f"v3_and_below_{name}": fields[name] for name in names}
            response = await self.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, v3_and_below_topics=topics, **before_4)
            results = response.results_by_topic_v3_and_below
        else:
            named = {name: fields[name] for name in names}
            one = add.AddPartitionsToTxnTransaction(topics=topics, verify_only=verify_only, **named)
            response = await self.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=[one])
            assert response.error_code == 0
            (result,) = response.results_by_transaction
            assert result.transactional_id == fields["transactional_id"]
            results = result.topic_results
        return {
            TopicPartition(topic.name, one.partition_index): one.partition_error_code
            for topic in results
            for one in topic.results_by_partition
        }


def served(scenario: Callable[[Server], Coroutine[Any, Any, None]], **config: int) -> None:
    async def run(clock: Clock) -> None:
        await scenario(Server(await started(clock, partitions=PARTITIONS, **config)))

    in_virtual_time(run)


def versions(api: ApiKey, first: int = 0) -> pytest.MarkDecorator:
    listing = LISTINGS[api]
    return pytest.mark.parametrize("version", range(max(first, listing.lowest), listing.highest + 1))


@versions(ApiKey.INIT_PRODUCER_ID)
def test_init_producer_id_raises_the_epoch_of_a_transactional_id(version: int) -> None:
    async def scenario(server: Server) -> None:
        fields = {"transactional_id": "id", "transaction_timeout_ms": 1_000}
        for epoch in range(2):
            answer = await server.call(ApiKey.INIT_PRODUCER_ID, version, **fields)
            assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 1000, epoch)
        if version >= 3:
            known = {"producer_id": 1000, "producer_epoch": 1}
            answer = await server.call(ApiKey.INIT_PRODUCER_ID, version, **fields, **known)
            assert (answer.error_code, answer.producer_epoch) == (0, 2)
            answer = await server.call(ApiKey.INIT_PRODUCER_ID, version, **fields, producer_id=1000, producer_epoch=0)
            assert answer.error_code == (90 if version >= 4 else 47)
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        fields["transaction_timeout_ms"] = 900_001
        answer = await server.call(ApiKey.INIT_PRODUCER_ID, version, **fields)
        assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        answer = await server.call(ApiKey.INIT_PRODUCER_ID, version, transactional_id="", transaction_timeout_ms=1)
        assert answer.error_code == ErrorCode.INVALID_REQUEST

    served(scenario)


@versions(ApiKey.INIT_PRODUCER_ID, 6)
def test_init_producer_id_keeps_a_transaction(version: int) -> None:
    async def scenario(server: Server) -> None:
        fields = {"transactional_id": "id", "transaction_timeout_ms": 10**9, "enable2_pc": True}
        answer = await server.call(ApiKey.INIT_PRODUCER_ID, version, **fields, keep_prepared_txn=True)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 1000, 0)
        assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (-1, -1)
        assert await server.broker.coordinator.add_partitions("id", 1000, 0, [T0]) == 0
        answer = await server.call(ApiKey.INIT_PRODUCER_ID, version, **fields, keep_prepared_txn=True)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 1000, 1)
        assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (1000, 0)
        answer = await server.call(ApiKey.INIT_PRODUCER_ID, version, **fields)
        assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (-1, -1)

    served(scenario, transaction__two__phase__commit__enable=True)


@versions(ApiKey.INIT_PRODUCER_ID, 6)
def test_init_producer_id_refuses_two_phases_unless_they_are_enabled(version: int) -> None:
    async def scenario(server: Server) -> None:
        fields = {"transactional_id": "id", "transaction_timeout_ms": 1_000, "enable2_pc": True}
        answer = await server.call(ApiKey.INIT_PRODUCER_ID, version, **fields)
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)

    served(scenario)


@versions(ApiKey.ADD_PARTITIONS_TO_TXN)
def test_partitions_join_a_transaction_all_or_none(version: int) -> None:
    async def scenario(server: Server) -> None:
        answer = await server.broker.initialize("id")
        known = {"transactional_id": "id", "producer_id": answer.producer_id, "producer_epoch": 0}
        errors = await server.add_partitions(version, topics={"t": [0, 5], "gone": [0]}, **known)
        assert errors == {T0: 55, TopicPartition("t", 5): 3, TopicPartition("gone", 0): 3}
        assert server.broker.state("id") is TransactionState.EMPTY
        assert await server.add_partitions(version, topics={"t": [0, 1]}, **known) == {T0: 0, ("t", 1): 0}
        assert server.broker.state("id") is TransactionState.ONGOING
        known["producer_epoch"] = 3
        fenced = 90 if version >= 2 else 47
        assert await server.add_partitions(version, topics={"t": [0]}, **known) == {T0: fenced}
        known["producer_id"] = 3
        assert await server.add_partitions(version, topics={"t": [0]}, **known) == {T0: 49}

    served(scenario)


@versions(ApiKey.ADD_PARTITIONS_TO_TXN)
@pytest.mark.parametrize("internal", [CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state"])
def test_a_producer_cannot_add_an_internal_topic_to_its_transaction(version: int, internal: str) -> None:
    """Its records and markers would get among those of the coordinators; a broker adds the topics that it leads."""

    async def scenario(server: Server) -> None:
        server.add_topic(internal, 1)
        answer = await server.broker.initialize("id")
        known = {"transactional_id": "id", "producer_id": answer.producer_id, "producer_epoch": 0}
        topics = {"t": [0], internal: [0, 9], "gone": [0]}
        errors = await server.add_partitions(version, topics=topics, **known)
        refused = 29 if version < 4 else 55
        missing = 29 if version < 4 else 3
        assert errors == {T0: 55, (internal, 0): refused, (internal, 9): missing, ("gone", 0): 3}
        assert server.broker.state("id") is TransactionState.EMPTY
        alone = await server.add_partitions(version, topics={internal: [0]}, **known)
        assert alone == {(internal, 0): 29 if version < 4 else 0}

    served(scenario)


@versions(ApiKey.ADD_PARTITIONS_TO_TXN, 4)
def test_brokers_verify_the_partitions_of_several_transactions_in_one_request(version: int) -> None:
    async def scenario(server: Server) -> None:
        await server.broker.begin("a", T0)
        await server.broker.initialize("b")
        topics = [add.AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]
        response = await server.call(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            transactions=[
                add.AddPartitionsToTxnTransaction(
                    transactional_id=name, producer_id=producer_id, verify_only=True, topics=topics
                )
                for name, producer_id in (("a", 1000), ("b", 1001), ("unknown", 1002))
            ],
        )
        found = {
            result.transactional_id: [one.partition_error_code for one in result.topic_results[0].results_by_partition]
            for result in response.results_by_transaction
        }
        assert found == {"a": [0, 120], "b": [120, 120], "unknown": [49, 49]}
        assert server.broker.state("b") is TransactionState.EMPTY

    served(scenario)


@versions(ApiKey.ADD_OFFSETS_TO_TXN)
def test_the_offsets_of_a_group_join_a_transaction(version: int) -> None:
    async def scenario(server: Server) -> None:
        answer = await server.broker.initialize("id")
        fields = {"transactional_id": "id", "producer_id": answer.producer_id, "group_id": "orders"}
        added = await server.call(ApiKey.ADD_OFFSETS_TO_TXN, version, **fields)
        assert added.error_code == 0
        metadata = server.broker.coordinator.describe("id")[1]
        assert metadata is not None
        assert metadata.partitions == {TopicPartition(CONSUMER_OFFSETS, partition_for("orders", 50))}
        fenced = await server.call(ApiKey.ADD_OFFSETS_TO_TXN, version, **fields, producer_epoch=4)
        assert fenced.error_code == (90 if version >= 2 else 47)
        server.offsets_count = None
        unknown = await server.call(ApiKey.ADD_OFFSETS_TO_TXN, version, **fields)
        assert unknown.error_code == int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        after = server.broker.coordinator.describe("id")[1]
        assert after is not None and after.partitions == metadata.partitions

    served(scenario)


@versions(ApiKey.END_TXN)
def test_end_txn_answers_when_the_outcome_is_committed(version: int) -> None:
    async def scenario(server: Server) -> None:
        producer_id, epoch = await server.broker.begin("id", T0)
        fields = {"transactional_id": "id", "producer_id": producer_id, "committed": True}
        assert (await server.call(ApiKey.END_TXN, version, **fields, producer_epoch=4)).error_code == (
            90 if version >= 2 else 47
        )
        assert (await server.call(ApiKey.END_TXN, version, **fields, producer_epoch=epoch)).error_code == 0
        stored = server.broker.log.committed_metadata("id")
        assert stored is not None and stored.state is TransactionState.PREPARE_COMMIT
        await server.broker.reaches("id", TransactionState.COMPLETE_COMMIT)
        fields["committed"] = False
        assert (await server.call(ApiKey.END_TXN, version, **fields, producer_epoch=epoch)).error_code == 48

    served(scenario)


@versions(ApiKey.FIND_COORDINATOR, 1)
def test_find_coordinator_creates_the_transaction_topic_and_names_its_leader(version: int) -> None:
    async def scenario(server: Server) -> None:
        async def found() -> tuple[int, int]:
            fields = {"key": "id"} if version < 4 else {"coordinator_keys": ["id"]}
            response = await server.call(ApiKey.FIND_COORDINATOR, version, key_type=1, **fields)
            one = response if version < 4 else response.coordinators[0]
            return one.error_code, one.node_id

        assert await found() == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        assert server.created == [TRANSACTION_STATE]
        server.add_topic(TRANSACTION_STATE, PARTITIONS)
        assert await found() == (0, 7)
        server.broker.coordinator.partitions.on_resignation(server.broker.index("id"), 1)
        assert await found() == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)

    served(scenario)


def test_a_transaction_is_described_with_the_partitions_that_are_open() -> None:
    async def scenario(server: Server) -> None:
        producer_id, epoch = await server.broker.begin("id", T0, TopicPartition("t", 1), TopicPartition("s", 2))
        started_ms = server.broker.clock.now_ms()
        response = await server.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["id", "", "gone"])
        found, empty, gone = response.transaction_states
        assert (found.error_code, found.transactional_id, found.transaction_state) == (0, "id", "Ongoing")
        assert (found.producer_id, found.producer_epoch, found.transaction_timeout_ms) == (producer_id, epoch, 60_000)
        assert 0 <= started_ms - found.transaction_start_time_ms < 1_000
        assert [(topic.topic, topic.partitions) for topic in found.topics] == [("s", [2]), ("t", [0, 1])]
        assert (empty.transactional_id, empty.error_code) == ("", ErrorCode.INVALID_REQUEST)
        assert (gone.transactional_id, gone.error_code) == ("gone", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)

    served(scenario)


@versions(ApiKey.LIST_TRANSACTIONS)
def test_transactions_are_listed_by_filters(version: int) -> None:
    async def scenario(server: Server) -> None:
        async def listed(**filters: Any) -> list[tuple[str, int, str]]:
            response = await server.call(ApiKey.LIST_TRANSACTIONS, version, **filters)
            assert response.error_code == 0
            return [
                (one.transactional_id, one.producer_id, one.transaction_state) for one in response.transaction_states
            ]

        await asyncio.gather(server.broker.begin("a", T0), server.broker.initialize("b"))
        every = {"a": "Ongoing", "b": "Empty"}
        assert {name: state for name, _, state in await listed()} == every
        assert [name for name, _, _ in await listed(state_filters=["Ongoing"])] == ["a"]
        (found,) = await listed(producer_id_filters=[1001])
        assert found[1] == 1001
        response = await server.call(ApiKey.LIST_TRANSACTIONS, version, state_filters=["ongoing", "nope", "nope"])
        assert (response.unknown_state_filters, response.transaction_states) == (["nope", "ongoing"], [])
        if version >= 1:
            assert await listed(duration_filter=3_600_000, state_filters=["Ongoing"]) == []
        if version >= 2:
            await server.broker.initialize("ab")
            for pattern, names in (("a", ["a"]), ("a.*", ["a", "ab"]), ("[ab]", ["a", "b"]), ("x", []), ("", None)):
                found = await listed(transactional_id_pattern=pattern)
                assert sorted(name for name, _, _ in found) == (["a", "ab", "b"] if names is None else names)
            found = await listed(transactional_id_pattern="a.*", state_filters=["Empty"])
            assert [name for name, _, _ in found] == ["ab"]
            response = await server.call(ApiKey.LIST_TRANSACTIONS, version, transactional_id_pattern="(?=a)")
            assert (response.error_code, response.transaction_states) == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])
        server.broker.log.read_delay_s = 1.0
        server.broker.coordinator.partitions.on_resignation(0, 1)
        server.broker.elect(0, 2)
        response = await server.call(ApiKey.LIST_TRANSACTIONS, version)
        assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await server.broker.loaded()

    served(scenario)
