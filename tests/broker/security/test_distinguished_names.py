"""Names of certificates: those of a list, and each beside what Java prints."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st

from ottla.local.jars import find_java
from ottla_broker.security.distinguished_names import name_of
from tests.authority import Authority

CN, ORG, OU, L, C, UID, DC = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.COUNTRY_NAME,
    NameOID.USER_ID,
    NameOID.DOMAIN_COMPONENT,
)


def rdn(*values: tuple[ObjectIdentifier, str]) -> x509.RelativeDistinguishedName:
    return x509.RelativeDistinguishedName([x509.NameAttribute(oid, value, _validate=False) for oid, value in values])


def subject(*rdns: x509.RelativeDistinguishedName) -> x509.Name:
    return x509.Name(rdns)


NAMES: dict[str, x509.Name] = {
    "CN=alice": subject(rdn((CN, "alice"))),
    "": subject(),
    "CN=alice,OU=a\\,b,O=Example,C=CZ": subject(
        rdn((C, "CZ")), rdn((ORG, "Example")), rdn((OU, "a,b")), rdn((CN, "alice"))
    ),
    "L=Zlín,O=\\ blanks\\ \\ ": subject(rdn((ORG, " blanks  ")), rdn((L, "Zlín"))),
    "1.2.840.113549.1.9.1=#160d61406578616d706c652e6f7267,CN=a": subject(
        rdn((CN, "a")), rdn((NameOID.EMAIL_ADDRESS, "a@example.org"))
    ),
    "OU=a+UID=a1,DC=example,DC=org": subject(rdn((DC, "org")), rdn((DC, "example")), rdn((OU, "a"), (UID, "a1"))),
    'CN=\\"q\\"\\#\\+\\;\\<\\>\\=\\\\': subject(rdn((CN, '"q"#+;<>=\\'))),
    "2.5.4.4=#0c0553c3b6c3b6,CN=a": subject(rdn((CN, "a")), rdn((NameOID.SURNAME, "Söö"))),
    "CN=": subject(rdn((CN, ""))),
    "CN=#hash"[:3] + "\\#hash": subject(rdn((CN, "#hash"))),
    "STREET=Main 1,ST=Zl": subject(
        rdn((NameOID.STATE_OR_PROVINCE_NAME, "Zl")), rdn((NameOID.STREET_ADDRESS, "Main 1"))
    ),
    "CN=\\00b\\00m\\00p\\00 \x01~": x509.Name([x509.NameAttribute(CN, "bmp ž", _ASN1Type.BMPString)]),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_certificate(name: str) -> None:
    assert name_of(NAMES[name].public_bytes()) == name


ATTRIBUTES = st.tuples(st.sampled_from([CN, ORG, UID, NameOID.EMAIL_ADDRESS]), st.text(' ,=+#\\"\0a', max_size=3))
SUBJECTS = st.lists(ATTRIBUTES, max_size=2).map(
    lambda values: subject(*(rdn(value) for value in values)).public_bytes()
)


@given(SUBJECTS, SUBJECTS)
def test_different_subjects_have_different_names(one: bytes, other: bytes) -> None:
    """Whoever has another subject is another principal."""
    assert (name_of(one) == name_of(other)) == (one == other)


@pytest.mark.java
def test_java_prints_the_same(tmp_path: Path) -> None:
    authority = Authority()
    paths = []
    names = {text: name for text, name in NAMES.items() if text}  # Java reads no certificate without a subject
    for number, name in enumerate(names.values()):
        path = tmp_path / f"{number}.der"
        path.write_bytes(authority.issue(subject=name).certificate.public_bytes(Encoding.DER))
        paths.append(str(path))
    source = Path(__file__).with_name("CertificateNames.java")
    done = subprocess.run([find_java(), str(source), *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [base64.b64decode(line).decode() for line in done.stdout.splitlines()] == list(names)
