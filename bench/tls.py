"""TLS for the compared systems: one authority, one certificate for 127.0.0.1, the same settings for both.

Keys and certificates are PEM, which Apache Kafka and Ottla read alike. ECDSA P-256, TLS 1.3 and its default suites.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ottla.local.certificates import certificates_of_this_machine


@dataclass(frozen=True, slots=True)
class BenchTls:
    """The files, as `make` has written them."""

    key_store: Path
    trust_store: Path

    @property
    def broker(self) -> Mapping[str, str]:
        """What the brokers are configured with."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.key_store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust_store),
        }

    @property
    def java(self) -> Mapping[str, str]:
        """What a Java client is configured with."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust_store),
        }

    @property
    def librdkafka(self) -> Mapping[str, str]:
        """What a client of librdkafka is configured with."""
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.trust_store)}


def make(folder: Path) -> BenchTls:
    """Writes a new authority and a certificate into a folder."""
    keys, trusted = certificates_of_this_machine("CN=brokers")
    found = BenchTls(folder / "broker.pem", folder / "authority.pem")
    found.key_store.touch(0o600)
    found.key_store.write_bytes(keys)
    found.trust_store.write_bytes(trusted)
    return found
