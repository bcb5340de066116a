"""The background process of `ottla local up`: runs the fleet and serves the control socket.

    python -m ottla.local.daemon --data DIR [--processes] [--zookeeper HOST:PORT] [--port N] [--secure]

It reads DIR/documents.yaml, starts the brokers (in this process, or one process each under `supervisor`), creates and
alters the declared topics, and serves the commands status, apply, kill and down until SIGTERM. Its log is
DIR/fleet.log.
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
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from ottla.local.client_connector import connector_of
from ottla.local.control import IS_LOCKED, ControlError, ControlServer
from ottla.local.document_changes import ClusterChange, changes_by_pool, decide_cluster_change, without_refused
from ottla.local.dynamic_values import set_values, settle
from ottla.local.first_users import UsersNotStored, store_users, until_known
from ottla.local.in_process import InProcess
from ottla.local.jars import MissingRequirement
from ottla.local.layout import FleetStateError, Layout, free_base, security_differs
from ottla.local.port_owners import port_owner
from ottla.local.ports import HOST
from ottla.local.secure_files import PRIVATE_UMASK, SecureFilesError
from ottla.local.supervisor import BrokerEnded, Supervisor
from ottla.local.topic_documents import apply_topics
from ottla.local.zookeeper_server import ZooKeeperFailed
from ottla_broker.adapters import process_logging
from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.network import SocketNetwork
from ottla_broker.adapters.process import run
from ottla_broker.coordination.embedded import StoreInUse, StoreUnreadable
from ottla_broker.server.broker import StartRefused
from ottla_documents.documents import DocumentError, Documents, load_documents

logger = logging.getLogger("ottla.local")

EXPECTED_FAILURES = (
    StartRefused,
    FleetStateError,
    SecureFilesError,
    UsersNotStored,
    MissingRequirement,
    ZooKeeperFailed,
    BrokerEnded,
    StoreInUse,
    StoreUnreadable,
)
"""Errors of a start with a message for the user. Any other exception is a bug."""


@dataclass(frozen=True, slots=True)
class FleetMode:
    """How the brokers of a fleet run, as the options of `ottla local up` say."""

    processes: bool
    zookeeper: str

    def differs(self, asked: FleetMode) -> list[str]:
        """What is asked for and is not so. An option that is not given asks for nothing.

        >>> FleetMode(False, "").differs(FleetMode(True, "")), FleetMode(True, "").differs(FleetMode(False, ""))
        (['--processes: all brokers run in one process'], [])
        """
        found = []
        if asked.processes and not self.processes:
            found.append("--processes: all brokers run in one process")
        if asked.zookeeper not in ("", self.zookeeper):
            found.append(f"--zookeeper {asked.zookeeper}: the fleet uses {self.zookeeper or 'one of its own'}")
        return found


class Runner(Protocol):
    """Runs the brokers of a fleet: `in_process.InProcess`, or `supervisor.Supervisor`."""

    restarts: bool
    """Whether a broker that ends is started again."""

    async def start(self) -> None: ...
    async def kill(self, broker_id: int) -> None: ...
    async def stop(self) -> None: ...
    async def refresh(self) -> None: ...
    def statuses(self) -> list[dict[str, Any]]: ...
    def is_running(self, broker_id: int) -> bool: ...


class Daemon:
    """One fleet: its runner, its topics, its control socket. It releases `lock` (see `locked`) when it has stopped."""

    def __init__(
        self,
        data: Path,
        lock: IO[str],
        documents: Documents,
        *,
        processes: bool,
        zookeeper: str,
        port: int = 0,
        secure: bool = False,
    ) -> None:
        self._data = data
        self._lock = lock
        self._documents = documents
        self._cluster = documents.clusters[0]
        self._mode = FleetMode(processes, zookeeper)
        self.layout = Layout(data, self._cluster, first_client_port=port or None, moves_ports=bool(port), secure=secure)
        self._runner: Runner
        if processes:
            self._runner = Supervisor(self.layout, zookeeper)
        else:
            self._runner = InProcess(self.layout, zookeeper)
        self._control = ControlServer(data, self._answer)
        self._started_at = time.monotonic()
        self._ready_s: float | None = None
        self._failure = ""
        self._topics: list[dict[str, Any]] = []
        self._started = asyncio.Event()
        """Set when the start has ended, well or not."""
        self._applying = asyncio.Lock()
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
            if self.layout.state.secure:
                self._make_secure_files()
            await self._runner.start()
            if self.layout.state.secure:
                await self._open_to_users()
            self._ready_s = time.monotonic() - self._started_at
            await self._settle_dynamic_values()
            self._topics = await self._apply_topics()
        except EXPECTED_FAILURES as error:
            self._failure = str(error)
            if os.strerror(errno.EADDRINUSE) in self._failure:
                self._failure += f"; {self._why_in_use()}"
            logger.error("the fleet did not start: %s", self._failure)
        except Exception as error:
            logger.exception("the fleet did not start")
            self._failure = str(error) or type(error).__name__
        finally:
            self._started.set()

    def _why_in_use(self) -> str:
        """Who has the port that a broker of this fleet cannot have, and what to do."""
        places = self.layout.places()
        for place in places:
            for port in (place.client_port, place.internal_port, place.http_port):
                owner = port_owner(port)
                if not owner.pid or owner.data == self._data or owner.pid == os.getpid():
                    continue
                move = f"; or give this fleet other ports: --port {free_base(len(places))}"
                return f"{owner} has port {port}: stop it{move if port == place.client_port else ''}"
        return f"stop the process that uses the port (the fleet keeps its ports: {self._data / 'fleet.json'})"

    def _make_secure_files(self) -> None:
        """Before the brokers start: they read them. Raises SecureFilesError, FleetStateError."""
        if not self.layout.state.has_users:
            self.layout.secure_files.make()
        self.layout.assign_ports()
        self.layout.secure_files.write_client_files(self.layout.bootstrap)

    async def _open_to_users(self) -> None:
        """At the first start: stores the users, and waits until every broker lets them in. Raises UsersNotStored."""
        if self.layout.state.has_users:
            return
        network, clock = SocketNetwork(), LoopClock()
        passwords = self.layout.secure_files.passwords()
        internal = connector_of(network, clock, self.layout.admin_keys())
        users = [connector_of(network, clock, keys) for keys in self.layout.secure_files.client_keys()]
        places = [place for place in self.layout.places() if self._runner.is_running(place.id)]
        try:
            await store_users(internal, clock, places[0].internal_port, passwords)
            for place in places:
                await until_known(internal, users, clock, place)
        finally:
            network.close()
        self.layout.state.has_users = True
        self.layout.save()

    async def _apply_topics(self) -> list[dict[str, Any]]:
        topics = [t for t in self._documents.topics if t.cluster == self._cluster.name]
        if not topics:
            return []
        network, clock = SocketNetwork(), LoopClock()
        first = next((place for place in self.layout.places() if self._runner.is_running(place.id)), None)
        if first is None:
            raise ControlError("no broker is running; stop the fleet and start it again")
        connector = connector_of(network, clock, self.layout.admin_keys())
        outcomes = await apply_topics(connector, clock, HOST, self.layout.admin_port(first), topics)
        network.close()
        for outcome in outcomes:
            logger.info("topic %s: %s", outcome.name, outcome.done or outcome.error)
        return [asdict(outcome) for outcome in outcomes]

    async def _settle_dynamic_values(self) -> None:
        """Removes what `apply` has set in the run before: the files of the brokers have what is declared now."""
        network, clock = SocketNetwork(), LoopClock()
        connector = connector_of(network, clock, self.layout.admin_keys())
        for place in self.layout.places():
            if not place.dynamic or not self._runner.is_running(place.id):
                continue
            if await settle(connector, clock, self.layout.admin_port(place), place):
                place.dynamic = {}
                self.layout.save()
        network.close()

    async def _apply(self, request: dict[str, Any]) -> dict[str, Any]:
        """Puts other documents in force, as far as that goes while brokers run, and reports what was done."""
        path = self._data / "documents.yaml"
        if problem := security_differs(self._data, self.layout.state.secure, request.get("secure", False)):
            raise ControlError(problem)
        try:
            documents = load_documents([(str(path), request["documents"])])
        except DocumentError as error:
            raise ControlError(str(error)) from None
        async with self._applying:
            await self._started.wait()
            if self._failure:
                raise ControlError(f"the fleet did not start: {self._failure}")
            gone = sorted({t.topic_name for t in self._documents.topics} - {t.topic_name for t in documents.topics})
            change = decide_cluster_change(self._cluster, documents.clusters[0])
            path.write_text(request["documents"], encoding="utf-8")
            config = await self._apply_config(change)
            self._documents = documents
            self._topics = await self._apply_topics()
            asked = FleetMode(request["processes"], request["zookeeper"])
            return {
                **self._status(),
                "config": config,
                "restart": [*self._mode.differs(asked), *self._port_differs(request["port"]), *change.restart],
                "undeclared": gone,
            }

    async def _apply_config(self, change: ClusterChange) -> list[dict[str, str]]:
        network, clock = SocketNetwork(), LoopClock()
        connector = connector_of(network, clock, self.layout.admin_keys())
        of_pool = changes_by_pool(change.dynamic)
        errors: dict[str, dict[str, list[int]]] = {}  # by key and message, the brokers that say so
        refused: set[tuple[str, str]] = set()
        for place in self.layout.places():
            pool = self.layout.pool_name(place.id)
            values = of_pool.get(pool)
            if not values or not self._runner.is_running(place.id):
                continue
            port = self.layout.admin_port(place)
            for key, text in values.items():  # one at a time: what one broker refuses keeps no other key back
                if error := await set_values(connector, clock, port, place, {key: text}):
                    errors.setdefault(key, {}).setdefault(error, []).append(place.id)
                    refused.add((pool, key))
                else:
                    place.dynamic[key] = text
        network.close()
        self.layout.cluster = self._cluster = without_refused(change, self._cluster, refused)
        self.layout.save()
        return [
            {"name": one.key, "done": one.shown, "error": _by_broker(errors.get(one.key, {}))} for one in change.dynamic
        ]

    def _port_differs(self, port: int) -> list[str]:
        first = min((place.client_port for place in self.layout.places()), default=port)
        return [f"--port {port}: the fleet has its ports from {first} upwards"] if port and port != first else []

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        command = request.get("command")
        if command == "status":
            await self._runner.refresh()
            return self._status()
        if command == "apply":
            return await self._apply(request)
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
            "secure": self.layout.state.secure,
            "admin_bootstrap": self.layout.admin_bootstrap,
            "ready": self._ready_s is not None and all(broker["ready"] for broker in brokers),
            "start_s": self._ready_s,
            "rss_bytes": sum(_rss_bytes(pid) for pid in dict.fromkeys([os.getpid(), *(b["pid"] for b in brokers)])),
            "failure": self._failure,
            "topics_applied": self._ready_s is not None and (bool(self._topics) or not self._declared_topics()),
            "topics": self._topics,
            "passed_over": self.layout.passed_over,
            "brokers": brokers,
        }

    def _declared_topics(self) -> bool:
        return any(topic.cluster == self._cluster.name for topic in self._documents.topics)


def _by_broker(errors: Mapping[str, list[int]]) -> str:
    """
    >>> _by_broker({"no": [0, 1], "too many": [2]})
    'broker 0, 1: no; broker 2: too many'
    """
    return "; ".join(f"broker {', '.join(map(str, ids))}: {error}" for error, ids in errors.items())


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
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--secure", action="store_true")
    arguments = parser.parse_args()
    if arguments.secure:
        os.umask(PRIVATE_UMASK)
    process_logging.configure()
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(locked(arguments.data))
        except BlockingIOError:
            logger.error("another fleet is running in %s", arguments.data)
            return IS_LOCKED
        path = arguments.data / "documents.yaml"
        documents = load_documents([(str(path), path.read_text())])

        async def serve() -> int:
            try:
                daemon = Daemon(
                    arguments.data,
                    lock,
                    documents,
                    processes=arguments.processes,
                    zookeeper=arguments.zookeeper,
                    port=arguments.port,
                    secure=arguments.secure,
                )
            except FleetStateError as error:
                logger.error("%s", error)
                return 1
            return await daemon.run()

        return run(serve())


if __name__ == "__main__":
    raise SystemExit(main())
