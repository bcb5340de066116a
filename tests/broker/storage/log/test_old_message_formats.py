"""Logs with messages of formats 0 and 1, as Apache Kafka before 0.11 wrote them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla_broker.records import formats, legacy
from ottla_broker.records.compression import Codec
from ottla_broker.records.record import Record
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.timestamps import TimestampAndOffset
from tests.broker.storage.logs import LogSetup, batch, written

OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[LogSetup]:
    made = LogSetup(str(tmp_path), {"index.interval.bytes": 100})
    (tmp_path / "t-0").mkdir()
    yield made
    made.close()


def old_records(count: int = 40) -> list[Record]:
    """Offsets with gaps, as compaction leaves them."""
    return [Record(n * 2, 1000 + n, b"k%d" % n, b"value %d" % n) for n in range(count)]


def segment_of(records: list[Record], magic: int, codec: Codec) -> bytes:
    """One entry for each record, or one wrapper for every five."""
    if codec is Codec.NONE:
        return legacy.build_message_set(records, magic)
    return b"".join(
        legacy.build_message_set(records[start : start + 5], magic, codec=codec) for start in range(0, len(records), 5)
    )


async def everything(log: Log, offset: int = 0) -> list[Record]:
    found = log.read(offset, 1 << 20, log.state.log_end_offset, True)
    read = await found if asyncio.isfuture(found) else found
    data = b"".join(chunk.read() for chunk in read.chunks)
    for chunk in read.chunks:
        chunk.release()
    return [
        record
        for position, header in formats.batches(data)
        for record in formats.decode_batch(data[position : position + header.size])
        if record.offset >= offset
    ]


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "after a crash"])
@pytest.mark.parametrize("codec", OLD_CODECS, ids=lambda codec: codec.name)
@pytest.mark.parametrize("magic", [0, 1])
async def test_a_log_with_old_message_formats_is_read_and_appended_to(
    setup: LogSetup, tmp_path: Path, magic: int, codec: Codec, is_clean: bool
) -> None:
    records = old_records()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(segment_of(records, magic, codec))
    log = await setup.open(is_clean=is_clean)
    stored = [record if magic else record._replace(timestamp=-1) for record in records]
    assert log.state.log_end_offset == 79
    for offset in (0, 1, 13, 40, 78):
        assert await everything(log, offset) == [record for record in stored if record.offset >= offset]
    assert log.append_as_leader(batch(b"new"), 4).first_offset == 79
    await written(log)
    assert [record.value for record in await everything(log, 79)] == [b"new"]
    if magic:
        assert await log.timestamps.offset_for_timestamp(1013, 79, setup.search) == TimestampAndOffset(1013, 26, -1)
        assert await log.timestamps.offset_for_timestamp(1040, 80, setup.search) == TimestampAndOffset(
            1_700_000_000_000, 79, 4
        )
    else:
        assert await log.timestamps.offset_for_timestamp(1013, 79, setup.search) is None
    assert log.state.epochs.entries == [(4, 79)]
    await log.closer.close()
    setup.crash()
    again = await setup.open(recovery_point=80)
    assert [record for record in await everything(again) if record.offset < 79] == stored
    assert [record.value for record in await everything(again, 79)] == [b"new"]


@pytest.mark.parametrize("magic", [0, 1])
async def test_recovery_truncates_a_torn_old_message(setup: LogSetup, tmp_path: Path, magic: int) -> None:
    whole = segment_of(old_records(), magic, Codec.NONE)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.write_bytes(whole[:-3])
    log = await setup.open(is_clean=False)
    assert log.state.log_end_offset == 77 and len(await everything(log)) == 39
    await log.closer.close()
    setup.crash()
    spoilt = bytearray(whole)
    spoilt[len(whole) // 2] ^= 0xFF
    path.write_bytes(spoilt)
    log = await setup.open(is_clean=False)
    found = await everything(log)
    assert 15 < len(found) < 25 and [r.offset for r in found] == [2 * n for n in range(len(found))]
    assert log.state.log_end_offset == found[-1].offset + 1


async def test_recovery_ignores_a_preallocated_tail_behind_old_messages(setup: LogSetup, tmp_path: Path) -> None:
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(segment_of(old_records(), 0, Codec.GZIP) + bytes(5000))
    log = await setup.open(is_clean=False)
    assert log.state.log_end_offset == 79 and len(await everything(log)) == 40


async def test_a_follower_appends_old_messages_of_an_old_leader(setup: LogSetup) -> None:
    log = await setup.open()
    records = old_records()
    data = segment_of(records[:20], 0, Codec.NONE) + segment_of(records[20:], 1, Codec.LZ4)
    info = log.append_as_follower(memoryview(data + data[:20]))
    assert (info.first_offset, info.last_offset) == (0, 78)
    await written(log)
    assert [record.value for record in await everything(log)] == [record.value for record in records]
    assert log.state.epochs.entries == []


async def test_a_truncation_ends_between_old_messages(setup: LogSetup, tmp_path: Path) -> None:
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(segment_of(old_records(), 1, Codec.SNAPPY))
    log = await setup.open(is_clean=False)
    await log.truncation.truncate_to(30)
    # Offsets 20 to 28 are one wrapper; 30 is in the next one, which has offset 38.
    assert log.state.log_end_offset == log.state.assigned_offset == 30
    assert [record.offset for record in await everything(log)] == list(range(0, 30, 2))
