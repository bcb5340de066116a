"""The offset checkpoints, also of a directory without room."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla_broker.adapters import disk_calls
from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoint_files import CheckpointFiles
from ottla_broker.storage.files.names import LOG_START_OFFSETS
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from tests.broker.storage.log_dirs.brokers import T0, TOPIC_ID, BrokerStorage, MakeStorage
from tests.broker.storage.logs import batch, written

T1 = TopicPartition("t", 1)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files whose next write finds no room."""
    found: list[str] = []
    write_file = disk_calls.write_file

    def write(path: str, data: bytes, is_private: bool = False) -> None:
        name = Path(path).name
        if name in found:
            found.remove(name)
            raise OSError(errno.ENOSPC, "No space left on device", path)
        write_file(path, data, is_private)

    monkeypatch.setattr(disk_calls, "write_file", write)
    return found


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerStorage]:
    made = BrokerStorage(tmp_path, 1, {}, LogManagerSettings())
    await made.start()
    yield made
    made.stop()
    await made.workers.wait_closed()


async def ten_records(broker: BrokerStorage, partition: TopicPartition) -> Log:
    log = await broker.manager.get_or_create(partition, TOPIC_ID, True)
    for number in range(10):
        log.append_as_leader(batch(b"%d" % number), 0)
    await written(log)
    log.state.maybe_advance_high_watermark(10)
    return log


async def test_the_recovery_point_is_checkpointed_after_a_flush(make_storage: MakeStorage, tmp_path: Path) -> None:
    broker = make_storage(flush_ms=0)
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    log.append_as_leader(batch(b"a", b"b"), 0)
    await written(log)
    await manager.checkpoints.write_recovery_points(log.state.disk)
    assert (tmp_path / "d0" / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 0\n"
    await manager.background_tasks.flush_due()
    await manager.checkpoints.write_recovery_points(log.state.disk)
    assert (tmp_path / "d0" / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"


async def test_delete_records_fails_when_the_log_start_offset_cannot_be_checkpointed(
    broker: BrokerStorage, refused: list[str]
) -> None:
    log = await ten_records(broker, T0)
    refused.append(LOG_START_OFFSETS)
    with pytest.raises(KafkaError) as error:
        await log.retention.advance_log_start_offset(5)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR and not broker.failures
    await log.retention.advance_log_start_offset(5)
    again = (await broker.restart()).get(T0)
    assert again is not None and again.state.log_start_offset == 5


async def test_a_deletion_keeps_the_log_start_offsets_of_other_logs_when_the_directory_is_full(
    broker: BrokerStorage, refused: list[str]
) -> None:
    for partition in (T0, T1):
        log = await ten_records(broker, partition)
        await log.retention.advance_log_start_offset(5)
    await broker.manager.checkpoints.write_recovery_points(broker.manager.disk(broker.paths[0]))
    refused.append(LOG_START_OFFSETS)
    await broker.manager.delete(T0)
    manager = await broker.restart()
    log = manager.get(T1)
    assert log is not None and log.state.log_start_offset == 5
    assert (await manager.get_or_create(T0, TOPIC_ID, True)).state.log_start_offset == 0


async def test_a_checkpoint_without_room_does_not_remove_a_later_one(tmp_path: Path, refused: list[str]) -> None:
    disk = DirectoryDisk(str(tmp_path))
    files = CheckpointFiles(lambda disk, error: None)
    refused.append(LOG_START_OFFSETS)
    await asyncio.gather(
        files.write(disk, LOG_START_OFFSETS, {T0: 5}),
        files.write(disk, LOG_START_OFFSETS, {T0: 10}),
    )
    await files.write(disk, LOG_START_OFFSETS, {T0: 10})
    assert await files.read(disk, LOG_START_OFFSETS) == {T0: 10}
    disk.close()
