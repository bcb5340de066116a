"""Cipher suites by IANA's names, as Java has them, and what OpenSSL calls those of TLS 1.2. Pure.

Of TLS 1.3 there are three, and Python before 3.15 offers all or none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

TLS_1_3: tuple[str, ...] = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")

_AUTHENTICATION = ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA")
_CIPHERS: Mapping[str, str] = MappingProxyType(
    {
        "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
        "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
        "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
        "AES_256_CBC_SHA384": "AES256-SHA384",
        "AES_128_CBC_SHA256": "AES128-SHA256",
        "AES_256_CBC_SHA": "AES256-SHA",
        "AES_128_CBC_SHA": "AES128-SHA",
    }
)
TLS_1_2: Mapping[str, str] = MappingProxyType(
    {
        f"TLS_{authentication}_WITH_{cipher}": f"{authentication.replace('_', '-')}-{name}"
        for authentication in _AUTHENTICATION
        for cipher, name in _CIPHERS.items()
        if not (authentication == "DHE_RSA" and cipher == "AES_256_CBC_SHA384")  # there is no such suite
    }
)
"""OpenSSL's name by IANA's: the suites with forward secrecy."""


def why_refused(suites: Collection[str], protocols: Collection[str]) -> str:
    """Why ssl.cipher.suites cannot be served with these ssl.enabled.protocols; "" when it can.

    >>> why_refused(["TLS_AES_256_GCM_SHA384"], ["TLSv1.3"])
    'all suites of TLSv1.3 or none: TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256, TLS_AES_128_GCM_SHA256'
    >>> why_refused(["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], ["TLSv1.2"])
    ''
    >>> why_refused(TLS_1_3, ["TLSv1.2"])
    'a suite of TLSv1.2, or TLSv1.3 in ssl.enabled.protocols'
    """
    unknown = [name for name in suites if name not in TLS_1_2 and name not in TLS_1_3]
    if unknown:
        return f"of {', '.join((*TLS_1_3, *TLS_1_2))}; {unknown[0]} is none of them"
    of_1_3 = [name for name in suites if name in TLS_1_3]
    if of_1_3 and len(set(of_1_3)) < len(TLS_1_3) and "TLSv1.3" in protocols:
        return f"all suites of TLSv1.3 or none: {', '.join(TLS_1_3)}"
    if suites and not usable_protocols(suites, protocols):
        missing, other = ("TLSv1.2", "TLSv1.3") if "TLSv1.2" in protocols else ("TLSv1.3", "TLSv1.2")
        return f"a suite of {missing}, or {other} in ssl.enabled.protocols"
    return ""


def usable_protocols(suites: Collection[str], protocols: Collection[str]) -> list[str]:
    """The protocols for which there is a suite, the older first.

    >>> usable_protocols(["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], ["TLSv1.2", "TLSv1.3"])
    ['TLSv1.2']
    >>> usable_protocols([], ["TLSv1.3"])
    ['TLSv1.3']
    """
    has = {"TLSv1.2": any(name in TLS_1_2 for name in suites), "TLSv1.3": any(name in TLS_1_3 for name in suites)}
    return [name for name in ("TLSv1.2", "TLSv1.3") if name in protocols and (not suites or has[name])]
