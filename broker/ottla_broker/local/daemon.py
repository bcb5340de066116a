"""The background process of `ottla local up`: runs the fleet and serves the control socket.

    python -m ottla_broker.local.daemon --data DIR [--processes] [--zookeeper HOST:PORT]

It reads DIR/documents.yaml, starts the brokers (in this process, or one process each under `supervisor`), creates and
alters the declared topics, and serves the commands status, kill and down until SIGTERM. Its log is DIR/fleet.log.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from ottla_broker.adapters import process_logging
from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.network import SocketNetwork
from ottla_broker.adapters.process import freeze_garbage, run
from ottla_broker.coordination.embedded import StoreInUse, StoreUnreadable
from ottla_broker.local.control import ControlError, ControlServer
from ottla_broker.local.jars import MissingRequirement
from ottla_broker.local.layout import BrokerPlace, FleetStateError, Layout
from ottla_broker.local.ports import HOST
from ottla_broker.local.supervisor import BrokerEnded, Supervisor
from ottla_broker.local.topic_documents import apply_topics
from ottla_broker.local.zookeeper_server import ZooKeeperFailed
from ottla_broker.server.broker import StartRefused
from ottla_operator.model.documents import Documents, load_documents

logger = logging.getLogger("ottla.local")

EXPECTED_FAILURES = (
    StartRefused,
    FleetStateError,
    MissingRequirement,
    ZooKeeperFailed,
    BrokerEnded,
    StoreInUse,
    StoreUnreadable,
)
"""Errors of a start with a message for the user. Any other exception is a bug."""


class Runner(Protocol):
    """Runs the brokers of a fleet: `InProcess`, or `supervisor.Supervisor`."""

    restarts: bool
    """Whether a broker that ends is started again."""

    async def start(self) -> None: ...
    async def kill(self, broker_id: int) -> None: ...
    async def stop(self) -> None: ...
    async def refresh(self) -> None: ...
    def statuses(self) -> list[dict[str, Any]]: ...
    def is_running(self, broker_id: int) -> bool: ...


class InProcess:
    """All brokers in this process."""

    restarts = False

    def __init__(self, layout: Layout, zookeeper_connect: str) -> None:
        from ottla_broker.local.fleet import Fleet

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
            return [{"path": str(path), "state": "offline"} for path in self._layout.log_directories(place.id).values()]
        return [{name: str(one[name]) for name in ("path", "state")} for one in broker.status()["log_dirs"]]


class Daemon:
    """One fleet: its runner, its topics, its control socket. It releases `lock` (see `locked`) when it has stopped."""

    def __init__(self, data: Path, lock: IO[str], documents: Documents, *, processes: bool, zookeeper: str) -> None:
        self._data = data
        self._lock = lock
        self._documents = documents
        self._cluster = documents.clusters[0]
        self.layout = Layout(data, self._cluster)
        self._runner: Runner
        if processes:
            self._runner = Supervisor(self.layout, zookeeper)
        else:
            self._runner = InProcess(self.layout, zookeeper)
        self._control = ControlServer(data, self._answer)
        self._started_at = time.monotonic()
        self._ready_s: float | None = None
        self._failure = ""
        self._topics: list[dict[str, str]] = []
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()

    async def run(self) -> int:
        """Runs until SIGTERM, SIGINT or the command `down`. Returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        await self._control.start()
        starting = asyncio.ensure_future(self._start())
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        await stopping
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await self._runner.stop()
        # Before the response to `down`: the client may then delete the directory or start another fleet in it.
        self._control.close()
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._stopped.set()
        await asyncio.sleep(0)  # lets the loop send the response to `down`
        return 1 if self._failure else 0

    async def _start(self) -> None:
        try:
            await self._runner.start()
            self._ready_s = time.monotonic() - self._started_at
            await self._apply_topics()
        except EXPECTED_FAILURES as error:
            self._failure = str(error)
            if os.strerror(errno.EADDRINUSE) in self._failure:
                self._failure += (
                    f"; stop the process that uses the port (the fleet keeps its ports: {self._data / 'fleet.json'})"
                )
            logger.error("the fleet did not start: %s", self._failure)
        except Exception as error:
            logger.exception("the fleet did not start")
            self._failure = str(error) or type(error).__name__

    async def _apply_topics(self) -> None:
        topics = [t for t in self._documents.topics if t.cluster == self._cluster.name]
        if not topics:
            return
        network, clock = SocketNetwork(), LoopClock()
        first = next(place for place in self.layout.places() if self._runner.is_running(place.id))
        outcomes = await apply_topics(network, clock, HOST, first.client_port, topics)
        network.close()
        self._topics = [{"name": o.name, "done": o.done, "error": o.error} for o in outcomes]
        for outcome in outcomes:
            logger.info("topic %s: %s", outcome.name, outcome.done or outcome.error)

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        command = request.get("command")
        if command == "status":
            await self._runner.refresh()
            return self._status()
        if command == "kill":
            return await self._kill(request)
        if command == "down":
            self._stopping.set()
            await self._stopped.wait()
            return {"stopped": True}
        raise ControlError(f"unknown command {command!r}")

    async def _kill(self, request: dict[str, Any]) -> dict[str, Any]:
        broker_id = request.get("broker")
        ids = [place.id for place in self.layout.places()]
        if broker_id not in ids:
            raise ControlError(f"there is no broker {broker_id}; there are {', '.join(map(str, ids))}")
        if not self._runner.is_running(broker_id):
            raise ControlError(f"broker {broker_id} is not running")
        await self._runner.kill(broker_id)
        return {"killed": broker_id, "comes_back": self._runner.restarts}

    def _status(self) -> dict[str, Any]:
        brokers = []
        for place, status in zip(self.layout.places(), self._runner.statuses(), strict=True):
            brokers.append(
                {
                    "id": place.id,
                    "address": f"{HOST}:{place.client_port}",
                    "http": f"{HOST}:{place.http_port}",
                    "rack": self.layout.rack(place.id),
                    **status,
                }
            )
        return {
            "cluster": self._cluster.name,
            "bootstrap": self.layout.bootstrap,
            "ready": self._ready_s is not None and all(broker["ready"] for broker in brokers),
            "start_s": self._ready_s,
            "rss_bytes": sum(_rss_bytes(pid) for pid in dict.fromkeys([os.getpid(), *(b["pid"] for b in brokers)])),
            "failure": self._failure,
            "topics_applied": self._ready_s is not None and (bool(self._topics) or not self._declared_topics()),
            "topics": self._topics,
            "brokers": brokers,
        }

    def _declared_topics(self) -> bool:
        return any(topic.cluster == self._cluster.name for topic in self._documents.topics)


def _rss_bytes(pid: int | None) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def locked(data: Path) -> Iterator[IO[str]]:
    """Locks a data directory for one daemon. Raises BlockingIOError when another daemon has the lock."""
    with (data / "fleet.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield lock


def main() -> int:
    parser = argparse.ArgumentParser(prog="ottla local (background)")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--zookeeper", default="")
    arguments = parser.parse_args()
    process_logging.configure()
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(locked(arguments.data))
        except BlockingIOError:
            logger.error("another fleet is running in %s", arguments.data)
            return 1
        path = arguments.data / "documents.yaml"
        documents = load_documents([(str(path), path.read_text())])

        async def serve() -> int:
            try:
                daemon = Daemon(
                    arguments.data, lock, documents, processes=arguments.processes, zookeeper=arguments.zookeeper
                )
            except FleetStateError as error:
                logger.error("%s", error)
                return 1
            return await daemon.run()

        return run(serve())


if __name__ == "__main__":
    raise SystemExit(main())
