"""The transaction index of a segment while its log directory is full."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.ports.disk import Buffer
from ottla_broker.records.control_records import ControlType, EndTransactionMarker
from ottla_broker.storage.files.transaction_index import AbortedTransaction, decode_entries
from ottla_broker.storage.log.log import Log
from tests.broker.storage.logs import LogSetup, aborted, transactional, written

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def end(log: Log, kind: ControlType, producer_id: int = 7, epoch: int = 0, coordinator_epoch: int = 0) -> int:
    """Appends a marker; its offset."""
    marker = EndTransactionMarker(kind, coordinator_epoch)
    return log.append_marker(marker, producer_id, epoch, 0).first_offset


def begin(log: Log, producer_id: int = 7, sequence: int = 0, values: int = 1) -> int:
    """Appends a batch of a transaction; its first offset."""
    records = transactional((producer_id, 0, sequence), *[b"v"] * values)
    return log.append_as_leader(records, 0, is_transactional=True).first_offset


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[LogSetup]:
    found = LogSetup(str(tmp_path))
    yield found
    found.close()


def index_file(tmp_path: Path, base: int) -> list[AbortedTransaction]:
    name = f"{base:020d}.txnindex"
    path = tmp_path / "t-0" / name
    return decode_entries(name, path.read_bytes()) if path.exists() else []


class CrampedDisk(DirectoryDisk):
    """Real, but for transaction indexes that find no room while it `is_full`."""

    is_full = False

    def append_to(self, name: str, buffers: Sequence[Buffer]) -> asyncio.Future[int]:
        if not self.is_full or not name.endswith(".txnindex"):
            return super().append_to(name, buffers)
        refused: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        refused.set_exception(OSError(errno.ENOSPC, "No space left on device", name))
        return refused


async def test_entries_that_found_no_room_are_written_in_order_when_there_is_room(tmp_path: Path) -> None:
    setup = LogSetup(str(tmp_path))
    disk = setup.disk = CrampedDisk(str(tmp_path))
    log = await setup.open()
    disk.is_full = True
    for number in range(2):
        begin(log, 7, number)
        end(log, ABORT)
    await written(log)
    expected = [AbortedTransaction(7, 0, 1, 2), AbortedTransaction(7, 2, 3, 4)]
    assert await aborted(log, 0, 4) == expected
    with pytest.raises(OSError, match="No space left"):
        await log.flush()
    assert index_file(tmp_path, 0) == [] and log.recovery_point == 0
    disk.is_full = False
    begin(log, 7, 2)
    end(log, ABORT)
    await written(log)
    await log.flush()
    assert index_file(tmp_path, 0) == await aborted(log, 0, 6) == [*expected, AbortedTransaction(7, 4, 5, 6)]
    assert log.recovery_point == 6
    setup.close()
