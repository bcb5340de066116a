"""The broker runs out of descriptors or memory, which is not a failure of a log directory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters import disk_calls
from ottla_broker.ports.os_errors import ErrorCause, cause_of
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from tests.broker.storage.log_dirs.brokers import TOPIC_ID, MakeStorage
from tests.broker.storage.logs import LogSetup, batch, read_values, until, written

SHORTAGES = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EINTR]
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


class Shortage:
    """Makes calls of `disk_calls` fail while it `is_on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int, *names: str) -> None:
        self.is_on = False
        self.number = number
        for name in names:
            monkeypatch.setattr(disk_calls, name, self._instead_of(getattr(disk_calls, name)))

    def _instead_of(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if self.is_on:
                raise OSError(self.number, os.strerror(self.number))
            return real(*arguments, **options)

        return call


def _is_there(path: str, partition: TopicPartition) -> bool:
    return Path(path, str(partition)).exists()


@pytest.mark.parametrize("number", SHORTAGES, ids=[errno.errorcode[number] for number in SHORTAGES])
def test_a_shortage_does_not_mark_a_log_directory_offline(number: int) -> None:
    assert cause_of(OSError(number, "")) is ErrorCause.SHORTAGE
    assert cause_of(OSError(errno.EIO, "")) is cause_of(OSError("no number")) is ErrorCause.FAILURE
    assert cause_of(OSError(errno.EDQUOT, "")) is ErrorCause.ROOM


@pytest.mark.parametrize("number", SHORTAGES, ids=[errno.errorcode[number] for number in SHORTAGES])
async def test_a_log_directory_stays_online_when_a_log_cannot_be_opened_for_a_shortage(
    make_storage: MakeStorage, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    shortage = Shortage(monkeypatch, number, "open_file")
    broker = make_storage()
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    shortage.is_on = True
    with pytest.raises(KafkaError) as refused:
        await manager.get_or_create(T1, TOPIC_ID, True)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR and os.strerror(number) in refused.value.message
    assert manager.live_paths == broker.paths and not broker.failures
    assert [line for line in broker.notices if "no directory is taken offline" in line]
    log.append_as_leader(batch(b"others go on"), 0)
    await written(log)
    shortage.is_on = False
    assert not _is_there(broker.paths[0], T1)
    other = await manager.get_or_create(T1, TOPIC_ID, True)
    other.append_as_leader(batch(b"when it is over"), 0)
    await written(other)
    restarted = await broker.restart()
    assert {log.state.topic_partition for log in restarted.logs} == {T0, T1}


async def test_the_files_of_a_log_that_could_not_be_created_are_deleted_before_another_directory_gets_it(
    make_storage: MakeStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next start finds the partition in two log directories and refuses it."""
    shortage = Shortage(monkeypatch, errno.EMFILE, "open_file", "delete")
    broker = make_storage(2)
    manager = await broker.start()
    manager.prefer(T0, broker.paths[0])
    shortage.is_on = True
    with pytest.raises(KafkaError):
        await manager.get_or_create(T0, TOPIC_ID, True)
    assert _is_there(broker.paths[0], T0)
    shortage.is_on = False
    manager.prefer(T0, broker.paths[1])
    await manager.get_or_create(T0, TOPIC_ID, True)
    (log,) = (await broker.restart()).logs
    assert log.state.disk.path == broker.paths[1]


@pytest.mark.parametrize("calls", [("open_file",), ("write_all",)], ids=["a roll", "a write"])
async def test_an_append_fails_during_a_shortage_and_the_log_continues_after_it(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, calls: tuple[str, ...]
) -> None:
    setup = LogSetup(str(tmp_path), {"segment.bytes": 150})
    shortage = Shortage(monkeypatch, errno.ENOMEM, *calls)
    log = await setup.open()
    log.append_as_leader(batch(b"kept"), 0)
    await written(log)
    failed: list[bool] = []
    log.state.on_failure = lambda: failed.append(True)
    shortage.is_on = True
    log.append_as_leader(batch(b"refused, in a segment of its own" + b"." * 20), 0)
    await until(lambda: bool(failed))
    assert not setup.owner.failures and not log.state.is_failed
    with pytest.raises(KafkaError, match="short of descriptors or memory"):
        log.append_as_leader(batch(b"too early"), 0)
    shortage.is_on = False
    log.truncation.resume_appends()  # as at every check of the log directory
    await until(lambda: not log.state.is_full)
    log.append_as_leader(batch(b"again"), 0)
    await written(log)
    assert await read_values(log, 0) == [(0, b"kept"), (1, b"again")]


async def test_a_read_fails_during_a_shortage_and_succeeds_after_it(
    make_storage: MakeStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    shortage = Shortage(monkeypatch, errno.EMFILE, "open_file")
    broker = make_storage(segment_bytes=150)
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    for number in range(3):
        log.append_as_leader(batch(b"%d" % number * 80), 0)
    await written(log)
    await log.flusher.flush()
    for segment in log.state.segments[:-1]:
        await segment.close()
    shortage.is_on = True
    with pytest.raises(KafkaError, match="Too many open files"):
        await log.read(0, 1000, 3, True)  # type: ignore[misc]
    assert manager.live_paths == broker.paths
    shortage.is_on = False
    assert len(await read_values(log, 0)) == 3


async def test_checkpoints_are_written_after_a_shortage(
    make_storage: MakeStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure of the disk would fail every later call too."""
    shortage = Shortage(monkeypatch, errno.ENFILE, "write_file", "append_to", "fsync_directory", "fsync_file")
    broker = make_storage()
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    log.append_as_leader(batch(b"a"), 0)
    await written(log)
    shortage.is_on = True
    await manager.checkpoint_high_watermarks()
    with pytest.raises(KafkaError):
        await manager.guarded(log.state.disk, log.flusher.flush())
    assert manager.live_paths == broker.paths
    shortage.is_on = False
    await log.flusher.flush()
    assert log.state.recovery_point == 1


async def test_a_start_during_a_shortage_fails_with_advice_and_blames_no_disk(
    make_storage: MakeStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    shortage = Shortage(monkeypatch, errno.EMFILE, "open_file")
    broker = make_storage(2)
    manager = await broker.start()
    await manager.get_or_create(T0, TOPIC_ID, True)
    await manager.close()
    shortage.is_on = True
    with pytest.raises(OSError, match="raise the limit") as refused:
        await broker.restart()
    assert refused.value.errno == errno.EMFILE and not broker.manager.offline_paths


async def test_a_broker_creates_no_more_replicas_than_its_limit(make_storage: MakeStorage) -> None:
    broker = make_storage(settings=LogManagerSettings(max_partition_replicas=2))
    manager = await broker.start()
    await manager.get_or_create(T0, TOPIC_ID, True)
    await manager.get_or_create(T1, TOPIC_ID, True)
    with pytest.raises(KafkaError, match=r"ottla\.max\.partition\.replicas") as refused:
        await manager.get_or_create(T2, TOPIC_ID, True)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.live_paths == broker.paths and not _is_there(broker.paths[0], T2)
    assert (await manager.get_or_create(T1, TOPIC_ID, False)).state.topic_partition == T1
    await manager.delete(T0)
    await manager.get_or_create(T2, TOPIC_ID, True)
