"""A transactional id whose coordinator is a broker of Apache Kafka, then one of ours, then the first again."""

from __future__ import annotations

import signal
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.config.topics import TRANSACTION_STATE
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from tests.integration.clients.committed import read_committed
from tests.integration.clients.driver import LIMIT_S, await_that
from tests.integration.wire import Wire
from tests.mixed.fleet import BROKERS, PARTITIONS, Kind, MixedFleet
from tests.nemesis.load import TOPIC

pytestmark = [pytest.mark.java, pytest.mark.long]


def other(kind: Kind) -> Kind:
    return Kind.OURS if kind is Kind.APACHE else Kind.APACHE


def coordinating(fleet: MixedFleet) -> tuple[list[int], list[int]]:
    """Replicas and ISR of the transaction topic's partition; its leader is the first of the replicas in the ISR."""
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    (partition,) = admin.list_topics(TRANSACTION_STATE, LIMIT_S).topics[TRANSACTION_STATE].partitions.values()
    return list(partition.replicas), list(partition.isrs)


def await_whole(fleet: MixedFleet) -> None:
    await_that(
        lambda: fleet.state().is_whole and len(coordinating(fleet)[1]) == len(BROKERS), "every replica is in sync"
    )


def transact(fleet: MixedFleet, producer: Producer, value: bytes, victim: int | None = None) -> None:
    """One record to each partition; the victim is killed before the commit."""
    producer.begin_transaction()
    for index in range(PARTITIONS):
        producer.produce(TOPIC, value, partition=index)
    assert producer.flush(LIMIT_S) == 0
    if victim is not None:
        fleet.end(victim, signal.SIGKILL)
    producer.commit_transaction(LIMIT_S)


@pytest.mark.parametrize("first", [Kind.APACHE, Kind.OURS], ids=["apache-first", "ours-first"])
def test_a_transaction_goes_on_under_a_coordinator_of_the_other_kind(
    tmp_path: Path, zookeeper: ZooKeeperServer, first: Kind
) -> None:
    connect = f"{zookeeper.connect}/mixed-{uuid.uuid4()}"
    fleet = MixedFleet(tmp_path, connect, (first,) * len(BROKERS), "3.9")
    try:
        fleet.start()
        producer = Producer({"bootstrap.servers": fleet.bootstrap, "transactional.id": "id"})
        producer.init_transactions(LIMIT_S)
        transact(fleet, producer, b"0")
        (one, two, _), _ = coordinating(fleet)
        fleet.end(two, signal.SIGTERM)
        fleet.start_again(two, other(first))
        await_whole(fleet)
        transact(fleet, producer, b"1", victim=one)
        assert described(fleet, two) in ("PrepareCommit", "CompleteCommit")
        fleet.start_again(one, first)
        await_whole(fleet)
        transact(fleet, producer, b"2", victim=two)
        fleet.start_again(two, first)
        await_whole(fleet)
        assert read_committed(fleet.bootstrap, TOPIC, PARTITIONS) == sorted([b"0", b"1", b"2"] * PARTITIONS)
    except AssertionError:
        print("\n".join(slot.last_lines() for slot in fleet.slots))
        raise
    finally:
        fleet.close()


def described(fleet: MixedFleet, broker: int) -> str:
    """The state of the transaction as this broker, its coordinator, says."""
    api = codec.module(ApiKey.DESCRIBE_TRANSACTIONS)
    with Wire(f"127.0.0.1:{fleet.slots[broker].port}") as wire:
        request = api.DescribeTransactionsRequest(transactional_ids=["id"])
        (found,) = wire.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
    assert found.error_code == 0, found.error_code
    state: str = found.transaction_state
    return state
