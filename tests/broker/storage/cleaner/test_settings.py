"""log.cleaner.threads and log.cleaner.io.max.bytes.per.second: how many logs are cleaned at a time, and how fast."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters.direct_disk import DirectDisk
from ottla_broker.ports.workers import QuestionHandler
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.cleaner.cleaner import CleanerSettings
from ottla_broker.storage.cleaner.job import CleanedSegment, CompactionPlan, CompactionResult, compact_log
from simulation.loop import VirtualTimeLoop
from tests.broker.storage.cleaner.cleaning import TOPIC_ID, Storage, append, close_segment, consume, keyed, pairs

RATE = 10_000.0
"""Bytes per second."""


@pytest.mark.parametrize("threads", [1, 2])
async def test_log_cleaner_threads_logs_are_cleaned_at_a_time(tmp_path: Path, threads: int) -> None:
    storage = Storage(tmp_path, CleanerSettings(threads=threads, backoff_ms=1, dedupe_buffer_size=1 << 20))
    await storage.start()
    logs = [
        await storage.manager.get_or_create(TopicPartition("t", number), TOPIC_ID, True)
        for number in range(2 * threads)
    ]
    for log in logs:
        append(log, keyed((b"k", b"1"), (b"k", b"2")))
        await close_segment(log)
    run = storage.workers.run
    under_way: list[int] = []
    peaks: list[int] = []
    are_enough, all_ended = asyncio.Event(), asyncio.Event()

    def watched(
        job: str, directory: str, *arguments: Any, answer: QuestionHandler | None = None
    ) -> asyncio.Future[Any]:
        async def work() -> Any:
            under_way.append(1)
            peaks.append(len(under_way))
            if len(under_way) == threads:
                are_enough.set()
            await are_enough.wait()
            try:
                return await run(job, directory, *arguments, answer=answer)
            finally:
                under_way.pop()
                if len(peaks) == len(logs) and not under_way:
                    all_ended.set()

        return asyncio.ensure_future(work())

    storage.workers.run = watched
    storage.cleaner.start()
    await all_ended.wait()
    await storage.cleaner.close()
    assert max(peaks) == threads
    for log in logs:
        assert pairs(await consume(log)) == [(1, b"k", b"2")]
    storage.close()


def test_a_compaction_keeps_the_limit_of_bytes_per_second(tmp_path: Path) -> None:
    async def dirty_log() -> CompactionPlan:
        storage = Storage(tmp_path, CleanerSettings(io_max_bytes_per_second=RATE, io_buffer_size=1000))
        plans: list[CompactionPlan] = []

        def caught(
            job: str, directory: str, plan: CompactionPlan, *, answer: QuestionHandler | None = None
        ) -> asyncio.Future[Any]:
            plans.append(plan)
            raise OSError(errno.ENOSPC, "the test runs the job itself")

        storage.workers.run = caught
        log = await storage.start()
        for number in range(200):
            append(log, keyed((b"k%d" % (number % 50), bytes(200))))
        await close_segment(log)
        await storage.cleaner.clean_dirtiest()
        storage.close()
        return plans[0]

    async def stop(question: CleanedSegment) -> None:
        return None

    plan = asyncio.run(dirty_log())
    loop = VirtualTimeLoop()
    disk = DirectDisk(str(tmp_path))
    cleaned: CompactionResult = loop.run_until_complete(compact_log(disk, stop, plan))
    disk.close()
    loop.close()
    moved = cleaned.bytes_read + cleaned.bytes_written
    assert moved > 50_000
    assert loop.time() == pytest.approx(moved / RATE, rel=0.02), "virtual time passes only in the pauses"
