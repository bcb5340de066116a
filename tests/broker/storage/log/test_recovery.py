"""Recovery of a log after a kill, a power loss and damage to its files."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from ottla_broker.config import TopicValues
from ottla_broker.config.types import LONG_MAX
from ottla_broker.storage.files.names import offset_name
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.recovery import Recovered, recover_log
from tests.broker.storage.agreement import disagreements
from tests.broker.storage.logs import LogSetup, Make, batch, read_values, written
from tests.broker.storage.numbered import SMALL, check, fill, index_files, last_log


async def test_an_orderly_stop_needs_no_recovery(make: Make) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    await log.closer.close()
    setup.crash()
    log = await setup.open(is_clean=True)
    assert setup.recovered is None
    assert log.state.recovery_point == 45
    await check(log, 45)


@pytest.mark.parametrize("recovery_point", [0, 20, 45])
async def test_a_kill_loses_no_written_record(make: Make, tmp_path: Path, recovery_point: int) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    await log.flusher.flush()
    log.state.active_segment.end_index()
    await setup.disk.fsync_directory()
    expected = index_files(tmp_path)
    setup.crash()
    log = await setup.open(is_clean=False, recovery_point=recovery_point)
    assert setup.recovered is not None and setup.recovered.cut_bytes == 0
    assert index_files(tmp_path) == expected
    await check(log, 45)


async def test_recovery_scans_from_the_segment_of_the_recovery_point_on(make: Make, tmp_path: Path) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    bases = [segment.base_offset for segment in log.state.segments]
    setup.crash()
    await setup.open(is_clean=False, recovery_point=bases[-2] + 1)
    assert setup.recovered is not None
    sizes = {base: (tmp_path / "t-0" / offset_name(base, ".log")).stat().st_size for base in bases}
    assert setup.recovered.scanned_bytes == sizes[bases[-2]] + sizes[bases[-1]]


@pytest.mark.parametrize("lost", [1, 20, 61, 70])
async def test_recovery_truncates_a_torn_last_batch(make: Make, tmp_path: Path, lost: int) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    setup.crash()
    path = last_log(tmp_path)
    path.write_bytes(path.read_bytes()[:-lost])
    log = await setup.open(is_clean=False)
    assert setup.recovered is not None and setup.recovered.cut_bytes > 0
    await check(log, 44)


@pytest.mark.parametrize("is_clean", [True, False])
async def test_recovery_ignores_a_preallocated_tail_of_zeros(make: Make, tmp_path: Path, is_clean: bool) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    await log.closer.close()
    setup.crash()
    for path in (tmp_path / "t-0").iterdir():
        if path.name.startswith(last_log(tmp_path).stem) and path.suffix in (".log", ".index", ".timeindex"):
            path.write_bytes(path.read_bytes() + bytes(1200))
    log = await setup.open(is_clean=is_clean)
    await check(log, 45)


@pytest.mark.parametrize("producer_id", [-1, 4])
@pytest.mark.parametrize("offset", [1 << 40, (1 << 31) + 10])
async def test_recovery_refuses_a_damaged_base_offset_that_no_index_can_express(
    make: Make, tmp_path: Path, offset: int, producer_id: int
) -> None:
    """The checksum of a batch leaves out its base offset."""
    setup = make(index_interval_bytes=0)
    log = await setup.open()
    for number in range(10):
        log.append_as_leader(
            batch(
                b"%03d" % number,
                producer=(producer_id, -1 if producer_id < 0 else 0, -1 if producer_id < 0 else number),
            ),
            0,
        )
    await written(log)
    setup.crash()
    path = last_log(tmp_path)
    data = bytearray(path.read_bytes())
    position = 8 * len(data) // 10
    data[position : position + 8] = offset.to_bytes(8, "big")
    path.write_bytes(data)
    log = await setup.open(is_clean=False)
    assert setup.recovered is not None and setup.recovered.cut_bytes == 2 * len(data) // 10
    assert log.state.log_end_offset == 8 and len(await read_values(log, 0)) == 8


async def test_a_log_opens_with_a_damaged_base_offset_in_a_closed_segment_without_index(
    make: Make, tmp_path: Path
) -> None:
    setup = make(segment_bytes=700, index_interval_bytes=0)
    log = await setup.open()
    await fill(log, 0, 20)
    await log.closer.close()
    setup.crash()
    path = tmp_path / "t-0" / offset_name(0, ".log")
    data = bytearray(path.read_bytes())
    size = len(data) // log.state.segments[1].base_offset
    data[2 * size : 2 * size + 8] = (1 << 40).to_bytes(8, "big")
    path.write_bytes(data)
    path.with_suffix(".index").unlink()
    log = await setup.open()
    assert (await read_values(log, log.state.segments[1].base_offset))[0] == (
        log.state.segments[1].base_offset,
        b"%03d" % log.state.segments[1].base_offset,
    )


async def test_recovery_drops_what_follows_damage_in_an_unflushed_segment(make: Make, tmp_path: Path) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    bases = [segment.base_offset for segment in log.state.segments]
    await log.flusher.flush()
    setup.crash()
    path = tmp_path / "t-0" / offset_name(bases[2], ".log")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    log = await setup.open(is_clean=False, recovery_point=bases[1])
    assert setup.recovered is not None and setup.recovered.dropped_segments == len(bases) - 3
    assert len(list((tmp_path / "t-0").glob("*.log"))) == 3
    await check(log, bases[3] - 1)


@pytest.mark.parametrize("policy", ["delete", "compact"])
async def test_recovery_drops_a_segment_behind_a_hole(make: Make, tmp_path: Path, policy: str) -> None:
    """After a power loss a later file can be there while an earlier one lost its end at a batch boundary. From the
    recovery point on nothing has been compacted: there it is a hole in a compacted log, too."""
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    bases = [segment.base_offset for segment in log.state.segments]
    await log.flusher.flush()
    setup.crash()
    path = tmp_path / "t-0" / offset_name(bases[1], ".log")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - len(bytes(batch(b"000")))])
    setup.config = LogConfig(TopicValues({"cleanup.policy": policy}))
    log = await setup.open(is_clean=False, recovery_point=bases[1], lost_power=True)
    log.configure(LogConfig())
    await check(log, bases[2] - 1)


async def test_recovery_rebuilds_missing_and_damaged_indexes(make: Make, tmp_path: Path) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    await log.closer.close()
    setup.crash()
    expected = index_files(tmp_path)
    (tmp_path / "t-0" / offset_name(0, ".index")).unlink()
    log = await setup.open()
    assert index_files(tmp_path) == expected
    await log.closer.close()
    setup.crash()
    path = tmp_path / "t-0" / sorted(expected)[-2]
    path.write_bytes(bytes(4) + b"\x7f\xff\xff\xff")
    log = await setup.open()
    assert index_files(tmp_path) == expected
    await check(log, 45)


async def test_recovery_deletes_snapshots_and_leader_epochs_of_lost_records(make: Make, tmp_path: Path) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    await log.closer.close()
    bases = [segment.base_offset for segment in log.state.segments]
    setup.crash()
    for base in bases[1:]:
        for suffix in (".log", ".index", ".timeindex"):
            (tmp_path / "t-0" / offset_name(base, suffix)).unlink()
    log = await setup.open(is_clean=False, recovery_point=0)
    await check(log, bases[1])
    assert not [path for path in (tmp_path / "t-0").glob("*.snapshot") if int(path.stem) > bases[1]]


async def test_recovery_deletes_empty_segments_behind_a_hole_of_a_compacted_log(make: Make, tmp_path: Path) -> None:
    """No client can read up to a segment without records."""
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 12)
    await written(log)
    log.flusher.roll()
    await log.flusher.flush()
    bases = [segment.base_offset for segment in log.state.segments]
    setup.crash()
    last = tmp_path / "t-0" / offset_name(bases[-2], ".log")
    first_batch = 12 + int.from_bytes(last.read_bytes()[8:12], "big")
    last.write_bytes(last.read_bytes()[:first_batch])
    setup.config = LogConfig(TopicValues({"cleanup.policy": "compact"}))
    log = await setup.open(is_clean=False, recovery_point=0, lost_power=True)
    log.configure(LogConfig())
    assert log.state.log_end_offset == bases[-2] + 1
    await check(log, bases[-2] + 1)


async def test_a_log_start_offset_above_the_recovered_end_starts_an_empty_log(make: Make) -> None:
    setup = make()
    log = await setup.open()
    await fill(log, 0, 5)
    setup.crash()
    log = await setup.open(is_clean=False, log_start_offset=9)
    assert (log.state.log_start_offset, log.state.log_end_offset) == (9, 9)


async def test_recovery_restores_the_last_five_batches_of_each_producer(make: Make) -> None:
    setup = make()
    log = await setup.open()
    await fill(log, 0, 9)
    setup.crash()
    log = await setup.open(is_clean=False)
    for number in range(4, 9):
        assert log.append_as_leader(batch(b"%03d" % number, producer=(4, 0, number)), 0).first_offset == number


async def test_flush_messages_works_on_a_log_whose_older_segments_were_recovered(make: Make) -> None:
    setup = make(segment_bytes=300)
    log = await setup.open()
    for _ in range(10):
        log.append_as_leader(batch(b"v"), 0)
    await written(log)
    setup.crash()
    again = await setup.open(is_clean=False, recovery_point=0)
    assert len(again.state.segments) > 2
    again.configure(LogConfig(TopicValues({"segment.bytes": 300, "flush.messages": 1})))
    again.append_as_leader(batch(b"v"), 0)
    await written(again)
    assert again.state.log_end_offset == 11 and again.state.flushed_offset < 11, (
        "the recovered segments are not flushed yet"
    )
    await again.flusher.flush()
    again.append_as_leader(batch(b"v"), 0)
    await written(again)
    assert again.state.flushed_offset == 12


COUNT = 45


@pytest.mark.parametrize("seed", range(8))
async def test_recovery_finds_a_damaged_block_in_the_middle_of_an_unflushed_segment(
    make: Make, tmp_path: Path, seed: int
) -> None:
    """What a file system may leave after a power loss: the length is right, a block in between is not."""
    drawn = random.Random(seed)
    setup = make()
    log = await setup.open()
    await fill(log, 0, COUNT)
    places = list(log.state.active_segment.recent_positions)
    setup.crash()
    path = tmp_path / "t-0" / offset_name(0, ".log")
    data = bytearray(path.read_bytes())
    at = drawn.randrange(len(data) - 64)
    length = drawn.randrange(1, 64)
    block = drawn.choice([bytes(length), drawn.randbytes(length), b"\xff" * length])
    if data[at : at + length] == block:
        block = bytes(byte ^ 1 for byte in block)
    data[at : at + length] = block
    path.write_bytes(data)
    log = await setup.open(is_clean=False)
    # Everything before the batch in which the block begins is there. A block that lies wholly in a batch's base offset
    # or leader epoch, which no checksum covers, may be taken for others that grow.
    whole = len([place for place in places if place <= at]) - 1
    assert log.state.log_end_offset == whole or at - places[whole] < 16
    assert await read_values(log, 0) == [(number, b"%03d" % number) for number in range(log.state.log_end_offset)]
    await log.closer.close()
    assert disagreements(tmp_path / "t-0") == []


async def test_recovery_in_several_calls_has_the_result_of_one_call(make: Make, tmp_path: Path) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, COUNT)
    setup.crash()
    last = max((tmp_path / "t-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-1])
    found: Recovered | None = None
    parts = 0
    while found is None or found.resume_at is not None:
        found = await recover_log(setup.disk, "t-0", 0, 150, 0, found, 1)
        parts += 1
    assert parts == len(list((tmp_path / "t-0").glob("*.log"))) > 4
    files = index_files(tmp_path)
    again = await recover_log(setup.disk, "t-0", 0, 150, 0)
    assert found.cut_bytes and not again.cut_bytes
    assert found._replace(cut_bytes=0, scanned_bytes=0) == again._replace(scanned_bytes=0)
    assert index_files(tmp_path) == files
    await check(await setup.open(is_clean=False), COUNT - 1)


async def with_a_gap(make: Make, tmp_path: Path) -> tuple[LogSetup, int]:
    """A log of which a cleaner took a segment's last record, killed before the next flush; that record's offset."""
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, COUNT)
    bases = [segment.base_offset for segment in log.state.segments]
    setup.crash()
    path = tmp_path / "t-0" / offset_name(bases[2], ".log")
    path.write_bytes(path.read_bytes()[: -len(batch(b"000", producer=(4, 0, 0)))])
    return setup, bases[3] - 1


async def test_recovery_keeps_a_gap_between_segments_without_a_power_loss(make: Make, tmp_path: Path) -> None:
    """A log that was compacted and is not any more must not lose what follows its gaps."""
    setup, missing = await with_a_gap(make, tmp_path)
    found = await recover_log(setup.disk, "t-0", 0, 150, gap_limit=LONG_MAX)
    assert (found.next_offset, found.dropped_segments) == (COUNT, 0)
    log = await setup.open()
    assert [offset for offset, _ in await read_values(log, 0)] == [n for n in range(COUNT) if n != missing]


async def test_recovery_ends_the_log_at_a_gap_between_segments_after_a_power_loss(make: Make, tmp_path: Path) -> None:
    setup, missing = await with_a_gap(make, tmp_path)
    found = await recover_log(setup.disk, "t-0", 0, 150, gap_limit=missing)
    assert found.next_offset == missing and found.dropped_segments


async def test_recovery_keeps_the_gaps_of_compaction_and_ends_the_log_at_a_hole_behind_them(
    make: Make, tmp_path: Path
) -> None:
    setup, missing = await with_a_gap(make, tmp_path)
    bases = sorted(int(path.stem) for path in (tmp_path / "t-0").glob("*.log"))
    with_a_hole = tmp_path / "t-0" / offset_name(bases[3], ".log")
    with_a_hole.write_bytes(with_a_hole.read_bytes()[: -len(batch(b"000", producer=(4, 0, 0)))])
    found = await recover_log(setup.disk, "t-0", 0, 150, gap_limit=missing + 1)
    assert (found.next_offset, found.dropped_segments) == (bases[4] - 1, len(bases) - 4)
    log = await setup.open()
    assert [offset for offset, _ in await read_values(log, 0)] == [n for n in range(bases[4] - 1) if n != missing]


async def test_the_files_of_a_log_agree_after_a_kill_at_any_write(make: Make, tmp_path: Path) -> None:
    for seed in range(10):
        drawn = random.Random(seed)
        setup = make(segment_bytes=drawn.randrange(200, 900), index_interval_bytes=drawn.randrange(200))
        log = await setup.open(is_clean=False)
        first = log.state.log_end_offset
        await fill(log, first, first + drawn.randrange(30))
        for number in range(drawn.randrange(20)):
            log.append_as_leader(batch(b"unwritten %d" % number), 99)
        await asyncio.sleep(0)
        setup.crash()
        assert disagreements(tmp_path / "t-0", was_killed=True) == []
        log = await setup.open(is_clean=False)
        await log.closer.close()
        assert disagreements(tmp_path / "t-0") == []
        setup.crash()
        for path in (tmp_path / "t-0").iterdir():
            os.unlink(path)
