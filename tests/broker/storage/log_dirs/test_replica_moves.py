"""A replica that moves to another log directory: its records, log cleaning, and a crash during the swap."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.config import TopicValues
from ottla_broker.metrics import Metrics
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.cleaner.cleaner import CleanerSettings, LogCleaner
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.timestamps import TimestampLookup
from ottla_broker.storage.log_dirs.future_replicas import FutureReplica
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from ottla_broker.storage.log_dirs.states import ONLINE
from tests.broker.storage.cleaner.cleaning import DAY_MS, LoopWorkers, close_segment, consume, keyed, pairs
from tests.broker.storage.log_dirs.brokers import T0, TOPIC_ID, BrokerStorage
from tests.broker.storage.log_dirs.moves import (
    SMALL_SEGMENTS,
    append,
    create_future_replica,
    directories,
    log_with_records,
    run_until_swapped,
    values,
)
from tests.broker.storage.logs import batch, read_values, until, written


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerStorage]:
    made = BrokerStorage(tmp_path, 2, SMALL_SEGMENTS, LogManagerSettings())
    yield made
    made.stop()
    await made.workers.wait_closed()


class Cleaner:
    """Records the calls of the log cleaner."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def abort_and_pause(self, partition: TopicPartition) -> None:
        self.calls.append(("pause", partition))

    def resume(self, partition: TopicPartition) -> None:
        self.calls.append(("resume", partition))

    def alter_checkpoint_dir(self, partition: TopicPartition, source: Any, destination: Any) -> None:
        self.calls.append(("moved", source.path, destination.path))


async def test_a_replica_moves_with_its_offsets_epochs_and_producers_and_its_old_files_are_deleted(
    broker: BrokerStorage,
) -> None:
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    log.append_as_leader(batch(b"0", b"1", producer=(7, 0, 0)), 0)
    await append(log, 2, 18)
    log.state.maybe_advance_high_watermark(15)
    await log.retention.advance_log_start_offset(3)
    log.assign_epoch(4, 20)
    moved = await run_until_swapped(broker, await create_future_replica(broker, log))
    assert manager.get(T0) is moved and moved.state.disk is not log.state.disk and moved.state.topic_id == TOPIC_ID
    assert (moved.state.log_start_offset, moved.state.high_watermark, moved.state.log_end_offset) == (3, 15, 20)
    assert moved.state.epochs.latest == 4 and moved.end_of_epoch(0) == (0, 20)
    assert await read_values(moved, 3) == values(3, 20)
    assert moved.append_as_leader(batch(b"0", b"1", producer=(7, 0, 0)), 4).is_duplicate
    await append(moved, 20, 2, epoch=4)
    await until(lambda: not directories(log.state.disk.path))
    assert directories(moved.state.disk.path) == ["t-0"]
    assert not (Path(moved.state.disk.path) / "t-0" / "ottla.future-replica").exists()
    manager = await broker.restart()
    again = manager.get(T0)
    assert again is not None and again.state.disk.path == moved.state.disk.path
    assert (again.state.log_start_offset, again.state.epochs.latest) == (3, 4)
    assert await read_values(again, 3) == values(3, 22)


async def test_records_that_are_appended_during_a_move_are_in_the_new_log(broker: BrokerStorage) -> None:
    manager = await broker.start()
    log = await log_with_records(manager, 100)
    replica = await create_future_replica(broker, log)
    moving = asyncio.ensure_future(run_until_swapped(broker, replica))
    number = 100
    while not moving.done():
        current = manager.get(T0)
        assert current is not None
        current.append_as_leader(batch(b"%d" % number), 0)
        number += 1
        await asyncio.sleep(0.03)  # the pace of a producer: the future log catches up between two records
    moved = await moving
    await written(moved)
    assert await read_values(moved, 0) == values(0, number)


async def test_a_replaced_log_refuses_appends_and_forwards_truncations(broker: BrokerStorage) -> None:
    manager = await broker.start()
    broker.config = LogConfig(TopicValues({**SMALL_SEGMENTS, "file.delete.delay.ms": 3_600_000}))
    log = await log_with_records(manager)
    log.configure(broker.config)
    moved = await run_until_swapped(broker, await create_future_replica(broker, log))
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch(b"lost"), 0)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await read_values(log, 0) == values(0, 20)  # readers can go on
    await log.truncation.truncate_to(10)
    assert moved.state.log_end_offset == 10
    moved.state.maybe_advance_high_watermark(10)
    log.state.high_watermark = 10
    await log.retention.advance_log_start_offset(4)
    assert moved.state.log_start_offset == 4


