"""A blocking socket whose bytes go as they are. `tls_socket` has the same methods over TLS."""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from typing import Any

_BUFFERS = 64
"""So many pieces of a request are sent by one call: far fewer than the system's limit (IOV_MAX)."""


class PlainSocket:
    """See the module.

    `receive_into` fills a part of a view and gives how much, 0 when the broker has closed.
    """

    has_waiting_bytes = False
    """Whether bytes have come that the poll does not tell of."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.receive_into = sock.recv_into

    def send(self, buffers: Sequence[Any]) -> None:
        """Sends all of them, without joining them."""
        left = [memoryview(buffer) for buffer in buffers]
        while left:
            sent = self.socket.sendmsg(left[:_BUFFERS])
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if sent:
                left[0] = left[0][sent:]

    def is_quiet(self) -> bool:
        """Whether the broker has neither sent anything nor closed."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return not poll.poll(0)

    def explain(self, error: OSError) -> OSError:
        """The error of a connection that breaks before its first answer, with what may be wrong."""
        if not isinstance(error, ConnectionError):
            return error
        return ConnectionError(f"{error}; if its listener has TLS, set kafka.security.protocol=SSL")
