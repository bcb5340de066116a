"""The files with keys that the configuration names: stores of TLS, and keytabs. See `handler_api.CertificateStores`."""

from __future__ import annotations

from dataclasses import dataclass

from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.server.edge.sasl_listeners import SaslListeners
from ottla_broker.server.edge.tls_contexts import TlsContexts


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """The files with keys of one broker."""

    tls: TlsContexts
    sasl: SaslListeners

    async def check(self, values: BrokerValues) -> None:
        """Raises KafkaError: INVALID_REQUEST for a file that cannot be used."""
        await self.tls.check(values)
        await self.sasl.check(values)

    async def refresh(self) -> None:
        """Brings the stores in force; a keytab is read for each ticket."""
        await self.tls.refresh()
