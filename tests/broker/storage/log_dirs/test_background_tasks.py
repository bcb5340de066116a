"""The periodic work on the logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from tests.broker.storage.log_dirs.brokers import BrokerStorage


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerStorage]:
    made = BrokerStorage(tmp_path, 1, {}, LogManagerSettings())
    yield made
    made.stop()
    await made.workers.wait_closed()


async def test_a_background_task_runs_again_after_it_has_failed(broker: BrokerStorage) -> None:
    failures: list[str] = []
    broker.clock.on_task_failure = lambda name, error: failures.append(str(error))
    done = asyncio.Event()

    async def work() -> None:
        if not failures:
            raise ValueError("one bad log")
        done.set()

    manager = await broker.start()
    manager.background_tasks._every(1, work)
    async with asyncio.timeout(60):
        await done.wait()
    assert failures == ["one bad log"]
