"""The tests that every adapter of the Network port has to pass. Subclass and provide the `network` fixture."""

from __future__ import annotations

import asyncio
import os
import struct
from functools import partial
from typing import Any

import pytest

from ottla_broker.ports.network import Connection, Network, ReceiveLimits


class Recorder:
    """A handler that records its calls; frames are copied because their buffers are reused."""

    def __init__(self, connection: Connection, *, echo: bool = False, pause_after: int | None = None) -> None:
        self.connection = connection
        self.frames: list[bytes] = []
        self.kept: list[memoryview] = []
        self.reason: str | None = None
        self.sent = 0
        self.echo = echo
        self.pause_after = pause_after
        self.changed = asyncio.Event()

    def on_frame(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self.kept.append(frame)
        if self.echo:
            self.connection.send([struct.pack(">i", len(frame)), frame])
        if self.pause_after is not None and len(self.frames) == self.pause_after:
            self.connection.pause()
        self.changed.set()

    def on_sent(self) -> None:
        self.sent += 1
        self.changed.set()

    def on_close(self, reason: str) -> None:
        assert self.reason is None, "on_close came twice"
        self.reason = reason
        self.changed.set()

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(60):
            while not condition(self):
                self.changed.clear()
                await self.changed.wait()


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class BytesRange:
    """A FileRange of bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.length = len(data)
        self.released = 0

    def read(self) -> bytes:
        return self._data

    def release(self) -> None:
        self.released += 1


LARGEST = 1 << 20


def limits(limit_bytes: int = 2 << 20, longest_s: float = 60.0) -> ReceiveLimits:
    """Frames that begin with "!" may use all of it, others three quarters."""
    return ReceiveLimits(
        "queued.max.request.bytes",
        limit_bytes,
        0.75,
        lambda start, length: 1.0 if bytes(start[:1]) == b"!" else 0.75,
        longest_s,
    )


class Watch:
    """Looks at `received_bytes` in each turn of the loop."""

    def __init__(self, network: Network) -> None:
        self.highest = 0
        self._network = network
        self._looked = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        while True:
            self.highest = max(self.highest, self._network.received_bytes)
            self._looked.set()
            await asyncio.sleep(0.001)

    async def reached(self, size: int) -> None:
        """So much is held."""
        async with asyncio.timeout(60):
            while self.highest < size:
                self._looked.clear()
                await self._looked.wait()

    def stop(self) -> None:
        self._task.cancel()


def _take(recorder: Recorder, frame: memoryview) -> None:
    recorder.frames.append(bytes(frame))
    recorder.changed.set()


class NetworkContract:
    """The tests. `host` is where the adapter can listen."""

    host = "127.0.0.1"

    async def pair(self, network: Network, max_frame_bytes: int = 1 << 24, **options: Any) -> tuple[Recorder, Recorder]:
        accepted: asyncio.Future[Recorder] = asyncio.get_running_loop().create_future()

        def serve(connection: Connection) -> Recorder:
            recorder = Recorder(connection, **options)
            accepted.set_result(recorder)
            return recorder

        listener = await network.listen(self.host, 0, serve, max_frame_bytes=max_frame_bytes)
        clients: list[Recorder] = []

        def called(connection: Connection) -> Recorder:
            clients.append(Recorder(connection))
            return clients[0]

        await network.connect(self.host, listener.port, called, timeout_s=60, max_frame_bytes=1 << 24)
        return clients[0], await accepted

    async def test_a_connection_to_a_paused_listener_waits_until_it_resumes(self, network: Network) -> None:
        accepted: list[Recorder] = []
        came = asyncio.Event()

        def serve(connection: Connection) -> Recorder:
            accepted.append(Recorder(connection))
            listener.pause()  # one at a time
            came.set()
            return accepted[-1]

        listener = await network.listen(self.host, 0, serve, max_frame_bytes=1 << 10)
        clients: list[Recorder] = []

        def called(connection: Connection) -> Recorder:
            clients.append(Recorder(connection))
            return clients[-1]

        for number in range(3):
            await network.connect(self.host, listener.port, called, timeout_s=60, max_frame_bytes=1 << 10)
            clients[number].connection.send([framed(b"%d" % number)])
        for number in range(3):
            await came.wait()
            came.clear()
            await accepted[number].until(lambda recorder: len(recorder.frames) == 1)
            assert (len(accepted), accepted[number].frames) == (number + 1, [b"%d" % number])
            listener.resume()

    async def test_an_address_resolves_to_itself(self, network: Network) -> None:
        assert await network.resolve(self.host) == [self.host]

    @pytest.mark.parametrize("size", [0, 1, 100, 4096, 70_000, 3_000_000])
    async def test_a_frame_of_any_size_arrives_complete(self, network: Network, size: int) -> None:
        client, server = await self.pair(network)
        payload = os.urandom(size)
        client.connection.send([framed(payload)])
        await server.until(lambda s: len(s.frames) == 1)
        assert server.frames == [payload]

    async def test_frames_keep_their_order_and_bytes_while_slices_are_kept(self, network: Network) -> None:
        client, server = await self.pair(network)
        payloads = [os.urandom(n % 5000) for n in range(0, 90_000, 700)]
        for payload in payloads:
            client.connection.send([framed(payload)])
        await server.until(lambda s: len(s.frames) == len(payloads))
        assert server.frames == payloads
        assert [bytes(view) for view in server.kept] == payloads

    async def test_a_frame_that_arrives_byte_by_byte_is_complete(self, network: Network) -> None:
        client, server = await self.pair(network)
        message = framed(b"abcdefgh") + framed(b"") + framed(b"xyz")
        for byte in message:
            client.connection.send([bytes([byte])])
            await client.until(lambda c: c.connection.unsent_bytes == 0)
        await server.until(lambda s: len(s.frames) == 3)
        assert server.frames == [b"abcdefgh", b"", b"xyz"]

    async def test_chunks_and_file_ranges_are_sent_in_order_and_ranges_are_released(self, network: Network) -> None:
        client, server = await self.pair(network)
        body = [os.urandom(50_000) for _ in range(4)]
        ranges = [BytesRange(body[1]), BytesRange(body[3])]
        length = struct.pack(">i", sum(map(len, body)))
        client.connection.send([length, body[0], ranges[0], memoryview(body[2]), ranges[1]])
        await server.until(lambda s: len(s.frames) == 1)
        assert server.frames[0] == b"".join(body)
        assert [r.released for r in ranges] == [1, 1]

    @pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1])
    async def test_an_invalid_frame_length_closes_the_connection_with_a_reason(
        self, network: Network, length: int
    ) -> None:
        client, server = await self.pair(network, max_frame_bytes=1000)
        client.connection.send([struct.pack(">i", length)])
        await server.until(lambda s: s.reason is not None)
        assert str(length) in str(server.reason)
        await client.until(lambda c: c.reason is not None)

    async def test_a_limit_on_frames_holds_for_those_that_come_from_then_on(self, network: Network) -> None:
        client, server = await self.pair(network, max_frame_bytes=1000)
        server.connection.limit_frames(10)
        client.connection.send([framed(b"x" * 10)])
        await server.until(lambda s: len(s.frames) == 1)
        server.connection.limit_frames(2000)
        client.connection.send([framed(b"x" * 2000)])
        await server.until(lambda s: len(s.frames) == 2)
        server.connection.limit_frames(10)
        client.connection.send([struct.pack(">i", 11)])
        await server.until(lambda s: s.reason is not None)
        assert "11" in str(server.reason)

    async def test_a_paused_connection_delivers_nothing_until_resumed(self, network: Network) -> None:
        client, server = await self.pair(network, pause_after=1)
        client.connection.send([framed(b"1") + framed(b"2") + framed(b"3")])
        await server.until(lambda s: len(s.frames) == 1)
        client.connection.send([framed(b"4")])
        await client.until(lambda c: c.connection.unsent_bytes == 0)
        assert server.frames == [b"1"]
        server.connection.resume()
        await server.until(lambda s: len(s.frames) == 4)
        assert server.frames == [b"1", b"2", b"3", b"4"]

    async def test_a_connection_that_pauses_at_every_frame_delivers_all_in_order(self, network: Network) -> None:
        client, server = await self.pair(network)
        payloads = [b"%d" % number * (number % 97) for number in range(3000)]

        class Pausing(Recorder):
            def on_frame(self, frame: memoryview) -> None:
                super().on_frame(frame)
                server.connection.pause()
                asyncio.get_running_loop().call_soon(server.connection.resume)

        server.__class__ = Pausing
        for part in range(0, len(payloads), 500):
            client.connection.send([b"".join(map(framed, payloads[part : part + 500]))])
            await asyncio.sleep(0)
        await server.until(lambda s: len(s.frames) == len(payloads) or s.reason is not None)
        assert server.frames == payloads

    async def test_a_peer_that_does_not_read_leaves_bytes_unsent_and_the_rest_arrives_later(
        self, network: Network
    ) -> None:
        client, server = await self.pair(network)
        server.connection.pause()
        payload = os.urandom(12_000_000)
        client.connection.send([framed(payload)])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert client.connection.unsent_bytes > 0
        server.connection.resume()
        await server.until(lambda s: len(s.frames) == 1)
        assert server.frames == [payload]
        await client.until(lambda c: c.sent >= 1)
        assert client.connection.unsent_bytes == 0

    async def test_close_is_reported_to_both_sides_once(self, network: Network) -> None:
        client, server = await self.pair(network)
        client.connection.close()
        client.connection.close()
        await client.until(lambda c: c.reason is not None)
        await server.until(lambda s: s.reason is not None)
        assert (client.reason, server.reason) == ("", "")
        unsent = BytesRange(b"late")
        client.connection.send([unsent])
        assert unsent.released == 1

    async def test_a_connection_that_is_closed_within_a_frame_has_a_reason(self, network: Network) -> None:
        client, server = await self.pair(network)
        client.connection.send([framed(b"whole") + struct.pack(">i", 10) + b"cut"])
        client.connection.close_after_send()
        await server.until(lambda s: s.reason is not None)
        assert server.frames == [b"whole"]
        assert "within a frame" in str(server.reason)

    async def test_echo_of_many_frames(self, network: Network) -> None:
        client, server = await self.pair(network, echo=True)
        payloads = [os.urandom(n) for n in (1, 60_000, 5, 300_000, 0, 17)]
        client.connection.send([framed(p) for p in payloads])
        await client.until(lambda c: len(c.frames) == len(payloads))
        assert client.frames == payloads
        assert server.frames == payloads

    async def several(self, network: Network, count: int, given: ReceiveLimits) -> list[tuple[Recorder, Recorder]]:
        """Clients of one listener with limits, and the server's sides of their connections."""
        accepted: asyncio.Queue[Recorder] = asyncio.Queue()

        def serve(connection: Connection) -> Recorder:
            accepted.put_nowait(Recorder(connection))
            return accepted._queue[-1]  # type: ignore[attr-defined,no-any-return]

        listener = await network.listen(self.host, 0, serve, max_frame_bytes=LARGEST, limits=given)
        found = []
        for _ in range(count):
            clients: list[Recorder] = []

            def called(connection: Connection, clients: list[Recorder] = clients) -> Recorder:
                clients.append(Recorder(connection))
                return clients[0]

            await network.connect(self.host, listener.port, called, timeout_s=60, max_frame_bytes=LARGEST)
            found.append((clients[0], await accepted.get()))
        return found

    @pytest.mark.public_report(16)
    async def test_a_length_that_is_announced_costs_no_memory(self, network: Network) -> None:
        """Six bytes each: more than the memory would be reserved."""
        announced = await self.several(network, 20, limits())
        for client, _ in announced:
            client.connection.send([struct.pack(">i", LARGEST) + b"ab"])
        client, server = (await self.several(network, 1, limits()))[0]
        for number in range(5):
            client.connection.send([framed(b"x" * 300_000)])
            await server.until(lambda s, count=number + 1: len(s.frames) == count)
            server.kept.clear()
        assert network.received_bytes < LARGEST
        assert all(one.reason is None and not one.frames for _, one in announced)

    async def test_frames_in_progress_hold_as_much_as_is_allowed_and_are_all_served_in_the_end(
        self, network: Network
    ) -> None:
        """Twenty half frames are five times the memory; without one that goes on all would wait for each other."""
        pairs = await self.several(network, 20, limits())
        watch = Watch(network)
        body = os.urandom(LARGEST)
        for client, server in pairs:
            server.on_frame = partial(_take, server)  # type: ignore[method-assign]
            client.connection.send([struct.pack(">i", LARGEST), body[: LARGEST // 2]])
        await watch.reached(LARGEST)
        for client, _ in pairs:
            client.connection.send([body[LARGEST // 2 :]])
        for _, server in pairs:
            await server.until(lambda s: s.frames == [body])
        watch.stop()
        assert watch.highest <= limits().limit_bytes + 2 * LARGEST

    async def test_frames_that_somebody_keeps_count_until_they_are_dropped(self, network: Network) -> None:
        pairs = await self.several(network, 12, limits())
        for client, _ in pairs:
            client.connection.send([framed(b"k" * 400_000)])
        served = [server for _, server in pairs]
        watch = Watch(network)
        await watch.reached(limits().limit_bytes // 2)
        watch.stop()
        assert network.received_bytes <= limits().limit_bytes + 2 * LARGEST
        for one in served:
            one.on_frame = partial(_take, one)  # type: ignore[method-assign]
            one.kept.clear()
        for one in served:
            await one.until(lambda s: len(s.frames) == 1)

    async def test_small_frames_and_those_of_a_larger_share_are_served_while_others_hold_the_memory(
        self, network: Network
    ) -> None:
        holders = await self.several(network, 8, limits(longest_s=3600))
        for client, _ in holders:
            client.connection.send([struct.pack(">i", LARGEST), b"x" * (LARGEST - 10)])
        watch = Watch(network)
        await watch.reached(limits().limit_bytes)
        watch.stop()
        (small, at_small), (urgent, at_urgent) = await self.several(network, 2, limits())
        for number in range(1, 50):
            small.connection.send([framed(b"s" * 1000)])
            urgent.connection.send([framed(b"!" * 3000)])
            await at_small.until(lambda s, count=number: len(s.frames) == count)
            await at_urgent.until(lambda s, count=number: len(s.frames) == count)
            at_small.kept.clear()
            at_urgent.kept.clear()

    @pytest.mark.parametrize("longest_s", [0.5, 3600.0])
    async def test_a_frame_that_does_not_come_is_closed_while_others_wait_for_its_memory(
        self, network: Network, longest_s: float
    ) -> None:
        """Early where no room is left beyond the limit, however long a frame may take else."""
        pairs = await self.several(network, 8, limits(longest_s=longest_s))
        for client, _ in pairs:
            client.connection.send([struct.pack(">i", LARGEST), b"x" * (LARGEST - 10)])
        client, server = (await self.several(network, 1, limits(longest_s=longest_s)))[0]
        client.connection.send([framed(b"y" * 900_000)])
        await server.until(lambda s: len(s.frames) == 1)
        ends = [asyncio.ensure_future(one.until(lambda s: s.reason is not None)) for _, one in pairs]
        _, pending = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for one in pending:
            one.cancel()
        reasons = [one.reason for _, one in pairs if one.reason is not None]
        assert all("queued.max.request.bytes=2097152" in reason for reason in reasons)

    async def test_a_frame_that_comes_slowly_is_taken_while_nobody_waits(self, network: Network) -> None:
        client, server = (await self.several(network, 1, limits(longest_s=0.1)))[0]
        client.connection.send([struct.pack(">i", LARGEST), b"x" * (LARGEST - 10)])
        await asyncio.sleep(2.5)
        client.connection.send([b"x" * 10])
        await server.until(lambda s: len(s.frames) == 1)
        assert server.frames == [b"x" * LARGEST]

    async def test_connecting_to_a_closed_port_is_an_os_error(self, network: Network) -> None:
        listener = await network.listen(self.host, 0, Recorder, max_frame_bytes=1000)
        listener.close()
        with pytest.raises(OSError):
            await network.connect(self.host, listener.port, Recorder, timeout_s=2, max_frame_bytes=1000)

    async def test_listening_on_a_port_in_use_is_an_os_error_with_the_address(self, network: Network) -> None:
        listener = await network.listen(self.host, 0, Recorder, max_frame_bytes=1000)
        with pytest.raises(OSError, match=str(listener.port)):
            await network.listen(self.host, listener.port, Recorder, max_frame_bytes=1000)

    async def test_the_name_of_this_machine_resolves_to_it(self, network: Network) -> None:
        name = await network.own_name()
        assert name
        listener = await network.listen("", 0, Recorder, max_frame_bytes=1000)
        connection = await network.connect(name, listener.port, Recorder, timeout_s=20, max_frame_bytes=1000)
        connection.close()

    async def test_closing_the_network_closes_every_listener_and_connection(self, network: Network) -> None:
        client, server = await self.pair(network)
        network.close()
        await client.until(lambda c: c.reason is not None)
        await server.until(lambda s: s.reason is not None)
