"""The start and readiness scripts of the ensemble, run with a real ZooKeeper of three servers."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla_broker.local.ports import free_ports
from ottla_operator.planning.zookeeper import LOGBACK, ready_script, start_script, static_config

pytestmark = pytest.mark.java
SUPER_FLAGS = "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:x"


class Server:
    """One server of the ensemble, started by the script as its container would."""

    def __init__(self, number: int, root: Path, members: str, client_port: int) -> None:
        self.number = number
        self.root = root
        self.client_port = client_port
        self._process: subprocess.Popen[bytes] | None = None
        files = root / "files"
        files.mkdir(parents=True)
        (files / "members").write_text(members)
        (files / "logback.xml").write_text(LOGBACK)
        config = static_config(False).replace("dataDir=/data", f"dataDir={root}").replace("=/data\n", f"={root}\n")
        (files / "zoo.cfg").write_text(config.replace("admin.enableServer=true", "admin.enableServer=false"))
        (files / "start.sh").write_text(start_script(str(root), str(files)))
        (files / "ready.sh").write_text(ready_script(client_port))

    def start(self, path: str) -> None:
        environment = {**os.environ, "PATH": path, "OTTLA_SERVER_ID": str(self.number), "SERVER_JVMFLAGS": SUPER_FLAGS}
        with open(self.root / "log", "ab") as log:
            self._process = subprocess.Popen(
                ["bash", str(self.root / "files" / "start.sh")], env=environment, stdout=log, stderr=log
            )

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def is_ready(self) -> bool:
        probe = subprocess.run(["bash", str(self.root / "files" / "ready.sh")], stderr=subprocess.DEVNULL, check=False)
        return probe.returncode == 0


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not holds():
        assert time.monotonic() < deadline, "not within three minutes"
        time.sleep(0.2)


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[list[Server]]:
    from ottla_broker.local.jars import find_java, zookeeper_class_path

    script = tmp_path / "bin" / "zkServer.sh"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/bash\n"
        f'exec {find_java()} -Xmx64m $SERVER_JVMFLAGS -cp "{zookeeper_class_path()}" '
        'org.apache.zookeeper.server.quorum.QuorumPeerMain "$2/zoo.cfg"\n'
    )
    script.chmod(0o755)
    chosen = free_ports(9)
    ports = {number: chosen[3 * number - 3 : 3 * number] for number in (1, 2, 3)}
    members = "".join(
        f"server.{number}=127.0.0.1:{peer}:{election}:participant;0.0.0.0:{client}\n"
        for number, (peer, election, client) in ports.items()
    )
    servers = [Server(number, tmp_path / str(number), members, ports[number][2]) for number in (1, 2, 3)]
    path = f"{script.parent}:{os.environ['PATH']}"
    for server in servers:
        server.start(path)
    yield servers
    for server in servers:
        server.stop()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash, as zkServer.sh does")
def test_servers_are_ready_with_a_quorum_only_and_remember_their_ensemble(ensemble: list[Server]) -> None:
    for server in ensemble:
        _until(server.is_ready)
    first, second, third = ensemble
    kept = (first.root / "conf" / "zoo.cfg").read_text()
    assert "zoo.cfg.dynamic.1" in kept, "the members were taken over by ZooKeeper itself"
    second.stop()
    third.stop()
    _until(lambda: not first.is_ready())
    (second.root / "files" / "members").write_text("server.9=nowhere:1:2:participant;3\n")
    second.start(f"{first.root.parent / 'bin'}:{os.environ['PATH']}")
    _until(first.is_ready)
    _until(second.is_ready)
