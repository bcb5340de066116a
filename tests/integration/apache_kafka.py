"""One Apache Kafka 3.9.1 broker on given log directories and a ZooKeeper path, and its DumpLogSegments."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kazoo.client import KazooClient

from ottla.local.jars import find_java, kafka_class_path
from ottla.local.ports import free_port
from tests.integration.wire import fleet_named_by

_LIMIT_S = 180.0
_POLL_S = 0.05
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_FILES_AT_ONCE = 200
_COMPLAINT = re.compile(
    r"isvalid: false|mismatch|out of order|not found|non-consecutive|invalid bytes|exception|corrupt|error", re.I
)


class ApacheKafka:
    """`log` is what it has printed. `options` are those of its JVM."""

    def __init__(
        self,
        directory: Path,
        broker_id: int,
        connect: str,
        log_dirs: Iterable[Path],
        config: Mapping[str, str],
        java_options: Sequence[str] = (),
    ) -> None:
        self._java_options = java_options
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._connect = connect
        self._broker_id = broker_id
        self.port = free_port()
        self.properties = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": ",".join(map(str, log_dirs)),
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": "2000",
            "zookeeper.connection.timeout.ms": "60000",  # without it the session's: a busy machine takes longer
            "num.network.threads": "1",
            "num.io.threads": "2",
            "log.cleaner.enable": "false",
            "offsets.topic.replication.factor": "1",
            **config,
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self._directory / "out.log").read_text(errors="replace")

    def start(self) -> None:
        """Returns when it names a controller. Waits for the end of the session of whoever had this id before."""
        until_unregistered(self._connect, self._broker_id)
        properties = self._directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        options = (*_OPTIONS, *self._java_options)
        with (self._directory / "out.log").open("ab") as output:
            self._process = subprocess.Popen(
                [find_java(), *options, "-cp", kafka_class_path(), "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + _LIMIT_S
        while fleet_named_by(self.address)[0] < 0:
            assert self._process.poll() is None, f"Apache Kafka ended:\n{self.log[-3000:]}"
            assert time.monotonic() < deadline, f"Apache Kafka is not ready:\n{self.log[-3000:]}"
            time.sleep(_POLL_S)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """In order."""
        self._end(signal.SIGTERM)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def _end(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)
        self._process.wait(_LIMIT_S)


def until_unregistered(connect: str, broker_id: int) -> None:
    """Until nobody is registered under the id: a killed broker's session ends by itself."""
    client = KazooClient(connect)
    client.start(_LIMIT_S)
    try:
        deadline = time.monotonic() + _LIMIT_S
        while client.exists(f"/brokers/ids/{broker_id}"):
            assert time.monotonic() < deadline, f"broker {broker_id} stays registered"
            time.sleep(_POLL_S)
    finally:
        client.stop()
        client.close()


def dumped(log_dir: Path) -> str:
    """What DumpLogSegments prints of every log, index and snapshot of a log directory, records included."""
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = sorted(str(path) for path in log_dir.glob("*/*") if path.suffix in suffixes)
    output = ""
    for first in range(0, len(files), _FILES_AT_ONCE):
        some = ",".join(files[first : first + _FILES_AT_ONCE])
        tool = ["kafka.tools.DumpLogSegments", "--deep-iteration", "--files", some]
        ran = subprocess.run(
            [find_java(), *_OPTIONS, "-cp", kafka_class_path(), *tool],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        output += ran.stdout
    return output


def complaints(dump: str) -> list[str]:
    """The lines in which DumpLogSegments finds something wrong."""
    return [line for line in dump.splitlines() if _COMPLAINT.search(line)]
