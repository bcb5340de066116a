"""The TLS handshake of a connection that this process opens."""

from __future__ import annotations

import asyncio
import socket

from ottla_broker.adapters.tls_transport import Handshake, TlsTransport
from ottla_broker.ports.network import Tls
from ottla_broker.security.handshake_failures import reason_of_failure


async def connect_tls(loop: asyncio.AbstractEventLoop, sock: socket.socket, host: str, tls: Tls) -> TlsTransport:
    """Completes the handshake over a connected socket, which belongs to the transport from then on.

    The caller limits the time. When this fails or is cancelled, the socket is closed.

    Raises:
        ConnectionError: the handshake failed; the message says why.
    """
    transport = TlsTransport(sock, tls.context(), server_name=host)
    try:
        while (wants := transport.handshake()) is not Handshake.NOTHING:
            await _ready(loop, transport.socket.fileno(), wants)
    except OSError as error:
        code, reason = reason_of_failure(error)
        tls.on_failure(code)
        transport.close()
        raise ConnectionError(f"TLS handshake failed: {reason}") from error
    except BaseException:
        transport.close()
        raise
    tls.on_handshake(transport.protocol, transport.cipher_suite, transport.kernel_sends)
    return transport


async def _ready(loop: asyncio.AbstractEventLoop, fd: int, wants: Handshake) -> None:
    """Returns when the socket can be read, or written."""
    is_ready = loop.create_future()
    is_read = wants is Handshake.READ
    (loop.add_reader if is_read else loop.add_writer)(fd, _set, is_ready)
    try:
        await is_ready
    finally:
        (loop.remove_reader if is_read else loop.remove_writer)(fd)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
