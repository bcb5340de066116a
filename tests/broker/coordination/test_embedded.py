"""The embedded store as a file: what survives a crash, who may hold it, what a full disk does."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore, StoreInUse, StoreUnreadable
from ottla_broker.ports.coordination import ConnectionLoss, Create, SessionEvent, WatchEvent, WatchKind

WRITER = """
import asyncio, sys
from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore

async def main():
    session = EmbeddedCoordination(EmbeddedStore(sys.argv[1]))
    await session.start()
    await session.create("/ephemeral", ephemeral=True)
    await session.create("/n", b"0")
    number = 0
    while True:
        number += 1
        await session.set("/n", b"%d" % number)
        print(number, session.session_id, flush=True)

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "coordination.sqlite")


@pytest.fixture
async def store(path: str) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore(path)
    await store.open()
    yield store
    await store.close()


async def open_session(store: EmbeddedStore) -> EmbeddedCoordination:
    session = EmbeddedCoordination(store)
    await session.start()
    return session


def journal_size(path: str) -> int:
    return os.path.getsize(path + "-wal")


def start_writer(path: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True)


async def test_what_was_acknowledged_survives_kill_9_and_the_session_does_not(path: str) -> None:
    with start_writer(path) as writer:
        assert writer.stdout is not None
        for _ in range(50):
            line = writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        lines = [line, *writer.stdout.read().splitlines()]
    acknowledged, session_id = (int(word) for word in lines[-1].split())
    store = EmbeddedStore(path)
    session = await open_session(store)
    data, stat = await session.get("/n")
    assert int(data) in (acknowledged, acknowledged + 1)
    assert stat.version == int(data)
    assert await session.exists("/ephemeral") is None
    assert session.session_id > session_id
    await session.create("/later")
    later = await session.exists("/later")
    assert later is not None
    assert later.czxid > stat.mzxid
    await store.close()


async def test_a_second_process_is_refused_with_the_files_name(path: str) -> None:
    with start_writer(path) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(StoreInUse, match=f"{path} is in use by another process"):
            await EmbeddedStore(path).open()
        writer.kill()
        writer.stdout.read()
    store = EmbeddedStore(path)
    await store.open()
    with pytest.raises(StoreInUse):
        await EmbeddedStore(path).open()
    await store.close()


async def test_nodes_versions_and_numbers_are_the_same_after_opening_again(path: str) -> None:
    store = EmbeddedStore(path)
    session = await open_session(store)
    await session.multi([Create("/a", b"x"), Create("/a/n_", b"", sequence=True), Create("/e", ephemeral=True)])
    await session.set("/a", b"y")
    before = await session.get("/a")
    await store.close()
    with pytest.raises(ConnectionLoss):
        await session.create("/b")
    await session.close()
    reopened = store
    session = await open_session(reopened)
    assert await session.get("/a") == before
    assert await session.children("/") == ["a"]
    assert await session.create("/a/n_", sequence=True) == "/a/n_0000000001"
    await session.close()
    await reopened.close()


async def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreUnreadable, match="garbage cannot be read as an embedded store"):
        await EmbeddedStore(str(garbage)).open()
    newer = tmp_path / "newer"
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StoreUnreadable, match="has format 99, this release reads 1"):
        await EmbeddedStore(str(newer)).open()
    with pytest.raises(FileNotFoundError):
        await EmbeddedStore(str(tmp_path / "absent" / "file")).open()


async def test_a_full_disk_fails_the_writes_it_hit_and_no_later_one(path: str, store: EmbeddedStore) -> None:
    session, other = await open_session(store), await open_session(store)
    await session.create("/a", b"before")
    events: list[WatchEvent] = []
    await other.get("/a", events.append)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A limit on the size of files: the next write to the journal gets an error from the system, as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal_size(path), hard))
    try:
        calls = [session.set("/a", b"lost"), session.create("/b"), session.create("/b"), session.get("/a")]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [type(outcome) for outcome in outcomes[:3]] == [ConnectionLoss] * 3
    assert outcomes[3] == await other.get("/a")
    assert (await session.get("/a"))[0] == b"before"
    assert await session.exists("/b") is None
    assert events == []
    assert (await session.set("/a", b"after", 0)).version == 1
    assert events == [WatchEvent(WatchKind.CHANGED, "/a")]


async def test_a_session_whose_end_could_not_be_written_ends_later(path: str, store: EmbeddedStore) -> None:
    session, observer = await open_session(store), await open_session(store)
    await session.create("/e", ephemeral=True)
    gone = asyncio.Event()
    connected = asyncio.Event()
    await observer.exists("/e", lambda _: gone.set())
    session.add_session_listener(lambda event: connected.set() if event is SessionEvent.CONNECTED else None)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal_size(path), hard))
    try:
        store.expire_session(session.session_id)
        with pytest.raises(ConnectionLoss):
            await observer.create("/x")
        assert not gone.is_set()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    async with asyncio.timeout(60):
        await gone.wait()
        await connected.wait()
    assert await session.exists("/e") is None


async def test_writes_called_together_share_their_commits(path: str, store: EmbeddedStore) -> None:
    session = await open_session(store)
    await session.create("/a")
    before = journal_size(path)
    await asyncio.gather(*(session.set("/a", b"%d" % number) for number in range(500)))
    # Every commit adds at least two pages of 4 KiB (the node and the zxid) to the journal.
    assert journal_size(path) - before < 250 * 2 * 4096
    assert (await session.get("/a"))[0] == b"499"


async def test_a_failing_watcher_or_listener_stops_nobody_else(store: EmbeddedStore) -> None:
    session = await open_session(store)
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
    heard: list[WatchEvent] = []

    def fails(event: object) -> None:
        raise RuntimeError(f"on {event}")

    await session.exists("/a", fails)
    await session.exists("/a", heard.append)
    assert await session.create("/a") == "/a"
    assert heard == [WatchEvent(WatchKind.CREATED, "/a")]
    assert len(reported) == 1


async def test_a_failure_that_nobody_awaits_any_more_is_not_reported(store: EmbeddedStore) -> None:
    """A broker that stops cancels its calls; the log must not speak of exceptions that were never retrieved."""
    session = await open_session(store)
    reported: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    for call in (session.set("/none", b""), session.delete("/none"), session.create("/none/n"), session.get("/none")):
        call.cancel()
    await session.create("/n")
    gc.collect()
    assert reported == []
