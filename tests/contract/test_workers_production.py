"""The Workers port on child processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.adapters.workers import ProcessWorkers
from ottla_broker.jobs import JOBS
from tests.contract.workers_contract import WorkersContract, write_torn_log


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
        others = children()  # a session's ZooKeeper, say
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
        assert children() == others
        await write_torn_log(disk, "t-0")
        await workers.run("recover-log", disk.path, "t-0", 0, 4096, False)
        assert children() > others
        workers.close()
        await workers.wait_closed()


def children() -> set[psutil.Process]:
    return set(psutil.Process().children())
