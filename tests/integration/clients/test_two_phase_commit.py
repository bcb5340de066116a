"""Two-phase commit (KIP-939): what a checkpoint says of a transaction holds, whoever is killed in between.

The Java producer of Apache Kafka 4.3.1 has the protocol inside, without a way in: `TwoPhaseProducer.java` opens it. It
runs on brokers that are processes of their own, and is killed as they are. What it cannot be made to do wrong is asked
over the wire.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.local.jars import find_java, kafka_class_path
from ottla.testing import RunningCluster, cluster
from ottla_broker.internal_topics.partitioning import partition_for
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from tests.integration.clients.committed import read_committed
from tests.integration.clients.driver import LIMIT_S, await_that
from tests.integration.clients.test_transaction_version import CLIENTS_4, UPGRADE, end, finalize, highest, producer_of
from tests.integration.clients.test_transactions import coordinator_of, state_of
from tests.integration.clients.topics import create, metadata
from tests.integration.local_fleet import MANIFESTS, Ottla
from tests.integration.wire import Wire, batch, produce_request

PARTITIONS = 3
NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED


# -- over the wire ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    config = {"min.insync.replicas": "2", "transaction.two.phase.commit.enable": "true"}
    with cluster(brokers=3, racks=3, config=config) as found:
        assert highest(found, ApiKey.INIT_PRODUCER_ID) == 5
        finalize(found, 2, UPGRADE, 0)
        assert highest(found, ApiKey.INIT_PRODUCER_ID) == 6
        yield found


def initialize(fleet: RunningCluster, transactional_id: str, *, version: int = 6, **fields: Any) -> Any:
    """As a client does: it tries again while a transaction is being ended, or its coordinator is loaded."""
    api = codec.module(ApiKey.INIT_PRODUCER_ID)
    request = api.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000, **fields)
    answers: list[Any] = []

    def is_answered() -> bool:
        with Wire(fleet.address(coordinator_of(fleet, transactional_id))) as wire:
            answers.append(wire.ask(ApiKey.INIT_PRODUCER_ID, version, request))
        return not ErrorCode.of(answers[-1].error_code).retriable

    await_that(is_answered, "the coordinator is there, and no transaction is being ended")
    assert answers[-1].error_code == 0
    return answers[-1]


def produce(fleet: RunningCluster, topic: str, partition: int, producer: tuple[int, int], sequence: int = 0) -> int:
    """One record, by Produce 12: the leader has its partition added to the transaction."""
    records = batch(
        b"value", producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, attributes=0x10
    )
    request = produce_request(topic, records, partition=partition)
    request.transactional_id = topic
    with Wire(fleet.address(fleet.running[0])) as wire:
        leader = metadata(wire, topic)[partition]
    with Wire(fleet.address(leader)) as wire:
        code: int = wire.ask(ApiKey.PRODUCE, 12, request).responses[0].partition_responses[0].error_code
    return code


def add(fleet: RunningCluster, topic: str, partition: int, producer: tuple[int, int]) -> int:
    api = codec.module(ApiKey.ADD_PARTITIONS_TO_TXN)
    request = api.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=topic,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[api.AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
    )
    with Wire(fleet.address(coordinator_of(fleet, topic))) as wire:
        answer = wire.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
    code: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    return code


def prepared(fleet: RunningCluster, topic: str) -> tuple[int, int]:
    """A producer with a record in partition 0."""
    create(fleet.bootstrap, topic, partitions=PARTITIONS)
    answer = initialize(fleet, topic, enable2_pc=True, keep_prepared_txn=True)
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (-1, -1)
    producer = answer.producer_id, answer.producer_epoch
    assert produce(fleet, topic, 0, producer) == NONE
    return producer


def kept(fleet: RunningCluster, topic: str, producer: tuple[int, int]) -> tuple[int, int]:
    answer = initialize(fleet, topic, enable2_pc=True, keep_prepared_txn=True)
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == producer
    return answer.producer_id, answer.producer_epoch


def test_the_former_producer_is_fenced_and_the_new_one_only_ends(fleet: RunningCluster) -> None:
    former = prepared(fleet, "fenced")
    current = kept(fleet, "fenced", former)
    assert current == (former[0], former[1] + 1)
    for partition in (0, 1):
        assert add(fleet, "fenced", partition, former) == FENCED
        assert add(fleet, "fenced", partition, current) == ErrorCode.INVALID_TXN_STATE
    assert produce(fleet, "fenced", 1, former) == ErrorCode.INVALID_PRODUCER_EPOCH
    for partition in (0, 1):
        assert produce(fleet, "fenced", partition, current) == ErrorCode.INVALID_TXN_STATE
    for is_commit in (True, False):
        assert end(fleet, "fenced", former, is_commit) == (FENCED, -1, -1)
    assert end(fleet, "fenced", current, True) == (NONE, current[0], current[1] + 1)
    await_that(lambda: state_of(fleet, "fenced") == "CompleteCommit", "the markers are written")
    assert read_committed(fleet.bootstrap, "fenced", PARTITIONS) == [b"value"]
    assert produce(fleet, "fenced", 0, former, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    following = current[0], current[1] + 1
    assert produce(fleet, "fenced", 0, following) == NONE, "the next transaction"
    assert end(fleet, "fenced", following, True)[0] == NONE
    await_that(lambda: len(read_committed(fleet.bootstrap, "fenced", PARTITIONS)) == 2, "it is committed too")


def commit_offset(fleet: RunningCluster, topic: str, group: str, producer: tuple[int, int]) -> int:
    """By TxnOffsetCommit 5: the coordinator of the group has its partition added to the transaction."""
    find, api = codec.module(ApiKey.FIND_COORDINATOR), codec.module(ApiKey.TXN_OFFSET_COMMIT)
    part = api.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    request = api.TxnOffsetCommitRequest(
        transactional_id=topic,
        group_id=group,
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[api.TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
    )
    errors: list[int] = []

    def is_answered() -> bool:
        with Wire(fleet.address(fleet.running[0])) as wire:
            found = wire.ask(ApiKey.FIND_COORDINATOR, 2, find.FindCoordinatorRequest(key=group, key_type=0))
        if found.error_code:
            return False
        with Wire(fleet.address(found.node_id)) as wire:
            (answer,) = wire.ask(ApiKey.TXN_OFFSET_COMMIT, 5, request).topics
        errors.append(answer.partitions[0].error_code)
        return not ErrorCode.of(errors[-1]).retriable or errors[-1] == NONE

    await_that(is_answered, "the group has a coordinator")
    return errors[-1]


def test_offsets_of_a_group_are_committed_by_whoever_keeps_the_transaction(fleet: RunningCluster) -> None:
    former = prepared(fleet, "offsets")
    assert commit_offset(fleet, "offsets", "group-0", former) == NONE
    current = kept(fleet, "offsets", former)
    # A group of another partition of __consumer_offsets: of one that is in the transaction nobody is asked.
    others = [
        f"group-{number}"
        for number in range(1, 30)
        if partition_for(f"group-{number}", 4) != partition_for("group-0", 4)
    ]
    assert commit_offset(fleet, "offsets", others[0], former) in (FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert commit_offset(fleet, "offsets", others[0], current) == ErrorCode.INVALID_TXN_STATE
    assert end(fleet, "offsets", current, True)[0] == NONE
    consumer = Consumer({"bootstrap.servers": fleet.bootstrap, "group.id": "group-0"})
    (committed,) = consumer.committed([TopicPartition("offsets", 0)], LIMIT_S)
    consumer.close()
    assert committed.offset == 7


def test_a_producer_that_knows_nothing_of_it_aborts_what_was_prepared(fleet: RunningCluster) -> None:
    """InitProducerId that keeps nothing, as Admin.fenceProducers and forceTerminateTransaction send it."""
    former = prepared(fleet, "terminated")
    current = kept(fleet, "terminated", former)
    assert (state_of(fleet, "terminated"), producer_of(fleet, "terminated")) == ("Ongoing", former)
    Producer({"bootstrap.servers": fleet.bootstrap, "transactional.id": "terminated"}).init_transactions(LIMIT_S)
    assert end(fleet, "terminated", current, True)[0] == FENCED
    assert read_committed(fleet.bootstrap, "terminated", PARTITIONS) == []


# -- processes that are killed ----------------------------------------------------------------------------------------


class JavaProducer:
    """A JVM with `TwoPhaseProducer.java`; it waits after its first line, unless it completes."""

    def __init__(self, bootstrap: str, topic: str, *arguments: str) -> None:
        program = Path(__file__).with_name("TwoPhaseProducer.java")
        command = [find_java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command += ["-cp", f"{CLIENTS_4}:{kafka_class_path()}", str(program), bootstrap, topic, *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.said = self._process.stdout.readline().strip()

    def kill(self) -> None:
        """SIGKILL; also the end of one that has ended."""
        self._process.kill()
        self._process.communicate()


def prepare(bootstrap: str, topic: str, *values: str) -> str:
    """A producer that is killed when it has prepared; the producer id and epoch that it has stored outside."""
    producer = JavaProducer(bootstrap, topic, "prepare", *values)
    word, _, token = producer.said.partition(" ")
    producer.kill()
    assert word == "prepared", producer.said
    return token


def after(bootstrap: str, topic: str, *arguments: str) -> str:
    """What another producer says that comes after it."""
    producer = JavaProducer(bootstrap, topic, *arguments)
    producer.kill()
    return producer.said


def finalized(ottla: Ottla) -> str:
    """The addresses of three brokers, each a process, with transaction.version at 2."""
    manifest = ottla.folder / "cluster.yaml"
    text, config = (MANIFESTS / "cluster.yaml").read_text(), "config: {min.insync.replicas: 2"
    assert config in text
    manifest.write_text(text.replace(config, f'{config}, transaction.two.phase.commit.enable: "true"'))
    ottla("up", "-f", str(manifest), "--processes")
    bootstrap = str(ottla.status()["bootstrap"])
    api, versions = codec.module(ApiKey.UPDATE_FEATURES), codec.module(ApiKey.API_VERSIONS)
    update = api.FeatureUpdateKey(feature="transaction.version", max_version_level=2, upgrade_type=UPGRADE)
    for address in bootstrap.split(","):  # the controller takes it
        with Wire(address) as wire:
            wire.ask(ApiKey.UPDATE_FEATURES, 1, api.UpdateFeaturesRequest(timeout_ms=60_000, feature_updates=[update]))

    def is_listed(address: str) -> bool:
        request = versions.ApiVersionsRequest(client_software_name="test", client_software_version="1")
        with Wire(address) as wire:
            found = {one.api_key: one.max_version for one in wire.ask(ApiKey.API_VERSIONS, 3, request).api_keys}
        return bool(found[ApiKey.INIT_PRODUCER_ID] == 6)

    await_that(lambda: all(map(is_listed, bootstrap.split(","))), "InitProducerId 6 is listed")
    return bootstrap


def kill_coordinator(ottla: Ottla, bootstrap: str, transactional_id: str) -> None:
    """SIGKILL; returns when `ottla local` has started the broker again."""
    api = codec.module(ApiKey.FIND_COORDINATOR)
    with Wire(bootstrap.split(",")[0]) as wire:
        answer = wire.ask(ApiKey.FIND_COORDINATOR, 2, api.FindCoordinatorRequest(key=transactional_id, key_type=1))
    assert answer.error_code == 0
    brokers: Any = ottla.status()["brokers"]
    pid = brokers[answer.node_id]["pid"]
    os.kill(pid, signal.SIGKILL)

    def is_back() -> bool:
        status: Any = ottla.status()
        return bool(status["ready"] and status["brokers"][answer.node_id]["pid"] not in (None, pid))

    await_that(is_back, "the broker is started again")


@pytest.mark.java
@pytest.mark.long
def test_what_the_checkpoint_says_holds_when_producers_and_coordinators_are_killed(ottla: Ottla) -> None:
    if not CLIENTS_4.exists():
        pytest.skip("kafka-clients-4.3.1.jar is missing: run scripts/fetch-jars.sh")
    bootstrap = finalized(ottla)
    create(bootstrap, "decided", partitions=PARTITIONS)
    # Killed when it has prepared, and its coordinator too: the checkpoint has it.
    first = prepare(bootstrap, "decided", "a", "b", "c")
    kill_coordinator(ottla, bootstrap, "decided")
    assert read_committed(bootstrap, "decided", PARTITIONS) == []
    assert after(bootstrap, "decided", "complete", first) == f"committed {first}"
    assert read_committed(bootstrap, "decided", PARTITIONS) == [b"a", b"b", b"c"]
    # Killed before the checkpoint has the next one, which still has the one before; and again while it recovers.
    second = prepare(bootstrap, "decided", "d", "e")
    assert second != first
    assert after(bootstrap, "decided", "keep") == f"kept {second}"
    kill_coordinator(ottla, bootstrap, "decided")
    assert after(bootstrap, "decided", "keep") == f"kept {second}"
    assert after(bootstrap, "decided", "complete", first) == f"aborted {second}"
    assert after(bootstrap, "decided", "complete", first) == "nothing"
    assert read_committed(bootstrap, "decided", PARTITIONS) == [b"a", b"b", b"c"]
