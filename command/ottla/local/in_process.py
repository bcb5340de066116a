"""All brokers of a local fleet in one process: the runner of `ottla local up` without --processes."""

from __future__ import annotations

import os
from typing import Any

from ottla.local.layout import BrokerPlace, Layout
from ottla_broker.adapters.process import freeze_garbage


class InProcess:
    """A `daemon.Runner`."""

    restarts = False

    def __init__(self, layout: Layout, zookeeper_connect: str) -> None:
        from ottla.local.fleet import Fleet

        self._layout = layout
        self._fleet = Fleet(layout, zookeeper_connect=zookeeper_connect)

    async def start(self) -> None:
        await self._fleet.start()
        freeze_garbage()

    async def kill(self, broker_id: int) -> None:
        self._fleet.kill(broker_id)

    async def stop(self) -> None:
        await self._fleet.stop()

    def is_running(self, broker_id: int) -> bool:
        broker = self._fleet.brokers.get(broker_id)
        return broker is not None and broker.state not in ("halted", "refused", "stopped")

    async def refresh(self) -> None:
        """Does nothing: the brokers are in this process."""

    def statuses(self) -> list[dict[str, Any]]:
        found = []
        for place in self._layout.places():
            broker = self._fleet.brokers.get(place.id)
            found.append(
                {
                    "id": place.id,
                    "pid": os.getpid() if self.is_running(place.id) else None,
                    "ready": broker is not None and broker.is_ready,
                    "log_dirs": self._log_dirs(place),
                    "recreation": {} if broker is None else broker.status()["recreation"],
                }
            )
        return found

    def _log_dirs(self, place: BrokerPlace) -> list[dict[str, str]]:
        broker = self._fleet.brokers.get(place.id) if self.is_running(place.id) else None
        if broker is None:
            return [{"path": str(path), "state": "unknown"} for path in self._layout.log_directories(place.id).values()]
        return [{name: str(one[name]) for name in ("path", "state")} for one in broker.status()["log_dirs"]]
