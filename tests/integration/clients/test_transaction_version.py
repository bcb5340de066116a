"""transaction.version 2 (KIP-890) with the Java client of Apache Kafka 4.3.1 and with clients that do not know it."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition

from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import api_versions, describe_transactions, end_txn, update_features
from tests.integration.clients.committed import read_committed
from tests.integration.clients.driver import LIMIT_S, Record, await_that
from tests.integration.clients.java import Java, JavaMachine
from tests.integration.clients.test_transactions import (
    LOTS,
    PARTITIONS,
    Lot,
    committed,
    coordinator_of,
    librdkafka,
    state_of,
)
from tests.integration.clients.topics import create
from tests.integration.wire import Wire

pytestmark = pytest.mark.java

CACHE = Path(os.environ.get("OTTLA_CACHE") or Path.home() / ".cache" / "ottla")
CLIENTS_4 = CACHE / "kafka-clients-4-jars" / "kafka-clients-4.3.1.jar"
UPGRADE, SAFE_DOWNGRADE = 1, 2


def finalize(fleet: RunningCluster, level: int, upgrade_type: int, epoch: int) -> None:
    """As kafka-features.sh does; returns when every broker knows. `epoch`: of /feature afterwards."""
    key = update_features.FeatureUpdateKey(
        feature="transaction.version", max_version_level=level, upgrade_type=upgrade_type
    )
    request = update_features.UpdateFeaturesRequest(timeout_ms=60_000, feature_updates=[key])
    errors = []
    for broker in fleet.running:
        with Wire(fleet.address(broker)) as wire:
            answer = wire.ask(ApiKey.UPDATE_FEATURES, 1, request)
        errors += [(answer.error_code, result.error_code) for result in answer.results]
    assert (ErrorCode.NONE, ErrorCode.NONE) in errors, errors
    assert fleet.fleet is not None
    for each in fleet.fleet.brokers.values():
        assert fleet.run(each._fleet_features.until_epoch(epoch, 60_000))


def highest(fleet: RunningCluster, api: ApiKey) -> int:
    request = api_versions.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with Wire(fleet.address(fleet.running[0])) as wire:
        answer = wire.ask(ApiKey.API_VERSIONS, 3, request)
    return next(int(one.max_version) for one in answer.api_keys if one.api_key == api)


def producer_of(fleet: RunningCluster, transactional_id: str) -> tuple[int, int]:
    """Its producer id and epoch, at the coordinator."""
    request = describe_transactions.DescribeTransactionsRequest(transactional_ids=[transactional_id])
    with Wire(fleet.address(coordinator_of(fleet, transactional_id))) as wire:
        (described,) = wire.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
    return described.producer_id, described.producer_epoch


def end(
    fleet: RunningCluster, transactional_id: str, producer: tuple[int, int], is_commit: bool
) -> tuple[int, int, int]:
    """EndTxn 5."""
    request = end_txn.EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=is_commit
    )
    with Wire(fleet.address(coordinator_of(fleet, transactional_id))) as wire:
        answer = wire.ask(ApiKey.END_TXN, 5, request)
    return answer.error_code, answer.producer_id, answer.producer_epoch


def write(java: Java, fleet: RunningCluster, topic: str, lots: Sequence[Lot]) -> None:
    transactions = [
        {"values": [base64.b64encode(value).decode() for value in lot.values], "commit": lot.is_committed}
        for lot in lots
    ]
    arguments = {"topic": topic, "partitions": PARTITIONS, "transactions": transactions}
    java.machine.ask("transactions", bootstrap=fleet.bootstrap, config={"transactional.id": topic}, **arguments)


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    if not CLIENTS_4.exists():
        pytest.skip("kafka-clients-4.3.1.jar is missing: run scripts/fetch-jars.sh")
    machine = JavaMachine(tmp_path_factory.mktemp("java") / "clients.log", clients=CLIENTS_4)
    yield Java(machine)
    machine.close()


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=3, racks=3, config={"min.insync.replicas": "2"}) as found:
        assert highest(found, ApiKey.END_TXN) == highest(found, ApiKey.TXN_OFFSET_COMMIT) == 4
        finalize(found, 2, UPGRADE, 0)
        yield found


def test_the_epoch_grows_with_each_transaction(java: Java, fleet: RunningCluster) -> None:
    """The producer sends no AddPartitionsToTxn: the partitions' leaders have the coordinator add them."""
    assert highest(fleet, ApiKey.END_TXN) == highest(fleet, ApiKey.TXN_OFFSET_COMMIT) == 5
    create(fleet.bootstrap, "epochs", partitions=PARTITIONS)
    write(java, fleet, "epochs", LOTS)
    assert read_committed(fleet.bootstrap, "epochs", PARTITIONS) == committed(LOTS)
    assert producer_of(fleet, "epochs")[1] == len(LOTS)


