"""The ZooKeeper adapter of the Coordination port: kazoo's asynchronous calls and raw transactions, no recipes.

kazoo's thread (`kazoo_session`) reads the server's responses and passes each to the event loop with
`call_soon_threadsafe`, so responses, watch events and session events arrive here in the server's order. Watchers are
called on the loop. kazoo gets at most WINDOW requests at a time, because submitting more writes to a pipe that could
block the loop. The others wait here; while disconnected, all requests wait.

The requests of one loop iteration are sent at its end. Consecutive reads without a watch share one request (ZooKeeper
3.6 and later): a controller reads the state of every partition, and a request costs at least 0.2 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.serialization import CheckVersion, GetACL, GetChildren, GetData, SetACL, SetData, Transaction
from kazoo.protocol.serialization import Create as CreateRequest
from kazoo.protocol.serialization import Delete as DeleteRequest
from kazoo.protocol.serialization import Exists as ExistsRequest
from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat
from kazoo.security import ACL, Id

from ottla_broker.coordination.kazoo_session import (
    LinkState,
    ReadMany,
    SaslRequired,
    SessionClient,
    request_answer,
)
from ottla_broker.coordination.tree import validate_path
from ottla_broker.coordination.watches import OneShotWatches
from ottla_broker.coordination.znode_acls import Acl, AclOf, open_acl
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
    NotPermitted,
    Operation,
    SessionEvent,
    SessionExpired,
    Set,
    Stat,
    Watcher,
    WatchEvent,
    WatchKind,
)

if TYPE_CHECKING:
    from ssl import SSLContext

    from ottla_broker.security.sasl.login import SaslLogin

WINDOW = 128
READS_PER_REQUEST = 256
JUTE_MAXBUFFER = 0xFFFFF
"""ZooKeeper's default of jute.maxbuffer: the server drops a connection with a longer request."""
REQUEST_OVERHEAD = 256
RENEW_AFTER_FAILURE_S = 1.0
EPHEMERAL, SEQUENCE = 1, 2

_ERRORS: dict[type[BaseException], type[CoordinationError]] = {
    kazoo_errors.NoNodeError: NoNode,
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.BadVersionError: BadVersion,
    kazoo_errors.NotEmptyError: NotEmpty,
    kazoo_errors.NoAuthError: NotPermitted,
    kazoo_errors.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    kazoo_errors.SessionExpiredError: SessionExpired,
    kazoo_errors.ConnectionLoss: ConnectionLoss,
    kazoo_errors.ConnectionClosedError: ConnectionLoss,
    kazoo_errors.OperationTimeoutError: ConnectionLoss,
    kazoo_errors.SessionMovedError: ConnectionLoss,
}
_UNKNOWN_SESSION: dict[type[BaseException], str] = {
    SaslRequired: "ZooKeeper takes sessions with SASL alone (sessionRequireClientSASLAuth): give "
    "ottla.zookeeper.sasl.jaas.config",
    kazoo_errors.InvalidACLError: "ZooKeeper does not know who this session is, and znodes of zookeeper.set.acl belong "
    "to somebody: give ottla.zookeeper.sasl.jaas.config, or let ZooKeeper ask for certificates (ssl.clientAuth)",
}
"""The messages for errors about who the session is."""
_RESOLVE_S = 2.0
"""For how long the names of servers that did not answer are looked up, for the message."""
_KINDS = {
    EventType.CREATED: WatchKind.CREATED,
    EventType.DELETED: WatchKind.DELETED,
    EventType.CHANGED: WatchKind.CHANGED,
    EventType.CHILD: WatchKind.CHILDREN,
}


