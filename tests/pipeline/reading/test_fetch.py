"""The source without Spark, against real brokers: planning and reading of ranges, and what happens when things go."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol.api import ApiKey
from ottla_pipeline.errors import ClusterUnreachable, DataLoss, UnknownTopic
from ottla_pipeline.reading.offset_range import OffsetRange
from ottla_pipeline.reading.options import parse
from ottla_pipeline.reading.plan import plan
from ottla_pipeline.topic_partition import TopicPartition
from ottla_pipeline.wire.cluster import Cluster as Brokers
from ottla_pipeline.wire.connection import Connection

pytest.importorskip("pyarrow")

from ottla_pipeline.reading import fetch

RECORDS = 3000
PARTITIONS = 3


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=3, racks=3) as found:
        yield found


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def until_everybody_knows(fleet: RunningCluster, topic: str) -> None:
    """A reader asks the brokers in the order of its bootstrap servers, and not the one that told of the topic first."""
    for broker in fleet.running:
        checked = parse({"kafka.bootstrap.servers": fleet.address(broker), "subscribe": topic})
        with Brokers(checked.connecting) as one:

            def knows(one: Brokers = one) -> bool:
                layout = one.layout_of([topic]).get(topic)
                return layout is not None and len(layout.partitions) == PARTITIONS

            until(knows, f"{broker} knows {topic}")


def fill(fleet: RunningCluster, topic: str, codec: str = "none") -> dict[TopicPartition, list[tuple[int, bytes]]]:
    """Writes a topic; gives (offset, value) of every record by partition."""
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(60)
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "compression.type": codec, "acks": "all"})
    written: dict[TopicPartition, list[tuple[int, bytes]]] = {}
    for number in range(RECORDS):
        value = b"%d " % number * 30

        def delivered(error: object, message: object, value: bytes = value) -> None:
            assert error is None
            partition = TopicPartition(topic, message.partition())  # type: ignore[attr-defined]
            written.setdefault(partition, []).append((message.offset(), value))  # type: ignore[attr-defined]

        producer.produce(topic, value=value, key=b"%d" % number, partition=number % PARTITIONS, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    until_everybody_knows(fleet, topic)
    return {partition: sorted(found) for partition, found in written.items()}


def read_all(fleet: RunningCluster, **options: str) -> dict[TopicPartition, list[tuple[int, bytes]]]:
    checked = parse({"kafka.bootstrap.servers": fleet.bootstrap, **options})
    with Brokers(checked.connecting) as brokers:
        ranges = plan(checked, brokers, fleet.bootstrap)
    found: dict[TopicPartition, list[tuple[int, bytes]]] = {}
    for part in ranges:
        for batch in fetch.read(part, checked):
            rows = zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)
            found.setdefault(part.partition, []).extend(rows)
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_is_read_whole_whatever_its_codec(fleet: RunningCluster, codec: str) -> None:
    written = fill(fleet, f"whole-{codec}", codec)
    assert read_all(fleet, subscribe=f"whole-{codec}", minPartitions="7") == written
    # A fetch smaller than a batch brings that batch nevertheless.
    assert read_all(fleet, subscribe=f"whole-{codec}", **{"kafka.max.partition.fetch.bytes": "100"}) == written


def test_only_the_offsets_asked_for_are_read(fleet: RunningCluster) -> None:
    written = fill(fleet, "bounded")
    starts = json.dumps({"bounded": {"0": 10, "1": 20, "2": -2}})
    ends = json.dumps({"bounded": {"0": 990, "1": 21, "2": -1}})
    found = read_all(fleet, subscribe="bounded", startingOffsets=starts, endingOffsets=ends)
    bounds = {0: (10, 990), 1: (20, 21), 2: (0, RECORDS)}
    assert found == {
        partition: [
            record for record in records if bounds[partition.partition][0] <= record[0] < bounds[partition.partition][1]
        ]
        for partition, records in written.items()
    }
    assert read_all(fleet, subscribePattern="^bound.*") == written
    assert read_all(fleet, subscribe="bounded", startingTimestamp="0") == written


def test_a_topic_that_does_not_exist_is_named_and_not_created(fleet: RunningCluster) -> None:
    for _ in range(2):
        with pytest.raises(UnknownTopic, match="option subscribe: topic 'missing' does not exist at"):
            read_all(fleet, subscribe="missing")


def test_a_broker_that_does_not_know_the_topic_yet_is_asked_again(fleet: RunningCluster) -> None:
    checked = parse({"kafka.bootstrap.servers": fleet.bootstrap, "subscribe": "heard-of-late"})
    wanted = OffsetRange(TopicPartition("heard-of-late", 0), 0, RECORDS // PARTITIONS)
    with ThreadPoolExecutor(1) as reading:
        found = reading.submit(lambda: sum(batch.num_rows for batch in fetch.read(wanted, checked)))
        fill(fleet, "heard-of-late")
        assert found.result(180) == RECORDS // PARTITIONS


def test_a_topic_that_stays_away_is_named(fleet: RunningCluster) -> None:
    checked = parse(
        {"kafka.bootstrap.servers": fleet.bootstrap, "subscribe": "t", "kafkaConsumer.pollTimeoutMs": "300"}
    )
    with pytest.raises(ClusterUnreachable, match="topic 'gone' does not exist at"):
        next(fetch.read(OffsetRange(TopicPartition("gone", 0), 0, 5), checked))


def test_brokers_that_do_not_answer_are_named(free_port: int) -> None:
    checked = parse(
        {
            "kafka.bootstrap.servers": f"127.0.0.1:{free_port}",
            "subscribe": "t",
            "fetchOffset.numRetries": "1",
            "fetchOffset.retryIntervalMs": "1",
        }
    )
    with Brokers(checked.connecting) as brokers, pytest.raises(ClusterUnreachable) as raised:
        plan(checked, brokers, "")
    assert f"no broker of kafka.bootstrap.servers answers: 127.0.0.1:{free_port}" in str(raised.value)


def test_offsets_that_are_gone_are_an_error_or_left_out(fleet: RunningCluster) -> None:
    written = fill(fleet, "short")
    partition = TopicPartition("short", 0)
    end = len(written[partition])
    options = {"kafka.bootstrap.servers": fleet.bootstrap, "subscribe": "short"}
    beyond = OffsetRange(partition, end + 5, end + 10)
    with pytest.raises(
        DataLoss, match=f"short-0: offsets {end + 5} to {end + 9} are gone, the log begins at 0 and ends at {end}"
    ):
        list(fetch.read(beyond, parse(options)))
    assert list(fetch.read(beyond, parse({**options, "failOnDataLoss": "false"}))) == []


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_log_that_has_lost_its_end_is_read_up_to_where_it_ends(fleet: RunningCluster, isolation: str) -> None:
    topic = f"cut-{isolation}"
    written = fill(fleet, topic)
    partition = TopicPartition(topic, 0)
    end = len(written[partition])
    planned = OffsetRange(partition, end - 5, end + 10)  # before an election of a leader that had less
    options = {
        "kafka.bootstrap.servers": fleet.bootstrap,
        "subscribe": topic,
        "kafka.isolation.level": isolation,
        "kafkaConsumer.pollTimeoutMs": "1",
    }
    with pytest.raises(
        DataLoss, match=f"{topic}-0: offsets {end} to {end + 9} are gone, the log begins at 0 and ends at {end}"
    ):
        list(fetch.read(planned, parse(options)))
    found = list(fetch.read(planned, parse({**options, "failOnDataLoss": "false"})))
    assert [offset for batch in found for offset in batch.column("offset").to_pylist()] == [*range(end - 5, end)]


def test_a_leader_that_dies_in_the_middle_is_replaced(fleet: RunningCluster) -> None:
    written = fill(fleet, "failover")
    options = parse(
        {
            "kafka.bootstrap.servers": fleet.bootstrap,
            "subscribe": "failover",
            "kafka.max.partition.fetch.bytes": "2000",
            "fetchOffset.numRetries": "1200",
            "fetchOffset.retryIntervalMs": "100",
        }
    )
    with Brokers(options.connecting) as brokers:
        part = plan(options, brokers, "")[0]
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})

    def partition() -> Any:
        return admin.list_topics("failover", timeout=60).topics["failover"].partitions[part.partition.partition]

    # A follower that this machine kept from fetching for replica.lag.time.max.ms could not lead.
    until(lambda: len(partition().isrs) == 3, "all replicas are in sync")
    leader = partition().leader
    offsets: list[int] = []
    is_killed = False
    try:
        for batch in fetch.read(part, options):
            offsets += batch.column("offset").to_pylist()
            if not is_killed:
                fleet.kill(leader)
                is_killed = True
    finally:
        if is_killed:
            fleet.start(leader)  # the other tests have the same fleet
    assert offsets == [offset for offset, _ in written[part.partition]]


def test_no_row_is_lost_when_a_connection_breaks_before_the_next_fetch_is_sent(
    fleet: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = fill(fleet, "broken-pipe")
    send = Connection.send
    fetches = 0

    def send_over_broken_pipe(connection: Connection, api_key: ApiKey, request: Any, **options: Any) -> None:
        nonlocal fetches
        fetches += api_key is ApiKey.FETCH
        if api_key is ApiKey.FETCH and fetches % 2 == 0:  # the one that runs while the records are converted
            connection._transport.socket.shutdown(socket.SHUT_WR)
        send(connection, api_key, request, **options)

    monkeypatch.setattr(Connection, "send", send_over_broken_pipe)
    options = {"kafka.max.partition.fetch.bytes": "50000", "fetchOffset.retryIntervalMs": "1"}
    assert read_all(fleet, subscribe="broken-pipe", **options) == written
    assert fetches > PARTITIONS
