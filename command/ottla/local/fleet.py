"""Brokers of a local fleet in this process, one event loop for all.

They use the embedded coordination store, or a given ZooKeeper. `kill` halts a broker as SIGKILL does: its connections
break, its session expires by its timeout, nothing is flushed.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any

from ottla.local.layout import SESSION_TIMEOUT_MS, BrokerPlace, Layout
from ottla_broker.adapters import process_logging
from ottla_broker.adapters.process import make_ports, zookeeper_coordination
from ottla_broker.config import BrokerConfig
from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore
from ottla_broker.http_server import HttpServer
from ottla_broker.ports import Coordination
from ottla_broker.server.broker import Broker, StartRefused
from ottla_broker.server.edge.http_endpoints import routes

EMBEDDED_CONNECT = "embedded:2181"
"""zookeeper.connect of a fleet without ZooKeeper: the key is required, but not used."""


class Fleet:
    """The brokers of a layout, started and stopped together or one at a time.

    Args:
        zookeeper_connect: "host:port/chroot" of a real ZooKeeper; "" for the embedded coordination store.
        overrides: broker keys with precedence over those of the layout (tests).
    """

    def __init__(self, layout: Layout, *, zookeeper_connect: str = "", overrides: dict[str, str] | None = None) -> None:
        self.layout = layout
        self._zookeeper_connect = zookeeper_connect
        self._overrides = overrides or {}
        self._store: EmbeddedStore | None = None
        self.brokers: dict[int, Broker] = {}
        self._http: dict[int, HttpServer] = {}

    async def start(self) -> None:
        """Starts the brokers one after the other; returns when all are ready."""
        self.layout.assign_ports()
        if not self._zookeeper_connect:
            self._store = EmbeddedStore(str(self.layout.coordination_path))
            await self._store.open()
        for place in self.layout.places():
            await self.start_broker(place.id, wait_until_ready=False)
        for broker in self.brokers.values():
            await broker.ready()

    async def start_broker(self, broker_id: int, *, wait_until_ready: bool = True) -> Broker:
        """Starts one broker that is not running. StartRefused, with the broker id and the reason."""
        place = self.layout.place(broker_id)
        config = BrokerConfig.from_mapping(
            {**self.layout.broker_config(place, self._zookeeper_connect or EMBEDDED_CONNECT), **self._overrides}
        )
        with process_logging.about(lambda: broker_id):
            try:
                for directory in self.layout.log_directories(broker_id).values():
                    # A directory that cannot be created is offline; the broker starts without it.
                    with contextlib.suppress(OSError):
                        os.makedirs(directory, exist_ok=True)
                ports = make_ports(config, self._coordination(config), brokers=len(self.layout.state.brokers))
                broker = Broker(config, ports, logger=_logger(place))
                http = HttpServer(routes(broker), config.ottla_http_max_connections)
                if config.http_listener is not None:
                    await http.start(*config.http_listener)
                self.brokers[broker_id] = broker
                self._http[broker_id] = http
                await broker.start()
            except OSError as error:
                where = f"{error.filename}: " if error.filename else ""
                raise StartRefused(f"broker {broker_id}: {where}{error.strerror or error}") from error
            except StartRefused as error:
                raise StartRefused(f"broker {broker_id}: {error}") from error.__cause__
        self.layout.record_formatted(broker_id)
        if wait_until_ready:
            await broker.ready()
        return broker

    def kill(self, broker_id: int) -> None:
        """Halts one broker without a clean shutdown. KeyError when it is not running."""
        with process_logging.about(lambda: broker_id):
            self.brokers.pop(broker_id).halt("killed by ottla local kill")
        self._http.pop(broker_id).close()

    async def stop_broker(self, broker_id: int, *, moves_leadership: bool = True) -> None:
        """Stops one broker by a controlled shutdown. KeyError when it is not running.

        Args:
            moves_leadership: False: the broker stops without moving its leadership.
        """
        with process_logging.about(lambda: broker_id):
            await self.brokers.pop(broker_id).stop(moves_leadership=moves_leadership)
        self._http.pop(broker_id).close()

    async def stop(self) -> None:
        """Stops all brokers without moving leadership, then the coordination store."""
        for broker_id in list(self.brokers):
            await self.stop_broker(broker_id, moves_leadership=False)
        if self._store is not None:
            await self._store.close()
            self._store = None

    def _coordination(self, config: BrokerConfig) -> Coordination:
        timeout_ms = config.zookeeper_session_timeout_ms or SESSION_TIMEOUT_MS
        if self._store is not None:
            return EmbeddedCoordination(self._store, session_timeout_ms=timeout_ms)
        return zookeeper_coordination(config)


def _logger(place: BrokerPlace) -> logging.LoggerAdapter[Any]:
    return logging.LoggerAdapter(logging.getLogger("ottla"), {"broker": place.id})
