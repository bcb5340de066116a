"""One connection of the Network port, on a non-blocking socket that the loop's readiness callbacks read and write.

Receiving: bytes are read into a pooled buffer (`buffers.py`) and complete frames are slices of it; only the incomplete
frame at the end of a full buffer is copied. A buffer grows with the bytes that came, not with the length that was
announced, and while there is no memory for it the socket is not read (`receive_memory.py`). Sending: everything that is
queued in one turn of the loop is sent in one system call; file ranges are sent with sendfile, from the page cache.

The bytes pass the socket through a transport, plain (`transport.py`) or TLS (`tls_transport.py`). An accepted
connection may have to complete its handshake first (`handshakes.py`): it is not read until then, and what it sends
waits.
"""

from __future__ import annotations

import asyncio
import errno
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from ottla_broker.adapters.buffers import SMALLEST_BYTES, is_unshared
from ottla_broker.adapters.receive_memory import ReceiveMemory
from ottla_broker.adapters.transport import LONGEST_CALL_S, ReceivesLate, Transport
from ottla_broker.ports.network import Buffer, Chunk, ConnectionHandler, HandlerFactory

_LENGTH = struct.Struct(">i")
_LARGEST_IDLE_BUFFER = 256 * 1024
_GROWTH = 8
"""A buffer is at most so many times what came of its frame, or as large as a frame that came whole before."""
_LARGEST_KNOWN_FRAME = 2 * 1024 * 1024
_MAX_SENDMSG_CHUNKS = 64
_CALLS_OF_A_TURN = range(256)
"""System calls in which a connection sends before others have their turn: a fetch of many partitions needs two for each
of them, of 5 µs and more."""
_NOTHING = memoryview(b"")


class PendingHandshake(Protocol):
    """The handshake of an accepted connection."""

    def begin(self, on_end: Callable[[str], object]) -> None:
        """`on_end` is called once, in a later turn of the loop: with "" when it is complete, else with the reason why
        it failed. Idempotent."""
        ...

    def cancel(self) -> None:
        """The connection is closed: `on_end` is not called. Idempotent."""
        ...


