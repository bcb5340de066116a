"""Message formats 0 and 1 compared with Kafka's own classes and kafka-python's, and invalid messages."""

from __future__ import annotations

import random
from collections.abc import Iterator
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder

from ottla_broker.records import formats, legacy
from ottla_broker.records.compression import Codec, compress, old_kafka_lz4, repaired_lz4
from ottla_broker.records.errors import BatchTooLarge, CorruptBatch, InvalidRecord, RecordsError, UnsupportedCompression
from ottla_broker.records.record import Record, build_batch
from tests.broker.records.oracle import Ask, kafka_records, spelled, to_write

OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
optional_bytes = st.none() | st.binary(max_size=40)


@pytest.fixture(scope="module")
def java() -> Iterator[Ask]:
    with kafka_records() as ask:
        yield ask


@st.composite
def old_records(draw: st.DrawFn, *, magic: int, dense: bool = False) -> list[Record]:
    offset = draw(st.integers(min_value=0, max_value=2**50))
    found = []
    for _ in range(draw(st.integers(min_value=1, max_value=6))):
        timestamp = draw(st.integers(min_value=-1, max_value=2**45)) if magic else -1
        found.append(Record(offset, timestamp, draw(optional_bytes), draw(optional_bytes)))
        offset += 1 if dense else draw(st.integers(min_value=1, max_value=5))
    return found


def decoded(message_set: bytes) -> list[Record]:
    return [
        record
        for position, header in formats.batches(message_set)
        for record in formats.decode_batch(message_set[position : position + header.size])
    ]


@pytest.mark.parametrize("magic", [0, 1])
@given(data=st.data(), codec=st.sampled_from(OLD_CODECS))
def test_a_message_set_decodes_to_the_records_that_were_encoded(magic: int, data: st.DataObject, codec: Codec) -> None:
    records = data.draw(old_records(magic=magic))
    message_set = legacy.build_message_set(records, magic, codec=codec)
    assert decoded(message_set) == records
    headers = [header for _, header in formats.batches(message_set)]
    assert [header.last_offset for header in headers] == (
        [record.offset for record in records] if codec is Codec.NONE else [records[-1].offset]
    )
    assert all(header.magic == magic for header in headers)
    assert headers[-1].next_offset == records[-1].offset + 1


@pytest.mark.java
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS, ids=lambda codec: codec.name)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_kafka_reads_our_message_sets_and_we_read_its_message_sets(
    java: Ask, magic: int, codec: Codec, data: st.DataObject
) -> None:
    records = data.draw(old_records(magic=magic, dense=True))
    mine = legacy.build_message_set(records, magic, codec=codec)
    kind = "CreateTime" if magic else "NoTimestampType"
    assert java("read", mine) == spelled(magic, records, kind)
    name = "none" if codec is Codec.NONE else codec.name.lower()
    theirs = bytes.fromhex(java("write", magic, name, "CREATE_TIME", records[0].offset, to_write(records)))
    assert decoded(theirs) == records
    assert all(
        formats.is_batch_intact(theirs[position : position + header.size], header.magic)
        for position, header in formats.batches(theirs)
    )
    if codec is Codec.NONE:
        assert mine == theirs


@pytest.mark.java
@pytest.mark.parametrize("codec", OLD_CODECS, ids=lambda codec: codec.name)
def test_log_append_time_of_format_1_is_the_brokers(java: Ask, codec: Codec) -> None:
    records = [Record(5, 1_700_000_000_999, b"k", b"v"), Record(6, 1_700_000_000_999, None, b"w")]
    name = "none" if codec is Codec.NONE else codec.name.lower()
    sent = [record._replace(timestamp=3) for record in records]
    theirs = bytes.fromhex(java("write", 1, name, "LOG_APPEND_TIME", 5, to_write(sent)))
    assert decoded(theirs) == records
    assert all(header.has_append_time for _, header in formats.batches(theirs))
    mine = legacy.build_message_set(records, 1, codec=codec, has_append_time=True)
    assert java("read", mine) == spelled(1, records, "LogAppendTime")


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", [0, 1, 2])
def test_kafka_python_reads_our_message_sets_and_we_read_its_message_sets(magic: int, compression: int) -> None:
    records = [Record(number, 1000 + number if magic else -1, b"k%d" % number, b"v" * number) for number in range(20)]
    builder = LegacyRecordBatchBuilder(magic, compression, 1 << 20)
    for record in records:
        builder.append(record.offset, timestamp=record.timestamp if magic else None, key=record.key, value=record.value)
    theirs = bytes(builder.build())
    # A client leaves 0 as the wrapper's offset, from which those inside count back.
    back = 19 if compression and magic else 0
    assert decoded(theirs) == [record._replace(offset=record.offset - back) for record in records]
    mine = legacy.build_message_set(records, magic, codec=Codec(compression))
    if compression == 0:
        assert mine == theirs
    else:
        batch = LegacyRecordBatch(bytearray(mine), magic)
        assert batch.validate_crc()
        assert [(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value) for r in batch] == [
            record[:4] for record in records
        ]


