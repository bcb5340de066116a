"""How an installed package names the principal of a connection (`principal.builder.class`).

    def build(context: AuthenticationContext) -> Principal: ...

It is called once for each connection, when its client is authenticated and before its first request is served, and
again whenever it authenticates again. It runs on the broker's event loop: it decides by what it is given and asks
nobody.

Source: KafkaPrincipalBuilder, AuthenticationContext (KIP-189).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from ottla_broker.security.principals import Principal

logger = logging.getLogger("ottla.server")


class NoPrincipal(ValueError):
    """A builder has no principal for a connection, which is closed; the message is for the log."""


@dataclass(frozen=True, slots=True)
class AuthenticationContext:
    """What is known of an authenticated client.

    Args:
        listener: the name of the listener.
        security_protocol: of the listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        address: of the client.
        certificate: of the client, in DER; None for a client without one.
        mechanism: of SASL; "" without SASL.
        default_principal: gives the principal that the client has without a builder. NoRuleMatches: it has none.
    """

    listener: str
    security_protocol: str
    address: str
    certificate: bytes | None
    mechanism: str
    default_principal: Callable[[], Principal]


PrincipalBuilder: TypeAlias = Callable[[AuthenticationContext], Principal]


def build_principal(build: PrincipalBuilder, context: AuthenticationContext, *, by_token: bool = False) -> Principal:
    """The principal by a builder.

    Args:
        by_token: the client has authenticated by a delegation token.

    Raises:
        NoPrincipal: the builder raised, or gave something else than a principal.
    """
    try:
        found = build(context)
    except Exception as error:
        if not isinstance(error, ValueError):
            logger.exception("the builder of principal.builder.class failed")
        raise NoPrincipal(
            f"principal.builder.class has no principal for it: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Principal):
        raise NoPrincipal(f"principal.builder.class gave a {type(found).__name__} in place of a Principal")
    return replace(found, by_token=by_token) if found.by_token is not by_token else found
