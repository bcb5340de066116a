"""Moves between log directories: what the copy holds, when it takes the log's place, what a crash leaves."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.metrics import Metrics
from ottla_broker.ports.disk import Disk
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records import legacy
from ottla_broker.records.ids import TopicPartition
from ottla_broker.records.record import Record
from ottla_broker.storage.cleaner.cleaner import CleanerSettings, LogCleaner
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.timestamps import TimestampLookup
from ottla_broker.storage.log_dirs.future_replicas import FutureReplica
from ottla_broker.storage.log_dirs.log_manager import LogManager
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from ottla_broker.storage.log_dirs.states import ONLINE
from tests.broker.storage.cleaner.cleaning import DAY_MS, LoopWorkers, close_segment, consume, keyed, pairs
from tests.broker.storage.logs import batch, read_bytes, read_values, until, written
from tests.broker.storage.test_log_manager import T0, TOPIC_ID, Broker

SMALL_SEGMENTS = {"segment.bytes": 500, "index.interval.bytes": 100, "file.delete.delay.ms": 0}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    made = Broker(tmp_path, 2, SMALL_SEGMENTS, LogManagerSettings())
    yield made
    made.stop()
    await made.workers.wait_closed()


async def filled(manager: LogManager, count: int = 20) -> Log:
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    await append(log, 0, count)
    return log


async def append(log: Log, first: int, count: int, epoch: int = 0) -> None:
    for number in range(first, first + count):
        log.append_as_leader(batch(b"%d" % number), epoch)
    await written(log)


def values(first: int, end: int) -> list[tuple[int, bytes | None]]:
    return [(number, b"%d" % number) for number in range(first, end)]


async def begun(broker: Broker, log: Log) -> FutureReplica:
    (other,) = [path for path in broker.paths if path != log.disk.path]
    move = await broker.manager.future_replicas.create(log, broker.disks[other])
    assert move is not None
    return move


async def swapped(broker: Broker, move: FutureReplica) -> Log:
    """Runs the move to its end, the old directory put away included."""
    arrived: asyncio.Future[Log] = asyncio.get_running_loop().create_future()

    async def finish(one: FutureReplica) -> bool:
        return await broker.manager.future_replicas.swap(one, arrived.set_result)

    broker.manager.future_replicas.run(move, finish)
    log = await asyncio.wait_for(arrived, 60)
    await broker.manager.future_replicas.cancel(T0)  # returns once the move has been concluded
    return log


def directories(path: str | Path) -> list[str]:
    return sorted(entry.name for entry in Path(path).iterdir() if entry.is_dir())


async def test_a_replica_moves_with_everything_and_its_old_files_go(broker: Broker) -> None:
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    log.append_as_leader(batch(b"0", b"1", producer=(7, 0, 0)), 0)
    await append(log, 2, 18)
    log.maybe_advance_high_watermark(15)
    await log.advance_log_start_offset(3)
    log.assign_epoch(4, 20)
    moved = await swapped(broker, await begun(broker, log))
    assert manager.get(T0) is moved and moved.disk is not log.disk and moved.topic_id == TOPIC_ID
    assert (moved.log_start_offset, moved.high_watermark, moved.log_end_offset) == (3, 15, 20)
    assert moved.latest_epoch == 4 and moved.end_of_epoch(0) == (0, 20)
    assert await read_values(moved, 3) == values(3, 20)
    assert moved.append_as_leader(batch(b"0", b"1", producer=(7, 0, 0)), 4).is_duplicate
    await append(moved, 20, 2, epoch=4)
    await until(lambda: not directories(log.disk.path))
    assert directories(moved.disk.path) == ["t-0"]
    assert not (Path(moved.disk.path) / "t-0" / "ottla.move").exists()
    manager = await broker.restart()
    again = manager.get(T0)
    assert again is not None and again.disk.path == moved.disk.path
    assert (again.log_start_offset, again.latest_epoch) == (3, 4)
    assert await read_values(again, 3) == values(3, 22)


async def test_what_is_appended_during_the_move_is_there_after_it(broker: Broker) -> None:
    manager = await broker.start()
    log = await filled(manager, 100)
    move = await begun(broker, log)
    moving = asyncio.ensure_future(swapped(broker, move))
    number = 100
    while not moving.done():
        current = manager.get(T0)
        assert current is not None
        current.append_as_leader(batch(b"%d" % number), 0)
        number += 1
        await asyncio.sleep(0.03)
    moved = await moving
    await written(moved)
    assert await read_values(moved, 0) == values(0, number)


async def test_a_log_that_was_replaced_takes_no_append_and_passes_changes_on(broker: Broker) -> None:
    manager = await broker.start()
    broker.config = LogConfig({**SMALL_SEGMENTS, "file.delete.delay.ms": 3_600_000})
    log = await filled(manager)
    log.configure(broker.config)
    moved = await swapped(broker, await begun(broker, log))
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch(b"lost"), 0)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await read_values(log, 0) == values(0, 20)  # whoever reads it still can
    await log.truncate_to(10)
    assert moved.log_end_offset == 10
    moved.maybe_advance_high_watermark(10)
    log.state.high_watermark = 10
    await log.advance_log_start_offset(4)
    assert moved.log_start_offset == 4


async def test_what_is_cut_off_the_log_is_cut_off_the_copy(broker: Broker) -> None:
    manager = await broker.start()
    log = await filled(manager)
    move = await begun(broker, log)
    await broker.manager.future_replicas.copying.copy(move)
    assert move.future.log_end_offset == 20
    await log.truncate_to(12)
    assert move.future.log_end_offset == 12
    await append(log, 12, 3, epoch=1)
    moved = await swapped(broker, move)
    assert await read_values(moved, 0) == values(0, 15)
    assert [moved.end_of_epoch(epoch) for epoch in (0, 1)] == [(0, 12), (1, 15)]
    await moved.truncate_fully_and_start_at(40)
    back = await begun(broker, moved)
    await moved.truncate_fully_and_start_at(50)
    await append(moved, 50, 1)
    assert await read_values(await swapped(broker, back), 50) == values(50, 51)


async def test_deleted_records_are_gone_from_the_copy_before_that_is_confirmed(broker: Broker) -> None:
    manager = await broker.start()
    log = await filled(manager)
    log.maybe_advance_high_watermark(20)
    move = await begun(broker, log)
    assert log.local_low_watermark == 0
    await log.advance_log_start_offset(8)  # the copy is empty: it begins there
    assert (log.local_low_watermark, move.future.log_start_offset, move.future.log_end_offset) == (8, 8, 8)
    await broker.manager.future_replicas.copying.copy(move)
    await log.advance_log_start_offset(11)
    assert log.local_low_watermark == 11
    checkpoint = Path(move.future.disk.path) / "log-start-offset-checkpoint"
    assert checkpoint.read_text() == "0\n1\nt 0 11\n"
    assert await read_values(await swapped(broker, move), 11) == values(11, 20)


async def test_a_log_that_starts_in_the_middle_of_a_batch_moves(broker: Broker) -> None:
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    log.append_as_leader(batch(b"0", b"1", b"2", b"3"), 0)
    await append(log, 4, 2)
    log.maybe_advance_high_watermark(6)
    await log.advance_log_start_offset(2)
    moved = await swapped(broker, await begun(broker, log))
    assert moved.log_start_offset == 2
    assert await read_values(moved, 2) == values(2, 6)


@pytest.mark.parametrize("magic", [0, 1])
async def test_a_log_that_holds_an_old_message_format_moves(broker: Broker, magic: int) -> None:
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    old = [Record(offset, 1000 + offset, b"key", b"%d" % offset) for offset in range(20)]
    log.append_as_follower(memoryview(legacy.build_message_set(old, magic)))
    await append(log, 20, 20)
    held = [await read_bytes(log, offset) for offset in (0, 10, 30)]
    moved = await swapped(broker, await begun(broker, log))
    assert [await read_bytes(moved, offset) for offset in (0, 10, 30)] == held
    assert moved.log_end_offset == 40


async def test_a_move_goes_on_after_a_crash(broker: Broker) -> None:
    manager = await broker.start()
    log = await filled(manager, 50)
    move = await begun(broker, log)
    manager.future_replicas.copying.max_bytes_per_second = 1
    manager.future_replicas.run(move, lambda one: manager.future_replicas.swap(one, lambda log: None))
    await until(lambda: move.future.log_end_offset)
    copied = move.future.log_end_offset
    manager = await broker.restart()
    again = manager.future_replicas.get(T0)
    assert again is not None and again.current is manager.get(T0) and again.current.future is again.future
    assert copied <= again.future.log_end_offset < 50
    assert await read_values(await swapped(broker, again), 0) == values(0, 50)


async def test_a_copy_that_holds_more_than_the_log_is_cut_after_a_crash(broker: Broker) -> None:
    """A power loss may take from the log what the copy keeps: its next records at these offsets will be others."""
    manager = await broker.start()
    log = await filled(manager)
    move = await begun(broker, log)
    await manager.future_replicas.copying.copy(move)
    move.current.state.future = None  # the future replica is not truncated, as after a power loss
    await log.truncate_to(11)
    log.append_as_leader(batch(b"other", timestamp=1), 1)
    await written(log)
    manager = await broker.restart()
    again = manager.future_replicas.get(T0)
    assert again is not None and again.future.log_end_offset == 0  # same end, other records: from the start again
    assert (await read_values(await swapped(broker, again), 0))[10:] == [(10, b"10"), (11, b"other")]


@pytest.mark.parametrize("is_marked", [True, False])
async def test_of_two_copies_the_one_that_took_over_is_kept(broker: Broker, is_marked: bool) -> None:
    """kill -9 after the copy has its final name and before the old directory is put away."""
    manager = await broker.start()
    log = await filled(manager)
    move = await begun(broker, log)
    old, new = Path(log.disk.path), Path(move.future.disk.path)
    await manager.future_replicas.copying.copy(move)
    name = move.future.directory
    broker.stop()
    (new / name).rename(new / "t-0")
    assert (new / "t-0" / "ottla.move").read_text().startswith(f"t-0 moves here from {old}")
    if not is_marked:
        (new / "t-0" / "ottla.move").unlink()
    broker.make()
    if not is_marked:
        with pytest.raises(Exception, match="in two log directories"):
            await broker.start()
        return
    manager = await broker.start()
    again = manager.get(T0)
    assert again is not None and again.disk.path == str(new)
    assert await read_values(again, 0) == values(0, 20)
    assert any("had moved" in notice for notice in broker.notices)
    assert directories(old) in ([], [path for path in directories(old) if path.endswith("-delete")])
    assert not (new / "t-0" / "ottla.move").exists()


async def test_a_copy_whose_partition_is_gone_goes_too(broker: Broker) -> None:
    manager = await broker.start()
    log = await filled(manager)
    move = await begun(broker, log)
    broker.stop()
    (Path(log.disk.path) / "t-0").rename(Path(log.disk.path) / "t-0.abc-delete")
    broker.make()
    manager = await broker.start()
    assert manager.get(T0) is None and manager.future_replicas.get(T0) is None
    assert [directories(path) for path in broker.paths] == [[], []]
    assert move.future.directory.endswith("-future")


async def test_deletion_of_the_partition_ends_its_move(broker: Broker) -> None:
    manager = await broker.start()
    log = await filled(manager)
    move = await begun(broker, log)
    manager.future_replicas.copying.max_bytes_per_second = 1
    manager.future_replicas.run(move, lambda one: manager.future_replicas.swap(one, lambda log: None))
    await asyncio.sleep(0.01)
    await manager.delete(T0)
    assert move.is_finished and manager.future_replicas.get(T0) is None
    await until(lambda: not any(directories(path) for path in broker.paths))


async def test_another_destination_replaces_a_move_and_the_own_directory_ends_it(tmp_path: Path) -> None:
    broker = Broker(tmp_path, 3, SMALL_SEGMENTS, LogManagerSettings())
    manager = await broker.start()
    log = await filled(manager)
    first, second = (broker.disks[path] for path in broker.paths if path != log.disk.path)
    move = await manager.future_replicas.create(log, first)
    assert move is not None and await manager.future_replicas.create(log, first) is move
    other = await manager.future_replicas.create(log, second)
    assert other is not None and other.future.disk is second and move.is_finished and log.future is other.future
    assert [move.future for move in manager.future_replicas.in_progress] == [other.future]
    assert await manager.future_replicas.create(log, log.disk) is None
    assert manager.future_replicas.in_progress == [] and log.future is None
    await append(log, 20, 1)
    broker.stop()
    await broker.workers.wait_closed()


async def test_a_failing_destination_ends_the_move_and_not_the_replica(broker: Broker) -> None:
    manager = await broker.start()
    log = await filled(manager)
    move = await begun(broker, log)
    manager.directory_failed(move.future.disk, OSError(errno.EIO, "broken"))
    manager.future_replicas.run(move, lambda one: manager.future_replicas.swap(one, lambda log: None))
    await until(lambda: move.is_finished)
    assert [path for path, _ in broker.failures] == [move.future.disk.path]
    assert manager.future_replicas.get(T0) is None and log.future is None
    assert not manager.is_on_offline_directory(T0)
    await append(log, 20, 1)
    await log.truncate_to(5)
    with pytest.raises(KafkaError) as caught:
        await manager.future_replicas.create(log, move.future.disk)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_full_destination_holds_the_copy_back_until_there_is_room(broker: Broker) -> None:
    manager = await broker.start()
    log = await filled(manager)
    move = await begun(broker, log)
    manager.access.directory_full(move.future.disk, OSError(errno.ENOSPC, "no room"))
    moving = asyncio.ensure_future(swapped(broker, move))
    await asyncio.sleep(0.05)
    assert move.lag == 20 and move.failure is None and not move.is_finished
    manager.access.apply(move.future.disk.path, ONLINE)
    assert await read_values(await moving, 0) == values(0, 20)


async def test_a_level_copy_does_not_take_the_logs_place_while_its_directory_is_full(broker: Broker) -> None:
    """Producers would get KAFKA_STORAGE_ERROR for a replica that has room where it is."""
    manager = await broker.start()
    log = await filled(manager)
    move = await begun(broker, log)
    arrived: asyncio.Future[Log] = asyncio.get_running_loop().create_future()
    refused: list[bool] = []

    async def finish(one: FutureReplica) -> bool:
        if not refused:
            manager.access.directory_full(one.future.disk, OSError(errno.ENOSPC, "no room"))
        has_swapped = await manager.future_replicas.swap(one, arrived.set_result)
        refused.append(not has_swapped)
        return has_swapped

    manager.future_replicas.run(move, finish)
    await until(lambda: refused)
    assert refused == [True] and manager.get(T0) is log and not log.is_full
    await append(log, 20, 1)
    manager.access.apply(move.future.disk.path, ONLINE)
    moved = await asyncio.wait_for(arrived, 60)
    assert await read_values(moved, 0) == values(0, 21)
    await manager.future_replicas.cancel(T0)


async def test_a_move_that_waits_for_room_lets_others_make_it(tmp_path: Path) -> None:
    broker = Broker(tmp_path, 3, SMALL_SEGMENTS, LogManagerSettings(num_replica_alter_log_dirs_threads=1))
    manager = await broker.start()
    log = await filled(manager)
    other = await manager.get_or_create(TopicPartition("t", 1), TOPIC_ID, True)
    await append(other, 0, 5)
    full = other.disk
    (roomy,) = [broker.disks[path] for path in broker.paths if path not in (log.disk.path, full.path)]
    waiting = await manager.future_replicas.create(log, full)
    manager.access.directory_full(full, OSError(errno.ENOSPC, "no room"))
    away = await manager.future_replicas.create(other, roomy)
    assert waiting is not None and away is not None
    manager.future_replicas.run(waiting, lambda one: manager.future_replicas.swap(one, lambda log: None))
    arrived: asyncio.Future[Log] = asyncio.get_running_loop().create_future()
    manager.future_replicas.run(away, lambda one: manager.future_replicas.swap(one, arrived.set_result))
    assert (await asyncio.wait_for(arrived, 60)).disk is roomy
    await manager.future_replicas.cancel(other.topic_partition)
    broker.stop()
    await broker.workers.wait_closed()


async def test_a_rate_holds_the_copy_back_and_a_new_one_is_in_force_at_once(broker: Broker) -> None:
    manager = await broker.start()
    log = await filled(manager, 3)
    log.append_as_leader(batch(bytes(400)), 0)
    await written(log)
    move = await begun(broker, log)
    manager.future_replicas.copying.max_bytes_per_second = 10
    pieces: list[int] = []
    manager.future_replicas.copying.on_copied = pieces.append
    moving = asyncio.ensure_future(swapped(broker, move))
    await until(lambda: pieces)
    await asyncio.sleep(0.05)
    assert len(pieces) == 1 and move.lag == 3  # one batch is more than a second's worth
    manager.future_replicas.copying.max_bytes_per_second = 2**63 - 1
    moved = await moving
    assert moved.log_end_offset == 4 and sum(pieces) == log.size_bytes


async def test_checkpoints_speak_of_the_copy_where_it_stands(broker: Broker) -> None:
    manager = await broker.start()
    log = await filled(manager)
    move = await begun(broker, log)
    await manager.future_replicas.copying.copy(move)
    await move.future.flush()
    await manager.checkpoints.write_recovery_points(move.future.disk)
    checkpoint = Path(move.future.disk.path) / "recovery-point-offset-checkpoint"
    assert checkpoint.read_text() == "0\n1\nt 0 20\n"
    await manager.future_replicas.cancel(T0)
    assert checkpoint.read_text() == "0\n0\n"


async def test_a_copy_that_waits_is_not_taken_for_the_log_that_is_made_anew_beside_it(broker: Broker) -> None:
    """The move stood at rate 0 when its source failed: the copy's positions counted as those of the new log, of which
    a start after a crash would have looked at nothing."""
    manager = await broker.start()
    log = await filled(manager)
    move = await begun(broker, log)

    async def not_yet(one: FutureReplica) -> bool:
        return False

    manager.future_replicas.run(move, not_yet)
    await until(lambda: move.lag == 0)
    await move.future.flush()
    manager.future_replicas.copying.max_bytes_per_second = 0
    await append(log, 20, 1)
    target = move.future.disk
    manager.directory_failed(log.disk, OSError(errno.EIO, "broken"))
    anew = await manager.recreate(T0, TOPIC_ID, target.path, is_catching_up=True)
    assert manager.future_replicas.in_progress == [] and anew.future is None
    await append(anew, 0, 1)
    await manager.checkpoints.write_recovery_points(target)
    assert (Path(target.path) / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 0\n"


@pytest.mark.parametrize("is_source", [True, False])
async def test_a_directory_that_fails_while_a_move_begins_refuses_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, is_source: bool
) -> None:
    manager = await broker.start()
    log = await filled(manager)
    create_files = manager.creation.create_files

    async def created(disk: Disk, *arguments: Any) -> Log:
        future = await create_files(disk, *arguments)
        manager.directory_failed(log.disk if is_source else disk, OSError(errno.EIO, "broken"))
        return future

    monkeypatch.setattr(manager.creation, "create_files", created)
    with pytest.raises(KafkaError) as caught:
        await begun(broker, log)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.future_replicas.in_progress == [] and log.future is None


async def test_an_orderly_stop_keeps_the_copy_for_the_next_start(broker: Broker) -> None:
    manager = await broker.start()
    log = await filled(manager)
    move = await begun(broker, log)
    await manager.future_replicas.copying.copy(move)
    await manager.close()
    manager = await broker.restart()
    again = manager.future_replicas.get(T0)
    assert again is not None and manager.progress.recovered == 0 and again.lag == 0
    assert await read_values(await swapped(broker, again), 0) == values(0, 20)


async def test_new_logs_avoid_cordoned_directories_and_go_where_they_were_told(broker: Broker) -> None:
    manager = await broker.start()
    first, second = broker.paths
    manager.cordoned = (second,)
    homes = [(await manager.get_or_create(TopicPartition("a", n), TOPIC_ID, True)).disk.path for n in range(3)]
    assert homes == [first] * 3
    manager.cordoned = ()
    manager.prefer(T0, first)
    assert (await manager.get_or_create(T0, TOPIC_ID, True)).disk.path == first  # though it has three already
    manager.cordoned = (first, second)
    with pytest.raises(KafkaError, match="every log directory that is online and has room is cordoned") as caught:
        await manager.get_or_create(TopicPartition("a", 9), TOPIC_ID, True)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert await manager.get_or_create(T0, TOPIC_ID, False) is manager.get(T0)


async def test_a_topic_with_too_long_a_name_cannot_be_moved(broker: Broker) -> None:
    manager = await broker.start()
    log = await manager.get_or_create(TopicPartition("x" * 240, 0), TOPIC_ID, True)
    with pytest.raises(KafkaError) as caught:
        await begun(broker, log)
    assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


class Cleaner:
    """Remembers what moves ask of the log cleaner."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    async def abort_and_pause(self, partition: TopicPartition) -> None:
        self.asked.append(("pause", partition))

    def resume(self, partition: TopicPartition) -> None:
        self.asked.append(("resume", partition))

    def alter_checkpoint_dir(self, partition: TopicPartition, source: Any, destination: Any) -> None:
        self.asked.append(("moved", source.path, destination.path))


