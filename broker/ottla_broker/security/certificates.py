"""What a certificate says, as far as the broker looks: validity and names. Pure.

Source: RFC 2818 and RFC 6125 for names, as Java's HTTPS endpoint identification and OpenSSL's check of host names have
them: alternative names, and the common name where there is none of kind DNS.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.x509.oid import NameOID

from ottla_broker.security.distinguished_names import name_of


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate.

    Args:
        subject: as RFC 4514 writes it; for messages.
        serial: hexadecimal.
        not_before, not_after: seconds since the epoch.
        names: DNS names.
        addresses: IP addresses as text.
    """

    subject: str
    serial: str
    not_before: float
    not_after: float
    names: tuple[str, ...]
    addresses: tuple[str, ...]

    def why_unusable(self, now: float) -> str:
        """ "" when it is valid at `now`, seconds since the epoch."""
        if now > self.not_after:
            return f"the certificate of {self.subject} has expired ({_date(self.not_after)}): issue a new one"
        if now < self.not_before:
            return (
                f"the certificate of {self.subject} is not valid before {_date(self.not_before)}: "
                "wait, or set the clock of this machine right"
            )
        return ""

    def names_host(self, host: str) -> bool:
        """Whether it is a certificate of this host: a name or an address.

        >>> one = Certificate("", "", 0, 0, ("*.fleet.example", "a.example"), ("10.0.0.1",))
        >>> [one.names_host(host) for host in ("b0.fleet.example", "x.b0.fleet.example", "A.example", "10.0.0.1")]
        [True, False, True, True]
        >>> one.names_host("10.0.0.2"), one.names_host("fleet.example")
        (False, False)
        """
        try:
            return str(ipaddress.ip_address(host)) in self.addresses
        except ValueError:
            pass
        asked = host.lower().rstrip(".")
        parent = asked.partition(".")[2]
        return any(name.lower() in (asked, f"*.{parent}") for name in self.names)


def describe(certificate: x509.Certificate) -> Certificate:
    """What it says."""
    names: list[str] = []
    addresses: list[str] = []
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        pass
    else:
        names = found.get_values_for_type(x509.DNSName)
        addresses = [str(address) for address in found.get_values_for_type(x509.IPAddress)]
    if not names:
        names = [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return Certificate(
        certificate.subject.rfc4514_string(),
        f"{certificate.serial_number:x}",
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
        tuple(names),
        tuple(addresses),
    )


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER, as Java prints it."""
    return name_of(x509.load_der_x509_certificate(certificate).subject.public_bytes())


def missing_hosts(certificate: Certificate, hosts: Sequence[str]) -> list[str]:
    """The hosts that it does not name."""
    return [host for host in hosts if not certificate.names_host(host)]


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
