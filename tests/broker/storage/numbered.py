"""Logs whose records are numbered, so that a test can check that none is missing after a restart."""

from __future__ import annotations

from pathlib import Path

from ottla_broker.storage.log.log import Log
from tests.broker.storage.logs import LogSetup, Make, batch, read_values, written

SMALL = {"segment_bytes": 700, "index_interval_bytes": 150}


async def fill(log: Log, first: int, last: int) -> None:
    """Appends the records `first` to `last` (exclusive), ten to a leader epoch."""
    for number in range(first, last):
        log.append_as_leader(batch(b"%03d" % number, producer=(4, 0, number)), number // 10)
    await written(log)


def last_log(path: Path) -> Path:
    return max((path / "t-0").glob("*.log"))


def index_files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((path / "t-0").glob("*index"))}


async def check(log: Log, count: int) -> None:
    """The log has the first `count` records of `fill` with their epochs and producer state, and takes appends."""
    assert log.state.log_end_offset == count
    assert await read_values(log, 0, 200) == [(number, b"%03d" % number) for number in range(count)]
    assert log.state.epochs.entries == [(epoch, 10 * epoch) for epoch in range((count + 9) // 10)]
    duplicate = log.append_as_leader(batch(b"%03d" % (count - 1), producer=(4, 0, count - 1)), 0)
    assert duplicate.is_duplicate and duplicate.first_offset == count - 1
    await fill(log, count, count + 1)


START_MS = 1_700_000_000_000
COUNT = 45


async def fill_in_time(log: Log) -> None:
    """COUNT records, each one second later than the one before."""
    for number in range(COUNT):
        records = batch(b"%03d" % number, producer=(4, 0, number), timestamp=START_MS + 1000 * number)
        log.append_as_leader(records, number // 10)
    await written(log)


async def closed(make: Make) -> tuple[LogSetup, list[int]]:
    """A log of several segments that ended in order, and their base offsets."""
    setup = make(**SMALL)
    log = await setup.open()
    await fill_in_time(log)
    bases = [segment.base_offset for segment in log.state.segments]
    await log.closer.close()
    setup.crash()
    assert len(bases) > 4
    return setup, bases
