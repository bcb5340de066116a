"""TLS on a blocking socket. `plain_socket` has the same methods without.

A context is made of the stores once in a process. Each new connection looks whether their content has changed
(`RenewedContext`), so that a new certificate needs no new process. Python's own `ssl` is imported with the first one.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ottla_broker.security.handshake_failures import told_to_user
from ottla_broker.security.renewed_context import RenewedContext
from ottla_broker.security.tls_records import pieces
from ottla_broker.security.tls_settings import TlsError, TlsSettings
from ottla_pipeline.errors import OptionError
from ottla_pipeline.wire.security_options import option_error

_logger = logging.getLogger("ottla.pipeline")


@lru_cache(maxsize=8)
def _context_of(settings: TlsSettings) -> RenewedContext:
    return RenewedContext(settings, "connections to brokers", _logger)


class TlsSocket:
    """See the module. It completes the handshake in the time that the socket has for a call.

    Raises:
        OptionError: a store cannot be used on this machine.
        ConnectionError: the handshake has failed; the message says why.
    """

    def __init__(self, sock: socket.socket, host: str, settings: TlsSettings) -> None:
        try:
            self.socket = _context_of(settings)().wrap_socket(sock, server_hostname=host)
        except TlsError as error:
            raise _of_this_machine(error) from None
        except OSError as error:
            raise _failure(error) from None
        self.receive_into = self.socket.recv_into
        self._shows_certificate = settings.key_store is not None

    @property
    def has_waiting_bytes(self) -> bool:
        """Whether OpenSSL has decrypted bytes that nobody has read: the poll does not tell of them."""
        return self.socket.pending() > 0

    def send(self, buffers: Sequence[Any]) -> None:
        """Sends all of them, small ones together."""
        for piece in pieces(buffers):
            self.socket.sendall(piece)

    def is_quiet(self) -> bool:
        """Whether the broker has neither sent anything nor closed. Records of TLS itself (tickets, keys) are read."""
        if self.has_waiting_bytes:
            return False
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        if not poll.poll(0):
            return True
        timeout = self.socket.gettimeout()
        self.socket.settimeout(0)
        try:
            self.socket.recv(1)
        except ssl.SSLWantReadError:
            return True
        except OSError:
            return False
        finally:
            with contextlib.suppress(OSError):
                self.socket.settimeout(timeout)
        return False

    def explain(self, error: OSError) -> OSError:
        """The error of a connection that breaks before its first answer, with what may be wrong.

        In TLS 1.3 a broker refuses the certificate of a client after the client's handshake: then its alert may be
        there unread when the first request cannot be sent.
        """
        if isinstance(error, TimeoutError):
            return error
        if (alert := self._alert(error)) is not None:
            return _failure(alert)
        why = "refuses the certificate of the key store" if self._shows_certificate else "asks for a certificate"
        return ConnectionError(f"the broker closed the connection after the handshake; its log says whether it {why}")

    def _alert(self, error: OSError) -> ssl.SSLError | None:
        """Why the broker has closed, where it has said so."""
        found: OSError = error
        if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError):
            try:
                self.socket.settimeout(0)
                self.socket.recv(1)
            except OSError as further:
                found = further
        if isinstance(found, ssl.SSLEOFError | ssl.SSLWantReadError) or not isinstance(found, ssl.SSLError):
            return None
        return found


def _failure(error: OSError) -> ConnectionError:
    return ConnectionError(f"TLS handshake failed: {told_to_user(error)}")


def _of_this_machine(error: TlsError) -> OptionError:
    found = option_error(error)
    if not error.file:
        return found
    where = f"on {socket.gethostname()}; the driver and each executor read the file, or give PEM in a value"
    return OptionError(found.option, f"{found.problem} ({where})")
