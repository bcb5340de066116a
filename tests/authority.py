"""A certificate authority for tests: certificates that are right, and each way in which one can be wrong."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    """A certificate with its key and the certificates above it."""

    key: Key
    certificate: x509.Certificate
    above: tuple[x509.Certificate, ...]

    @property
    def chain_pem(self) -> str:
        return "".join(_pem(one) for one in (self.certificate, *self.above))

    def key_pem(self, password: str | None = None) -> str:
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def pkcs12(self, password: str) -> bytes:
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"it", self.key, self.certificate, self.above, encryption)

    def write(self, path: Path, password: str | None = None) -> Path:
        """Writes key and chain into one PEM file."""
        path.write_text(self.key_pem(password) + self.chain_pem)
        return path


class Authority:
    """Issues certificates. `trust_pem` is its own."""

    def __init__(self, name: str = "an authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        self.certificate = (
            x509.CertificateBuilder(self._name, self._name, self._key.public_key(), x509.random_serial_number())
            .not_valid_before(now - 365 * _DAY)
            .not_valid_after(now + 3650 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def trust_pem(self) -> str:
        return _pem(self.certificate)

    def write_trust(self, path: Path) -> Path:
        path.write_text(self.trust_pem)
        return path

    def issue(
        self,
        *names: str,
        subject: x509.Name | str = "broker",
        days: tuple[float, float] = (-1, 365),
        key: Key | None = None,
        extension: x509.ExtensionType | None = None,
    ) -> Issued:
        """
        Args:
            names: DNS names and addresses.
            subject: as a name, or its common name alone.
            days: from and until when it is valid, from now on.
            key: None for a new one on P-256.
            extension: one more, however odd.
        """
        key = key or ec.generate_private_key(ec.SECP256R1())
        if isinstance(subject, str):
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)] if subject else [])
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now + days[0] * _DAY)
            .not_valid_after(now + days[1] * _DAY)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if extension is not None:
            builder = builder.add_extension(extension, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(_general(names)), critical=False)
        return Issued(key, builder.sign(self._key, hashes.SHA256()), (self.certificate,))

    def revocation_pem(self, *revoked: x509.RevokedCertificate) -> str:
        """A list of revoked certificates."""
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateRevocationListBuilder(self._name, now - _DAY, now + 30 * _DAY)
        for one in revoked:
            builder = builder.add_revoked_certificate(one)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def weak_key() -> rsa.RSAPrivateKey:
    """One that OpenSSL refuses at its security level 2."""
    return rsa.generate_private_key(65537, 1024)


def _general(names: Sequence[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
