"""FleetFeatures: the finalized features of the cluster, and whether every registered broker is one of ours (KIP-584).

Lives here: the watches on `/feature` and on the registrations, and what this broker makes of them. Not here: which
features are supported (`config.features`), the write of `/feature` (`controller.acts.feature_finalization`), which API
versions follow (`server.edge.dispatch`). It uses two ports, Coordination and Clock.

A finalized feature is one that every broker of the cluster uses at the same level. A broker does not join a cluster
that has finalized what it does not support, and halts when that happens while it runs. A broker of Apache Kafka 3.9
does the same, and supports no feature.

A registration is ours when it has the member `ottla_version`. One that cannot be read is not.

Source: kafka.server.FinalizedFeatureChangeListener and ZkMetadataCache of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla_broker.config import features
from ottla_broker.config.features import Levels, Ranges, incompatible
from ottla_broker.coordination import znodes
from ottla_broker.coordination.znodes import FEATURE, Features, ZnodeError
from ottla_broker.ports import Clock, Coordination
from ottla_broker.ports.coordination import NoNode, SessionEvent, WatchEvent
from ottla_broker.server.store.registration import RegistrationRefused
from ottla_broker.server.store.store_watch import StoreWatch


@dataclass(frozen=True, slots=True)
class FleetView:
    """What this broker has read last. `epoch` is the version of `/feature`, -1 without the node or while disabled."""

    finalized: Levels = field(default_factory=dict)
    epoch: int = -1
    is_ours: bool = False


def unsupported_feature_reason(found: Features, supported: Ranges) -> str | None:
    """Why this broker cannot be in a cluster with these finalized features, None when it can.

    >>> [unsupported_feature_reason(one, {}) for one in (Features(True, {}), Features(False, {"x": 1}))]
    [None, None]
    >>> unsupported_feature_reason(Features(True, {"group.version": 1}), {})
    '/feature: the cluster has finalized group.version at level 1, which this release does not support'
    """
    if not found.is_enabled:
        return None
    for name, level in incompatible(found.max_version_levels, supported).items():
        return f"{FEATURE}: the cluster has finalized {name} at level {level}, which this release does not support"
    return None


class FleetFeatures:
    """See the module. `start` before use; everything runs on the broker's loop.

    Args:
        on_change: called with every new view.
        on_incompatible: called with the reason when a feature is finalized that this broker does not support.
    """

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        logger: logging.Logger | logging.LoggerAdapter[Any],
        on_change: Callable[[FleetView], None],
        on_incompatible: Callable[[str], None],
    ) -> None:
        self._coordination = coordination
        self._clock = clock
        self._logger = logger
        self._on_change = on_change
        self._on_incompatible = on_incompatible
        self._view = FleetView()
        self._registrations: dict[str, bool] = {}
        """Whether a registration is ours, by broker id, as last read."""
        self._changed: set[str] = set()
        """Ids of the registrations whose watch has fired since."""
        self._is_new_session = False
        self._watch = StoreWatch(coordination, clock)
        self._epoch_waiters: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def view(self) -> FleetView:
        return self._view

    async def start(self) -> None:
        """Reads everything, sets the watches and follows them.

        Raises:
            RegistrationRefused: the cluster has finalized what this broker does not support, or `/feature` cannot be
                read, and with it the features.
            CoordinationError: the coordination store does not answer.
        """
        self._coordination.add_session_listener(self._on_session)
        self._watch.listen()
        try:
            reason = await self._read()
        except ZnodeError as error:
            raise RegistrationRefused(str(error)) from error
        if reason is not None:
            raise RegistrationRefused(reason)
        self._clock.spawn(self._watch.follow(self._read_again), name="features of the fleet")

    async def until_epoch(self, epoch: int, timeout_ms: int) -> bool:
        """Waits until the view has this epoch or a later one. False when it has not in time."""
        if self._view.epoch >= epoch:
            return True
        reached: asyncio.Future[None] = self._clock.create_future()
        waiter = (epoch, reached)
        self._epoch_waiters.append(waiter)
        try:
            await asyncio.wait([reached], timeout=timeout_ms / 1000)
        finally:
            self._epoch_waiters.remove(waiter)
        return reached.done()

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:  # of a new session, perhaps, which has no watches
            self._is_new_session = True

    def _on_watch(self, event: WatchEvent) -> None:
        if event.path.startswith(f"{znodes.BROKER_IDS}/"):
            self._changed.add(event.path.rpartition("/")[2])
        self._watch.on_watch(event)

    async def _read_again(self) -> None:
        try:
            reason = await self._read()
        except ZnodeError as error:
            self._logger.error("the finalized features stay as they are: %s", error)
        else:
            if reason is not None:
                self._on_incompatible(reason)

    async def _read(self) -> str | None:
        """Reads what has changed, and sets the watches. Returns why this broker cannot stay in the cluster."""
        is_ours = await self._read_registrations()
        # `exists` leaves a watch whether or not the node is there.
        if await self._coordination.exists(FEATURE, self._on_watch) is None:
            found, epoch = Features(False), -1
        else:
            try:
                data, stat = await self._coordination.get(FEATURE)
            except NoNode:  # deleted since: the watch has fired
                return None
            found = Features.decode(data)
            epoch = stat.version if found.is_enabled else -1
        reason = unsupported_feature_reason(found, features.SUPPORTED)
        if reason is not None:
            return reason
        finalized: Mapping[str, int] = found.max_version_levels if found.is_enabled else {}
        view = FleetView(dict(finalized), epoch, is_ours)
        if view != self._view:
            self._view = view
            self._on_change(view)
        for wanted, reached in self._epoch_waiters:
            if epoch >= wanted and not reached.done():
                reached.set_result(None)
        return None

    async def _read_registrations(self) -> bool:
        """Whether every registered broker is one of ours."""
        # A watch may fire between an answer and the line that uses it: what has changed by now is read below, and what
        # changes from here on in the next round.
        if self._is_new_session:
            self._is_new_session = False
            self._registrations.clear()
        for name in self._changed:
            self._registrations.pop(name, None)
        self._changed.clear()
        names = await self._coordination.children(znodes.BROKER_IDS, self._on_watch)
        self._registrations = {name: ours for name, ours in self._registrations.items() if name in names}
        found = True
        for name in names:
            if name not in self._registrations:
                is_ours = await self._is_ours(name)
                if is_ours is None:
                    continue
                self._registrations[name] = is_ours
            found = found and self._registrations[name]
        return found

    async def _is_ours(self, name: str) -> bool | None:
        """None for a registration that is gone; the watch on its parent reports it."""
        path = f"{znodes.BROKER_IDS}/{name}"
        try:
            data, _ = await self._coordination.get(path, self._on_watch)
            return znodes.BrokerRegistration.decode(int(name), data).ottla_version is not None
        except NoNode:
            return None
        except ValueError as error:
            self._logger.warning("%s is not taken for a broker of ours: %s", path, error)
            return False
