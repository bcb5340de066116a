"""The simulated Network: connections in memory that carry the real bytes, with seeded delays and partitions.

One `Fabric` per run connects the hosts. Bytes of one direction of a connection arrive in order; connections are
independent. A segment is split at random places, and the receiver joins the parts, as with TCP. Bytes given to `send`
are sent once the "kernel" takes them, limited by a window: a peer that does not read leaves bytes unsent. They are
copied at that time, not at `send`, so that a buffer that changes too early is noticed.

Faults: `break_connection` (both ends get an error), `cut` and `mend` (bytes of one direction wait, connects time out),
`partition` and `heal` (both directions, all traffic), `slow` (extra delay of a host). The end of a process closes its
connections as the kernel does; after a power loss nothing is sent for a while.

Frames are counted against `ReceiveLimits` with the production's `ReceiveMemory`: a connection that has no memory leaves
its bytes in the kernel.
"""

from __future__ import annotations

import asyncio
import contextvars
import struct
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from ottla_broker.adapters.buffers import SMALLEST_BYTES
from ottla_broker.adapters.receive_memory import ReceiveMemory
from ottla_broker.ports.network import Chunk, Connection, ConnectionHandler, HandlerFactory, ReceiveLimits, Tls
from simulation.receive_leases import Lease, LeasedFrame, Leases
from simulation.world import Machine, SimulatedProcess, World

WINDOW_BYTES = 1 << 20
"""Bytes of one direction that the kernels of both ends hold together."""
_LOCAL_HOSTS = ("", "0.0.0.0", "::", "127.0.0.1", "localhost")
_LENGTH = struct.Struct(">i")
_RESET = "connection reset by peer"