def test_the_lz4_of_format_0_has_kafkas_old_header_checksum() -> None:
    frame = compress(Codec.LZ4, b"some content" * 100)
    old = old_kafka_lz4(frame)
    assert old != frame
    assert repaired_lz4(old) == frame == repaired_lz4(frame)
    assert [a == b for a, b in zip(old, frame, strict=True)].count(False) == 1
    for cut in (b"", frame[:6]):
        with pytest.raises(CorruptBatch):
            repaired_lz4(cut)


def test_a_partial_message_at_the_end_is_ignored() -> None:
    message_set = legacy.build_message_set([Record(n, 1, None, b"value") for n in range(3)], 1)
    for cut in range(1, len(message_set) // 3):
        assert [record.offset for record in decoded(message_set[:-cut])] == [0, 1]
        assert len(list(legacy.entries(message_set[:-cut]))) == 2


def test_a_log_of_several_formats_is_walked() -> None:
    old = legacy.build_message_set([Record(0, -1, None, b"a"), Record(1, -1, None, b"b")], 0)
    middle = legacy.build_message_set([Record(2, 5, None, b"c"), Record(4, 6, None, b"d")], 1, codec=Codec.GZIP)
    new = bytes(build_batch([Record(5, 7, b"k", b"e", (("h", b"x"),))]))
    whole = old + middle + new
    assert [(header.magic, header.last_offset) for _, header in formats.batches(whole)] == [
        *((0, 0), (0, 1), (1, 4), (2, 5))
    ]
    assert [record.value for record in decoded(whole)] == [b"a", b"b", b"c", b"d", b"e"]
    assert list(formats.batches(b"")) == []
    assert [header.magic for _, header in formats.batches(whole[:-1])] == [0, 0, 1]


def test_zeros_of_a_preallocated_file_are_no_message() -> None:
    assert legacy.read_entry_header(bytes(200)) is None
    assert formats.header_at(bytes(200), 0) is None
    with pytest.raises(CorruptBatch):
        list(formats.batches(bytes(200)))


def wrapper(inside: bytes, *, magic: int = 1, codec: Codec = Codec.GZIP) -> bytes:
    return legacy.encode_message(magic, 9, 1, codec, None, compress(codec, inside))


def test_a_wrapper_with_invalid_messages_inside_is_refused() -> None:
    one = legacy.build_message_set([Record(0, 1, None, b"v")], 1)
    other = legacy.build_message_set([Record(0, 1, None, b"v")], 0)
    cases = [
        (wrapper(other), InvalidRecord),
        (wrapper(wrapper(one)), InvalidRecord),
        (wrapper(b""), CorruptBatch),
        (wrapper(one[:-1]), CorruptBatch),
        (legacy.encode_message(1, 9, 1, Codec.GZIP, None, None), InvalidRecord),
        (legacy.encode_message(1, 9, 1, Codec.GZIP, None, b"not gzip"), CorruptBatch),
        (wrapper(one, codec=Codec.ZSTD), UnsupportedCompression),
        (legacy.encode_message(1, 9, 1, 6, None, b"x"), UnsupportedCompression),
    ]
    for entry, expected in cases:
        with pytest.raises(expected):
            legacy.decode_entry(entry)
    with pytest.raises(BatchTooLarge):
        legacy.decode_entry(wrapper(legacy.build_message_set([Record(0, 1, None, bytes(5000))], 1)), max_bytes=4000)
    spoilt = bytearray(one)
    spoilt[-1] ^= 1
    message = legacy.read_message(wrapper(bytes(spoilt)))
    with pytest.raises(CorruptBatch, match="checksum"):
        legacy.unwrap(message, check_inside=True)


def test_a_message_set_is_never_empty_and_never_zstd() -> None:
    with pytest.raises(UnsupportedCompression):
        legacy.build_message_set([Record(0, 1, None, b"v")], 1, codec=Codec.ZSTD)
    with pytest.raises(ValueError, match="at least one"):
        legacy.build_message_set([], 1)


def test_damaged_messages_raise_only_records_errors() -> None:
    rng = random.Random(4)
    good = [
        legacy.build_message_set([Record(7, 5, b"key", b"value" * 5), Record(8, 6, None, None)], magic, codec=codec)
        for magic in (0, 1)
        for codec in OLD_CODECS
    ]
    for _ in range(3000):
        spoilt = bytearray(rng.choice(good))
        for _ in range(rng.randint(1, 3)):
            spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
        try:
            for position, header in formats.batches(spoilt):
                entry = spoilt[position : position + header.size]
                formats.decode_batch(entry, 1 << 20)
                assert (
                    formats.is_batch_intact(entry, header.magic)
                    == (crc32(entry[16:]) == int.from_bytes(entry[12:16], "big"))
                    or header.magic == 2
                )
        except RecordsError:
            pass
