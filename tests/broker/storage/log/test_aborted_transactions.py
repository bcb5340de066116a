"""The aborted transactions that a read_committed fetch gets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.storage.files.transaction_index import AbortedTransaction
from ottla_broker.storage.log.reader import LogRead
from tests.broker.storage.logs import LogSetup, aborted, read_bytes, rolled, written
from tests.broker.storage.transactions import ABORT, COMMIT, SMALL_SEGMENTS, begin, end, index_file


async def test_an_aborted_transaction_is_in_the_index_and_in_its_file_at_once(setup: LogSetup, tmp_path: Path) -> None:
    log = await setup.open()
    begin(log, 8)
    begin(log, 7)
    begin(log, 7, 1)
    end(log, ABORT, 7)
    end(log, ABORT, 8)
    end(log, ABORT, 8)  # again: there is nothing to end
    await written(log)
    await log.state.segments[0].transactions.settle()  # type: ignore[union-attr]
    entries = [AbortedTransaction(7, 1, 3, 0), AbortedTransaction(8, 0, 4, 5)]
    assert await aborted(log, 0, 6) == entries
    assert await aborted(log, 4, 6) == entries[1:]
    assert await aborted(log, 0, 1) == entries[1:]
    assert await aborted(log, 5, 6) == []
    assert index_file(tmp_path, 0) == entries
    assert (tmp_path / "t-0" / f"{0:020d}.txnindex").stat().st_size == 68


async def test_a_truncation_drops_aborted_transactions(tmp_path: Path) -> None:
    setup = LogSetup(str(tmp_path), SMALL_SEGMENTS)
    log = await setup.open()
    for number in range(20):
        begin(log, 7, number)
        end(log, ABORT)
    await written(log)
    await log.flusher.flush()
    log.state.maybe_advance_high_watermark(11)
    await log.truncation.truncate_to(11)
    assert [one.first_offset for one in await aborted(log, 0, 100)] == [0, 2, 4, 6, 8]
    assert log.state.first_unstable_offset == 10
    names = sorted(path.name for path in (tmp_path / "t-0").glob("*.txnindex"))
    kept = [index_file(tmp_path, segment.base_offset) for segment in log.state.segments]
    assert len(names) <= len(log.state.segments)
    assert [one.last_offset for entries in kept for one in entries] == [1, 3, 5, 7, 9]
    end(log, COMMIT)
    begin(log, 7, 6)
    end(log, ABORT)
    await written(log)
    assert [one.first_offset for one in await aborted(log, 0, 100)] == [0, 2, 4, 6, 8, 12]
    await log.truncation.truncate_fully_and_start_at(50)
    assert (await aborted(log, 50, 100), log.state.first_unstable_offset) == ([], None)
    assert not list((tmp_path / "t-0").glob("*.txnindex")) and not list((tmp_path / "t-0").glob("*.snapshot"))
    setup.close()


async def test_retention_deletes_the_transaction_index_with_its_segment(tmp_path: Path) -> None:
    setup = LogSetup(str(tmp_path), {**SMALL_SEGMENTS, "file.delete.delay.ms": 0})
    log = await setup.open()
    for number in range(20):
        begin(log, 7, number)
        end(log, ABORT)
    await written(log)
    log.state.maybe_advance_high_watermark(log.state.log_end_offset)
    await log.retention.advance_log_start_offset(31)
    await log.retention.delete_old_segments()
    start = log.state.segments[0].base_offset
    assert 0 < start <= 31
    left = [path.name for path in (tmp_path / "t-0").iterdir() if path.suffix in (".txnindex", ".snapshot")]
    assert left and all(int(name[:20]) >= start for name in left)
    assert [one.first_offset for one in await aborted(log, 31, 100)] == [30, 32, 34, 36, 38]
    setup.close()


@pytest.mark.parametrize("is_in_memory", [True, False])
async def test_aborted_transactions_of_deleted_records_are_an_error_and_not_an_empty_list(
    tmp_path: Path, is_in_memory: bool
) -> None:
    """The records are read, and pinned; retention takes their segment before its transaction index is looked at."""
    setup = LogSetup(str(tmp_path), {**SMALL_SEGMENTS, "retention.ms": 1_000})
    log = await setup.open()
    for number in range(8):
        begin(log, 7, number)
        end(log, ABORT)
    await written(log)
    await rolled(log)
    log.state.maybe_advance_high_watermark(log.state.log_end_offset)
    await read_bytes(log, 0)
    if is_in_memory:
        assert await aborted(log, 0, 2)
    setup.clock.wall_ms += 1_000_000
    retention = asyncio.ensure_future(log.retention.delete_old_segments())
    read = log.read(0, 1 << 20, log.state.log_end_offset, True)
    assert isinstance(read, LogRead) and read.size
    if is_in_memory:
        await retention
    found = log.aborted.aborted_in(read, 0, log.state.last_stable_offset)
    assert asyncio.isfuture(found)
    with pytest.raises(KafkaError) as refused:
        await found
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    await retention
    setup.close()
