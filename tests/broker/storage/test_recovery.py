"""What a log is after an end in order, after kill -9 and after damage to its files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.storage.files.names import offset_name
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.log import Log
from tests.broker.storage.logs import LogSetup, batch, read_values, written

Make = Callable[..., LogSetup]
SMALL = {"segment_bytes": 700, "index_interval_bytes": 150}


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    setups: list[LogSetup] = []

    def make_setup(**config: Any) -> LogSetup:
        setup = LogSetup(str(tmp_path), {key.replace("_", "."): value for key, value in config.items()})
        setups.append(setup)
        return setup

    yield make_setup
    for setup in setups:
        setup.close()


async def fill(log: Log, first: int, last: int) -> None:
    for number in range(first, last):
        log.append_as_leader(batch(b"%03d" % number, producer=(4, 0, number)), number // 10)
    await written(log)


def last_log(path: Path) -> Path:
    return max((path / "t-0").glob("*.log"))


def index_files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((path / "t-0").glob("*index"))}


async def check(log: Log, count: int) -> None:
    """The log holds the first `count` records of `fill`, with everything that belongs to them, and goes on."""
    assert log.log_end_offset == count
    assert await read_values(log, 0, 200) == [(number, b"%03d" % number) for number in range(count)]
    assert log.epochs.entries == [(epoch, 10 * epoch) for epoch in range((count + 9) // 10)]
    duplicate = log.append_as_leader(batch(b"%03d" % (count - 1), producer=(4, 0, count - 1)), 0)
    assert duplicate.is_duplicate and duplicate.first_offset == count - 1
    await fill(log, count, count + 1)


async def test_an_end_in_order_needs_no_recovery(make: Make) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    await log.close()
    setup.crash()
    log = await setup.open(is_clean=True)
    assert setup.recovered is None
    assert log.recovery_point == 45
    await check(log, 45)


@pytest.mark.parametrize("recovery_point", [0, 20, 45])
async def test_kill_loses_nothing_that_was_written(make: Make, tmp_path: Path, recovery_point: int) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    await log.flush()
    log.state.active_segment.end_index()
    await setup.disk.fsync_directory()
    expected = index_files(tmp_path)
    setup.crash()
    log = await setup.open(is_clean=False, recovery_point=recovery_point)
    assert setup.recovered is not None and setup.recovered.cut_bytes == 0
    assert index_files(tmp_path) == expected
    await check(log, 45)


async def test_recovery_reads_only_from_the_segment_of_the_recovery_point_on(make: Make, tmp_path: Path) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    bases = [segment.base_offset for segment in log.segments]
    setup.crash()
    await setup.open(is_clean=False, recovery_point=bases[-2] + 1)
    assert setup.recovered is not None
    sizes = {base: (tmp_path / "t-0" / offset_name(base, ".log")).stat().st_size for base in bases}
    assert setup.recovered.scanned_bytes == sizes[bases[-2]] + sizes[bases[-1]]


@pytest.mark.parametrize("lost", [1, 20, 61, 70])
async def test_a_torn_last_batch_is_cut_off(make: Make, tmp_path: Path, lost: int) -> None:
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
async def test_a_preallocated_tail_of_zeros_is_no_record(make: Make, tmp_path: Path, is_clean: bool) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    await log.close()
    setup.crash()
    for path in (tmp_path / "t-0").iterdir():
        if path.name.startswith(last_log(tmp_path).stem) and path.suffix in (".log", ".index", ".timeindex"):
            path.write_bytes(path.read_bytes() + bytes(1200))
    log = await setup.open(is_clean=is_clean)
    await check(log, 45)


@pytest.mark.parametrize("producer_id", [-1, 4])
@pytest.mark.parametrize("offset", [1 << 40, (1 << 31) + 10])
async def test_damage_that_no_checksum_covers_leads_beyond_no_index(
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
    assert log.log_end_offset == 8 and len(await read_values(log, 0)) == 8


async def test_such_damage_in_a_closed_segment_without_index_keeps_no_log_from_being_opened(
    make: Make, tmp_path: Path
) -> None:
    setup = make(segment_bytes=700, index_interval_bytes=0)
    log = await setup.open()
    await fill(log, 0, 20)
    await log.close()
    setup.crash()
    path = tmp_path / "t-0" / offset_name(0, ".log")
    data = bytearray(path.read_bytes())
    size = len(data) // log.segments[1].base_offset
    data[2 * size : 2 * size + 8] = (1 << 40).to_bytes(8, "big")
    path.write_bytes(data)
    path.with_suffix(".index").unlink()
    log = await setup.open()
    assert (await read_values(log, log.segments[1].base_offset))[0] == (
        log.segments[1].base_offset,
        b"%03d" % log.segments[1].base_offset,
    )


async def test_damage_in_an_unflushed_segment_drops_what_follows_it(make: Make, tmp_path: Path) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    bases = [segment.base_offset for segment in log.segments]
    await log.flush()
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
async def test_a_segment_behind_a_hole_is_dropped(make: Make, tmp_path: Path, policy: str) -> None:
    """After a power loss a later file can be there while an earlier one lost its end at a batch boundary. From the
    recovery point on nothing has been compacted: there it is a hole in a compacted log, too."""
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    bases = [segment.base_offset for segment in log.segments]
    await log.flush()
    setup.crash()
    path = tmp_path / "t-0" / offset_name(bases[1], ".log")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - len(bytes(batch(b"000")))])
    setup.config = LogConfig({"cleanup.policy": policy})
    log = await setup.open(is_clean=False, recovery_point=bases[1], lost_power=True)
    log.configure(LogConfig())
    await check(log, bases[2] - 1)


async def test_missing_and_unsound_indexes_are_built_anew(make: Make, tmp_path: Path) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    await log.close()
    setup.crash()
    expected = index_files(tmp_path)
    (tmp_path / "t-0" / offset_name(0, ".index")).unlink()
    log = await setup.open()
    assert index_files(tmp_path) == expected
    await log.close()
    setup.crash()
    path = tmp_path / "t-0" / sorted(expected)[-2]
    path.write_bytes(bytes(4) + b"\x7f\xff\xff\xff")
    log = await setup.open()
    assert index_files(tmp_path) == expected
    await check(log, 45)


async def test_snapshots_and_epochs_of_lost_records_are_gone(make: Make, tmp_path: Path) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    await log.close()
    bases = [segment.base_offset for segment in log.segments]
    setup.crash()
    for base in bases[1:]:
        for suffix in (".log", ".index", ".timeindex"):
            (tmp_path / "t-0" / offset_name(base, suffix)).unlink()
    log = await setup.open(is_clean=False, recovery_point=0)
    await check(log, bases[1])
    assert not [path for path in (tmp_path / "t-0").glob("*.snapshot") if int(path.stem) > bases[1]]


async def test_leftovers_of_deletion_and_compaction_are_cleaned_up(make: Make, tmp_path: Path) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    await log.close()
    bases = [segment.base_offset for segment in log.segments]
    setup.crash()
    directory = tmp_path / "t-0"
    (directory / offset_name(0, ".log.deleted")).write_bytes(b"x")
    (directory / offset_name(bases[2], ".log.cleaned")).write_bytes(b"x")
    merged = b"".join((directory / offset_name(base, ".log")).read_bytes() for base in bases[:2])
    (directory / offset_name(0, ".log.swap")).write_bytes(merged)
    (directory / offset_name(0, ".index.swap")).write_bytes(b"")
    log = await setup.open()
    assert [segment.base_offset for segment in log.segments] == [0, *bases[2:]]
    assert not [path for path in directory.iterdir() if path.suffix in (".swap", ".cleaned", ".deleted")]
    await check(log, 45)


async def test_a_split_of_which_not_all_parts_are_written_is_taken_back(make: Make, tmp_path: Path) -> None:
    """Apache Kafka splits a segment into several, renamed from the last to the first."""
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    await log.close()
    bases = [segment.base_offset for segment in log.segments]
    setup.crash()
    directory = tmp_path / "t-0"
    (directory / offset_name(bases[1], ".log.cleaned")).write_bytes(b"the first half")
    (directory / offset_name(bases[2], ".log.swap")).write_bytes(b"the second half")
    log = await setup.open()
    assert [segment.base_offset for segment in log.segments] == bases
    assert not [path for path in directory.iterdir() if path.suffix in (".swap", ".cleaned")]
    await check(log, 45)


async def test_empty_segments_beyond_a_hole_of_a_compacted_log_go(make: Make, tmp_path: Path) -> None:
    """Without a recovery point nobody can tell a hole; but nobody could read up to a segment without records."""
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 12)
    await written(log)
    log.roll()
    await log.flush()
    bases = [segment.base_offset for segment in log.segments]
    setup.crash()
    last = tmp_path / "t-0" / offset_name(bases[-2], ".log")
    first_batch = 12 + int.from_bytes(last.read_bytes()[8:12], "big")
    last.write_bytes(last.read_bytes()[:first_batch])
    setup.config = LogConfig({"cleanup.policy": "compact"})
    log = await setup.open(is_clean=False, recovery_point=0, lost_power=True, is_point_known=False)
    log.configure(LogConfig())
    assert log.log_end_offset == bases[-2] + 1
    await check(log, bases[-2] + 1)


async def test_a_log_start_offset_beyond_the_recovered_end_starts_an_empty_log(make: Make) -> None:
    setup = make()
    log = await setup.open()
    await fill(log, 0, 5)
    setup.crash()
    log = await setup.open(is_clean=False, log_start_offset=9)
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)


async def test_five_batches_of_each_producer_are_known_after_recovery(make: Make) -> None:
    setup = make()
    log = await setup.open()
    await fill(log, 0, 9)
    setup.crash()
    log = await setup.open(is_clean=False)
    for number in range(4, 9):
        assert log.append_as_leader(batch(b"%03d" % number, producer=(4, 0, number)), 0).first_offset == number


async def test_flush_messages_may_begin_on_a_log_whose_older_segments_were_recovered(make: Make) -> None:
    setup = make(segment_bytes=300)
    log = await setup.open()
    for _ in range(10):
        log.append_as_leader(batch(b"v"), 0)
    await written(log)
    setup.crash()
    again = await setup.open(is_clean=False, recovery_point=0)
    assert len(again.segments) > 2
    again.configure(LogConfig({"segment.bytes": 300, "flush.messages": 1}))
    again.append_as_leader(batch(b"v"), 0)
    await written(again)
    assert again.log_end_offset == 11 and again.flushed_offset < 11, "the recovered segments are not flushed yet"
    await again.flush()
    again.append_as_leader(batch(b"v"), 0)
    await written(again)
    assert again.flushed_offset == 12