class Fabric:
    """The network of one run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.stream("network")
        self.listeners: dict[tuple[str, int], SimulatedListener] = {}
        self.endpoints: dict[int, SimulatedConnection] = {}
        self._cut: dict[tuple[str, str], int] = {}
        """(from, to) → how many faults cut it."""
        self._slow: dict[str, float] = {}
        self._next_id = 0
        self._next_port = 40_000

    # -- faults -----------------------------------------------------------------------------------------------------

    def partition(self, one: str, other: str) -> None:
        """Nothing passes between the two hosts, in either direction, until `heal`."""
        self.world.trace.event("partition", one, other)
        self.cut(one, other)
        self.cut(other, one)

    def cut(self, source: str, target: str) -> None:
        """Nothing passes from `source` to `target` until it is mended as often as it was cut."""
        self.world.trace.event("cut", source, target)
        self._cut[(source, target)] = self._cut.get((source, target), 0) + 1

    def mend(self, source: str, target: str, *, is_lost: bool = False) -> None:
        """Takes one cut back; what waited arrives. `is_lost`: it waited too long, the connections are gone instead."""
        self.world.trace.event("mend", source, target)
        left = self._cut.get((source, target), 0) - 1
        if left > 0:
            self._cut[(source, target)] = left
            return
        self._cut.pop((source, target), None)
        for endpoint in list(self.endpoints.values()):
            if endpoint.host == target and endpoint.peer_host == source:
                if is_lost and not endpoint.is_closed and not endpoint.other.is_closed:
                    self.break_connection(endpoint)
                else:
                    endpoint.incoming.wake()

    def hold(self, source: str, target: str, api_key: int) -> Callable[[], None]:
        """Keeps back the next request of this key, and what follows it, on the connections that are open now from one
        host to another; those that are made later are free. Gives what lets it go."""
        self.world.trace.event("hold", source, target)
        pipes = [one.incoming for one in self.endpoints.values() if one.host == target and one.peer_host == source]
        for pipe in pipes:
            pipe.holds_from = struct.pack(">h", api_key)

        def let_go() -> None:
            self.world.trace.event("let-go", source, target)
            for pipe in pipes:
                pipe.is_held, pipe.holds_from = False, None
                pipe.wake()

        return let_go

    def slow(self, host: str, extra_s: float) -> None:
        """Every segment from or to `host` takes up to `extra_s` seconds longer (0 ends it)."""
        self.world.trace.event("slow", host, extra_s)
        if extra_s > 0:
            self._slow[host] = extra_s
        else:
            self._slow.pop(host, None)

    def heal(self) -> None:
        """Ends every partition and slowness; what waited arrives."""
        self.world.trace.event("heal")
        self._cut.clear()
        self._slow.clear()
        for endpoint in list(self.endpoints.values()):
            endpoint.incoming.wake()

    def is_cut(self, one: str, other: str) -> bool:
        return (one, other) in self._cut

    def break_connection(self, endpoint: SimulatedConnection) -> None:
        """Cuts one connection: what was in flight is lost and both ends are told, each in its own time."""
        self.world.trace.event("break", endpoint.id)
        self.world.counters.broken_connections += 1
        peer = endpoint.other
        endpoint.abort(_RESET, self.delay(endpoint.host, endpoint.host))
        peer.abort(_RESET, self.delay(endpoint.host, peer.host))

    def break_some(self, probability: float) -> None:
        """Cuts each connection with the given probability."""
        for endpoint in list(self.endpoints.values()):
            if not endpoint.is_closed and not endpoint.other.is_closed and self.random.random() < probability:
                self.break_connection(endpoint)

    # -- the wire ---------------------------------------------------------------------------------------------------

    def delay(self, source: str, target: str) -> float:
        """Seconds one segment takes."""
        draw = self.random.random
        seconds = 0.00002 + 0.0003 * draw() if source == target else 0.0001 + 0.001 * draw()
        if draw() < 0.02:
            seconds += 0.05 * draw()
        if self._slow:
            extra = self._slow.get(source, 0.0) + self._slow.get(target, 0.0)
            if extra:
                seconds += extra * draw()
        return seconds

    def new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def new_port(self) -> int:
        self._next_port += 1
        return self._next_port


class SimulatedListener:
    """A bound port."""

    def __init__(
        self,
        network: SimulatedNetwork,
        host: str,
        port: int,
        factory: HandlerFactory,
        limit: int,
        limits: ReceiveLimits | None,
    ) -> None:
        self.network = network
        self.host = host
        self.port = port
        self.factory = factory
        self.max_frame_bytes = limit
        self.limits = limits
        self.is_open = True
        self.is_paused = False
        self.waiting: list[SimulatedConnection] = []

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        waiting, self.waiting = self.waiting, []
        for server in waiting:
            self.network.call_soon(partial(_accept, self, server))

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            for server in self.waiting:
                server.close()
            self.network.fabric.listeners.pop((self.host, self.port), None)


class _Pipe:
    """One direction of a connection, seen from its receiver."""

    def __init__(self, source: SimulatedConnection, target: SimulatedConnection) -> None:
        self.fabric = source.network.fabric
        self.source = source
        self.target = target
        self.in_flight: deque[tuple[float, bytes | None, str]] = deque()
        self.held_bytes = 0
        self.last_arrival = 0.0
        self.is_cut = False
        self.is_held = False
        self.holds_from: bytes | None = None
        """The key of the request that is to be held back."""

    def push(self, data: bytes | None, reason: str = "", delay_s: float | None = None) -> None:
        """Sends a segment, or the end of the stream (`data` None) with the reason that the receiver will be given."""
        world = self.fabric.world
        if delay_s is None:
            delay_s = self.fabric.delay(self.source.host, self.target.host)
        arrival = max(self.last_arrival, world.loop.time() + delay_s)
        self.last_arrival = arrival
        self.in_flight.append((arrival, data, reason))
        if data is not None:
            self.held_bytes += len(data)
        world.loop.call_at(arrival, self.arrive, context=self.target.network.context)

    def wake(self) -> None:
        """Delivers what a partition held back."""
        if self.in_flight:
            world = self.fabric.world
            when = world.loop.time() + self.fabric.delay(self.source.host, self.target.host)
            world.loop.call_at(when, self.arrive, context=self.target.network.context)

    def drop(self) -> None:
        """Loses what is in flight."""
        self.in_flight.clear()
        self.is_cut = True

    def arrive(self) -> None:
        """Runs in the receiver's context: hands over every segment whose time has come."""
        fabric = self.fabric
        now = fabric.world.loop.time()
        target = self.target
        while self.in_flight and self.in_flight[0][0] <= now:
            if self.is_held or (fabric._cut and fabric.is_cut(self.source.host, target.host)):
                return
            if self.holds_from is not None and (self.in_flight[0][1] or b"")[4:6] == self.holds_from:
                self.is_held = True
                return
            _, data, reason = self.in_flight.popleft()
            if data is None:
                fabric.world.trace.event("net-end", target.id, reason)
                target.take_end(reason)
                return
            fabric.world.trace.event("net", target.id, len(data), zlib.crc32(data))
            target.take(data)