@dataclass(frozen=True, slots=True)
class ConnectString:
    """zookeeper.connect: `hosts` as "h1:2181,h2:2181", `chroot` as "/a/b" or "".

    >>> ConnectString.parse("h1:2181,h2:2181/chroot")
    ConnectString(hosts='h1:2181,h2:2181', chroot='/chroot')
    >>> ConnectString.parse("h1:2181/")
    ConnectString(hosts='h1:2181', chroot='')
    """

    hosts: str
    chroot: str

    @classmethod
    def parse(cls, text: str) -> ConnectString:
        """Raises ValueError when zookeeper.connect is empty or has a chroot per host."""
        hosts, slash, rest = text.strip().partition("/")
        names = [host.strip() for host in hosts.split(",") if host.strip()]
        if not names:
            raise ValueError(f"zookeeper.connect names no host: {text!r}")
        if "," in rest:
            raise ValueError(f"zookeeper.connect takes one chroot, after the last host: {text!r}")
        chroot = (slash + rest).rstrip("/")
        if chroot:
            try:
                validate_path(chroot)
            except ValueError:
                raise ValueError(f"zookeeper.connect has no valid chroot: {text!r}") from None
        return cls(",".join(names), chroot)


@dataclass(slots=True, eq=False)
class _ZooKeeperCall:
    """One call. `request` is kazoo's; `convert` turns kazoo's value into the result, on the event loop."""

    path: str
    request: Any
    convert: Callable[[Any], Any]
    future: asyncio.Future[Any]
    watched_path: str = ""
    """The path with chroot of a get or exists with a watch: kazoo's thread records whether the node exists."""

    @property
    def is_plain_read(self) -> bool:
        return isinstance(self.request, GetData) and not self.watched_path


