"""How a client reaches a listener that is not PLAINTEXT, in the words of the Java client, with stores in PEM.

Each driver translates it into its client's own options.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from ottla_broker.security.sasl.jaas import parse_jaas
from tests.integration.wire import Wire

Security: TypeAlias = "Mapping[str, str]"
"""`security.protocol`, `ssl.truststore.location`, `ssl.keystore.location`, `sasl.mechanism`, `sasl.jaas.config`, ..."""

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


class Login(NamedTuple):
    """How a client logs in by SASL."""

    mechanism: str
    user: str
    password: str


def sasl_login(security: Security) -> Login | None:
    """For clients that have no JAAS lines; None for a connection without SASL."""
    if not security.get("security.protocol", "PLAINTEXT").startswith("SASL"):
        return None
    options = parse_jaas(security["sasl.jaas.config"]).options
    return Login(security["sasl.mechanism"], options["username"], options["password"])


def wire(address: str, security: Security) -> Wire:
    """A connection by plain sockets, logged in."""
    found = Wire(address, tls=tls_context(security))
    login = sasl_login(security)
    if login is not None:
        found.log_in(*login)
    return found
