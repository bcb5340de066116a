"""The first record of a batch at or after a timestamp, beside the decoded records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.records import legacy
from ottla_broker.records.batch import HEADER, checksum
from ottla_broker.records.compression import Codec
from ottla_broker.records.errors import BatchTooLarge, CorruptBatch
from ottla_broker.records.record import Record, build_batch
from ottla_broker.records.timestamp_search import first_record_at

ENOUGH = 1 << 20
RECORDS = st.lists(
    st.tuples(st.integers(1, 5), st.integers(-1, 40), st.binary(max_size=3)), min_size=1, max_size=30
).map(lambda drawn: _records(drawn))


def _records(drawn: list[tuple[int, int, bytes]]) -> list[Record]:
    """Ascending offsets with gaps, as compaction leaves them, and timestamps in any order."""
    offset, found = 100, []
    for gap, timestamp, value in drawn:
        offset += gap
        found.append(Record(offset, timestamp, value or None, value, (("h", value),) if len(value) == 2 else ()))
    return found


@given(RECORDS, st.sampled_from(Codec), st.integers(-2, 45), st.integers(95, 260), st.integers(95, 260))
def test_a_search_finds_the_record_that_decoding_all_of_them_finds(
    records: list[Record], codec: Codec, timestamp: int, first: int, upper: int
) -> None:
    expected = next(
        ((one.timestamp, one.offset) for one in records if one.timestamp >= timestamp and first <= one.offset < upper),
        None,
    )
    batch = build_batch(records, codec=codec)
    assert first_record_at(batch, timestamp, first, upper, ENOUGH) == expected


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_search_finds_records_of_message_format_1(codec: Codec) -> None:
    records = [Record(offset, 1000 + offset, None, b"v") for offset in range(5)]
    entry = legacy.build_message_set(records, 1, codec=codec)
    if codec is not Codec.NONE:  # one entry around all of them
        assert first_record_at(entry, 1003, 0, 5, ENOUGH) == (1003, 3)
        assert first_record_at(entry, 1003, 4, 5, ENOUGH) == (1004, 4)
        assert first_record_at(entry, 1003, 0, 3, ENOUGH) is None
    else:
        assert first_record_at(legacy.build_message_set(records[3:4], 1), 1003, 0, 5, ENOUGH) == (1003, 3)


def test_with_log_append_time_every_record_has_the_timestamp_of_the_batch() -> None:
    batch = build_batch([Record(offset, 10 + offset, None, b"v") for offset in range(3)])
    fields = list(HEADER.unpack_from(batch))
    attributes, max_timestamp = 5, 8
    fields[attributes] |= 0x08
    fields[max_timestamp] = 50
    HEADER.pack_into(batch, 0, *fields)
    batch[17:21] = checksum(batch).to_bytes(4, "big")
    assert first_record_at(batch, 13, 1, 3, ENOUGH) == (50, 1)
    assert first_record_at(batch, 51, 0, 3, ENOUGH) is None


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_decompresses_beyond_the_limit_is_refused(codec: Codec) -> None:
    batch = build_batch([Record(0, 0, None, bytes(100_000))], codec=codec)
    with pytest.raises(BatchTooLarge):
        first_record_at(batch, 0, 0, 1, 99_999)
    assert first_record_at(batch, 0, 0, 1, 101_000) == (0, 0)


def test_records_that_do_not_fit_the_header_are_corrupt() -> None:
    batch = build_batch([Record(0, 0, None, b"v")])
    fields = list(HEADER.unpack_from(batch))
    fields[-1] = 2  # record count
    HEADER.pack_into(batch, 0, *fields)
    with pytest.raises(CorruptBatch):
        first_record_at(batch, 5, 0, 2, ENOUGH)
