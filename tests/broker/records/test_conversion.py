"""Down-conversion compared with Kafka's own: what consumers before 0.11 get of batches of format 2."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.records import formats, legacy
from ottla_broker.records.batch import TIMESTAMP_TYPE_MASK, TRANSACTIONAL_MASK
from ottla_broker.records.compression import Codec
from ottla_broker.records.control_records import ControlType, EndTransactionMarker, build_marker
from ottla_broker.records.conversion import down_convert
from ottla_broker.records.errors import BatchTooLarge, UnsupportedCompression
from ottla_broker.records.record import Record, build_batch
from tests.broker.records.oracle import Ask, kafka_records, spelled

OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
optional_bytes = st.none() | st.binary(max_size=30)


@pytest.fixture(scope="module")
def java() -> Iterator[Ask]:
    with kafka_records() as ask:
        yield ask


def batch(*records: Record, **fields: object) -> bytes:
    return bytes(build_batch(records, **fields))  # type: ignore[arg-type]


def marker(offset: int) -> bytes:
    built = build_marker(
        EndTransactionMarker(ControlType.COMMIT, 3), producer_id=1, producer_epoch=0, timestamp=5, leader_epoch=1
    )
    built[:8] = offset.to_bytes(8, "big")
    return bytes(built)


def values(message_set: bytes) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.value)
        for position, header in formats.batches(message_set)
        for record in formats.decode_batch(message_set[position : position + header.size])
    ]


@st.composite
def stored(draw: st.DrawFn) -> tuple[bytes, int]:
    """Records of a fetch: batches of format 2 with gaps, some transactional, some markers; and its end offset."""
    offset = draw(st.integers(min_value=0, max_value=2**40))
    parts = []
    for _ in range(draw(st.integers(min_value=1, max_value=4))):
        if draw(st.integers(min_value=0, max_value=4)) == 0:
            parts.append(marker(offset))
            offset += 1
            continue
        records = []
        for _ in range(draw(st.integers(min_value=1, max_value=4))):
            headers = (("h", b"x"),) if draw(st.booleans()) else ()
            timestamp = draw(st.integers(min_value=0, max_value=2**41))
            records.append(Record(offset, timestamp, draw(optional_bytes), draw(optional_bytes), headers))
            offset += draw(st.integers(min_value=1, max_value=3))
        is_transactional = draw(st.booleans())
        attributes = draw(st.sampled_from([0, TIMESTAMP_TYPE_MASK]))
        parts.append(
            batch(
                *records,
                codec=draw(st.sampled_from(OLD_CODECS)),
                attributes=attributes | (TRANSACTIONAL_MASK if is_transactional else 0),
                producer_id=4 if is_transactional else -1,
                producer_epoch=0 if is_transactional else -1,
                base_sequence=0 if is_transactional else -1,
            )
        )
    return b"".join(parts), offset


@pytest.mark.java
@pytest.mark.parametrize("magic", [0, 1])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_kafka_converts_to_the_same_records(java: Ask, magic: int, data: st.DataObject) -> None:
    whole, end = data.draw(stored())
    first = next(header.base_offset for _, header in formats.batches(whole))
    start = data.draw(st.integers(min_value=first, max_value=max(first, end - 1)))
    mine = down_convert(whole, magic, start, 1 << 20)
    theirs = java("down", magic, start, whole)
    assert java("read", mine.data) == java("read", bytes.fromhex(theirs))
    if all(header.codec == 0 for _, header in formats.batches(whole)):
        assert mine.data.hex() == theirs  # to the byte, where no compressor comes between
    assert mine.next_offset >= max(header.next_offset for _, header in formats.batches(whole))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS, ids=lambda codec: codec.name)
def test_a_conversion_drops_headers_and_keeps_the_rest(magic: int, codec: Codec) -> None:
    records = [Record(10, 5, b"k", b"v", (("h", b"x"),)), Record(13, 6, None, None), Record(14, 7, b"", b"")]
    converted = down_convert(batch(*records, codec=codec), magic, 10, 1 << 20)
    found = [
        record
        for position, header in formats.batches(converted.data)
        for record in formats.decode_batch(converted.data[position : position + header.size])
    ]
    assert found == [record._replace(headers=(), timestamp=record.timestamp if magic else -1) for record in records]
    assert {header.magic for _, header in formats.batches(converted.data)} == {magic}
    assert converted.next_offset == 15


def test_a_conversion_drops_uncompressed_messages_before_the_fetch_offset() -> None:
    records = [Record(offset, 5, None, b"v%d" % offset) for offset in range(5)]
    assert values(down_convert(batch(*records), 1, 3, 1 << 20).data) == [(3, b"v3"), (4, b"v4")]
    assert len(values(down_convert(batch(*records, codec=Codec.GZIP), 1, 3, 1 << 20).data)) == 5


def test_a_conversion_returns_one_batch_of_any_size_and_more_only_within_max_bytes() -> None:
    three = b"".join(batch(Record(offset, 5, None, bytes(100))) for offset in range(3))
    assert [offset for offset, _ in values(down_convert(three, 1, 0, 1).data)] == [0]
    assert down_convert(three, 1, 0, 1).next_offset == 1
    assert [offset for offset, _ in values(down_convert(three, 1, 0, 300).data)] == [0, 1]
    assert [offset for offset, _ in values(down_convert(three[:-1], 1, 0, 1 << 20).data)] == [0, 1]
    nothing = down_convert(three[:50], 1, 0, 1 << 20)
    assert nothing.data == b"" and nothing.next_offset == 0


def test_a_conversion_drops_transaction_markers() -> None:
    whole = marker(0) + batch(Record(1, 5, None, b"a")) + marker(2)
    converted = down_convert(whole, 1, 0, 1 << 20)
    assert values(converted.data) == [(1, b"a")] and converted.next_offset == 3
    assert down_convert(marker(0), 1, 0, 1 << 20) == (b"", 1)


def test_a_conversion_keeps_older_formats_and_converts_format_1_to_format_0() -> None:
    old = legacy.build_message_set([Record(0, -1, None, b"a")], 0)
    middle = legacy.build_message_set([Record(1, 5, None, b"b"), Record(3, 5, b"k", b"c")], 1, codec=Codec.SNAPPY)
    assert down_convert(old + middle, 1, 0, 1 << 20) == (old + middle, 4)
    converted = down_convert(old + middle, 0, 0, 1 << 20)
    assert values(converted.data) == [(0, b"a"), (1, b"b"), (3, b"c")]
    assert {header.magic for _, header in formats.batches(converted.data)} == {0}


def test_a_conversion_refuses_zstd_but_returns_the_batches_before() -> None:
    zstd = batch(Record(1, 5, None, b"z"), codec=Codec.ZSTD)
    with pytest.raises(UnsupportedCompression):
        down_convert(zstd, 1, 1, 1 << 20)
    assert down_convert(batch(Record(0, 5, None, b"a")) + zstd, 1, 0, 1 << 20).next_offset == 1


def test_a_batch_is_refused_when_it_decompresses_beyond_the_limit() -> None:
    with pytest.raises(BatchTooLarge):
        down_convert(batch(Record(0, 5, None, bytes(100_000)), codec=Codec.GZIP), 1, 0, 1 << 20, 50_000)


@pytest.mark.java
def test_kafka_reads_a_converted_set_of_format_0_in_lz4(java: Ask) -> None:
    records = [Record(3, 5, b"k", b"v" * 300), Record(4, 6, None, b"w" * 300)]
    converted = down_convert(batch(*records, codec=Codec.LZ4), 0, 3, 1 << 20)
    assert java("read", converted.data) == spelled(
        0, [record._replace(timestamp=-1) for record in records], "NoTimestampType"
    )
