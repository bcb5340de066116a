"""The preparation of batches whose records must be decoded, compared with Kafka's own LogValidator."""

from __future__ import annotations

import random
from collections.abc import Iterator
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records import formats, legacy
from ottla_broker.records.batch import HEADER, TRANSACTIONAL_MASK, checksum, is_intact, read_header
from ottla_broker.records.compression import Codec
from ottla_broker.records.errors import BatchTooLarge, CorruptBatch, InvalidRecord, RecordsRejected
from ottla_broker.records.preparation import RecordRules, prepare
from ottla_broker.records.record import Record, build_batch, decode_records
from tests.broker.records.oracle import Ask, kafka_records

NOW = 1_700_000_000_000
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
KAFKAS_NAME = {None: "producer", Codec.NONE: "uncompressed"}
optional_bytes = st.none() | st.binary(max_size=30)


@pytest.fixture(scope="module")
def java() -> Iterator[Ask]:
    with kafka_records() as ask:
        yield ask


@st.composite
def sent(draw: st.DrawFn) -> bytes:
    """Records as a producer may send them: any format, any of its codecs."""
    magic = draw(st.sampled_from([0, 1, 2]))
    codec = draw(st.sampled_from(list(Codec) if magic == 2 else OLD_CODECS))
    records = []
    for offset in range(draw(st.integers(min_value=1, max_value=5))):
        timestamp = draw(st.sampled_from([-1, NOW - 20_000, NOW - 1_000, NOW, NOW + 1_000, NOW + 20_000]))
        headers = (("h", b"x"),) if magic == 2 and draw(st.booleans()) else ()
        records.append(Record(offset, timestamp if magic else -1, draw(optional_bytes), draw(optional_bytes), headers))
    if magic < 2:
        return legacy.build_message_set(records, magic, codec=codec)
    return bytes(build_batch(records, codec=codec, producer_id=3, producer_epoch=1, base_sequence=9))


rules = st.builds(
    RecordRules,
    topic=st.just("t"),
    gzip_level=st.none(),
    lz4_level=st.none(),
    zstd_level=st.none(),
    max_message_bytes=st.just(1 << 20),
    max_decompressed_bytes=st.just(1 << 20),
    codec=st.sampled_from([None, *Codec]),
    needs_keys=st.booleans(),
    validates=st.booleans(),
    is_append_time=st.booleans(),
    before_max_ms=st.sampled_from([2**63 - 1, 5_000]),
    after_max_ms=st.sampled_from([2**63 - 1, 5_000]),
)


@pytest.mark.java
@settings(max_examples=300, deadline=None)
@given(message=sent(), asked=rules)
def test_kafka_accepts_and_refuses_the_same_records(java: Ask, message: bytes, asked: RecordRules) -> None:
    codec = None if asked.codec is None else Codec(asked.codec)
    answer = java(
        "validate",
        KAFKAS_NAME.get(codec) or Codec(codec or 0).name.lower(),
        str(asked.needs_keys).lower(),
        "LOG_APPEND_TIME" if asked.is_append_time else "CREATE_TIME",
        asked.before_max_ms,
        asked.after_max_ms,
        NOW,
        message,
    )
    try:
        prepared = bytes(prepare(message, asked, NOW))
    except RecordsRejected as error:
        code, _, indexes = answer.partition(" ")
        assert code == str(int(error.code)), answer
        if message[16] == 2:  # before, Kafka stops at the first bad message and counts from it
            assert indexes == ",".join(str(index) for index, _ in error.record_errors)
        return
    assert answer.startswith("ok "), answer
    theirs = bytes.fromhex(answer[3:])
    assert is_intact(prepared)
    mine, other = read_header(prepared), read_header(theirs)
    assert mine.codec == other.codec
    assert (mine.last_offset_delta, mine.record_count) == (other.last_offset_delta, other.record_count)
    assert (mine.producer_id, mine.producer_epoch, mine.base_sequence) == (
        other.producer_id,
        other.producer_epoch,
        other.base_sequence,
    )
    found, expected = decode_records(prepared), decode_records(theirs)
    if asked.is_append_time:  # given by the append itself
        found = [record._replace(timestamp=NOW) for record in found]
    assert found == expected
    if message[16] < 2 and mine.codec == 0 and not asked.is_append_time:
        theirs = theirs[:12] + prepared[12:16] + theirs[16:]  # the leader epoch is given by the append
        assert prepared == theirs


