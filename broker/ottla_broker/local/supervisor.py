"""One process per broker, coordinated by a real ZooKeeper; a process that dies is started again.

The ZooKeeper is the one that the caller named, or one that the supervisor starts beside the fleet (3.9, from the jars
of `scripts/fetch-jars.sh`; it needs Java).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from ottla_broker.local.layout import BrokerPlace, Layout, write_properties

logger = logging.getLogger("ottla.local")

_RESTART_PAUSE_S = 1.0
_POLL_S = 0.05
_STOP_TIMEOUT_S = 60.0


class Supervisor:
    """A `daemon.Runner`."""

    def __init__(self, layout: Layout, zookeeper: str) -> None:
        self._layout = layout
        self._connect = zookeeper
        self._zookeeper: Any = None
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._ready: dict[int, bool] = {}
        self._watchers: list[asyncio.Task[None]] = []
        self._is_stopping = False

    async def start(self) -> None:
        """Starts ZooKeeper (unless one is named) and the brokers; returns when every broker is ready."""
        self._layout.assign_ports()
        if not self._connect:
            from ottla_broker.local.zookeeper import ZooKeeperServer

            self._zookeeper = ZooKeeperServer(self._layout.data / "zookeeper")
            await asyncio.to_thread(self._zookeeper.start)
            self._connect = self._zookeeper.connect
        for place in self._layout.places():
            await self._spawn(place)
            self._watchers.append(asyncio.ensure_future(self._keep_running(place)))
        await asyncio.gather(*(self._until_ready(place) for place in self._layout.places()))

    async def kill(self, broker_id: int) -> None:
        self._processes[broker_id].kill()

    def is_running(self, broker_id: int) -> bool:
        process = self._processes.get(broker_id)
        return process is not None and process.returncode is None

    async def stop(self) -> None:
        """Stops the brokers by SIGTERM (SIGKILL after a minute), then the ZooKeeper that we started."""
        self._is_stopping = True
        for watcher in self._watchers:
            watcher.cancel()
        running = [process for process in self._processes.values() if process.returncode is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            try:
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    await process.wait()
            except TimeoutError:
                logger.error("process %d does not stop; killing it", process.pid)
                process.kill()
                await process.wait()
        if self._zookeeper is not None:
            await asyncio.to_thread(self._zookeeper.stop)

    def statuses(self) -> list[dict[str, Any]]:
        found = []
        for place in self._layout.places():
            is_running = self.is_running(place.id)
            found.append(
                {
                    "id": place.id,
                    "pid": self._processes[place.id].pid if is_running else None,
                    "ready": is_running and self._ready.get(place.id, False),
                    "log_dirs": [
                        {"path": str(path), "state": "online" if is_running else "offline"}
                        for path in self._layout.log_directories(place.id).values()
                    ],
                }
            )
        return found

    async def _spawn(self, place: BrokerPlace) -> None:
        directory = self._layout.broker_directory(place.id)
        for path in self._layout.log_directories(place.id).values():
            os.makedirs(path, exist_ok=True)
        properties = directory / "server.properties"
        write_properties(properties, self._layout.broker_config(place, self._connect))
        self._ready[place.id] = False
        log = os.open(directory / "broker.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._processes[place.id] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "ottla_broker.cli.main",
                "broker",
                "run",
                str(properties),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        finally:
            os.close(log)

    async def _keep_running(self, place: BrokerPlace) -> None:
        while True:
            process = self._processes[place.id]
            status = await process.wait()
            if self._is_stopping:
                return
            logger.warning("broker %d (pid %d) ended with status %d; starting it again", place.id, process.pid, status)
            await asyncio.sleep(_RESTART_PAUSE_S)
            await self._spawn(place)
            await self._until_ready(place)

    async def _until_ready(self, place: BrokerPlace) -> None:
        """Asks /readyz until it says yes; a process that ends meanwhile is `_keep_running`'s matter."""
        while not await _is_ready(place.http_port):
            if not self.is_running(place.id):
                log = self._layout.broker_directory(place.id) / "broker.log"
                raise RuntimeError(f"broker {place.id} ended while starting: {_last_line(log)} (see {log})")
            await asyncio.sleep(_POLL_S)
        self._ready[place.id] = True
        self._layout.record_formatted(place.id)


async def _is_ready(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        status = await reader.readline()
    except OSError:
        return False
    finally:
        writer.close()
    return b" 200 " in status


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
