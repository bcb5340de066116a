"""The sink as a user has it: real Spark, real brokers, batch jobs and streaming queries.

One Spark session and one fleet serve all tests here.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ottla.testing import RunningCluster, cluster
from ottla_pipeline.sink.marker import group_of
from tests.pipeline.sink.test_delivery import read_all, topic
from tests.pipeline.spark_jvm import local_session, own_jvm

pytestmark = [pytest.mark.spark, pytest.mark.java]


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=3, racks=3, config={"auto.create.topics.enable": "false"}) as found:
        yield found


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    work = tmp_path_factory.mktemp("spark")
    with own_jvm(lambda: local_session(work, "local[2,3]")) as session:
        yield session


def write(frame: Any, fleet: RunningCluster, **options: str) -> None:
    frame.write.format("ottla").option("kafka.bootstrap.servers", fleet.bootstrap).options(**options).mode(
        "append"
    ).save()


def read(spark: Any, fleet: RunningCluster, name: str) -> Any:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", fleet.bootstrap)
    return reader.options(subscribe=name, includeHeaders="true", **{"kafka.isolation.level": "read_committed"}).load()


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_rows_are_read_back_as_they_were_written(spark: Any, fleet: RunningCluster, guarantee: str) -> None:
    name = topic(fleet, f"batch-{guarantee}")
    frame = spark.range(0, 5000, 1, 4).selectExpr(
        "cast(id as string) key",
        "if(id % 7 = 0, null, cast(repeat(cast(id as string), 50) as binary)) value",
        "array(struct('h' as key, cast(cast(id as string) as binary) as value)) headers",
        "cast(id % 4 as int) partition",
        "timestamp_millis(1700000000000 + id) timestamp",
        "id ignored",
    )
    write(frame, fleet, topic=name, guarantee=guarantee, **{"kafka.compression.type": "zstd"})
    found = {int(row.key): row for row in read(spark, fleet, name).collect()}
    assert sorted(found) == list(range(5000))
    assert all(row.partition == number % 4 for number, row in found.items())
    assert found[8].value == b"8" * 50 and found[7].value is None
    assert found[8].headers[0].key == "h" and found[8].headers[0].value == b"8"
    assert found[8].timestamp.replace(tzinfo=UTC) == datetime.fromtimestamp(1700000000.008, UTC)


def test_rows_of_one_topic_are_copied_into_another_by_the_topic_column(spark: Any, fleet: RunningCluster) -> None:
    for name in ("copied-from", "copied-to"):
        topic(fleet, name)
    write(spark.range(1000).selectExpr("cast(id as string) value"), fleet, topic="copied-from")
    rows = read(spark, fleet, "copied-from")
    write(rows, fleet, topic="copied-to")  # the option wins over the column
    write(rows.selectExpr("value", "'copied-to' as topic"), fleet)
    assert Counter(int(value) for _, _, value in read_all(fleet, "copied-to")) == Counter(dict.fromkeys(range(1000), 2))


def test_a_task_that_fails_and_is_run_again_writes_nothing_twice(
    spark: Any, fleet: RunningCluster, tmp_path: Path
) -> None:
    name = topic(fleet, "retried")
    seen = str(tmp_path / "seen")

    def failing(batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            yield batch
            if number == 1 and not os.path.exists(seen):
                Path(seen).touch()
                raise RuntimeError("one attempt fails after some rows")

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        frame = spark.range(0, 2000, 1, 2).selectExpr("cast(id as string) value")
        write(frame.mapInArrow(failing, frame.schema), fleet, topic=name)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert os.path.exists(seen)
    assert Counter(int(value) for _, _, value in read_all(fleet, name)) == Counter(range(2000))


def test_a_job_that_fails_leaves_no_row(spark: Any, fleet: RunningCluster) -> None:
    name = topic(fleet, "failed")
    frame = spark.range(0, 2000, 1, 2).selectExpr(
        "cast(id as string) value", "cast(if(id = 1999, 9, 0) as int) partition"
    )
    with pytest.raises(Exception) as raised:
        write(frame, fleet, topic=name)
    assert "column partition is 9 in row 999 of its task, topic 'failed' has 0 to 3" in str(raised.value)
    assert read_all(fleet, name) == []


@pytest.fixture(scope="module")
def mistaken(fleet: RunningCluster) -> str:
    """A topic to which nothing can be written."""
    return topic(fleet, "mistaken")


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["id"], {"topic": "mistaken"}, "column value is required; there are id"),
        (["id as value"], {"topic": "mistaken"}, "column value must be binary or string, not bigint"),
        (["'v' as value"], {}, "column topic is required unless the option topic"),
        (["'v' as value"], {"topic": "nowhere"}, "topic 'nowhere' does not exist at 127.0.0.1:"),
        (["'v' as value"], {"topic": "mistaken", "guarantees": "x"}, "did you mean guarantee?"),
        (["repeat('v', 2000000) as value"], {"topic": "mistaken"}, "kafka.max.request.size is 1048576"),
    ],
)
def test_a_mistake_is_told_in_one_line_that_names_it(
    spark: Any, fleet: RunningCluster, mistaken: str, columns: list[str], options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception) as raised:
        write(spark.range(1).selectExpr(*columns), fleet, **options)
    assert message in str(raised.value)


def stream(spark: Any, fleet: RunningCluster, source: Path, checkpoint: Path, **options: str) -> None:
    """Writes what is new in the folder, one batch for each file."""
    query = (
        spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).text(str(source))
        .writeStream.format("ottla").option("kafka.bootstrap.servers", fleet.bootstrap).options(**options)
        .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_query_writes_each_row_once_from_run_to_run(
    spark: Any, fleet: RunningCluster, tmp_path: Path, guarantee: str
) -> None:
    name = topic(fleet, f"stream-{guarantee}")
    source = tmp_path / "source"
    source.mkdir()
    for run in range(2):
        for file in (2 * run, 2 * run + 1):
            lines = "\n".join(str(number) for number in range(500 * file, 500 * (file + 1)))
            (source / f"{file}.txt").write_text(lines)
        stream(spark, fleet, source, tmp_path / "checkpoint", topic=name, guarantee=guarantee)
    assert Counter(int(value) for _, _, value in read_all(fleet, name)) == Counter(range(2000))


def test_the_number_of_a_batch_is_for_writes_that_spark_does_not_number(
    spark: Any, fleet: RunningCluster, tmp_path: Path
) -> None:
    name = topic(fleet, "numbered")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "0.txt").write_text("1")
    with pytest.raises(Exception, match=r"txnAppId: is for df\.write in foreachBatch"):
        stream(spark, fleet, tmp_path / "source", tmp_path / "checkpoint", topic=name, txnAppId="a", txnVersion="0")
    rows = spark.range(700).selectExpr("cast(id as string) value")
    for version in (0, 0, 1):
        write(rows, fleet, topic=name, txnAppId="numbered", txnVersion=str(version))
    assert Counter(int(value) for _, _, value in read_all(fleet, name)) == Counter(dict.fromkeys(range(700), 2))
    with pytest.raises(Exception, match="batch 2 left no marker, so nobody can say whether batch 3 was written"):
        write(rows, fleet, topic=name, txnAppId="numbered", txnVersion="3")


def test_a_batch_that_spark_runs_again_is_not_written_again(spark: Any, fleet: RunningCluster, tmp_path: Path) -> None:
    name = topic(fleet, "replayed")
    source = tmp_path / "source"
    source.mkdir()
    (source / "0.txt").write_text("\n".join(map(str, range(700))))
    stream(spark, fleet, source, tmp_path / "checkpoint", topic=name)
    # As after a kill between the end of the transaction and Spark's commit log.
    for log in (tmp_path / "checkpoint" / "commits").iterdir():
        log.unlink()
    (source / "1.txt").write_text("\n".join(map(str, range(700, 900))))
    stream(spark, fleet, source, tmp_path / "checkpoint", topic=name)
    assert Counter(int(value) for _, _, value in read_all(fleet, name)) == Counter(range(900))


def test_a_first_batch_that_is_run_again_after_longer_than_its_marker_is_kept_is_refused(
    spark: Any, fleet: RunningCluster, tmp_path: Path
) -> None:
    name = topic(fleet, "first")
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    (source / "0.txt").write_text("1")
    stream(spark, fleet, source, checkpoint, topic=name)
    for log in (checkpoint / "commits").iterdir():
        log.unlink()
    group = group_of(json.loads((checkpoint / "metadata").read_text())["id"])
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    admin.delete_consumer_groups([group])[group].result(60)
    os.utime(checkpoint / "offsets" / "0", (0, 0))
    with pytest.raises(Exception, match="nobody can say whether batch 0 was written before: it was first planned"):
        stream(spark, fleet, source, checkpoint, topic=name)
    stream(spark, fleet, source, checkpoint, topic=name, missingMarker="write")
    assert [value for _, _, value in read_all(fleet, name)] == [b"1", b"1"]
