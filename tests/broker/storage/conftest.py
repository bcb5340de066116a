"""The fixtures that the tests of files, logs and log directories share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from tests.broker.storage.log_dirs.brokers import BrokerStorage, MakeStorage
from tests.broker.storage.logs import LogSetup, Make


@pytest.fixture
async def make_storage(tmp_path: Path) -> AsyncIterator[MakeStorage]:
    """Makes the storage of a broker over `count` directories; stopped at the end of the test."""
    brokers: list[BrokerStorage] = []

    def make(count: int = 1, settings: LogManagerSettings | None = None, **config: Any) -> BrokerStorage:
        values = {key.replace("_", "."): value for key, value in config.items()}
        broker = BrokerStorage(tmp_path, count, values, settings or LogManagerSettings())
        brokers.append(broker)
        return broker

    yield make
    for broker in brokers:
        broker.stop()
        await broker.workers.wait_closed()


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes logs in the test's own directory; closed at the end of the test."""
    setups: list[LogSetup] = []

    def make_setup(**config: Any) -> LogSetup:
        setup = LogSetup(str(tmp_path), {key.replace("_", "."): value for key, value in config.items()})
        setups.append(setup)
        return setup

    yield make_setup
    for setup in setups:
        setup.close()


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[LogSetup]:
    """One log in the test's own directory."""
    found = LogSetup(str(tmp_path))
    yield found
    found.close()