async def test_no_swap_happens_while_the_directory_of_the_future_log_is_full(broker: BrokerStorage) -> None:
    """Producers would get KAFKA_STORAGE_ERROR for a replica whose directory has room."""
    manager = await broker.start()
    log = await log_with_records(manager)
    replica = await create_future_replica(broker, log)
    arrived: asyncio.Future[Log] = asyncio.get_running_loop().create_future()
    refused: list[bool] = []

    async def finish(one: FutureReplica) -> bool:
        if not refused:
            manager.access.directory_full(one.future.state.disk, OSError(errno.ENOSPC, "no room"))
        has_swapped = await manager.future_replicas.swap(one, arrived.set_result)
        refused.append(not has_swapped)
        return has_swapped

    manager.future_replicas.run(replica, finish)
    await until(lambda: refused)
    assert refused == [True] and manager.get(T0) is log and not log.state.is_full
    await append(log, 20, 1)
    manager.access.apply(replica.future.state.disk.path, ONLINE)
    moved = await asyncio.wait_for(arrived, 60)
    assert await read_values(moved, 0) == values(0, 21)
    await manager.future_replicas.cancel(T0)


@pytest.mark.parametrize("is_marked", [True, False])
async def test_the_log_with_the_marker_is_used_when_a_crash_leaves_two(broker: BrokerStorage, is_marked: bool) -> None:
    """kill -9 after the future log has got its name and before the replaced log is renamed."""
    manager = await broker.start()
    log = await log_with_records(manager)
    replica = await create_future_replica(broker, log)
    old, new = Path(log.state.disk.path), Path(replica.future.state.disk.path)
    await manager.future_replicas.copying.copy(replica)
    name = replica.future.state.directory
    broker.stop()
    (new / name).rename(new / "t-0")
    assert (new / "t-0" / "ottla.future-replica").read_text().startswith(f"t-0 moves here from {old}")
    if not is_marked:
        (new / "t-0" / "ottla.future-replica").unlink()
    broker.create_manager()
    if not is_marked:
        with pytest.raises(Exception, match="in two log directories"):
            await broker.start()
        return
    manager = await broker.start()
    again = manager.get(T0)
    assert again is not None and again.state.disk.path == str(new)
    assert await read_values(again, 0) == values(0, 20)
    assert any("had moved" in notice for notice in broker.notices)
    assert directories(old) in ([], [path for path in directories(old) if path.endswith("-delete")])
    assert not (new / "t-0" / "ottla.future-replica").exists()


async def test_a_future_log_is_deleted_at_a_start_when_its_partition_is_gone(broker: BrokerStorage) -> None:
    manager = await broker.start()
    log = await log_with_records(manager)
    replica = await create_future_replica(broker, log)
    broker.stop()
    (Path(log.state.disk.path) / "t-0").rename(Path(log.state.disk.path) / "t-0.abc-delete")
    broker.create_manager()
    manager = await broker.start()
    assert manager.get(T0) is None and manager.future_replicas.get(T0) is None
    assert [directories(path) for path in broker.paths] == [[], []]
    assert replica.future.state.directory.endswith("-future")


async def test_a_log_is_not_cleaned_while_it_has_a_future_log(broker: BrokerStorage) -> None:
    manager = await broker.start()
    cleaner = manager.future_replicas.cleaning = Cleaner()
    log = await log_with_records(manager)
    await create_future_replica(broker, log)
    await manager.future_replicas.cancel(T0)
    assert cleaner.calls == [("pause", T0), ("resume", T0)]
    moved = await run_until_swapped(broker, await create_future_replica(broker, log))
    assert cleaner.calls[2:] == [("pause", T0), ("moved", log.state.disk.path, moved.state.disk.path), ("resume", T0)]
    assert isinstance(log.state.disk, DirectoryDisk)


