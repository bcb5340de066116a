"""Starts, deletions and truncations that meet or are interrupted: what must hold even then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK
from ottla_broker.records.ids import TopicPartition
from ottla_broker.records.record import Record, build_batch
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.log_dirs.log_manager import LogManager
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from tests.broker.storage.logs import LogSetup, batch, read_values, written
from tests.broker.storage.test_log_manager import T0, TOPIC_ID, Broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    made = Broker(tmp_path, 1, {}, LogManagerSettings())
    yield made
    made.stop()
    await made.workers.wait_closed()


async def _with_log_start(manager: LogManager) -> None:
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    for number in range(10):
        log.append_as_leader(batch(b"%d" % number), 0)
    await written(log)
    log.maybe_advance_high_watermark(8)
    await log.advance_log_start_offset(3)
    await manager.checkpoint_high_watermarks()


@pytest.mark.parametrize("begins_to_load", [False, True])
async def test_a_start_that_is_given_up_vouches_for_nothing(
    broker: Broker, tmp_path: Path, begins_to_load: bool
) -> None:
    """SIGTERM while the logs are loaded, after a kill -9."""
    await _with_log_start(await broker.start())
    broker.stop()
    broker.make()
    await broker.manager.inspect()
    await broker.manager.claim(1, "cluster-A")
    if begins_to_load:
        loading = asyncio.ensure_future(broker.manager.load())
        await asyncio.sleep(0)
        loading.cancel()
    await broker.manager.close(7)
    assert not (tmp_path / "d0" / ".kafka_cleanshutdown").exists()
    manager = await broker.restart()
    log = manager.get(T0)
    assert log is not None and manager.progress.recovered == 1
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (3, 8, 10)


async def test_a_broker_that_was_refused_leaves_no_mark_in_anothers_directory(broker: Broker, tmp_path: Path) -> None:
    await _with_log_start(await broker.start())
    second = Broker(tmp_path, 1, {}, LogManagerSettings())
    await second.manager.close(7)
    second.stop()
    assert not (tmp_path / "d0" / ".kafka_cleanshutdown").exists()


async def test_a_deletion_during_a_flush_leaves_the_directory_in_service(broker: Broker) -> None:
    """The flush must not go on in a directory that has another name by now: a failed write there fails them all."""
    broker.config = type(broker.config)({"segment.bytes": 200})
    manager = await broker.start()
    other = await manager.get_or_create(TopicPartition("other", 0), TOPIC_ID, True)
    for _ in range(20):
        log = await manager.get_or_create(T0, TOPIC_ID, True)
        for number in range(5):
            log.append_as_leader(batch(b"%d" % number), number)
        flushing = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        await manager.delete(T0)
        await asyncio.wait([flushing])
        flushing.exception()
        other.append_as_leader(batch(b"v"), 0)
        await written(other)
    assert broker.failures == []


async def test_a_log_cut_below_its_start_keeps_what_follows_over_a_restart(tmp_path: Path) -> None:
    """An unclean election may cut a follower below the offset to which records had been deleted."""
    setup = LogSetup(str(tmp_path))
    log = await setup.open()
    for number in range(10):
        log.append_as_leader(batch(b"%d" % number), 0)
    await written(log)
    log.maybe_advance_high_watermark(10)
    await log.advance_log_start_offset(8)
    await log.truncate_to(5)
    assert log.log_start_offset <= log.log_end_offset == 5
    for number in range(2):
        log.append_as_leader(batch(b"new %d" % number), 1)
    await written(log)
    start = log.log_start_offset
    await log.close()
    setup.crash()
    log = await setup.open(log_start_offset=start)
    assert await read_values(log, 5) == [(5, b"new 0"), (6, b"new 1")]
    assert setup.owner.log_start_checkpoints
    setup.close()


@pytest.mark.parametrize("what", ["sync", "make_ready", "close"])
async def test_a_segment_whose_files_have_just_been_opened_opens_none_twice_and_closes_all(
    tmp_path: Path, what: str
) -> None:
    """In the turn of the loop between the opening of its files and the callback by which the segment hears of it."""
    disk = DirectoryDisk(str(tmp_path))
    await disk.make_directory("t-0")
    segment = Segment(disk, "t-0", 0, 0, 0, 0)
    segment.start()
    write = segment.append((memoryview(b"record"),), lambda _: None)
    opening: Any = segment._opening
    await opening._children[-1]  # after the last of them, before the segment's own callback
    assert opening.done() and segment.file is None
    await getattr(segment, what)()
    await write
    await disk.exists("t-0")  # the lane has done all that was asked of it before
    assert (segment.file is None) == (what == "close")
    assert len(disk._descriptors) == (0 if what == "close" else 1)
    disk.close()


async def test_a_marker_that_cannot_be_read_leaves_nothing_of_its_fetch_behind(tmp_path: Path) -> None:
    """Offsets given to the batch before it, whose bytes are then never written, would stop the follower for good."""
    setup = LogSetup(str(tmp_path))
    log = await setup.open()
    record = Record(1, 1, b"\x00", b"\x00")
    attributes = CONTROL_MASK | TRANSACTIONAL_MASK
    marker = build_batch([record], attributes=attributes, producer_id=5, producer_epoch=0)
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(memoryview(bytes(batch(b"a")) + bytes(marker)))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.assigned_offset == 0
    log.append_as_follower(batch(b"a"))
    await written(log)
    assert await read_values(log, 0) == [(0, b"a")]
    setup.close()


async def test_a_write_that_fails_for_no_reason_of_the_disk_fails_the_directory_all_the_same(tmp_path: Path) -> None:
    """A lane whose thread ended would leave a broker that leads, is in the ISR, and never answers."""
    disk = DirectoryDisk(str(tmp_path))
    file = await disk.open("f", create=True)
    nothing: Any = None
    for buffers in ([nothing], [b"x"]):
        async with asyncio.timeout(60):
            with pytest.raises(OSError):
                await file.append(buffers)
    assert await disk.exists("f")
    disk.close()


async def test_a_chore_that_failed_once_is_done_again(broker: Broker) -> None:
    failures: list[str] = []
    broker.clock.on_task_failure = lambda name, error: failures.append(str(error))
    done = asyncio.Event()

    async def chore() -> None:
        if not failures:
            raise ValueError("one bad log")
        done.set()

    manager = await broker.start()
    manager.background_tasks._every(1, chore)
    async with asyncio.timeout(60):
        await done.wait()
    assert failures == ["one bad log"]
