"""The brokers of the simulated fleet: the product's `Broker` on simulated ports; starts, crashes and restarts."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator, Mapping
from typing import Any

from ottla_broker.config import BrokerConfig
from ottla_broker.jobs import JOBS
from ottla_broker.ports import Ports
from ottla_broker.ports.coordination import CoordinationError
from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager
from ottla_broker.replication.partition import Partition as Replica
from ottla_broker.server.broker import Broker
from simulation.checker import Partition, Violation
from simulation.clock import SimulatedClock
from simulation.coordination import SimulatedCoordination, SimulatedStore
from simulation.disk import SimulatedDisk
from simulation.filesystem import DirectoryNode, DiskImage
from simulation.flushed import durable_end, segment_bytes
from simulation.network import Fabric, SimulatedNetwork
from simulation.workers import SimulatedWorkers
from simulation.world import SimulatedProcess, World

CLIENT_PORT = 9092
START_TIMEOUT_S = 120.0


class SimulatedBroker:
    """One broker id: its machine, its disks, and the process that runs now, if any."""

    def __init__(
        self,
        world: World,
        fabric: Fabric,
        store: SimulatedStore,
        broker_id: int,
        settings: Mapping[str, str],
        disks: int,
    ) -> None:
        self.world = world
        self.fabric = fabric
        self.store = store
        self.broker_id = broker_id
        self.host = f"10.0.0.{broker_id + 1}"
        self.machine = world.machine(f"broker-{broker_id}", self.host)
        self.paths = [f"/data/broker-{broker_id}/d{number}" for number in range(disks)]
        for path in self.paths:
            self.machine.disks[path] = DiskImage(path, world.stream(f"image/{path}"))
        self.properties = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{self.host}:{CLIENT_PORT}",
            "advertised.listeners": f"PLAINTEXT://{self.host}:{CLIENT_PORT}",
            "log.dirs": ",".join(self.paths),
            "zookeeper.connect": "simulated:2181",
            **settings,
        }
        self.process: SimulatedProcess | None = None
        self.broker: Broker | None = None
        self.coordination: SimulatedCoordination | None = None
        self.started: asyncio.Future[None] | None = None
        self.refusal: BaseException | None = None
        """What ended its last start."""
        self.may_halt = False
        """A fault that ought to halt the broker has been injected; otherwise a halt fails the run."""
        self.has_halted = asyncio.Event()
        self._filling: set[Partition] = set()
        self._disks: dict[str, SimulatedDisk] | None = None
        """The manager of the process that runs now."""

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def life(self) -> int:
        return self.process.life if self.process is not None and self.process.alive else 0

    def start(self) -> None:
        """Starts a new process; `started` completes when the broker is ready, and never if it is killed before."""
        process = self.machine.start_process()
        self.process = process
        self.broker = None  # the one before knows what the machine may have lost
        self.may_halt = False
        self.has_halted = asyncio.Event()
        started: asyncio.Future[None] = self.world.loop.create_future()
        self.started = started
        started.add_done_callback(lambda future: future.cancelled() or future.exception())
        self.refusal = None
        config = BrokerConfig.from_properties("", [f"{key}={value}" for key, value in self.properties.items()])

        async def main() -> None:
            self.coordination = SimulatedCoordination(
                process, self.store, session_timeout_s=config.zookeeper_session_timeout_ms / 1000
            )
            disks = {path: SimulatedDisk(process, self.machine.disks[path], path) for path in self.paths}
            self._disks = disks
            ports = Ports(
                clock=SimulatedClock(process),
                network=SimulatedNetwork(self.fabric, self.machine, process),
                disks=disks,
                coordination=self.coordination,
                workers=SimulatedWorkers(process, JOBS),
            )
            self.broker = Broker(config, ports)
            await self.broker.start()
            await self.broker.ready()
            process.spawn(self._watch(self.broker), name="watch")

        def done(task: asyncio.Task[Any]) -> None:
            if started.done():
                return
            error = None if task.cancelled() else task.exception()
            self.refusal = error
            if task.cancelled() or error is not None:
                started.set_exception(Violation(f"broker {self.broker_id} did not start: {error!r}"))
            else:
                started.set_result(None)

        process.spawn(main(), name="main").add_done_callback(done, context=process.context)

    async def _watch(self, broker: Broker) -> None:
        reason = await broker.halted()
        self.has_halted.set()
        if broker.state == "halted" and not self.may_halt:
            self.world.problem(f"broker {self.broker_id} halted: {reason}")

    @property
    def is_ready(self) -> bool:
        """Its start is done, and it serves."""
        return self.broker is not None and self.broker.is_ready

    @property
    def failure(self) -> str:
        """Why its start failed or it halted, "" while neither is so."""
        # Also before its start has come to an end: a process that halts does not wait for that.
        if self.broker is not None and self.broker.state == "halted":
            return "it halted"
        return "" if self.refusal is None else repr(self.refusal)

    @property
    def has_lost_the_coordination(self) -> bool:
        """Its start was refused because the coordination store broke meanwhile: a supervisor would start it again."""
        return isinstance(getattr(self.refusal, "__cause__", None), CoordinationError)

    @property
    def has_failed(self) -> bool:
        return bool(self.failure)

    def all_directories_serve(self) -> bool:
        """Every log directory is online, as /status tells it."""
        return self.is_ready and all(self.directory_state(path) == "online" for path in self.paths)

    async def wait_started(self) -> None:
        assert self.started is not None
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await asyncio.shield(self.started)
        except TimeoutError as error:
            raise Violation(f"broker {self.broker_id} is not ready {START_TIMEOUT_S} s after its start") from error

    async def stop(self) -> None:
        """An orderly stop, as SIGTERM asks for; the process ends with it."""
        if self.broker is not None and self.process is not None:
            await self.process.spawn(self.broker.stop(), name="stop")
            self.process.kill()

    async def stop_gracefully(self) -> bool:
        """SIGTERM to a broker that is ready: it hands over, stops in order, and its process ends with it.

        False when it did not come to an orderly end: the process was killed or halted meanwhile, or did not run.
        """
        process, broker = self.process, self.broker
        if process is None or broker is None or not process.alive:
            return False
        ended: asyncio.Future[bool] = self.world.loop.create_future()

        def end(is_orderly: bool) -> None:
            if not ended.done():
                ended.set_result(is_orderly)

        # The tasks of a killed process never end: whoever waits must hear of the kill itself.
        process.on_kill(lambda _power_loss: end(False))
        stopping = process.spawn(broker.stop(), name="stop")
        stopping.add_done_callback(lambda _task: end(broker.state == "stopped"), context=process.context)
        is_orderly = await ended
        process.kill()
        return is_orderly

    def crash(self) -> None:
        self.machine.crash_process()

    async def fail_disk(self, path: str, within_s: float) -> bool:
        """Every call on a log directory fails from now on.

        The only one must halt the broker within `within_s`: then the process ends, the directory works again, and this
        is False. Of several it must go offline alone, and come back once it works again, both within `within_s`.
        """
        self.world.trace.event("disk-fails", path)
        self.may_halt = len(self.paths) == 1
        self.world.has_failed_disk = True
        self.machine.disks[path].failure = errno.EIO
        if not self.may_halt:
            await self.until_directory(path, ("offline",), within_s)
            self.machine.disks[path].failure = None
            await self.until_directory(path, ("online",), within_s)
            return True
        try:
            async with asyncio.timeout(within_s):
                await self.has_halted.wait()
        except TimeoutError as error:
            raise Violation(f"broker {self.broker_id} lives on {within_s} s after {path} failed") from error
        self.crash()
        self.machine.disks[path].failure = None
        return False

    async def until_directory(self, path: str, states: tuple[str, ...], within_s: float) -> None:
        """Waits for one of these states of a log directory, as /status tells it. Violation when it does not come."""
        deadline = self.world.loop.time() + within_s
        while (state := self.directory_state(path)) not in states:
            if self.world.loop.time() > deadline:
                raise Violation(
                    f"broker {self.broker_id}: {path} is {state}, not {' or '.join(states)}, after {within_s} s"
                )
            await asyncio.sleep(0.05)

    def status(self) -> dict[str, Any]:
        """What /status says."""
        assert self.broker is not None
        return self.broker.status()

    def directory_state(self, path: str) -> str:
        """What /status says of a log directory."""
        states: dict[str, str] = {one["path"]: one["state"] for one in self.status()["log_dirs"]}
        return states[path]

    def lose_power(self) -> dict[Partition, int]:
        """Pulls the plug; gives, for every partition, the offset up to which its records were flushed before."""
        safe = self.flushed_ends()
        self.machine.lose_power()
        return safe

    @property
    def _manager(self) -> ReplicaManager | None:
        """The log manager of the process that runs now."""
        return self.broker.replica_manager if self.broker is not None and self.is_up else None

    def partitions(self) -> Iterator[Replica]:
        """The replicas of the process that runs now, as it knows them."""
        manager = self._manager
        return iter(()) if manager is None else manager.partitions()

    def is_filling(self, partition: Partition) -> bool:
        """Was the replica recreated, and has it not had everything that is committed? As last told by its broker."""
        manager = self._manager
        if manager is not None:
            self._filling = {(name, index) for name, index in manager.recreation.catching_up}
        return partition in self._filling

    def known_leaderships(self) -> dict[Partition, tuple[int, int, tuple[int, ...]]]:
        """(leader, leader epoch, ISR) of every partition, as the broker tells it to clients."""
        manager = self._manager
        topics = {} if manager is None else manager.metadata.topics
        return {
            (name, number): (part.leader, part.leader_epoch, part.isr)
            for name, topic in topics.items()
            for number, part in topic.partitions.items()
        }

    def open_files(self, path: str) -> list[str]:
        """Names of the files in one log directory that the process has open."""
        return [] if self._disks is None else self._disks[path].open_files()

    def partition_directory(self, partition: Partition, path: str) -> DirectoryNode | None:
        """The files of a replica in one log directory, as the page cache holds them."""
        node = self.machine.disks[path].root.entries.get(f"{partition[0]}-{partition[1]}")
        return node if isinstance(node, DirectoryNode) else None

    def find_partition(self, partition: Partition, home: str = "") -> tuple[str, DirectoryNode | None]:
        """(log directory, files) of a replica, whether or not the broker runs; ("", None) without one.

        `home` is where it was last: one that was recreated has an older copy elsewhere.
        """
        for replica in self.partitions():
            if (replica.topic, replica.index) == partition:
                path = replica.log.state.disk.path
                return path, self.partition_directory(partition, path)
        for path in (home, *self.paths) if home else self.paths:
            directory = self.partition_directory(partition, path)
            if directory is not None:
                return path, directory
        return "", None

    def is_on_platter(self, partition: Partition, path: str) -> bool:
        """Would the directory of the replica still have its name after a loss of power?"""
        return f"{partition[0]}-{partition[1]}" in self.machine.disks[path].root.durable

    def cut_power(self) -> None:
        """Pulls the plug."""
        self.machine.lose_power()

    def flushed_ends(self, only: str | None = None) -> dict[Partition, int]:
        """For every partition on these disks, or on one: the end of the valid batches that the platter holds now."""
        ends: dict[Partition, int] = {}
        for path in self.paths if only is None else [only]:
            root = self.machine.disks[path].root
            for name in sorted({**root.entries, **root.durable}):
                topic, dash, number = name.rpartition("-")
                if not dash or not number.isdigit():
                    continue
                directory = root.durable.get(name)
                ends[(topic, int(number))] = durable_end(directory) if isinstance(directory, DirectoryNode) else 0
        return ends

    def log_bytes(self) -> dict[Partition, bytes]:
        """The segments of every partition one after the other, as the page cache holds them."""
        logs: dict[Partition, bytes] = {}
        for path in self.paths:
            for name, directory in sorted(self.machine.disks[path].root.entries.items()):
                topic, dash, number = name.rpartition("-")
                if isinstance(directory, DirectoryNode) and dash and number.isdigit():
                    logs[(topic, int(number))] = segment_bytes(directory)
        return logs


class SimulatedFleet:
    """All brokers of a run, their network and their coordination."""

    def __init__(self, world: World, count: int, settings: Mapping[str, str], *, disks: int = 1) -> None:
        self.world = world
        self.fabric = Fabric(world)
        self.store = SimulatedStore(world)
        self.brokers = [
            SimulatedBroker(world, self.fabric, self.store, broker_id, settings, disks) for broker_id in range(count)
        ]

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        return [(broker.host, CLIENT_PORT) for broker in self.brokers]

    def life_of(self, broker_id: int) -> int:
        return self.brokers[broker_id].life if 0 <= broker_id < len(self.brokers) else 0

    async def start(self) -> None:
        for broker in self.brokers:
            broker.start()
        for broker in self.brokers:
            await broker.wait_started()

    async def stop(self) -> None:
        for broker in self.brokers:
            if broker.is_up:
                await broker.stop()

    def controller(self) -> SimulatedBroker | None:
        """The broker that holds /controller, by its session."""
        session = self.store.owner("/controller")
        for broker in self.brokers:
            link = broker.coordination
            if session and broker.is_up and link is not None and link.session_id == session:
                return broker
        return None
