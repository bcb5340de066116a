"""A cluster for tests: brokers on loopback in a thread of this process, ready when the `with` block begins.

    from ottla.testing import cluster

    with cluster(brokers=3, racks=3, disks=2) as fleet:
        producer = confluent_kafka.Producer({"bootstrap.servers": fleet.bootstrap})
        ...
        fleet.kill(0)      # for its clients and the other brokers the same as SIGKILL
        fleet.start(0)

Any client can be used from the test's own thread: the brokers have another event loop. The coordination store is the
embedded one unless `zookeeper` names a real one.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ottla.local.fleet import Fleet
from ottla.local.layout import Layout
from ottla_broker.adapters.event_loop import TakeoverLoop
from ottla_broker.adapters.process import prepare
from ottla_documents.broker_pools import MAIN_POOL, BrokerPool
from ottla_documents.disk_spec import DiskSpec
from ottla_documents.kafka_cluster import DEFAULT_BROKER_RESOURCES, BrokersSpec, KafkaCluster, ZooKeeperSpec

T = TypeVar("T")

_ENDING_S = 5
"""How long a stopped broker's worker processes may take to end."""
_TIMEOUT_S = 150.0
"""How long anything that brokers do may take: only a bound, also on a busy machine."""

QUICK = {
    "zookeeper.session.timeout.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "replica.lag.time.max.ms": "3000",
}
"""Broker keys of a test cluster, so that no test waits for a session to end, a first rebalance or fifty logs."""


class RunningCluster:
    """A running cluster. Its methods may be called from any thread but the brokers' own."""

    def __init__(self, layout: Layout, config: Mapping[str, str], zookeeper: str) -> None:
        self._layout = layout
        self._config = dict(config)
        self._zookeeper = zookeeper
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._held_ports: list[socket.socket] = []
        self.fleet: Fleet | None = None

    @property
    def bootstrap(self) -> str:
        """The CLIENT addresses, "127.0.0.1:9092,127.0.0.1:9093"."""
        return self._layout.bootstrap

    @property
    def data(self) -> Path:
        """The directory of its files: broker-N/DISK/ are the log directories."""
        return self._layout.data

    def http(self, broker: int) -> str:
        """host:port of a broker's /metrics, /livez and /readyz."""
        return f"127.0.0.1:{self._layout.state.brokers[broker].http_port}"

    def address(self, broker: int) -> str:
        """host:port of one broker's CLIENT listener."""
        return f"127.0.0.1:{self._layout.state.brokers[broker].client_port}"

    def internal_address(self, broker: int) -> str:
        """host:port of one broker's INTERNAL listener, which serves what only brokers send."""
        return f"127.0.0.1:{self._layout.state.brokers[broker].internal_port}"

    @property
    def running(self) -> list[int]:
        """Ids of the brokers that run."""
        return [] if self.fleet is None else sorted(self.fleet.brokers)

    def kill(self, broker: int) -> None:
        """Halts a broker without a clean shutdown."""

        async def kill() -> None:
            self._fleet().kill(broker)

        self._run(kill())

    def stop(self, broker: int) -> None:
        """Stops a broker in order."""
        self._run(self._fleet().stop_broker(broker))

    def start(self, broker: int) -> None:
        """Starts a broker that was killed or stopped; returns when it is ready."""
        self._run(self._fleet().start_broker(broker))

    def open(self) -> None:
        """Starts all brokers; returns when they are ready."""
        prepare()
        self._hold_ports()
        started = threading.Event()

        def serve() -> None:
            self._loop = TakeoverLoop()
            asyncio.set_event_loop(self._loop)
            self._loop.call_soon(started.set)
            self._loop.run_forever()
            self._loop.run_until_complete(_end_tasks())
            self._loop.close()

        self._thread = threading.Thread(target=serve, name="ottla test cluster", daemon=True)
        self._thread.start()
        started.wait()
        self.fleet = Fleet(self._layout, zookeeper_connect=self._zookeeper, overrides=self._config)
        try:
            self._run(self.fleet.start())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stops everything."""
        if self._loop is None or self._thread is None:
            return
        try:
            if self.fleet is not None:
                self._run(self.fleet.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_TIMEOUT_S)
            self._loop = None
            for held in self._held_ports:
                held.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the brokers' loop (tests that look inside)."""
        return self._run(coroutine)

    def _hold_ports(self) -> None:
        """Reserves the ports of brokers that do not listen yet, or do not run at the moment.

        A bound socket that does not listen blocks no listener (SO_REUSEADDR) and answers no client.
        """
        self._layout.assign_ports()
        for place in self._layout.places():
            for port in (place.client_port, place.internal_port, place.http_port):
                held = socket.socket()
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                held.bind(("127.0.0.1", port))
                self._held_ports.append(held)

    def _fleet(self) -> Fleet:
        assert self.fleet is not None, "the cluster is not open"
        return self.fleet

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None, "the cluster is not open"
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_TIMEOUT_S)


async def _end_tasks() -> None:
    current = asyncio.current_task()
    left = [task for task in asyncio.all_tasks() if task is not current]
    if left:
        _, running = await asyncio.wait(left, timeout=_ENDING_S)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@contextmanager
def cluster(
    brokers: int = 1,
    racks: int = 1,
    disks: int = 1,
    *,
    config: Mapping[str, str] | None = None,
    data: Path | None = None,
    zookeeper: str = "",
) -> Iterator[RunningCluster]:
    """A cluster for the length of a `with` block.

    Args:
        brokers: how many; their ids are 0, 1, ...
        racks: broker i is in rack "rack-<i mod racks>".
        disks: log directories per broker.
        config: broker keys that override Kafka's defaults and those of `QUICK`.
        data: where to keep the files (they stay); by default a temporary directory, which is deleted.
        zookeeper: "host:port/chroot" of a real ZooKeeper.
    """
    document = KafkaCluster(
        name="test",
        namespace="default",
        brokers=BrokersSpec(
            rack_key="rack",
            pools=(
                BrokerPool(
                    MAIN_POOL,
                    brokers,
                    disks=tuple(DiskSpec(f"d{number}") for number in range(disks)),
                    config={},
                    resources=DEFAULT_BROKER_RESOURCES,
                    racks=tuple(f"rack-{number}" for number in range(racks)),
                ),
            ),
            config={},
        ),
        zookeeper=ZooKeeperSpec("", 1, DiskSpec("data"), None),
    )
    with tempfile.TemporaryDirectory(prefix="ottla-") as temporary:
        layout = Layout(data or Path(temporary), document, first_client_port=0)
        found = RunningCluster(layout, {**QUICK, **(config or {})}, zookeeper)
        found.open()
        try:
            yield found
        finally:
            found.close()
