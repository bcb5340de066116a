"""The token with which the operator logs in to brokers, as kafka-python asks for it: at each connection."""

from __future__ import annotations

from kafka.net.sasl.oauth import AbstractTokenProvider

from ottla_broker.security.oauth.blocking_tokens import BlockingTokens
from ottla_broker.security.oauth.logins import TokenLogin


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """See the module. `token` raises TokenUnavailable."""

    def __init__(self, login: TokenLogin) -> None:
        super().__init__()
        self._login = login
        self._tokens = BlockingTokens()

    def token(self) -> str:
        return self._tokens.token(self._login)

    def extensions(self) -> dict[str, str]:
        return dict(self._login.extensions)
