"""The TLS transport: OpenSSL on the non-blocking socket of a connection.

OpenSSL reads and writes records of at most 16 KiB, of which some clients make small ones. So `receive` fills the room
that it has with several of them, up to a bound for each call, and `send` joins small buffers up to the size of a
record.

Bytes that OpenSSL has decrypted and nobody has read are not seen by the poll: `pending` tells of them.

A record that the socket did not take is kept by OpenSSL, which wants the same bytes again, at least as many. The queue
of a connection keeps their order, small buffers are joined from its head on, and a range of a file is read again from
the same position: the next call begins with the same bytes.

A client may send records that keep OpenSSL busy for seconds without a byte for anybody: one `SSL_read` goes on while
key updates or attempts at a new handshake come. So the loop goes on without it (`event_loop.py`), and a connection
whose `receive` does not return within half a second is closed (`socket_connection.py`). Until it returns nothing else
touches the OpenSSL of the connection: that belongs to one thread at a time.

A file is sent with sendfile only where the kernel encrypts (kTLS), which is asked of every connection after its
handshake: OpenSSL goes on in user space without a word where the kernel lacks a module or the cipher, and sendfile
would then send plain text (`_kernel_encrypts`).

Source: SSL_write(3) (SSL_MODE_ENABLE_PARTIAL_WRITE, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, which CPython sets),
linux/tls.h; org.apache.kafka.common.network.SslTransportLayer.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial

from ottla_broker.adapters.event_loop import TakeoverLoop
from ottla_broker.adapters.transport import LONGEST_CALL_S, LateReceiver, ReceivesLate
from ottla_broker.ports.network import Buffer
from ottla_broker.security.tls_records import RECORD_BYTES, pieces

HELLO_HEAD_BYTES = 5
"""Of a record: its type, its version and its length."""
_CALL_BYTES = 512 * 1024
"""So much is decrypted or encrypted in one call, about 0.3 ms of the loop."""
_CALL_RECORDS = 512
"""So many records are read in one call, up to 1.5 ms of the loop: small ones cost as much as large ones."""
_FILE_BYTES = 256 * 1024
_LARGE_ROOM = 32 * 1024
"""Where there is so much room a large frame is coming, maybe in many small records: librdkafka makes one of each record
batch's header and of each record's value. So it is read on until nothing is left, at the price of one system call
more. In less room a record that is not full ends the call."""
_SOL_TLS, _TLS_TX = 282, 1

_file_buffer = bytearray(_FILE_BYTES)
"""What is read of files on its way to OpenSSL: of all connections, since nothing of it is kept between two calls."""
_returning = threading.Lock()
"""Held for a moment by who closes a transport, and by a thread whose call returns late."""


class Handshake(Enum):
    """What a handshake waits for."""

    READ = "read"
    WRITE = "write"
    NOTHING = "nothing"
    """It is complete."""


class TlsTransport:
    """See the module and `Transport`. Complete the handshake before anything else.

    Args:
        sock: connected and non-blocking; the transport owns it.
        server_name: of the peer, where this side opened the connection: it is sent (SNI), and the certificate must name
            it unless the context does not check names. None on the accepting side.
        guard: the loop, if it goes on beside a call that takes long.
    """

    __slots__ = (
        "_context",
        "_failure",
        "_fd",
        "_guard",
        "_is_called",
        "_is_over",
        "_kernel_sends",
        "_must_close",
        "_receiver",
        "_server_name",
        "receive_waits_for_send",
        "socket",
    )

    range_bytes = _CALL_BYTES

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        server_name: str | None = None,
        guard: TakeoverLoop | None = None,
    ) -> None:
        self._guard = guard
        self._receiver: LateReceiver | None = None
        self._is_called = False
        """OpenSSL is at work, maybe on another thread than the loop's."""
        self._must_close = False
        """As soon as that returns."""
        self.socket: socket.socket = sock
        """As OpenSSL has it, once the handshake has begun."""
        self._context = context
        self._server_name = server_name
        self._fd = sock.fileno()
        self._kernel_sends = False
        self._is_over = False
        """The peer sends no more."""
        self._failure: OSError | None = None
        """Raised by the next `receive`: the one that met it had bytes to give."""
        self.receive_waits_for_send = False

    # Handshake

    def peek(self) -> bytes:
        """The peer's first bytes, at most `HELLO_HEAD_BYTES`, which stay where they are; b"" without any. Before
        `handshake`: until then the connection costs nothing but its socket."""
        try:
            return self.socket.recv(HELLO_HEAD_BYTES, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return b""

    def handshake(self) -> Handshake:
        """Goes on as far as the bytes that have come allow. Raises OSError (ssl.SSLError) when it fails."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return Handshake.READ
        except ssl.SSLWantWriteError:
            return Handshake.WRITE
        self._kernel_sends = _kernel_encrypts(self.socket)
        return Handshake.NOTHING

    @property
    def _tls(self) -> ssl.SSLSocket:
        """The socket with OpenSSL."""
        if not isinstance(self.socket, ssl.SSLSocket):
            self.socket = self._context.wrap_socket(
                self.socket,
                server_side=self._server_name is None,
                do_handshake_on_connect=False,
                suppress_ragged_eofs=True,
                server_hostname=self._server_name,
            )
        return self.socket

    @property
    def protocol(self) -> str:
        """Such as TLSv1.3; "" before the handshake."""
        return self._tls.version() or ""

    @property
    def cipher_suite(self) -> str:
        """By OpenSSL's name; "" before the handshake."""
        found = self._tls.cipher()
        return found[0] if found else ""

    @property
    def kernel_sends(self) -> bool:
        """Whether the kernel encrypts what is sent (kTLS)."""
        return self._kernel_sends

    @property
    def peer_certificate(self) -> bytes | None:
        if not isinstance(self.socket, ssl.SSLSocket) or not self.socket.version():
            return None  # before the handshake
        return self.socket.getpeercert(True)

    # Receiving

    def pending(self) -> bool:
        if self._is_called:
            return False
        return self._is_over or self._failure is not None or self._tls.pending() > 0

    def attach(self, receiver: LateReceiver) -> None:
        self._receiver = receiver

    def receive(self, view: memoryview) -> int:
        if self._is_called:
            raise BlockingIOError
        if self._failure is not None:
            raise self._failure
        if self._is_over:
            return 0
        guard = self._guard
        if guard is None or self._receiver is None:
            return self._receive(view)
        self._is_called = True
        token = guard.begin_call(self._receiver.receives_late)
        try:
            count = self._receive(view)
        except BaseException as failure:
            # It is kept in no variable: its traceback would keep the view, and so the buffer, until a collection.
            if guard.end_call(token):
                self._is_called = False
                raise
            self._return_late(guard, self._receiver, 0, failure.with_traceback(None))
            raise ReceivesLate from None
        if not guard.end_call(token):
            self._return_late(guard, self._receiver, count, None)
            raise ReceivesLate
        self._is_called = False
        return count

    def _return_late(
        self, guard: TakeoverLoop, receiver: LateReceiver, count: int, error: BaseException | None
    ) -> None:
        """On the thread that is not the loop's any more."""
        with _returning:
            self._is_called = False
            if self._must_close:
                self.socket.close()
                return
        with contextlib.suppress(RuntimeError):  # the loop is closed
            guard.call_soon_threadsafe(receiver.received_late, count, error)

    def _receive(self, view: memoryview) -> int:
        self.receive_waits_for_send = False
        tls = self._tls
        read: Callable[[int, memoryview], int] = tls.read  # type: ignore[assignment]  # into a buffer: how many
        room = min(len(view), _CALL_BYTES)
        filled = 0
        try:
            for _ in range(_CALL_RECORDS):
                count = read(room - filled, view[filled:room])
                if count == 0:
                    self._is_over = True
                    break
                filled += count
                if filled == room or (count < RECORD_BYTES and room < _LARGE_ROOM and not tls.pending()):
                    break  # a record that is not full is mostly the last: the poll tells of more
        except ssl.SSLWantReadError:
            if not filled:
                raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self.receive_waits_for_send = True  # the answer to a key update
            if not filled:
                raise BlockingIOError from None
        except OSError as error:
            if not filled:
                raise
            self._failure = error.with_traceback(None)  # else it keeps the view
        return filled

    # Sending

    def send(self, buffers: Sequence[Buffer], more_follows: bool) -> int:
        if self._is_called:
            raise BlockingIOError
        sent = 0
        for piece in pieces(buffers):
            taken = self._write(piece, sent)
            sent += taken
            if taken < len(piece) or sent >= _CALL_BYTES:
                break
        return sent

    def send_range(self, fd: int, position: int, count: int) -> int:
        if self._is_called:
            raise BlockingIOError
        if self._kernel_sends:
            return os.sendfile(self._fd, fd, position, count)
        sent = 0
        view = memoryview(_file_buffer)
        while sent < count:
            size = os.preadv(fd, [view[: min(count - sent, _FILE_BYTES)]], position + sent)
            if size == 0:
                break
            taken = self._write(view[:size], sent)
            sent += taken
            if taken < size:
                break
        return sent

    def _write(self, data: Buffer, sent_before: int) -> int:
        """Gives how much OpenSSL took. Raises BlockingIOError when that is nothing, and was before."""
        size, sent = len(data), 0
        write = self._tls.send
        try:
            sent = write(data)
            if sent < size:
                view = memoryview(data)
                while sent < size:
                    sent += write(view[sent:])
        except ssl.SSLWantWriteError:
            if not sent and not sent_before:
                raise BlockingIOError from None
        except ssl.SSLWantReadError:
            raise OSError("the peer asks for a new handshake, which is not allowed") from None
        return sent

    def close(self) -> None:
        with _returning:
            if self._is_called:
                self._must_close = True
                _reset(self.socket)
                return
        if self._guard is not None and isinstance(self.socket, ssl.SSLSocket) and self.socket.version():
            self._guard.call_soon(self._end, self._guard, self.socket)
        else:
            self.socket.close()

    def _end(self, guard: TakeoverLoop, tls: ssl.SSLSocket) -> None:
        """Sends close_notify. OpenSSL then looks for the peer's, in whatever the peer goes on sending: another thread
        may go on with the loop here, too."""
        self._is_called = True
        token = guard.begin_call(partial(guard.call_later, LONGEST_CALL_S, self._end_now))
        with contextlib.suppress(OSError, ValueError):
            tls.unwrap()
        guard.end_call(token)
        with _returning:
            self._is_called = False
            tls.close()

    def _end_now(self) -> None:
        with _returning:
            if self._is_called:
                _reset(self.socket)


def _reset(sock: socket.socket) -> None:
    """Nothing more comes for OpenSSL, and the peer is told when the socket is closed."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _kernel_encrypts(sock: socket.socket) -> bool:
    """Whether the kernel encrypts what is sent on this connection.

    OpenSSL may have attached the kernel's TLS and then have kept the keys: only a cipher that the kernel tells is one
    that it has.
    """
    try:
        return len(sock.getsockopt(_SOL_TLS, _TLS_TX, 4)) == 4
    except OSError:
        return False
