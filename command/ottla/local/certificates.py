"""A certificate for the brokers of this machine, and the authority that signs it. ECDSA P-256.

It is imported by what makes one: the modules of cryptography take 17 MB.
"""

from __future__ import annotations

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from ottla.local.ports import HOST

_VALID_DAYS = 3650


def certificates_of_this_machine(subject: str) -> tuple[bytes, bytes]:
    """A key with its certificates, and the authority's certificate, in PEM. The authority's key is not kept.

    Args:
        subject: whose certificate it is, as RFC 4514 writes names, such as "CN=brokers".
    """
    signing, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = "CN=ottla local"
    own = (
        _builder(authority, authority, signing, signing)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))]
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    of_brokers = (
        _builder(subject, authority, key, signing)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    trusted = own.sign(signing, hashes.SHA256()).public_bytes(Encoding.PEM)
    chain = of_brokers.sign(signing, hashes.SHA256()).public_bytes(Encoding.PEM) + trusted
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + chain, trusted


def _builder(
    subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, signing: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    name = x509.Name.from_rfc4514_string
    serial = x509.random_serial_number()
    return (
        x509.CertificateBuilder(
            name(issuer), name(subject), key.public_key(), serial, now - day, now + day * _VALID_DAYS
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
