"""The Workers port on child processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from ottla_broker.adapters import workers as process_workers
from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.adapters.divided_workers import DividedWorkers
from ottla_broker.adapters.workers import ProcessWorkers
from ottla_broker.jobs import JOBS, PROMPT_JOBS
from ottla_broker.records.batch import read_header
from ottla_broker.records.compression import Codec
from ottla_broker.records.preparation import RecordRules
from ottla_broker.records.record import Record, build_batch
from ottla_broker.storage.log.record_jobs import PREPARE_JOB
from tests.contract.workers_contract import WorkersContract, write_torn_log


@pytest.fixture
def at_question(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    def arrange(act: Callable[[], object]) -> None:
        receive = process_workers._receive

        async def receive_then(process: asyncio.subprocess.Process) -> tuple[bool | None, Any]:
            received = await receive(process)
            if received[0] is None:
                act()
            return received

        monkeypatch.setattr(process_workers, "_receive", receive_then)

    return arrange


class TestProcessWorkers(WorkersContract):
    @pytest.fixture
    async def workers(self) -> AsyncIterator[ProcessWorkers]:
        workers = ProcessWorkers(JOBS, max_processes=2)
        yield workers
        workers.close()
        await workers.wait_closed()

    @pytest.fixture
    async def disk(self, tmp_path: Path) -> AsyncIterator[DirectoryDisk]:
        disk = DirectoryDisk(str(tmp_path))
        yield disk
        disk.close()

    async def test_a_child_that_dies_fails_its_job_and_the_next_job_gets_another(
        self, workers: ProcessWorkers, disk: DirectoryDisk
    ) -> None:
        others = children()  # such as the ZooKeeper of the test session
        await write_torn_log(disk, "t-0")
        await workers.run("recover-log", disk.path, "t-0", 0, 4096, False)
        ours = children() - others
        assert ours
        for child in ours:
            child.kill()
        with pytest.raises(RuntimeError, match="recover-log died"):
            await workers.run("recover-log", disk.path, "t-0", 0, 4096, False)
        found = await workers.run("recover-log", disk.path, "t-0", 0, 4096, False)
        assert found.next_offset == 10

    async def test_no_child_runs_before_the_first_job(self, disk: DirectoryDisk) -> None:
        others = children()
        workers = ProcessWorkers(JOBS)
        assert not children() - others  # a child of an earlier test may end at any time
        await write_torn_log(disk, "t-0")
        await workers.run("recover-log", disk.path, "t-0", 0, 4096, False)
        assert children() - others
        workers.close()
        await workers.wait_closed()


class TestDividedWorkers(WorkersContract):
    @pytest.fixture
    async def workers(self) -> AsyncIterator[DividedWorkers]:
        workers = DividedWorkers(JOBS, PROMPT_JOBS, max_processes=1)
        yield workers
        workers.close()
        await workers.wait_closed()

    @pytest.fixture
    async def disk(self, tmp_path: Path) -> AsyncIterator[DirectoryDisk]:
        disk = DirectoryDisk(str(tmp_path))
        yield disk
        disk.close()

    async def test_a_job_that_a_client_waits_for_does_not_wait_for_long_jobs(
        self, workers: DividedWorkers, disk: DirectoryDisk
    ) -> None:
        for number in range(20):
            await write_torn_log(disk, f"t-{number}")
        long = [workers.run("recover-log", disk.path, f"t-{number}", 0, 4096, False) for number in range(20)]
        batch = bytes(build_batch([Record(0, 1000, b"k", b"v")]))
        rules = tuple(RecordRules(codec=Codec.GZIP))
        is_done, prepared = await workers.run(PREPARE_JOB, disk.path, batch, rules, 1000)
        assert is_done and read_header(prepared).codec == Codec.GZIP
        others = children()
        assert len(others) >= 2, "each kind has a process of its own"
        await asyncio.gather(*long)

    async def test_long_jobs_have_a_lower_priority_when_cores_are_short(
        self, workers: DividedWorkers, disk: DirectoryDisk
    ) -> None:
        others = children()
        await write_torn_log(disk, "t-0")
        await workers.run("recover-log", disk.path, "t-0", 0, 4096, False)
        broker = psutil.Process().nice()
        assert [child.nice() for child in children() - others] == [min(broker + 10, 19)]  # 19 is the maximum
        batch = bytes(build_batch([Record(0, 1000, b"k", b"v")]))
        await workers.run(PREPARE_JOB, disk.path, batch, tuple(RecordRules(codec=Codec.GZIP)), 1000)
        assert sorted(child.nice() for child in children() - others) == [broker, min(broker + 10, 19)]


def children() -> set[psutil.Process]:
    return set(psutil.Process().children())
