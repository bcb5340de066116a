"""The simulated Coordination: one znode store for the run, and a session per process with delays and expiry.

`SimulatedStore` is ZooKeeper's model (versions, zxids, ephemeral owners, sequence numbers, `multi`, one-shot watches)
without errors. The seed varies the delivery: requests of a session reach the store in the order of the calls, and
responses and watch events return in one order, so a watch fires before any read that sees the change completes.

Faults: `SimulatedStore.expire` ends a session at the server. `SimulatedStore.disconnect` breaks the connection for a
while; a request in flight fails with ConnectionLoss, applied or not. `SimulatedStore.slow_s` delays everything.
`SimulatedCoordination.hold` delays what the server sends to one process. `SimulatedStore.remove` deletes a node, as a
person with a shell can. The session of a dead or abandoned process ends by its timeout.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla_broker.coordination.tree import validate_path
from ottla_broker.ports.coordination import (
    BadVersion,
    Check,
    ConnectionLoss,
    CoordinationError,
    Create,
    Delete,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionEvent,
    SessionExpired,
    Set,
    Stat,
    Watcher,
    WatchEvent,
    WatchKind,
)
from simulation.handle import Handle
from simulation.world import SimulatedProcess, World


@dataclass
class _Znode:
    data: bytes
    czxid: int
    mzxid: int
    owner: int
    version: int = 0
    next_sequence: int = 0
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> Stat:
        return Stat(self.czxid, self.mzxid, self.version, self.owner, len(self.children))


@dataclass
class _Session:
    """A session at the server. `link` is the connection that holds it now."""

    id: int
    password: bytes
    timeout_s: float
    link: SimulatedCoordination | None = None
    expiry: Handle | None = None
    ephemerals: dict[str, None] = field(default_factory=dict)


_Undo = list[Callable[[], None]]
_Watch = tuple["SimulatedCoordination", Watcher]
"""Whose, and what to call: the same callback left twice on a path counts once."""


class SimulatedStore:
    """The znodes and sessions of one run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.stream("coordination")
        self.sessions: dict[int, _Session] = {}
        self._nodes: dict[str, _Znode] = {"/": _Znode(b"", 0, 0, 0)}
        self._zxid = 0
        self.slow_s = 0.0
        """Up to so many seconds more for every way between a broker and the ensemble."""
        self.observers: list[Callable[[str], None]] = []
        """Called with the path of every node that was made, changed or deleted, once its transaction is done."""
        self._data_watches: dict[str, dict[_Watch, None]] = {}
        self._child_watches: dict[str, dict[_Watch, None]] = {}
        self._next_session = 0x1000_0000_0000

    def delay(self) -> float:
        """Seconds of one way between a broker and the ensemble."""
        draw = self.random.random
        seconds = 0.0002 + 0.002 * draw() + (0.2 * draw() if draw() < 0.02 else 0.0)
        return seconds + self.slow_s * draw() if self.slow_s else seconds

    # -- what tests and the checker read -----------------------------------------------------------------------------

    def data(self, path: str) -> bytes | None:
        node = self._nodes.get(path)
        return None if node is None else node.data

    def names(self, path: str) -> list[str]:
        node = self._nodes.get(path)
        return [] if node is None else sorted(node.children)

    def owner(self, path: str) -> int:
        """The session that holds an ephemeral node; 0 when it is absent or persistent."""
        node = self._nodes.get(path)
        return 0 if node is None else node.owner

    # -- faults -----------------------------------------------------------------------------------------------------

    def remove(self, path: str) -> None:
        """Somebody deletes a node, whoever owns it; nothing when it is absent."""
        if path in self._nodes:
            self.world.trace.event("remove", path)
            self._zxid += 1
            self._delete(Delete(path), [])

    def expire(self, session_id: int) -> None:
        """Ends a session at the server; its client learns of it later."""
        session = self.sessions.get(session_id)
        if session is None:
            return
        self.world.counters.session_expiries += 1
        self.world.trace.event("expire", session_id)
        self.end_session(session)
        if session.link is not None:
            session.link.server_expired()

    def disconnect(self, coordination: SimulatedCoordination, seconds: float) -> None:
        """Takes the connection away; it comes back after `seconds`, too late when that is beyond the timeout."""
        self.world.trace.event("disconnect", coordination.session_id, seconds)
        coordination.server_disconnected(seconds)

    # -- sessions ---------------------------------------------------------------------------------------------------

    def open_session(self, link: SimulatedCoordination, timeout_s: float) -> _Session:
        self._next_session += 1
        password = self.random.getrandbits(128).to_bytes(16, "big")
        session = _Session(self._next_session, password, timeout_s, link)
        self.sessions[session.id] = session
        self.world.trace.event("session", session.id)
        return session

    def end_session(self, session: _Session) -> None:
        """Removes the session and its ephemeral nodes."""
        if self.sessions.pop(session.id, None) is None:
            return
        if session.expiry is not None:
            session.expiry.cancel()
        self.world.trace.event("session-end", session.id)
        self._zxid += 1
        for path in list(session.ephemerals):
            self._delete(Delete(path), [])

    def leave(self, session: _Session) -> None:
        """Nobody speaks for the session any more: it ends by its timeout, unless somebody takes it up before."""
        session.link = None
        if session.id in self.sessions:
            after = session.timeout_s * (0.7 + 0.3 * self.random.random())
            session.expiry = self.world.call_later(after, self.end_session, session)

    # -- requests ---------------------------------------------------------------------------------------------------

    def execute(self, session: _Session, request: Callable[[_Session], Any]) -> Any:
        if session.id not in self.sessions:
            raise SessionExpired("", "the session has ended")
        return request(session)

    def get(self, path: str) -> tuple[bytes, Stat]:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        return node.data, node.stat()

    def exists(self, path: str) -> Stat | None:
        node = self._nodes.get(path)
        return None if node is None else node.stat()

    def children(self, path: str) -> list[str]:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        return sorted(node.children)

    def watch(self, link: SimulatedCoordination, path: str, watcher: Watcher, *, children: bool = False) -> None:
        watches = self._child_watches if children else self._data_watches
        watches.setdefault(path, {})[(link, watcher)] = None

    def forget_watches(self, link: SimulatedCoordination) -> None:
        for watches in (self._data_watches, self._child_watches):
            for path in list(watches):
                left = {watch: None for watch in watches[path] if watch[0] is not link}
                if left:
                    watches[path] = left
                else:
                    del watches[path]

    def write(self, session: _Session, operations: Sequence[Operation], *, is_multi: bool) -> list[Any]:
        """All or nothing. MultiFailed when `is_multi`, else the error of the one operation."""
        self._zxid += 1
        undo: _Undo = []
        events: list[tuple[WatchKind, str]] = []
        results: list[Any] = []
        for index, operation in enumerate(operations):
            try:
                results.append(self._apply(session, operation, undo, events))
            except CoordinationError as error:
                for step in reversed(undo):
                    step()
                if is_multi:
                    raise MultiFailed(index, error) from error
                raise
        for kind, path in events:
            self._fire(kind, path)
        return results

    def _apply(
        self, session: _Session, operation: Operation, undo: _Undo, events: list[tuple[WatchKind, str]]
    ) -> str | Stat | None:
        if isinstance(operation, Create):
            return self._create(session, operation, undo, events)
        if isinstance(operation, Set):
            node = self._checked(operation.path, operation.version)
            before = (node.data, node.version, node.mzxid)

            def restore() -> None:
                node.data, node.version, node.mzxid = before

            undo.append(restore)
            node.data, node.version, node.mzxid = bytes(operation.data), node.version + 1, self._zxid
            events.append((WatchKind.CHANGED, operation.path))
            return node.stat()
        if isinstance(operation, Delete):
            self._delete(operation, undo, events)
            return None
        self._checked(operation.path, operation.version)
        return None

    def _checked(self, path: str, version: int) -> _Znode:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        if version not in (-1, node.version):
            raise BadVersion(path)
        return node

    def _create(self, session: _Session, operation: Create, undo: _Undo, events: list[tuple[WatchKind, str]]) -> str:
        parent_path, _, name = operation.path.rpartition("/")
        parent_path = parent_path or "/"
        parent = self._nodes.get(parent_path)
        if parent is None:
            raise NoNode(operation.path)
        if parent.owner:
            raise NoChildrenForEphemerals(operation.path)
        if operation.sequence:
            name = f"{name}{parent.next_sequence:010d}"
        path = (parent_path if parent_path != "/" else "") + "/" + name
        if path in self._nodes:
            raise NodeExists(path)
        parent.next_sequence += 1
        owner = session.id if operation.ephemeral else 0
        self._nodes[path] = _Znode(bytes(operation.data), self._zxid, self._zxid, owner)
        parent.children[name] = None
        if owner:
            session.ephemerals[path] = None

        def remove() -> None:
            del self._nodes[path]
            del parent.children[name]
            parent.next_sequence -= 1
            session.ephemerals.pop(path, None)

        undo.append(remove)
        events += [(WatchKind.CREATED, path), (WatchKind.CHILDREN, parent_path)]
        return path

    def _delete(self, operation: Delete, undo: _Undo, events: list[tuple[WatchKind, str]] | None = None) -> None:
        path = operation.path
        node = self._checked(path, operation.version)
        if node.children:
            raise NotEmpty(path)
        parent_path, _, name = path.rpartition("/")
        parent_path = parent_path or "/"
        parent = self._nodes[parent_path]
        session = self.sessions.get(node.owner)
        del self._nodes[path]
        del parent.children[name]
        if session is not None:
            session.ephemerals.pop(path, None)

        def restore() -> None:
            self._nodes[path] = node
            parent.children[name] = None
            if session is not None:
                session.ephemerals[path] = None

        undo.append(restore)
        told = [(WatchKind.DELETED, path), (WatchKind.CHILDREN, parent_path)]
        if events is None:
            for kind, changed in told:
                self._fire(kind, changed)
        else:
            events += told

    def _fire(self, kind: WatchKind, path: str) -> None:
        watches: dict[_Watch, None] = {}
        if kind is not WatchKind.CHILDREN:
            for observer in self.observers:
                observer(path)
            watches |= self._data_watches.pop(path, {})
        if kind in (WatchKind.CHILDREN, WatchKind.DELETED):
            watches |= self._child_watches.pop(path, {})
        event = WatchEvent(kind, path)
        for link, watcher in watches:
            link.server_event(event, watcher)