def plain(*records: tuple[int, bytes | None], codec: Codec = Codec.NONE, **fields: object) -> bytes:
    listed = [Record(n, timestamp, key, b"value") for n, (timestamp, key) in enumerate(records)]
    return bytes(build_batch(listed, codec=codec, **fields))  # type: ignore[arg-type]


def test_a_batch_without_a_change_is_the_same_buffer() -> None:
    message = plain((NOW, b"k"))
    assert prepare(message, RecordRules(), NOW) is message
    assert prepare(message, RecordRules(needs_keys=True, before_max_ms=10), NOW) is message
    assert prepare(message, RecordRules(codec=Codec.NONE), NOW) is message


@pytest.mark.parametrize("source", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize("target", list(Codec), ids=lambda codec: codec.name)
def test_recompression_changes_the_codec_and_nothing_else(source: Codec, target: Codec) -> None:
    message = plain(
        *((NOW + n, b"k%d" % n) for n in range(50)),
        codec=source,
        attributes=TRANSACTIONAL_MASK,
        producer_id=7,
        producer_epoch=2,
        base_sequence=11,
    )
    prepared = prepare(message, RecordRules(codec=target), NOW)
    before, after = read_header(message), read_header(prepared)
    assert after.codec == target and is_intact(prepared) and after.is_transactional
    assert after._replace(length=0, crc=0, attributes=0) == before._replace(length=0, crc=0, attributes=0)
    assert decode_records(prepared) == decode_records(message)


@pytest.mark.parametrize(
    ("codec", "low", "high"),
    [(Codec.GZIP, {"gzip_level": 1}, {"gzip_level": 9}), (Codec.ZSTD, {"zstd_level": -100}, {"zstd_level": 19})],
)
def test_recompression_uses_the_level_of_the_topic(codec: Codec, low: dict[str, int], high: dict[str, int]) -> None:
    message = plain(*((NOW + n * 7 % 13, b"key %d" % (n * n % 101)) for n in range(300)))
    fast = prepare(message, RecordRules(codec=codec, **low), NOW)
    best = prepare(message, RecordRules(codec=codec, **high), NOW)
    assert len(best) < len(fast)
    assert decode_records(best) == decode_records(fast) == decode_records(message)


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize("validates", [False, True])
def test_the_error_has_every_record_that_may_not_be_written(codec: Codec, validates: bool) -> None:
    rules = RecordRules(topic="t", needs_keys=True, validates=validates, before_max_ms=1000, after_max_ms=1000)
    message = plain((NOW, b"k"), (NOW, None), (NOW - 2000, b"k"), (NOW + 2000, None), (-1, b"k"), codec=codec)
    with pytest.raises(RecordsRejected) as caught:
        prepare(message, rules, NOW)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in caught.value.record_errors] == [1, 2, 3]
    assert "without key" in caught.value.record_errors[0][1] and "Timestamp" in caught.value.record_errors[1][1]
    with pytest.raises(RecordsRejected) as caught:
        prepare(message, rules._replace(is_append_time=True), NOW)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in caught.value.record_errors] == [1, 3]


@pytest.mark.parametrize(
    ("codec", "code"), [(Codec.NONE, ErrorCode.INVALID_RECORD), (Codec.GZIP, ErrorCode.INVALID_TIMESTAMP)]
)
def test_an_old_message_set_gets_the_error_of_its_first_bad_message_when_it_is_not_compressed(
    codec: Codec, code: ErrorCode
) -> None:
    """Apache Kafka checks each uncompressed message alone, and a compressed set as one batch."""
    rules = RecordRules(topic="t", needs_keys=True, after_max_ms=1000)
    records = [Record(0, NOW, None, b"v"), Record(1, NOW + 2000, b"k", b"v")]
    with pytest.raises(RecordsRejected) as caught:
        prepare(legacy.build_message_set(records, 1, codec=codec), rules, NOW)
    assert caught.value.code is code


def with_body(message: bytes, spoil: bytes, at: int) -> bytes:
    """The batch with other bytes in its records, and a right checksum."""
    changed = bytearray(message)
    changed[at : at + len(spoil)] = spoil
    changed[17:21] = checksum(changed).to_bytes(4, "big")
    return bytes(changed)


