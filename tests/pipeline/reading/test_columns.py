"""Record batches as Arrow columns, compared with the broker's own decoder record by record.

Every read of these tests is done by each of the walks, which must agree: on the rows, or that there are none.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK
from ottla_broker.records.compression import Codec
from ottla_broker.records.control_records import ControlType, EndTransactionMarker, build_marker
from ottla_broker.records.errors import CorruptBatch, UnsupportedMessageFormat
from ottla_broker.records.record import Record, build_batch

pytest.importorskip("pyarrow")

from ottla_pipeline.reading.columns import ROWS, AbortedTransaction, Wanted, choose, columns
from ottla_pipeline.reading.decoded import Decode
from tests.pipeline.compiled.walks import WALKS

EVERYTHING = Wanted("flights", 3, 0, 2**60, with_headers=True)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, object]


def rows(
    answer: bytes | bytearray, wanted: Wanted = EVERYTHING, aborted: Sequence[AbortedTransaction] = ()
) -> list[Row]:
    found = [_by(decode, answer, wanted, aborted) for decode in WALKS]
    for other in found[1:]:
        # One walk may see another mistake first.
        assert type(other) is type(found[0]) and (isinstance(other, Exception) or other == found[0])
    first = found[0]
    if isinstance(first, Exception):
        raise first
    return first


def _by(
    decode: Decode, answer: bytes | bytearray, wanted: Wanted, aborted: Sequence[AbortedTransaction]
) -> list[Row] | CorruptBatch:
    found: list[Row] = []
    try:
        for batch in columns(answer, choose(answer, wanted, aborted), wanted, decode):
            batch.validate(full=True)
            assert batch.schema == wanted.schema and 0 < batch.num_rows <= ROWS
            found += batch.to_pylist()
    except CorruptBatch as error:
        return error
    return found


def expected(records: Sequence[Record], timestamp_type: int = 0) -> list[Row]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "flights",
            "partition": 3,
            "offset": record.offset,
            "timestamp": record.timestamp * 1000,
            "timestampType": timestamp_type,
            "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        }
        for record in records
    ]


def plain(found: list[Row]) -> list[Row]:
    """Times as microseconds."""
    for row in found:
        row["timestamp"] = (row["timestamp"] - EPOCH) // timedelta(microseconds=1)  # type: ignore[operator]
    return found


optional_bytes = st.none() | st.binary(max_size=200)
record_headers = st.lists(st.tuples(st.text(max_size=5), optional_bytes), max_size=3).map(tuple)


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[Codec, list[Record]]]:
    """Batches with offsets that grow and may have gaps, as compaction leaves them."""
    found: list[tuple[Codec, list[Record]]] = []
    offset = 0
    for _ in range(draw(st.integers(min_value=1, max_value=40))):
        records: list[Record] = []
        for _ in range(draw(st.integers(min_value=1, max_value=4))):
            offset += draw(st.sampled_from([1, 1, 1, 2, 70, 10_000]))
            timestamp = draw(st.integers(min_value=0, max_value=10**12))
            records.append(Record(offset, timestamp, draw(optional_bytes), draw(optional_bytes), draw(record_headers)))
        found.append((draw(st.sampled_from(list(Codec))), records))
    return found


@settings(max_examples=60, deadline=None)
@given(logs(), st.booleans())
def test_every_record_is_a_row_whatever_its_codec(log: list[tuple[Codec, list[Record]]], is_plain: bool) -> None:
    answer = bytearray()
    for codec, records in log:
        answer += build_batch(records, codec=Codec.NONE if is_plain else codec)
    every = [record for _, records in log for record in records]
    assert plain(rows(answer)) == expected(every)
    start, end = every[len(every) // 3].offset, every[-1].offset
    inside = [record for record in every if start <= record.offset < end]
    assert plain(rows(answer, replace(EVERYTHING, start=start, end=end))) == expected(inside)


def test_large_and_small_records_are_found_in_many_batches_of_different_length() -> None:
    shuffled = random.Random(1)
    answer, every, offset = bytearray(), [], 0
    for _ in range(60):
        records = []
        for _ in range(shuffled.choice([1, 3, 300])):
            value = shuffled.randbytes(shuffled.choice([0, 5, 60, 63, 64, 130, 8000, 20000 if offset % 50 == 0 else 9]))
            records.append(Record(offset, 1_000_000 + offset, b"%d" % offset, value))
            offset += 1
        answer += build_batch(records)
        every += records
    assert plain(rows(answer)) == expected(every)


def test_more_rows_than_an_arrow_batch_holds_come_in_several() -> None:
    records = [Record(offset, 5, None, b"") for offset in range(2 * ROWS + 1)]
    found = list(columns(answer := build_batch(records), choose(answer, EVERYTHING, ()), EVERYTHING))
    assert [batch.num_rows for batch in found] == [ROWS, ROWS, 1]


def test_append_time_counts_for_all_records_of_its_batch() -> None:
    records = [Record(0, 100, None, b"a"), Record(1, 300, None, b"b")]
    stamped = build_batch(records, attributes=0x08)
    assert plain(rows(stamped)) == expected([record._replace(timestamp=300) for record in records], timestamp_type=1)


def test_a_cut_off_batch_is_left_for_the_next_fetch_and_gaps_are_jumped_over() -> None:
    first, second = build_batch([Record(5, 0, None, b"x")]), build_batch([Record(9, 0, None, b"y")])
    chosen = choose(first + second[:-1], replace(EVERYTHING, start=2), ())
    assert (len(chosen.batches), chosen.next_offset) == (1, 6)
    chosen = choose(first + second, replace(EVERYTHING, start=6), ())
    assert (len(chosen.batches), chosen.next_offset) == (1, 10)
    assert choose(first + second, replace(EVERYTHING, end=8), ()).next_offset == 8
    assert choose(b"", replace(EVERYTHING, start=2), ()) == ([], 2)


def transaction(offset: int, producer: int, value: bytes) -> bytearray:
    return build_batch(
        [Record(offset, 0, None, value)],
        attributes=TRANSACTIONAL_MASK, producer_id=producer, producer_epoch=0, base_sequence=0,
    )  # fmt: skip


def marker(offset: int, producer: int, kind: ControlType) -> bytearray:
    found = build_marker(EndTransactionMarker(kind, 0), producer_id=producer, producer_epoch=0, timestamp=0)
    found[:8] = offset.to_bytes(8, "big")
    assert found[22] & CONTROL_MASK
    return found


def test_aborted_records_are_left_out_when_only_committed_ones_are_wanted() -> None:
    answer = bytearray().join(
        [
            transaction(0, 7, b"aborted"),
            transaction(1, 8, b"committed"),
            build_batch([Record(2, 0, None, b"plain")]),
            marker(3, 7, ControlType.ABORT),
            transaction(4, 7, b"the next transaction of the same producer"),
            marker(5, 8, ControlType.COMMIT),
            marker(6, 7, ControlType.COMMIT),
            transaction(7, 8, b"aborted later"),
            marker(8, 8, ControlType.ABORT),
        ]
    )
    aborted = [AbortedTransaction(8, 7), AbortedTransaction(7, 0)]
    committed = replace(EVERYTHING, committed_only=True)
    assert [row["offset"] for row in rows(answer, committed, aborted)] == [1, 2, 4]
    assert [row["offset"] for row in rows(answer)] == [0, 1, 2, 4, 7]
    assert choose(answer, committed, aborted).next_offset == 9


def test_bytes_that_are_no_batch_are_refused() -> None:
    batch = build_batch([Record(0, 0, b"key", b"value")])
    altered = bytearray(batch)
    altered[-2] ^= 1
    with pytest.raises(CorruptBatch, match="checksum of the batch at offset 0"):
        rows(altered)
    assert len(rows(altered, replace(EVERYTHING, checks_crcs=False))) == 1
    many = bytearray(batch)
    many[57:61] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(CorruptBatch, match="fewer bytes than its number of records needs"):
        rows(many, replace(EVERYTHING, checks_crcs=False))
    old = bytearray(batch)
    old[16] = 1
    with pytest.raises(UnsupportedMessageFormat, match="message format 1"):
        rows(old)


@settings(max_examples=300, deadline=None)
@given(st.data(), st.booleans(), st.sampled_from([1, 20]))
def test_corrupt_records_under_a_valid_checksum_end_in_an_error_or_in_rows(
    data: st.DataObject, with_headers: bool, batch_count: int
) -> None:
    """Never in another exception, nor in bytes from outside of the records. Few batches are walked unlike many."""
    answer = bytearray()
    for number in range(batch_count):
        base = 4 * number
        answer += build_batch(
            [Record(base + n, n, (b"key", None)[n % 2], (b"value" * n, None)[n == 3], (("h", b"x"),)) for n in range(4)]
        )
    for _ in range(data.draw(st.integers(min_value=1, max_value=3))):
        number = data.draw(st.integers(min_value=0, max_value=batch_count - 1))
        length = len(answer) // batch_count
        place = number * length + data.draw(st.integers(min_value=61, max_value=length - 1))
        answer[place] = data.draw(st.sampled_from([0, 1, 127, 128, 255]) | st.integers(min_value=0, max_value=255))
    start, end = data.draw(st.sampled_from([(0, 2**60), (2, 7)]))
    wanted = replace(EVERYTHING, checks_crcs=False, with_headers=with_headers, start=start, end=end)
    try:
        rows(answer, wanted)
    except CorruptBatch:
        pass


def varint(number: int, size: int) -> bytes:
    """A zigzag varint of `size` bytes, with more of them than the number needs."""
    zigzag = (number << 1) ^ (number >> 63)
    return bytes((zigzag >> 7 * place & 127) | (128 if place < size - 1 else 0) for place in range(size))


def with_records(*bodies: bytes) -> bytearray:
    """A batch of records with these bytes, whatever they are."""
    batch = build_batch([Record(number, 0, None, b"") for number in range(len(bodies))])[:61] + b"".join(bodies)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    return batch


@pytest.mark.parametrize("batch_count", [1, 20])
def test_numbers_with_more_bytes_than_they_need_are_read_up_to_the_size_of_their_type(batch_count: int) -> None:
    unchecked = replace(EVERYTHING, checks_crcs=False, with_headers=False)

    def read(length: int, time: int, offset: int, key: int, value: int) -> list[Row]:
        body = b"\0" + varint(5, time) + varint(0, offset) + varint(-1, key) + varint(1, value) + b"x\0"
        return rows(with_records(varint(len(body), length) + body) * batch_count, unchecked)

    assert [(row["key"], row["value"]) for row in read(5, 10, 5, 5, 5)] == [(None, b"x")] * batch_count
    for too_long in ((6, 1, 1, 1, 1), (1, 11, 1, 1, 1), (1, 1, 6, 1, 1), (1, 1, 1, 6, 1), (1, 1, 1, 1, 6)):
        with pytest.raises(CorruptBatch):
            read(*too_long)


def test_lengths_that_are_negative_are_null_for_fields_and_corrupt_for_records() -> None:
    unchecked = replace(EVERYTHING, checks_crcs=False)
    assert (
        rows(with_records(varint(6, 1) + b"\0\0\0" + varint(-7, 1) + varint(-1, 1) + b"\0"), unchecked)[0]["key"]
        is None
    )
    for length in (-1, 0, 2**31 - 1):
        with pytest.raises(CorruptBatch):
            rows(with_records(varint(length, 5) + b"\0\0\0\1\1\0"), unchecked)


def test_a_partition_of_tombstones_and_of_large_records_is_read_as_it_was_written() -> None:
    data = random.Random(2)
    tombstones = [Record(n, n, b"%d" % n, None) for n in range(100)]
    large = [Record(100 + n, n, None, data.randbytes(3_000_000)) for n in range(4)]
    answer = build_batch(tombstones) + build_batch(large, codec=Codec.ZSTD) + build_batch(large[:1], codec=Codec.LZ4)
    assert plain(rows(answer)) == expected([*tombstones, *large, large[0]])