class SimulatedConnection:
    """One end of a connection. See `ottla_broker.ports.network.Connection`."""

    def __init__(
        self,
        network: SimulatedNetwork,
        local: tuple[str, int],
        peer: tuple[str, int],
        max_frame_bytes: int,
        limits: ReceiveLimits | None = None,
    ) -> None:
        self.network = network
        self.id = network.fabric.new_id()
        self.host = network.host
        self.local = local
        self.peer = peer
        self.handler: ConnectionHandler | None = None
        self.other: SimulatedConnection
        self.incoming: _Pipe
        self.outgoing: _Pipe
        self._max_frame_bytes = max_frame_bytes
        self._queue: deque[memoryview | Chunk] = deque()
        self._unsent = 0
        self._is_transmitting = False
        self._is_paused = False
        self._is_closing = False
        self._closed_reason: str | None = None
        self._kernel: deque[bytes] = deque()
        self._kernel_end: str | None = None
        self._buffer = bytearray()
        self._is_parsing = False
        self._limits = limits
        self._lease = network.memory.join(self) if limits is not None else None
        """Of what the buffer may hold; None: it is not limited."""
        self._delivered = 0

    # -- the port ---------------------------------------------------------------------------------------------------

    peer_certificate: bytes | None = None
    """There is no TLS here."""

    @property
    def peer_host(self) -> str:
        return self.other.host

    @property
    def unsent_bytes(self) -> int:
        return self._unsent

    @property
    def is_closed(self) -> bool:
        return self._closed_reason is not None

    def send(self, chunks: Sequence[Chunk], *, now: bool = False) -> None:
        if self._closed_reason is not None or self._is_closing:
            for chunk in chunks:
                _release(chunk)
            return
        for chunk in chunks:
            length = _length(chunk)
            if length:
                self._queue.append(chunk)
                self._unsent += length
            else:
                _release(chunk)
        self._schedule_transmit()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        if self._is_paused and not self._is_closing:
            self._is_paused = False
            self.network.call_soon(self._read)

    def close(self) -> None:
        if self._closed_reason is None:
            self._end("")
            self.outgoing.push(None)

    def limit_frames(self, max_bytes: int) -> None:
        self._max_frame_bytes = max_bytes

    def close_after_send(self) -> None:
        if self._closed_reason is None and not self._is_closing:
            self._is_closing = True
            self._is_paused = True
            if not self._queue:
                self.close()

    # -- sending ----------------------------------------------------------------------------------------------------

    def _schedule_transmit(self) -> None:
        if self._queue and not self._is_transmitting:
            self._is_transmitting = True
            world = self.network.fabric.world
            delay = self.network.fabric.random.random() * 0.00005
            world.loop.call_at(world.loop.time() + delay, self._transmit, context=self.network.context)

    def _transmit(self) -> None:
        """The kernel takes what its window has room for."""
        self._is_transmitting = False
        if self._closed_reason is not None:
            return
        queue = self._queue
        room = WINDOW_BYTES - self.outgoing.held_bytes
        parts: list[bytes | memoryview] = []
        size = 0
        while queue and room > size:
            data = _bytes_of(queue.popleft())
            if len(data) > room - size:
                queue.appendleft(data[room - size :])
                data = data[: room - size]
            parts.append(data)
            size += len(data)
        if parts:
            self._unsent -= size
            self._push_split(b"".join(parts))
        if queue or not parts:
            return
        if self._is_closing:
            self.close()
        elif self.handler is not None:
            self.handler.on_sent()

    def _push_split(self, segment: bytes) -> None:
        random = self.network.fabric.random
        if len(segment) > 1 and random.random() < 0.15:
            cuts = sorted(random.randrange(1, len(segment)) for _ in range(random.randrange(1, 4)))
            start = 0
            for cut in [*cuts, len(segment)]:
                if cut > start:
                    self.outgoing.push(segment[start:cut])
                start = cut
        else:
            self.outgoing.push(segment)

    # -- receiving --------------------------------------------------------------------------------------------------

    def take(self, data: bytes) -> None:
        if self._closed_reason is not None:
            return
        self._kernel.append(data)
        if not self._is_paused:
            self._read()

    def take_end(self, reason: str) -> None:
        if self._closed_reason is not None:
            return
        self._kernel_end = reason
        # A reset is noticed even by who does not read; an orderly end only by reading up to it.
        if reason and self._is_paused:
            self._end(reason)
        elif not self._is_paused:
            self._read()

    def _read(self) -> None:
        """Takes what the kernel holds and hands over whole frames, as long as nobody pauses or closes."""
        if self._is_parsing or self._is_paused or self._closed_reason is not None or self.handler is None:
            return
        self._is_parsing = True
        try:
            self._parse_all(self.handler)
        finally:
            self._is_parsing = False

    def _parse_all(self, handler: ConnectionHandler) -> None:
        buffer = self._buffer
        kernel = self._kernel
        while True:
            if kernel and not self._has_memory():
                return
            if not buffer and len(kernel) == 1 and _is_one_frame(kernel[0], self._max_frame_bytes):
                # As most segments are. A copy of its own, as below.
                data = kernel.popleft()
                self.incoming.held_bytes -= len(data)
                self.other._schedule_transmit()
                self.network.fabric.world.counters.messages += 1
                frame = memoryview(self._frame(memoryview(data)[4:]))
                self._leave_memory()
                handler.on_frame(frame)
            else:
                if kernel:
                    for data in kernel:
                        self.incoming.held_bytes -= len(data)
                        buffer += data
                    kernel.clear()
                    self.other._schedule_transmit()
                if buffer and not self._take_frames(handler, buffer):
                    return
            if self._is_paused or self._closed_reason is not None:
                return
            if not kernel:
                break
        if self._kernel_end is not None:
            reason = self._kernel_end
            if not reason and buffer:
                reason = "the peer ended the connection within a frame"
            was_orderly = not self._kernel_end
            self._end(reason)
            if was_orderly:
                self.outgoing.push(None)

    def _take_frames(self, handler: ConnectionHandler, buffer: bytearray) -> bool:
        """Hands over the whole frames of the buffer; False when one is none and the connection ends."""
        position = 0
        try:
            while not self._is_paused and self._closed_reason is None and len(buffer) - position >= 4:
                (length,) = _LENGTH.unpack_from(buffer, position)
                if length < 0 or length > self._max_frame_bytes:
                    self._end(f"frame length {length} is not between 0 and {self._max_frame_bytes}")
                    self.outgoing.push(None)
                    return False
                if len(buffer) - position - 4 < length:
                    break
                # A copy of its own for every frame: who keeps a slice keeps it valid, and may patch it in place.
                frame = memoryview(self._frame(buffer[position + 4 : position + 4 + length]))
                position += 4 + length
                self.network.fabric.world.counters.messages += 1
                handler.on_frame(frame)
        finally:
            if position:
                del buffer[:position]
                self._leave_memory()
        return True

    def _frame(self, data: bytearray | memoryview) -> bytearray:
        if self._lease is None:
            return bytearray(data) if isinstance(data, memoryview) else data
        frame = LeasedFrame(data)
        frame.lease = self._lease
        self._delivered += 1
        return frame

    def _has_memory(self) -> bool:
        """Whether what the kernel holds may be taken."""
        lease = self._lease
        if lease is None:
            return True
        held = len(self._buffer) + sum(map(len, self._kernel))
        if held <= lease.size:
            self.network.memory.wait_no_more(self)
            return True
        taken = self.network.memory.take(self, held, max(held, self._needed))
        if taken is not None:
            self._lease = taken
        return taken is not None

    def _leave_memory(self) -> None:
        """Leaves what was taken to the frames."""
        if self._lease is not None and self._lease.size > SMALLEST_BYTES:
            self._lease = self.network.memory.first_buffer()

    # -- the Receiver of `receive_memory` ---------------------------------------------------------------------------

    @property
    def share(self) -> float:
        start = self._first_bytes
        if self._limits is None or len(start) < 4:
            return 1.0
        return self._limits.share(memoryview(start)[4:], int.from_bytes(start[:4], "big"))

    @property
    def _first_bytes(self) -> bytes:
        return bytes(self._buffer[:64]) or (self._kernel[0][:64] if self._kernel else b"")

    @property
    def _needed(self) -> int:
        """For all of the frame in progress."""
        return 4 + int.from_bytes(self._first_bytes[:4], "big")

    @property
    def progress(self) -> tuple[int, int]:
        return self._delivered, 0 if self._is_paused else len(self._buffer)

    def receive_on(self) -> None:
        if self._is_paused or self._closed_reason is not None:
            self.network.memory.wait_no_more(self)
        else:
            self._read()

    def shrink(self) -> None:
        if self._lease is not None and not self._buffer:
            self._lease = self.network.memory.first_buffer()

    def refuse_frame(self, reason: str) -> None:
        self._end(reason)
        self.outgoing.push(None)

    # -- the end ----------------------------------------------------------------------------------------------------

    def _end(self, reason: str) -> None:
        """This end is closed: drops what is unsent and tells the handler in a later turn."""
        if self._closed_reason is not None:
            return
        self._closed_reason = reason
        for chunk in self._queue:
            _release(chunk)
        self._queue.clear()
        self._unsent = 0
        self._kernel.clear()
        self._buffer = bytearray()
        if self._lease is not None:
            self._lease = None
            self.network.memory.forget(self)
        self.network.fabric.endpoints.pop(self.id, None)
        self.network._connections.pop(self.id, None)
        self.network.call_soon(self._tell_closed)

    def _tell_closed(self) -> None:
        if self.handler is not None:
            self.handler.on_close(self._closed_reason or "")

    def abort(self, reason: str, delay_s: float) -> None:
        """The connection broke: loses what comes in and ends after `delay_s`."""
        self.incoming.drop()
        self.incoming.push(None, reason, delay_s)

    def die(self, power_loss: bool) -> None:
        """The process of this end is gone."""
        if self._closed_reason is not None:
            return
        self._closed_reason = "process died"
        self._queue.clear()
        self.network.fabric.endpoints.pop(self.id, None)
        random = self.network.fabric.random
        if power_loss:
            # Nobody is left to say anything; the peer finds out by its own retransmissions.
            self.outgoing.push(None, _RESET, 0.5 + 10 * random.random())
        else:
            self.outgoing.push(None, _RESET if self._buffer or self._kernel or random.random() < 0.5 else "")


