"""Arrow columns as record batches: what the broker's decoder reads of them is what went in."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow as pa

from ottla_broker.records.batch import is_intact, read_header
from ottla_broker.records.compression import Codec
from ottla_broker.records.record import Record, decode_records
from ottla_pipeline.sink.plain_batch import PlainBatch, WritingProducer, header_of
from ottla_pipeline.sink.record_encoding import Rows, encode, sizes
from tests.pipeline.compiled.walks import WAYS

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
FIELD = st.one_of(st.none(), st.binary(max_size=300))
NOBODY = WritingProducer(-1, -1)
ROW = st.tuples(
    FIELD,
    FIELD,
    st.lists(st.tuples(st.text(max_size=5), FIELD), max_size=3),
    st.integers(min_value=-1, max_value=2**52),
)


def rows_of(records: list[tuple[object, object, list[tuple[str, bytes | None]], int]], with_headers: bool) -> Rows:
    headers = [[{"key": name, "value": value} for name, value in row[2]] or None for row in records]
    return Rows(
        pa.array([row[0] for row in records], pa.binary()),
        pa.array([row[1] for row in records], pa.binary()),
        pa.array(headers, HEADERS) if with_headers else None,
        np.array([row[3] for row in records], np.int64),
    )


def read_back(batch: PlainBatch, producer: WritingProducer = NOBODY, sequence: int = -1) -> list[Record]:
    whole = header_of(batch, producer, sequence) + bytes(batch.payload)
    assert is_intact(whole)
    return decode_records(whole)


def payloads(batches: list[PlainBatch]) -> list[PlainBatch]:
    return [batch._replace(payload=bytes(batch.payload)) for batch in batches]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(ROW, min_size=1, max_size=20), min_size=1, max_size=4),
    st.sampled_from(list(Codec)),
    st.booleans(),
    st.integers(min_value=0, max_value=5),
)
def test_the_decoder_of_the_broker_reads_what_went_in(
    batches: list[list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]]],
    codec: Codec,
    with_headers: bool,
    skipped: int,
) -> None:
    records = [row for batch in batches for row in batch]
    # Columns that are slices of longer ones, as Spark hands them over.
    whole = rows_of([(b"x", b"y", [("z", b"")], 7)] * skipped + records, with_headers)
    rows = Rows(
        whole.keys[skipped:],
        whole.values[skipped:],
        None if whole.headers is None else whole.headers[skipped:],
        whole.timestamps[skipped:],
    )
    counts = [len(batch) for batch in batches]
    found = encode(rows, counts, codec)
    for compiled in WAYS:
        assert payloads(encode(rows, counts, codec, compiled=compiled)) == payloads(found)
    for plain, expected in zip(found, batches, strict=True):
        assert read_back(plain) == [
            Record(number, timestamp, key, value, tuple(headers) if with_headers else ())
            for number, (key, value, headers, timestamp) in enumerate(expected)
        ]
        assert plain.max_timestamp == max(row[3] for row in expected)
    bounds = sizes(rows)
    for number, (key, value, headers, _) in enumerate(records):
        body = len(key or b"") + len(value or b"")
        if with_headers:
            body += sum(len(name.encode()) + len(content or b"") for name, content in headers)
        assert bounds[number] >= body + 7


def test_long_keys_and_values_get_long_lengths() -> None:
    data = random.Random(7)
    records = [(data.randbytes(size), data.randbytes(size + 1), [], 5) for size in (0, 63, 64, 8191, 8192, 2_000_000)]
    for compiled in WAYS:
        (batch,) = encode(rows_of(records, False), [len(records)], compiled=compiled)
        assert [(record.key, record.value) for record in read_back(batch)] == [(row[0], row[1]) for row in records]


@settings(max_examples=60, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=40), st.booleans(), st.randoms())
def test_rows_stand_in_the_order_that_is_asked_for(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]],
    with_headers: bool,
    shuffled: random.Random,
) -> None:
    order = shuffled.sample(range(len(records)), shuffled.randint(1, len(records)))
    expected = payloads(encode(rows_of([records[number] for number in order], with_headers), [len(order)]))
    for compiled in WAYS:
        found = encode(rows_of(records, with_headers), [len(order)], order=np.array(order, np.int64), compiled=compiled)
        assert payloads(found) == expected


def test_the_header_names_the_producer_and_its_sequence() -> None:
    (batch,) = encode(rows_of([(b"k", b"v", [], 5)] * 3, False), [3])
    header = read_header(header_of(batch, WritingProducer(9, 4, is_transactional=True), 77) + bytes(batch.payload))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 4, 77)
    assert header.is_transactional and not header.is_control and header.last_offset_delta == 2
