"""The start and readiness scripts of the ensemble, run with a real ZooKeeper of three servers."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from ottla.local.ports import free_ports
from ottla_operator.concerns.ensemble.zookeeper_files import (
    LOGBACK,
    MARKER,
    METRICS_PORT,
    ready_script,
    start_script,
    static_config,
)
from ottla_operator.effects.environment import read_srvr, srvr

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash, as zkServer.sh does"),
]
SUPER_FLAGS = "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:x"


class Server:
    """One server of the ensemble, started by the script as its container would."""

    def __init__(self, number: int, root: Path, members: str, client_port: int) -> None:
        self.number = number
        self.root = root
        self.client_port = client_port
        self.permission = "initialize"
        self._process: subprocess.Popen[bytes] | None = None
        self.data, self.log, files = root / "data", root / "datalog", root / "files"
        for folder in (self.data, self.log, files):
            folder.mkdir(parents=True)
        (files / "members").write_text(members)
        (files / "logback.xml").write_text(LOGBACK)
        config = static_config(True).replace("=/datalog\n", f"={self.log}\n").replace("=/data\n", f"={self.data}\n")
        config = config.replace("admin.enableServer=true", "admin.enableServer=false")
        self.metrics_port = free_ports(1)[0]
        (files / "zoo.cfg").write_text(config.replace(f"Port={METRICS_PORT}\n", f"Port={self.metrics_port}\n"))
        script = start_script(str(self.data), str(files), str(self.log), str(root / "termination-log"))
        (files / "start.sh").write_text(script)
        (files / "ready.sh").write_text(ready_script(client_port))

    def start(self, path: str) -> None:
        environment = {**os.environ, "PATH": path, "OTTLA_SERVER_ID": str(self.number), "SERVER_JVMFLAGS": SUPER_FLAGS}
        environment["OTTLA_START_EMPTY"] = self.permission
        with open(self.root / "log", "ab") as log:
            self._process = subprocess.Popen(
                ["bash", str(self.root / "files" / "start.sh")], env=environment, stdout=log, stderr=log
            )

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ended(self) -> int:
        """Waits for the end of the script; its exit status."""
        assert self._process is not None
        return self._process.wait(60)

    @property
    def reason(self) -> str:
        """What the container would leave behind as its last words."""
        return (self.root / "termination-log").read_text()

    def lose(self, *volumes: Path) -> None:
        """New, empty volumes in place of these; all of the server's by default."""
        (self.root / "log").unlink()
        for volume in volumes or (self.data, self.log):
            shutil.rmtree(volume)
            volume.mkdir()

    def is_ready(self) -> bool:
        probe = subprocess.run(["bash", str(self.root / "files" / "ready.sh")], stderr=subprocess.DEVNULL, check=False)
        return probe.returncode == 0


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not holds():
        assert time.monotonic() < deadline, "not within three minutes"
        time.sleep(0.2)


@pytest.fixture
def ensemble(stopped: tuple[list[Server], str]) -> list[Server]:
    servers, path = stopped
    for server in servers:
        server.start(path)
    return servers


@pytest.fixture
def path(stopped: tuple[list[Server], str]) -> str:
    return stopped[1]


def search_path(folder: Path) -> str:
    """A PATH with a zkServer.sh as the image has it."""
    from ottla.local.jars import find_java, zookeeper_class_path

    script = folder / "bin" / "zkServer.sh"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/bash\n"
        f'exec {find_java()} -Xmx128m $SERVER_JVMFLAGS -cp "{zookeeper_class_path()}" '
        'org.apache.zookeeper.server.quorum.QuorumPeerMain "$2/zoo.cfg"\n'
    )
    script.chmod(0o755)
    return f"{script.parent}:{os.environ['PATH']}"


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[tuple[list[Server], str]]:
    path = search_path(tmp_path)
    chosen = free_ports(9)
    ports = {number: chosen[3 * number - 3 : 3 * number] for number in (1, 2, 3)}
    members = "".join(
        f"server.{number}=127.0.0.1:{peer}:{election}:participant;0.0.0.0:{client}\n"
        for number, (peer, election, client) in ports.items()
    )
    servers = [Server(number, tmp_path / str(number), members, ports[number][2]) for number in (1, 2, 3)]
    yield servers, path
    for server in servers:
        server.stop()


def test_servers_are_ready_only_with_a_quorum_and_keep_their_members_after_a_restart(ensemble: list[Server]) -> None:
    for server in ensemble:
        _until(server.is_ready)
    answers = [asyncio.run(srvr("127.0.0.1", server.client_port)) for server in ensemble]
    assert sorted(read_srvr("", answer or "").mode for answer in answers) == ["follower", "follower", "leader"]
    for server in ensemble:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=60) as answer:
            names = {line.partition(" ")[0] for line in answer.read().decode().splitlines()}
        assert {"quorum_size", "outstanding_requests", "znode_count", "jvm_memory_pool_bytes_used"} <= {
            name.partition("{")[0] for name in names
        }
    first, second, third = ensemble
    kept = (first.data / "conf" / "zoo.cfg").read_text()
    assert "zoo.cfg.dynamic.1" in kept, "the members were taken over by ZooKeeper itself"
    second.stop()
    third.stop()
    _until(lambda: not first.is_ready())
    assert not read_srvr("", asyncio.run(srvr("127.0.0.1", first.client_port)) or "").is_serving
    (second.root / "files" / "members").write_text("server.9=nowhere:1:2:participant;3\n")
    second.start(f"{first.root.parent / 'bin'}:{os.environ['PATH']}")
    _until(first.is_ready)
    _until(second.is_ready)


