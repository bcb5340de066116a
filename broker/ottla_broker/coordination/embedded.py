"""The embedded adapter of the Coordination port: ZooKeeper's model in one SQLite file, for a fleet in one process.

There is one `EmbeddedStore` per file; each broker of the process has its session, an `EmbeddedCoordination`. A write is
first checked on the event loop against the tree with all earlier writes ("head"). One thread then commits all queued
writes together (WAL, synchronous=FULL: one fsync). Back on the loop the change enters the committed tree, watches fire
and the futures complete, so nothing becomes visible before it is durable. A read does not wait for the disk, unless its
session has an uncommitted write that it must see.

A session lasts as long as its broker. After `abandon` it ends at its timeout, or when a new session attaches to it. The
sessions of an earlier process end when the file is opened, which takes an exclusive lock.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla_broker.coordination.tree import Applied, Change, Node, Result, Tree, validate_path
from ottla_broker.coordination.watches import OneShotWatches
from ottla_broker.ports.coordination import (
    ConnectionLoss,
    CoordinationError,
    Create,
    Delete,
    MultiFailed,
    NoNode,
    Operation,
    SessionEvent,
    SessionExpired,
    Set,
    Stat,
    Watcher,
)

FILE_FORMAT = 1
PASSWORD_BYTES = 16
END_RETRY_S = 1.0


class StoreInUse(Exception):
    """Another process, or another store in this process, has the file open."""


class StoreUnreadable(Exception):
    """The file is not an embedded store, or has another format version."""


@dataclass(slots=True)
class _EmbeddedSession:
    """A session in the store. After close or abandon `watches` is empty and `on_expired` None."""

    session_id: int
    password: bytes
    watches: OneShotWatches
    on_expired: Callable[[], None] | None
    is_ended: bool = False
    last_write: _Write | None = None
    """The newest write that the session's reads must see; they wait until it is complete."""


@dataclass(slots=True, eq=False)
class _Write:
    """One transaction that is being committed. `after` runs on the event loop once it is visible or has failed."""

    zxid: int
    generation: int
    applied: Applied
    on_done: Callable[[Exception | None], None]
    after: list[Callable[[Exception | None], None]] = field(default_factory=list)
    is_complete: bool = False


