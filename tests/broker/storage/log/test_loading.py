"""Opening a log whose small files are missing or damaged."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla_broker.storage.files.names import offset_name
from ottla_broker.storage.files.transaction_index import AbortedTransaction
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.record_search import RecordSearch
from tests.broker.storage.agreement import disagreements
from tests.broker.storage.logs import InlineWorkers, LogSetup, Make, aborted, batch
from tests.broker.storage.numbered import COUNT, START_MS, check, closed
from tests.broker.storage.transactions import ABORT, begin, end, index_file


async def finds_everything(log: Log) -> None:
    """By offset and by time, and the rest of what `check` looks at."""
    for number in range(COUNT):
        found = await log.timestamps.offset_for_timestamp(
            START_MS + 1000 * number, COUNT, RecordSearch(InlineWorkers())
        )
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
async def test_a_damaged_index_is_rebuilt_and_finds_every_record(
    make: Make, tmp_path: Path, how: str, suffix: str, which: int
) -> None:
    setup, bases = await closed(make)
    path = tmp_path / "t-0" / offset_name(bases[which], suffix)
    assert path.stat().st_size
    DAMAGE[how](path)
    log = await setup.open()
    await finds_everything(log)
    await log.closer.close()
    if how != "empty":  # an index without entries is right, only slow
        assert disagreements(tmp_path / "t-0") == []
    assert setup.owner.failures == []


async def test_an_index_of_another_segment_is_rebuilt_when_it_finds_a_wrong_batch(make: Make, tmp_path: Path) -> None:
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
async def test_damaged_leader_epochs_are_rebuilt_from_the_batches(
    make: Make, tmp_path: Path, how: str, is_clean: bool
) -> None:
    setup, bases = await closed(make)
    DAMAGE[how](tmp_path / "t-0" / "leader-epoch-checkpoint")
    log = await setup.open(is_clean=is_clean, recovery_point=bases[3])
    assert [line for line in setup.owner.notices if "leader-epoch-checkpoint" in line] or not is_clean
    await check(log, COUNT)
    await log.closer.close()
    assert disagreements(tmp_path / "t-0") == []


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_damaged_snapshot_is_deleted_and_the_producer_state_comes_from_the_batches(
    make: Make, tmp_path: Path, how: str, is_clean: bool
) -> None:
    setup, _ = await closed(make)
    newest = max((tmp_path / "t-0").glob("*.snapshot"))
    DAMAGE[how](newest)
    log = await setup.open(is_clean=is_clean, recovery_point=COUNT)
    for number in range(COUNT - 5, COUNT):
        assert log.append_as_leader(batch(b"%03d" % number, producer=(4, 0, number)), 4).is_duplicate
    await check(log, COUNT)


async def test_a_transaction_index_that_ends_in_half_an_entry_is_rebuilt(setup: LogSetup, tmp_path: Path) -> None:
    log = await setup.open()
    begin(log)
    end(log, ABORT)
    await log.closer.close()
    setup.crash()
    path = tmp_path / "t-0" / f"{0:020d}.txnindex"
    path.write_bytes(path.read_bytes()[:20])
    log = await setup.open(recovery_point=2)
    assert setup.recovered is not None
    assert await aborted(log, 0, 2) == index_file(tmp_path, 0) == [AbortedTransaction(7, 0, 1, 2)]


async def test_a_transaction_index_without_its_segment_is_deleted(setup: LogSetup, tmp_path: Path) -> None:
    log = await setup.open()
    log.append_as_leader(batch(b"v"), 0)
    await log.closer.close()
    setup.crash()
    orphan = tmp_path / "t-0" / f"{90:020d}.txnindex"
    orphan.write_bytes(AbortedTransaction(7, 0, 1, 2).encode())
    await setup.open(recovery_point=1)
    assert not orphan.exists()
