"""Uncleanable logs, full disks, and logs that change during a compaction."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters import disk_calls
from ottla_broker.adapters import workers as process_workers
from ottla_broker.adapters.workers import ProcessWorkers
from ottla_broker.config import TopicValues
from ottla_broker.jobs import JOBS
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.names import RECOVERY_POINTS
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.writes import WriteTracker
from tests.broker.storage.cleaner.cleaning import (
    T0,
    TOPIC_ID,
    Storage,
    append,
    close_segment,
    consume,
    keyed,
    pairs,
)
from tests.broker.storage.logs import until, written

T1 = TopicPartition("t", 1)


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    made = Storage(tmp_path)
    yield made
    made.close()


def _metric(storage: Storage, name: str) -> float:
    children = storage.metrics.families[name].children
    return sum(child.value for child in children.values() if hasattr(child, "value"))


async def two_values(storage: Storage) -> Log:
    """Appends values of one key, a batch each, and closes the segment."""
    log = await storage.start()
    append(log, keyed((b"k", b"1")))
    append(log, keyed((b"k", b"2")))
    await close_segment(log)
    return log


async def test_a_damaged_partition_is_uncleanable_and_the_others_are_cleaned(storage: Storage) -> None:
    log = await storage.start()
    other = await storage.manager.get_or_create(T1, TOPIC_ID, True)
    for one in (log, other):
        append(one, keyed((b"k", b"1")))
        append(one, keyed((b"k", b"2")))
        await close_segment(one)
    file = storage.path / "t-0" / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[-1] ^= 0xFF
    file.write_bytes(data)
    while await storage.cleaner.clean_dirtiest() is not None:
        pass
    assert list(storage.cleaner.uncleanable) == [T0]
    assert "checksum" in storage.cleaner.uncleanable[T0]
    assert pairs(await consume(other)) == [(1, b"k", b"2")]
    assert file.read_bytes() == bytes(data) and not list((storage.path / "t-0").glob("*.cleaned"))
    assert _metric(storage, "kafka_log_logcleanermanager_uncleanable_partitions_count") == 1
    assert _metric(storage, "kafka_log_logcleanermanager_uncleanable_bytes") == len(data)
    assert storage.failures == []
    await storage.manager.delete(T0)
    assert storage.cleaner.uncleanable == {}


async def test_a_segment_that_is_shorter_than_expected_is_damaged(storage: Storage) -> None:
    await two_values(storage)
    file = storage.path / "t-0" / f"{0:020d}.log"
    size = file.stat().st_size
    os.truncate(file, size // 2)
    assert await storage.cleaner.clean_dirtiest() == T0
    assert storage.cleaner.uncleanable == {T0: f"t-0/{file.name}: ends at byte {size // 2} of {size}"}


async def test_a_compaction_waits_when_the_disk_is_full(storage: Storage) -> None:
    log = await storage.start()
    append(log, keyed((b"k", b"1"), (b"k", b"2")))
    await close_segment(log)
    run = storage.workers.run

    def without_room(*arguments: Any, **more: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(OSError(errno.ENOSPC, "No space left on device"))
        return future

    storage.workers.run = without_room
    assert await storage.cleaner.clean_dirtiest() == T0
    assert any("waits" in notice for notice in storage.notices)
    assert storage.failures == [] and storage.cleaner.uncleanable == {}
    assert await storage.cleaner.clean_dirtiest() is None  # not before log.cleaner.backoff.ms
    storage.workers.run = run
    storage.cleaner._not_before.clear()
    await storage.clean(log)
    assert pairs(await consume(log)) == [(1, b"k", b"2")]


async def test_no_segment_is_replaced_without_room_for_the_recovery_points(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recovery from an older checkpoint would take the gaps of compaction for lost records."""
    log = await two_values(storage)
    write_file = disk_calls.write_file

    def without_room(path: str, data: bytes, is_private: bool = False) -> None:
        if Path(path).name == RECOVERY_POINTS:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        write_file(path, data, is_private)

    monkeypatch.setattr(disk_calls, "write_file", without_room)
    assert await storage.cleaner.clean_dirtiest() == T0
    assert pairs(await consume(log)) == [(0, b"k", b"1"), (1, b"k", b"2")]
    assert not [name for name in storage.files() if name.endswith((".cleaned", ".swap", ".deleted"))]
    monkeypatch.setattr(disk_calls, "write_file", write_file)
    storage.cleaner._not_before.clear()
    await storage.clean(log)
    assert pairs(await consume(log)) == [(1, b"k", b"2")]