class EmbeddedStore:
    """The file, the tree and the sessions. All methods are called on one event loop.

    A failed commit (disk full) rolls its writes back and fails them with ConnectionLoss; later writes can succeed.

    Args:
        path: the SQLite file; its directory must exist.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._committed = Tree()
        self._head = Tree()
        self._zxid = 0
        self._generation = 0
        self._sessions: dict[int, _EmbeddedSession] = {}
        self._last_write: _Write | None = None
        self._lane: _Lane | None = None
        self._opening: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_open(self) -> bool:
        return self._lane is not None

    async def open(self) -> None:
        """Opens the file and ends the sessions of an earlier process. Does nothing when it is open.

        Raises:
            StoreInUse: the file is open elsewhere.
            StoreUnreadable: the file is not an embedded store of this format.
            OSError: the file cannot be created.
        """
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        self._loop = asyncio.get_running_loop()
        lane = _Lane(self.path, self._loop, self._on_committed)
        try:
            self._zxid, rows = await lane.opened
        except BaseException:
            self._opening = None
            raise
        self._lane = lane
        self._committed = Tree()
        self._committed.install(rows)
        self._head = self._committed.copy()
        left_over = [path for path, node in rows if node is not None and node.ephemeral_owner]
        if left_over:
            ended: asyncio.Future[None] = self._loop.create_future()
            self._submit([Delete(path) for path in sorted(left_over)], None, _completes(ended, lambda: None))
            await ended

    async def close(self) -> None:
        """Commits the queued writes and closes the file. Open sessions end with the next `open`."""
        lane, self._lane = self._lane, None
        self._opening = None
        for session in self._sessions.values():
            session.is_ended = True
        if lane is not None:
            await lane.close()
        self._sessions.clear()

    def expire_session(self, session_id: int) -> None:
        """Ends a session as an ensemble does after the timeout; its broker gets EXPIRED."""
        session = self._sessions.get(session_id)
        if session is not None and not session.is_ended:
            self._end(session, None)

    def _open_session(self, on_expired: Callable[[], None]) -> asyncio.Future[_EmbeddedSession]:
        opened: asyncio.Future[_EmbeddedSession] = self._running_loop().create_future()
        # Each session has its own transaction; the zxid is the session id, so that ids are unique.
        session = _EmbeddedSession(self._zxid + 1, os.urandom(PASSWORD_BYTES), OneShotWatches(), on_expired)

        def done(error: Exception | None) -> None:
            if error is None:
                self._sessions[session.session_id] = session
            _completes(opened, lambda: session)(error)

        self._submit([], None, done)
        return opened

    def _reattach_and_end(self, session_id: int, password: bytes) -> asyncio.Future[None]:
        ended: asyncio.Future[None] = self._running_loop().create_future()
        session = self._sessions.get(session_id)
        if session is None or session.password != password:
            ended.set_result(None)
        else:
            self._end(session, ended)
        return ended

    def _end(self, session: _EmbeddedSession, ended: asyncio.Future[None] | None) -> None:
        """Ends the session and deletes its ephemeral nodes; retries while the commit fails."""
        session.is_ended = True

        def done(error: Exception | None) -> None:
            if error is not None:
                if self._lane is not None:
                    self._running_loop().call_later(END_RETRY_S, lambda: self._end(session, None))
            else:
                self._sessions.pop(session.session_id, None)
                on_expired, session.on_expired = session.on_expired, None
                if on_expired is not None:
                    on_expired()
            if ended is not None:
                _completes(ended, lambda: None)(error)

        self._submit([Delete(path) for path in self._head.ephemerals(session.session_id)], session, done)

    def _write(self, session: _EmbeddedSession, operations: Sequence[Operation]) -> asyncio.Future[list[Result]]:
        """The future fails with MultiFailed, SessionExpired or ConnectionLoss."""
        future: asyncio.Future[list[Result]] = self._running_loop().create_future()
        if session.is_ended:
            future.set_exception(SessionExpired())
            return future
        results: list[Result] = []
        try:
            results = self._submit(operations, session, _completes(future, lambda: results)).results
        except MultiFailed as error:
            # The error may result from an uncommitted write of any session: the future waits for that write, and the
            # next read of this session must see it.
            failed = error
            session.last_write = self._last_write
            self._after_writes_of(
                session, lambda failure: _completes(future, list)(failed if failure is None else failure)
            )
        return future

    def _after_writes_of(self, session: _EmbeddedSession, then: Callable[[Exception | None], None]) -> None:
        """Calls `then` once the session's newest write is visible (None) or has failed (its error)."""
        if session.last_write is None or session.last_write.is_complete:
            then(None)
        else:
            session.last_write.after.append(then)

    def _submit(
        self,
        operations: Sequence[Operation],
        session: _EmbeddedSession | None,
        on_done: Callable[[Exception | None], None],
    ) -> Applied:
        """Checks the operations and queues them; a closed store calls `on_done` with ConnectionLoss. MultiFailed."""
        applied = self._head.apply(operations, session.session_id if session else 0, self._zxid + 1)
        self._zxid += 1
        write = _Write(self._zxid, self._generation, applied, on_done)
        self._last_write = write
        if session is not None:
            session.last_write = write
        if self._lane is None:
            self._complete(write, ConnectionLoss(message=f"the store {self.path} is closed"))
        else:
            self._lane.submit(write)
        return applied

    def _on_committed(self, writes: Sequence[_Write], error: Exception | None) -> None:
        """On the loop: the thread has committed all these writes, or none of them."""
        for write in writes:
            if error is None:
                self._committed.install(write.applied.changes)
                self._fire(write)
                self._complete(write, None)
        if error is None:
            return
        if writes[0].generation == self._generation:
            # Later writes were checked against the writes that failed: the thread rejects them.
            self._generation += 1
            self._head = self._committed.copy()
        for write in writes:
            self._complete(write, ConnectionLoss(message=f"the store {self.path} could not commit: {error}"))

    def _fire(self, write: _Write) -> None:
        sessions = list(self._sessions.values())
        for event in write.applied.events:
            for session in sessions:
                for watcher in session.watches.take(event):
                    call_guarded(watcher, event)

    def _complete(self, write: _Write, error: Exception | None) -> None:
        write.is_complete = True
        write.on_done(error)
        for then in write.after:
            then(error)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "the store is not open"
        return self._loop


