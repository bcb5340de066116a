"""The transaction index of a segment while its log directory is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_broker.storage.files.transaction_index import AbortedTransaction
from tests.broker.storage.logs import FullDisk, LogSetup, aborted, written
from tests.broker.storage.transactions import ABORT, begin, end, index_file


async def test_entries_that_found_no_room_are_written_in_order_when_there_is_room(tmp_path: Path) -> None:
    setup = LogSetup(str(tmp_path))
    disk = setup.disk = FullDisk(str(tmp_path), ".txnindex")
    log = await setup.open()
    disk.is_full = True
    for number in range(2):
        begin(log, 7, number)
        end(log, ABORT)
    await written(log)
    expected = [AbortedTransaction(7, 0, 1, 2), AbortedTransaction(7, 2, 3, 4)]
    assert await aborted(log, 0, 4) == expected
    with pytest.raises(OSError, match="No space left"):
        await log.flusher.flush()
    assert index_file(tmp_path, 0) == [] and log.state.recovery_point == 0
    disk.is_full = False
    begin(log, 7, 2)
    end(log, ABORT)
    await written(log)
    await log.flusher.flush()
    assert index_file(tmp_path, 0) == await aborted(log, 0, 6) == [*expected, AbortedTransaction(7, 4, 5, 6)]
    assert log.state.recovery_point == 6
    setup.close()