async def test_a_log_is_not_cleaned_while_it_moves(broker: Broker) -> None:
    manager = await broker.start()
    cleaner = manager.future_replicas.cleaning = Cleaner()
    log = await filled(manager)
    await begun(broker, log)
    await manager.future_replicas.cancel(T0)
    assert cleaner.asked == [("pause", T0), ("resume", T0)]
    moved = await swapped(broker, await begun(broker, log))
    assert cleaner.asked[2:] == [("pause", T0), ("moved", log.disk.path, moved.disk.path), ("resume", T0)]
    assert isinstance(log.disk, DirectoryDisk)


async def test_a_log_whose_move_is_refused_is_cleaned_on(tmp_path: Path) -> None:
    broker = Broker(tmp_path, 3, SMALL_SEGMENTS, LogManagerSettings())
    manager = await broker.start()
    cleaner = manager.future_replicas.cleaning = Cleaner()
    log = await filled(manager)
    away, other = [path for path in broker.paths if path != log.disk.path]
    manager.directory_failed(manager.disk(away), OSError(errno.EIO, "gone", away))
    with pytest.raises(KafkaError, match="while a log directory is offline"):
        await manager.future_replicas.create(log, manager.disk(other))
    assert cleaner.asked == [("pause", T0), ("resume", T0)]
    broker.stop()
    await broker.workers.wait_closed()