def _client(server: Server) -> KazooClient:
    client = KazooClient(f"127.0.0.1:{server.client_port}", timeout=10)
    client.start(60)
    return client


def _write(server: Server, path: str) -> None:
    client = _client(server)
    client.create(path, b"data")
    client.stop()


def _has(server: Server, path: str) -> bool:
    client = _client(server)
    client.sync("/")
    found = client.exists(path) is not None
    client.stop()
    return found


def _hold(ensemble: list[Server]) -> None:
    """Every server holds data, and the operator permits none to start empty any more."""
    for server in ensemble:
        _until(server.is_ready)
    _write(ensemble[0], "/orders")
    for server in ensemble:
        assert _has(server, "/orders")
        server.permission = "no"


def test_two_servers_that_lost_their_volumes_never_overwrite_the_third(ensemble: list[Server], path: str) -> None:
    """Even when they are let in: an empty database has no vote, so there is no quorum until data is back."""
    _hold(ensemble)
    first, second, third = ensemble
    kept = second.root / "kept"
    for server in ensemble:
        server.stop()
    shutil.copytree(second.data, kept / "data")
    shutil.copytree(second.log, kept / "datalog")
    for server in (second, third):
        server.lose()
        server.start(path)
        assert server.ended() == 1
        assert server.reason == (
            f"the data volume of server {server.number} is not the one that it served with: it may not start empty\n"
        )
    for server in (second, third):
        server.permission = "join"
        server.start(path)
    _until(lambda: all("setting zxid to -1" in (one.root / "log").read_text() for one in (second, third)))
    first.start(path)
    rounds = (first.root / "log").read_text().count("Notification time out")
    _until(lambda: (first.root / "log").read_text().count("Notification time out") >= rounds + 4)
    assert not any(server.is_ready() for server in ensemble)
    second.stop()
    second.lose()
    shutil.rmtree(second.data)
    shutil.rmtree(second.log)
    shutil.copytree(kept / "data", second.data)
    shutil.copytree(kept / "datalog", second.log)
    second.permission = "no"
    second.start(path)
    for server in ensemble:
        _until(server.is_ready)
        assert _has(server, "/orders")


def test_a_server_with_empty_volumes_copies_what_a_quorum_has_and_votes_from_then_on(
    ensemble: list[Server], path: str
) -> None:
    _hold(ensemble)
    first, second, third = ensemble
    third.stop()
    third.lose()
    third.permission = "join"
    third.start(path)
    _until(third.is_ready)
    assert _has(third, "/orders")
    second.stop()
    third.stop()
    third.permission = "no"
    third.start(path)
    _until(third.is_ready)
    assert _has(third, "/orders") and _has(first, "/orders")


def test_a_server_that_lost_its_log_volume_does_not_start_with_its_old_snapshot(
    ensemble: list[Server], path: str
) -> None:
    _hold(ensemble)
    third = ensemble[2]
    third.stop()
    third.lose(third.log)
    third.start(path)
    assert third.ended() == 1
    assert third.reason == "the log volume of server 3 is not the one that it served with: transactions are missing\n"
    third.permission = "join"
    third.start(path)
    _until(third.is_ready)
    assert _has(third, "/orders")
    assert (third.data / "version-2.lost").is_dir()


def test_servers_declared_lost_copy_the_data_of_the_remaining_one(ensemble: list[Server], path: str) -> None:
    _hold(ensemble)
    first, second, third = ensemble
    for server in ensemble:
        server.stop()
    for server in (second, third):
        server.lose()
    second.permission = "initialize"
    second.start(path)
    _until(lambda: "Initialize file found" in (second.root / "log").read_text())
    first.start(path)
    _until(second.is_ready)
    assert _has(second, "/orders") and _has(first, "/orders")


def test_the_volumes_of_another_server_are_refused(ensemble: list[Server], path: str) -> None:
    _hold(ensemble)
    second, third = ensemble[1:]
    second.stop()
    third.stop()
    files, end = second.root / "files", second.root / "termination-log"
    (files / "start.sh").write_text(start_script(str(third.data), str(files), str(third.log), str(end)))
    second.permission = "join"
    second.start(path)
    assert second.ended() == 1
    assert second.reason == "the volume is that of server 3, not of server 2: bind each to its own claim\n"


def test_volumes_of_a_release_without_markers_are_accepted(ensemble: list[Server], path: str) -> None:
    _hold(ensemble)
    for server in ensemble:
        server.stop()
        for volume in (server.data, server.log):
            (volume / MARKER).unlink()
    for server in ensemble:
        server.start(path)
    for server in ensemble:
        _until(server.is_ready)
        assert (server.data / MARKER).read_text() == (server.log / MARKER).read_text()
    assert _has(ensemble[2], "/orders")