async def test_a_compaction_ends_without_a_change_when_its_log_is_truncated(storage: Storage) -> None:
    log = await two_values(storage)
    run = storage.workers.run

    def cut_first(*arguments: Any, answer: Any) -> asyncio.Future[Any]:
        async def cut(question: Any) -> Any:
            await log.truncation.truncate_to(1)
            return await answer(question)

        future: asyncio.Future[Any] = run(*arguments, answer=cut)
        return future

    storage.workers.run = cut_first
    assert await storage.cleaner.clean_dirtiest() == T0
    assert pairs(await consume(log)) == [(0, b"k", b"1")]
    assert log.state.clean_offset == 0
    assert not [name for name in storage.files() if name.endswith((".cleaned", ".swap", ".deleted"))]


async def test_a_compaction_removes_nothing_when_its_topic_is_not_compacted_any_more(
    tmp_path: Path,
) -> None:
    storage = Storage(tmp_path, segment_bytes=1000)  # each segment is replaced by itself
    log = await storage.start()
    for value in (b"1", b"2", b"3"):
        append(log, keyed((b"k", value * 600)))
        append(log, keyed((b"k" + value, value * 300)))
        await close_segment(log)
    run, asked = storage.workers.run, 0

    def configure_first(*arguments: Any, answer: Any) -> asyncio.Future[Any]:
        async def configure(question: Any) -> Any:
            nonlocal asked
            asked += 1
            if asked == 2:
                log.configure(LogConfig(TopicValues({"cleanup.policy": "delete"})))
            return await answer(question)

        future: asyncio.Future[Any] = run(*arguments, answer=configure)
        return future

    storage.workers.run = configure_first
    assert await storage.cleaner.clean_dirtiest() == T0
    assert [offset for offset, _, _ in pairs(await consume(log))] == [1, 2, 3, 4, 5], "one segment had been cleaned"
    assert not [name for name in storage.files() if name.endswith((".cleaned", ".swap", ".deleted"))]
    assert storage.cleaner.uncleanable == {}
    storage.close()


@pytest.mark.parametrize(
    ("ending", "left"),
    [
        (".index.swap", [(0, b"k", b"1"), (1, b"k", b"2")]),
        (".log.swap", [(0, b"k", b"1"), (1, b"k", b"2")]),
        (".log.deleted", [(1, b"k", b"2")]),
        (".index.deleted", [(1, b"k", b"2")]),
    ],
)
async def test_a_replacement_without_room_for_a_name_leaves_the_old_or_the_new_segments(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, ending: str, left: list[Any]
) -> None:
    log = await two_values(storage)
    rename = os.rename

    def refuse(old: str, new: str) -> None:
        if new.endswith(ending):
            raise OSError(errno.ENOSPC, "No space left on device", new)
        rename(old, new)

    monkeypatch.setattr(os, "rename", refuse)
    assert await storage.cleaner.clean_dirtiest() == T0
    assert pairs(await consume(log)) == left
    assert storage.failures == [] and storage.cleaner.uncleanable == {}
    assert not [name for name in storage.files() if name.endswith((".cleaned", ".swap", ".deleted"))]
    monkeypatch.setattr(os, "rename", rename)
    log = await storage.again()
    assert pairs(await consume(log)) == left
    log.state.maybe_advance_high_watermark(log.state.log_end_offset)
    await storage.clean(log)
    assert pairs(await consume(log)) == [(1, b"k", b"2")]


async def test_a_log_that_is_being_truncated_is_not_selected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its segments are those before the truncation: a key would be replaced by a record that the truncation drops."""
    storage = Storage(tmp_path, segment_bytes=1000)  # too small for both segments in one
    log = await storage.start()
    append(log, keyed((b"k", b"1" * 600)))
    await close_segment(log)
    append(log, keyed((b"j", b"1" * 600)))
    append(log, keyed((b"k", b"2")))
    await close_segment(log)
    wait, may_go_on = WriteTracker.wait_until_written, asyncio.Event()

    async def wait_longer(self: WriteTracker) -> None:
        await may_go_on.wait()
        await wait(self)

    run = storage.workers.run

    def go_on_first(*arguments: Any, answer: Any) -> asyncio.Future[Any]:
        async def ask(question: Any) -> Any:
            may_go_on.set()
            return await answer(question)

        future: asyncio.Future[Any] = run(*arguments, answer=ask)
        return future

    monkeypatch.setattr(WriteTracker, "wait_until_written", wait_longer)
    storage.workers.run = go_on_first
    cutting = log.truncation.truncate_to(2)
    await asyncio.sleep(0)
    assert log.state.is_truncating
    await storage.cleaner.clean_dirtiest()
    may_go_on.set()
    await cutting
    assert pairs(await consume(log)) == [(0, b"k", b"1" * 600), (1, b"j", b"1" * 600)]
    storage.close()


async def test_a_log_stays_cleanable_when_a_job_reads_what_a_truncation_removed(storage: Storage) -> None:
    log = await two_values(storage)
    run = storage.workers.run

    def cut_first(*arguments: Any, answer: Any) -> asyncio.Future[Any]:
        async def work() -> Any:
            await log.truncation.truncate_to(1)
            return await run(*arguments, answer=answer)

        return asyncio.ensure_future(work())

    storage.workers.run = cut_first
    assert await storage.cleaner.clean_dirtiest() == T0
    assert storage.cleaner.uncleanable == {}
    storage.workers.run = run
    append(log, keyed((b"k", b"3")))
    await close_segment(log)
    storage.cleaner._not_before.clear()
    await storage.clean(log)
    assert pairs(await consume(log)) == [(1, b"k", b"3")]


async def test_a_log_stays_cleanable_when_retention_deletes_what_was_selected(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The selection goes on to other logs, whose time indexes it reads."""
    log = await two_values(storage)
    select = storage.cleaner._select

    async def select_and_delete() -> Any:
        chosen = await select()
        await log.retention.advance_log_start_offset(2)
        await log.retention.delete_old_segments()
        return chosen

    monkeypatch.setattr(storage.cleaner, "_select", select_and_delete)
    await storage.cleaner.clean_dirtiest()
    monkeypatch.setattr(storage.cleaner, "_select", select)
    assert storage.cleaner.uncleanable == {} and storage.notices == []
    append(log, keyed((b"k", b"3")))
    append(log, keyed((b"k", b"4")))
    await storage.clean(log)
    assert pairs(await consume(log)) == [(3, b"k", b"4")]


