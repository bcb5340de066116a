"""Brokers as processes (`ottla broker run`), for tests that kill them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from ottla.local.ports import free_port

_LIMIT_S = 120.0
_POLL_S = 0.02


class BrokerProcess:
    """One broker. `start` returns when it is ready; `log` is what it has printed."""

    def __init__(
        self,
        directory: Path,
        broker_id: int,
        zookeeper: str,
        config: Mapping[str, str] | None = None,
        disks: int = 1,
        open_files: int | None = None,
    ) -> None:
        """`open_files`: its RLIMIT_NOFILE; the one of this process when there is none."""
        self.open_files = open_files
        self.directory = directory
        self.broker_id = broker_id
        self.port = free_port()
        self.http_port = free_port()
        self.log_dirs = [directory / f"d{number}" for number in range(disks)]
        self.properties = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": ",".join(map(str, self.log_dirs)),
            "zookeeper.connect": zookeeper,
            "zookeeper.session.timeout.ms": "3000",
            "ottla.http.listener": f"127.0.0.1:{self.http_port}",
            "offsets.topic.replication.factor": "1",
            "group.initial.rebalance.delay.ms": "0",
            **(config or {}),
        }
        self.environment: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        path = self.directory / "broker.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def launch(self) -> None:
        """Starts the process and does not wait."""
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        with (self.directory / "broker.log").open("ab") as log:
            command = [sys.executable, "-m", "ottla.cli.main", "broker", "run", str(properties)]
            if self.open_files is not None:
                command = ["/bin/sh", "-c", f'ulimit -n {self.open_files}; exec "$@"', "sh", *command]
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
            )

    def start(self) -> float:
        """Starts the process and gives the seconds until it was ready."""
        began = time.monotonic()
        self.launch()
        while not self.is_ready():
            assert self.process is not None
            assert self.process.poll() is None, f"broker {self.broker_id} ended:\n{self.log[-3000:]}"
            assert time.monotonic() - began < _LIMIT_S, f"broker {self.broker_id} is not ready:\n{self.log[-3000:]}"
            time.sleep(_POLL_S)
        return time.monotonic() - began

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/readyz", timeout=_LIMIT_S) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """SIGKILL."""
        self._signal(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; gives the exit status."""
        return self._signal(signal.SIGTERM)

    def terminate(self) -> None:
        """SIGTERM, and does not wait."""
        assert self.process is not None
        self.process.terminate()

    def wait(self) -> int:
        """The exit status of a process that ends by itself."""
        assert self.process is not None
        return self.process.wait(_LIMIT_S)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def _signal(self, number: int) -> int:
        assert self.process is not None
        os.kill(self.process.pid, number)
        return self.process.wait(_LIMIT_S)
