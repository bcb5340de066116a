"""Marks save work: a log that is compacted with all, some or no marks has the same bytes."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.adapters.direct_disk import DirectDisk
from ottla_broker.records.batch import HEADER_BYTES, TRANSACTIONAL_MASK, batches, checksum
from ottla_broker.records.compression import Codec
from ottla_broker.records.control_records import ControlType, EndTransactionMarker, build_marker
from ottla_broker.records.places import Place
from ottla_broker.records.record import Record, build_batch, decode_records, encode_record
from ottla_broker.storage.cleaner.job import CleanedSegment, CompactionResult, compact_log
from ottla_broker.storage.cleaner.key_map import KeyMap
from tests.contract.workers_contract import plan_of

_RECORD = st.tuples(
    st.sampled_from([b"a", b"b", b"c", b"d", b"a key of more than fifteen bytes", None]),
    st.one_of(st.none(), st.binary(max_size=200)),
    st.integers(0, 3),
)
"""(key, value, missing offsets before the record)."""
_BATCH = st.tuples(st.lists(_RECORD, min_size=1, max_size=12), st.sampled_from([Codec.NONE, Codec.ZSTD]), st.booleans())
"""(records, codec, whether its offsets have gaps)."""


@given(
    content=st.lists(_BATCH, min_size=1, max_size=12),
    first_dirty=st.integers(0, 30),
    slots=st.sampled_from([4, 1000]),
    some=st.integers(1, 40),
)
def test_a_compaction_has_the_same_result_with_and_without_marks(
    content: list[tuple[list[tuple[bytes | None, bytes | None, int]], Codec, bool]],
    first_dirty: int,
    slots: int,
    some: int,
) -> None:
    log = bytearray()
    offset = 0
    for entries, codec, has_gaps in content:
        records = []
        for key, value, missing in entries:
            offset += missing if has_gaps else 0
            records.append(Record(offset, 1000 + offset % 7, key, value))
            offset += 1
        log += build_batch(records, codec=codec)

    def cleaned(marked: int) -> tuple[dict[str, bytes], CompactionResult]:
        return asyncio.run(_clean(bytes(log), offset, min(first_dirty, offset - 1), slots, marked))

    without = cleaned(0)
    assert cleaned(some) == without
    assert cleaned(offset) == without


async def _clean(
    log: bytes, end: int, first_dirty: int, slots: int, marked: int, aborted: Sequence[tuple[int, int, int, int]] = ()
) -> tuple[dict[str, bytes], CompactionResult]:
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path) / "t-0"
        folder.mkdir()
        (folder / f"{0:020d}.log").write_bytes(log)

        async def take(question: CleanedSegment) -> list[str]:
            return []

        disk = DirectDisk(path)
        plan = (await plan_of(disk, "t-0"))._replace(
            first_dirty=first_dirty,
            end=end,
            slots=slots,
            marked=marked,
            now_ms=5000,
            index_interval_bytes=100,
            io_buffer_bytes=1 << 12,
            aborted=list(aborted),
        )
        done = await compact_log(disk, take, plan)
        disk.close()
        return {file.name: file.read_bytes() for file in folder.glob("*.cleaned")}, done


def transactional(offset: int, producer: int, key: bytes, value: bytes | None) -> bytes:
    """A batch of one record in a transaction."""
    return bytes(
        build_batch(
            [Record(offset, 1000, key, value)], attributes=TRANSACTIONAL_MASK, producer_id=producer, producer_epoch=0
        )
    )


def marker(offset: int, producer: int, kind: ControlType) -> bytes:
    built = bytearray(
        build_marker(EndTransactionMarker(kind, 0), producer_id=producer, producer_epoch=0, timestamp=1000)
    )
    built[:8] = offset.to_bytes(8, "big")  # outside the checksum
    return bytes(built)


@pytest.mark.parametrize("marked", [0, 100])
@pytest.mark.parametrize("value", [b"new", None])
def test_a_transaction_that_was_aborted_before_the_dirty_range_has_ended(marked: int, value: bytes | None) -> None:
    """Later records of its producer are not part of it, and are compacted like all others."""
    plain = [
        bytes(build_batch([Record(0, 1000, b"k", b"old")])),
        transactional(1, 7, b"k", b"aborted"),
        marker(2, 7, ControlType.ABORT),
        transactional(3, 7, b"k", value),
        transactional(4, 7, b"j", b"first"),
        marker(5, 7, ControlType.COMMIT),
        bytes(build_batch([Record(6, 1000, b"j", b"second")])),
    ]
    files, _ = asyncio.run(_clean(b"".join(plain), 7, 3, 1000, marked, [(7, 1, 2, 3)]))
    kept = memoryview(files[f"{0:020d}.log.cleaned"])
    left = [
        (one.offset, one.key, one.value)
        for position, header in batches(kept)
        if not header.is_control
        for one in decode_records(kept[position : position + header.size])
    ]
    assert left == [(3, b"k", value), (6, b"j", b"second")]


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (0, 5)])
def test_records_with_wrong_offset_deltas_are_compacted_by_their_keys(deltas: tuple[int, int]) -> None:
    """Their offsets are not distinct."""
    odd = bytearray(build_batch([Record(0, 1000, b"a", b"1"), Record(1, 1000, b"b", b"1")]))
    numbered = zip(deltas, (b"a", b"b"), strict=True)
    odd[HEADER_BYTES:] = b"".join(encode_record(Record(delta, 1000, key, b"1"), 0, 1000) for delta, key in numbered)
    odd[17:21] = checksum(odd).to_bytes(4, "big")
    rest = [bytes(build_batch([Record(offset, 1000, b"key %d" % offset, b"1")])) for offset in range(2, 9)]
    log = b"".join([bytes(odd), *rest, bytes(build_batch([Record(9, 1000, b"b", b"2")]))])
    without = asyncio.run(_clean(log, 10, 0, 1000, 0))
    assert asyncio.run(_clean(log, 10, 0, 1000, 10)) == without


def test_records_without_marks_must_be_looked_at() -> None:
    keys = KeyMap(slots=8, load_factor=0.9, first_offset=10, marked=5)
    assert keys.add(10, 19, places((b"a", 1), (b"b", 1), (b"a", 1), (b"c", 1), (b"d", 1), (b"b", 1)))
    assert keys.marks(10, 14) == bytes((1, 1, 0, 0, 0))
    assert keys.marks(9, 12) is None  # from before the dirty part
    assert keys.marks(12, 15) is None  # beyond the marks
    keys.latest_offset = 13
    assert keys.marks(13, 14) is None  # the map ends before it


def test_a_tombstone_and_a_record_without_a_key_must_be_looked_at_until_they_are_replaced() -> None:
    keys = KeyMap(slots=8, load_factor=0.9, first_offset=10, marked=5)
    assert keys.add(10, 19, places((b"a", 1), (b"a", 0), (None, 1), (b"b", 1)))
    assert keys.marks(10, 10) == bytes((1,))
    assert keys.marks(11, 11) is None and keys.marks(12, 12) is None
    assert keys.add(14, 14, places((b"a", 1)))
    assert keys.marks(10, 11) == bytes((1, 1))


def test_a_full_map_includes_the_records_before_the_one_that_found_no_room() -> None:
    keys = KeyMap(slots=3, load_factor=1.0, first_offset=0, marked=10)
    assert not keys.add(0, 9, places((b"a", 1), (b"b", 1), (b"a", 1), (b"c", 1), (b"a", 1)))
    assert (len(keys), keys.latest_offset, keys.get(b"a"), keys.get(b"c")) == (2, 2, 2, -1)
    assert keys.marks(0, 2) == bytes((1, 0, 0))
    assert keys.marks(2, 3) is None


def places(*records: tuple[bytes | None, int]) -> list[Place]:
    """Places of records with a key, with or without a value."""
    return [(0, number, key, bool(has_value), 0) for number, (key, has_value) in enumerate(records)]
