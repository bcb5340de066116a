"""How a client logs in: mechanism, user and password, and this side of an exchange with them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from ottla_broker.security.sasl.gssapi import GssapiClient, KerberosLogin
from ottla_broker.security.sasl.mechanism import PLAIN, ClientMechanism
from ottla_broker.security.sasl.plain import PlainClient
from ottla_broker.security.sasl.scram import SaltedPasswords, ScramAlgorithm, ScramClient


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """As one user by one mechanism."""

    mechanism: str
    username: str
    password: str = field(repr=False)


class LoginExchanges:
    """Begins exchanges for a login; the keys that SCRAM derives from a password are kept."""

    def __init__(self) -> None:
        self._passwords: tuple[str, SaltedPasswords] | None = None

    def begin(self, login: SaslLogin | KerberosLogin, host: str = "") -> ClientMechanism:
        """This side of a new exchange.

        Args:
            host: the name of the other side, which GSSAPI asks a ticket for.
        """
        if isinstance(login, KerberosLogin):
            return GssapiClient(partial(login.initiate, host))
        if login.mechanism == PLAIN:
            return PlainClient(login.username, login.password)
        if self._passwords is None or self._passwords[0] != login.password:
            self._passwords = login.password, SaltedPasswords(login.password)
        return ScramClient(ScramAlgorithm(login.mechanism), login.username, self._passwords[1])
