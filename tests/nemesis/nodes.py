"""The processes of a fleet: three ZooKeeper servers and three brokers, ours or Apache Kafka's, each on its own node.

They are launched, killed, stopped and looked at here; what for is decided in `campaign`.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path

from ottla.local.jars import find_java, kafka_class_path, zookeeper_class_path
from ottla.local.zookeeper_server import JVM_OPTIONS
from tests.nemesis.network import Network

TICK_MS = 1000
"""ZooKeeper's clock: sessions last 2 to 20 of it, and are found to have ended at a whole one."""
BROKER_PORT = 9092
ZOOKEEPER_PORT = 2181
_LIMIT_S = 180.0
_POLL_S = 0.05
_KAFKA_OPTIONS = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_LOG4J = """log4j.rootLogger=INFO, file
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File={file}
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=%d %p %c{{1}} %m%n
"""


class System(Enum):
    OURS = "ours"
    APACHE_KAFKA = "apache_kafka"


class Node(ABC):
    """One process on a node of the network. `log` is where it prints."""

    def __init__(self, name: str, directory: Path, network: Network) -> None:
        self.name = name
        self.directory = directory
        self.address = network.add(name)
        self.log = directory / "out.log"
        self._network = network
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int | None:
        """How it ended; None while it runs."""
        return None if self._process is None else self._process.poll()

    def launch(self) -> None:
        """Starts the process and does not wait."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*self._network.prefix(self.name), *self._command()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def send(self, number: signal.Signals) -> None:
        """A signal. SIGKILL and SIGTERM wait for the end."""
        assert self._process is not None
        self._process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._process.wait(_LIMIT_S)

    def last_lines(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    def is_serving(self) -> bool:
        """Whether it answers, asked from the router."""


class ZooKeeper(Node):
    """One server of the ensemble. `configure` tells it who the others are."""

    def configure(self, number: int, servers: Mapping[int, ZooKeeper]) -> None:
        data = self.directory / "data"
        data.mkdir()
        (data / "myid").write_text(f"{number}\n")
        lines = [f"server.{other}={server.address}:2888:3888" for other, server in servers.items()]
        (self.directory / "zoo.cfg").write_text(
            f"dataDir={data}\nclientPort={ZOOKEEPER_PORT}\ntickTime={TICK_MS}\ninitLimit=10\nsyncLimit=3\n"
            "maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n" + "\n".join(lines) + "\n"
        )

    @property
    def is_leader(self) -> bool:
        return b"Mode: leader" in self._srvr()

    def is_serving(self) -> bool:
        return b"Mode: " in self._srvr()

    def _srvr(self) -> bytes:
        answer = b""
        try:
            with socket.create_connection((self.address, ZOOKEEPER_PORT), 1.0) as connection:
                connection.sendall(b"srvr")
                while chunk := connection.recv(4096):
                    answer += chunk
        except OSError:
            pass
        return answer

    def _command(self) -> list[str]:
        logging = ["-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return [
            find_java(), *JVM_OPTIONS, *logging, "-cp", zookeeper_class_path(), main, str(self.directory / "zoo.cfg"),
        ]  # fmt: skip


class Broker(Node):
    """One broker. `configure` gives it its properties."""

    def __init__(self, system: System, broker_id: int, directory: Path, network: Network) -> None:
        super().__init__(f"b{broker_id}", directory, network)
        self.system = system
        self.broker_id = broker_id
        self.log_dirs: list[Path] = []

    @property
    def bootstrap(self) -> str:
        return f"{self.address}:{BROKER_PORT}"

    def configure(self, properties: Mapping[str, str], log_dirs: list[Path]) -> None:
        self.log_dirs = log_dirs
        whole = {
            "broker.id": str(self.broker_id),
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": ",".join(map(str, log_dirs)),
            **properties,
        }
        text = "".join(f"{key}={value}\n" for key, value in whole.items())
        (self.directory / "server.properties").write_text(text)
        (self.directory / "log4j.properties").write_text(_LOG4J.format(file=self.log))

    def is_serving(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex((self.address, BROKER_PORT)) == 0

    def _command(self) -> list[str]:
        properties = str(self.directory / "server.properties")
        if self.system is System.OURS:
            return [sys.executable, "-m", "ottla.cli.main", "broker", "run", properties]
        log4j = f"-Dlog4j.configuration=file:{self.directory / 'log4j.properties'}"
        return [find_java(), *_KAFKA_OPTIONS, log4j, "-cp", kafka_class_path(), "kafka.Kafka", properties]


def until(holds: Callable[[], bool], what: str, limit_s: float = _LIMIT_S) -> None:
    """Waits until it does. AssertionError after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what}"
        time.sleep(_POLL_S)


def end_all(nodes: list[Node]) -> None:
    """SIGKILL to whatever still runs, stopped or not."""
    for node in nodes:
        if node.is_running:
            node.send(signal.SIGCONT)
            node.send(signal.SIGKILL)


def is_same_log(replicas: list[Path]) -> bool:
    """Whether the directories of one partition's replicas hold the same bytes, however they are cut into segments."""
    contents = [b"".join(path.read_bytes() for path in sorted(one.glob("*.log"))) for one in replicas]
    return all(content == contents[0] for content in contents)
