"""The Coordination port on the embedded store and on a real ZooKeeper."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore
from ottla_broker.coordination.zookeeper import ZooKeeperCoordination
from ottla_broker.ports.coordination import Coordination
from tests.contract.coordination_contract import CoordinationContract

EMBEDDED_TIMEOUT_MS = 1000
"""Of abandoned sessions only."""
ZOOKEEPER_TIMEOUT_MS = 5000
"""A session expires after so long without a message, as may happen on a busy machine."""


class EmbeddedHarness:
    def __init__(self, store: EmbeddedStore) -> None:
        self.store = store

    def new(self) -> Coordination:
        return EmbeddedCoordination(self.store, session_timeout_ms=EMBEDDED_TIMEOUT_MS)

    async def expire(self, coordination: Coordination) -> None:
        self.store.expire_session(coordination.session_id)


class ZooKeeperHarness:
    def __init__(self, server: ZooKeeperServer) -> None:
        self.connect = f"{server.connect}/contract/{uuid.uuid4()}"

    def new(self) -> Coordination:
        return ZooKeeperCoordination(self.connect, session_timeout_ms=ZOOKEEPER_TIMEOUT_MS)

    async def expire(self, coordination: Coordination) -> None:
        # Id and password are enough to attach to a session, and to close it.
        other = self.new()
        await other.start((coordination.session_id, coordination.session_password))
        await other.close()


class TestEmbeddedCoordination(CoordinationContract):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[EmbeddedHarness]:
        store = EmbeddedStore(str(tmp_path / "coordination.sqlite"))
        yield EmbeddedHarness(store)
        await store.close()


@pytest.mark.java
class TestZooKeeperCoordination(CoordinationContract):
    @pytest.fixture
    async def harness(self, zookeeper: ZooKeeperServer) -> AsyncIterator[ZooKeeperHarness]:
        yield ZooKeeperHarness(zookeeper)
        # The threads of abandoned connections may still call the loop before it closes.
        await asyncio.sleep(0)
