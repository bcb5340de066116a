"""Batches compared with two other implementations, and invalid batches."""

from __future__ import annotations

import random

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.codec import has_gzip, has_zstd
from kafka.record import MemoryRecords, MemoryRecordsBuilder

from ottla_broker.records.batch import HEADER_BYTES, batches, checksum, is_intact, read_header
from ottla_broker.records.compression import Codec, compress, decompress
from ottla_broker.records.control_records import ControlType, EndTransactionMarker, build_marker, read_marker
from ottla_broker.records.errors import BatchTooLarge, CorruptBatch, RecordsError, UnsupportedMessageFormat
from ottla_broker.records.record import Record, build_batch, decode_records
from ottla_broker.records.varint import decode_varint, encode_varint

optional_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), optional_bytes), max_size=3).map(tuple)
timestamps = st.integers(min_value=0, max_value=2**45)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    base = draw(st.integers(min_value=0, max_value=2**50))
    count = draw(st.integers(min_value=1, max_value=6))
    return [
        Record(base + number, draw(timestamps), draw(optional_bytes), draw(optional_bytes), draw(headers))
        for number in range(count)
    ]


@given(record_lists(), st.sampled_from(list(Codec)))
def test_a_batch_decodes_to_the_records_that_were_encoded(records: list[Record], codec: Codec) -> None:
    batch = build_batch(records, codec=codec, producer_id=7, producer_epoch=3, base_sequence=2**31 - 2)
    header = read_header(batch)
    assert header.size == len(batch)
    assert header.next_offset == records[-1].offset + 1
    assert header.last_sequence == (2**31 - 2 + len(records) - 1) % 2**31
    assert is_intact(batch)
    assert decode_records(batch) == records


@given(record_lists(), st.sampled_from([Codec.NONE, *[Codec.GZIP] * has_gzip(), *[Codec.ZSTD] * has_zstd()]))
@settings(max_examples=50)
def test_kafka_python_reads_our_batches(records: list[Record], codec: Codec) -> None:
    batch = MemoryRecords(bytes(build_batch(records, codec=codec))).next_batch()
    assert batch.validate_crc()
    assert [(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in batch] == [
        tuple(record) for record in records
    ]


@given(record_lists(), st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]))
@settings(max_examples=50)
def test_aiokafka_reads_our_batches_and_we_read_its_batches(records: list[Record], codec: Codec) -> None:
    theirs = DefaultRecordBatch(bytes(build_batch(records, codec=codec)))
    assert theirs.validate_crc()
    assert [
        (record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in theirs
    ] == [tuple(record) for record in records]

    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for number, record in enumerate(records):
        builder.append(number, record.timestamp, record.key, record.value, headers=list(record.headers))
    data = bytes(builder.build())
    assert is_intact(data)
    assert decode_records(data) == [record._replace(offset=number) for number, record in enumerate(records)]


@given(record_lists())
@settings(max_examples=50)
def test_we_read_the_batches_of_kafka_python(records: list[Record]) -> None:
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 20)
    for record in records:
        builder.append(timestamp=record.timestamp, key=record.key, value=record.value, headers=list(record.headers))
    builder.close()
    data = bytes(builder.buffer())
    assert [header.record_count for _, header in batches(data)] == [len(records)]
    assert decode_records(data) == [record._replace(offset=number) for number, record in enumerate(records)]


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_varints_decode_to_the_numbers_that_were_encoded(value: int) -> None:
    data = b"x" + encode_varint(value)
    assert decode_varint(data, 1) == (value, len(data))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 11])
def test_an_endless_varint_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decode_varint(data, 0)


def test_the_checksum_finds_a_flipped_bit() -> None:
    batch = build_batch([Record(0, 1, b"k", b"v")])
    for position in range(21, len(batch)):
        batch[position] ^= 1
        assert not is_intact(batch)
        batch[position] ^= 1
    assert is_intact(batch)


def test_base_offset_and_leader_epoch_are_outside_the_checksum() -> None:
    batch = build_batch([Record(0, 1, b"k", b"v")])
    before = checksum(batch)
    batch[0:8] = (42).to_bytes(8, "big")
    batch[12:16] = (7).to_bytes(4, "big")
    assert checksum(batch) == before and is_intact(batch)
    assert read_header(batch).base_offset == 42
    assert read_header(batch).leader_epoch == 7


@given(st.binary(max_size=200), st.sampled_from(list(Codec)))
def test_random_records_raise_a_records_error(payload: bytes, codec: Codec) -> None:
    batch = bytearray(build_batch([Record(0, 1, b"k", b"v")]))[:HEADER_BYTES] + payload
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] = codec
    try:
        decode_records(batch)
    except RecordsError:
        pass


def test_old_message_formats_are_recognized() -> None:
    batch = build_batch([Record(0, 1, b"k", b"v")])
    batch[16] = 1
    with pytest.raises(UnsupportedMessageFormat):
        read_header(batch)


def test_a_walk_ignores_a_partial_last_batch() -> None:
    one = build_batch([Record(0, 1, None, b"a")])
    two = build_batch([Record(1, 1, None, b"b")])
    assert [position for position, _ in batches(one + two[:-1])] == [0]
    assert [position for position, _ in batches(one + two)] == [0, len(one)]


def test_snappy_is_read_raw_and_in_xerial_blocks() -> None:
    data = bytes(range(256)) * 500
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    assert compress(Codec.SNAPPY, data).startswith(b"\x82SNAPPY\x00")
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, data)) == data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_of_many_blocks_is_read(codec: Codec) -> None:
    data = random.Random(1).randbytes(300_000) + bytes(300_000)  # compressed it is far larger than one block
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_decompression_is_bounded(codec: Codec) -> None:
    bomb = compress(codec, bytes(1_000_000))
    assert len(decompress(codec, bomb, 1_000_000)) == 1_000_000
    with pytest.raises(BatchTooLarge):
        decompress(codec, bomb, 999_999)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_bytes_of_another_codec_are_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, b"not compressed at all")


def test_a_transaction_marker_decodes_to_the_one_that_was_encoded() -> None:
    marker = EndTransactionMarker(ControlType.COMMIT, 12)
    batch = build_marker(marker, producer_id=5, producer_epoch=1, timestamp=99)
    header = read_header(batch)
    assert header.is_control and header.is_transactional and header.attributes == 0x30
    assert is_intact(batch)
    assert read_marker(batch) == marker
