"""A standalone ZooKeeper 3.9 server on the loopback interface, for tests, the benchmark and `ottla local --processes`.

Its data, log and configuration are in one directory; it can start again on them with the same port. The calls block:
they run on a thread, or before the event loop.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.local.jars import find_java, zookeeper_class_path
from ottla.local.ports import HOST, free_port
from ottla_broker.config.properties import format_properties

POLL_S = 0.02
START_ATTEMPTS = 5
STOP_TIMEOUT_S = 10.0
JVM_OPTIONS = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


class ZooKeeperFailed(RuntimeError):
    """The server ended, or did not respond in time; the message ends with the last lines of its log."""


def answers(port: int, timeout_s: float = 1.0) -> bool:
    """Whether a ZooKeeper on this port serves requests (four-letter word `srvr`)."""
    try:
        with socket.create_connection((HOST, port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(b"srvr")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return False
    return b"Mode: " in answer


class ZooKeeperServer:
    """One server. As a context manager it starts and stops with the block.

    Args:
        directory: for data, log and configuration.
        port: 0 chooses a free one.
        tick_ms: tickTime; session timeouts are between 2 and 20 ticks.
        new_session: starts it in its own process session, so that it outlives the terminal.
        settings: more keys of zoo.cfg.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        port: int = 0,
        tick_ms: int = 500,
        jvm_options: Sequence[str] = JVM_OPTIONS,
        new_session: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = dict(settings or {})
        self.directory = Path(directory)
        self.port = port
        self._tick_ms = tick_ms
        self._jvm_options = tuple(jvm_options)
        self._new_session = new_session
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        """zookeeper.connect of this server."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id; 0 when it is not running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    @property
    def log_file(self) -> Path:
        return self.directory / "zookeeper.log"

    def start(self, timeout_s: float = 30.0) -> None:
        """Starts it and waits until it responds. MissingRequirement (no Java or jars), ZooKeeperFailed."""
        if self.pid:
            return
        wants_any_port = self.port == 0
        for attempt in range(1, START_ATTEMPTS + 1):
            if wants_any_port:
                self.port = free_port()
            try:
                self._start_once(timeout_s)
                return
            except ZooKeeperFailed as failure:
                self.kill()
                # Another program may have bound the port since it was chosen.
                if not wants_any_port or "Address already in use" not in str(failure) or attempt == START_ATTEMPTS:
                    raise

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after STOP_TIMEOUT_S. Does nothing when it is not running."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and does not respond, as behind a network partition."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> ZooKeeperServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start_once(self, timeout_s: float) -> None:
        java, class_path = find_java(), zookeeper_class_path()
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "zoo.cfg"
        settings = {
            "dataDir": str(data),
            "clientPort": str(self.port),
            "clientPortAddress": HOST,
            "tickTime": str(self._tick_ms),
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,mntr",
            "autopurge.purgeInterval": "1",
            "autopurge.snapRetainCount": "3",
            **self._settings,
        }
        configuration.write_text(format_properties(settings), encoding="ascii")
        logging = ["-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command = [java, *self._jvm_options, *logging, "-cp", class_path]
        command += ["org.apache.zookeeper.server.ZooKeeperServerMain", str(configuration)]
        start_of_log = self.log_file.stat().st_size if self.log_file.exists() else 0
        with open(self.log_file, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=self._new_session,
                env={**os.environ, "LC_ALL": "C.UTF-8"},  # else Java finds no path beyond ASCII
            )
        deadline = time.monotonic() + timeout_s
        while not answers(self.port):
            status = self._process.poll()
            if status is not None:
                raise ZooKeeperFailed(f"ZooKeeper ended with status {status}:\n{self._last_lines(start_of_log)}")
            if time.monotonic() > deadline:
                raise ZooKeeperFailed(f"ZooKeeper did not answer in {timeout_s:g} s:\n{self._last_lines(start_of_log)}")
            time.sleep(POLL_S)
        if self._process.poll() is not None:
            raise ZooKeeperFailed(f"Address already in use: another ZooKeeper answers on port {self.port}")

    def _last_lines(self, start: int) -> str:
        text = self.log_file.read_bytes()[start:].decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-15:])
