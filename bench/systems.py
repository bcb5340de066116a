"""The compared systems: Apache Kafka 3.9.1, Ottla's brokers, and the null broker.

Each has its own start command and ports, and Apache Kafka's properties file for ZooKeeper mode.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import java
from bench.tls import BenchTls
from bench.usage import cpu_seconds, resident_bytes
from ottla.local.ports import free_port
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey

APACHE_KAFKA, OURS, NULL_BROKER = "apache_kafka", "ours", "null_broker"
_START_S = 600.0
"""A start that recovers gibibytes takes its time."""
_STOP_S = 120.0

_SHIPPED = """broker.id={broker_id}
listeners={listeners}
advertised.listeners={listeners}
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={log_dir}
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
zookeeper.connect=127.0.0.1:{zookeeper_port}
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
log.segment.delete.delay.ms=1000
"""
"""The file of 3.9.1, with one line more: deleted topics give their space back at once, so that a run stays below
25 GB."""


class SystemFailed(RuntimeError):
    """A system under test did not start, stop or answer; the message carries the end of its log."""


@dataclass
class Process:
    """A child process with its log file."""

    name: str
    command: list[str]
    log: Path
    handle: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.handle = subprocess.Popen(
                self.command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
            )

    @property
    def pid(self) -> int:
        assert self.handle is not None, f"{self.name} was not started"
        return self.handle.pid

    def check(self) -> None:
        """SystemFailed when it has ended."""
        if self.handle is not None and self.handle.poll() is not None:
            raise SystemFailed(f"{self.name} ended with status {self.handle.returncode}:\n{self.log_end()}")

    def stop(self) -> None:
        if self.handle is None:
            return
        if self.handle.poll() is None:
            self.handle.send_signal(signal.SIGTERM)
            try:
                self.handle.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.handle.kill()
                self.handle.wait()
        self.handle = None

    def log_end(self) -> str:
        with contextlib.suppress(OSError):
            return self.log.read_text(errors="replace")[-4000:]
        return ""


def first_answer(port: int, process: Process, brokers: int) -> None:
    """Returns when ApiVersions and then Metadata with `brokers` brokers have been answered on `port`."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        process.check()
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                versions = codec.module(ApiKey.API_VERSIONS)
                ask(connection, ApiKey.API_VERSIONS, 0, versions.ApiVersionsRequest())
                metadata = codec.module(ApiKey.METADATA)
                answer = ask(connection, ApiKey.METADATA, 1, metadata.MetadataRequest(topics=[]))
                if len(answer.brokers) >= brokers:
                    return
        except OSError:
            pass
        time.sleep(0.01)
    raise SystemFailed(f"{process.name} did not answer within {_START_S:.0f} s:\n{process.log_end()}")


def ask(connection: socket.socket, api_key: ApiKey, version: int, request: object) -> Any:
    for chunk in codec.frame_request(api_key, version, 1, "bench", request):
        assert isinstance(chunk, bytes | bytearray | memoryview)
        connection.sendall(chunk)
    length = int.from_bytes(_receive(connection, 4), "big")
    return codec.read_response_frame(api_key, version, memoryview(_receive(connection, length)))[1]


