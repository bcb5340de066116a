"""The Clock and Network ports on the production loop."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.direct_disk import DirectDisk
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

    async def test_a_range_that_is_truncated_before_it_is_sent_closes_the_connection(
        self, network: SocketNetwork, tmp_path: Path
    ) -> None:
        """Otherwise the peer would get the bytes that are written there next."""
        disk = DirectDisk(str(tmp_path))
        file = await disk.open("a", create=True)
        size = 12_000_000  # more than the socket buffers hold
        await file.append([b"x" * size])
        client, server = await self.pair(network)
        server.connection.pause()
        client.connection.send([struct.pack(">i", size), file.range(0, size)])
        assert client.connection.unsent_bytes > 0
        await file.truncate(size - 10)
        await file.append([b"y" * 10])
        server.connection.resume()
        await client.until(lambda c: c.reason is not None)
        assert client.reason == "the bytes to be sent have been truncated"
        await server.until(lambda s: s.reason is not None)
        assert server.frames == []
        await file.close()
        disk.close()
