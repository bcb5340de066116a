"""Logs whose directory has no room: what was begun there is taken up again once there is some."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.ports.disk import Buffer
from ottla_broker.protocol.errors import KafkaError
from tests.broker.storage.logs import LogSetup, batch, read_values, written


class CrampedDisk(DirectoryDisk):
    """Real, but for indexes that find no room while it `is_full`."""

    is_full = False

    def append_to(self, name: str, buffers: Sequence[Buffer]) -> asyncio.Future[int]:
        if not self.is_full or not name.endswith("index"):
            return super().append_to(name, buffers)
        refused: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        refused.set_exception(OSError(errno.ENOSPC, "No space left on device", name))
        return refused


async def test_nothing_is_written_behind_a_truncation_that_found_no_room_before_it_is_done(tmp_path: Path) -> None:
    """It has to write the index before it cuts the log: the old records would come back between the new ones."""
    setup = LogSetup(str(tmp_path), {"index.interval.bytes": 0})
    disk = setup.disk = CrampedDisk(str(tmp_path))
    log = await setup.open()
    disk.is_full = True
    for number in range(4):
        log.append_as_leader(batch(b"old %d" % number), 0)
    await written(log)
    for _ in range(2):
        with pytest.raises(KafkaError, match="is full"):
            await log.truncate_to(1)
        with pytest.raises(KafkaError, match="is full"):
            log.append_as_leader(batch(b"too early"), 1)
    log.make_room()  # but there is none: it stays as it is
    with pytest.raises(KafkaError, match="is full"):
        await log.truncate_to(1)  # comes behind what that began
    with pytest.raises(KafkaError, match="is full"):
        log.append_as_leader(batch(b"too early"), 1)

    disk.is_full = False
    ready = asyncio.Event()
    log.on_append = ready.set
    log.make_room()
    async with asyncio.timeout(60):
        await ready.wait()
    log.append_as_leader(batch(b"new"), 1)
    await written(log)
    expected = [(0, b"old 0"), (1, b"new")]
    assert await read_values(log, 0) == expected
    setup.crash()
    assert await read_values(await setup.open(is_clean=False), 0) == expected
    setup.close()
