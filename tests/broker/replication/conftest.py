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
    """Three brokers with the topic "orders", led by 1; lag limit 1 s, min.insync.replicas 2."""
    fleet = Fleet(tmp_path, {"replica.lag.time.max.ms": "1000", "min.insync.replicas": "2"})
    await fleet.start(1, 2, 3)
    await fleet.create("orders", (1, 2, 3))
    yield fleet
    fleet.stop()
