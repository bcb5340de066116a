"""Future replicas (KIP-113): creation, cancellation, restarts, failing and full directories."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.ports.disk import Disk
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.future_replicas import FutureReplica
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from ottla_broker.storage.log_dirs.states import ONLINE
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


async def test_copying_resumes_after_a_crash(broker: BrokerStorage) -> None:
    manager = await broker.start()
    log = await log_with_records(manager, 50)
    replica = await create_future_replica(broker, log)
    manager.future_replicas.copying.max_bytes_per_second = 1
    manager.future_replicas.run(replica, lambda one: manager.future_replicas.swap(one, lambda log: None))
    await until(lambda: replica.future.state.log_end_offset)
    copied = replica.future.state.log_end_offset
    manager = await broker.restart()
    again = manager.future_replicas.get(T0)
    assert again is not None and again.current is manager.get(T0) and again.current.state.future is again.future
    assert copied <= again.future.state.log_end_offset < 50
    assert await read_values(await run_until_swapped(broker, again), 0) == values(0, 50)


async def test_copying_starts_again_after_a_crash_when_the_future_log_has_other_records(broker: BrokerStorage) -> None:
    """A power loss may take records from the current log that the future log has: it gets others at these offsets."""
    manager = await broker.start()
    log = await log_with_records(manager)
    replica = await create_future_replica(broker, log)
    await manager.future_replicas.copying.copy(replica)
    replica.current.state.future = None  # the future replica is not truncated, as after a power loss
    await log.truncation.truncate_to(11)
    log.append_as_leader(batch(b"other", timestamp=1), 1)
    await written(log)
    manager = await broker.restart()
    again = manager.future_replicas.get(T0)
    assert again is not None and again.future.state.log_end_offset == 0  # same end, other records: copied again
    assert (await read_values(await run_until_swapped(broker, again), 0))[10:] == [(10, b"10"), (11, b"other")]


async def test_copying_starts_again_after_a_crash_when_the_future_log_starts_later(broker: BrokerStorage) -> None:
    """Records were being deleted, and only the future log had its new log start offset on the disk."""
    manager = await broker.start()
    log = await log_with_records(manager)
    replica = await create_future_replica(broker, log)
    await replica.future.retention.start_at(10)
    await manager.future_replicas.copying.copy(replica)
    manager = await broker.restart()
    again = manager.future_replicas.get(T0)
    assert again is not None
    moved = await run_until_swapped(broker, again)
    assert moved.state.log_start_offset == 0 and await read_values(moved, 0) == values(0, 20)


async def test_copying_resumes_after_a_clean_shutdown(broker: BrokerStorage) -> None:
    manager = await broker.start()
    log = await log_with_records(manager)
    replica = await create_future_replica(broker, log)
    await manager.future_replicas.copying.copy(replica)
    await manager.close()
    manager = await broker.restart()
    again = manager.future_replicas.get(T0)
    assert again is not None and manager.progress.recovered == 0 and again.lag == 0
    assert await read_values(await run_until_swapped(broker, again), 0) == values(0, 20)


async def test_a_deletion_of_the_partition_deletes_its_future_log(broker: BrokerStorage) -> None:
    manager = await broker.start()
    log = await log_with_records(manager)
    replica = await create_future_replica(broker, log)
    manager.future_replicas.copying.max_bytes_per_second = 1
    manager.future_replicas.run(replica, lambda one: manager.future_replicas.swap(one, lambda log: None))
    await until(lambda: replica.lag < 20)
    await manager.delete(T0)
    assert replica.is_finished and manager.future_replicas.get(T0) is None
    await until(lambda: not any(directories(path) for path in broker.paths))


async def test_a_future_replica_is_cancelled_by_another_destination_and_by_the_current_directory(
    tmp_path: Path,
) -> None:
    broker = BrokerStorage(tmp_path, 3, SMALL_SEGMENTS, LogManagerSettings())
    manager = await broker.start()
    log = await log_with_records(manager)
    first, second = (broker.disks[path] for path in broker.paths if path != log.state.disk.path)
    replica = await manager.future_replicas.create(log, first)
    assert replica is not None and await manager.future_replicas.create(log, first) is replica
    other = await manager.future_replicas.create(log, second)
    assert (
        other is not None
        and other.future.state.disk is second
        and replica.is_finished
        and log.state.future is other.future
    )
    assert [replica.future for replica in manager.future_replicas.in_progress] == [other.future]
    assert await manager.future_replicas.create(log, log.state.disk) is None
    assert manager.future_replicas.in_progress == [] and log.state.future is None
    await append(log, 20, 1)
    broker.stop()
    await broker.workers.wait_closed()


async def test_the_replica_stays_online_when_the_directory_of_its_future_log_fails(broker: BrokerStorage) -> None:
    manager = await broker.start()
    log = await log_with_records(manager)
    replica = await create_future_replica(broker, log)
    manager.directory_failed(replica.future.state.disk, OSError(errno.EIO, "broken"))
    manager.future_replicas.run(replica, lambda one: manager.future_replicas.swap(one, lambda log: None))
    await until(lambda: replica.is_finished)
    assert [path for path, _ in broker.failures] == [replica.future.state.disk.path]
    assert manager.future_replicas.get(T0) is None and log.state.future is None
    assert not manager.is_on_offline_directory(T0)
    await append(log, 20, 1)
    await log.truncation.truncate_to(5)
    with pytest.raises(KafkaError) as caught:
        await manager.future_replicas.create(log, replica.future.state.disk)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_copying_waits_while_the_directory_of_the_future_log_is_full(broker: BrokerStorage) -> None:
    manager = await broker.start()
    log = await log_with_records(manager)
    replica = await create_future_replica(broker, log)
    manager.access.directory_full(replica.future.state.disk, OSError(errno.ENOSPC, "no room"))
    moving = asyncio.ensure_future(run_until_swapped(broker, replica))
    await until(lambda: broker.clock.sleeps)
    assert replica.lag == 20 and replica.failure is None and not replica.is_finished
    manager.access.apply(replica.future.state.disk.path, ONLINE)
    assert await read_values(await moving, 0) == values(0, 20)


async def test_a_future_replica_that_waits_for_room_leaves_its_thread_to_others(tmp_path: Path) -> None:
    broker = BrokerStorage(tmp_path, 3, SMALL_SEGMENTS, LogManagerSettings(num_replica_alter_log_dirs_threads=1))
    manager = await broker.start()
    log = await log_with_records(manager)
    other = await manager.get_or_create(TopicPartition("t", 1), TOPIC_ID, True)
    await append(other, 0, 5)
    full = other.state.disk
    (roomy,) = [broker.disks[path] for path in broker.paths if path not in (log.state.disk.path, full.path)]
    waiting = await manager.future_replicas.create(log, full)
    manager.access.directory_full(full, OSError(errno.ENOSPC, "no room"))
    away = await manager.future_replicas.create(other, roomy)
    assert waiting is not None and away is not None
    manager.future_replicas.run(waiting, lambda one: manager.future_replicas.swap(one, lambda log: None))
    arrived: asyncio.Future[Log] = asyncio.get_running_loop().create_future()
    manager.future_replicas.run(away, lambda one: manager.future_replicas.swap(one, arrived.set_result))
    assert (await asyncio.wait_for(arrived, 60)).state.disk is roomy
    await manager.future_replicas.cancel(other.state.topic_partition)
    broker.stop()
    await broker.workers.wait_closed()


async def test_checkpoints_have_the_positions_of_the_recreated_log_beside_a_future_log(broker: BrokerStorage) -> None:
    """Copying was stopped at rate 0 when the source failed: the checkpoint had the positions of the future log for the
    recreated one, which no start would have recovered."""
    manager = await broker.start()
    log = await log_with_records(manager)
    replica = await create_future_replica(broker, log)

    async def not_yet(one: FutureReplica) -> bool:
        return False

    manager.future_replicas.run(replica, not_yet)
    await until(lambda: replica.lag == 0)
    await replica.future.flusher.flush()
    manager.future_replicas.copying.max_bytes_per_second = 0
    await append(log, 20, 1)
    target = replica.future.state.disk
    manager.directory_failed(log.state.disk, OSError(errno.EIO, "broken"))
    recreated = await manager.recreate(T0, TOPIC_ID, target.path, is_catching_up=True)
    assert manager.future_replicas.in_progress == [] and recreated.state.future is None
    await append(recreated, 0, 1)
    await manager.checkpoints.write_recovery_points(target)
    assert (Path(target.path) / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 0\n"


@pytest.mark.parametrize("is_source", [True, False])
async def test_no_future_replica_is_created_when_a_directory_fails_meanwhile(
    broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch, is_source: bool
) -> None:
    manager = await broker.start()
    log = await log_with_records(manager)
    create_files = manager.creation.create_files

    async def created(disk: Disk, *arguments: Any) -> Log:
        future = await create_files(disk, *arguments)
        manager.directory_failed(log.state.disk if is_source else disk, OSError(errno.EIO, "broken"))
        return future

    monkeypatch.setattr(manager.creation, "create_files", created)
    with pytest.raises(KafkaError) as caught:
        await create_future_replica(broker, log)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.future_replicas.in_progress == [] and log.state.future is None


async def test_a_topic_with_a_very_long_name_cannot_be_moved(broker: BrokerStorage) -> None:
    manager = await broker.start()
    log = await manager.get_or_create(TopicPartition("x" * 240, 0), TOPIC_ID, True)
    with pytest.raises(KafkaError) as caught:
        await create_future_replica(broker, log)
    assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_checkpoints_have_the_positions_of_the_future_log_in_its_directory(broker: BrokerStorage) -> None:
    manager = await broker.start()
    log = await log_with_records(manager)
    replica = await create_future_replica(broker, log)
    await manager.future_replicas.copying.copy(replica)
    await replica.future.flusher.flush()
    await manager.checkpoints.write_recovery_points(replica.future.state.disk)
    checkpoint = Path(replica.future.state.disk.path) / "recovery-point-offset-checkpoint"
    assert checkpoint.read_text() == "0\n1\nt 0 20\n"
    await manager.future_replicas.cancel(T0)
    assert checkpoint.read_text() == "0\n0\n"
