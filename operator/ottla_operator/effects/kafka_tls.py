"""TLS of kafka-python: its connections get their contexts from the stores of a value, read again when these change.

kafka-python takes one context for the life of a client, and says of a failed handshake only that it cannot connect. So
it is given what makes a context for each connection, and what remembers why the last one failed.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from socket import socket
from typing import Any

from ottla_broker.security.handshake_failures import told_to_user
from ottla_broker.security.renewed_context import RenewedContext
from ottla_broker.security.tls_settings import TlsSettings

_logger = logging.getLogger("ottla.operator.kafka")


class ContextOfConnections:
    """What kafka-python calls of an SSLContext.

    Args:
        settings: with a store of trust, and one of a certificate where brokers ask for it: files or values.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._context = RenewedContext(settings, "connections to brokers", _logger)
        self.failure = ""
        """Why the last connection that failed has failed; "" when none has."""

    def check(self) -> None:
        """Raises TlsError when a store cannot be used, and no older content of it is in force."""
        self._context()

    def wrap_socket(self, sock: socket, **options: Any) -> ssl.SSLSocket:
        """A socket of a new connection. Raises TlsError as `check`."""
        context = self._context()
        context.sslsocket_class = _telling(self._failed)
        return context.wrap_socket(sock, **options)

    def _failed(self, error: OSError) -> None:
        self.failure = f"TLS handshake failed: {told_to_user(error)}"


def _telling(tell: Callable[[OSError], None]) -> type[ssl.SSLSocket]:
    """Sockets that report what OpenSSL refuses. In TLS 1.3 a broker refuses a certificate after the handshake."""

    class TellingSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            try:
                super().do_handshake(block)
            except OSError as error:
                _tell(error)
                raise

        def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
            try:
                return super().recv(buflen, flags)
            except OSError as error:
                _tell(error)
                raise

    def _tell(error: OSError) -> None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLWantReadError | ssl.SSLWantWriteError):
            tell(error)

    return TellingSocket
