"""What follows for the logs of a directory that fails."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from tests.broker.storage.log_dirs.brokers import TOPIC_ID, MakeStorage
from tests.broker.storage.logs import batch, written


async def test_a_failed_directory_is_reported_once_and_its_partitions_get_a_storage_error(
    make_storage: MakeStorage, tmp_path: Path
) -> None:
    broker = make_storage(2)
    manager = await broker.start()
    logs = [await manager.get_or_create(TopicPartition("t", number), TOPIC_ID, True) for number in range(4)]
    bad = broker.paths[1]
    (tmp_path / "d1" / "unsyncable").symlink_to("/dev/full")
    unsyncable = await broker.disks[bad].open("unsyncable")
    with pytest.raises(OSError):
        await unsyncable.fsync()
    for log in logs:
        log.append_as_leader(batch(b"v"), 0)
    for log in logs:
        if log.state.disk.path == bad:
            with pytest.raises(KafkaError):
                await written(log)
        else:
            await written(log)
    assert [path for path, _ in broker.failures] == [bad]
    assert manager.live_paths == [broker.paths[0]]
    for log in logs:
        assert (
            log.state.is_failed
            == (log.state.disk.path == bad)
            == manager.is_on_offline_directory(log.state.topic_partition)
        )
    with pytest.raises(KafkaError) as caught:
        await manager.get_or_create(TopicPartition("new", 0), TOPIC_ID, False)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    created = await manager.get_or_create(TopicPartition("new", 0), TOPIC_ID, True)
    assert created.state.disk.path == broker.paths[0]


async def test_every_log_of_a_directory_has_failed_when_the_failure_of_one_is_reported(
    make_storage: MakeStorage, tmp_path: Path
) -> None:
    """A response to a delayed request made the next request of its connection read a closed file (recreate 12)."""
    broker = make_storage(2)
    manager = await broker.start()
    logs = [await manager.get_or_create(TopicPartition("t", number), TOPIC_ID, True) for number in range(6)]
    for log in logs:
        log.append_as_leader(batch(b"v"), 0)
        await written(log)
    bad = [log for log in logs if log.state.disk.path == broker.paths[1]]
    reported: list[ErrorCode] = []

    def read_all() -> None:
        for log in bad:
            with pytest.raises(KafkaError) as caught:
                log.read(0, 1 << 20, 1, True)
            reported.append(caught.value.code)

    for log in bad:
        log.state.on_failure = read_all
    manager.directory_failed(bad[0].state.disk, OSError(errno.EIO, "Input/output error"))
    assert len(bad) == 3
    assert reported == [ErrorCode.KAFKA_STORAGE_ERROR] * 9
