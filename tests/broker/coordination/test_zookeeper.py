"""The ZooKeeper adapter where the network matters: lost connections, a server that restarts, chroots, limits."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import GetChildren

from ottla.local.ports import free_port
from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.coordination.kazoo_session import ReadMany
from ottla_broker.coordination.zookeeper import WINDOW, ConnectString, ZooKeeperCoordination
from ottla_broker.ports.coordination import (
    Check,
    ConnectionLoss,
    CoordinationError,
    Create,
    NodeExists,
    NoNode,
    SessionEvent,
    Set,
    WatchEvent,
    WatchKind,
)
from tests.contract.coordination_contract import Received

SESSION_TIMEOUT_MS = 10_000
RESTART_TIMEOUT_MS = 40_000
"""Longer than a Java process takes to come back on a machine that does much else. A server allows 20 ticks at most."""
HOLDER = """
import asyncio, sys
from ottla_broker.coordination.zookeeper import ZooKeeperCoordination

async def main():
    session = ZooKeeperCoordination(sys.argv[1], session_timeout_ms=10_000)
    await session.start()
    await session.create("/broker", ephemeral=True)
    print(session.session_id, session.session_password.hex(), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def start_holder(connect: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", HOLDER, connect], stdout=subprocess.PIPE, text=True)


class Wire:
    """A TCP road to the server that can be cut for one client while others go on."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._is_cut = False
        self._is_blocked = False
        self._deaf = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def open(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Every connection ends, new ones are closed at once."""
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def swallow_answers(self) -> None:
        """Requests go through, answers get lost."""
        self._is_blocked = True

    def accept_deaf(self, connections: int) -> None:
        """The next connections are accepted and never answered, as a server does that is still starting."""
        self._deaf = connections

    def mend(self) -> None:
        self._is_cut = self._is_blocked = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        if self._deaf:
            self._deaf -= 1
            self._writers.append(writer)
            return
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._writers += [writer, server_writer]
        await asyncio.gather(self._pump(reader, server_writer, False), self._pump(server_reader, writer, True))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, are_answers: bool) -> None:
        try:
            while data := await reader.read(65536):
                if not (are_answers and self._is_blocked):
                    writer.write(data)
        except ConnectionError:
            pass
        writer.close()


@contextmanager
def black_hole() -> Iterator[int]:
    """A port of which every further connection's packets are dropped: its queue is full, and nobody takes from it."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        port: int = listening.getsockname()[1]
        for _ in range(4):
            filling = stack.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(("127.0.0.1", port))
        yield port


class Surroundings:
    """A session over a wire that can be cut, one that is never disturbed, and what the first was told."""

    def __init__(self, wire: Wire, cut_off: ZooKeeperCoordination, steady: ZooKeeperCoordination) -> None:
        self.wire = wire
        self.cut_off = cut_off
        self.steady = steady
        self.told: Received[SessionEvent] = Received()
        cut_off.add_session_listener(self.told)


@pytest.fixture
def chroot() -> str:
    return f"/tests/{uuid.uuid4()}"


@pytest.fixture
async def surroundings(zookeeper: ZooKeeperServer, chroot: str) -> AsyncIterator[Surroundings]:
    wire = Wire(zookeeper.port)
    port = await wire.open()
    steady = ZooKeeperCoordination(zookeeper.connect + chroot, session_timeout_ms=SESSION_TIMEOUT_MS)
    cut_off = ZooKeeperCoordination(f"127.0.0.1:{port}{chroot}", session_timeout_ms=SESSION_TIMEOUT_MS)
    await steady.start()
    await cut_off.start()
    yield Surroundings(wire, cut_off, steady)
    await cut_off.close()
    await steady.close()
    await wire.close()


@pytest.mark.java
async def test_watches_survive_a_lost_connection_and_tell_what_was_missed(surroundings: Surroundings) -> None:
    wire, cut_off, steady, told = surroundings.wire, surroundings.cut_off, surroundings.steady, surroundings.told
    for name in ("changed", "deleted", "parent", "quiet"):
        await cut_off.create(f"/{name}")
    heard: Received[WatchEvent] = Received()
    await cut_off.get("/changed", heard)
    await cut_off.exists("/deleted", heard)
    assert await cut_off.exists("/created", heard) is None
    await cut_off.children("/parent", heard)
    quiet: Received[WatchEvent] = Received()
    await cut_off.get("/quiet", quiet)
    await cut_off.children("/quiet", quiet)
    assert await cut_off.exists("/still-absent", quiet) is None
    session = cut_off.session_id
    wire.cut()
    await told.until(1)
    await steady.set("/changed", b"x")
    await steady.delete("/deleted")
    await steady.create("/created")
    await steady.create("/parent/child")
    # Called while the connection is away: it waits, and may not overtake the events.
    read = cut_off.get("/changed")
    assert heard.events == []
    wire.mend()
    assert (await read)[0] == b"x"
    assert sorted(heard.events, key=lambda event: event.path) == [
        WatchEvent(WatchKind.CHANGED, "/changed"),
        WatchEvent(WatchKind.CREATED, "/created"),
        WatchEvent(WatchKind.DELETED, "/deleted"),
        WatchEvent(WatchKind.CHILDREN, "/parent"),
    ]
    assert told.events == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
    assert cut_off.session_id == session
    assert quiet.events == []
    await steady.create("/quiet/child")
    await steady.create("/still-absent")
    await steady.set("/quiet", b"x")
    assert await quiet.until(3) == [
        WatchEvent(WatchKind.CHILDREN, "/quiet"),
        WatchEvent(WatchKind.CREATED, "/still-absent"),
        WatchEvent(WatchKind.CHANGED, "/quiet"),
    ]


@pytest.mark.java
async def test_watches_survive_two_lost_connections_in_a_row(surroundings: Surroundings) -> None:
    wire, cut_off, steady, told = surroundings.wire, surroundings.cut_off, surroundings.steady, surroundings.told
    heard: Received[WatchEvent] = Received()
    assert await cut_off.exists("/a", heard) is None
    for round_number in (1, 2):
        wire.cut()
        await told.until(2 * round_number - 1)
        wire.mend()
        await told.until(2 * round_number)
    await steady.create("/a")
    assert await heard.until(1) == [WatchEvent(WatchKind.CREATED, "/a")]


@pytest.mark.java
async def test_an_event_right_behind_the_answer_is_heard_though_the_loops_thread_is_slow(
    zookeeper: ZooKeeperServer, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordination = ZooKeeperCoordination(zookeeper.connect + chroot, session_timeout_ms=SESSION_TIMEOUT_MS)
    await coordination.start()
    other = KazooClient(zookeeper.connect + chroot)
    await asyncio.get_running_loop().run_in_executor(None, other.start)
    hand_to_kazoo, on_watch = KazooClient._call, ZooKeeperCoordination._on_watch
    has_fired = threading.Event()

    def held_up(client: KazooClient, request: Any, result: Any) -> None:
        """Answer and event are read by the connection's thread before the loop's thread goes on."""
        hand_to_kazoo(client, request, result)
        if isinstance(request, GetChildren) and request.watcher is not None:
            assert result.wait(30)
            other.create("/child")
            assert has_fired.wait(30)

    def fire(coordination: ZooKeeperCoordination, event: Any) -> None:
        on_watch(coordination, event)
        has_fired.set()

    monkeypatch.setattr(KazooClient, "_call", held_up)
    monkeypatch.setattr(ZooKeeperCoordination, "_on_watch", fire)
    heard: Received[WatchEvent] = Received()
    assert await coordination.children("/", heard) == []
    assert await heard.until(1) == [WatchEvent(WatchKind.CHILDREN, "/")]
    await coordination.close()
    other.stop()
    other.close()


@pytest.mark.java
async def test_a_server_that_accepts_and_never_answers_costs_no_session(surroundings: Surroundings) -> None:
    wire, cut_off, told = surroundings.wire, surroundings.cut_off, surroundings.told
    await cut_off.create("/e", b"kept", ephemeral=True)
    session = cut_off.session_id
    wire.cut()
    await told.until(1)
    wire.accept_deaf(2)
    wire.mend()
    assert await told.until(2) == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
    data, stat = await cut_off.get("/e")
    assert (data, stat.ephemeral_owner) == (b"kept", session)


@pytest.mark.java
async def test_servers_that_drop_packets_cost_no_session(zookeeper: ZooKeeperServer, chroot: str) -> None:
    """Nobody refuses a connection to them: kazoo gave each of them a whole session timeout."""
    wire = Wire(zookeeper.port)
    with black_hole() as first, black_hole() as second, black_hole() as third:
        hosts = ",".join(f"127.0.0.1:{port}" for port in (first, await wire.open(), second, third))
        session = ZooKeeperCoordination(hosts + chroot, session_timeout_ms=SESSION_TIMEOUT_MS)
        told: Received[SessionEvent] = Received()
        await session.start()
        session.add_session_listener(told)
        before = session.session_id
        wire.cut()
        wire.mend()
        assert await told.until(2) == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
        assert session.session_id == before
        await session.close()
    await wire.close()


@pytest.mark.java
async def test_a_server_that_falls_silent_is_left_though_requests_are_made_all_the_time(
    zookeeper: ZooKeeperServer, chroot: str
) -> None:
    """kazoo took every request that it sent for a sign of life."""
    wire = Wire(zookeeper.port)
    session = ZooKeeperCoordination(f"127.0.0.1:{await wire.open()}{chroot}", session_timeout_ms=6000)
    told: Received[SessionEvent] = Received()
    await session.start()
    session.add_session_listener(told)
    before = session.session_id
    wire.swallow_answers()
    requests = []
    while not told.events and len(requests) < WINDOW:
        requests.append(session.exists("/"))
        await asyncio.sleep(0.1)  # all the time, yet not WINDOW of them before the session times out
    assert len(requests) < WINDOW, "nobody noticed"
    wire.cut()
    wire.mend()
    assert await told.until(2) == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
    assert session.session_id == before
    await asyncio.gather(*requests, return_exceptions=True)
    await session.close()
    await wire.close()


@pytest.mark.java
async def test_a_ping_goes_out_after_a_third_of_the_session_timeout_and_is_answered_within_a_sixth(
    zookeeper: ZooKeeperServer, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session ends one timeout after its last ping: the rarer they are, the sooner a killed broker is replaced."""
    waits: Received[float] = Received()
    select = SequentialThreadingHandler.select
    loop = asyncio.get_running_loop()

    def noted(handler: Any, readers: Any, writers: Any, exceptional: Any, timeout: float) -> Any:
        if len(readers) == 2:  # its turn when connected: answers, and requests of ours
            loop.call_soon_threadsafe(waits, timeout)
        return select(handler, readers, writers, exceptional, timeout)

    monkeypatch.setattr(SequentialThreadingHandler, "select", noted)
    wire = Wire(zookeeper.port)
    session = ZooKeeperCoordination(f"127.0.0.1:{await wire.open()}{chroot}", session_timeout_ms=6000)
    told: Received[SessionEvent] = Received()
    await session.start()
    session.add_session_listener(told)
    before = session.session_id
    wire.swallow_answers()
    await told.until(1)
    idle, answered = waits.events[-2:]
    assert 1.5 < idle <= 2.0, "kazoo takes up to 0.4 s off"
    assert 0.5 < answered <= 1.0 + 0.4, "what was taken off is added"
    wire.cut()
    wire.mend()
    assert await told.until(2) == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
    assert session.session_id == before
    await session.close()
    await wire.close()


@pytest.mark.java
async def test_thousands_of_watches_are_set_again(surroundings: Surroundings) -> None:
    wire, cut_off, steady, told = surroundings.wire, surroundings.cut_off, surroundings.steady, surroundings.told
    heard: Received[WatchEvent] = Received()
    await cut_off.create("/a")
    paths = [f"/a/{'x' * 80}-{number}" for number in range(4000)]
    for first in range(0, 4000, 1000):
        await cut_off.multi([Create(path) for path in paths[first : first + 1000]])
    await asyncio.gather(*(cut_off.get(path, heard) for path in paths))
    wire.cut()
    await told.until(1)
    await steady.multi([Set(path, b"x") for path in paths[:1000]])
    wire.mend()
    await told.until(2)
    await steady.multi([Set(path, b"x") for path in paths[3000:]])
    events = await heard.until(2000)
    assert {event.path for event in events} == set(paths[:1000] + paths[3000:])


@pytest.mark.java
async def test_a_write_whose_answer_is_lost_ends_in_connection_loss(surroundings: Surroundings) -> None:
    wire, cut_off, steady, told = surroundings.wire, surroundings.cut_off, surroundings.steady, surroundings.told
    seen: Received[WatchEvent] = Received()
    await steady.exists("/a", seen)
    wire.swallow_answers()
    write = cut_off.create("/a", b"mine")
    await seen.until(1)
    wire.cut()
    with pytest.raises(ConnectionLoss) as lost:
        await write
    assert lost.value.path == "/a"
    await told.until(1)
    wire.mend()
    with pytest.raises(NodeExists):
        await cut_off.create("/a", b"again")
    assert (await cut_off.get("/a"))[0] == b"mine"


@pytest.mark.java
async def test_many_calls_during_an_outage_wait_without_holding_up_the_loop(surroundings: Surroundings) -> None:
    wire, cut_off, told = surroundings.wire, surroundings.cut_off, surroundings.told
    await cut_off.create("/a")
    wire.cut()
    await told.until(1)
    calls = [cut_off.set("/a", b"%d" % number, number) for number in range(20 * WINDOW)]
    await asyncio.sleep(0)
    assert not any(call.done() for call in calls)
    wire.mend()
    stats = await asyncio.gather(*calls)
    assert [stat.version for stat in stats] == list(range(1, 20 * WINDOW + 1))


@pytest.mark.java
async def test_a_server_that_restarts_keeps_session_and_ephemeral_nodes(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    server = ZooKeeperServer(tmp_path, tick_ms=RESTART_TIMEOUT_MS // 20)
    await loop.run_in_executor(None, server.start)
    try:
        coordination = ZooKeeperCoordination(server.connect, session_timeout_ms=RESTART_TIMEOUT_MS)
        told: Received[SessionEvent] = Received()
        await coordination.start()
        coordination.add_session_listener(told)
        await coordination.create("/e", b"kept", ephemeral=True)
        session = coordination.session_id
        await loop.run_in_executor(None, server.kill)
        await told.until(1)
        await loop.run_in_executor(None, server.start)
        assert await told.until(2) == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
        assert coordination.session_id == session
        data, stat = await coordination.get("/e")
        assert (data, stat.ephemeral_owner) == (b"kept", session)
        await coordination.close()
    finally:
        await loop.run_in_executor(None, server.stop)
    assert server.pid == 0


@pytest.mark.java
async def test_a_process_after_kill_9_ends_its_old_session_and_registers_at_once(
    zookeeper: ZooKeeperServer, chroot: str
) -> None:
    connect = zookeeper.connect + chroot
    with start_holder(connect) as killed:
        assert killed.stdout is not None
        session_id, password = killed.stdout.readline().split()
        killed.send_signal(signal.SIGKILL)
    other = ZooKeeperCoordination(connect, session_timeout_ms=SESSION_TIMEOUT_MS)
    await other.start()
    stat = await other.exists("/broker")
    assert stat is not None
    assert stat.ephemeral_owner == int(session_id)
    restarted = ZooKeeperCoordination(connect, session_timeout_ms=SESSION_TIMEOUT_MS)
    await restarted.start((int(session_id), bytes.fromhex(password)))
    assert await restarted.create("/broker", b"again", ephemeral=True) == "/broker"
    await restarted.close()
    await other.close()


@pytest.mark.java
async def test_a_chroot_is_made_when_absent_and_hides_everything_above(zookeeper: ZooKeeperServer, chroot: str) -> None:
    inside = ZooKeeperCoordination(f"{zookeeper.connect}{chroot}/deep/", session_timeout_ms=SESSION_TIMEOUT_MS)
    outside = ZooKeeperCoordination(zookeeper.connect, session_timeout_ms=SESSION_TIMEOUT_MS)
    await inside.start()
    await outside.start()
    heard: Received[WatchEvent] = Received()
    await inside.exists("/a", heard)
    await inside.children("/", heard)
    assert await inside.create("/n_", b"x", sequence=True) == "/n_0000000000"
    assert await inside.multi([Check("/n_0000000000", 0), Create("/a", b"1")]) == [None, "/a"]
    assert await outside.children(f"{chroot}/deep") == ["a", "n_0000000000"]
    assert heard.events == [WatchEvent(WatchKind.CHILDREN, "/"), WatchEvent(WatchKind.CREATED, "/a")]
    with pytest.raises(NoNode) as refused:
        await inside.get(chroot)
    assert refused.value.path == chroot
    await inside.close()
    await outside.close()


@pytest.mark.java
async def test_empty_data_is_stored_as_null_as_apache_kafka_does(zookeeper: ZooKeeperServer, chroot: str) -> None:
    coordination = ZooKeeperCoordination(zookeeper.connect + chroot, session_timeout_ms=SESSION_TIMEOUT_MS)
    await coordination.start()
    await coordination.create("/a")
    await coordination.multi([Create("/b")])
    raw = KazooClient(zookeeper.connect + chroot)

    def read() -> list[bytes | None]:
        raw.start()
        data = [raw.get(path)[0] for path in ("/a", "/b")]
        raw.stop()
        raw.close()
        return data

    assert await asyncio.get_running_loop().run_in_executor(None, read) == [None, None]
    await coordination.close()


@pytest.mark.java
async def test_a_write_that_zookeeper_would_hang_up_on_is_refused_by_name(
    zookeeper: ZooKeeperServer, chroot: str
) -> None:
    coordination = ZooKeeperCoordination(zookeeper.connect + chroot, session_timeout_ms=SESSION_TIMEOUT_MS)
    told: Received[SessionEvent] = Received()
    await coordination.start()
    coordination.add_session_listener(told)
    with pytest.raises(CoordinationError, match=r"the write of /a takes \d+ bytes, ZooKeeper takes 1048575"):
        await coordination.create("/a", bytes(1024 * 1024))
    with pytest.raises(CoordinationError, match="the write of /b"):
        await coordination.multi([Create("/b"), *(Set("/b", bytes(100_000)) for _ in range(11))])
    await coordination.create("/a", bytes(1_048_575 - 400))
    assert told.events == []
    await coordination.close()


async def test_a_server_that_nobody_reaches_is_named() -> None:
    port = free_port()
    coordination = ZooKeeperCoordination(f"127.0.0.1:{port}/x", connection_timeout_ms=200)
    with pytest.raises(ConnectionLoss, match=f"no ZooKeeper server of 127.0.0.1:{port} answered in 0.2 s"):
        await coordination.start()


def test_a_connect_string_has_one_chroot_for_all_hosts() -> None:
    assert ConnectString.parse(" h1:2181, h2:2181/a/b/ ") == ConnectString("h1:2181,h2:2181", "/a/b")
    assert ConnectString.parse("h1") == ConnectString("h1", "")
    for text in ("", "/chroot", "h1:2181/a,h2:2181/a", "h1:2181//a", "h1/a/../b"):
        with pytest.raises(ValueError, match=r"zookeeper\.connect"):
            ConnectString.parse(text)


async def test_a_server_that_cannot_read_many_at_once_is_asked_for_each(
    zookeeper: ZooKeeperServer, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper 3.5 answers a request of a type that it does not know, and hangs up, as this one does for a type that
    there never was. Once, and the session goes on."""
    monkeypatch.setattr(ReadMany, "type", 4711)
    serialize, asked = ReadMany.serialize, []

    def counted(request: ReadMany) -> bytes:
        asked.append(request.paths)
        return serialize(request)

    monkeypatch.setattr(ReadMany, "serialize", counted)
    coordination = ZooKeeperCoordination(zookeeper.connect + chroot, session_timeout_ms=SESSION_TIMEOUT_MS)

    async def read_all() -> list[bytes]:
        while True:  # what is under way when it hangs up ends in ConnectionLoss, as ever
            reads = await asyncio.gather(
                *(coordination.get(f"/{number}") for number in range(5)), return_exceptions=True
            )
            if not any(isinstance(read, ConnectionLoss) for read in reads):
                return [read[0] for read in reads if isinstance(read, tuple)]

    await coordination.start()
    try:
        for number in range(5):
            await coordination.create(f"/{number}", b"%d" % number, ephemeral=True)
        session = coordination.session_id
        assert await read_all() == [b"0", b"1", b"2", b"3", b"4"]
        tried = len(asked)
        assert tried and await read_all() == [b"0", b"1", b"2", b"3", b"4"]
        assert (coordination.session_id, len(asked)) == (session, tried)
    finally:
        await coordination.close()
