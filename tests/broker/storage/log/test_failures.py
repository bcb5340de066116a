"""What a failed disk call does to a log."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.logs import Make, batch, written


async def test_a_failed_write_marks_the_log_directory_offline_once(make: Make, tmp_path: Path) -> None:
    setup = make()
    log = await setup.open()
    log.append_as_leader(batch(b"a"), 0)
    await written(log)
    failed: list[str] = []
    log.state.on_failure = lambda: failed.append("failed")
    (tmp_path / "unsyncable").symlink_to("/dev/full")
    unsyncable = await setup.disk.open("unsyncable")
    with pytest.raises(OSError):
        await unsyncable.fsync()
    log.append_as_leader(batch(b"b"), 0)
    with pytest.raises(KafkaError):
        await written(log)
    assert failed == ["failed"] and log.state.is_failed
    assert [error.errno for error in setup.owner.failures] == [errno.EIO]
    assert log.state.log_end_offset == 1
    for call in (lambda: log.append_as_leader(batch(b"c"), 0), lambda: log.read(0, 10, 1, True)):
        with pytest.raises(KafkaError) as caught:
            call()
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_write_that_fails_with_another_exception_marks_the_log_directory_offline(tmp_path: Path) -> None:
    """Else a broker whose disk thread ended leads, is in the ISR, and never answers."""
    disk = DirectoryDisk(str(tmp_path))
    file = await disk.open("f", create=True)
    text: Any = "no bytes"
    for buffers in ([text], [b"x"]):
        async with asyncio.timeout(60):
            with pytest.raises(OSError):
                await file.append(buffers)
    assert await disk.exists("f")
    disk.close()
