"""Fixtures of fleets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.replication.fleet import Fleet


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Fleet]:
    """One broker with the topic "orders" of two partitions."""
    fleet = Fleet(tmp_path)
    await fleet.start(1)
    await fleet.create("orders", (1,), partitions=2)
    yield fleet
    fleet.stop()


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Three brokers with the topic "orders", led by 1; min.insync.replicas 2. Nobody leaves an ISR for want of time."""
    fleet = await _three(tmp_path, lag_ms=3_600_000)
    yield fleet
    fleet.stop()


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[Fleet]:
    """As `three`, with a lag limit of one second: for those who wait until somebody has left an ISR."""
    fleet = await _three(tmp_path, lag_ms=1000)
    yield fleet
    fleet.stop()


async def _three(directory: Path, *, lag_ms: int) -> Fleet:
    fleet = Fleet(directory, {"replica.lag.time.max.ms": str(lag_ms), "min.insync.replicas": "2"})
    await fleet.start(1, 2, 3)
    await fleet.create("orders", (1, 2, 3))
    return fleet
