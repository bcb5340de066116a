"""Directories that are reopened while the broker runs."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log.recovery import Recovered
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from tests.broker.storage.log_dirs.brokers import T0, TOPIC_ID, BrokerStorage, MakeStorage
from tests.broker.storage.log_dirs.replicas import (
    OTHER_TOPIC_ID,
    exchange_id,
    fail,
    move_path,
    names,
    put_back,
    remove,
    reopen,
    take_away,
    try_to_reopen,
    values,
    write,
    write_text,
)
from tests.broker.storage.logs import batch, read_values, until, written


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerStorage]:
    """Three directories; t-0 is on d0 with two records."""
    made = BrokerStorage(tmp_path, 3, {}, LogManagerSettings())
    manager = await made.start()
    manager.prefer(T0, made.paths[0])
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    await write(log, b"old", b"older")
    yield made
    made.stop()
    await made.workers.wait_closed()


async def test_the_older_log_of_a_recreated_replica_becomes_a_stray_when_its_directory_is_reopened(
    broker: BrokerStorage,
) -> None:
    fail(broker, 0)
    await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    await reopen(broker, 0)
    assert names(broker, 0) == ["t-0.stray"] and names(broker, 1) == ["t-0"]
    assert [len(one.strays) for one in broker.manager.states][:2] == [1, 0]
    assert (await broker.restart()).registry.is_catching_up(T0)


async def test_the_older_log_stays_stale_when_the_recreated_replica_is_offline_too(
    broker: BrokerStorage,
) -> None:
    """The newest log is on d1, which is offline; the one on d0 is older, and d2 has the registry."""
    fail(broker, 0)
    await write(await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1]), b"new")
    fail(broker, 1)
    await reopen(broker, 0)
    assert names(broker, 0) == ["t-0.stray"]
    assert broker.manager.is_on_offline_directory(T0)
    broker.stop()
    take_away(broker, 1)
    broker.create_manager()
    manager = await broker.start()
    assert manager.offline_paths == [broker.paths[1]] and manager.get(T0) is None
    put_back(broker, 1)
    await reopen(broker, 1)
    found = manager.get(T0)
    assert found is not None and await values(found) == [b"new"]


async def test_a_deleted_partition_is_not_served_when_the_directory_of_an_older_log_is_reopened(
    broker: BrokerStorage,
) -> None:
    """The controller believes that this broker has no replica of the partition."""
    fail(broker, 0)
    await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1])
    await broker.manager.delete(T0)
    await reopen(broker, 0)
    assert broker.manager.get(T0) is None
    assert names(broker, 0) == ["t-0.stray"]
    again = await broker.manager.get_or_create(T0, OTHER_TOPIC_ID, True)
    assert again.state.log_end_offset == 0


async def test_a_log_is_reported_as_shorter_when_its_reopened_directory_lost_power(broker: BrokerStorage) -> None:
    """The directory was offline at the start, so the length of its logs is unknown; their ends may be gone."""
    broker.stop()
    path, away = broker.paths[0], broker.paths[0] + "-away"
    write_text(Path(path, "ottla.boot-id"), "another boot")
    move_path(path, away)
    write_text(path, "no directory")
    broker.create_manager()
    returned: list[dict[TopicPartition, bool]] = []
    broker.manager.reopening._on_reopened = lambda _, logs: returned.append(dict(logs))
    manager = await broker.start()
    assert manager.offline_paths == [path]
    remove(path)
    move_path(away, path)
    await reopen(broker, 0)
    assert returned == [{T0: False}]


async def test_a_directory_is_reopened_when_it_replaces_one_with_another_directory_id(broker: BrokerStorage) -> None:
    broker.stop()
    path = broker.paths[0]
    shutil.copytree(path, path + "-right")
    exchange_id(path)
    broker.settings = LogManagerSettings(may_format=())
    broker.create_manager()
    manager = await broker.start()
    assert manager.offline_paths == [path]
    move_path(path, path + "-wrong")
    move_path(path + "-right", path)
    await reopen(broker, 0)
    found = manager.get(T0)
    assert found is not None and await values(found) == [b"old", b"older"]


async def test_reopening_is_tried_again_when_a_worker_died(
    broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the kernel is out of memory and kills the process that recovers the longest log."""
    recover = broker.manager.recovery_threads.run

    async def dies(*arguments: Any) -> Recovered:
        raise RuntimeError("a worker process died")

    monkeypatch.setattr(broker.manager.recovery_threads, "run", dies)
    fail(broker, 0)
    assert await try_to_reopen(broker, 0) == "a worker process died"
    assert broker.manager.offline_paths == [broker.paths[0]]
    assert broker.manager.progress.current == []
    monkeypatch.setattr(broker.manager.recovery_threads, "run", recover)
    await reopen(broker, 0)
    log = broker.manager.get(T0)
    assert log is not None and await values(log) == [b"old", b"older"]


async def test_a_log_ends_at_the_first_lost_record_when_its_directory_is_reopened(
    make_storage: MakeStorage, tmp_path: Path
) -> None:
    """The log went on after the gap, in the empty segment, and no reader could pass it (disks, seed 701468)."""
    broker = make_storage(2, segment_bytes=150)
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    path = log.state.disk.path
    for value in (b"a", b"b", b"c"):
        log.append_as_leader(batch(value * 60), 0)
    await written(log)
    log.state.maybe_advance_high_watermark(3)
    await manager.background_tasks.flush_due()
    first, second, third = [Path(path, "t-0", f"{offset:020}.log") for offset in (0, 1, 2)]
    manager.directory_failed(log.state.disk, OSError(errno.EIO, "Input/output error", path))
    await until(lambda: broker.disks[path].has_ended)  # the call in progress keeps the directory
    for lost in (second, third):  # as if the page cache was lost
        os.truncate(lost, 0)
    await manager.reopening.reopen(path, DirectoryDisk(path))
    back = manager.get(T0)
    assert back is not None and back.state.log_end_offset == 1 and first.stat().st_size
    assert await read_values(back, 0) == [(0, b"a" * 60)]
