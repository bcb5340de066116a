"""SaslListeners: the mechanisms of each SASL listener and who is known by them, and the way to those of other brokers.

What is configured is read when it is needed and kept until the configuration changes: a new password of PLAIN or a
mechanism that is added holds for the next connection, and for the next time that one authenticates again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from ottla_broker.config import BrokerConfig
from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.config.sasl import SASL_PROTOCOLS, SaslSettings, own_login, sasl_settings
from ottla_broker.config.tls import TLS_PROTOCOLS
from ottla_broker.metrics import Metrics
from ottla_broker.ports import Clock
from ottla_broker.ports.http import Http
from ottla_broker.ports.network import Connector
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.security.kerberos_settings import KerberosSettings, KeytabError
from ottla_broker.security.oauth.logins import TokenLogin
from ottla_broker.security.principals import USER, Principal
from ottla_broker.security.sasl.gssapi import KerberosLogin
from ottla_broker.security.sasl.login import SaslLogin
from ottla_broker.security.sasl.mechanism import GSSAPI, OAUTHBEARER, PLAIN, ServerMechanism, ServerStep
from ottla_broker.security.sasl.oauthbearer import OAuthBearerServer
from ottla_broker.security.sasl.plain import PlainServer
from ottla_broker.security.sasl.scram import ScramAlgorithm, ScramCredential, ScramIdentity, ScramServer, made_up
from ottla_broker.server.edge.kerberos_of_broker import KerberosOfBroker
from ottla_broker.server.edge.sasl_connection import SaslRules
from ottla_broker.server.edge.token_validators import TokenValidators
from ottla_broker.server.peers.login_tokens import LoginTokens
from ottla_broker.server.peers.sasl_connector import SaslConnector

FindCredential = Callable[[ScramAlgorithm, str], "ScramCredential | None"]
FindToken = Callable[[ScramAlgorithm, str, bytes], "ScramIdentity | None"]
"""Takes the id of a delegation token and the salt of its credential."""

_STEPS_AT_ONCE: Final = 2
"""Of mechanisms that read files: a disk that hangs leaves threads to others."""
_METRIC: Final = "kafka_server_socketservermetrics_"


class ListenerOutcomes:
    """The `AuthenticationOutcomes` of one listener. Source: Selector.SelectorMetrics (KIP-188, KIP-368)."""

    def __init__(self, metrics: Metrics, listener: str) -> None:
        def counter(name: str, help_text: str) -> Callable[[], None]:
            return metrics.counter(f"{_METRIC}{name}", help_text, listener=listener).inc

        self._succeeded = {
            False: counter("successful_authentication", "Connections that have authenticated by SASL."),
            True: counter("successful_reauthentication", "Times that connections have authenticated again by SASL."),
        }
        self._failed = {
            False: counter("failed_authentication", "Connections closed because they did not authenticate by SASL."),
            True: counter("failed_reauthentication", "Connections closed because they did not authenticate again."),
        }
        self.expired = counter(
            "expired_connections_killed", "Connections closed because they were used behind the end of their session."
        )

    def succeeded(self, *, again: bool) -> None:
        self._succeeded[again]()

    def failed(self, *, again: bool) -> None:
        self._failed[again]()


class SaslListeners:
    """The SASL listeners of one broker.

    Args:
        http: asks identity providers.
        find: the SCRAM credentials of users.
        find_token: who logs in by delegation tokens; None where they are not served.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metrics: Metrics,
        http: Http,
        find: FindCredential,
        find_token: FindToken | None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._validators = TokenValidators(clock, http, metrics)
        self._login_tokens = LoginTokens(clock, http)
        self._find = find
        self._find_token = find_token
        self._settings: dict[str, SaslSettings] = {}
        self._rules: dict[str, SaslRules] = {}
        self._passwords: dict[str, Mapping[str, str]] = {}
        self._kerberos = KerberosOfBroker(clock)
        self._steps = asyncio.Semaphore(_STEPS_AT_ONCE)
        self._secret = os.urandom(32)
        self._protocols = {one.listener: one.security_protocol for one in config.listeners.bound}
        self._outcomes = {
            listener: ListenerOutcomes(metrics, listener)
            for listener, protocol in self._protocols.items()
            if protocol in SASL_PROTOCOLS
        }
        config.on_change(self._on_change)

    async def start(self) -> None:
        """Reads the keytabs, and fetches the keys with which tokens are signed: what fails of these is tried again.

        Raises:
            KeytabError: a keytab cannot be used.
        """
        for listener in self._outcomes:
            kerberos = self._settings_of(listener).kerberos
            if kerberos is not None:
                await self._kerberos.check(kerberos)
        of_listeners = [(listener, self._settings_of(listener).tokens) for listener in self._outcomes]
        await asyncio.gather(
            *(self._validators.start(listener, tokens) for listener, tokens in of_listeners if tokens is not None)
        )

    async def check(self, values: BrokerValues) -> None:
        """Reads the keytabs that other values would name. Nothing changes.

        Raises:
            KafkaError: INVALID_REQUEST for one that cannot be used.
        """
        for listener in self._outcomes:
            now, kerberos = self._settings_of(listener).kerberos, sasl_settings(values, listener).kerberos
            if kerberos is None or (now is not None and now.keytab == kerberos.keytab):
                continue
            try:
                await self._kerberos.check(kerberos)
            except KeytabError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None

    def rules_of(self, listener: str) -> SaslRules | None:
        """For a new connection; None for a listener without SASL."""
        if listener not in self._outcomes:
            return None
        found = self._rules.get(listener)
        if found is None:
            found = self._rules[listener] = self._make_rules(listener)
        return found

    def connector_to(self, connector: Connector, listener: str) -> Connector:
        """What connects to that listener of another broker and logs in.

        Args:
            connector: connects to it without logging in.
        """
        if listener not in self._outcomes:
            return connector
        return SaslConnector(connector, self._clock, partial(self._own_login, listener), self._login_tokens.token)

    def _own_login(self, listener: str) -> SaslLogin | KerberosLogin | TokenLogin:
        login = own_login(self._config, listener)
        return self._kerberos.login(login) if isinstance(login, KerberosSettings) else login

    def _settings_of(self, listener: str) -> SaslSettings:
        found = self._settings.get(listener)
        if found is None:
            found = self._settings[listener] = sasl_settings(self._config, listener)
        return found

    def _make_rules(self, listener: str) -> SaslRules:
        config, settings = self._config, self._settings_of(listener)
        is_tls = self._protocols[listener] in TLS_PROTOCOLS
        limit_ms = config.ottla_sasl_timeout_ms + (config.ottla_ssl_handshake_timeout_ms if is_tls else 0)
        return SaslRules(
            {mechanism: self._maker(listener, mechanism) for mechanism in settings.mechanisms},
            settings.max_reauth_ms,
            settings.largest_bytes,
            config.socket_request_max_bytes,
            config.connection_failed_authentication_delay_ms / 1000,
            limit_ms / 1000,
            self._outcomes[listener],
            {GSSAPI: self._step_beside},
        )

    def _step_beside(self, mechanism: ServerMechanism, token: bytes, then: Callable[[ServerStep], None]) -> None:
        async def step() -> None:
            async with self._steps:
                made = await self._clock.in_thread(mechanism.step, token)
            then(made)

        self._clock.spawn(step(), name="step of a SASL mechanism")

    def _maker(self, listener: str, mechanism: str) -> Callable[[], ServerMechanism]:
        if mechanism == PLAIN:
            return lambda: PlainServer(lambda: self._passwords_of(listener))
        kerberos = self._settings_of(listener).kerberos
        if mechanism == GSSAPI and kerberos is not None:
            return partial(self._kerberos.server, kerberos)
        if mechanism == OAUTHBEARER:
            tokens = self._settings_of(listener).tokens
            assert tokens is not None
            validate = self._validators.validator(listener, tokens)
            return lambda: OAuthBearerServer(validate)
        algorithm = ScramAlgorithm(mechanism)
        secret = self._secret_of(listener, mechanism)
        return lambda: ScramServer(
            algorithm, lambda name, is_token: self._identity(algorithm, name, is_token, secret), secret
        )

    def _passwords_of(self, listener: str) -> Mapping[str, str]:
        found = self._passwords.get(listener)
        if found is None:
            found = self._passwords[listener] = self._settings_of(listener).passwords
        return found

    def _identity(self, algorithm: ScramAlgorithm, name: str, is_token: bool, secret: bytes) -> ScramIdentity | None:
        if is_token:
            if self._find_token is None:
                return None
            return self._find_token(algorithm, name, made_up(algorithm, secret, name).salt)
        credential = self._find(algorithm, name)
        return None if credential is None else ScramIdentity(credential, Principal(USER, name))

    def _secret_of(self, listener: str, mechanism: str) -> bytes:
        """From which salts of unknown users are made up: the same on all brokers where they share a password."""
        password = self._settings_of(listener).mechanisms[mechanism].options.get("password")
        if not password:
            return self._secret
        return hashlib.pbkdf2_hmac("sha256", password.encode(errors="surrogatepass"), b"unknown users", 4096)

    def _on_change(self, names: Collection[str]) -> None:
        """Many keys belong to a listener, and few changes come."""
        self._settings.clear()
        self._rules.clear()
        self._passwords.clear()
