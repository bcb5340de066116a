"""The Clock and Network ports on the production loop."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.network import SocketNetwork
from tests.contract.clock_contract import ClockContract
from tests.contract.network_contract import NetworkContract


class TestLoopClock(ClockContract):
    @pytest.fixture
    async def clock(self) -> LoopClock:
        return LoopClock()


class TestSocketNetwork(NetworkContract):
    @pytest.fixture
    async def network(self) -> AsyncIterator[SocketNetwork]:
        network = SocketNetwork()
        yield network
        network.close()