def call_guarded(callback: Callable[[Any], None], argument: Any) -> None:
    """Calls a watcher or listener; an exception goes to the loop's exception handler."""
    try:
        callback(argument)
    except Exception as error:
        context = {"message": f"a coordination callback failed on {argument}", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


def _completes(future: asyncio.Future[Any], value: Callable[[], Any]) -> Callable[[Exception | None], None]:
    """Returns a callback that completes the future, unless it has been cancelled."""

    def done(error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value())
        else:
            future.set_exception(error)

    return done


class EmbeddedCoordination:
    """The session of one broker (Coordination port).

    Args:
        session_timeout_ms: zookeeper.session.timeout.ms.
    """

    def __init__(self, store: EmbeddedStore, *, session_timeout_ms: int = 18_000) -> None:
        self._store = store
        self._timeout_s = session_timeout_ms / 1000
        self._session: _EmbeddedSession | None = None
        self._identity = (0, b"")
        self._is_started = False
        self._is_expired = False
        self._listeners: list[Callable[[SessionEvent], None]] = []

    @property
    def session_id(self) -> int:
        return self._identity[0]

    @property
    def session_password(self) -> bytes:
        return self._identity[1]

    async def start(self, session: tuple[int, bytes] | None = None) -> None:
        """Opens the store, if necessary, and a session. Raises as `EmbeddedStore.open`."""
        if self._is_started:
            raise RuntimeError("this session was started before")
        self._is_started = True
        await self._store.open()
        if session is not None:
            await self._store._reattach_and_end(*session)
        self._use_session(await self._store._open_session(self._on_expired))

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None and not session.is_ended:
            session.on_expired = None
            session.watches.clear()
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._store._end(session, ended)
            await ended

    def abandon(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.on_expired = None
            session.watches.clear()
            self._store._running_loop().call_later(self._timeout_s, self._store.expire_session, session.session_id)

    def add_session_listener(self, listener: Callable[[SessionEvent], None]) -> None:
        self._listeners.append(listener)

    def get(self, path: str, watch: Watcher | None = None) -> asyncio.Future[tuple[bytes, Stat]]:
        def read(session: _EmbeddedSession) -> tuple[bytes, Stat]:
            found = self._store._committed.get(path)
            if found is None:
                raise NoNode(path)
            if watch is not None:
                session.watches.add_data(path, watch)
            return found

        return self._read(path, read)

    def exists(self, path: str, watch: Watcher | None = None) -> asyncio.Future[Stat | None]:
        def read(session: _EmbeddedSession) -> Stat | None:
            if watch is not None:
                session.watches.add_data(path, watch)
            return self._store._committed.exists(path)

        return self._read(path, read)

    def children(self, path: str, watch: Watcher | None = None) -> asyncio.Future[list[str]]:
        def read(session: _EmbeddedSession) -> list[str]:
            names = self._store._committed.children(path)
            if names is None:
                raise NoNode(path)
            if watch is not None:
                session.watches.add_children(path, watch)
            return names

        return self._read(path, read)

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> asyncio.Future[str]:
        return self._write_one(Create(path, data, ephemeral, sequence))

    def set(self, path: str, data: bytes, version: int = -1) -> asyncio.Future[Stat]:
        return self._write_one(Set(path, data, version))

    def delete(self, path: str, version: int = -1) -> asyncio.Future[None]:
        return self._write_one(Delete(path, version))

    def multi(self, operations: Sequence[Operation]) -> asyncio.Future[list[str | Stat | None]]:
        for operation in operations:
            validate_path(_whole_path(operation))
        refusal = self._refusal("")
        if refusal is not None:
            return refusal
        assert self._session is not None
        return self._store._write(self._session, operations)

    def _write_one(self, operation: Operation) -> asyncio.Future[Any]:
        whole = self.multi([operation])
        single: asyncio.Future[Any] = whole.get_loop().create_future()

        def finish(done: asyncio.Future[list[Result]]) -> None:
            error = done.exception()
            if single.done():
                return
            if error is None:
                single.set_result(done.result()[0])
            elif isinstance(error, MultiFailed):
                single.set_exception(error.cause)
            else:
                single.set_exception(error)

        whole.add_done_callback(finish)
        return single

    def _read(self, path: str, read: Callable[[_EmbeddedSession], Any]) -> asyncio.Future[Any]:
        validate_path(path)
        refusal = self._refusal(path)
        if refusal is not None:
            return refusal
        session = self._session
        assert session is not None
        future: asyncio.Future[Any] = self._store._running_loop().create_future()

        def run(_: Exception | None) -> None:
            if future.done():
                return
            if session.is_ended:
                future.set_exception(SessionExpired(path))
                return
            try:
                future.set_result(read(session))
            except CoordinationError as error:
                future.set_exception(error)

        self._store._after_writes_of(session, run)
        return future

    def _refusal(self, path: str) -> asyncio.Future[Any] | None:
        """A failed future when there is no session to call on."""
        error: CoordinationError
        if self._session is None or not self._store.is_open:
            error = ConnectionLoss(path, "the session is not open")
        elif self._is_expired or self._session.is_ended:
            error = SessionExpired(path)
        else:
            return None
        failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        failed.set_exception(error)
        return failed

    def _on_expired(self) -> None:
        session = self._session
        assert session is not None
        session.watches.clear()
        self._is_expired = True
        self._notify(SessionEvent.EXPIRED)
        self._renew()

    def _renew(self) -> None:
        if self._session is not None:
            self._store._open_session(self._on_expired).add_done_callback(self._on_renewed)

    def _on_renewed(self, opened: asyncio.Future[_EmbeddedSession]) -> None:
        if opened.exception() is not None:
            self._store._running_loop().call_later(END_RETRY_S, self._renew)
        elif self._session is None:
            self._store._end(opened.result(), None)  # closed or abandoned meanwhile
        else:
            self._use_session(opened.result())

    def _use_session(self, session: _EmbeddedSession) -> None:
        self._session = session
        self._identity = (session.session_id, session.password)
        self._is_expired = False
        self._notify(SessionEvent.CONNECTED)

    def _notify(self, event: SessionEvent) -> None:
        for listener in list(self._listeners):
            call_guarded(listener, event)


def _whole_path(operation: Operation) -> str:
    """The path to validate: a sequential name may be empty before its number ("/queue/")."""
    return operation.path + "0" if isinstance(operation, Create) and operation.sequence else operation.path


class _Lane:
    """The thread that owns the SQLite connection. `opened` completes with (last zxid, all rows) or an error."""

    def __init__(
        self,
        path: str,
        loop: asyncio.AbstractEventLoop,
        on_committed: Callable[[Sequence[_Write], Exception | None], None],
    ) -> None:
        self._path = path
        self._loop = loop
        self._on_committed = on_committed
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._refused_generation = -1
        self.opened: asyncio.Future[tuple[int, list[Change]]] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        threading.Thread(target=self._run, name="ottla-embedded-store", daemon=True).start()

    def submit(self, write: _Write) -> None:
        self._queue.put(write)

    async def close(self) -> None:
        self._queue.put(None)
        await self._ended

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        try:
            connection = _open_file(self._path)
            opened = _read_all(connection)
        except Exception as error:
            if connection is not None:
                connection.close()
            self._call(_completes(self.opened, lambda: None), _explained(self._path, error))
            return
        self._call(_completes(self.opened, lambda: opened), None)
        is_open = True
        while is_open:
            writes = []
            item = self._queue.get()
            while item is not None:
                writes.append(item)
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
            is_open = item is not None
            if writes:
                self._commit(connection, writes)
        connection.close()
        self._call(_completes(self._ended, lambda: None), None)

    def _commit(self, connection: sqlite3.Connection, writes: list[_Write]) -> None:
        # Writes that the loop checked before it saw a failed commit depend on the changes that were rolled back.
        stale = [write for write in writes if write.generation == self._refused_generation]
        if stale:
            self._call(self._on_committed, stale, RuntimeError("an earlier write failed"))
            writes = writes[len(stale) :]
        if not writes:
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            for write in writes:
                for path, node in write.applied.changes:
                    _write_row(connection, path, node)
            connection.execute("UPDATE meta SET zxid = ?", (writes[-1].zxid,))
            connection.execute("COMMIT")
        except Exception as error:
            self._refused_generation = writes[-1].generation
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._call(self._on_committed, writes, error)
        else:
            self._call(self._on_committed, writes, None)

    def _call(self, callback: Callable[..., object], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            pass  # the loop is closed: nobody waits for the result


def _open_file(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    # Exclusive: the first statement takes the lock, and the connection keeps it; kill -9 releases it.
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.execute("BEGIN IMMEDIATE")
    if found == 0:
        connection.execute(
            "CREATE TABLE node (path TEXT PRIMARY KEY, data BLOB NOT NULL, czxid INTEGER NOT NULL,"
            " mzxid INTEGER NOT NULL, version INTEGER NOT NULL, ephemeral_owner INTEGER NOT NULL,"
            " creates INTEGER NOT NULL) WITHOUT ROWID"
        )
        connection.execute("CREATE TABLE meta (zxid INTEGER NOT NULL)")
        connection.execute("INSERT INTO meta VALUES (0)")
        connection.execute(f"PRAGMA user_version={FILE_FORMAT}")
    elif found != FILE_FORMAT:
        raise StoreUnreadable(f"{path} has format {found}, this release reads {FILE_FORMAT}")
    connection.execute("COMMIT")
    return connection


def _read_all(connection: sqlite3.Connection) -> tuple[int, list[Change]]:
    columns = "path, data, czxid, mzxid, version, ephemeral_owner, creates"
    rows = connection.execute(f"SELECT {columns} FROM node ORDER BY path").fetchall()
    zxid = connection.execute("SELECT zxid FROM meta").fetchone()[0]
    return zxid, [(path, Node(*rest)) for path, *rest in rows]


def _write_row(connection: sqlite3.Connection, path: str, node: Node | None) -> None:
    if node is None:
        connection.execute("DELETE FROM node WHERE path = ?", (path,))
        return
    row = (path, node.data, node.czxid, node.mzxid, node.version, node.ephemeral_owner, node.creates)
    connection.execute("INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def _explained(path: str, error: Exception) -> Exception:
    text = str(error)
    if "locked" in text:
        return StoreInUse(f"{path} is in use by another process")
    if "unable to open" in text:
        return FileNotFoundError(2, "the embedded store cannot be opened", path)
    if isinstance(error, sqlite3.Error):
        return StoreUnreadable(f"{path} cannot be read as an embedded store: {text}")
    return error
