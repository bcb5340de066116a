"""Recoveries in worker processes: progress, and how many at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log_dirs import recovery_threads
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from tests.broker.storage.log_dirs.brokers import TOPIC_ID, MakeStorage
from tests.broker.storage.logs import batch, written


async def test_long_tails_are_recovered_in_workers_that_report_progress(
    make_storage: MakeStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_storage(2, segment_bytes=700)
    manager = await broker.start()
    for partition in range(4):
        log = await manager.get_or_create(TopicPartition("t", partition), TOPIC_ID, True)
        for number in range(50):
            log.append_as_leader(batch(b"%d" % number), 0)
        await written(log)
    monkeypatch.setattr(recovery_threads, "_WORKER_RECOVERY_BYTES", 100)
    monkeypatch.setattr(recovery_threads, "_JOB_BYTES", 100)
    monkeypatch.setattr(recovery_threads, "_REPORT_INTERVAL_S", 0.0)
    manager = await broker.restart()
    for partition in range(4):
        again = manager.get(TopicPartition("t", partition))
        assert again is not None and again.state.log_end_offset == 50
    progress = manager.progress
    assert progress.scanned_bytes == progress.tail_bytes > 4 * 50 * 60
    assert sorted(progress.directories) == broker.paths
    for path, one in progress.directories.items():
        assert one.uses_workers and one.scanned_bytes == one.tail_bytes > 2 * 50 * 60
        reported = [line for line in broker.notices if line.startswith(f"recovery of log directory {path}")]
        assert len(reported) > 4, "one line for each part of a log"
        assert any(
            line.startswith(f"log directory {path} was not shut down cleanly: 2 logs") for line in broker.notices
        )


async def test_as_many_recoveries_run_for_each_directory_as_num_recovery_threads_allows(
    make_storage: MakeStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test ends the jobs itself."""
    broker = make_storage(2, settings=LogManagerSettings(num_recovery_threads_per_data_dir=2))
    manager = await broker.start()
    for partition in range(12):
        await manager.get_or_create(TopicPartition("t", partition), TOPIC_ID, True)
    monkeypatch.setattr(recovery_threads, "_WORKER_RECOVERY_BYTES", 0)
    broker.stop()
    broker.create_manager()
    running: list[tuple[str, asyncio.Future[Any]]] = []
    most = dict.fromkeys(broker.paths, 0)
    real = broker.workers.run

    def run(job: str, directory: str, *arguments: Any) -> asyncio.Future[Any]:
        future = real(job, directory, *arguments)
        running.append((directory, future))
        for path in most:
            most[path] = max(most[path], sum(where == path and not one.done() for where, one in running))
        return future

    monkeypatch.setattr(broker.workers, "run", run)
    await broker.start()
    assert len(running) == 12 and most == dict.fromkeys(broker.paths, 2)
