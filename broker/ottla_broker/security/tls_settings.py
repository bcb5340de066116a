"""What the `ssl.*` keys say for one listener, or for the connections to one. Pure values.

Source: org.apache.kafka.common.config.SslConfigs, DefaultSslEngineFactory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class TlsError(ValueError):
    """Keys, certificates or trust that cannot be used.

    Args:
        key: the configuration key that names it.
        file: "" where the value itself holds the certificates.
        reason: what is wrong, and what to do. Never a secret.
    """

    def __init__(self, key: str, file: str, reason: str) -> None:
        self.key = key
        self.file = file
        self.reason = reason
        super().__init__(f"{key}: {file}: {reason}" if file else f"{key}: {reason}")


class ClientAuth(StrEnum):
    """ssl.client.auth: whether clients show a certificate."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class CertificateStore:
    """Where certificates come from: a file, or values of the configuration.

    Args:
        key: the configuration key that names the file, or holds the certificates; for messages.
        location: the file; "" for values.
        password: of the file; never of a PEM one.
        certificates: in PEM, instead of a file.
        private_key: in PEM, with `certificates`, in a key store.
        key_password: of the private key, in a key store.
        key_location: a file of PEM with the private key alone (librdkafka's ssl.key.location).
    """

    key: str
    location: str = ""
    password: str | None = field(default=None, repr=False)
    certificates: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)
    key_password: str | None = field(default=None, repr=False)
    key_location: str = ""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """See the module.

    Args:
        protocols: of TLSv1.2 and TLSv1.3, at least one.
        cipher_suites: Java's (IANA's) names; empty for the default.
        verifies_names: whether a server's certificate must name its host.
        key_store: None without a certificate of one's own: only a client may do without.
        trust_store: None: the authorities of the system.
        uses_kernel: whether the kernel is asked to encrypt (kTLS).
        verifies_certificates: of servers; False trusts whoever answers.
    """

    protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    client_auth: ClientAuth
    verifies_names: bool
    key_store: CertificateStore | None
    trust_store: CertificateStore | None
    uses_kernel: bool = True
    verifies_certificates: bool = True