async def test_cleaning_resumes_when_a_move_is_refused(tmp_path: Path) -> None:
    broker = BrokerStorage(tmp_path, 3, SMALL_SEGMENTS, LogManagerSettings())
    manager = await broker.start()
    cleaner = manager.future_replicas.cleaning = Cleaner()
    log = await log_with_records(manager)
    away, other = [path for path in broker.paths if path != log.state.disk.path]
    manager.directory_failed(manager.disk(away), OSError(errno.EIO, "gone", away))
    with pytest.raises(KafkaError, match="while a log directory is offline"):
        await manager.future_replicas.create(log, manager.disk(other))
    assert cleaner.calls == [("pause", T0), ("resume", T0)]
    broker.stop()
    await broker.workers.wait_closed()


async def test_a_deleted_key_stays_deleted_when_a_move_starts_while_the_cleaner_chooses_a_log(
    broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The future log had the old value from before the cleaning, the tombstone from after it, and counted as clean."""
    broker.config = LogConfig(
        TopicValues({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0, "min.compaction.lag.ms": 1})
    )
    manager = await broker.start()
    cleaner = LogCleaner(manager, broker.clock, LoopWorkers(), CleanerSettings, Metrics())
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    for value in (b"old", None):
        log.append_as_leader(keyed((b"gone", value)), 0, is_prepared=True)
        await close_segment(log)
    broker.clock.wall_ms += 1000
    is_looking, may_go_on = asyncio.Event(), asyncio.Event()
    largest_timestamp = TimestampLookup.largest_timestamp

    async def from_a_slow_disk(self: TimestampLookup, segment: Any) -> int:
        is_looking.set()
        await may_go_on.wait()
        return await largest_timestamp(self, segment)

    monkeypatch.setattr(TimestampLookup, "largest_timestamp", from_a_slow_disk)
    cleaning = asyncio.ensure_future(cleaner.clean_dirtiest())
    await is_looking.wait()
    replica = await create_future_replica(broker, log)
    manager.future_replicas.copying.max_bytes_per_second = 1
    moving = asyncio.ensure_future(run_until_swapped(broker, replica))
    await until(lambda: replica.lag == 1)
    may_go_on.set()
    await cleaning
    manager.future_replicas.copying.max_bytes_per_second = 2**63 - 1
    moved = await moving
    for _ in range(2):
        moved.append_as_leader(keyed((b"stays", b"1")), 0, is_prepared=True)
        await close_segment(moved)
        broker.clock.wall_ms += DAY_MS
        while await cleaner.clean_dirtiest() is not None:
            pass
    assert pairs(await consume(moved)) == [(3, b"stays", b"1")]


async def test_a_deleted_key_stays_deleted_when_a_move_resumes_after_its_tombstone_is_gone(tmp_path: Path) -> None:
    """The destination failed, the log was compacted, its tombstone was removed, then the destination was back."""
    broker = BrokerStorage(
        tmp_path, 2, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0}, LogManagerSettings()
    )
    manager = await broker.start()
    cleaner = LogCleaner(manager, broker.clock, LoopWorkers(), CleanerSettings, Metrics())
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    for key, value in ((b"gone", b"old"), (b"stays", b"1"), (b"gone", None)):
        log.append_as_leader(keyed((key, value)), 0, is_prepared=True)
        await written(log)
    await close_segment(log)
    replica = await create_future_replica(broker, log)
    manager.future_replicas.copying.max_bytes_per_second = 100
    manager.future_replicas.run(replica, lambda one: manager.future_replicas.swap(one, lambda log: None))
    await until(lambda: replica.lag == 1)
    manager.directory_failed(replica.future.state.disk, OSError(errno.EIO, "broken"))
    await until(lambda: replica.is_finished)
    for _ in range(2):
        log.append_as_leader(keyed((b"new", b"1")), 0, is_prepared=True)
        await close_segment(log)
        while await cleaner.clean_dirtiest() is not None:
            pass
        broker.clock.wall_ms += DAY_MS
    now_ms = broker.clock.wall_ms
    broker.stop()
    broker.create_manager()
    broker.clock.wall_ms = now_ms
    manager = await broker.start()
    resumed = manager.future_replicas.get(T0)
    assert resumed is not None
    moved = await run_until_swapped(broker, resumed)
    assert b"gone" not in [key for _, key, _ in pairs(await consume(moved))]
    broker.stop()
    await broker.workers.wait_closed()
