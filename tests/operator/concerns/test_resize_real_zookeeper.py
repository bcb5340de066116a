"""An ensemble of real ZooKeeper servers grows from one to three and shrinks again, while a client writes.

The operator's own start script, decisions and client are used; the steps are those of `concerns.ensemble`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.retry import KazooRetry

from ottla.local.ports import free_ports
from ottla_operator.api.fleet import MembershipReport, Reconfiguration
from ottla_operator.api.objects import Obj
from ottla_operator.effects import zookeeper_admin
from ottla_operator.effects.environment import read_srvr, srvr
from tests.operator.concerns import test_zookeeper_files as files

pytestmark = files.pytestmark
PASSWORD = "secret"
LOOPBACK: Obj = {"status": {"podIP": "127.0.0.1"}}


class Writer:
    """A client that writes all the time, below one node. `acknowledged`: what it was told is written.

    Not at the root: ZooKeeper keeps summaries of each child of the root (`write_per_namespace`), of 20 KiB each. A heap
    of 128 MB is full after 5 000 children, and the server stops for good.
    """

    PARENT = "/written"

    def __init__(self, hosts: str) -> None:
        retry = KazooRetry(max_tries=-1, delay=0.02, max_delay=0.2)
        self.client = KazooClient(hosts, timeout=10, connection_retry=retry)
        self.client.start(60)
        self.client.create(self.PARENT)
        self.acknowledged: list[str] = []
        self.failed = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._ends.is_set():
            number += 1
            path = f"{self.PARENT}/{number}"
            try:
                self.client.create_async(path, b"data").get(timeout=10)
                self.acknowledged.append(path)
            except KazooException:
                self.failed += 1  # it may be written or not

    def until_more(self) -> None:
        """Waits until it has written since now."""
        before = len(self.acknowledged)
        files._until(lambda: len(self.acknowledged) > before + 10)

    def lost(self) -> set[str]:
        """What was acknowledged until now and is not there."""
        acknowledged = set(self.acknowledged)  # before the read: it goes on writing
        return acknowledged - {f"{self.PARENT}/{name}" for name in self.client.get_children(self.PARENT)}

    def end(self) -> None:
        self._ends.set()
        self._thread.join(60)
        self.client.stop()
        self.client.close()


@dataclass(slots=True)
class Ensemble:
    """Servers by id, each with ports of its own on the loopback."""

    root: Path
    path: str
    ports: dict[int, list[int]]
    servers: dict[int, files.Server] = field(default_factory=dict)

    def line(self, server: int) -> str:
        peer, election, client = self.ports[server]
        return f"server.{server}=127.0.0.1:{peer}:{election}:participant;0.0.0.0:{client}"

    def start(self, server: int, members: tuple[int, ...], permission: str) -> files.Server:
        """As the operator has its pod started. The volumes of before are there again."""
        text = "".join(f"{self.line(one)}\n" for one in members)
        if server not in self.servers:
            self.servers[server] = files.Server(server, self.root / str(server), text, self.ports[server][2])
        found = self.servers[server]
        (found.root / "files" / "members").write_text(text)
        found.permission = permission
        found.start(self.path)
        return found

    def client_port(self, server: int) -> int:
        return self.ports[server][2]

    async def leader(self) -> int:
        """The server that leads; waits for one: a leader that could not settle a change stands for election again."""
        deadline = time.monotonic() + 180
        while True:
            modes = {
                one: read_srvr("", await srvr("127.0.0.1", self.client_port(one)) or "").mode for one in self.servers
            }
            leading = [server for server, mode in modes.items() if mode == "leader"]
            if len(leading) == 1:
                return leading[0]
            assert time.monotonic() < deadline, f"no leader within three minutes: {modes}"
            await asyncio.sleep(0.2)

    async def members(self) -> MembershipReport:
        found = await zookeeper_admin.membership(LOOPBACK, self.client_port(await self.leader()))
        assert found is not None
        return found

    async def joins(self, server: int, members: tuple[int, ...]) -> None:
        joiner = self.start(server, (*members, server), "add")
        files._until(joiner.is_ready)
        assert sorted((await self.members()).servers) == list(members), "it copies the data, and has no vote yet"
        joiner.permission = "no"
        now = await self.members()
        change = Reconfiguration(now.version, joining=self.line(server))
        port = self.client_port(await self.leader())
        assert await zookeeper_admin.reconfigure(LOOPBACK, PASSWORD, change, port) == ""
        assert sorted((await self.members()).servers) == sorted((*members, server))

    async def leaves(self, server: int) -> None:
        now = await self.members()
        change = Reconfiguration(now.version, leaving=server)
        await zookeeper_admin.reconfigure(LOOPBACK, PASSWORD, change, self.client_port(await self.leader()))
        rest = sorted(set(now.servers) - {server})
        files._until(lambda: all(self.servers[one].is_ready() for one in rest))
        left = self.servers.pop(server)
        try:
            assert sorted((await self.members()).servers) == rest
        finally:
            left.stop()
            self.servers_that_left[server] = left

    servers_that_left: dict[int, files.Server] = field(default_factory=dict)

    def stop(self) -> None:
        for server in (*self.servers.values(), *self.servers_that_left.values()):
            server.stop()


def _super_flags(password: str) -> str:
    digest = base64.b64encode(hashlib.sha1(f"super:{password}".encode()).digest()).decode()
    return f"-Dzookeeper.DigestAuthenticationProvider.superDigest=super:{digest}"


@pytest.fixture
def ensemble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ensemble]:
    monkeypatch.setattr(files, "SUPER_FLAGS", _super_flags(PASSWORD))
    chosen = free_ports(9)
    ports = {server: chosen[3 * server - 3 : 3 * server] for server in (1, 2, 3)}
    found = Ensemble(tmp_path, files.search_path(tmp_path), ports)
    yield found
    found.stop()


@pytest.fixture
def writer(ensemble: Ensemble) -> Iterator[Writer]:
    files._until(ensemble.start(1, (1,), "initialize").is_ready)
    ensemble.servers[1].permission = "no"
    found = Writer(",".join(f"127.0.0.1:{ensemble.client_port(server)}" for server in (1, 2, 3)))
    yield found
    found.end()


async def test_one_server_becomes_three_and_one_again_and_three_again_and_no_write_is_lost(
    ensemble: Ensemble, writer: Writer
) -> None:
    await ensemble.joins(2, (1,))
    writer.until_more()
    await ensemble.joins(3, (1, 2))
    writer.until_more()
    for server in (1, 2, 3):
        assert files._has(ensemble.servers[server], writer.acknowledged[0])
    for server in (3, 2):
        await ensemble.leaves(server)
        writer.until_more()
    for server, members in ((2, (1,)), (3, (1, 2))):
        ensemble.servers[server] = ensemble.servers_that_left.pop(server)
        await ensemble.joins(server, members)
        writer.until_more()
        assert (ensemble.servers[server].data / "version-2.lost").is_dir(), "what it held before is not used"
    ensemble.servers[1].stop()
    files._until(lambda: all(ensemble.servers[server].is_ready() for server in (2, 3)))
    writer.until_more()
    assert writer.lost() == set()


async def test_the_leader_leaves_and_the_others_go_on_with_all_that_was_written(
    ensemble: Ensemble, writer: Writer
) -> None:
    await ensemble.joins(2, (1,))
    await ensemble.joins(3, (1, 2))
    leader = await ensemble.leader()
    await ensemble.leaves(leader)
    writer.until_more()
    assert await ensemble.leader() != leader
    assert writer.lost() == set()


async def test_a_server_that_left_does_not_start_by_what_is_on_its_volume(ensemble: Ensemble, writer: Writer) -> None:
    await ensemble.joins(2, (1,))
    await ensemble.leaves(2)
    left = ensemble.servers_that_left[2]
    (left.root / "files" / "members").write_text(f"{ensemble.line(1)}\n")
    left.start(ensemble.path)
    assert left.ended() == 1
    assert left.reason == "server 2 is no member of the ensemble\n"
    writer.until_more()


async def test_zookeeper_refuses_a_stranger_an_old_version_and_a_server_that_is_not_there(
    ensemble: Ensemble, writer: Writer
) -> None:
    now, port = await ensemble.members(), ensemble.client_port(1)
    absent = Reconfiguration(now.version, joining=ensemble.line(2))
    assert "NewConfigNoQuorum" in await zookeeper_admin.reconfigure(LOOPBACK, PASSWORD, absent, port)
    files._until(ensemble.start(2, (1, 2), "add").is_ready)
    assert "NoAuth" in await zookeeper_admin.reconfigure(LOOPBACK, "wrong", absent, port)
    old = Reconfiguration(now.version - 1, joining=ensemble.line(2))
    assert "BadVersion" in await zookeeper_admin.reconfigure(LOOPBACK, PASSWORD, old, port)
    assert await zookeeper_admin.membership(LOOPBACK, ensemble.ports[3][2]) is None, "nobody listens there"
    assert sorted((await ensemble.members()).servers) == [1]


@pytest.mark.long
async def test_a_new_password_of_the_super_user_counts_once_every_server_has_restarted(
    ensemble: Ensemble, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ensemble.joins(2, (1,))
    await ensemble.joins(3, (1, 2))
    monkeypatch.setattr(files, "SUPER_FLAGS", _super_flags("another"))
    leader = await ensemble.leader()
    leaving = 2 if leader == 3 else 3
    now = await ensemble.members()
    change = Reconfiguration(now.version, leaving=leaving)
    assert "NoAuth" in await zookeeper_admin.reconfigure(LOOPBACK, "another", change, ensemble.client_port(leader))

    async def accept(password: str) -> list[bool | None]:
        ports = [ensemble.client_port(server) for server in (1, 2, 3)]
        return [await zookeeper_admin.accepts_super_user(LOOPBACK, password, port) for port in ports]

    assert await accept("another") == [False] * 3 and await accept(PASSWORD) == [True] * 3
    for server in sorted((1, 2, 3), key=lambda one: (one == leader, one)):
        ensemble.servers[server].stop()
        ensemble.start(server, (1, 2, 3), "no")
        files._until(lambda: all(one.is_ready() for one in ensemble.servers.values()))
        assert await zookeeper_admin.accepts_super_user(LOOPBACK, "another", ensemble.client_port(server))
        writer.until_more()
    assert await accept("another") == [True] * 3 and await accept(PASSWORD) == [False] * 3
    assert await zookeeper_admin.accepts_super_user(LOOPBACK, "another", free_ports(1)[0]) is None
    port = ensemble.client_port(await ensemble.leader())
    now = await ensemble.members()
    leaving = next(one for one in (3, 2) if ensemble.client_port(one) != port)
    change = Reconfiguration(now.version, leaving=leaving)
    assert "NoAuth" in await zookeeper_admin.reconfigure(LOOPBACK, PASSWORD, change, port)
    assert await zookeeper_admin.reconfigure(LOOPBACK, "another", change, port) == ""
    assert sorted((await ensemble.members()).servers) == sorted({1, 2, 3} - {leaving})
    assert writer.lost() == set()
