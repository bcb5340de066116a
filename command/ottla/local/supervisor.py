"""Runs one process per broker, with ZooKeeper, and restarts processes that end.

ZooKeeper is the given one, or a server that the supervisor starts (3.9, from the jars of `scripts/fetch-jars.sh`; it
needs Java).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from ottla.local.layout import STOP_TIMEOUT_MS, BrokerPlace, Layout, write_properties
from ottla_broker.adapters.process_logging import message_of

logger = logging.getLogger("ottla.local")

_RESTART_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
_POLL_S = 0.05
_ANSWER_S = 5.0
"""The timeout of an HTTP request to a broker, in seconds."""
_STOP_TIMEOUT_S = STOP_TIMEOUT_MS / 1000 + 15
_CONTROLLED_SHUTDOWN_S = 1.0
"""When the whole fleet stops, there is no broker to move leadership to. After this time a second SIGTERM ends the
controlled shutdown, and the broker flushes."""


class BrokerEnded(Exception):
    """A broker process ended before it was ready; the message has the last line of its log."""


class Supervisor:
    """A `daemon.Runner`."""

    restarts = True

    def __init__(self, layout: Layout, zookeeper: str) -> None:
        self._layout = layout
        self._connect = zookeeper
        self._zookeeper: Any = None
        self._zookeeper_start: asyncio.Future[None] | None = None
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._ready: dict[int, bool] = {}
        self._log_starts: dict[int, int] = {}
        """The offset in bytes at which the current process of each broker starts in its log file."""
        self._watchers: list[asyncio.Task[None]] = []
        self._is_stopping = False
        self._states: dict[int, dict[str, str]] = {}
        self._recreation: dict[int, dict[str, Any]] = {}
        """From the last /status of each broker: the states of its log directories by path, and its recreation."""

    async def start(self) -> None:
        """Starts ZooKeeper (unless one is given) and the brokers; returns when every broker is ready."""
        self._layout.assign_ports()
        if not self._connect:
            from ottla.local.zookeeper_server import ZooKeeperServer

            self._zookeeper = ZooKeeperServer(self._layout.data / "zookeeper")
            await self._start_zookeeper()
            self._connect = self._zookeeper.connect
            self._watchers.append(asyncio.ensure_future(self._keep_zookeeper_running()))
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
        """Stops the brokers with SIGTERM (again after a second, SIGKILL after a minute), then its own ZooKeeper."""
        self._is_stopping = True
        for watcher in self._watchers:
            watcher.cancel()
        running = [process for process in self._processes.values() if process.returncode is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        waits = [asyncio.ensure_future(process.wait()) for process in running]
        if waits:
            await asyncio.wait(waits, timeout=_CONTROLLED_SHUTDOWN_S)
        for process in running:
            if process.returncode is None:
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
            last = self._zookeeper_start
            starting = None if last is None or last.done() else last
            await asyncio.to_thread(self._zookeeper.stop)
            if starting is not None:
                # The thread continues after its task is cancelled. A server that it starts after the first stop would
                # outlive this process and share its data with the server of the next fleet.
                await asyncio.gather(starting, return_exceptions=True)
                await asyncio.to_thread(self._zookeeper.stop)

    async def refresh(self) -> None:
        """Gets /status from the running brokers."""
        running = [place for place in self._layout.places() if self.is_running(place.id)]
        answers = await asyncio.gather(*(_get(place.http_port, "/status") for place in running))
        for place, answer in zip(running, answers, strict=True):
            status = json.loads(answer) if answer else {}
            self._states[place.id] = {one["path"]: one["state"] for one in status.get("log_dirs", [])}
            self._recreation[place.id] = status.get("recreation", {})

    def statuses(self) -> list[dict[str, Any]]:
        found = []
        for place in self._layout.places():
            is_running = self.is_running(place.id)
            states = self._states.get(place.id, {})
            found.append(
                {
                    "id": place.id,
                    "pid": self._processes[place.id].pid if is_running else None,
                    "ready": is_running and bool(states) and self._ready.get(place.id, False),
                    "log_dirs": [
                        {"path": str(path), "state": states.get(str(path), "unknown") if is_running else "unknown"}
                        for path in self._layout.log_directories(place.id).values()
                    ],
                    "recreation": self._recreation.get(place.id, {}) if is_running else {},
                }
            )
        return found

    async def _spawn(self, place: BrokerPlace) -> None:
        directory = self._layout.broker_directory(place.id)
        for path in self._layout.log_directories(place.id).values():
            # A directory that cannot be created is offline; the broker starts without it.
            with contextlib.suppress(OSError):
                os.makedirs(path, exist_ok=True)
        properties = directory / "server.properties"
        write_properties(properties, self._layout.broker_config(place, self._connect))
        self._ready[place.id] = False
        log = os.open(self._log_file(place), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._log_starts[place.id] = os.fstat(log).st_size
        try:
            self._processes[place.id] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "ottla.cli.main",
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
        """Restarts a broker whenever it ends, with growing pauses while it does not become ready."""
        pause_s = _RESTART_PAUSE_S
        while True:
            process = self._processes[place.id]
            status = await process.wait()
            if self._is_stopping:
                return
            last_line = self._last_log_line(place)
            logger.warning(
                "broker %d (pid %d) ended with status %d; starting it again in %.1f s%s",
                *(place.id, process.pid, status, pause_s, f"; its last log line: {last_line}" if status > 0 else ""),
            )
            await asyncio.sleep(pause_s)
            try:
                await self._spawn(place)
                await self._until_ready(place)
                pause_s = _RESTART_PAUSE_S
            except BrokerEnded:
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except OSError as error:
                # Possibly temporary: the disk is full, or the process limit is reached.
                logger.error("cannot start broker %d: %s", place.id, error)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _start_zookeeper(self) -> None:
        self._zookeeper_start = asyncio.ensure_future(asyncio.to_thread(self._zookeeper.start))
        await asyncio.shield(self._zookeeper_start)

    async def _keep_zookeeper_running(self) -> None:
        from ottla.local.jars import MissingRequirement
        from ottla.local.zookeeper_server import ZooKeeperFailed

        while True:
            await asyncio.sleep(_RESTART_PAUSE_S)
            if self._zookeeper.pid or self._is_stopping:
                continue
            logger.warning("ZooKeeper has ended; starting it again")
            try:
                await self._start_zookeeper()
            except (ZooKeeperFailed, MissingRequirement, OSError) as error:
                logger.error("cannot start ZooKeeper: %s", error)

    async def _until_ready(self, place: BrokerPlace) -> None:
        """Polls /readyz until the broker is ready. BrokerEnded when its process ends before."""
        while not await _is_ready(place.http_port):
            if not self.is_running(place.id):
                raise BrokerEnded(f"broker {place.id}: {self._last_log_line(place)} (see {self._log_file(place)})")
            await asyncio.sleep(_POLL_S)
        self._ready[place.id] = True
        self._layout.record_formatted(place.id)

    def _last_log_line(self, place: BrokerPlace) -> str:
        """The message of the last error in the log of the current process, else of its last line."""
        try:
            with self._log_file(place).open("rb") as log:
                log.seek(self._log_starts[place.id])
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError as error:  # for example deleted
            return f"its log cannot be read: {error}"
        errors = [line for line in lines if " CRITICAL [" in line or " ERROR [" in line]
        return message_of((errors or lines or ["it ended without a log line"])[-1])

    def _log_file(self, place: BrokerPlace) -> Path:
        return self._layout.broker_directory(place.id) / "broker.log"


async def _is_ready(port: int) -> bool:
    return await _get(port, "/readyz") is not None


async def _get(port: int, path: str) -> bytes | None:
    """The body of a response with status 200; None for another status or a timeout."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await _ask(port, path)
    except TimeoutError:
        return None


async def _ask(port: int, path: str) -> bytes | None:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return None
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
    except OSError:
        return None
    finally:
        writer.close()
    return body if b" 200 " in head.split(b"\r\n", 1)[0] else None
