"""TlsContexts: the keys, certificates and trust of each listener with TLS, for those who connect and for this broker.

Stores are read when the broker starts, and again when their content changes, whichever way it does: a file that is
written or a symlink that Kubernetes turns, or a key of the configuration. A store that cannot be used leaves the one
before in force, with one line in the log and a metric. Connections that exist keep what they have.

Source: org.apache.kafka.common.security.ssl.SslFactory, whose stores are read again when a request names them again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla_broker.config import BrokerConfig
from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.config.tls import TLS_PROTOCOLS, tls_settings
from ottla_broker.metrics import Metrics
from ottla_broker.ports import Clock, Network
from ottla_broker.ports.network import Connection, Connector, HandlerFactory, Tls
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.security.tls_settings import TlsError, TlsSettings

if TYPE_CHECKING:
    from ssl import SSLContext

    from ottla_broker.security.tls_context import LoadedTls

logger = logging.getLogger("ottla.security")

Load: TypeAlias = "Callable[[TlsSettings, float], LoadedTls]"

_CHECK_S = 5.0
"""So often the content of the stores is compared with what is in force."""


class ListenerTls:
    """The TLS of one listener in one direction. See `ottla_broker.ports.network.Tls`.

    Args:
        role: "server" for those who connect to the listener, "client" for connections to it.
        load: reads the stores of settings, at a time; raises TlsError.
        loaded: what it gave for `settings`.
    """

    def __init__(
        self,
        listener: str,
        role: str,
        settings: TlsSettings,
        load: Load,
        loaded: LoadedTls,
        handshake_timeout_s: float,
        metrics: Metrics,
    ) -> None:
        self.listener = listener
        self.role = role
        self.settings = settings
        self.load = load
        self.loaded = loaded
        self.handshake_timeout_s = handshake_timeout_s
        self.refusal = ""
        """Why what the stores have now is not in force; "" when it is."""
        self._metrics = metrics

    def context(self) -> SSLContext:
        return self.loaded.context

    def on_handshake(self, protocol: str, cipher_suite: str, kernel_sends: bool) -> None:
        self._metrics.counter(
            "ottla_ssl_handshakes",
            "Complete TLS handshakes.",
            listener=self.listener,
            role=self.role,
            protocol=protocol,
            cipher_suite=cipher_suite,
            kernel_sends=str(kernel_sends).lower(),
        ).inc()

    def on_failure(self, code: str) -> None:
        self._metrics.counter(
            "ottla_ssl_handshake_failures",
            "TLS handshakes that have failed, by OpenSSL's reason.",
            listener=self.listener,
            role=self.role,
            reason=code,
        ).inc()


class TlsConnector:
    """Connects over TLS. See `ottla_broker.ports.network.Connector`."""

    def __init__(self, network: Network, tls: Tls) -> None:
        self._network = network
        self.tls = tls

    async def connect(
        self, host: str, port: int, factory: HandlerFactory, *, timeout_s: float, max_frame_bytes: int
    ) -> Connection:
        return await self._network.connect(
            host, port, factory, timeout_s=timeout_s, max_frame_bytes=max_frame_bytes, tls=self.tls
        )


class TlsContexts:
    """The TLS contexts of one broker. See the module.

    Args:
        own_name: looks up the name of this machine, which a listener without a host is advertised with.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metrics: Metrics,
        own_name: Callable[[], Awaitable[str]],
    ) -> None:
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._own_name = own_name
        self._of_listeners: dict[str, ListenerTls] = {}
        self._to_listeners: dict[str, ListenerTls] = {}
        self._refreshing = asyncio.Lock()

    def of_listener(self, listener: str) -> Tls | None:
        """For those who connect to a listener of this broker; None for bytes as they are."""
        return self._of_listeners.get(listener)

    def connector_to(self, network: Network, listener: str) -> Connector:
        """What connects to that listener of another broker, which has the security protocol that it has here."""
        tls = self._to_listeners.get(listener)
        return network if tls is None else TlsConnector(network, tls)

    def status(self) -> list[dict[str, Any]]:
        """By listener and role: the certificate in force, and why what the stores have now is not.

        `not_after` is in seconds since the epoch; `refused` is "" while the content of the stores is in force.
        """
        return [
            {
                "listener": one.listener,
                "role": one.role,
                "certificate": {}
                if (found := one.loaded.certificate) is None
                else {"subject": found.subject, "serial": found.serial, "not_after": int(found.not_after)},
                "refused": one.refusal,
            }
            for one in (*self._of_listeners.values(), *self._to_listeners.values())
        ]

    async def start(self) -> None:
        """Reads all stores. Raises TlsError."""
        listeners = self._config.listeners
        secured = [one.listener for one in listeners.bound if one.security_protocol in TLS_PROTOCOLS]
        if not secured:
            return
        from ottla_broker.security.tls_context import load_client, load_server

        hosts = {one.listener: one.host or await self._own_name() for one in listeners.advertised}
        for listener in secured:
            advertised = [hosts[listener]] if listener in hosts else []
            self._of_listeners[listener] = await self._load(listener, "server", partial(load_server, hosts=advertised))
            if listener in (listeners.inter_broker, listeners.control_plane):
                self._to_listeners[listener] = await self._load(listener, "client", load_client)
            self._register_gauges(listener)
        self._config.on_change(self._on_change)
        self._clock.spawn(self._follow(), name="stores of keys and certificates")

    async def check(self, values: BrokerValues) -> None:
        """Reads the stores that other values would name. Nothing changes.

        Source: DynamicBrokerConfig.validateReconfiguration.

        Raises:
            KafkaError: INVALID_REQUEST for a store that cannot be used.
        """
        for one in (*self._of_listeners.values(), *self._to_listeners.values()):
            settings = tls_settings(values, one.listener)
            if settings != one.settings:
                try:
                    self._check_successor(one, settings, await self._clock.in_thread(one.load, settings, self._now()))
                except TlsError as error:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None

    async def _load(self, listener: str, role: str, load: Load) -> ListenerTls:
        settings = tls_settings(self._config, listener)
        loaded = await self._clock.in_thread(load, settings, self._now())
        limit_s = self._config.ottla_ssl_handshake_timeout_ms / 1000
        return ListenerTls(listener, role, settings, load, loaded, limit_s, self._metrics)

    def _now(self) -> float:
        return self._clock.now_ms() / 1000

    def _register_gauges(self, listener: str) -> None:
        one = self._of_listeners[listener]
        self._metrics.gauge(
            "ottla_ssl_certificate_expiry_seconds",
            "Time until the certificate of a listener expires, or the first of the authorities that it trusts.",
            lambda: one.loaded.certificate.not_after - self._now() if one.loaded.certificate else float("inf"),
            listener=listener,
            store="keystore",
        )
        self._metrics.gauge(
            "ottla_ssl_certificate_expiry_seconds",
            "Time until the certificate of a listener expires, or the first of the authorities that it trusts.",
            lambda: min((each.not_after for each in one.loaded.authorities), default=float("inf")) - self._now(),
            listener=listener,
            store="truststore",
        )
        self._metrics.gauge(
            "ottla_ssl_stores_refused",
            "1 while a store of a listener holds what cannot be used, and what it held before is in force.",
            lambda: float(bool(one.refusal)),
            listener=listener,
        )

    def _on_change(self, names: Collection[str]) -> None:
        if any(".ssl." in f".{name}" for name in names):
            self._clock.spawn(self.refresh(), name="changed keys of TLS")

    async def _follow(self) -> None:
        while True:
            await self._clock.sleep(_CHECK_S)
            try:
                await self.refresh()
            except Exception:
                logger.exception("stores of keys and certificates were not read; they are read again in %g s", _CHECK_S)

    async def refresh(self) -> None:
        """Reads what has changed."""
        async with self._refreshing:
            for one in (*self._of_listeners.values(), *self._to_listeners.values()):
                await self._refresh(one)

    async def _refresh(self, one: ListenerTls) -> None:
        from ottla_broker.security.tls_context import digest_of

        in_thread = self._clock.in_thread
        settings = tls_settings(self._config, one.listener)
        refusal = ""
        try:
            if settings == one.settings and await in_thread(digest_of, settings) == one.loaded.digest:
                one.refusal = ""
                return
            loaded = await in_thread(one.load, settings, self._now())
            self._check_successor(one, settings, loaded)
        except TlsError as error:
            refusal = str(error)
        if not refusal:
            one.settings, one.loaded = settings, loaded
            certificate = loaded.certificate
            shown = "" if certificate is None else f": {certificate.subject}, serial {certificate.serial}"
            logger.info("listener %s (%s) has new keys and certificates%s", one.listener, one.role, shown)
        elif refusal != one.refusal:
            logger.error("listener %s (%s) keeps its keys and certificates: %s", one.listener, one.role, refusal)
        one.refusal = refusal

    def _check_successor(self, one: ListenerTls, settings: TlsSettings, loaded: LoadedTls) -> None:
        """Raises TlsError. Source: SslFactory.CertificateEntries.ensureCompatible."""
        before, after, store = one.loaded.certificate, loaded.certificate, settings.key_store
        if before is None or after is None or store is None:
            return
        if before.subject != after.subject and not self._config.ssl_allow_dn_changes:
            raise TlsError(
                store.key,
                store.location,
                f"the certificate is of {after.subject}, and of {before.subject} before: set ssl.allow.dn.changes=true "
                "and restart if that is right",
            )
        gone = [name for name in (*before.names, *before.addresses) if name not in (*after.names, *after.addresses)]
        if gone and not self._config.ssl_allow_san_changes:
            raise TlsError(
                store.key,
                store.location,
                f"the certificate does not name {', '.join(gone)} any more: set ssl.allow.san.changes=true and restart "
                "if that is right",
            )
