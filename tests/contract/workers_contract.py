"""The tests that every adapter of the Workers port has to pass. Subclass and provide `workers` (with the jobs of
`ottla_broker.jobs`), `disk`: a Disk over an empty log directory that the jobs reach by `disk.path`, and `at_question`:
`at_question(act)` calls `act` when a question of a job arrives, before it is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ottla_broker.ports.disk import Disk
from ottla_broker.ports.workers import Workers
from ottla_broker.records.record import Record, build_batch
from ottla_broker.storage.cleaner.job import CleanedSegment, CompactionPlan
from ottla_broker.storage.log.recovery import Recovered


async def write_torn_log(disk: Disk, directory: str) -> int:
    """A partition of ten batches and the start of an eleventh; returns the offset after the tenth."""
    await disk.make_directory(directory)
    file = await disk.open(f"{directory}/00000000000000000000.log", create=True)
    for number in range(10):
        await file.append([build_batch([Record(number, 1000 + number, None, b"v%d" % number)])])
    await file.append([build_batch([Record(10, 1010, None, b"torn")])[:-1]])
    await file.close()
    return 10


async def write_keyed_log(disk: Disk, directory: str) -> None:
    """A partition of ten batches of one record each, with two keys."""
    await disk.make_directory(directory)
    file = await disk.open(f"{directory}/00000000000000000000.log", create=True)
    for number in range(10):
        await file.append([build_batch([Record(number, 1000, b"k%d" % (number % 2), b"v%d" % number)])])
    await file.close()


async def plan_of(disk: Disk, directory: str) -> CompactionPlan:
    """A plan that compacts all of it."""
    sizes = {name: size for name, _, size in await disk.list(directory)}
    return CompactionPlan(
        directory=directory,
        segments=[(0, sizes["00000000000000000000.log"])],
        first_dirty=0,
        end=10,
        slots=100,
        marked=10,
        load_factor=0.9,
        now_ms=2000,
        delete_retention_ms=1000,
        segment_bytes=1 << 20,
        segment_index_bytes=1 << 20,
        index_interval_bytes=4096,
        io_buffer_bytes=1 << 16,
        max_decompressed_bytes=1 << 20,
        io_bytes_per_second=0.0,
        last_records={},
        aborted=[],
    )


class WorkersContract:
    async def test_a_job_works_on_the_files_of_its_directory(self, workers: Workers, disk: Disk) -> None:
        end = await write_torn_log(disk, "t-0")
        found = await workers.run("recover-log", disk.path, "t-0", 0, 4096, False)
        assert isinstance(found, Recovered)
        assert (found.next_offset, found.dropped_segments) == (end, 0)
        assert found.cut_bytes > 0
        sizes = {name: size for name, _, size in await disk.list("t-0")}
        assert sizes["00000000000000000000.log"] == found.scanned_bytes - found.cut_bytes
        assert sizes["00000000000000000000.timeindex"] == 12

    async def test_an_exception_of_the_job_reaches_the_caller(self, workers: Workers, disk: Disk) -> None:
        with pytest.raises(FileNotFoundError):
            await workers.run("recover-log", disk.path, "absent-0", 0, 4096, False)

    async def test_an_unknown_job_is_refused_at_once(self, workers: Workers, disk: Disk) -> None:
        with pytest.raises(KeyError):
            workers.run("no-such-job", disk.path)

    async def test_many_jobs_all_end(self, workers: Workers, disk: Disk) -> None:
        names = [f"t-{number}" for number in range(8)]
        for name in names:
            await write_torn_log(disk, name)
        results = await asyncio.gather(*[workers.run("recover-log", disk.path, name, 0, 4096, False) for name in names])
        assert [result.next_offset for result in results] == [10] * 8

    async def test_a_job_that_asks_a_question_gets_the_answer(self, workers: Workers, disk: Disk) -> None:
        await write_keyed_log(disk, "t-0")
        questions = []

        async def answer(question: CleanedSegment) -> list[str]:
            questions.append(question)
            file = await disk.open("t-0/00000000000000000000.log.cleaned")
            assert file.size == question.size
            await file.close()
            return ["t-0/00000000000000000000.log"]

        cleaned = await workers.run("compact-log", disk.path, await plan_of(disk, "t-0"), answer=answer)
        assert [question.bases for question in questions] == [[0]]
        assert (cleaned.end, cleaned.records_read, cleaned.records_kept) == (10, 10, 2)
        assert not await disk.exists("t-0/00000000000000000000.log")

    async def test_an_exception_of_the_answer_ends_the_job_and_the_next_one_runs(
        self, workers: Workers, disk: Disk
    ) -> None:
        await write_keyed_log(disk, "t-0")
        await write_torn_log(disk, "t-1")

        async def answer(question: object) -> object:
            raise ValueError("no such segment")

        with pytest.raises(ValueError, match="no such segment"):
            await workers.run("compact-log", disk.path, await plan_of(disk, "t-0"), answer=answer)
        # At once, while the worker of the failed job ends.
        assert (await workers.run("recover-log", disk.path, "t-1", 0, 4096, False)).next_offset == 10

    async def test_a_question_that_arrives_after_its_job_is_cancelled_is_not_answered(
        self, workers: Workers, disk: Disk, at_question: Callable[[Callable[[], object]], None]
    ) -> None:
        """Who cancels a job relies on it, and may have deleted the files of the question."""
        await write_keyed_log(disk, "t-0")
        await write_torn_log(disk, "t-1")
        questions = []

        async def answer(question: CleanedSegment) -> None:
            questions.append(question)

        at_question(lambda: future.cancel())
        future = workers.run("compact-log", disk.path, await plan_of(disk, "t-0"), answer=answer)
        with pytest.raises(asyncio.CancelledError):
            await future
        assert (await workers.run("recover-log", disk.path, "t-1", 0, 4096, False)).next_offset == 10
        assert questions == []

    async def test_close_cancels_pending_jobs(self, workers: Workers, disk: Disk) -> None:
        await write_torn_log(disk, "t-0")
        future = workers.run("recover-log", disk.path, "t-0", 0, 4096, False)
        workers.close()
        with pytest.raises(asyncio.CancelledError):
            await future
        assert workers.run("recover-log", disk.path, "t-0", 0, 4096, False).cancelled()
