"""Starts that are interrupted, refused, or meet damage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla_broker.storage.log_dirs.log_manager import LogManager
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from tests.broker.storage.log_dirs.brokers import T0, TOPIC_ID, BrokerStorage
from tests.broker.storage.logs import batch, written


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerStorage]:
    made = BrokerStorage(tmp_path, 1, {}, LogManagerSettings())
    yield made
    made.stop()
    await made.workers.wait_closed()


async def _with_log_start(manager: LogManager) -> None:
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    for number in range(10):
        log.append_as_leader(batch(b"%d" % number), 0)
    await written(log)
    log.state.maybe_advance_high_watermark(8)
    await log.retention.advance_log_start_offset(3)
    await manager.checkpoint_high_watermarks()


@pytest.mark.parametrize("begins_to_load", [False, True])
async def test_a_start_that_is_interrupted_writes_no_clean_shutdown_file(
    broker: BrokerStorage, tmp_path: Path, begins_to_load: bool
) -> None:
    """SIGTERM while the logs are loaded, after a kill -9."""
    await _with_log_start(await broker.start())
    broker.stop()
    broker.create_manager()
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
    assert (log.state.log_start_offset, log.state.high_watermark, log.state.log_end_offset) == (3, 8, 10)


async def test_a_broker_that_is_refused_writes_nothing_into_the_directory_of_another(
    broker: BrokerStorage, tmp_path: Path
) -> None:
    await _with_log_start(await broker.start())
    second = BrokerStorage(tmp_path, 1, {}, LogManagerSettings())
    await second.manager.close(7)
    second.stop()
    assert not (tmp_path / "d0" / ".kafka_cleanshutdown").exists()
