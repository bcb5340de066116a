"""The contexts of OpenSSL, made from settings and the stores that they name.

A store that cannot be used is refused before anything changes: a running broker keeps the context that it has. Keys
reach OpenSSL through a file in memory, never through a disk.

Source: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory. Where OpenSSL's rules differ from Java's, Java's
are asked for: every certificate of a trust store is an anchor, also one that somebody else has signed.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ottla_broker.security.certificates import Certificate, describe, missing_hosts
from ottla_broker.security.cipher_suites import TLS_1_2, usable_protocols
from ottla_broker.security.stores import content_of, read_key_store, read_trust_store
from ottla_broker.security.tls_settings import CertificateStore, ClientAuth, TlsError, TlsSettings

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_ENABLE_KTLS = 0x8
"""SSL_OP_ENABLE_KTLS; Python names it from 3.12 on."""
_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True)
class LoadedTls:
    """A context, and what it was made from.

    Args:
        digest: of the content of the stores.
        certificate: one's own; None for a client without one.
        authorities: of the trust store; empty where those of the system are trusted.
    """

    context: ssl.SSLContext
    digest: bytes
    certificate: Certificate | None
    authorities: tuple[Certificate, ...]


def digest_of(settings: TlsSettings) -> bytes:
    """A digest of the content of the stores now. Reads files. Raises TlsError."""
    return _digest(*_contents(settings))


def load_server(settings: TlsSettings, now: float, hosts: Sequence[str] = ()) -> LoadedTls:
    """For a listener. Reads files.

    Args:
        now: seconds since the epoch.
        hosts: under which the listener is advertised.

    Raises:
        TlsError: a store cannot be used, its certificate is not valid now, or does not name the hosts.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # of TLS 1.3: Java and librdkafka do not use them
    context.verify_mode = _VERIFY[settings.client_auth]
    loaded = _load(settings, context, now)
    certificate, store = loaded.certificate, settings.key_store
    assert certificate is not None and store is not None
    if settings.verifies_names and (missing := missing_hosts(certificate, hosts)):
        raise TlsError(
            store.key,
            store.location,
            f"the certificate of {certificate.subject} does not name {', '.join(missing)}, which is advertised: issue "
            "one with that alternative name, or set ssl.endpoint.identification.algorithm to nothing",
        )
    return loaded


def load_client(settings: TlsSettings, now: float) -> LoadedTls:
    """For connections that are opened. Reads files. Raises TlsError as `load_server`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.verifies_names and settings.verifies_certificates
    if not settings.verifies_certificates:
        context.verify_mode = ssl.CERT_NONE
    return _load(settings, context, now)


def _contents(settings: TlsSettings) -> tuple[bytes, bytes]:
    """The contents of the key store and the trust store."""
    key_store, trust_store = settings.key_store, settings.trust_store
    return (
        b"" if key_store is None else content_of(key_store),
        b"" if trust_store is None else content_of(trust_store),
    )


def _digest(keys: bytes, trust: bytes) -> bytes:
    digest = hashlib.sha256(b"%d:" % len(keys))
    digest.update(keys)
    digest.update(trust)
    return digest.digest()


def _load(settings: TlsSettings, context: ssl.SSLContext, now: float) -> LoadedTls:
    protocols = usable_protocols(settings.cipher_suites, settings.protocols)
    context.minimum_version, context.maximum_version = _VERSIONS[protocols[0]], _VERSIONS[protocols[-1]]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if settings.uses_kernel:
        context.options |= _ENABLE_KTLS
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    suites = [TLS_1_2[name] for name in settings.cipher_suites if name in TLS_1_2]
    if suites:
        context.set_ciphers(":".join(suites))
    keys, trust = _contents(settings)
    certificate = None if settings.key_store is None else _use_keys(context, settings.key_store, keys, now)
    authorities: tuple[Certificate, ...] = ()
    if settings.trust_store is not None:
        authorities = _use_trust(context, settings.trust_store, trust)
    elif context.verify_mode is not ssl.CERT_NONE:
        context.load_default_certs()
    return LoadedTls(context, _digest(keys, trust), certificate, authorities)


@contextmanager
def _named(store: CertificateStore) -> Iterator[None]:
    """Whatever is odd in a store, and whatever is short (descriptors), is an error of that store."""
    try:
        yield
    except TlsError:
        raise
    except ssl.SSLError as error:
        raise TlsError(store.key, store.location, _advice(error)) from None
    except Exception as error:
        raise TlsError(store.key, store.location, f"it cannot be used: {type(error).__name__}: {error}") from error


def _use_keys(context: ssl.SSLContext, store: CertificateStore, content: bytes, now: float) -> Certificate:
    with _named(store):
        material = read_key_store(store, content)
        certificate = describe(material.certificates[0])
        reason = certificate.why_unusable(now)
        if reason:
            raise TlsError(store.key, store.location, reason)
        _with_file(context.load_cert_chain, material.key_pem + material.chain_pem)
    return certificate


def _use_trust(context: ssl.SSLContext, store: CertificateStore, content: bytes) -> tuple[Certificate, ...]:
    with _named(store):
        trust = read_trust_store(store, content)
        _with_file(context.load_verify_locations, trust.pem)
        if trust.revocation_pem:
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        return tuple(map(describe, trust.certificates))


def _with_file(use: Callable[[str], object], content: bytes) -> None:
    """OpenSSL reads keys from files only: this one is in memory."""
    fd = os.memfd_create("tls")
    try:
        written = 0
        while written < len(content):
            written += os.write(fd, content[written:])
        use(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def _advice(error: ssl.SSLError) -> str:
    """What OpenSSL says of a store that was read, and what to do."""
    if error.reason in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL"):
        return "its key is too weak: use RSA of at least 2048 bits, or an elliptic curve"
    if error.reason in ("CA_MD_TOO_WEAK", "EE_MD_TOO_WEAK"):
        return "it is signed with a digest that is too weak: use SHA-256"
    return (error.reason or str(error)).lower().replace("_", " ")