async def test_no_segment_is_replaced_once_the_cleaning_of_its_log_is_paused(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has asked for the replacement, and a replica is moved to another log directory: the files of the
    cleaned segment are deleted while they would be renamed."""
    log = await two_values(storage)
    workers = ProcessWorkers(JOBS)
    storage.workers.run = workers.run
    receive, pauses = process_workers._receive, []

    async def pause_then(process: asyncio.subprocess.Process) -> tuple[bool | None, Any]:
        received = await receive(process)
        if received[0] is None:
            pauses.append(asyncio.ensure_future(storage.cleaner.abort_and_pause(T0)))
            await asyncio.sleep(0)  # it begins
        return received

    monkeypatch.setattr(process_workers, "_receive", pause_then)
    storage.cleaner.start()
    await until(lambda: pauses)
    await pauses[0]
    workers.close()
    await workers.wait_closed()
    assert pairs(await consume(log)) == [(0, b"k", b"1"), (1, b"k", b"2")]
    assert storage.failures == []
    assert not [name for name in storage.files() if name.endswith((".cleaned", ".swap", ".deleted"))]


async def test_consumers_continue_while_segments_are_replaced(storage: Storage) -> None:
    log = await storage.start()
    for number in range(200):
        append(log, keyed((b"k%d" % (number % 20), b"%d" % number * 30)))
        if number % 10 == 9:
            await close_segment(log)
    reading = [asyncio.ensure_future(consume(log, offset)) for offset in range(0, 180, 9)]
    await storage.clean(log)
    for read in reading:
        seen = pairs(await read)
        assert [one[0] for one in seen][-20:] == list(range(180, 200))


async def test_a_read_waits_for_the_replacement_of_its_segment_while_another_one_is_opened(
    storage: Storage,
) -> None:
    """Else the read finds a listed segment gone and takes that for a failed disk."""
    log = await storage.start()
    for value in (b"1", b"2", b"3"):
        append(log, keyed((b"k", value)))
        await close_segment(log)
    first, second = log.state.segments[:2]
    async with second.lock:  # somebody is opening it
        cleaning = asyncio.ensure_future(storage.clean(log))
        await until(lambda: first.is_gone or first.lock.locked())
        reading = asyncio.ensure_future(consume(log, 0))
        await asyncio.wait([reading], timeout=0.1)
    await cleaning
    assert pairs(await reading) == [(2, b"k", b"3")]
    assert storage.failures == []


async def test_records_that_a_crash_left_unflushed_are_flushed_and_then_cleaned(storage: Storage) -> None:
    log = await storage.start()
    append(log, keyed((b"k", b"1"), (b"k", b"2")))
    await close_segment(log)
    append(log, keyed((b"j", b"1")))
    await written(log)
    log = await storage.again()
    log.state.maybe_advance_high_watermark(log.state.log_end_offset)
    assert log.state.recovery_point == 0
    await storage.cleaner.clean_dirtiest()
    await asyncio.wait(list(storage.cleaner._flushing.values()))
    assert await storage.cleaner.clean_dirtiest() == T0
    assert pairs(await consume(log)) == [(1, b"k", b"2"), (2, b"j", b"1")]


async def test_records_above_the_high_watermark_are_not_cleaned(storage: Storage) -> None:
    log = await storage.start()
    append(log, keyed((b"k", b"1")))
    await close_segment(log)
    append(log, keyed((b"k", b"2")))
    log.flusher.roll()
    await log.flusher.flush()
    while await storage.cleaner.clean_dirtiest() is not None:
        pass
    assert pairs(await consume(log)) == [(0, b"k", b"1"), (1, b"k", b"2")]
    assert log.state.clean_offset == 1
