"""The Clock and Network ports on the production loop."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.direct_disk import DirectDisk
from ottla_broker.adapters.network import SocketNetwork
from tests.contract.clock_contract import ClockContract
from tests.contract.network_contract import NetworkContract, Recorder

_LARGEST_BACKLOG = int(Path("/proc/sys/net/core/somaxconn").read_text())
_TCPI_SACKED = 28
"""Offset in struct tcp_info; of a listening socket the limit of its backlog (linux/tcp.h)."""


class TestLoopClock(ClockContract):
    @pytest.fixture
    async def clock(self) -> LoopClock:
        return LoopClock()

    async def test_the_processor_is_given_up_once_before_what_comes_after_answers(
        self, clock: LoopClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done: list[str] = []
        monkeypatch.setattr(os, "sched_yield", lambda: done.append("yield"))
        clock.call_after_answers(done.append, "first")
        clock.call_after_answers(done.append, "second")
        done.append("answer")
        clock.call_soon(done.append, "answer that waits for its flush")
        await clock.sleep(0.01)
        assert done == ["answer", "yield", "answer that waits for its flush", "first", "second"]


class TestSocketNetwork(NetworkContract):
    @pytest.fixture
    async def network(self) -> AsyncIterator[SocketNetwork]:
        network = SocketNetwork()
        yield network
        network.close()

    async def test_clients_that_come_all_at_once_wait_in_the_backlog(self, network: SocketNetwork) -> None:
        """A client that finds the backlog full takes its connection for open, and Linux has forgotten it."""
        listener = await network.listen("127.0.0.1", 0, Recorder, max_frame_bytes=1 << 10)
        watched = next(iter(network._listeners))._socket
        room = struct.unpack_from("I", watched.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), _TCPI_SACKED)[0]
        assert room >= min(1024, _LARGEST_BACKLOG)
        listener.close()

    async def test_ranges_that_are_larger_than_the_socket_buffers_arrive_whole_with_a_turn_behind_each_part(
        self, network: SocketNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A socket that took a part is not tried again before the loop has polled it."""
        sendfile, loop, outcomes = os.sendfile, asyncio.get_running_loop(), list[str]()

        def send(out: int, source: int, offset: int, count: int) -> int:
            outcomes.append("call")
            sent = sendfile(out, source, offset, count)
            if sent < count:
                outcomes.append("part")
                loop.call_soon(outcomes.append, "turn")
            return sent

        monkeypatch.setattr(os, "sendfile", send)
        disk = DirectDisk(str(tmp_path))
        file = await disk.open("a", create=True)
        body = os.urandom(7_000_000)
        await file.append([body])
        client, server = await self.pair(network)
        size = len(body)
        chunks = [struct.pack(">i", 2 * size + 6), b"one", file.range(0, size), b"two", file.range(0, size)]
        client.connection.send(chunks)
        await server.until(lambda s: len(s.frames) == 1)
        assert server.frames[0] == b"one" + body + b"two" + body
        assert "part" in outcomes and ("part", "call") not in pairwise(outcomes)
        await client.until(lambda c: c.sent == 1)
        assert client.connection.unsent_bytes == 0

    async def test_many_small_ranges_are_sent_in_several_turns(
        self, network: SocketNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The answer to a fetch of thousands of partitions; a socket of this machine takes all of it at once."""
        sendfile, loop = os.sendfile, asyncio.get_running_loop()
        turn, calls = 0, Counter[int]()

        def tick() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(tick)

        def send(*arguments: int) -> int:
            calls[turn] += 1
            return sendfile(*arguments)

        monkeypatch.setattr(os, "sendfile", send)
        file = await DirectDisk(str(tmp_path)).open("a", create=True)
        await file.append([b"0123456789"])
        client, server = await self.pair(network)
        tick()
        ranges = [file.range(0, 10) for _ in range(1000)]
        client.connection.send([struct.pack(">i", 10_000), *ranges])
        await server.until(lambda s: len(s.frames) == 1)
        assert server.frames[0] == b"0123456789" * 1000
        assert sum(calls.values()) == 1000
        assert max(calls.values()) <= 256
        await client.until(lambda c: c.sent == 1)

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
