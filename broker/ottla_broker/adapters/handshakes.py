"""Handshakes: the TLS handshakes of the connections that a network has accepted, a few in each turn of the loop.

A handshake is 0.5 to 2 ms of public-key work. So handshakes wait in a queue, those of the brokers' own listeners first,
and the loop does other work after a few milliseconds of them: a thousand clients that come back at once after a roll
delay nobody who is connected.

A connection that does not complete its handshake within the time of its listener is closed. A first byte that begins
no TLS handshake closes the connection without an answer, before OpenSSL sees it: a client that speaks plain Kafka would
read an alert as a length (KAFKA-4090).

Memory: OpenSSL holds 55 KB for a handshake and 16 KB for a connection. So a connection gets nothing of it before the
first record of its client is there, whole; it waits in the socket. Behind that at most `_MOST_BEGUN` handshakes wait
for their clients: for one more, the oldest ends. A client that goes on is done after one round trip.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from functools import partial

from ottla_broker.adapters.tls_transport import HELLO_HEAD_BYTES, Handshake, TlsTransport
from ottla_broker.ports.network import Tls
from ottla_broker.security.handshake_failures import reason_of_failure

_OF_A_TURN_S = 0.003
_LATE_CHECK_S = 0.5
_MOST_BEGUN = 1000
_HANDSHAKE_RECORD = 0x16
_LARGEST_RECORD = 16 * 1024 + 256


class ServerHandshake:
    """One handshake. See `socket_connection.PendingHandshake`.

    Args:
        queue: of the network.
        is_privileged: of a listener for brokers: it comes first.
    """

    __slots__ = (
        "_queue",
        "began",
        "fd",
        "has_begun",
        "is_over",
        "is_privileged",
        "needed",
        "on_end",
        "tls",
        "transport",
        "watches",
    )

    def __init__(self, queue: Handshakes, transport: TlsTransport, tls: Tls, *, is_privileged: bool) -> None:
        self._queue = queue
        self.fd = transport.socket.fileno()
        self.transport = transport
        self.tls = tls
        self.is_privileged = is_privileged
        self.on_end: Callable[[str], object] | None = None
        """None before it begins."""
        self.began = 0.0
        self.needed = 0
        """Bytes of the first record; 0 while its length is not known."""
        self.has_begun = False
        """OpenSSL has seen the first record."""
        self.is_over = False
        self.watches = Handshake.NOTHING
        """What the loop watches its socket for."""

    def begin(self, on_end: Callable[[str], object]) -> None:
        if self.on_end is None:
            self.on_end = on_end
            self._queue.begin(self)

    def cancel(self) -> None:
        self._queue.cancel(self)


class Handshakes:
    """See the module. On the loop of the network."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._of_brokers: deque[ServerHandshake] = deque()
        self._of_clients: deque[ServerHandshake] = deque()
        self._under_way: dict[ServerHandshake, None] = {}
        """In the order of their beginning."""
        self._begun: dict[ServerHandshake, None] = {}
        """Those for which OpenSSL holds memory."""
        self._is_scheduled = self._is_checking = False

    def begin(self, handshake: ServerHandshake) -> None:
        """Goes on with it whenever its peer has sent something."""
        handshake.began = self._loop.time()
        self._under_way[handshake] = None
        self._watch(handshake, Handshake.READ)
        self._check_later()

    def cancel(self, handshake: ServerHandshake) -> None:
        """It is over, one way or the other. Idempotent."""
        handshake.is_over = True
        self._under_way.pop(handshake, None)
        self._begun.pop(handshake, None)
        self._watch(handshake, Handshake.NOTHING)

    def _watch(self, handshake: ServerHandshake, wants: Handshake) -> None:
        before, handshake.watches = handshake.watches, wants
        if before is wants:
            return
        if before is Handshake.READ:
            self._loop.remove_reader(handshake.fd)
        elif before is Handshake.WRITE:
            self._loop.remove_writer(handshake.fd)
        if wants is Handshake.READ:
            self._loop.add_reader(handshake.fd, partial(self._on_ready, handshake))
        elif wants is Handshake.WRITE:
            self._loop.add_writer(handshake.fd, partial(self._on_ready, handshake))

    def _on_ready(self, handshake: ServerHandshake) -> None:
        self._watch(handshake, Handshake.NOTHING)
        (self._of_brokers if handshake.is_privileged else self._of_clients).append(handshake)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        ends = self._loop.time() + _OF_A_TURN_S
        while self._of_brokers or self._of_clients:
            handshake = (self._of_brokers or self._of_clients).popleft()
            if not handshake.is_over:
                self._step(handshake)
            if self._loop.time() >= ends:
                break
        if self._of_brokers or self._of_clients:
            # Through the poll, not in a further round of this turn: what others have sent comes first.
            self._is_scheduled = True
            self._loop.call_later(0, self._go_on)

    def _step(self, handshake: ServerHandshake) -> None:
        transport = handshake.transport
        try:
            if not handshake.has_begun:
                if not self._has_hello(handshake):
                    return
                self._make_room()
                handshake.has_begun = True
                self._begun[handshake] = None
            wants = transport.handshake()
        except OSError as error:
            self._fail(handshake, *reason_of_failure(error))
            return
        if wants is not Handshake.NOTHING:
            self._watch(handshake, wants)
            return
        handshake.tls.on_handshake(transport.protocol, transport.cipher_suite, transport.kernel_sends)
        self._end(handshake, "")

    def _has_hello(self, handshake: ServerHandshake) -> bool:
        """Whether the first record of the client is there. If not, it has failed or is waited for."""
        head = handshake.transport.peek()
        sock = handshake.transport.socket
        if not head or (handshake.needed and not _is_there(sock, handshake.needed)):
            self._fail(handshake, "closed", "the peer has closed")
            return False
        if head[0] != _HANDSHAKE_RECORD:
            self._fail(handshake, "not_tls", "the first byte begins no TLS handshake")
            return False
        length = int.from_bytes(head[3:5], "big") if len(head) == HELLO_HEAD_BYTES else 0
        needed = HELLO_HEAD_BYTES + min(length, _LARGEST_RECORD)
        if _is_there(sock, needed):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            return True
        # The poll tells of it when so much has come, or the peer has closed.
        handshake.needed = needed
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, needed)
        self._watch(handshake, Handshake.READ)
        return False

    def _make_room(self) -> None:
        if len(self._begun) >= _MOST_BEGUN:
            oldest = next(iter(self._begun))
            self._fail(oldest, "too_many", f"{_MOST_BEGUN} others are under way, and it is the oldest")

    def _fail(self, handshake: ServerHandshake, code: str, reason: str) -> None:
        handshake.tls.on_failure(code)
        self._end(handshake, f"TLS handshake failed: {reason}")

    def _end(self, handshake: ServerHandshake, reason: str) -> None:
        self.cancel(handshake)
        assert handshake.on_end is not None
        handshake.on_end(reason)

    # Time limits

    def _check_later(self) -> None:
        if not self._is_checking:
            self._is_checking = True
            self._loop.call_later(_LATE_CHECK_S, self._check_times)

    def _check_times(self) -> None:
        self._is_checking = False
        now = self._loop.time()
        for handshake in list(self._under_way):
            limit_s = handshake.tls.handshake_timeout_s
            if now - handshake.began >= limit_s:
                self._fail(handshake, "timeout", f"it is not complete after {limit_s:g} s")
        if self._under_way:
            self._check_later()


def _is_there(sock: socket.socket, count: int) -> bool:
    """Whether so many bytes have come."""
    try:
        return len(sock.recv(count, socket.MSG_PEEK)) == count
    except (BlockingIOError, InterruptedError):
        return False
