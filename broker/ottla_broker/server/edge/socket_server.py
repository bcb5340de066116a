"""The broker's listeners: accepts connections within their limits, and closes idle ones.

Source: kafka.network.SocketServer. `connection_limits` decides which connections are accepted: over a limit of the
broker or of a listener a connection waits in the backlog, over one of its address it is closed with a log line, and
over the rate of its address it is closed after a while, without being read.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Final

from ottla_broker.authorization.authorizer import Authorizer
from ottla_broker.config import BrokerConfig, Endpoint
from ottla_broker.metrics import Histogram, Metrics
from ottla_broker.ports.clock import Clock
from ottla_broker.ports.network import Connection, ConnectionHandler, Listener, Network, ReceiveLimits, Tls
from ottla_broker.protocol.api import NAMES
from ottla_broker.quotas.shares import ThrottleTimes
from ottla_broker.security.principal_builder import AuthenticationContext, PrincipalBuilder, build_principal
from ottla_broker.security.principals import ANONYMOUS, USER, Principal, PrincipalMapping
from ottla_broker.server.edge import response_memory
from ottla_broker.server.edge.cluster_action import ClusterActionRule
from ottla_broker.server.edge.connection import ClientConnection, ConnectionEnvironment
from ottla_broker.server.edge.connection_limits import ConnectionLimits
from ottla_broker.server.edge.dispatch import Dispatcher
from ottla_broker.server.edge.held_connections import HeldConnections
from ottla_broker.server.edge.request_memory import default_bytes, receive_limits
from ottla_broker.server.edge.request_scheduling import RequestScheduler
from ottla_broker.server.edge.response_memory import ResponseMemory
from ottla_broker.server.edge.sasl_connection import SaslConnection, SaslRules
from ottla_broker.server.edge.throttling import Throttling
from ottla_broker.server.handler_api import RequestContext

logger = logging.getLogger("ottla.server")

_IDLE_CHECK_S = 30.0
_LIMITS = ("max.connections", "max.connection.creation.rate", "max.connections.per.ip.overrides")
"""Keys whose change may let a waiting connection in; the same after listener.name.X."""


class _Refused:
    """Handler of a connection that was closed before its first frame."""

    def on_frame(self, frame: memoryview) -> None:
        pass

    def on_sent(self) -> None:
        pass

    def on_close(self, reason: str) -> None:
        pass


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """How the clients of a listener are protected and authenticated, by its name.

    Args:
        tls_of: None for bytes as they are.
        sasl_of: the rules of SASL; None for a listener without it.
    """

    tls_of: Callable[[str], Tls | None] = lambda listener: None
    sasl_of: Callable[[str], SaslRules | None] = lambda listener: None


PLAINTEXT: Final = ListenerSecurity()


class SocketServer:
    """The client connections of one broker."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        config: BrokerConfig,
        dispatcher: Dispatcher,
        throttling: Throttling,
        metrics: Metrics,
        memory_bytes: int | None = None,
        security: ListenerSecurity = PLAINTEXT,
    ) -> None:
        """`memory_bytes`: what the broker may use, None where nobody knows."""
        self._clock = clock
        self._network = network
        self._config = config
        self._privileged_listeners = (config.listeners.inter_broker, config.listeners.control_plane)
        self._cluster_action = ClusterActionRule(config.listeners.of_brokers, config.broker_request_networks)
        self._metrics = metrics
        self._listeners: dict[str, Listener] = {}
        self._connections: dict[ClientConnection, None] = {}
        self._limits = ConnectionLimits(config, self._privileged_listeners)
        self._is_waking = False
        config.on_change(self._on_change)
        self._accepted = 0
        self._latency: dict[int, Histogram] = {}
        self._is_open = False
        self._monotonic = clock.monotonic
        self._scheduler = RequestScheduler(clock, config.queued_max_requests)
        self._memory_bytes = memory_bytes
        self.authorizer: Authorizer | None = None
        """Says what clients may do; None: everything. It is set before the first listener is bound."""
        self.principal_builder: PrincipalBuilder | None = None
        """Names the principals of clients; None: as Apache Kafka does without one. Set as `authorizer` is."""
        self._protocols = {one.listener: one.security_protocol for one in config.listeners.bound}
        self._security = security
        self._mapping = PrincipalMapping(config.ssl_principal_mapping_rules)
        self._request_bytes = self._receive_limits("").limit_bytes
        self._scheduler.on_full_changed = self._on_full_changed
        part = max(1, config.queued_max_requests // 2)
        self._held = HeldConnections(clock.call_soon, self._is_full, part)
        self._responses = ResponseMemory(clock, _response_bytes(config, memory_bytes), self._on_responses_full_changed)
        self._connection_environment = ConnectionEnvironment(
            dispatcher.dispatch,
            self._scheduler,
            throttling,
            clock.monotonic,
            clock.call_later,
            self._responses,
            clock.spawn,
            self._observe,
            self._on_connection_closed,
        )
        metrics.gauge(
            "kafka_server_socketservermetrics_connectioncount",
            "Open connections.",
            lambda: float(len(self._connections)),
        )
        metrics.gauge(
            "kafka_network_requestchannel_requestqueuesize",
            "Requests that wait to be dispatched.",
            lambda: float(self._scheduler.waiting),
        )
        metrics.gauge(
            "kafka_network_socketserver_memorypoolused",
            "Bytes that requests hold, of queued.max.request.bytes.",
            lambda: float(network.received_bytes),
        )
        metrics.gauge(
            "kafka_network_socketserver_memorypoolavailable",
            "What is left of queued.max.request.bytes; -1 without a limit.",
            lambda: float(max(self._request_bytes - network.received_bytes, 0)) if self._request_bytes > 0 else -1.0,
        )
        metrics.gauge(
            "ottla_unread_response_bytes",
            "Bytes that answers hold which clients have not read, of ottla.queued.max.response.bytes.",
            lambda: float(self._responses.held_bytes),
        )
        self._refused = metrics.counter(
            "kafka_server_socketservermetrics_connectionsrefused", "Connections closed for a limit on connections."
        )

        self._throttled = metrics.counter(
            "kafka_server_socketservermetrics_connectionsthrottled",
            "Connections closed for the connection_creation_rate of their address.",
        )
        self._accept_throttles = ThrottleTimes(config.quota_window_num, float(config.quota_window_size_seconds))
        metrics.gauge(
            "kafka_server_socketservermetrics_ip_connection_accept_throttle_time",
            "Average time in milliseconds after which connections are closed for the connection_creation_rate of their"
            " address.",
            lambda: self._accept_throttles.average(clock.monotonic()),
        )

    async def bind(self, endpoint: Endpoint) -> int:
        """Opens one listener and gives its port. Raises OSError that names the address."""
        listener = await self._network.listen(
            endpoint.host,
            endpoint.port,
            lambda connection: self._accept(connection, endpoint.listener),
            max_frame_bytes=self._config.socket_request_max_bytes,
            is_privileged=self._limits.is_protected(endpoint.listener),
            limits=self._receive_limits(endpoint.listener),
            tls=self._security.tls_of(endpoint.listener),
        )
        self._listeners[endpoint.listener] = listener
        self._regulate()
        if not self._is_open:
            await self._resolve()
            self._is_open = True
            self._clock.call_later(self._idle_check_s(), self._close_idle)
        return listener.port

    def _receive_limits(self, listener: str) -> ReceiveLimits:
        return receive_limits(
            self._config.queued_max_request_bytes,
            self._memory_bytes,
            is_protected=self._limits.is_protected(listener),
            is_single=len(self._config.listeners.bound) == 1,
        )

    def close(self) -> None:
        """Accepts no more and closes every connection."""
        self._is_open = False
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        for connection in list(self._connections):
            connection.close()

    def _observe(self, context: RequestContext) -> None:
        """Records how long a request took, from its frame to its response."""
        histogram = self._latency.get(context.api_key)
        if histogram is None:
            histogram = self._latency[context.api_key] = self._metrics.histogram(
                "kafka_network_requestmetrics_totaltime_seconds",
                "From the last byte of a request to its response.",
                request=NAMES[context.api_key],
            )
        histogram.observe(self._monotonic() - context.received_at)

    def _on_connection_closed(self, connection: ClientConnection) -> None:
        self._forget(connection)
        if self._is_open:
            self._regulate()

    def set_address_quota(self, host: str | None, rate: int | None) -> None:
        """Sets the connection_creation_rate of an address, or of a host's addresses; None is the default, or none."""
        if host is None:
            self._limits.set_address_quota(None, rate)
        else:
            self._clock.spawn(self._set_quota_of_host(host, rate), name="addresses of a connection_creation_rate")

    async def _set_quota_of_host(self, host: str, rate: int | None) -> None:
        try:
            addresses = await self._network.resolve(host)
        except OSError as error:
            logger.warning("connection_creation_rate of %s is not in force: %s", host, error)
            return
        for address in addresses:
            self._limits.set_address_quota(address, rate)

    def _accept(self, connection: Connection, listener: str) -> ConnectionHandler:
        throttle_s = self._limits.throttle_s(connection.peer[0], self._monotonic())
        if throttle_s:
            self._throttled.inc()
            self._accept_throttles.add(throttle_s * 1000, self._monotonic())
            connection.pause()
            self._clock.call_later(throttle_s, connection.close)
            return _Refused()
        reason = self._limits.reason_to_close(connection.peer[0])
        if reason:
            self._refused.inc()
            logger.warning("refusing connection from %s:%d on %s: %s", *connection.peer, listener, reason)
            connection.close()
            return _Refused()
        self._accepted += 1
        is_privileged = listener in self._privileged_listeners
        sasl = self._security.sasl_of(listener)
        handler = ClientConnection(
            self._connection_environment,
            connection,
            listener,
            is_privileged,
            self._accepted,
            self._cluster_action.allows(listener, connection.peer[0]),
            None if sasl is not None else self._identification(listener, connection),
            self.authorizer,
        )
        self._connections[handler] = None
        if self._is_full() and not self._limits.is_protected(listener):
            self._held.hold((handler,))
        self._limits.opened(listener, connection.peer[0], self._monotonic())
        self._regulate()
        return handler if sasl is None else self._behind_sasl(handler, connection, sasl)

    def _behind_sasl(self, client: ClientConnection, connection: Connection, rules: SaslRules) -> SaslConnection:
        gate = SaslConnection(
            client,
            connection,
            rules,
            self._connection_environment.dispatch,
            self._monotonic,
            self._clock.call_later,
            None if self.principal_builder is None else partial(self._build_after_sasl, client.listener, connection),
        )
        client.reauthenticate = gate.reauthenticate
        return gate

    def _identification(self, listener: str, connection: Connection) -> Callable[[bytes | None], Principal] | None:
        """What names the client of a listener without SASL, by its certificate; None: it is ANONYMOUS."""
        build = self.principal_builder
        if build is None:
            return None if self._security.tls_of(listener) is None else self._identify
        context = partial(AuthenticationContext, listener, self._protocols[listener], connection.peer[0])
        return lambda certificate: build_principal(
            build, context(certificate, "", partial(self._identify, certificate))
        )

    def _build_after_sasl(
        self, listener: str, connection: Connection, mechanism: str, principal: Principal
    ) -> Principal:
        """The principal by the builder, of a client that has authenticated by SASL. Raises NoPrincipal."""
        assert self.principal_builder is not None
        protocol, address = self._protocols[listener], connection.peer[0]
        context = AuthenticationContext(
            listener, protocol, address, connection.peer_certificate, mechanism, lambda: principal
        )
        return build_principal(self.principal_builder, context, by_token=principal.by_token)

    def _identify(self, certificate: bytes | None) -> Principal:
        """The principal of a client over TLS. Source: DefaultKafkaPrincipalBuilder.

        Raises:
            NoRuleMatches: none of ssl.principal.mapping.rules matches.
        """
        if certificate is None:
            return ANONYMOUS
        from ottla_broker.security.certificates import subject_of

        return Principal(USER, self._mapping.name(subject_of(certificate)))

    def _is_full(self) -> bool:
        """No connection of a client is to be read: too many requests wait, or unread answers hold too much."""
        return self._scheduler.is_full or self._responses.is_full

    def _on_responses_full_changed(self) -> None:
        if self._responses.is_full:
            self._scheduler.stop()
        else:
            self._scheduler.go_on()
        self._on_full_changed()

    def _on_full_changed(self) -> None:
        """Stops reading from clients, or reads again; a listener of the brokers' own is always read (KIP-291)."""
        if self._is_full():
            self._held.hold(one for one in self._connections if not self._limits.is_protected(one.listener))
        else:
            self._held.release()

    def _regulate(self) -> None:
        """Has each listener accept, or leave new connections in its backlog; closes clients over max.connections."""
        excess = self._limits.excess
        if excess:
            clients = [one for one in self._connections if not self._limits.is_protected(one.listener)]
            for client in sorted(clients, key=lambda one: (not one.is_idle, one.last_active))[:excess]:
                self._forget(client)
                client.close()
        now = self._monotonic()
        waits = []
        for name, listener in self._listeners.items():
            wait_s = self._limits.wait_s(name, now)
            if wait_s:
                listener.pause()
                waits.append(wait_s)
            else:
                listener.resume()
        soonest = min(waits, default=math.inf)
        if soonest < math.inf and not self._is_waking:
            self._is_waking = True
            self._clock.call_later(soonest, self._wake)

    def _wake(self) -> None:
        """The rate of new connections has come down."""
        self._is_waking = False
        if self._is_open:
            self._regulate()

    def _forget(self, connection: ClientConnection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            self._held.forget(connection)
            self._limits.closed(connection.listener, connection.peer[0])

    async def _resolve(self) -> None:
        """Looks up the addresses of the hosts of max.connections.per.ip.overrides."""
        found: dict[str, list[str]] = {}
        for host in self._limits.override_hosts:
            try:
                found[host] = await self._network.resolve(host)
            except OSError as error:
                logger.warning(
                    "max.connections.per.ip.overrides: %s has no effect until the name is known: %s", host, error
                )
        self._limits.resolved(found)
        self._regulate()

    def _on_change(self, names: Collection[str]) -> None:
        if self._is_open and any(name.endswith(_LIMITS) for name in names):
            self._clock.spawn(self._resolve(), name="addresses of max.connections.per.ip.overrides")

    def _idle_check_s(self) -> float:
        idle_ms: int = self._config.connections_max_idle_ms
        return min(_IDLE_CHECK_S, max(idle_ms / 4000.0, 0.01))

    def _close_idle(self) -> None:
        if not self._is_open:
            return
        idle_ms: int = self._config.connections_max_idle_ms
        if idle_ms > 0:
            deadline = self._clock.monotonic() - idle_ms / 1000.0
            for connection in [c for c in self._connections if c.last_active < deadline]:
                # A request in flight (a long poll) is activity; a peer that does not read its responses is not.
                if not connection.waits_for_broker:
                    connection.close()
        self._clock.call_later(self._idle_check_s(), self._close_idle)


def _response_bytes(config: BrokerConfig, memory_bytes: int | None) -> int:
    configured: int = config.ottla_queued_max_response_bytes
    return configured or default_bytes(memory_bytes, response_memory.OF_MEMORY)