class SimulatedNetwork:
    """The Network port of one process, or of the workload (`process` None) on a host of its own."""

    def __init__(self, fabric: Fabric, machine: Machine, process: SimulatedProcess | None = None) -> None:
        self.fabric = fabric
        self.machine = machine
        self.host = machine.host
        self.process = process
        self.context: contextvars.Context = process.context if process is not None else fabric.world.context
        loop, context = fabric.world.loop, self.context
        self.memory: ReceiveMemory[Lease] = ReceiveMemory(
            Leases(), loop.time, lambda delay_s, callback: loop.call_later(delay_s, callback, context=context)
        )
        self._listeners: list[SimulatedListener] = []
        self._connections: dict[int, SimulatedConnection] = {}
        if process is not None:
            process.on_kill(self._die)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.fabric.world.loop.call_soon(callback, context=self.context)

    @property
    def received_bytes(self) -> int:
        return self.memory.used_bytes

    async def listen(
        self,
        host: str,
        port: int,
        factory: HandlerFactory,
        *,
        max_frame_bytes: int,
        is_privileged: bool = False,
        limits: ReceiveLimits | None = None,
        tls: Tls | None = None,
    ) -> SimulatedListener:
        _refuse_tls(tls)
        if host not in _LOCAL_HOSTS and host != self.host:
            raise OSError(99, f"cannot bind {host}:{port}: not an address of this host")
        port = port or self.fabric.new_port()
        if (self.host, port) in self.fabric.listeners:
            raise OSError(98, f"cannot bind {host}:{port}: address already in use")
        if limits is not None:
            self.memory.limit(limits, max_frame_bytes)
        listener = SimulatedListener(self, self.host, port, factory, max_frame_bytes, limits)
        self.fabric.listeners[(self.host, port)] = listener
        self._listeners.append(listener)
        return listener

    async def resolve(self, host: str) -> list[str]:
        return [host]

    async def own_name(self) -> str:
        return self.host

    async def connect(
        self,
        host: str,
        port: int,
        factory: HandlerFactory,
        *,
        timeout_s: float,
        max_frame_bytes: int,
        tls: Tls | None = None,
    ) -> Connection:
        _refuse_tls(tls)
        fabric = self.fabric
        world = fabric.world
        target = self.host if host in _LOCAL_HOSTS else host
        answer: asyncio.Future[SimulatedConnection] = world.loop.create_future()
        world.call_later(timeout_s, _fail, answer, TimeoutError(f"no answer from {host}:{port} in {timeout_s} s"))
        world.call_later(fabric.delay(self.host, target), self._arrive_at, target, port, max_frame_bytes, answer)
        try:
            connection = await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                answer.result().close()
            raise
        connection.handler = factory(connection)
        self._connections[connection.id] = connection
        connection._read()
        return connection

    def _arrive_at(self, host: str, port: int, limit: int, answer: asyncio.Future[SimulatedConnection]) -> None:
        """The first packet reaches the other host (in the world's context)."""
        fabric = self.fabric
        if answer.done() or fabric.is_cut(self.host, host) or not self._is_powered(host):
            return
        listener = fabric.listeners.get((host, port))
        back = fabric.delay(host, self.host)
        if fabric.is_cut(host, self.host):
            return  # the answer does not arrive
        if listener is None:
            error = ConnectionRefusedError(111, f"connection to {host}:{port} refused")
            fabric.world.call_later(back, _fail, answer, error)
            return
        local, peer = (self.host, fabric.new_port()), (host, port)
        client = SimulatedConnection(self, local, peer, limit)
        server = SimulatedConnection(listener.network, peer, local, listener.max_frame_bytes, listener.limits)
        client.other, server.other = server, client
        client.incoming = server.outgoing = _Pipe(server, client)
        server.incoming = client.outgoing = _Pipe(client, server)
        fabric.endpoints[client.id] = client
        fabric.endpoints[server.id] = server
        fabric.world.trace.event("connect", client.id, server.id, self.host, host, port)
        listener.network._connections[server.id] = server
        listener.network.call_soon(lambda: _accept(listener, server))
        fabric.world.call_later(back, _succeed, answer, client)

    def _is_powered(self, host: str) -> bool:
        return any(machine.host == host and machine.is_powered for machine in self.fabric.world.machines.values())

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        for connection in list(self._connections.values()):
            connection.close()
        self._connections.clear()

    def _die(self, power_loss: bool) -> None:
        for listener in self._listeners:
            listener.close()
        for connection in list(self._connections.values()):
            connection.die(power_loss)
        self._connections.clear()


