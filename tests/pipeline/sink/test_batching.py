"""Which partition a row goes to and where batches end, and what a mistake says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from ottla_broker.records.compression import Codec
from ottla_broker.records.record import Record, decode_records
from ottla_pipeline.errors import ColumnError, RecordError
from ottla_pipeline.sink.batching import Batching, Limits
from ottla_pipeline.sink.column_types import check_columns
from ottla_pipeline.sink.plain_batch import WritingProducer, header_of
from ottla_pipeline.sink.row_columns import normalized
from ottla_pipeline.topic_partition import TopicPartition

COUNTS = {"a": 3, "b": 5}


def written(to: str | None = None, limit: int = 2000, **columns: Any) -> dict[TopicPartition, list[list[Record]]]:
    """The batches of each partition."""
    batching = Batching(Limits(limit, 10_000, Codec.NONE, None), COUNTS.__getitem__, 0)
    batch = pa.RecordBatch.from_pydict(columns)
    rows, destinations = normalized(batch, to, 100, 1234)
    found: dict[TopicPartition, list[list[Record]]] = {}
    for partition, plain in batching.batches(rows, destinations, 100):
        whole = header_of(plain, WritingProducer(-1, -1), -1) + bytes(plain.payload)
        found.setdefault(partition, []).append(decode_records(whole))
    return found


def values(found: dict[TopicPartition, list[list[Record]]]) -> dict[TopicPartition, list[bytes | None]]:
    return {where: [record.value for batch in batches for record in batch] for where, batches in found.items()}


def test_rows_go_to_the_topic_of_their_column_in_their_order() -> None:
    keys = [b"%d" % (number % 17) for number in range(200)]
    topics = ["a" if number % 3 else "b" for number in range(200)]
    found = values(written(key=keys, value=[b"%d" % number for number in range(200)], topic=topics))
    assert sum(len(rows) for rows in found.values()) == 200
    for where, rows in found.items():
        numbers = [int(row or b"") for row in rows]
        assert numbers == sorted(numbers)
        assert {topics[number] for number in numbers} == {where.topic}
    assert len({where.topic for where in found}) == 2


def test_one_key_goes_to_one_partition_and_rows_without_key_to_all() -> None:
    found = values(written("a", key=["same"] * 50, value=["v"] * 50))
    assert len(found) == 1
    found = values(written("a", limit=20_000, value=[b"v" * 1000] * 200))
    assert {where.partition for where in found} == {0, 1, 2}


def test_the_partition_column_wins_over_the_key_and_null_leaves_it_to_the_key() -> None:
    found = values(written("a", key=[b"k"] * 3, value=[b"0", b"1", b"2"], partition=pa.array([2, None, 0], pa.int32())))
    assert b"0" in found[TopicPartition("a", 2)] and b"2" in found[TopicPartition("a", 0)]
    for wrong in (3, -1):
        with pytest.raises(
            ColumnError, match=rf"column partition is {wrong} in row 101 of its task, topic 'a' has 0 to 2"
        ):
            written("a", value=[b"", b""], partition=pa.array([0, wrong], pa.int32()))


def test_batches_end_at_their_limit_and_a_single_record_may_be_larger() -> None:
    found = written("a", key=[b"k"] * 30, value=[b"v" * 500] * 29 + [b"w" * 5000])
    (batches,) = found.values()
    assert [len(batch) for batch in batches] == [3] * 9 + [2, 1]


def test_a_record_that_is_too_large_is_named() -> None:
    with pytest.raises(RecordError, match=r"record of row 101 for a-\d has \d+ bytes, kafka.max.request.size is 10000"):
        written("a", key=[b"k", b"k"], value=[b"", b"v" * 10_000])


def test_timestamps_and_headers_arrive_and_rows_without_get_the_time_of_writing() -> None:
    stamps = pa.array([1_700_000_000_123_456, None], pa.timestamp("us", "UTC"))
    (batches,) = written(
        "a", key=[b"k"] * 2, value=[b"", None], timestamp=stamps,
        headers=pa.array([[{"key": "h", "value": None}], None]).cast(
            pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
        ),
    ).values()  # fmt: skip
    ((first, second),) = batches
    assert (first.timestamp, first.headers) == (1_700_000_000_123, (("h", None),))
    assert (second.timestamp, second.headers, second.value) == (1234, (), None)


@pytest.mark.parametrize(
    ("types", "topic", "message"),
    [
        ({"key": "binary"}, "a", "column value is required; there are key"),
        ({"value": "int"}, "a", "column value must be binary or string, not int"),
        ({"value": "binary"}, None, "column topic is required unless the option topic"),
        ({"value": "binary", "key": "bigint"}, "a", "column key must be"),
        ({"value": "binary", "partition": "bigint"}, "a", "column partition must be int, not bigint"),
        ({"value": "binary", "headers": "map<string,binary>"}, "a", "column headers must be array<struct"),
        ({"value": "binary", "timestamp": "bigint"}, "a", "column timestamp must be timestamp, not bigint"),
        ({"value": "binary", "topic": "int"}, None, "column topic must be string"),
    ],
)
def test_a_wrong_column_is_named(types: dict[str, str], topic: str | None, message: str) -> None:
    with pytest.raises(ColumnError, match=message.replace("(", r"\(")):
        check_columns(types, topic)


def test_columns_of_rows_that_were_read_are_taken_or_left() -> None:
    check_columns({"value": "binary", "offset": "bigint", "timestampType": "int", "topic": "string"}, None)
    check_columns({"value": "binary", "topic": "int"}, "a")


def test_a_null_topic_and_a_header_without_key_are_named_with_their_row() -> None:
    with pytest.raises(ColumnError, match="column topic is null in row 101"):
        written(value=[b"", b""], topic=["a", None])
    headers = pa.array([[], [{"key": None, "value": b"x"}]]).cast(
        pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    )
    with pytest.raises(ColumnError, match="header without key in row 101"):
        written("a", value=[b"", b""], headers=headers)


def test_no_row_is_lost_among_many_partitions() -> None:
    numbers = np.random.default_rng(1).permutation(5000)
    found = values(written("b", limit=700, key=[b"%d" % n for n in numbers], value=[b"%d" % n for n in numbers]))
    assert sorted(int(row or b"") for rows in found.values() for row in rows) == list(range(5000))