class ZooKeeperCoordination:
    """A session on a ZooKeeper ensemble (Coordination port).

    Args:
        connect: zookeeper.connect; a missing chroot is created, if `makes_chroot`.
        session_timeout_ms: zookeeper.session.timeout.ms.
        connection_timeout_ms: zookeeper.connection.timeout.ms.
        tls: gives the context of a new connection, on a thread; None for bytes as they are. What its first call
            raises, `start` raises.
        login: authenticates each new connection before its first request; None for sessions without SASL.
        acl_of: the ACL of each node that is created, by its path.

    Raises:
        ValueError: `connect` is not valid.
    """

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int = 18_000,
        logger: logging.Logger | None = None,
        tls: Callable[[], SSLContext] | None = None,
        login: SaslLogin | None = None,
        acl_of: AclOf = open_acl,
        makes_chroot: bool = True,
    ) -> None:
        self._makes_chroot = makes_chroot
        self._tls = tls
        self._login = login
        self._acl_of = acl_of
        self._connect = ConnectString.parse(connect)
        self._session_timeout_s = session_timeout_ms / 1000
        self._connection_timeout_s = connection_timeout_ms / 1000
        self._logger = logger or logging.getLogger("ottla.zookeeper")
        self._listeners: list[Callable[[SessionEvent], None]] = []
        self._watches = OneShotWatches()
        self._client: SessionClient | None = None
        self._session = (0, b"")
        self._is_started = False
        self._is_connected = False
        self._is_expired = False
        self._is_ready = False
        self._waiting: deque[_ZooKeeperCall] = deque()
        self._sent: dict[int, list[_ZooKeeperCall]] = {}
        """The calls of each request, by its number, in the order of sending."""
        self._last_number = 0
        self._is_sending_due = False
        self._can_read_many: bool | None = None
        """Whether the server supports multiRead; None before the first response."""
        self._link_changed: asyncio.Future[LinkState] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def session_id(self) -> int:
        return self._session[0]

    @property
    def session_password(self) -> bytes:
        return self._session[1]

    async def start(self, session: tuple[int, bytes] | None = None) -> None:
        if self._is_started:
            raise RuntimeError("this session was started before")
        self._is_started = True
        self._loop = asyncio.get_running_loop()
        if self._tls is not None:
            await self._loop.run_in_executor(None, self._tls)
        try:
            async with asyncio.timeout(self._connection_timeout_s):
                if session is not None and await self._open(session) is LinkState.CONNECTED:
                    assert self._client is not None
                    old, self._client = self._client, None
                    await self._in_thread(old.end)
                await self._open(None)
                if self._makes_chroot:
                    await self._make_chroot()
        except TimeoutError:
            refusal = "" if self._client is None else self._client.refusal
            self.abandon()
            hosts, seconds = self._connect.hosts, f"{self._connection_timeout_s:g} s"
            why = f" ({refusal})" if refusal else await _why_silent(self._loop, hosts)
            raise ConnectionLoss(message=f"no ZooKeeper server of {hosts} answered in {seconds}{why}") from None
        except BaseException:
            self.abandon()
            raise
        self._is_ready = True
        self._notify(SessionEvent.CONNECTED)

    async def close(self) -> None:
        self._send_waiting()
        client, self._client = self._client, None
        self._forget_session()
        if client is not None:
            # If the server does not respond, the session expires by its timeout.
            await asyncio.wait([self._in_thread(client.end)], timeout=self._connection_timeout_s)

    def abandon(self) -> None:
        client, self._client = self._client, None
        self._forget_session()
        if client is not None:
            client.drop()
            self._in_thread(client.release)

    def add_session_listener(self, listener: Callable[[SessionEvent], None]) -> None:
        self._listeners.append(listener)

    def get(self, path: str, watch: Watcher | None = None) -> asyncio.Future[tuple[bytes, Stat]]:
        def convert(value: tuple[bytes | None, ZnodeStat]) -> tuple[bytes, Stat]:
            if watch is not None:
                self._watches.add_data(path, watch)
            return value[0] or b"", _stat(value[1])

        whole = self._whole(path)
        request = GetData(whole, self._on_watch if watch else None)
        return self._call(path, request, convert, whole if watch else "")

    def exists(self, path: str, watch: Watcher | None = None) -> asyncio.Future[Stat | None]:
        def convert(value: ZnodeStat | None) -> Stat | None:
            if watch is not None:
                self._watches.add_data(path, watch)
            return None if value is None else _stat(value)

        whole = self._whole(path)
        request = ExistsRequest(whole, self._on_watch if watch else None)
        return self._call(path, request, convert, whole if watch else "")

    def children(self, path: str, watch: Watcher | None = None) -> asyncio.Future[list[str]]:
        def convert(value: list[str]) -> list[str]:
            if watch is not None:
                self._watches.add_children(path, watch)
            return sorted(value)

        request = GetChildren(self._whole(path), self._on_watch if watch else None)
        return self._call(path, request, convert)

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> asyncio.Future[str]:
        return self._write_one(Create(path, data, ephemeral, sequence), self._unchrooted)

    def set(self, path: str, data: bytes, version: int = -1) -> asyncio.Future[Stat]:
        return self._write_one(Set(path, data, version), _stat)

    def delete(self, path: str, version: int = -1) -> asyncio.Future[None]:
        return self._write_one(Delete(path, version), lambda _: None)

    def acl(self, path: str) -> asyncio.Future[tuple[Acl, Stat]]:
        """The ACL of a node and its metadata. Not in the port: only ZooKeeper has one."""

        def convert(value: tuple[list[ACL], ZnodeStat]) -> tuple[Acl, Stat]:
            return tuple((entry.perms, entry.id.scheme, entry.id.id) for entry in value[0]), _stat(value[1])

        return self._call(path, GetACL(self._whole(path)), convert)

    def set_acl(self, path: str, acl: Acl) -> asyncio.Future[None]:
        """Replaces the ACL of a node, whatever it was."""
        return self._call(path, SetACL(self._whole(path), _kazoo_acl(acl), -1), lambda _: None)

    def multi(self, operations: Sequence[Operation]) -> asyncio.Future[list[str | Stat | None]]:
        requests = [self._request(operation) for operation in operations]

        def convert(results: list[Any]) -> list[str | Stat | None]:
            for index, result in enumerate(results):
                # Operations before the failed one are "rolled back", those after it "not tried".
                if isinstance(result, Exception) and not isinstance(result, kazoo_errors.RolledBackError):
                    raise MultiFailed(index, _error(operations[index].path, result))
            return [self._result(result) for result in results]

        first = operations[0].path if operations else ""
        refusal = _too_long(first, requests)
        return self._failed(refusal) if refusal else self._call(first, Transaction(requests), convert)

    def _write_one(self, operation: Operation, convert: Callable[[Any], Any]) -> asyncio.Future[Any]:
        request = self._request(operation)
        refusal = _too_long(operation.path, [request])
        return self._failed(refusal) if refusal else self._call(operation.path, request, convert)

    def _request(self, operation: Operation) -> Any:
        """kazoo's request. Empty data is stored as null, which Apache Kafka reads as "not written yet"."""
        path = operation.path
        match operation:
            case Create():
                whole = self._whole(path + "0")[:-1] if operation.sequence else self._whole(path)
                flags = (EPHEMERAL if operation.ephemeral else 0) | (SEQUENCE if operation.sequence else 0)
                return CreateRequest(whole, bytes(operation.data) or None, _kazoo_acl(self._acl_of(path)), flags)
            case Set():
                return SetData(self._whole(path), bytes(operation.data) or None, operation.version)
            case Delete():
                return DeleteRequest(self._whole(path), operation.version)
            case Check():
                return CheckVersion(self._whole(path), operation.version)

    def _result(self, value: Any) -> str | Stat | None:
        if isinstance(value, str):
            return self._unchrooted(value)
        return _stat(value) if isinstance(value, ZnodeStat) else None

    def _whole(self, path: str) -> str:
        validate_path(path)
        return (self._connect.chroot + path).rstrip("/") or "/"

    def _unchrooted(self, whole: str) -> str:
        return whole[len(self._connect.chroot) :] or "/"

    def _call(
        self,
        path: str,
        request: Any,
        convert: Callable[[Any], Any],
        watched_path: str = "",
    ) -> asyncio.Future[Any]:
        if self._is_expired:
            return self._failed(SessionExpired(path))
        if self._client is None:
            return self._failed(ConnectionLoss(path, "the session is not open"))
        call = _ZooKeeperCall(path, request, convert, asyncio.get_running_loop().create_future(), watched_path)
        self._waiting.append(call)
        if not self._is_sending_due:
            self._is_sending_due = True
            asyncio.get_running_loop().call_soon(self._send_waiting)
        return call.future

    def _failed(self, error: Exception) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(error)
        return future

    def _send_waiting(self) -> None:
        self._is_sending_due = False
        client = self._client
        if client is None or not self._is_connected:
            return
        while self._waiting and len(self._sent) < WINDOW:
            if self._can_read_many is None and self._sent and self._are_reads_next():
                return  # first alone: a server without multiRead responds out of order and closes the connection
            calls = self._next_calls()
            request = calls[0].request if len(calls) == 1 else ReadMany([call.request.path for call in calls])
            self._last_number = number = self._last_number + 1
            self._sent[number] = calls
            result = client.handler.async_result()
            # Linked before sending: the response may arrive at once, followed by its watch event, and kazoo would run a
            # later link on this thread.
            watched = calls[0].watched_path
            result.rawlink(partial(self._on_response, client, number, watched))
            client._call(request, result)

    def _are_reads_next(self) -> bool:
        """Whether two plain reads or more come next."""
        return len(self._waiting) > 1 and self._waiting[0].is_plain_read and self._waiting[1].is_plain_read

    def _next_calls(self) -> list[_ZooKeeperCall]:
        """The first waiting call; if it is a plain read, with the plain reads directly after it."""
        calls = [self._waiting.popleft()]
        if self._can_read_many is not False and calls[0].is_plain_read:
            while self._waiting and self._waiting[0].is_plain_read and len(calls) < READS_PER_REQUEST:
                calls.append(self._waiting.popleft())
        return calls

    # ---- on the connection's thread

    def _on_response(self, client: SessionClient, number: int, watched_path: str, result: Any) -> None:
        value, error = request_answer(result)
        if watched_path and error is None:
            client.note_existence(watched_path, value is not None)
        self._to_loop(self._on_answer, number, value, error)

    def _on_watch(self, event: WatchedEvent) -> None:
        if event.type in _KINDS:
            self._to_loop(self._on_event, WatchEvent(_KINDS[event.type], self._unchrooted(event.path)))

    def _on_link(self, client: SessionClient, state: LinkState) -> None:
        self._to_loop(self._on_state, client, state, client.session)

    def _to_loop(self, callback: Callable[..., object], *arguments: Any) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            pass  # the loop is closed: nobody waits for the result

    # ---- on the loop, in the order of the connection's thread

    def _on_answer(self, number: int, value: Any, error: BaseException | None) -> None:
        calls = self._sent.pop(number, None)
        if calls is None:
            return  # failed at the end of the session
        if len(calls) == 1:
            self._complete(calls[0], value, error)
        elif isinstance(error, kazoo_errors.UnimplementedError):
            self._can_read_many = False  # ZooKeeper 3.5, which closes the connection now
            self._waiting.extendleft(reversed(calls))
        else:
            if error is None:
                self._can_read_many = True
            for call, (one, refusal) in zip(calls, value or [(None, error)] * len(calls), strict=True):
                self._complete(call, one, refusal)
        self._send_waiting()

    def _complete(self, call: _ZooKeeperCall, value: Any, error: BaseException | None) -> None:
        result: Any = None
        if error is None:
            try:
                result = call.convert(value)  # also for a cancelled call: the server has set its watch
            except CoordinationError as refused:
                error = refused
        else:
            error = _error(call.path, error)
        if call.future.done():
            return
        if error is None:
            call.future.set_result(result)
        else:
            call.future.set_exception(error)

    def _on_event(self, event: WatchEvent) -> None:
        for watcher in self._watches.take(event):
            self._guarded(watcher, event)

    def _on_state(self, client: SessionClient, state: LinkState, session: tuple[int, bytes]) -> None:
        if client is not self._client:
            return
        self._is_connected = state is LinkState.CONNECTED
        if self._link_changed is not None:
            if state is not LinkState.SUSPENDED and not self._link_changed.done():
                self._session = session
                self._link_changed.set_result(state)
            return
        if state is LinkState.CONNECTED:
            self._session = session
            self._is_expired = False
            self._notify(SessionEvent.CONNECTED)
            self._send_waiting()
        elif state is LinkState.SUSPENDED:
            self._notify(SessionEvent.SUSPENDED)
        elif state is LinkState.EXPIRED:
            self._expire(client)
            self._notify(SessionEvent.EXPIRED)
            self._renew(client)
        else:
            # kazoo stopped after an internal error. At the server the session may last until its timeout.
            self._expire(client)
            self._notify(SessionEvent.EXPIRED)
            asyncio.get_running_loop().call_later(RENEW_AFTER_FAILURE_S, self._renew, client)

    def _expire(self, old: SessionClient) -> None:
        """Fails all calls of the expired session."""
        self._in_thread(old.release)
        self._is_expired = True
        self._watches.clear()
        self._fail_all(SessionExpired)

    def _renew(self, old: SessionClient) -> None:
        if self._client is old:  # else closed or abandoned meanwhile
            self._new_client(None)

    def _forget_session(self) -> None:
        self._is_connected = self._is_expired = False
        self._watches.clear()
        self._fail_all(ConnectionLoss)

    def _fail_all(self, error: type[CoordinationError]) -> None:
        calls = [*(call for sent in self._sent.values() for call in sent), *self._waiting]
        self._sent.clear()
        self._waiting.clear()
        for call in calls:
            if not call.future.done():
                call.future.set_exception(error(call.path))

    def _new_client(self, session: tuple[int, bytes] | None) -> None:
        self._client = SessionClient(
            self._connect.hosts,
            self._session_timeout_s,
            session,
            self._on_link,
            self._logger,
            tls=self._tls,
            login=self._login,
        )
        self._client.start_async()

    async def _open(self, session: tuple[int, bytes] | None) -> LinkState:
        """Connects once. EXPIRED when the session to attach to does not exist; then there is no client."""
        self._link_changed = asyncio.get_running_loop().create_future()
        self._new_client(session)
        try:
            state = await self._link_changed
        finally:
            self._link_changed = None
        if state is not LinkState.CONNECTED and self._client is not None:
            self._in_thread(self._client.release)
            self._client = None
        return state

    async def _make_chroot(self) -> None:
        chroot = self._connect.chroot
        if not chroot or await self.exists("/") is not None:
            return
        parts = chroot[1:].split("/")
        for depth in range(1, len(parts) + 1):
            request = CreateRequest("/" + "/".join(parts[:depth]), None, _kazoo_acl(self._acl_of("/")), 0)
            try:
                await self._call(request.path, request, lambda _: None)
            except NodeExists:
                pass

    def _in_thread(self, blocking: Callable[[], None]) -> asyncio.Future[None]:
        """Runs a blocking call of kazoo on its own thread (daemon: a dead server must not delay the exit)."""
        assert self._loop is not None
        ended: asyncio.Future[None] = self._loop.create_future()

        def run() -> None:
            try:
                blocking()
            except Exception as error:
                self._logger.warning("closing a ZooKeeper connection: %s", error)
            self._to_loop(_complete_once, ended)

        threading.Thread(target=run, name="ottla-zookeeper-close", daemon=True).start()
        return ended

    def _notify(self, event: SessionEvent) -> None:
        for listener in list(self._listeners) if self._is_ready else []:
            self._guarded(listener, event)

    def _guarded(self, callback: Callable[[Any], None], argument: Any) -> None:
        try:
            callback(argument)
        except Exception as error:
            context = {"message": f"a coordination callback failed on {argument}", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)