def test_validate_records_always_finds_errors_behind_a_right_header() -> None:
    always = RecordRules(validates=True)
    message = plain((NOW, b"k"), (NOW, b"l"))
    prepare(message, always, NOW)
    with pytest.raises(InvalidRecord):
        prepare(with_body(message, b"\x7f", 61), always, NOW)  # the first record's length
    with pytest.raises(RecordsRejected, match="expected 0"):
        prepare(with_body(message, b"\x04", 64), always, NOW)  # its offset
    short = bytearray(message)
    HEADER.pack_into(short, 0, *read_header(message)._replace(record_count=1))
    with pytest.raises(InvalidRecord, match="follow the last record"):
        prepare(with_body(bytes(short), b"", 61), always, NOW)
    squeezed = plain((NOW, b"k"), codec=Codec.GZIP)
    with pytest.raises(InvalidRecord, match="gzip"):
        prepare(with_body(squeezed, b"\0\0\0\0", 61), always, NOW)


def test_a_batch_is_refused_when_it_decompresses_beyond_the_limit() -> None:
    large = bytes(build_batch([Record(0, NOW, None, bytes(100_000))], codec=Codec.ZSTD))
    with pytest.raises(BatchTooLarge):
        prepare(large, RecordRules(codec=Codec.GZIP, max_decompressed_bytes=50_000), NOW)
    old = legacy.build_message_set([Record(0, NOW, None, bytes(100_000))], 1, codec=Codec.GZIP)
    with pytest.raises(BatchTooLarge):
        prepare(old, RecordRules(max_decompressed_bytes=50_000), NOW)


def old_set(*values: bytes, magic: int = 1, codec: Codec = Codec.NONE) -> bytes:
    return legacy.build_message_set([Record(n, NOW, None, value) for n, value in enumerate(values)], magic, codec=codec)


def test_an_invalid_message_set_gets_the_error_of_kafka() -> None:
    one = old_set(b"a")
    flipped = one[:-1] + bytes((one[-1] ^ 1,))
    squeezed = old_set(b"a", b"b", codec=Codec.GZIP)
    cases: list[tuple[bytes, type[KafkaError]]] = [
        (flipped, CorruptBatch),
        (one[:-1], CorruptBatch),
        (one + old_set(b"b", magic=0), InvalidRecord),
        (squeezed + squeezed, InvalidRecord),
        (one + squeezed, InvalidRecord),
        (squeezed + one, InvalidRecord),
        (legacy.build_message_set([Record(0, NOW, None, b"v")], 1, has_append_time=True), RecordsRejected),
    ]
    for message, expected in cases:
        with pytest.raises(expected):
            prepare(message, RecordRules(), NOW)
    with pytest.raises(BatchTooLarge, match=r"max\.message\.bytes"):
        prepare(old_set(b"a", bytes(100)), RecordRules(max_message_bytes=100), NOW)


def test_a_partial_message_at_the_end_is_dropped() -> None:
    prepared = prepare(old_set(b"a", b"b", b"c")[:-1], RecordRules(), NOW)
    assert [record.value for record in decode_records(prepared)] == [b"a", b"b"]


def test_offsets_inside_an_old_set_do_not_matter() -> None:
    message_set = legacy.build_message_set(
        [Record(offset, NOW, None, b"v") for offset in (7, 3, 3)], 0, codec=Codec.SNAPPY
    )
    prepared = prepare(message_set, RecordRules(), NOW)
    assert [record.offset for record in decode_records(prepared)] == [0, 1, 2]
    assert [header.codec for _, header in formats.batches(prepared)] == [Codec.SNAPPY]


def test_damage_behind_a_right_checksum_raises_a_records_error() -> None:
    rng = random.Random(9)
    rules = RecordRules(needs_keys=True, validates=True, before_max_ms=1000, codec=Codec.LZ4)
    good = [plain((NOW, b"k"), (NOW, b"l"), codec=source) for source in Codec]
    old = [old_set(b"a", b"bb", magic=magic, codec=source) for magic in (0, 1) for source in OLD_CODECS]
    outcomes = set()
    for _ in range(4000):
        message = bytearray(rng.choice(good + old))
        for _ in range(rng.randint(1, 3)):
            message[rng.randrange(61 if message[16] == 2 else 12, len(message))] = rng.randrange(256)
        if message[16] == 2:
            message = bytearray(with_body(bytes(message), b"", 61))
        elif message[16] < 2:
            message[12:16] = crc32(message[16:]).to_bytes(4, "big")
        else:
            continue
        try:
            prepare(message, rules._replace(validates=rng.random() < 0.5, max_decompressed_bytes=1 << 20), NOW)
            outcomes.add("taken")
        except KafkaError as error:
            outcomes.add(error.code.name)
    assert {"taken", "INVALID_RECORD", "CORRUPT_MESSAGE", "INVALID_TIMESTAMP"} <= outcomes