def _receive(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return bytes(data)


@dataclass
class System:
    """One system of `count` brokers and, but for the null broker, a ZooKeeper of its own (counted for nobody)."""

    name: str
    work: Path
    count: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)
    """What its brokers are configured with beside the shipped file."""
    tls: BenchTls | None = None
    """Its brokers have a second listener, of TLS; loads use that one, everything else PLAINTEXT."""
    runs: Callable[[int, Path], list[str]] | None = None
    """The command of a broker of ours, by its number and properties file, where it is not `ottla broker run`."""
    prepare: Callable[[str], None] | None = None
    """Called with ZooKeeper's address before the first broker starts."""
    ports: list[int] = field(default_factory=list)
    tls_ports: list[int] = field(default_factory=list)
    brokers: list[Process] = field(default_factory=list)
    zookeeper: Process | None = None
    start_seconds: list[float] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def tls_bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.tls_ports)

    @property
    def zookeeper_address(self) -> str:
        return f"127.0.0.1:{self._zookeeper_port}"

    def start(self) -> None:
        """Starts everything and notes how long each broker took from its exec to its first answers."""
        self.work.mkdir(parents=True, exist_ok=True)
        self.ports = self.ports or [free_port() for _ in range(self.count)]
        if self.tls is not None:
            self.tls_ports = self.tls_ports or [free_port() for _ in range(self.count)]
        if self.name != NULL_BROKER and self.zookeeper is None:
            self._start_zookeeper()
            if self.prepare is not None:
                self.prepare(self.zookeeper_address)
        for number in range(self.count):
            process = Process(f"{self.name} broker {number}", self._command(number), self.work / f"broker-{number}.log")
            self.brokers.append(process)
            started = time.monotonic()
            process.start()
            first_answer(self.ports[number], process, number + 1)
            self.start_seconds.append(time.monotonic() - started)

    def stop_brokers(self) -> None:
        for process in reversed(self.brokers):
            process.stop()
        self.brokers.clear()

    def wait_until_forgotten(self, number: int | None = None) -> None:
        """After a kill: returns when the session of this broker, or of all, has ended. Apache Kafka refuses to start
        before."""
        from kazoo.client import KazooClient

        client = KazooClient(f"127.0.0.1:{self._zookeeper_port}")
        client.start()
        try:
            deadline = time.monotonic() + _START_S
            while (ids := client.get_children("/brokers/ids")) and (number is None or str(number) in ids):
                if time.monotonic() > deadline:
                    raise SystemFailed(f"{self.name}: the killed broker is still registered after {_START_S:.0f} s")
                time.sleep(0.1)
        finally:
            client.stop()
            client.close()

    def stop(self, *, delete: bool = True) -> None:
        self.stop_brokers()
        if self.zookeeper is not None:
            self.zookeeper.stop()
            self.zookeeper = None
        if delete:
            shutil.rmtree(self.work, ignore_errors=True)

    def check(self) -> None:
        for process in self.brokers:
            process.check()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.brokers]

    def cpu_seconds(self) -> float:
        """The CPU time of all brokers together."""
        return cpu_seconds(self.pids)

    def resident_bytes(self) -> float:
        """The memory of one broker, on average."""
        return resident_bytes(self.pids) / len(self.brokers)

    # -- topics

    def restart_broker(self, number: int) -> None:
        """Starts one broker that has ended; returns when it answers and knows all the others."""
        process = self.brokers[number]
        process.start()
        first_answer(self.ports[number], process, self.count)

    def create_topic(self, topic: str, partitions: int, replicas: int) -> None:
        """Creates it and waits until every partition has a leader. The null broker has every topic."""
        if self.name == NULL_BROKER:
            return
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        new = NewTopic(topic, partitions, replicas)
        admin.create_topics([new])[topic].result(timeout=60)
        self.wait_until_in_sync(topic, partitions, replicas)

    def wait_until_in_sync(self, topic: str, partitions: int, replicas: int) -> None:
        """Waits until every partition has a leader and so many replicas in its ISR."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = admin.list_topics(topic, timeout=30).topics[topic]
            led = [part for part in found.partitions.values() if part.leader >= 0 and len(part.isrs) == replicas]
            if len(led) == partitions:
                return
            time.sleep(0.1)
        raise SystemFailed(f"{self.name}: topic {topic} is not led and in sync after 60 s")

    def delete_topic(self, topic: str) -> None:
        """Deletes it and waits until its files are gone."""
        if self.name == NULL_BROKER:
            return
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([topic])[topic].result(timeout=60)
        deadline = time.monotonic() + 120
        while any(self.work.glob(f"log-*/{topic}-*")):
            if time.monotonic() > deadline:
                raise SystemFailed(f"{self.name}: the files of {topic} are still there after 120 s")
            time.sleep(0.2)

    # -- commands

    def _start_zookeeper(self) -> None:
        port = free_port()
        data = self.work / "zookeeper"
        data.mkdir(parents=True, exist_ok=True)
        settings = self.work / "zookeeper.properties"
        settings.write_text(
            f"dataDir={data}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
            # As the operator has it: a session ends up to one tick after its timeout.
            "tickTime=2000\nmaxClientCnxns=0\nadmin.enableServer=false\n"
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        line = java.command(self.work, java.ZOOKEEPER_HEAP, main, str(settings))
        self.zookeeper = Process(f"{self.name} zookeeper", line, self.work / "zookeeper.log")
        self.zookeeper.start()
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            self.zookeeper.check()
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        self._zookeeper_port = port

    def _more_properties(self) -> dict[str, str]:
        return {**({} if self.tls is None else self.tls.broker), **self.properties}

    def _listeners(self, number: int) -> str:
        plain = f"PLAINTEXT://127.0.0.1:{self.ports[number]}"
        return plain if self.tls is None else f"{plain},SSL://127.0.0.1:{self.tls_ports[number]}"

    def _command(self, number: int) -> list[str]:
        if self.name == NULL_BROKER:
            directory = self.work / f"log-{number}"
            return [sys.executable, "-m", "bench.null_broker", str(self.ports[number]), str(directory)]
        properties = self.work / f"server-{number}.properties"
        properties.write_text(
            _SHIPPED.format(
                broker_id=number,
                listeners=self._listeners(number),
                log_dir=self.work / f"log-{number}",
                zookeeper_port=self._zookeeper_port,
            )
            + "".join(f"{key}={value}\n" for key, value in self._more_properties().items())
        )
        if self.name == APACHE_KAFKA:
            return java.command(self.work, java.SERVER_HEAP, "kafka.Kafka", str(properties))
        if self.runs is not None:
            return self.runs(number, properties)
        return [ottla(), "broker", "run", str(properties)]


def ottla() -> str:
    """The `ottla` command beside this interpreter."""
    return os.path.join(os.path.dirname(sys.executable), "ottla")
