"""Real producers with transactions: what they commit is read, what they abort is not, whatever brokers do."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaProducer

from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from tests.integration.clients.committed import read_committed
from tests.integration.clients.driver import LIMIT_S, await_that
from tests.integration.clients.java import JavaMachine
from tests.integration.clients.topics import create, metadata
from tests.integration.wire import Wire

PARTITIONS = 3
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


class Lot(NamedTuple):
    """One transaction: its values go to the partitions in turn."""

    values: list[bytes]
    is_committed: bool


LOTS = [Lot([b"%d-%d" % (lot, number) for number in range(7)], lot % 3 != 1) for lot in range(6)]
"""Two of three are committed."""

Write = Callable[[pytest.FixtureRequest, str, str, Sequence[Lot]], None]


def librdkafka(request: pytest.FixtureRequest, bootstrap: str, topic: str, lots: Sequence[Lot]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(LIMIT_S)
    for lot in lots:
        producer.begin_transaction()
        send(producer, topic, lot.values)
        if lot.is_committed:
            producer.commit_transaction(LIMIT_S)
        else:
            producer.flush(LIMIT_S)
            producer.abort_transaction(LIMIT_S)


def kafka_python(request: pytest.FixtureRequest, bootstrap: str, topic: str, lots: Sequence[Lot]) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), transactional_id=topic)
    producer.init_transactions()
    for lot in lots:
        producer.begin_transaction()
        for number, value in enumerate(lot.values):
            producer.send(topic, value, partition=number % PARTITIONS)
        if lot.is_committed:
            producer.commit_transaction()
        else:
            producer.flush()
            producer.abort_transaction()
    producer.close()


def aiokafka(request: pytest.FixtureRequest, bootstrap: str, topic: str, lots: Sequence[Lot]) -> None:
    async def write() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
        async with asyncio.timeout(LIMIT_S):
            await producer.start()
            for lot in lots:
                await producer.begin_transaction()
                for number, value in enumerate(lot.values):
                    await producer.send_and_wait(topic, value, partition=number % PARTITIONS)
                await (producer.commit_transaction() if lot.is_committed else producer.abort_transaction())
            await producer.stop()

    asyncio.run(write())


def java(request: pytest.FixtureRequest, bootstrap: str, topic: str, lots: Sequence[Lot]) -> None:
    machine: JavaMachine = request.getfixturevalue("machine")
    transactions = [
        {"values": [base64.b64encode(value).decode() for value in lot.values], "commit": lot.is_committed}
        for lot in lots
    ]
    config = {"transactional.id": topic}
    arguments = {"topic": topic, "partitions": PARTITIONS, "transactions": transactions}
    machine.ask("transactions", bootstrap=bootstrap, config=config, **arguments)


def send(producer: Producer, topic: str, values: Sequence[bytes]) -> None:
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)


def committed(lots: Sequence[Lot]) -> list[bytes]:
    return sorted(value for lot in lots if lot.is_committed for value in lot.values)


def coordinator_of(fleet: RunningCluster, transactional_id: str) -> int:
    api = codec.module(ApiKey.FIND_COORDINATOR)
    found: list[int] = []

    def is_found() -> bool:
        with Wire(fleet.address(fleet.running[0])) as wire:
            answer = wire.ask(ApiKey.FIND_COORDINATOR, 2, api.FindCoordinatorRequest(key=transactional_id, key_type=1))
        found.append(answer.node_id)
        return bool(answer.error_code == 0)

    await_that(is_found, f"{transactional_id} has a coordinator")
    return found[-1]


def state_of(fleet: RunningCluster, transactional_id: str) -> str:
    """Empty while there is no coordinator, or it is loading."""
    api = codec.module(ApiKey.DESCRIBE_TRANSACTIONS)
    coordinator = coordinator_of(fleet, transactional_id)
    if coordinator not in fleet.running:
        return ""
    with Wire(fleet.address(coordinator)) as wire:
        request = api.DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (described,) = wire.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
    state: str = described.transaction_state
    return state


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(librdkafka, id="librdkafka"),
        pytest.param(kafka_python, id="kafka-python"),
        pytest.param(aiokafka, id="aiokafka"),
        pytest.param(java, id="java", marks=pytest.mark.java),
    ],
)
def test_a_consumer_reads_what_is_committed_and_nothing_else(
    request: pytest.FixtureRequest, bootstrap: str, name: str, write: Write
) -> None:
    create(bootstrap, name, partitions=PARTITIONS)
    write(request, bootstrap, name, LOTS)
    assert read_committed(bootstrap, name, PARTITIONS) == committed(LOTS)


def test_a_second_producer_fences_the_first_and_aborts_what_it_has_open(bootstrap: str, name: str) -> None:
    create(bootstrap, name, partitions=PARTITIONS)
    first = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    first.init_transactions(LIMIT_S)
    first.begin_transaction()
    send(first, name, [b"of the first"] * 3)
    assert first.flush(LIMIT_S) == 0
    second = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    second.init_transactions(LIMIT_S)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(LIMIT_S)
    assert raised.value.args[0].code() == KafkaError._FENCED
    assert raised.value.args[0].fatal()
    second.begin_transaction()
    send(second, name, [b"of the second"] * 3)
    second.commit_transaction(LIMIT_S)
    assert read_committed(bootstrap, name, PARTITIONS) == [b"of the second"] * 3


@pytest.mark.java
def test_the_transactions_tool_lists_and_describes(bootstrap: str, name: str, machine: JavaMachine) -> None:
    create(bootstrap, name, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    send(producer, name, [b"x"] * 3)
    assert producer.flush(LIMIT_S) == 0
    given = ("--bootstrap-server", bootstrap)
    listed = machine.tool(TRANSACTIONS, *given, "list")
    assert [line.split()[3] for line in listed.out.splitlines() if line.split()[0] == name] == ["Ongoing"]
    described = machine.tool(TRANSACTIONS, *given, "describe", "--transactional-id", name)
    partitions = described.out.splitlines()[1].split()[-1]
    assert sorted(partitions.split(",")) == [f"{name}-{index}" for index in range(PARTITIONS)]
    producer.abort_transaction(LIMIT_S)


@pytest.fixture
def own_fleet() -> Iterator[RunningCluster]:
    """A fleet whose brokers a test kills; transactions time out soon."""
    config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200", "min.insync.replicas": "2"}
    with cluster(brokers=3, racks=3, config=config) as found:
        yield found


def test_a_transaction_that_is_open_for_too_long_is_aborted(own_fleet: RunningCluster, name: str) -> None:
    bootstrap = own_fleet.bootstrap
    create(bootstrap, name, partitions=PARTITIONS)
    config = {"bootstrap.servers": bootstrap, "transactional.id": name}
    producer = Producer({**config, "transaction.timeout.ms": 1_000})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    send(producer, name, [b"late"] * 3)
    assert producer.flush(LIMIT_S) == 0
    await_that(lambda: state_of(own_fleet, name) == "CompleteAbort", "the transaction is aborted")
    with pytest.raises(KafkaException):
        producer.commit_transaction(LIMIT_S)
    assert read_committed(bootstrap, name, PARTITIONS) == []


def test_a_transaction_goes_on_when_its_coordinator_dies(own_fleet: RunningCluster, name: str) -> None:
    bootstrap = own_fleet.bootstrap
    create(bootstrap, name, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    send(producer, name, [b"before"] * 3)
    assert producer.flush(LIMIT_S) == 0
    victim = coordinator_of(own_fleet, name)
    own_fleet.kill(victim)
    send(producer, name, [b"after"] * 3)
    producer.commit_transaction(LIMIT_S)
    own_fleet.start(victim)
    assert read_committed(bootstrap, name, PARTITIONS) == [b"after"] * 3 + [b"before"] * 3


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_the_next_coordinator_ends_what_the_last_one_had_decided(
    own_fleet: RunningCluster, name: str, is_commit: bool
) -> None:
    """One partition has its only replica on a broker that is dead, so that its marker waits; then the coordinator
    dies as well."""
    bootstrap = own_fleet.bootstrap
    create(bootstrap, name, partitions=PARTITIONS, replicas=1, min_insync_replicas="1")
    transactional_id = name
    coordinator = coordinator_of(own_fleet, transactional_id)
    with Wire(own_fleet.address(coordinator)) as wire:
        leaders = metadata(wire, name)
    dead = next(broker for broker in own_fleet.running if broker != coordinator)
    partition = next(index for index, leader in leaders.items() if leader == dead)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    producer.produce(name, b"decided", partition=partition)
    assert producer.flush(LIMIT_S) == 0
    own_fleet.kill(dead)
    (producer.commit_transaction if is_commit else producer.abort_transaction)(LIMIT_S)
    prepared = "PrepareCommit" if is_commit else "PrepareAbort"
    assert state_of(own_fleet, transactional_id) == prepared
    own_fleet.kill(coordinator)
    own_fleet.start(dead)
    complete = "CompleteCommit" if is_commit else "CompleteAbort"
    await_that(lambda: state_of(own_fleet, transactional_id) == complete, "the next coordinator ends it")
    own_fleet.start(coordinator)
    assert read_committed(bootstrap, name, PARTITIONS) == ([b"decided"] if is_commit else [])
