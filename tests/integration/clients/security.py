"""How a client reaches a listener that is not PLAINTEXT, in the words of the Java client, with stores in PEM.

Each driver translates it into its client's own options.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

Security: TypeAlias = "Mapping[str, str]"
"""`security.protocol`, `ssl.truststore.location`, `ssl.keystore.location`, ..."""

PLAIN: Security = MappingProxyType({})

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def tls_context(security: Security) -> ssl.SSLContext | None:
    """For clients that use Python's own TLS; None for a connection without."""
    if security.get("security.protocol", "PLAINTEXT") not in ("SSL", "SASL_SSL"):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(security["ssl.truststore.location"])
    if "ssl.keystore.location" in security:
        context.load_cert_chain(security["ssl.keystore.location"])
    if "ssl.enabled.protocols" in security:
        versions = [_VERSIONS[name] for name in security["ssl.enabled.protocols"].split(",")]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
    return context
