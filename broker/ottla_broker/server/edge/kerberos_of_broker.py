"""KerberosOfBroker: the keytabs of the listeners with GSSAPI, as their mechanisms use them.

The library is loaded with the first of them, and by no other broker.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla_broker.ports import Clock
from ottla_broker.security.kerberos_settings import KerberosSettings, KeytabError
from ottla_broker.security.sasl.gssapi import GssapiServer, KerberosFailure, KerberosLogin, SecurityContext

if TYPE_CHECKING:
    from ottla_broker.security.kerberos import Kerberos

_EXTRA: Final = "ottla[kerberos]"
_LOGINS_AT_ONCE: Final = 2
"""While one waits half a minute for a key distribution center that is silent, another uses the ticket there is."""


class KerberosOfBroker:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kerberos: Kerberos | None = None
        self._turn = asyncio.Semaphore(_LOGINS_AT_ONCE)

    async def check(self, settings: KerberosSettings) -> None:
        """Reads its keytab. Raises KeytabError: it, or the library, cannot be used."""
        await self._clock.in_thread(self._check, settings)

    def server(self, settings: KerberosSettings) -> GssapiServer:
        """The service's side of a new exchange."""
        return GssapiServer(partial(self._accept, settings), partial(self._short_name, settings))

    def login(self, settings: KerberosSettings) -> KerberosLogin:
        """How this broker logs in to others."""
        return KerberosLogin(partial(self._initiate, settings), self._turn)

    # In threads

    def _check(self, settings: KerberosSettings) -> None:
        keytab = settings.keytab
        try:
            library = self._library()
        except KerberosFailure as failure:
            raise KeytabError("sasl.enabled.mechanisms", str(failure)) from None
        try:
            library.check(keytab)
        except KerberosFailure as failure:
            raise KeytabError(
                keytab.key, f"no key of {keytab.principal} can be read from it: {failure}", keytab.file
            ) from None

    def _accept(self, settings: KerberosSettings) -> SecurityContext:
        return self._library().accept(settings)

    def _initiate(self, settings: KerberosSettings, host: str) -> SecurityContext:
        return self._library().initiate(settings, host)

    def _short_name(self, settings: KerberosSettings, principal: str) -> str:
        return settings.rules.short_name(principal, self._library().default_realm)

    def _library(self) -> Kerberos:
        if self._kerberos is None:
            try:
                from ottla_broker.security.kerberos import Kerberos
            except ImportError as error:
                raise KerberosFailure(
                    f"GSSAPI needs the extra {_EXTRA} and the library libgssapi_krb5: {error}"
                ) from None
            self._kerberos = Kerberos(self._clock.monotonic, self._clock.random.random)
        return self._kerberos
