"""The source as a user has it: real Spark, real brokers, no register call, and Spark's own connector beside it.

One Spark session and one fleet serve all tests here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.testing import RunningCluster, cluster

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.long]

RECORDS = 2000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=2, racks=2) as found:
        admin = AdminClient({"bootstrap.servers": found.bootstrap})
        for topic in ("letters", "flights", "empty"):
            admin.create_topics([NewTopic(topic, 4, 2, config={"retention.ms": "-1"})])[topic].result(60)
        number = 0
        for codec in CODECS:
            producer = Producer({"bootstrap.servers": found.bootstrap, "compression.type": codec, "acks": "all"})
            for _ in range(RECORDS // len(CODECS)):
                producer.produce(
                    "letters",
                    key=None if number % 7 == 0 else b"%d" % number,
                    value=None if number % 11 == 0 else b"v" * (number % 300),
                    headers=[("codec", codec.encode()), ("nothing", None)] if number % 3 == 0 else None,
                    timestamp=1_700_000_000_000 + number,
                )
                number += 1
            assert producer.flush(60) == 0
        yield found


def frame(spark: Any, fleet: RunningCluster, connector: str = "ottla", **options: str) -> Any:
    reader = spark.read.format(connector).option("kafka.bootstrap.servers", fleet.bootstrap)
    return reader.options(**options).load()


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "letters", "includeHeaders": "true"},
        {"subscribe": "letters,empty", "minPartitions": "9"},
        {"subscribePattern": "^let"},
        {"assign": '{"letters": [1, 3]}', "startingOffsets": '{"letters": {"1": 5, "3": -2}}'},
        {"subscribe": "letters", "startingTimestamp": "1700000000500", "endingTimestamp": "1700000000900"},
        {"subscribe": "empty", "kafka.isolation.level": "read_committed"},
    ],
    ids=str,
)
def test_the_rows_are_those_of_the_stock_connector(spark: Any, fleet: RunningCluster, options: dict[str, str]) -> None:
    ours, theirs = (frame(spark, fleet, connector, **options) for connector in ("ottla", "kafka"))
    assert ours.schema.simpleString() == theirs.schema.simpleString()
    found, their_rows = (
        sorted(rows.collect(), key=lambda row: (row.topic, row.partition, row.offset)) for rows in (ours, theirs)
    )
    assert found == their_rows
    assert bool(found) is (options.get("subscribe") != "empty")


def test_there_is_a_task_for_each_partition_and_more_on_demand(spark: Any, fleet: RunningCluster) -> None:
    assert frame(spark, fleet, subscribe="letters").rdd.getNumPartitions() == 4
    assert frame(spark, fleet, subscribe="letters", minPartitions="8").rdd.getNumPartitions() >= 8
    assert frame(spark, fleet, subscribe="letters").limit(3).count() == 3


def test_a_mistake_is_told_in_one_line_that_names_it(spark: Any, fleet: RunningCluster) -> None:
    for options, message in (
        ({"subscribe": "nope"}, "UnknownTopic: option subscribe: topic 'nope' does not exist at 127.0.0.1:"),
        ({"subscribe": "letters", "startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({}, "exactly one of assign, subscribe and subscribePattern is needed, none is given"),
    ):
        with pytest.raises(Exception) as raised:
            frame(spark, fleet, **options).count()
        text = str(raised.value)
        assert message in text
        assert len(text.splitlines()) < 10
    with pytest.raises(Exception, match="option schema: cannot be chosen"):
        reader = spark.read.format("ottla").schema("value string").option("subscribe", "letters")
        reader.option("kafka.bootstrap.servers", fleet.bootstrap).load().count()


def test_the_example_makes_a_table_and_a_picture(fleet: RunningCluster, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all"})
    for value in (
        b'{"hour": 6, "carrier": "AA", "arr_delay": 10.0}',
        b'{"hour": 6, "carrier": "AA", "arr_delay": -4.0}',
        b'{"hour": 17, "carrier": "UA", "arr_delay": 25.0}',
        b'{"hour": 17, "carrier": "B6", "arr_delay": null}',
    ):
        producer.produce("flights", value=value)
    assert producer.flush(60) == 0
    example = Path(__file__).parents[2] / "examples" / "flights.py"
    picture = tmp_path / "delays.png"
    done = subprocess.run(
        [sys.executable, str(example), fleet.bootstrap, str(picture)],
        capture_output=True, text=True, cwd=tmp_path, timeout=550, check=False,
        # Not activated: the python3 of this PATH does not have the package.
        env={**{name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"},
             "SPARK_LOCAL_IP": "127.0.0.1", "PATH": os.defpath},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["hour   AA   UA", "   6    3    ·", "  17    ·   25"]
    assert picture.read_bytes().startswith(b"\x89PNG")
