"""Keys, certificates and trust of a fleet over TLS and of its clients, in files."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from ottla.testing import RunningCluster
from tests.authority import Authority
from tests.integration.clients.security import Security, tls_context

_NAMES = ("localhost", "127.0.0.1")


class Stores:
    """Of one fleet, whose brokers share a certificate."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority()
        self._broker = directory / "broker.pem"
        self.trust = self.authority.write_trust(directory / "trust.pem")
        self.client = self.authority.issue(subject="client").write(directory / "client.pem")
        self.another_trust = Authority("another authority").write_trust(directory / "another.pem")
        self.renew()

    def renew(self) -> int:
        """Puts a new certificate of the brokers in place of the one before, in one step; its serial."""
        issued = self.authority.issue(*_NAMES)
        issued.write(self._broker.with_suffix(".new")).replace(self._broker)
        return issued.certificate.serial_number

    @property
    def broker_config(self) -> dict[str, str]:
        """TLS on both listeners; between brokers both sides show their certificate."""
        return {
            "listener.security.protocol.map": "INTERNAL:SSL,CLIENT:SSL",
            "listener.name.internal.ssl.client.auth": "required",
            "ssl.keystore.location": str(self._broker),
            "ssl.keystore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
            "ssl.truststore.type": "PEM",
        }

    @property
    def unnamed(self) -> Security:
        """Of a client without a certificate."""
        return _trusting(self.trust)

    @property
    def named(self) -> Security:
        """Of a client with a certificate."""
        return {**self.unnamed, "ssl.keystore.location": str(self.client), "ssl.keystore.type": "PEM"}

    @property
    def misled(self) -> Security:
        """Of a client that trusts another authority."""
        return _trusting(self.another_trust)


def _trusting(trust: Path) -> Security:
    return {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(trust),
        "ssl.truststore.type": "PEM",
    }


def serials(fleet: RunningCluster, security: Security) -> set[int]:
    """Of the certificates that the brokers show to a new connection."""
    found = set()
    for broker in fleet.running:
        host, _, port = fleet.address(broker).rpartition(":")
        context = tls_context(security)
        assert context is not None
        with (
            socket.create_connection((host, int(port)), 60) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            found.add(_serial(secured))
    return found


def _serial(secured: ssl.SSLSocket) -> int:
    shown = secured.getpeercert()
    assert shown is not None
    return int(str(shown["serialNumber"]), 16)
