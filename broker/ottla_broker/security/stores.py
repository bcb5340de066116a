"""Key stores and trust stores: files of PEM or PKCS#12, and PEM in values of the configuration, read into PEM.

A file is read by its first bytes: Kafka's default type is JKS, and what people put there is PKCS#12 since Java 9. A
real JKS is refused with the command that converts it.

Source: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory (FileBasedStore, PemStore).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    pkcs12,
)

from ottla_broker.security.tls_settings import CertificateStore, TlsError

_JKS, _JCEKS = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\s*(.*?)\s*-----END \1-----", re.DOTALL)
_LARGEST_BYTES = 16 * 1024 * 1024
_KEY_LOCATION = "ssl.key.location"


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key and its certificate, first, with those above it.

    `key_pem` is not encrypted: it never leaves the memory of the process.
    """

    key_pem: bytes = field(repr=False)
    certificates: tuple[x509.Certificate, ...]

    @property
    def chain_pem(self) -> bytes:
        return b"".join(one.public_bytes(Encoding.PEM) for one in self.certificates)


@dataclass(frozen=True, slots=True)
class Trust:
    """What certificates are trusted, as PEM, and lists of revoked ones."""

    certificates: tuple[x509.Certificate, ...]
    revocation_pem: bytes

    @property
    def pem(self) -> bytes:
        return b"".join(one.public_bytes(Encoding.PEM) for one in self.certificates) + self.revocation_pem


def content_of(store: CertificateStore) -> bytes:
    """The bytes of its file, or of its values. Raises TlsError."""
    certificates = _read(store.key, store.location) if store.location else store.certificates.encode()
    key = _read(_KEY_LOCATION, store.key_location) if store.key_location else store.private_key.encode()
    return b"%b\n%b" % (key, certificates) if key else certificates


def _read(key: str, location: str) -> bytes:
    """Raises TlsError with that key."""
    try:
        with Path(location).open("rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise TlsError(key, location, f"{error.strerror or error}: name a file that exists") from None
    if len(content) > _LARGEST_BYTES:
        raise TlsError(key, location, f"more than {_LARGEST_BYTES} bytes are no store")
    return content


def read_key_store(store: CertificateStore, content: bytes) -> KeyMaterial:
    """The key and certificates in `content_of(store)`. Raises TlsError."""
    if _is_pem(content):
        blocks = _blocks(content)
        keys = [block for name, block in blocks if name.endswith("PRIVATE KEY")]
        if not keys:
            raise _unusable(store, "no private key is in it: put the key in PEM before its certificate")
        key_pem = _decrypted(store, keys[0])
        certificates = _certificates(store, blocks)
    else:
        key, certificates = _read_pkcs12(store, content)
        if key is None:
            raise _unusable(store, "no private key is in it: it is a trust store")
        key_pem = key
    if not certificates:
        raise _unusable(store, "no certificate is in it: put the certificate of the key behind it")
    own = _of_key(store, key_pem, certificates)
    return KeyMaterial(key_pem, (own, *(one for one in certificates if one is not own)))


def read_trust_store(store: CertificateStore, content: bytes) -> Trust:
    """The certificates in `content_of(store)`. Raises TlsError."""
    revocation = b""
    if _is_pem(content):
        blocks = _blocks(content)
        certificates = _certificates(store, blocks)
        revocation = b"".join(block for name, block in blocks if name == "X509 CRL")
    else:
        _, certificates = _read_pkcs12(store, content)
    if not certificates:
        raise _unusable(store, "no certificate is in it: put those of the authorities that you trust there")
    return Trust(certificates, revocation)


def _unusable(store: CertificateStore, reason: str) -> TlsError:
    return TlsError(store.key, store.location, reason)


def _unusable_key(store: CertificateStore, reason: str) -> TlsError:
    return TlsError(_KEY_LOCATION, store.key_location, reason) if store.key_location else _unusable(store, reason)


def _is_pem(content: bytes) -> bool:
    return b"-----BEGIN " in content


def _blocks(content: bytes) -> list[tuple[str, bytes]]:
    """(what it is, PEM) in order. Values of a configuration may have spaces where a file has line ends."""
    found = []
    for match in _BLOCK.finditer(content):
        name, body = match[1], match[2]
        if b":" not in body:  # else it has the headers of an encrypted key of old
            body = b"\n".join(body.split())
        found.append((name.decode(), b"-----BEGIN %s-----\n%s\n-----END %s-----\n" % (name, body, name)))
    return found


def _certificates(store: CertificateStore, blocks: list[tuple[str, bytes]]) -> tuple[x509.Certificate, ...]:
    found = []
    for name, block in blocks:
        if name in ("CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE"):
            try:
                found.append(x509.load_pem_x509_certificate(block))
            except ValueError as error:
                raise _unusable(store, f"certificate {len(found) + 1} in it cannot be read ({error})") from None
    return tuple(found)


def _decrypted(store: CertificateStore, block: bytes) -> bytes:
    """A private key without its password."""
    password = store.key_password
    is_encrypted = b"ENCRYPTED" in block
    if is_encrypted and password is None:
        raise _unusable_key(store, "its private key is encrypted: give its password in ssl.key.password")
    try:
        key = load_pem_private_key(block, password.encode() if is_encrypted and password is not None else None)
    except (ValueError, TypeError):
        reason = (
            "ssl.key.password does not decrypt its private key" if is_encrypted else "its private key is no PEM key"
        )
        raise _unusable_key(store, reason) from None
    except Exception as error:  # an algorithm that the library does not have
        raise _unusable_key(store, f"its private key cannot be used: {error}") from None
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _read_pkcs12(store: CertificateStore, content: bytes) -> tuple[bytes | None, tuple[x509.Certificate, ...]]:
    if content.startswith((_JKS, _JCEKS)):
        raise _unusable(
            store,
            "it is a Java key store (JKS), which is not read; convert it: keytool -importkeystore "
            f"-srckeystore {store.location} -destkeystore {store.location}.p12 -deststoretype PKCS12",
        )
    if not content.startswith(b"\x30"):
        raise _unusable(store, "it is neither PEM nor PKCS#12")
    if not store.key.endswith("store.location"):
        raise _unusable(
            store, "it is no PEM: a file of PKCS#12 is named by ssl.truststore.location or ssl.keystore.location"
        )
    password = None if store.password is None else store.password.encode()
    try:
        found = pkcs12.load_pkcs12(content, password)
    except ValueError:
        key = store.key.removesuffix("location") + "password"
        reason = f"give its password in {key}" if password is None else f"{key} does not open it, or it is no PKCS#12"
        raise _unusable(store, reason) from None
    except Exception as error:
        raise _unusable(store, f"it cannot be read: {error}") from None
    certificates = [one.certificate for one in (found.cert, *found.additional_certs) if one is not None]
    key_pem = None
    if found.key is not None:
        key_pem = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key_pem, tuple(certificates)


def _of_key(store: CertificateStore, key_pem: bytes, certificates: tuple[x509.Certificate, ...]) -> x509.Certificate:
    """The certificate of the key; the others are above it."""
    public = load_pem_private_key(key_pem, None).public_key()
    wanted = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    for one in certificates:
        if one.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) == wanted:
            return one
    subject = certificates[0].subject.rfc4514_string()
    raise _unusable(store, f"its key is not that of its certificate ({subject}): they have to come together")