class SocketConnection:
    """See `ottla_broker.ports.network.Connection`.

    Args:
        handshake: what has to be complete before the first byte; None: nothing.
        on_end: called once it is closed.
    """

    __slots__ = (
        "_buffer",
        "_closing",
        "_delivered",
        "_end",
        "_fd",
        "_flush_is_scheduled",
        "_handler",
        "_handshake",
        "_is_closed",
        "_is_delivering",
        "_is_late",
        "_is_reading",
        "_is_waiting",
        "_is_writing",
        "_largest_frame",
        "_late_since",
        "_loop",
        "_max_frame_bytes",
        "_memory",
        "_on_end",
        "_paused",
        "_pending",
        "_queue",
        "_receive",
        "_room_hint",
        "_share",
        "_start",
        "_transport",
        "_unsent",
        "_view",
        "local",
        "peer",
    )

    def __init__(
        self,
        transport: Transport,
        factory: HandlerFactory,
        max_frame_bytes: int,
        *,
        loop: asyncio.AbstractEventLoop,
        memory: ReceiveMemory[bytearray],
        share: Callable[[memoryview, int], float] | None = None,
        handshake: PendingHandshake | None = None,
        on_end: Callable[[SocketConnection], object],
    ) -> None:
        self._loop = loop
        self._memory = memory
        self._share = share
        self._on_end = on_end
        self._transport = transport
        self._receive = transport.receive
        self._pending = transport.pending
        sock = transport.socket
        self._fd = sock.fileno()
        self._max_frame_bytes = max_frame_bytes
        self.peer: tuple[str, int] = sock.getpeername()[:2]
        self.local: tuple[str, int] = sock.getsockname()[:2]
        self._buffer = memory.join(self)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._room_hint = SMALLEST_BYTES
        self._largest_frame = 0
        """Of those that came whole, up to `_LARGEST_KNOWN_FRAME`."""
        self._delivered = 0
        """How often frames were delivered."""
        self._is_waiting = False
        """For memory: the socket is not read."""
        self._paused = False
        self._closing = False
        self._is_closed = False
        self._handshake = handshake
        self._is_late = False
        """A `receive` has not returned, and the loop goes on without it: it writes into the buffer, which stays."""
        self._late_since = 0.0
        self._is_reading = False
        self._is_writing = handshake is not None
        """What is sent stays in the queue until the socket can be written again, or the handshake is complete."""
        self._is_delivering = False
        self._flush_is_scheduled = False
        self._queue: deque[Chunk] = deque()
        self._unsent = 0
        transport.attach(self)
        self._handler: ConnectionHandler = factory(self)
        if not self._paused and not self._is_closed:
            if handshake is None:
                self._watch_reads()
            else:
                handshake.begin(self._on_handshake_end)

    def _on_handshake_end(self, reason: str) -> None:
        self._handshake = None
        if reason:
            self._end_connection(reason)
            return
        self._is_writing = False
        if self._queue:
            self._flush()
        if not self._paused:
            self._watch_reads()
            self._read_on()

    @property
    def peer_certificate(self) -> bytes | None:
        return self._transport.peer_certificate

    @property
    def unsent_bytes(self) -> int:
        return self._unsent

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    # Receiving

    def pause(self) -> None:
        # The loop watches on until bytes come: most connections are resumed before, without a call of the kernel.
        self._paused = True

    def resume(self) -> None:
        if not self._paused or self._is_closed or self._closing:
            return
        self._paused = False
        if self._handshake is not None:
            self._handshake.begin(self._on_handshake_end)
        elif (
            self._end - self._start >= 4
            or self._end == len(self._buffer)
            or (self._pending is not None and self._pending())
        ):
            # Received frames come first, in another turn of the loop: resume may be called from on_frame.
            self._loop.call_soon(self._deliver_and_watch)
        else:
            self._watch_reads()

    def _watch_reads(self) -> None:
        if not self._is_reading and not self._is_closed and not self._is_waiting and not self._is_late:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _deliver_and_watch(self) -> None:
        if self._is_closed or self._paused or self._is_delivering or self._is_late:
            return
        self._deliver()
        if not self._paused and not self._is_closed:
            self._watch_reads()
            self._read_on()

    def _read_on(self) -> None:
        """Reads what the poll does not see, in another turn of the loop."""
        if self._pending is not None and not self._is_closed and self._pending():
            self._loop.call_soon(self._read_pending)

    def _read_pending(self) -> None:
        if self._is_reading and not self._is_closed:
            self._on_readable()

    def _on_readable(self) -> None:
        if self._paused or self._is_waiting or self._end == len(self._buffer):
            # Full: it was paused within the buffer, and `_deliver_and_watch` makes room and watches again.
            self._is_reading = False
            self._loop.remove_reader(self._fd)
            return
        try:
            count = self._receive(self._view[self._end :])
        except ReceivesLate:
            return
        except (BlockingIOError, InterruptedError):
            if self._transport.receive_waits_for_send:
                self._read_when_writable()
            return
        except OSError as error:
            self._end_connection(reason_of(error))
            return
        self._received(count)

    def _received(self, count: int) -> None:
        if count == 0:
            partial = self._end - self._start
            self._end_connection(f"the peer closed within a frame ({partial} bytes of it received)" if partial else "")
            return
        self._end += count
        if self._paused:  # it was received late
            return
        self._deliver()
        if self._pending is not None and not self._paused:
            self._read_on()

    # The LateReceiver of `transport`

    def receives_late(self) -> None:
        if self._is_closed:
            return
        self._is_late = True
        self._late_since = self._loop.time()
        self._is_reading = False
        self._loop.remove_reader(self._fd)
        if self._is_writing:  # nothing is sent meanwhile
            self._is_writing = False
            self._loop.remove_writer(self._fd)
        self._loop.call_later(LONGEST_CALL_S, self._end_if_late, self._late_since)

    def _end_if_late(self, since: float) -> None:
        if self._is_late and self._late_since == since:
            self._end_connection("what it sends keeps TLS busy without a byte of a request")

    def received_late(self, count: int, error: BaseException | None) -> None:
        self._is_late = False
        if self._is_closed:
            return
        if self._queue:
            self._flush()
        if error is None:
            self._received(count)
            if not self._paused:
                self._watch_reads()
        elif isinstance(error, BlockingIOError):
            self._deliver_and_watch()
        elif isinstance(error, OSError):
            self._end_connection(reason_of(error))
        else:
            raise error

    def _read_when_writable(self) -> None:
        """The transport cannot receive before it has sent something of its own."""
        self._is_reading = False
        self._loop.remove_reader(self._fd)
        self._is_writing = True
        self._loop.add_writer(self._fd, self._flush_and_read)

    def _flush_and_read(self) -> None:
        self._flush()
        if not self._paused:
            self._watch_reads()

    def _deliver(self) -> None:
        self._is_delivering = True
        needed = 4
        first = self._start
        while True:
            start = self._start
            available = self._end - start
            if available < 4:
                needed = 4
                break
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            if length < 0 or length > self._max_frame_bytes:
                self._end_connection(f"a frame of {length} bytes; allowed are 0 to {self._max_frame_bytes}")
                break
            needed = 4 + length
            if available < needed:
                break
            self._start = start + needed
            if needed > self._largest_frame:
                self._largest_frame = min(needed, _LARGEST_KNOWN_FRAME)
            self._handler.on_frame(self._view[start + 4 : start + needed])
            if self._paused or self._is_closed:
                break
        self._is_delivering = False
        if self._start != first:
            self._delivered += 1
        if not self._is_closed:
            self._make_room(needed)

    def _make_room(self, needed: int) -> None:
        """Ensures that there is room to receive, or waits for memory.

        A frame in progress has room for all of it where as much came before (`_GROWTH`), else for a part.
        """
        capacity = len(self._buffer)
        pending = self._end - self._start
        if self._end == capacity and self._room_hint < _LARGEST_IDLE_BUFFER:
            self._room_hint *= 2  # a full buffer: the peer sends faster than we read
        if self._memory.is_short and not pending and capacity > SMALLEST_BYTES:
            self.shrink()
            return
        if self._start + needed <= capacity and (pending >= 4 or capacity - self._end >= capacity >> 2):
            return
        grown = max(self._largest_frame, _GROWTH * pending)
        size = max(needed if needed < grown else grown, self._room_hint)
        if pending >= 4 and size <= capacity - self._start and self._end < capacity:
            return  # the frame does not fit, but more of it does
        fresh = self._memory.take(self, size, max(needed, size))
        if fresh is None:
            self._reuse_or_wait()
            return
        self._is_waiting = False
        view = memoryview(fresh)
        view[:pending] = self._view[self._start : self._end]
        self._buffer = fresh
        self._view = view
        self._start = 0
        self._end = pending

    def _reuse_or_wait(self) -> None:
        """There is no memory: reads on into the buffer that it has, if there is room or nobody keeps a slice of it."""
        buffer, start, end = self._buffer, self._start, self._end
        if start:
            self._view = _NOTHING  # else it keeps the buffer itself
            if is_unshared(buffer):
                buffer[: end - start] = buffer[start:end]
                self._start, self._end = 0, end - start
            self._view = memoryview(buffer)
        if self._end < len(buffer):
            self._is_waiting = False
            self._memory.wait_no_more(self)
        elif not self._is_waiting:
            self._is_waiting = True
            if self._is_reading:
                self._is_reading = False
                self._loop.remove_reader(self._fd)

    # The Receiver of `receive_memory`

    @property
    def share(self) -> float:
        start = self._start
        if self._share is None or self._end - start < 4:
            return 1.0
        (length,) = _LENGTH.unpack_from(self._buffer, start)
        return self._share(self._view[start + 4 : self._end], length)

    @property
    def progress(self) -> tuple[int, int]:
        return self._delivered, 0 if self._paused else self._end - self._start

    def receive_on(self) -> None:
        self._is_waiting = False
        if self._is_closed:
            return
        if self._paused:
            # `resume` asks again.
            self._memory.wait_no_more(self)
            return
        self._deliver_and_watch()

    def shrink(self) -> None:
        if self._start == self._end and len(self._buffer) > SMALLEST_BYTES and not (self._is_closed or self._is_late):
            self._room_hint = SMALLEST_BYTES
            self._view = _NOTHING
            self._buffer = self._memory.first_buffer()
            self._view = memoryview(self._buffer)
            self._start = self._end = 0

    def refuse_frame(self, reason: str) -> None:
        self._end_connection(reason)

    # Sending

    def send(self, chunks: Sequence[Chunk], *, now: bool = False) -> None:
        if self._is_closed:
            for chunk in chunks:
                _drop(chunk)
            return
        queue = self._queue
        size = 0
        for chunk in chunks:
            size += _size(chunk)
            queue.append(chunk)
        self._unsent += size
        if self._is_writing:
            return
        if now:
            self._flush()
        elif not self._flush_is_scheduled:
            self._flush_is_scheduled = True
            self._loop.call_soon(self._flush_scheduled)

    def limit_frames(self, max_bytes: int) -> None:
        self._max_frame_bytes = max_bytes

    def close_after_send(self) -> None:
        self.pause()
        self._closing = True
        if not self._queue and not self._flush_is_scheduled:
            self._end_connection("")

    def _flush_scheduled(self) -> None:
        self._flush_is_scheduled = False
        if self._queue:
            self._flush()
        elif self._closing:
            self._end_connection("")

    def _flush(self) -> None:
        if self._is_closed or self._is_late:
            return
        queue = self._queue
        try:
            for _ in _CALLS_OF_A_TURN:
                if not queue:
                    break
                first = queue[0]
                if isinstance(first, bytes | bytearray | memoryview):
                    sent = self._send_buffers()
                else:
                    sent = self._send_file_range(first)
                if not sent:
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._end_connection(reason_of(error))
            return
        if queue:
            if not self._is_writing:
                self._is_writing = True
                self._loop.add_writer(self._fd, self._flush)
            return
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._fd)
        self._unsent = 0
        if self._closing:
            self._end_connection("")
        else:
            self._handler.on_sent()

    def _send_buffers(self) -> bool:
        """Sends the buffers at the head of the queue. True when it sent all that it tried to send."""
        queue = self._queue
        buffers: list[Buffer] = []
        more_follows = False
        total = 0
        for chunk in queue:
            if not isinstance(chunk, bytes | bytearray | memoryview):
                more_follows = True
                break
            if len(buffers) == _MAX_SENDMSG_CHUNKS:
                more_follows = True
                break
            buffers.append(chunk)
            total += len(chunk)
        sent = self._transport.send(buffers, more_follows)
        self._unsent -= sent
        if sent == total:
            if len(buffers) == len(queue):
                queue.clear()
            else:
                for _ in buffers:
                    queue.popleft()
            return True
        for buffer in buffers:
            size = len(buffer)
            if sent < size:
                queue[0] = memoryview(buffer)[sent:]
                break
            sent -= size
            queue.popleft()
        return False

    def _send_file_range(self, chunk: Chunk) -> bool:
        """Sends the range at the head of the queue. True when it sent all of it.

        What the socket did not take waits until it can be written again, without another try: Java's consumer reads
        1.4 to 1.8 times as much a second so (decision 101).
        """
        fd = getattr(chunk, "fd", None)
        if fd is None:  # a range of another adapter: sends its bytes
            self._queue[0] = chunk.read()  # type: ignore[union-attr]
            chunk.release()  # type: ignore[union-attr]
            return True
        pending = _PendingRange(chunk) if not isinstance(chunk, _PendingRange) else chunk
        self._queue[0] = pending  # type: ignore[assignment]
        while pending.length:
            pending.check()
            asked = min(pending.length, self._transport.range_bytes)
            sent = self._transport.send_range(pending.fd, pending.position, asked)
            if sent == 0:
                raise OSError(errno.EIO, "a file is shorter than the range being sent")
            pending.position += sent
            pending.length -= sent
            self._unsent -= sent
            if sent < asked:
                return False
        pending.release()
        self._queue.popleft()
        return True

    # Ending

    def close(self) -> None:
        self._end_connection("")

    def _end_connection(self, reason: str) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_reading:
            self._loop.remove_reader(self._fd)
            self._is_reading = False
        if self._handshake is not None:
            self._handshake.cancel()
        elif self._is_writing:
            self._loop.remove_writer(self._fd)
        self._is_writing = False
        for chunk in self._queue:
            _drop(chunk)
        self._queue.clear()
        self._unsent = 0
        self._transport.close()
        self._memory.forget(self)
        self._on_end(self)
        self._loop.call_soon(self._notify_closed, reason)

    def _notify_closed(self, reason: str) -> None:
        self._view = memoryview(b"")
        self._buffer = bytearray()
        self._handler.on_close(reason)


class _PendingRange:
    """A file range that is being sent, from a position on."""

    __slots__ = ("_range", "check", "fd", "length", "position")

    def __init__(self, chunk: Chunk) -> None:
        self._range = chunk
        self.check: Callable[[], None] = chunk.check  # type: ignore[union-attr]
        self.fd: int = chunk.fd  # type: ignore[union-attr]
        self.position: int = chunk.position  # type: ignore[union-attr]
        self.length: int = chunk.length  # type: ignore[union-attr]

    def release(self) -> None:
        self._range.release()  # type: ignore[union-attr]


def _size(chunk: Chunk) -> int:
    if isinstance(chunk, bytes | bytearray | memoryview):
        return len(chunk)
    return chunk.length


def _drop(chunk: Chunk) -> None:
    if not isinstance(chunk, bytes | bytearray | memoryview):
        chunk.release()


def reason_of(error: OSError) -> str:
    """A failed call on a socket in words."""
    return error.strerror or type(error).__name__
