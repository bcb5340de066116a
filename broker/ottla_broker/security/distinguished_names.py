r"""Distinguished names of certificates as Java prints them: the names of principals (X500Principal.getName, RFC 2253).

    CN=alice,OU=a\,b,O=Example,C=CZ       the last RDN first, no blanks, several values of one RDN with "+"
    1.2.840.113549.1.9.1=#160d61406578…   an attribute that RFC 2253 does not name: its OID, and its DER in hex

Neither OpenSSL nor `cryptography` prints them so: the first escapes UTF-8 and names e-mail addresses, the second
decodes the value of such an attribute.

Source: sun.security.x509.X500Name, RDN and AVA (toRFC2253String) of OpenJDK.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

_KEYWORDS: Mapping[str, str] = MappingProxyType(
    {
        "2.5.4.3": "CN",
        "2.5.4.6": "C",
        "2.5.4.7": "L",
        "2.5.4.8": "ST",
        "2.5.4.9": "STREET",
        "2.5.4.10": "O",
        "2.5.4.11": "OU",
        "0.9.2342.19200300.100.1.1": "UID",
        "0.9.2342.19200300.100.1.25": "DC",
    }
)
_TEXT = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E))
"""The tags of UTF8, Printable, T61, IA5, General, Universal and BMP strings. Java takes the bytes of each for UTF-8."""
_ESCAPED = ',=+<>#;"\\'


def name_of(der: bytes) -> str:
    """The name whose DER this is, a sequence of RDNs. Raises ValueError for anything else."""
    rdns = []
    for tag, rdn in _values(_only(der)):
        if tag != 0x31:
            raise ValueError("an RDN is a set")
        rdns.append("+".join(_attribute(value) for _, value in _values(rdn)))
    return ",".join(reversed(rdns))


def _attribute(der: bytes) -> str:
    parts = list(_parts(der))
    if len(parts) != 2 or parts[0][0] != 0x06:
        raise ValueError("an attribute is an OID and a value")
    oid = _oid(parts[0][1])
    tag, content, whole = parts[1]
    keyword = _KEYWORDS.get(oid)
    if keyword is None or tag not in _TEXT:
        return f"{keyword or oid}=#{whole.hex()}"
    return f"{keyword}={_escaped(content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    r"""
    >>> print(_escaped(" a,b=c"))
    \ a\,b\=c
    """
    start, end = len(text) - len(text.lstrip(" \r")), len(text.rstrip(" \r"))
    escaped = []
    for position, character in enumerate(text):
        if character == "\0":
            escaped.append("\\00")
        elif character in _ESCAPED or (character in " \r" and not start <= position < end):
            escaped.append(f"\\{character}")
        else:
            escaped.append(character)
    return "".join(escaped)


# DER: what `cryptography` has read already, so it is well-formed


def _only(der: bytes) -> bytes:
    ((_, content, _),) = _parts(der)
    return content


def _values(der: bytes) -> Iterator[tuple[int, bytes]]:
    for tag, content, _ in _parts(der):
        yield tag, content


def _parts(der: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """(tag, content, all of it) of each value in a row."""
    position = 0
    while position < len(der):
        tag, length, start = der[position], der[position + 1], position + 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(der[start : start + count], "big")
            start += count
        end = start + length
        if end > len(der):
            raise ValueError("a value is longer than what holds it")
        yield tag, der[start:end], der[position:end]
        position = end


def _oid(content: bytes) -> str:
    """
    >>> _oid(bytes.fromhex("2a864886f70d010901"))
    '1.2.840.113549.1.9.1'
    """
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
