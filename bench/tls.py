"""TLS for the compared systems: one authority, one certificate for 127.0.0.1, the same settings for both.

Keys and certificates are PEM, which Apache Kafka and Ottla read alike. ECDSA P-256, TLS 1.3 and its default suites.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

HOST = "127.0.0.1"
_YEAR = datetime.timedelta(days=365)


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
    authority = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the benchmark's authority")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    own = _builder(issuer, issuer, authority.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
    of_broker = _builder(subject, issuer, key.public_key()).add_extension(names, critical=False)
    trust = own.sign(authority, hashes.SHA256()).public_bytes(Encoding.PEM)
    chain = of_broker.sign(authority, hashes.SHA256()).public_bytes(Encoding.PEM) + trust
    found = BenchTls(folder / "broker.pem", folder / "authority.pem")
    found.key_store.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + chain)
    found.key_store.chmod(0o600)
    found.trust_store.write_bytes(trust)
    return found


def _builder(subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return x509.CertificateBuilder(
        issuer, subject, public_key, x509.random_serial_number(), now - datetime.timedelta(days=1), now + _YEAR
    )