def test_an_older_epoch_is_fenced_and_the_last_end_may_be_sent_again(java: Java, fleet: RunningCluster) -> None:
    create(fleet.bootstrap, "again", partitions=PARTITIONS)
    write(java, fleet, "again", LOTS[:3])  # the last one commits
    await_that(lambda: state_of(fleet, "again") == "CompleteCommit", "the markers are written")
    producer_id, epoch = producer_of(fleet, "again")
    assert end(fleet, "again", (producer_id, epoch - 1), True) == (ErrorCode.NONE, producer_id, epoch)
    assert end(fleet, "again", (producer_id, epoch - 1), False) == (ErrorCode.INVALID_TXN_STATE, -1, -1)
    assert end(fleet, "again", (producer_id, epoch - 2), True) == (ErrorCode.PRODUCER_FENCED, -1, -1)
    assert end(fleet, "again", (producer_id, epoch), True) == (ErrorCode.INVALID_TXN_STATE, -1, -1)
    assert end(fleet, "again", (producer_id, epoch), False) == (ErrorCode.NONE, producer_id, epoch + 1)


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_offsets_of_a_group_are_part_of_the_transaction(java: Java, fleet: RunningCluster, is_commit: bool) -> None:
    source, target = f"source-{is_commit}", f"target-{is_commit}"
    for topic in (source, target):
        create(fleet.bootstrap, topic)
    java.produce(fleet.bootstrap, source, [Record(None, b"%d" % number) for number in range(5)])
    config = {"group.id": source, "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    answer = java.machine.ask(
        "copy",
        bootstrap=fleet.bootstrap,
        config=config,
        source=source,
        target=target,
        transactionalId=target,
        count=5,
        commit=is_commit,
    )
    assert read_committed(fleet.bootstrap, target, 1) == (
        sorted(value.encode() for value in answer["values"]) if is_commit else []
    )
    consumer = Consumer({"bootstrap.servers": fleet.bootstrap, "group.id": source})
    (offset,) = consumer.committed([TopicPartition(source, 0)], LIMIT_S)
    consumer.close()
    assert offset.offset == (5 if is_commit else OFFSET_INVALID)
    assert producer_of(fleet, target)[1] == 1


def test_a_client_that_does_not_know_it_keeps_its_epoch(fleet: RunningCluster, request: pytest.FixtureRequest) -> None:
    create(fleet.bootstrap, "older", partitions=PARTITIONS)
    librdkafka(request, fleet.bootstrap, "older", LOTS)
    assert read_committed(fleet.bootstrap, "older", PARTITIONS) == committed(LOTS)
    assert producer_of(fleet, "older")[1] == 0


def test_a_new_producer_fences_one_of_version_2(java: Java, fleet: RunningCluster) -> None:
    create(fleet.bootstrap, "fenced", partitions=PARTITIONS)
    write(java, fleet, "fenced", LOTS[:1])
    producer_id, epoch = producer_of(fleet, "fenced")
    Producer({"bootstrap.servers": fleet.bootstrap, "transactional.id": "fenced"}).init_transactions(LIMIT_S)
    assert producer_of(fleet, "fenced") == (producer_id, epoch + 1)
    assert end(fleet, "fenced", (producer_id, epoch), False) == (ErrorCode.PRODUCER_FENCED, -1, -1)


def test_producers_go_on_during_a_downgrade_to_1_and_an_upgrade(java: Java, fleet: RunningCluster) -> None:
    """Last in this module: the level changes. The producer keeps what it has agreed on until it connects again."""
    create(fleet.bootstrap, "downgrade", partitions=PARTITIONS)
    lots = [Lot([b"%d-%d" % (lot, number) for number in range(6)], lot % 3 != 1) for lot in range(40)]
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write, java, fleet, "downgrade", lots)
        await_that(lambda: state_of(fleet, "downgrade") != "" and producer_of(fleet, "downgrade")[1] > 2, "it writes")
        finalize(fleet, 1, SAFE_DOWNGRADE, 1)
        writing.result(LIMIT_S)
    assert read_committed(fleet.bootstrap, "downgrade", PARTITIONS) == committed(lots)
    assert highest(fleet, ApiKey.END_TXN) == 4
    _, before = producer_of(fleet, "downgrade")
    write(java, fleet, "downgrade", lots[:5])
    assert producer_of(fleet, "downgrade")[1] == before + 1  # of InitProducerId alone
    finalize(fleet, 2, UPGRADE, 2)
    write(java, fleet, "downgrade", lots[:5])
    assert producer_of(fleet, "downgrade")[1] == before + 2 + 5
