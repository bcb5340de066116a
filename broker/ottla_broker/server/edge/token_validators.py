"""TokenValidators: what a token is worth on each listener with OAUTHBEARER.

A token is read and its signature checked on the loop: 40 µs with RSA of 2048 bits, 85 with P-256, 500 with P-521. The
keys are those of `token_keys`. Why a token is not taken goes to the log, and not to the client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla_broker.metrics import Metrics
from ottla_broker.ports import Clock
from ottla_broker.ports.http import Http
from ottla_broker.security.oauth.claims import Bearer
from ottla_broker.security.oauth.compact import CompactToken, TokenError, parse_compact
from ottla_broker.security.oauth.unsecured import InsufficientScope, UnsecuredRules, check_unsecured
from ottla_broker.security.oauth.validation import SignedTokens, TokenValidation
from ottla_broker.security.sasl.oauthbearer import AcceptedToken, RefusedToken
from ottla_broker.server.edge.token_keys import TokenKeys

logger = logging.getLogger("ottla.security")


class TokenValidators:
    """The checks of tokens of one broker's listeners."""

    def __init__(self, clock: Clock, http: Http, metrics: Metrics) -> None:
        self._clock = clock
        self._http = http
        self._metrics = metrics
        self._keys: dict[str, TokenKeys] = {}

    async def start(self, listener: str, validation: TokenValidation) -> None:
        """Before the listener opens: fetches its keys."""
        if isinstance(validation, SignedTokens):
            await self._made(listener, validation).start()

    def validator(self, listener: str, validation: TokenValidation) -> Callable[[str], AcceptedToken | RefusedToken]:
        """What a token is worth to this listener from now on."""
        if isinstance(validation, UnsecuredRules):
            return lambda text: self._outcome(
                listener, text, lambda token: check_unsecured(token, validation, self._clock.now_ms())
            )
        keys = self._keys.get(listener)
        if keys is None or keys.settings != validation:
            keys = self._made(listener, validation)
            self._clock.spawn(keys.start(), name="keys of tokens")
        check = keys.check
        return lambda text: self._outcome(listener, text, check)

    def _made(self, listener: str, validation: SignedTokens) -> TokenKeys:
        before = self._keys.get(listener)
        if before is not None:
            before.close()
        failed = self._metrics.counter(
            "ottla_sasl_jwks_failures", "Times that the keys of tokens could not be fetched or used.", listener=listener
        )
        made = self._keys[listener] = TokenKeys(validation, self._clock, self._http, f"listener {listener}", failed.inc)
        self._metrics.gauge(
            "ottla_sasl_jwks_age_seconds",
            "Time since the keys of tokens in force were fetched; infinite without any.",
            lambda: self._keys[listener].age_s,
            listener=listener,
        )
        return made

    def _outcome(
        self, listener: str, text: str, check: Callable[[CompactToken], Bearer]
    ) -> AcceptedToken | RefusedToken:
        try:
            bearer = check(parse_compact(text))
        except TokenError as error:
            logger.info("listener %s does not take a token: %s", listener, error)
            return (
                RefusedToken("insufficient_scope", error.scope)
                if isinstance(error, InsufficientScope)
                else RefusedToken()
            )
        return AcceptedToken(bearer.user, max(0, bearer.ends_ms - self._clock.now_ms()))