def _accept(listener: SimulatedListener, connection: SimulatedConnection) -> None:
    if not listener.is_open:
        connection.close()
        return
    if listener.is_paused:
        listener.waiting.append(connection)
        return
    connection.handler = listener.factory(connection)
    connection._read()


def _succeed(answer: asyncio.Future[SimulatedConnection], connection: SimulatedConnection) -> None:
    if answer.done():
        connection.close()
    else:
        answer.set_result(connection)


def _fail(answer: asyncio.Future[SimulatedConnection], error: OSError) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # whoever asked may have given up meanwhile


def _is_one_frame(data: bytes, max_frame_bytes: int) -> bool:
    return len(data) >= 4 and int.from_bytes(data[:4], "big", signed=True) == len(data) - 4 <= max_frame_bytes


def _refuse_tls(tls: Tls | None) -> None:
    if tls is not None:
        raise ValueError("the simulated network has no TLS")


def _length(chunk: Chunk | memoryview) -> int:
    if isinstance(chunk, (bytes, bytearray)):
        return len(chunk)
    return chunk.nbytes if isinstance(chunk, memoryview) else chunk.length


def _bytes_of(chunk: Chunk | memoryview) -> memoryview:
    if isinstance(chunk, (bytes, bytearray)):
        return memoryview(chunk)
    if isinstance(chunk, memoryview):
        return chunk.cast("B") if chunk.format != "B" else chunk
    try:
        data = chunk.read()
    finally:
        chunk.release()
    if len(data) != chunk.length:
        raise AssertionError(f"a FileRange of {chunk.length} bytes gave {len(data)}")
    return memoryview(data)


def _release(chunk: Chunk | memoryview) -> None:
    if not isinstance(chunk, (bytes, bytearray, memoryview)):
        chunk.release()
