"""What connects to brokers as the keys of a client say: plain, over TLS, logged in by SASL.

Not here: which keys there are (`ottla_broker.security.client_settings`), and where a command reads them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla_broker.ports import Clock
from ottla_broker.ports.network import Connector, Network
from ottla_broker.security.client_settings import client_security

if TYPE_CHECKING:
    from ssl import SSLContext


def connector_of(network: Network, clock: Clock, security: Mapping[str, str]) -> Connector:
    """What connects as these keys say. Raises TlsError: they, or the stores that they name, cannot be used."""
    found = client_security(security)
    connector: Connector = network
    if found.tls is not None:
        from ottla_broker.security.tls_context import load_client
        from ottla_broker.server.edge.tls_contexts import TlsConnector

        connector = TlsConnector(network, _CommandTls(load_client(found.tls, time.time()).context))
    login = found.login
    if login is None:
        return connector
    from ottla_broker.adapters.http_threads import ThreadHttp
    from ottla_broker.server.peers.login_tokens import LoginTokens
    from ottla_broker.server.peers.sasl_connector import SaslConnector

    return SaslConnector(connector, clock, lambda: login, LoginTokens(clock, ThreadHttp()).token)


class _CommandTls:
    """See `ottla_broker.ports.network.Tls`. Nobody counts the handshakes of a command."""

    handshake_timeout_s = 10.0

    def __init__(self, context: SSLContext) -> None:
        self._context = context

    def context(self) -> SSLContext:
        return self._context

    def on_handshake(self, protocol: str, cipher_suite: str, kernel_sends: bool) -> None:
        return

    def on_failure(self, code: str) -> None:
        return