async def test_a_key_that_was_deleted_stays_so_when_its_log_begins_to_move_while_the_cleaner_looks_for_work(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy had the old value from before the cleaning, the deletion from after it, and counted as clean."""
    broker.config = LogConfig(
        {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0, "min.compaction.lag.ms": 1}
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
    move = await begun(broker, log)
    manager.future_replicas.copying.max_bytes_per_second = 1
    moving = asyncio.ensure_future(swapped(broker, move))
    await until(lambda: move.lag == 1)
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


async def test_a_deleted_key_does_not_come_back_with_the_copy_of_a_move_that_was_given_up(tmp_path: Path) -> None:
    """The destination failed, the log was compacted, its tombstone went, then the destination was back."""
    broker = Broker(tmp_path, 2, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0}, LogManagerSettings())
    manager = await broker.start()
    cleaner = LogCleaner(manager, broker.clock, LoopWorkers(), CleanerSettings, Metrics())
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    for key, value in ((b"gone", b"old"), (b"stays", b"1"), (b"gone", None)):
        log.append_as_leader(keyed((key, value)), 0, is_prepared=True)
        await written(log)
    await close_segment(log)
    move = await begun(broker, log)
    manager.future_replicas.copying.max_bytes_per_second = 100
    manager.future_replicas.run(move, lambda one: manager.future_replicas.swap(one, lambda log: None))
    await until(lambda: move.lag == 1)
    manager.directory_failed(move.future.disk, OSError(errno.EIO, "broken"))
    await until(lambda: move.is_finished)
    for _ in range(2):
        log.append_as_leader(keyed((b"new", b"1")), 0, is_prepared=True)
        await close_segment(log)
        while await cleaner.clean_dirtiest() is not None:
            pass
        broker.clock.wall_ms += DAY_MS
    now_ms = broker.clock.wall_ms
    broker.stop()
    broker.make()
    broker.clock.wall_ms = now_ms
    manager = await broker.start()
    taken_back = manager.future_replicas.get(T0)
    assert taken_back is not None
    moved = await swapped(broker, taken_back)
    assert b"gone" not in [key for _, key, _ in pairs(await consume(moved))]
    broker.stop()
    await broker.workers.wait_closed()
