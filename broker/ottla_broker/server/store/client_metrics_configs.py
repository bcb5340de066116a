"""ClientMetricsConfigs: reads, watches and changes the client-metrics resources in the coordination store (KIP-714).

Lives here: the nodes /config/client-metrics/<name>. Not here: what a resource means (`config.client_metrics`), the
admin APIs (`server.handlers`). It uses two ports, Coordination and Clock.

Every broker watches the nodes themselves. A notification below /config/changes, as other configurations have, would
keep a broker of Apache Kafka 3.9 that joins from reading any change after it: it has no such entity type.

Source: kafka.server.ClientMetricsConfigHandler of Apache Kafka, which has them under KRaft alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ottla_broker.config.client_metrics import Subscription, parse_subscription
from ottla_broker.coordination import znodes
from ottla_broker.coordination.znodes import ZnodeError
from ottla_broker.ports import Clock, Coordination
from ottla_broker.ports.coordination import (
    BadVersion,
    NodeExists,
    NoNode,
    WatchEvent,
)
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.server.store.registration import make_path
from ottla_broker.server.store.store_watch import StoreWatch

_ROOT = f"{znodes.CONFIG}/{znodes.CLIENT_METRICS}"

Change = Callable[[dict[str, str]], Mapping[str, str]]
"""Stored values in, new stored values out; may raise KafkaError, and then nothing is stored."""


class ClientMetricsConfigs:
    """The client-metrics resources. `start` before use; everything runs on the broker's loop."""

    def __init__(
        self, coordination: Coordination, clock: Clock, logger: logging.Logger | logging.LoggerAdapter[Any]
    ) -> None:
        self._coordination = coordination
        self._clock = clock
        self._logger = logger
        self._watch = StoreWatch(coordination, clock)
        self._reading = asyncio.Lock()
        self._values: dict[str, dict[str, str]] = {}
        self.subscriptions: dict[str, Subscription] = {}
        """By name. One that cannot be used is left out, and logged."""
        self.version = 0
        """Grows with every change of a subscription."""

    async def start(self) -> None:
        """Reads everything and watches from here on. Raises CoordinationError."""
        self._watch.listen()
        await make_path(self._coordination, _ROOT)
        await self._read()
        self._clock.spawn(self._watch.follow(self._read), name="client-metrics resources")

    @property
    def names(self) -> list[str]:
        """The resources with a configuration, sorted."""
        return sorted(self._values)

    async def stored(self, name: str) -> dict[str, str]:
        """The values of a resource now; {} for one that does not exist."""
        return await self._get(name) or {}

    async def update(self, name: str, change: Change) -> None:
        """Stores `change(stored values)`; a resource without values is deleted. In force here when this returns.

        Two concurrent updates both take effect: the loser is computed again. Raises what `change` raises, and
        CoordinationError.
        """
        path = _path(name)
        while True:
            try:
                data, stat = await self._coordination.get(path)
            except NoNode:
                new = dict(change({}))
                if not new:
                    break
                try:
                    await self._coordination.create(path, znodes.encode_config(new))
                    break
                except NodeExists:
                    continue
            new = dict(change(self._decode(path, data)))
            try:
                if new:
                    await self._coordination.set(path, znodes.encode_config(new), stat.version)
                else:
                    await self._coordination.delete(path, stat.version)
                break
            except (BadVersion, NoNode):
                continue
        await self._read()

    async def _read(self) -> None:
        """Reads every resource: they are few, and change seldom. One call at a time: none brings old values back."""
        async with self._reading:
            await self._read_all()

    async def _read_all(self) -> None:
        found: dict[str, dict[str, str]] = {}
        for node in await self._coordination.children(_ROOT, self._watch.on_watch):
            name = znodes.desanitize(node)
            values = await self._get(name, self._watch.on_watch)
            if values:
                found[name] = values
        if found == self._values:
            return
        self._values = found
        self.version += 1
        self.subscriptions = {}
        for name, values in found.items():
            try:
                self.subscriptions[name] = parse_subscription(name, values)
            except KafkaError as error:
                self._logger.error("client-metrics resource %s is not used: %s", name, error.message)

    async def _get(self, name: str, watch: Callable[[WatchEvent], None] | None = None) -> dict[str, str] | None:
        path = _path(name)
        try:
            data, _ = await self._coordination.get(path, watch)
        except NoNode:
            return None
        return self._decode(path, data)

    def _decode(self, path: str, data: bytes) -> dict[str, str]:
        try:
            return znodes.decode_config(path, data)
        except ZnodeError as error:
            self._logger.error("%s; its configuration is ignored", error)
            return {}


def _path(name: str) -> str:
    return znodes.config_path(znodes.CLIENT_METRICS, znodes.sanitize(name))