@dataclass
class _Request:
    act: Callable[[_Session], Any]
    future: asyncio.Future[Any]
    label: str
    is_done: bool = False


class SimulatedCoordination:
    """The Coordination port of one process."""

    def __init__(self, process: SimulatedProcess, store: SimulatedStore, *, session_timeout_s: float = 18.0) -> None:
        self._process = process
        self._store = store
        self._world = process.world
        self._timeout_s = session_timeout_s
        self._session: _Session | None = None
        self._listeners: list[Callable[[SessionEvent], None]] = []
        self._is_connected = False
        self._is_expired = False
        self._is_ended = False
        self._requests: list[_Request] = []
        """On their way, in order."""
        self._held: list[_Request] = []
        """Made while suspended: they wait for CONNECTED or EXPIRED."""
        self._generation = 0
        self._last_out = 0.0
        self._last_in = 0.0
        self._undelivered: dict[int, tuple[WatchEvent, Watcher]] = {}
        self._next_event = 0
        self._kept_back: list[Callable[[], None]] | None = None
        process.on_kill(self._die)

    # -- the port ---------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        return self._session.id if self._session is not None else 0

    @property
    def session_password(self) -> bytes:
        return self._session.password if self._session is not None else b""

    async def start(self, session: tuple[int, bytes] | None = None) -> None:
        store = self._store
        await self._travel()
        if session is not None:
            old = store.sessions.get(session[0])
            if old is not None and old.password == session[1]:
                store.end_session(old)
        self._session = store.open_session(self, self._timeout_s)
        await self._travel()
        self._is_connected = True
        self._tell(SessionEvent.CONNECTED)

    async def close(self) -> None:
        if self._is_ended:
            return
        session = self._session
        await self._travel()
        if self._is_ended:
            return
        self._stop()
        if session is not None:
            self._store.end_session(session)
        await self._travel()

    def abandon(self) -> None:
        if not self._is_ended:
            self._stop()
            if self._session is not None:
                self._store.leave(self._session)

    def add_session_listener(self, listener: Callable[[SessionEvent], None]) -> None:
        self._listeners.append(listener)

    def get(self, path: str, watch: Watcher | None = None) -> asyncio.Future[tuple[bytes, Stat]]:
        def act(session: _Session) -> tuple[bytes, Stat]:
            result = self._store.get(path)
            if watch is not None:
                self._store.watch(self, path, watch)
            return result

        return self._ask("get " + path, act, [path])

    def exists(self, path: str, watch: Watcher | None = None) -> asyncio.Future[Stat | None]:
        def act(session: _Session) -> Stat | None:
            if watch is not None:
                self._store.watch(self, path, watch)
            return self._store.exists(path)

        return self._ask("exists " + path, act, [path])

    def children(self, path: str, watch: Watcher | None = None) -> asyncio.Future[list[str]]:
        def act(session: _Session) -> list[str]:
            result = self._store.children(path)
            if watch is not None:
                self._store.watch(self, path, watch, children=True)
            return result

        return self._ask("children " + path, act, [path])

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> asyncio.Future[str]:
        return self._write_one(Create(path, bytes(data), ephemeral, sequence))

    def set(self, path: str, data: bytes, version: int = -1) -> asyncio.Future[Stat]:
        return self._write_one(Set(path, bytes(data), version))

    def delete(self, path: str, version: int = -1) -> asyncio.Future[None]:
        return self._write_one(Delete(path, version))

    def multi(self, operations: Sequence[Operation]) -> asyncio.Future[list[str | Stat | None]]:
        asked = tuple(operations)
        label = "multi " + " ".join(_label(operation) for operation in asked)
        paths = [_validated(operation) for operation in asked]
        return self._ask(label, lambda session: self._store.write(session, asked, is_multi=True), paths)

    # -- the road there and back ------------------------------------------------------------------------------------

    def _write_one(self, operation: Operation) -> asyncio.Future[Any]:
        return self._ask(
            _label(operation),
            lambda session: self._store.write(session, [operation], is_multi=False)[0],
            [_validated(operation)],
        )

    def _ask(self, label: str, act: Callable[[_Session], Any], paths: Sequence[str]) -> asyncio.Future[Any]:
        for path in paths:
            validate_path(path)
        future: asyncio.Future[Any] = self._world.loop.create_future()
        if self._is_expired:
            future.set_exception(SessionExpired("", "the session has expired"))
        elif self._is_ended or self._session is None:
            future.set_exception(ConnectionLoss("", "not connected"))
        else:
            request = _Request(act, future, label)
            if self._is_connected:
                self._send(request)
            else:
                self._held.append(request)
        return future

    def _send(self, request: _Request) -> None:
        self._requests.append(request)
        now = self._world.loop.time()
        self._last_out = max(self._last_out, now + self._store.delay())
        self._world.call_at(self._last_out, self._reach_store, request, self._generation)

    def _reach_store(self, request: _Request, generation: int) -> None:
        """The store handles one request (in the world's context)."""
        if generation != self._generation or self._session is None:
            return
        request.is_done = True
        error: CoordinationError | None = None
        result: Any = None
        try:
            result = self._store.execute(self._session, request.act)
        except CoordinationError as raised:
            error = raised
        self._world.trace.event("znode", self._process.name, request.label, type(error).__name__)

        def answer() -> None:
            if request in self._requests:
                self._requests.remove(request)
            if not request.future.done():
                if error is not None:
                    request.future.set_exception(error)
                else:
                    request.future.set_result(result)

        self._come_back(answer)

    def server_event(self, event: WatchEvent, watcher: Watcher) -> None:
        """A watch fired at the store."""

        self._next_event += 1
        key = self._next_event
        self._undelivered[key] = (event, watcher)
        if self._is_connected:
            self._come_back(lambda: self._deliver_event(key))

    def _deliver_event(self, key: int) -> None:
        event, watcher = self._undelivered.pop(key)
        self._world.trace.event("watch", self._process.name, event.kind.value, event.path)
        watcher(event)

    def _come_back(self, deliver: Callable[[], None]) -> None:
        """Answers and events share one order."""
        if self._kept_back is not None:
            self._kept_back.append(deliver)
            return
        now = self._world.loop.time()
        self._last_in = max(self._last_in, now + self._store.delay())
        generation = self._generation

        def arrive() -> None:
            if generation == self._generation and not self._is_ended:
                deliver()

        self._process.call_at(self._last_in, arrive)

    def hold(self) -> None:
        """From now on no answer and no event of the server arrives, as from one that lags behind; what the process asks
        for is done all the same. It lasts until `let_go`, or until the connection is lost."""
        if self._kept_back is None:
            self._world.trace.event("hold", self.session_id)
            self._kept_back = []

    def let_go(self) -> None:
        """What was kept back arrives, in its order."""
        kept_back, self._kept_back = self._kept_back or [], None
        self._world.trace.event("let-go", self.session_id, len(kept_back))
        for deliver in kept_back:
            self._come_back(deliver)

    def _travel(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._world.loop.create_future()

        def arrived() -> None:
            if not future.done():
                future.set_result(None)

        self._process.call_at(self._world.loop.time() + self._store.delay(), arrived)
        return future

    # -- the session's life -----------------------------------------------------------------------------------------

    def server_expired(self) -> None:
        """The server ended our session (in the world's context): we lose the connection, then learn why."""
        if self._is_ended or not self._is_connected:
            return
        self._lose_connection()
        draw = self._store.random.random
        self._process.call_at(self._world.loop.time() + 0.01 + 0.5 * draw(), self._learn_expiry, self._generation)

    def server_disconnected(self, seconds: float) -> None:
        if self._is_ended or not self._is_connected or self._session is None:
            return
        self._lose_connection()
        self._store.leave(self._session)
        self._process.call_at(self._world.loop.time() + seconds, self._reconnect, self._generation)

    def _lose_connection(self) -> None:
        self._is_connected = False
        self._kept_back = None
        self._generation += 1
        lost, self._requests = self._requests, []
        self._process.call_soon(self._suspend, lost)

    def _suspend(self, lost: list[_Request]) -> None:
        self._tell(SessionEvent.SUSPENDED)
        _fail(lost, ConnectionLoss("", "the connection broke; the outcome is unknown"))

    def _reconnect(self, generation: int) -> None:
        session = self._session
        if generation != self._generation or self._is_ended or session is None:
            return
        if session.id not in self._store.sessions:
            self._learn_expiry(generation)
            return
        if session.expiry is not None:
            session.expiry.cancel()
            session.expiry = None
        session.link = self
        self._is_connected = True
        self._tell(SessionEvent.CONNECTED)
        # What fired meanwhile, or was on its way when the connection broke: a client that comes back sets its watches
        # again and the server tells it what it missed, before it answers anything else.
        for key in list(self._undelivered):
            self._come_back(lambda key=key: self._deliver_event(key))  # type: ignore[misc]
        self._send_held()

    def _learn_expiry(self, generation: int) -> None:
        if generation != self._generation or self._is_ended:
            return
        self._is_expired = True
        self._store.forget_watches(self)
        self._undelivered.clear()
        self._tell(SessionEvent.EXPIRED)
        held, self._held = self._held, []
        _fail(held, SessionExpired("", "the session has expired"))
        self._process.call_at(self._world.loop.time() + self._store.delay(), self._renew)

    def _renew(self) -> None:
        """A new session: its id is there when CONNECTED is told."""
        if self._is_ended:
            return
        self._session = self._store.open_session(self, self._timeout_s)
        self._is_expired = False
        self._is_connected = True
        self._tell(SessionEvent.CONNECTED)
        self._send_held()

    def _send_held(self) -> None:
        held, self._held = self._held, []
        for request in held:
            self._send(request)

    def _tell(self, event: SessionEvent) -> None:
        self._world.trace.event("session-event", self._process.name, event.value)
        for listener in list(self._listeners):
            listener(event)

    def _stop(self) -> None:
        self._is_ended = True
        self._is_connected = False
        self._generation += 1
        self._store.forget_watches(self)
        failed = self._requests + self._held
        self._requests, self._held = [], []
        _fail(failed, ConnectionLoss("", "the coordination store was closed"))

    def _die(self, power_loss: bool) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        self._generation += 1
        self._store.forget_watches(self)
        if self._session is not None:
            self._store.leave(self._session)


def _fail(requests: Sequence[_Request], error: CoordinationError) -> None:
    for request in requests:
        if not request.future.done():
            request.future.set_exception(error)


def _validated(operation: Operation) -> str:
    # The name of a sequential node may still be empty.
    is_prefix = isinstance(operation, Create) and operation.sequence
    return operation.path + "0" if is_prefix else operation.path


def _label(operation: Operation) -> str:
    if isinstance(operation, Create):
        kind = "create" + "-ephemeral" * operation.ephemeral + "-sequence" * operation.sequence
        return f"{kind} {operation.path} {zlib.crc32(operation.data)}"
    if isinstance(operation, Set):
        return f"set {operation.path} {operation.version} {zlib.crc32(operation.data)}"
    if isinstance(operation, Check):
        return f"check {operation.path} {operation.version}"
    return f"delete {operation.path} {operation.version}"
