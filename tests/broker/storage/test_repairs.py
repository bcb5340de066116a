"""Small files that are missing or damaged although the log is sound; nonsense in the middle of a log; gaps."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.ports.disk import Buffer
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import PATCH
from ottla_broker.storage.files.names import offset_name
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.recovery import Recovered, recover_log
from tests.broker.storage.agreement import disagreements
from tests.broker.storage.logs import LogSetup, batch, read_values, rolled, written
from tests.broker.storage.test_recovery import SMALL, check, fill, index_files

Make = Callable[..., LogSetup]
COUNT = 45
START_MS = 1_700_000_000_000


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


async def fill_in_time(log: Log) -> None:
    """As `fill`, each record one second later than the one before."""
    for number in range(COUNT):
        records = batch(b"%03d" % number, producer=(4, 0, number), timestamp=START_MS + 1000 * number)
        log.append_as_leader(records, number // 10)
    await written(log)


async def closed(make: Make) -> tuple[LogSetup, list[int]]:
    """A log of several segments that ended in order, and their base offsets."""
    setup = make(**SMALL)
    log = await setup.open()
    await fill_in_time(log)
    bases = [segment.base_offset for segment in log.segments]
    await log.close()
    setup.crash()
    assert len(bases) > 4
    return setup, bases


async def finds_everything(log: Log) -> None:
    """By offset and by time, and the rest of what `check` looks at."""
    for number in range(COUNT):
        found = await log.offset_for_timestamp(START_MS + 1000 * number, COUNT)
        assert found is not None and found.offset == number
    await check(log, COUNT)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "nonsense": lambda path: path.write_bytes(random.Random(1).randbytes(path.stat().st_size)),
    "one bit": lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 0x40]) + path.read_bytes()[1:]),
}


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("which", [1, -1])
async def test_a_damaged_index_is_made_anew_and_every_record_is_found(
    make: Make, tmp_path: Path, how: str, suffix: str, which: int
) -> None:
    setup, bases = await closed(make)
    path = tmp_path / "t-0" / offset_name(bases[which], suffix)
    assert path.stat().st_size
    DAMAGE[how](path)
    log = await setup.open()
    await finds_everything(log)
    await log.close()
    if how != "empty":  # an index without entries is right, only slow
        assert disagreements(tmp_path / "t-0") == []
    assert setup.owner.failures == []


async def test_an_index_of_another_segment_is_found_out_when_it_leads_astray(make: Make, tmp_path: Path) -> None:
    setup, bases = await closed(make)
    directory = tmp_path / "t-0"
    path = directory / offset_name(bases[1], ".index")
    entries = path.read_bytes()
    path.write_bytes(entries[:4] + entries[12:16] + entries[8:])  # the first offset, at the place of the second
    log = await setup.open()
    await finds_everything(log)
    assert path.read_bytes() != entries[:4] + entries[12:16] + entries[8:]
    assert [line for line in setup.owner.notices if "indexes were damaged" in line]


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("is_clean", [True, False])
async def test_damaged_leader_epochs_come_from_the_batches(
    make: Make, tmp_path: Path, how: str, is_clean: bool
) -> None:
    setup, bases = await closed(make)
    DAMAGE[how](tmp_path / "t-0" / "leader-epoch-checkpoint")
    log = await setup.open(is_clean=is_clean, recovery_point=bases[3])
    assert [line for line in setup.owner.notices if "leader-epoch-checkpoint" in line] or not is_clean
    await check(log, COUNT)
    await log.close()
    assert disagreements(tmp_path / "t-0") == []


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_damaged_snapshot_is_removed_and_the_producers_come_from_the_batches(
    make: Make, tmp_path: Path, how: str, is_clean: bool
) -> None:
    setup, _ = await closed(make)
    newest = max((tmp_path / "t-0").glob("*.snapshot"))
    DAMAGE[how](newest)
    log = await setup.open(is_clean=is_clean, recovery_point=COUNT)
    for number in range(COUNT - 5, COUNT):
        assert log.append_as_leader(batch(b"%03d" % number, producer=(4, 0, number)), 4).is_duplicate
    await check(log, COUNT)


async def test_a_damaged_snapshot_does_not_stop_a_truncation(make: Make, tmp_path: Path) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, COUNT)
    await rolled(log)
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        DAMAGE["nonsense"](path)
    await log.truncate_to(30)
    assert log.append_as_leader(batch(b"029", producer=(4, 0, 29)), 9).first_offset == 29
    assert setup.owner.failures == [] and setup.owner.notices


@pytest.mark.parametrize("seed", range(8))
async def test_a_nonsense_block_in_the_middle_of_an_unflushed_segment_is_found(
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
    assert log.log_end_offset == whole or at - places[whole] < 16
    assert await read_values(log, 0) == [(number, b"%03d" % number) for number in range(log.log_end_offset)]
    await log.close()
    assert disagreements(tmp_path / "t-0") == []


async def test_a_reader_of_a_damaged_clean_segment_is_told_and_the_directory_goes_on(
    make: Make, tmp_path: Path
) -> None:
    setup, bases = await closed(make)
    path = tmp_path / "t-0" / offset_name(bases[1], ".log")
    path.write_bytes(bytes(path.stat().st_size))
    log = await setup.open()
    reading = log.read(bases[1] + 1, 1000, COUNT, True)
    assert not isinstance(reading, tuple)
    with pytest.raises(KafkaError, match="no batch at byte 0") as caught:
        await reading
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert (await read_values(log, bases[2]))[-1] == (COUNT - 1, b"%03d" % (COUNT - 1))
    assert setup.owner.failures == []


async def test_a_recovery_in_parts_is_the_recovery_in_one(make: Make, tmp_path: Path) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, COUNT)
    setup.crash()
    last = max((tmp_path / "t-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-1])
    found: Recovered | None = None
    parts = 0
    while found is None or found.resume_at is not None:
        found = await recover_log(setup.disk, "t-0", 0, 150, False, found, 1)
        parts += 1
    assert parts == len(list((tmp_path / "t-0").glob("*.log"))) > 4
    files = index_files(tmp_path)
    again = await recover_log(setup.disk, "t-0", 0, 150, False)
    assert found.cut_bytes and not again.cut_bytes
    assert found._replace(cut_bytes=0, scanned_bytes=0) == again._replace(scanned_bytes=0)
    assert index_files(tmp_path) == files
    await check(await setup.open(is_clean=False), COUNT - 1)


async def with_a_gap(make: Make, tmp_path: Path) -> tuple[LogSetup, int]:
    """A log of which a cleaner took a segment's last record, killed before the next flush; that record's offset."""
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, COUNT)
    bases = [segment.base_offset for segment in log.segments]
    setup.crash()
    path = tmp_path / "t-0" / offset_name(bases[2], ".log")
    path.write_bytes(path.read_bytes()[: -len(batch(b"000", producer=(4, 0, 0)))])
    return setup, bases[3] - 1


async def test_a_gap_between_segments_is_kept_where_no_power_was_lost(make: Make, tmp_path: Path) -> None:
    """A log that was compacted and is not any more must not lose what follows its gaps."""
    setup, missing = await with_a_gap(make, tmp_path)
    found = await recover_log(setup.disk, "t-0", 0, 150, may_have_gaps=True)
    assert (found.next_offset, found.dropped_segments) == (COUNT, 0)
    log = await setup.open()
    assert [offset for offset, _ in await read_values(log, 0)] == [n for n in range(COUNT) if n != missing]


async def test_a_gap_between_segments_after_a_power_loss_ends_the_log(make: Make, tmp_path: Path) -> None:
    setup, missing = await with_a_gap(make, tmp_path)
    found = await recover_log(setup.disk, "t-0", 0, 150, may_have_gaps=False)
    assert found.next_offset == missing and found.dropped_segments


async def test_a_follower_takes_a_gap_that_no_index_can_express(make: Make, tmp_path: Path) -> None:
    """The leader's log was compacted, and the next record is more than 2^31 offsets on."""
    setup = make(index_interval_bytes=0)
    log = await setup.open()
    far = 3 * 2**31
    expected = []
    for base in (0, 1, far, far + 1, 3 * far):
        records = batch(b"%d" % base)
        PATCH.pack_into(records, 0, base, len(records) - 12, 0)
        log.append_as_follower(records)
        expected.append((base, b"%d" % base))
    await written(log)
    assert await read_values(log, 0) == expected
    assert [segment.base_offset for segment in log.segments] == [0, far, 3 * far]
    await log.close()
    assert disagreements(tmp_path / "t-0") == []
    setup.crash()
    assert await read_values(await setup.open(), 2) == expected[2:]
    setup.crash()
    assert await read_values(await setup.open(is_clean=False), 0) == expected


