"""How the bytes of one connection pass its socket: the Transport of a `SocketConnection`, and the plain one.

The TLS transport is `tls_transport.py`, which a broker without a TLS listener does not import. Nobody but a transport
calls sendfile: the kernel sends a file as it is, and only a transport knows whether that is what the peer expects.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

from ottla_broker.ports.network import Buffer

LONGEST_CALL_S = 0.5
"""A call of a transport that lasts longer is kept busy by the peer: it takes less than a millisecond."""


class ReceivesLate(Exception):
    """A `receive` took so long that another thread runs the loop now: whoever called it returns, and touches nothing.
    `LateReceiver.received_late` is called with what it gives."""


class LateReceiver(Protocol):
    """Whose `receive` may take long. Called on the loop."""

    def receives_late(self) -> None:
        """A `receive` has not returned yet, and the loop goes on without it."""
        ...

    def received_late(self, count: int, error: BaseException | None) -> None:
        """It has returned, or raised."""
        ...


class Transport(Protocol):
    """See the module. Calls that cannot go on now raise BlockingIOError; other OSErrors end the connection."""

    def attach(self, receiver: LateReceiver) -> None:
        """Takes what the connection gives; called before anything else."""
        ...

    @property
    def socket(self) -> socket.socket: ...

    @property
    def receive(self) -> Callable[[memoryview], int]:
        """Receives into the view and gives the number of bytes; 0: the peer has closed. Raises ReceivesLate."""
        ...

    @property
    def pending(self) -> Callable[[], bool] | None:
        """Whether received bytes wait that the poll does not see; None: never."""
        ...

    @property
    def range_bytes(self) -> int:
        """So much of a file is sent in one call of `send_range`, at most."""
        ...

    @property
    def receive_waits_for_send(self) -> bool:
        """The last `receive` could not go on until something can be sent."""
        ...

    @property
    def peer_certificate(self) -> bytes | None:
        """See `Connection.peer_certificate`."""
        ...

    def send(self, buffers: Sequence[Buffer], more_follows: bool) -> int:
        """Sends the buffers in order, and gives how many bytes were taken. What was not is offered again, at the head
        of the next call."""
        ...

    def send_range(self, fd: int, position: int, count: int) -> int:
        """Sends `count` bytes of an open file, `range_bytes` at most, and gives how many were taken; 0: the file has
        no more. What was not taken is offered again."""
        ...

    def close(self) -> None:
        """Closes the socket. Nothing is called afterwards."""
        ...


class PlainTransport:
    """Bytes as they are."""

    __slots__ = ("_fd", "receive", "socket")

    pending: Callable[[], bool] | None = None
    range_bytes = 4 * 1024 * 1024
    receive_waits_for_send = False
    peer_certificate: bytes | None = None

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._fd = sock.fileno()
        self.receive: Callable[[memoryview], int] = sock.recv_into

    def attach(self, receiver: LateReceiver) -> None:
        pass  # nothing here takes long

    def send(self, buffers: Sequence[Buffer], more_follows: bool) -> int:
        flags = socket.MSG_MORE if more_follows else 0
        if len(buffers) == 1:
            return self.socket.send(buffers[0], flags)
        return self.socket.sendmsg(buffers, (), flags)

    def send_range(self, fd: int, position: int, count: int) -> int:
        return os.sendfile(self._fd, fd, position, count)

    def close(self) -> None:
        self.socket.close()
