"""How a listener finds out what a token is worth: by keys that it fetches, or, for tests alone, without any. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from ottla_broker.security.oauth.addresses import Address
from ottla_broker.security.oauth.claims import TokenRules
from ottla_broker.security.oauth.key_refreshes import RefreshTimes
from ottla_broker.security.oauth.unsecured import UnsecuredRules
from ottla_broker.security.tls_settings import TlsSettings


@dataclass(frozen=True, slots=True)
class SignedTokens:
    """Tokens that an identity provider has signed.

    Args:
        address: of its keys (JWKS).
        tls: to it; None without https.
    """

    address: Address
    times: RefreshTimes
    rules: TokenRules
    tls: TlsSettings | None = field(default=None, repr=False)


TokenValidation: TypeAlias = SignedTokens | UnsecuredRules