async def test_a_follower_may_begin_more_than_2_to_the_31_offsets_on(make: Make) -> None:
    setup = make(index_interval_bytes=0)
    log = await setup.open()
    for base in (2**40, 2**40 + 1):
        records = batch(b"v")
        PATCH.pack_into(records, 0, base, len(records) - 12, 0)
        log.append_as_follower(records)
    await written(log)
    assert await read_values(log, 0) == [(2**40, b"v"), (2**40 + 1, b"v")]


async def test_index_entries_are_written_behind_the_batches_that_they_tell_of(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of a segment that is rolled before its files are open."""
    ahead: list[str] = []
    append_to = DirectoryDisk._append_to

    def looked_at(disk: DirectoryDisk, name: str, buffers: Sequence[Buffer]) -> int:
        path = tmp_path / name
        entries = b"".join(map(bytes, buffers))
        if path.suffix == ".index" and entries:
            position = int.from_bytes(entries[-4:], "big")
            if position >= path.with_suffix(".log").stat().st_size:
                ahead.append(f"{path.name}: byte {position}")
        return append_to(disk, name, buffers)

    monkeypatch.setattr(DirectoryDisk, "_append_to", looked_at)
    log = await make(segment_bytes=400, index_interval_bytes=0).open()
    for number in range(50):
        log.append_as_leader(batch(b"in one turn %d" % number), 99)
    assert len(log.segments) > 3
    await written(log)
    await log.close()
    assert ahead == []
    assert disagreements(tmp_path / "t-0") == []


async def test_what_a_kill_leaves_agrees_with_itself_at_every_write(make: Make, tmp_path: Path) -> None:
    for seed in range(10):
        drawn = random.Random(seed)
        setup = make(segment_bytes=drawn.randrange(200, 900), index_interval_bytes=drawn.randrange(200))
        log = await setup.open(is_clean=False)
        first = log.log_end_offset
        await fill(log, first, first + drawn.randrange(30))
        for number in range(drawn.randrange(20)):
            log.append_as_leader(batch(b"unwritten %d" % number), 99)
        await asyncio.sleep(0)
        setup.crash()
        assert disagreements(tmp_path / "t-0", was_killed=True) == []
        log = await setup.open(is_clean=False)
        await log.close()
        assert disagreements(tmp_path / "t-0") == []
        setup.crash()
        for path in (tmp_path / "t-0").iterdir():
            os.unlink(path)