def _complete_once(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.czxid, stat.mzxid, stat.version, stat.ephemeralOwner, stat.numChildren)


@functools.cache
def _kazoo_acl(acl: Acl) -> list[ACL]:
    return [ACL(permissions, Id(scheme, identity)) for permissions, scheme, identity in acl]


def _error(path: str, error: BaseException) -> CoordinationError:
    if message := _UNKNOWN_SESSION.get(type(error)):
        return CoordinationError(path, message)
    kind = _ERRORS.get(type(error))
    return kind(path) if kind else CoordinationError(path, f"ZooKeeper refused {path}: {error!r}")


def _too_long(path: str, requests: Sequence[Any]) -> CoordinationError | None:
    length = REQUEST_OVERHEAD + sum(len(request.serialize()) + 9 for request in requests)
    if length <= JUTE_MAXBUFFER:
        return None
    return CoordinationError(path, f"the write of {path} takes {length} bytes, ZooKeeper takes {JUTE_MAXBUFFER}")


async def _why_silent(loop: asyncio.AbstractEventLoop, hosts: str) -> str:
    """The end of a message about servers that did not answer: which of their names have no address.

    They may have had none at the first attempt either, as while a machine boots: so it was no reason to end.
    """
    unknown: list[str] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_RESOLVE_S):
            for server in hosts.split(","):
                host = server.rpartition(":")[0].strip("[]")
                try:
                    await loop.getaddrinfo(host, None)
                except OSError:
                    unknown.append(host)
    return f" (no such host: {', '.join(unknown)})" if unknown else ""
