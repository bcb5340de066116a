"""Streams as a user has them: real Spark, real brokers, checkpoints that both connectors go on with.

One Spark session and one fleet serve all tests here. Runs end by themselves (Trigger.AvailableNow).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from ottla.testing import RunningCluster, cluster
from tests.pipeline.fleets import admin_of, create, delete, produce, wait_for_partitions

pytestmark = [pytest.mark.spark, pytest.mark.java]


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=2, racks=2) as found:
        yield found


class Stream:
    """A query over topics that counts what it gets: (topic, partition, offset) with how often each came."""

    def __init__(self, spark: Any, fleet: RunningCluster, checkpoint: Path, **options: str) -> None:
        self._spark = spark
        self._bootstrap = fleet.bootstrap
        self._checkpoint = checkpoint
        self._options = options
        self.rows: Counter[tuple[str, int, int]] = Counter()
        self.batches: list[int] = []

    def run(self, connector: str = "ottla", fails_in: int | None = None, **options: str) -> list[int]:
        """Reads what is there; gives the number of rows of each batch that has some."""
        begun = len(self.batches)

        def take(frame: Any, batch: int) -> None:
            if batch == fails_in:
                raise RuntimeError("the sink fails")
            found = [tuple(row) for row in frame.select("topic", "partition", "offset").collect()]
            self.rows.update(found)
            if found:
                self.batches.append(len(found))

        reader = self._spark.readStream.format(connector).option("kafka.bootstrap.servers", self._bootstrap)
        query = (
            reader.options(**{**self._options, **options}).load().writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self._checkpoint)).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return self.batches[begun:]

    def offsets(self) -> Any:
        """The offsets of the last batch in the checkpoint."""
        last = max((self._checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return json.loads(last.read_text().splitlines()[-1])


def expected(topic: str, counts: dict[int, int]) -> Counter[tuple[str, int, int]]:
    return Counter((topic, partition, offset) for partition, count in counts.items() for offset in range(count))


def committed(fleet: RunningCluster, group: str) -> dict[tuple[str, int], int]:
    admin = admin_of(fleet)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
    return {(entry.topic, entry.partition): entry.offset for entry in found.topic_partitions}


def test_a_stream_reads_all_in_portions_and_then_what_has_come(
    spark: Any, fleet: RunningCluster, tmp_path: Path
) -> None:
    create(fleet, "flow")
    produce(fleet, "flow", {0: 90, 1: 30})
    stream = Stream(spark, fleet, tmp_path, subscribe="flow", startingOffsets="earliest", groupId="flow-group")
    assert stream.run(maxOffsetsPerTrigger="50") == [49, 49, 22]
    assert stream.rows == expected("flow", {0: 90, 1: 30})
    assert stream.offsets() == {"flow": {"0": 90, "1": 30}}
    # Progress of the last batch is committed too: lag tools see none.
    assert committed(fleet, "flow-group") == {("flow", 0): 90, ("flow", 1): 30}
    assert stream.run() == []
    admin = admin_of(fleet)
    admin.create_partitions([NewPartitions("flow", 3)])["flow"].result(60)
    wait_for_partitions(fleet, "flow", 3)
    produce(fleet, "flow", {0: 5, 2: 7})
    assert stream.run() == [12]
    assert stream.rows == expected("flow", {0: 95, 1: 30, 2: 7})
    later = Stream(
        spark, fleet, tmp_path / "later", subscribe="flow", startingOffsets="committed", groupId="flow-group"
    )
    produce(fleet, "flow", {1: 4})
    assert later.run() == [4]


def test_both_connectors_go_on_with_one_checkpoint(spark: Any, fleet: RunningCluster, tmp_path: Path) -> None:
    create(fleet, "shared")
    stream = Stream(spark, fleet, tmp_path, subscribe="shared", startingOffsets="earliest")
    written = Counter({0: 0, 1: 0})
    for number, connector in enumerate(("kafka", "ottla", "ottla", "kafka", "ottla")):
        counts = {0: 20 + number, 1: 10}
        produce(fleet, "shared", counts)
        written.update(counts)
        assert stream.run(connector, maxOffsetsPerTrigger="1000") == [30 + number]
        assert stream.offsets() == {"shared": {str(one): count for one, count in written.items()}}
    assert stream.rows == expected("shared", dict(written))


@pytest.mark.long
def test_a_batch_that_failed_is_done_again_by_either_connector(
    spark: Any, fleet: RunningCluster, tmp_path: Path
) -> None:
    create(fleet, "replayed", 1)
    produce(fleet, "replayed", {0: 10})
    for fails, goes_on in (("kafka", "ottla"), ("ottla", "kafka")):
        stream = Stream(spark, fleet, tmp_path / fails, subscribe="replayed", startingOffsets="earliest")
        stream.run(fails, maxOffsetsPerTrigger="5")
        produce(fleet, "replayed", {0: 8})
        last = max(int(path.name) for path in (tmp_path / fails / "commits").glob("[0-9]*"))
        with pytest.raises(Exception, match="the sink fails"):
            stream.run(fails, fails_in=last + 1)
        produce(fleet, "replayed", {0: 2})
        stream.run(goes_on)
        assert set(stream.rows.values()) == {1}
        assert len(stream.rows) == {"kafka": 20, "ottla": 30}[fails]


def test_a_stream_from_the_latest_loses_nothing_when_its_first_batch_fails(
    spark: Any, fleet: RunningCluster, tmp_path: Path
) -> None:
    create(fleet, "newest", 1)
    produce(fleet, "newest", {0: 10})
    stream = Stream(spark, fleet, tmp_path, subscribe="newest")
    with pytest.raises(Exception, match="the sink fails"):
        stream.run(fails_in=0)
    produce(fleet, "newest", {0: 5})
    assert stream.run() == [5]
    assert stream.rows == Counter(("newest", 0, offset) for offset in range(10, 15))


def test_bytes_limit_a_batch(spark: Any, fleet: RunningCluster, tmp_path: Path) -> None:
    create(fleet, "heavy")
    produce(fleet, "heavy", {0: 200, 1: 10}, size=10_000, **{"batch.size": 20_000})
    stream = Stream(spark, fleet, tmp_path, subscribe="heavy", startingOffsets="earliest")
    found = stream.run(maxBytesPerTrigger="1000000")
    assert sum(found) == 210
    assert max(found) <= 105 and len(found) <= 4  # records are 10 kB
    assert stream.rows == expected("heavy", {0: 200, 1: 10})


@pytest.mark.long
def test_a_topic_created_again_between_two_runs_is_data_loss(spark: Any, fleet: RunningCluster, tmp_path: Path) -> None:
    create(fleet, "reborn", 1)
    produce(fleet, "reborn", {0: 10})
    options = {"subscribe": "reborn", "startingOffsets": "earliest", "groupId": "reborn-group"}
    stream = Stream(spark, fleet, tmp_path, **options)
    assert stream.run() == [10]
    delete(fleet, "reborn")
    create(fleet, "reborn", 1)
    produce(fleet, "reborn", {0: 25})
    with pytest.raises(Exception, match="DataLoss: topic 'reborn' was deleted and created again"):
        stream.run()
    assert stream.run(failOnDataLoss="false") == [25]
    assert stream.run() == []


@pytest.mark.long
def test_the_static_side_of_a_join_has_what_came_since(spark: Any, fleet: RunningCluster, tmp_path: Path) -> None:
    create(fleet, "facts", 1)
    create(fleet, "names", 1)
    produce(fleet, "facts", {0: 4})
    produce(fleet, "names", {0: 2})

    def source(reader: Any, topic: str) -> Any:
        return (
            reader.format("ottla").option("kafka.bootstrap.servers", fleet.bootstrap).option("subscribe", topic)
            .option("startingOffsets", "earliest").load().selectExpr("cast(value as string) as number")
        )  # fmt: skip

    joined = source(spark.readStream, "facts").join(source(spark.read, "names"), "number")

    def run() -> list[str]:
        found: list[str] = []
        writer = joined.writeStream.foreachBatch(lambda rows, _: found.extend(row.number for row in rows.collect()))
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination()
        return sorted(found)

    assert run() == ["0", "1"]
    produce(fleet, "facts", {0: 4})
    produce(fleet, "names", {0: 3})  # 0, 1 and 2
    assert run() == ["0", "0", "1", "1", "2"]


def test_only_committed_transactions_are_read_and_markers_are_no_loss(
    spark: Any, fleet: RunningCluster, tmp_path: Path
) -> None:
    create(fleet, "acted", 1)
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "transactional.id": "acted"})
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        for _ in range(5):
            producer.produce("acted", value=b"%d" % number, partition=0)
        assert producer.flush(60) == 0  # else an aborted transaction has no records
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    stream = Stream(
        spark, fleet, tmp_path, subscribe="acted", startingOffsets="earliest",
        **{"kafka.isolation.level": "read_committed"},
    )  # fmt: skip
    assert sum(stream.run(maxOffsetsPerTrigger="4")) == 15
    assert set(stream.rows.values()) == {1}
    assert stream.offsets() == {"acted": {"0": 36}}


@pytest.mark.long
def test_a_query_that_runs_on_gets_what_comes_and_one_that_runs_once_all(
    spark: Any, fleet: RunningCluster, tmp_path: Path
) -> None:
    create(fleet, "live", 1)
    produce(fleet, "live", {0: 5})
    found: list[int] = []
    rows = spark.readStream.format("ottla").option("kafka.bootstrap.servers", fleet.bootstrap)
    rows = (
        rows.option("subscribe", "live")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "4")
        .load()
    )
    writer = rows.writeStream.foreachBatch(lambda frame, _: found.extend(row.offset for row in frame.collect()))
    writer = writer.option("checkpointLocation", str(tmp_path))
    query = writer.start()
    query.processAllAvailable()
    assert found == list(range(5))
    produce(fleet, "live", {0: 6})
    query.processAllAvailable()
    query.stop()
    assert found == list(range(11))
    produce(fleet, "live", {0: 9})
    writer.trigger(once=True).start().awaitTermination()
    assert found == list(range(20))


@pytest.mark.parametrize("is_in_pandas", [False, True], ids=["rows", "pandas"])
@pytest.mark.long
def test_state_of_a_users_own_processor_goes_on_after_a_failed_batch_and_a_restart(
    spark: Any, fleet: RunningCluster, tmp_path: Path, is_in_pandas: bool
) -> None:
    import pandas
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    class Counts(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._count = handle.getValueState("count", "count long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            count = self._count.get()[0] if self._count.exists() else 0
            count += sum(len(part) if is_in_pandas else 1 for part in rows)
            self._count.update((count,))
            yield pandas.DataFrame({"key": key, "count": [count]}) if is_in_pandas else Row(key=key[0], count=count)

        def close(self) -> None:
            pass

    topic = f"counted-{'pandas' if is_in_pandas else 'rows'}"
    create(fleet, topic)
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    counts: dict[str, int] = {}

    def run(fails_in: int | None = None) -> dict[str, int]:
        def take(frame: Any, batch: int) -> None:
            if batch == fails_in:
                frame.collect()  # the state is written, and not committed
                raise RuntimeError("the sink fails")
            counts.update({row.key: row["count"] for row in frame.collect()})

        reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", fleet.bootstrap)
        reader = reader.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="10")
        grouped = reader.load().selectExpr("CAST(value AS string) AS key").groupBy("key")
        transform = grouped.transformWithStateInPandas if is_in_pandas else grouped.transformWithState
        rows = transform(Counts(), "key string, count long", "Update", "None")
        writer = rows.writeStream.outputMode("update").foreachBatch(take)
        writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
        return counts

    produce(fleet, topic, {0: 3, 1: 12})  # the values 0, 1, 2, ...
    assert run() == {str(number): 2 if number < 3 else 1 for number in range(12)}
    produce(fleet, topic, {0: 2})
    last = max(int(path.name) for path in (tmp_path / "commits").glob("[0-9]*"))
    with pytest.raises(Exception, match="the sink fails"):
        run(fails_in=last + 1)
    produce(fleet, topic, {1: 1})
    assert run() == {str(number): (4, 3, 2)[number] if number < 3 else 1 for number in range(12)}


def test_real_time_mode_is_refused_by_spark(spark: Any, fleet: RunningCluster, tmp_path: Path) -> None:
    create(fleet, "hasty", 1)
    rows = spark.readStream.format("ottla").option("kafka.bootstrap.servers", fleet.bootstrap)
    writer = rows.option("subscribe", "hasty").load().writeStream.format("console").outputMode("update")
    with pytest.raises(Exception, match=r"STREAMING_REAL_TIME_MODE\.INPUT_STREAM_NOT_SUPPORTED"):
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(realTime="5 seconds").start()
        query.awaitTermination()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "nope"}, "UnknownTopic: option subscribe: topic 'nope' does not exist at 127.0.0.1:"),
        ({"subscribe": "t", "endingOffsets": "latest"}, "option endingOffsets: is for batch reads"),
        (
            {"subscribe": "t", "startingOffsets": "committed"},
            "option startingOffsets: committed needs the option groupId",
        ),
    ],
)
def test_a_stream_that_cannot_run_says_why(
    spark: Any, fleet: RunningCluster, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception) as raised:
        Stream(spark, fleet, tmp_path, **options).run()
    assert message in str(raised.value)
