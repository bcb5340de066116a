"""What a future log contains while it is copied: truncations, deleted records, old formats, throttling."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from ottla_broker.adapters import disk_calls
from ottla_broker.ports.disk import Buffer
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.records import legacy
from ottla_broker.records.record import Record
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from tests.broker.storage.log_dirs.brokers import T0, TOPIC_ID, BrokerStorage
from tests.broker.storage.log_dirs.moves import (
    SMALL_SEGMENTS,
    append,
    create_future_replica,
    log_with_records,
    run_until_swapped,
    values,
)
from tests.broker.storage.logs import batch, read_bytes, read_values, rolled, until, written


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerStorage]:
    made = BrokerStorage(tmp_path, 2, SMALL_SEGMENTS, LogManagerSettings())
    yield made
    made.stop()
    await made.workers.wait_closed()


async def test_a_truncation_of_the_log_truncates_the_future_log(broker: BrokerStorage) -> None:
    manager = await broker.start()
    log = await log_with_records(manager)
    replica = await create_future_replica(broker, log)
    await broker.manager.future_replicas.copying.copy(replica)
    assert replica.future.state.log_end_offset == 20
    await log.truncation.truncate_to(12)
    assert replica.future.state.log_end_offset == 12
    await append(log, 12, 3, epoch=1)
    moved = await run_until_swapped(broker, replica)
    assert await read_values(moved, 0) == values(0, 15)
    assert [moved.end_of_epoch(epoch) for epoch in (0, 1)] == [(0, 12), (1, 15)]
    await moved.truncation.truncate_fully_and_start_at(40)
    back = await create_future_replica(broker, moved)
    await moved.truncation.truncate_fully_and_start_at(50)
    await append(moved, 50, 1)
    assert await read_values(await run_until_swapped(broker, back), 50) == values(50, 51)


async def test_a_future_log_has_every_record_when_the_log_is_truncated_while_a_copied_one_finds_no_room(
    broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = await broker.start()
    log = await log_with_records(manager, 16)
    replica = await create_future_replica(broker, log)
    await broker.manager.future_replicas.copying.copy(replica)
    await rolled(replica.future)  # else a truncation waits for that
    write_all, may_fail = disk_calls.write_all, threading.Event()

    def write(descriptor: int, buffers: Sequence[Buffer]) -> int:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        if name.endswith(".log") and "-future/" in name:
            may_fail.wait(60)
            raise OSError(errno.ENOSPC, "No space left on device", name)
        return write_all(descriptor, buffers)

    monkeypatch.setattr(disk_calls, "write_all", write)
    await append(log, 16, 4)
    copying = asyncio.ensure_future(broker.manager.future_replicas.copying.copy(replica))
    await until(lambda: replica.future.state.assigned_offset == 20)
    truncating = log.truncation.truncate_to(18)
    await until(lambda: replica.future.state.is_truncating)
    may_fail.set()
    await truncating
    with pytest.raises(KafkaError, match="is full"):
        await copying
    monkeypatch.setattr(disk_calls, "write_all", write_all)
    replica.future.truncation.resume_appends()
    await until(lambda: not replica.future.state.is_full)
    await append(log, 18, 3, epoch=1)
    assert await read_values(await run_until_swapped(broker, replica), 0) == values(0, 21)


async def test_delete_records_reaches_the_future_log_before_it_is_acknowledged(broker: BrokerStorage) -> None:
    manager = await broker.start()
    log = await log_with_records(manager)
    log.state.maybe_advance_high_watermark(20)
    replica = await create_future_replica(broker, log)
    assert log.state.local_low_watermark == 0
    await log.retention.advance_log_start_offset(8)  # the future log is empty: it starts there
    assert (
        log.state.local_low_watermark,
        replica.future.state.log_start_offset,
        replica.future.state.log_end_offset,
    ) == (8, 8, 8)
    await broker.manager.future_replicas.copying.copy(replica)
    await log.retention.advance_log_start_offset(11)
    assert log.state.local_low_watermark == 11
    checkpoint = Path(replica.future.state.disk.path) / "log-start-offset-checkpoint"
    assert checkpoint.read_text() == "0\n1\nt 0 11\n"
    assert await read_values(await run_until_swapped(broker, replica), 11) == values(11, 20)


async def test_a_log_that_starts_in_the_middle_of_a_batch_is_copied(broker: BrokerStorage) -> None:
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    log.append_as_leader(batch(b"0", b"1", b"2", b"3"), 0)
    await append(log, 4, 2)
    log.state.maybe_advance_high_watermark(6)
    await log.retention.advance_log_start_offset(2)
    moved = await run_until_swapped(broker, await create_future_replica(broker, log))
    assert moved.state.log_start_offset == 2
    assert await read_values(moved, 2) == values(2, 6)


@pytest.mark.parametrize("magic", [0, 1])
async def test_a_log_with_an_old_message_format_is_copied(broker: BrokerStorage, magic: int) -> None:
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    old = [Record(offset, 1000 + offset, b"key", b"%d" % offset) for offset in range(20)]
    log.append_as_follower(memoryview(legacy.build_message_set(old, magic)))
    await append(log, 20, 20)
    held = [await read_bytes(log, offset) for offset in (0, 10, 30)]
    moved = await run_until_swapped(broker, await create_future_replica(broker, log))
    assert [await read_bytes(moved, offset) for offset in (0, 10, 30)] == held
    assert moved.state.log_end_offset == 40


async def test_copying_follows_the_throttle_and_a_changed_rate_at_once(broker: BrokerStorage) -> None:
    manager = await broker.start()
    log = await log_with_records(manager, 3)
    log.append_as_leader(batch(bytes(400)), 0)
    await written(log)
    replica = await create_future_replica(broker, log)
    manager.future_replicas.copying.max_bytes_per_second = 10
    pieces: list[int] = []
    manager.future_replicas.copying.on_copied = pieces.append
    moving = asyncio.ensure_future(run_until_swapped(broker, replica))
    await until(lambda: broker.clock.sleeps)
    assert len(pieces) == 1 and replica.lag == 3  # one batch is more than a second's worth
    manager.future_replicas.copying.max_bytes_per_second = 2**63 - 1
    moved = await moving
    assert moved.state.log_end_offset == 4 and sum(pieces) == log.state.size_bytes
