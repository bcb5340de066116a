"""The broker's listeners: accepting, the limits on connections, and the ends of idle ones.

`max.connections`, `max.connections.per.ip` (with its overrides) and `connections.max.idle.ms` are Kafka's. A
connection over the limit is closed at once with one log line; the inter-broker listener is never refused because
clients took every place (KIP-402: it may close the longest idle client instead).
"""

from __future__ import annotations

import logging
from collections import Counter as CollectionsCounter
from collections.abc import Mapping
from typing import Any

from ottla_broker.config import Endpoint
from ottla_broker.metrics import Histogram, Metrics
from ottla_broker.ports.clock import Clock
from ottla_broker.ports.network import Connection, Listener, Network
from ottla_broker.protocol.api import ApiKey
from ottla_broker.server.connection import ClientConnection
from ottla_broker.server.context import RequestContext
from ottla_broker.server.dispatch import Dispatcher
from ottla_broker.server.turns import DataTurns

logger = logging.getLogger("ottla.server")

_IDLE_CHECK_S = 30.0


class _Refused:
    """Handler of a connection that was closed before its first frame."""

    def on_frame(self, frame: memoryview) -> None:
        pass

    def on_sent(self) -> None:
        pass

    def on_close(self, reason: str) -> None:
        pass


class SocketServer:
    """Owns the client connections of one broker."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        config: Mapping[str, Any],
        dispatcher: Dispatcher,
        metrics: Metrics,
        inter_broker_listener: str,
        control_plane_listener: str | None = None,
    ) -> None:
        self.clock = clock
        self._network = network
        self._config = config
        self._dispatcher = dispatcher
        self._privileged_listeners = (inter_broker_listener, control_plane_listener)
        self._metrics = metrics
        self._listeners: dict[str, Listener] = {}
        self._connections: dict[ClientConnection, None] = {}
        self._per_address: CollectionsCounter[str] = CollectionsCounter()
        self._accepted = 0
        self._latency: dict[int, Histogram] = {}
        self._is_open = False
        self.dispatch = dispatcher.dispatch
        self.turns = DataTurns(clock)
        self._monotonic = clock.monotonic
        metrics.gauge(
            "kafka_server_socketservermetrics_connectioncount",
            "Open connections.",
            lambda: float(len(self._connections)),
        )
        self._refused = metrics.counter(
            "kafka_server_socketservermetrics_connectionsrefused", "Connections closed for a limit on connections."
        )

    async def bind(self, endpoint: Endpoint) -> int:
        """Opens one listener and gives its port. Raises OSError that names the address."""
        listener = await self._network.listen(
            endpoint.host,
            endpoint.port,
            lambda connection: self._accept(connection, endpoint.name),
            max_frame_bytes=self._config["socket.request.max.bytes"],
            is_privileged=endpoint.name in self._privileged_listeners,
        )
        self._listeners[endpoint.name] = listener
        if not self._is_open:
            self._is_open = True
            self.clock.call_later(self._idle_check_s(), self._close_idle)
        return listener.port

    def close(self) -> None:
        """Accepts no more and ends every connection."""
        self._is_open = False
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        for connection in list(self._connections):
            connection.close()

    def observe(self, context: RequestContext) -> None:
        """Records how long a request took, from its frame to its answer."""
        histogram = self._latency.get(context.api_key)
        if histogram is None:
            histogram = self._latency[context.api_key] = self._metrics.histogram(
                "kafka_network_requestmetrics_totaltime_seconds",
                "From the last byte of a request to its answer.",
                request=_request_name(context.api_key),
            )
        histogram.observe(self._monotonic() - context.received_at)

    def on_connection_closed(self, connection: ClientConnection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            host = connection.peer[0]
            self._per_address[host] -= 1
            if not self._per_address[host]:
                del self._per_address[host]

    def _accept(self, connection: Connection, listener: str) -> ClientConnection | _Refused:
        is_privileged = listener in self._privileged_listeners
        reason = self._reason_to_refuse(connection.peer[0], is_privileged)
        if reason:
            self._refused.inc()
            logger.warning("refusing connection from %s:%d on %s: %s", *connection.peer, listener, reason)
            connection.close()
            return _Refused()
        self._accepted += 1
        handler = ClientConnection(self, connection, listener, is_privileged, self._accepted)
        self._connections[handler] = None
        self._per_address[connection.peer[0]] += 1
        return handler

    def _reason_to_refuse(self, host: str, is_privileged: bool) -> str:
        config = self._config
        per_address = _override(config["max.connections.per.ip.overrides"], host, config["max.connections.per.ip"])
        if self._per_address[host] >= per_address:
            return f"{host} has max.connections.per.ip={per_address} connections"
        if len(self._connections) < config["max.connections"]:
            return ""
        if is_privileged and self._close_longest_idle_client():
            return ""
        return f"max.connections={config['max.connections']} are open"

    def _close_longest_idle_client(self) -> bool:
        clients = [c for c in self._connections if not c.is_privileged]
        if not clients:
            return False
        min(clients, key=lambda c: (not c.is_idle, c.last_active)).close()
        return True

    def _idle_check_s(self) -> float:
        idle_ms: int = self._config["connections.max.idle.ms"]
        return min(_IDLE_CHECK_S, max(idle_ms / 4000.0, 0.01))

    def _close_idle(self) -> None:
        if not self._is_open:
            return
        idle_ms: int = self._config["connections.max.idle.ms"]
        if idle_ms > 0:
            deadline = self.clock.monotonic() - idle_ms / 1000.0
            for connection in [c for c in self._connections if c.last_active < deadline]:
                # A request in flight (a long poll) is activity; a peer that does not read its answers is not.
                if not connection.has_requests_in_flight:
                    connection.close()
        self.clock.call_later(self._idle_check_s(), self._close_idle)


def _request_name(api_key: int) -> str:
    """Kafka's name of the API in metrics.

    >>> _request_name(2)
    'ListOffsets'
    """
    return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))


def _override(overrides: str, host: str, default: int) -> int:
    """One host's limit out of `max.connections.per.ip.overrides`.

    >>> _override("10.0.0.1:5,10.0.0.2:7", "10.0.0.2", 100)
    7
    """
    for entry in overrides.split(","):
        name, _, limit = entry.strip().rpartition(":")
        if name == host:
            return int(limit)
    return default
