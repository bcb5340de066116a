"""What thousands of partitions cost a broker in descriptors, syncs and memory."""

from __future__ import annotations

import asyncio
import gc
import os
import tracemalloc
from pathlib import Path

import pytest

from ottla_broker.config import TopicValues
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log_dirs.log_manager import LogManager
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from tests.broker.storage.log_dirs.brokers import TOPIC_ID, BrokerStorage
from tests.broker.storage.logs import batch, read_values, written

COUNT = 200


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def filled(manager: LogManager, first: int, count: int) -> None:
    """Creates `count` partitions with two batches each."""
    for number in range(first, first + count):
        log = await manager.get_or_create(TopicPartition("t", number), TOPIC_ID, True)
        log.assign_epoch(0, 0)
        log.append_as_leader(batch(b"a", b"b"), 0)
        log.append_as_leader(batch(b"c"), 0)
        await written(log)


async def lead_everything(manager: LogManager, epoch: int) -> None:
    """Makes the broker leader of everything, as LeaderAndIsr does after a restart."""
    for log in manager.logs:
        log.assign_epoch(epoch, log.state.assigned_offset)


class CountedSyncs:
    """Counts the calls of fsync and fdatasync."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, real):  # type: ignore[no-untyped-def]
        def sync(descriptor: int) -> None:
            self.count += 1
            real(descriptor)

        return sync


@pytest.fixture
async def broker(tmp_path: Path) -> BrokerStorage:
    return BrokerStorage(tmp_path, 1, {}, LogManagerSettings())


async def test_an_idle_partition_has_at_most_two_open_descriptors(broker: BrokerStorage) -> None:
    manager = await broker.start()
    before = descriptors()
    await filled(manager, 0, 40)
    assert descriptors() - before <= 2 * 40
    await manager.close()
    broker.stop()
    broker.create_manager()
    before = descriptors()
    manager = await broker.start()
    assert len(manager.logs) == 40
    # The disk's thread and the lock of the directory have some too.
    assert descriptors() - before <= 40 + 5
    broker.stop()


async def test_closed_segments_have_no_open_descriptor_when_they_are_not_read(broker: BrokerStorage) -> None:
    broker.config = LogConfig(TopicValues({"segment.bytes": 500}))
    manager = await broker.start()
    log = await manager.get_or_create(TopicPartition("t", 0), TOPIC_ID, True)
    for _ in range(100):
        log.append_as_leader(batch(b"x" * 100), 0)
    await written(log)
    await log.flusher.flush()
    everything = await read_values(log, 0)
    before = descriptors()
    assert len(log.state.segments) > 20
    disk = broker.disks[broker.paths[0]]
    await manager.background_tasks.close_idle_segments(disk)  # all of them have just been read
    assert descriptors() == before
    assert await read_values(log, 90) == everything[90:]
    await manager.background_tasks.close_idle_segments(disk)
    await disk.exists("")  # the disk has made all earlier calls
    assert before - descriptors() > len(log.state.segments) // 2
    assert await read_values(log, 0) == everything
    broker.stop()


async def test_index_entries_are_written_and_read_again_without_open_files(broker: BrokerStorage) -> None:
    broker.config = LogConfig(TopicValues({"index.interval.bytes": 100}))
    manager = await broker.start()
    log = await manager.get_or_create(TopicPartition("t", 0), TOPIC_ID, True)
    for number in range(300):
        log.append_as_leader(batch(b"%03d" % number * 20), 0)
    await written(log)
    entries = log.state.segments[0].index_entries
    assert entries > 128  # more than waits in memory
    await manager.close()
    manager = await broker.restart()
    log = manager.logs[0]
    assert log.state.segments[0].index_entries == entries
    assert len(await read_values(log, 0)) == 300
    broker.stop()


async def test_a_restart_syncs_no_idle_partition(broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(await broker.start(), 0, COUNT)
    await broker.manager.close()
    syncs = CountedSyncs(monkeypatch)
    for epoch in (1, 2):
        manager = await broker.restart()
        assert [log.state.log_end_offset for log in manager.logs] == [3] * COUNT
        await lead_everything(manager, epoch)
        await manager.close()
    # Checkpoints, markers and the directory itself: a number that does not grow with the partitions.
    assert syncs.count < 40
    assert [log.state.epochs.entries for log in (await broker.restart()).logs] == [[(0, 0)]] * COUNT
    broker.stop()


async def test_loading_reads_the_directories_of_idle_partitions_in_batches(
    broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(await broker.start(), 0, COUNT)
    await broker.manager.close()
    broker.stop()
    broker.create_manager()
    (disk,) = broker.disks.values()
    calls: list[str] = []
    for name in ("read_directories", "read_file", "exists", "list", "write_file", "append_to", "open", "delete"):
        real = getattr(disk, name)

        def call(*args, real=real, name=name, **named):  # type: ignore[no-untyped-def]
            calls.append(name)
            return real(*args, **named)

        monkeypatch.setattr(disk, name, call)
    await broker.start()
    assert calls.count("read_directories") <= COUNT // 64 + 1
    assert calls.count("open") == COUNT
    assert len(calls) < COUNT + 40
    broker.stop()


async def test_a_log_takes_less_than_6_kib_of_memory(broker: BrokerStorage) -> None:
    await filled(await broker.start(), 0, COUNT)
    await broker.manager.close()
    broker.stop()
    broker.create_manager()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        await broker.start()
        await asyncio.sleep(0)
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / COUNT
    finally:
        tracemalloc.stop()
    assert each < 6 * 1024
    broker.stop()
