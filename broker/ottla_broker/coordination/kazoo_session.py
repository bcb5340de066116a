"""One ZooKeeper session on kazoo, on kazoo's thread; `zookeeper` is the part on the event loop.

kazoo runs without its recipes, retries and worker threads. Eight differences, each held by a test:

- Responses and watch events are handled on the connection's thread, so that they reach the event loop in the order in
  which the server sent them. kazoo's two worker threads would lose the order.
- Watches survive a lost connection. kazoo drops them; here SetWatches sets them again, and the server then sends the
  events that were missed.
- A server that cannot be reached, or accepts the connection and does not respond, is abandoned after a part of the
  session timeout. kazoo waits for the whole timeout, after which no other server can continue the session.
- A server that stops responding is abandoned after half of the session timeout, not two thirds, to leave time for
  another. A ping is sent after a third of the timeout, as by the Java client: each ping extends the session, and with
  it the time until an election when the broker is killed.
- This also applies while requests are sent. kazoo resets its read timeout with every request that it sends.
- TLS has a context of ours (`ottla_broker.security`), read again for each connection, and bytes that OpenSSL has
  decrypted and nobody has read are not waited for.
- SASL (DIGEST-MD5) is ours, and comes before the session counts as connected: kazoo reports it first, and its library
  for SASL is not kept up. A server that refuses, or does not prove that it knows the password, is left for the next. A
  session that no server has let in for its timeout is given up, since each try keeps its ephemeral nodes alive.
- An expired session ends the client. kazoo opens a new session in the same client, and a call of a component that has
  not seen EXPIRED yet would run in the new session.
"""

from __future__ import annotations

import logging
import math
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, AuthFailedError, ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import STOP_CONNECTING, ConnectionHandler
from kazoo.protocol.serialization import SASL, Connect, GetData, read_buffer, stat_struct
from kazoo.protocol.states import Callback, KeeperState, ZnodeStat
from kazoo.retry import KazooRetry

from ottla_broker.security.sasl.digest_md5 import DigestError, check_proof, respond

if TYPE_CHECKING:
    from ssl import SSLContext

    from ottla_broker.security.sasl.login import SaslLogin

RECONNECT_DELAY_S = 0.05
RECONNECT_MAX_DELAY_S = 1.0
STOP_TIMEOUT_S = 10.0
ROUND_PART = 1 / 4
"""The part of the session timeout for a first attempt to connect to all servers. Each server gets its share to accept
the connection and the same time to respond. It doubles behind a round in which a server took its whole share, for
servers that respond slowly; not behind one in which all refused, as while they start."""
SILENCE_PART = 1 / 2
"""The part of the session timeout after which a server that does not respond is abandoned."""
ANSWER_PART = 1 / 6
"""The part of the session timeout that the server has at least to respond to a request."""
_KAZOO_SILENCE_PART = 2 / 3
"""kazoo's read timeout as a part of the session timeout. kazoo sends a ping after half of it."""
REFUSALS_LOGGED_EVERY_S = 60.0
_AUTH_FAILED, _SASL_REQUIRED = AuthFailedError.code, -124
SET_WATCHES_BYTES = 128 * 1024
"""Paths per SetWatches request, well below the server's jute.maxbuffer."""


class SaslRequired(AuthFailedError):  # type: ignore[misc]
    """The server takes sessions with SASL alone (SESSIONCLOSEDREQUIRESASLAUTH, which kazoo does not know)."""

    code = _SASL_REQUIRED


EXCEPTIONS[_SASL_REQUIRED] = SaslRequired


class _LoginFailed(BaseException):
    """SASL has failed with a server. No Exception: kazoo logs each with its traceback, and they may be many."""


class LinkState(Enum):
    """The state of the connection, as the connection's thread reports it to the event loop."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    CLOSED = "closed"


class _InlineHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Runs callbacks on the thread that raises them. It is never "running", so kazoo calls completions directly."""

    def __init__(self, tls: Callable[[], SSLContext] | None) -> None:
        super().__init__()
        self._tls = tls

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def dispatch_callback(self, callback: Callback) -> None:
        callback.func(*callback.args)

    tls_failure = ""
    """Why the last TLS handshake failed."""
    patience_s = math.inf
    """The timeout of a TCP connect in seconds; set by the connection."""
    leave_at = math.inf
    """The time.monotonic at which the server is abandoned unless it responds before; set by the connection."""

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["timeout"] = min(kwargs["timeout"], self.patience_s)
        connection = super().create_connection(*args, **kwargs)
        if self._tls is None:
            return connection
        try:
            secured = self._tls().wrap_socket(connection, server_hostname=kwargs["hostname"])
        except OSError as error:
            connection.close()
            self.tls_failure = getattr(error, "verify_message", "") or str(error)
            raise
        self.tls_failure = ""
        return secured

    def select(self, readers: Any, writers: Any, exceptional: Any, timeout: float) -> Any:
        timeout = max(0.0, min(timeout, self.leave_at - time.monotonic()))
        decrypted = [] if self._tls is None else [one for one in readers if hasattr(one, "pending") and one.pending()]
        ready = super().select(readers, writers, exceptional, 0.0 if decrypted else timeout)
        if decrypted:
            return ([*decrypted, *(one for one in ready[0] if one not in decrypted)], *ready[1:])
        if not any(ready):
            self.leave_if_silent()
        return ready

    def leave_if_silent(self) -> None:
        """Drops the connection when the server has not responded in time. Raises ConnectionDropped."""
        if time.monotonic() >= self.leave_at:
            raise ConnectionDropped("the server does not respond")


def first_patience_s(session_timeout_s: float, server_count: int) -> float:
    """The seconds for one server in the first round; a single server gets half of the round.

    >>> first_patience_s(6.0, 3), first_patience_s(18.0, 3), first_patience_s(18.0, 1)
    (0.5, 1.5, 2.25)
    """
    return session_timeout_s * ROUND_PART / max(server_count, 2)


class _PatientConnection(ConnectionHandler):  # type: ignore[misc]
    """Tries every server before the session expires, abandons a server that does not respond, and authenticates."""

    def __init__(self, client: KazooClient, timeout_s: float, login: SaslLogin | None) -> None:
        super().__init__(client, client._connection.retry_sleeper, logger=client.logger)
        self._login = login
        self.sasl_failure = ""
        """Why the last server has refused, or was refused; "" when it did not."""
        self._refused_since = self._refusal_logged_at = -math.inf
        self._timeout_s = timeout_s
        self._first_patience_s = self._patience_s = first_patience_s(timeout_s, len(client.hosts))
        self._wants_longer = False
        self._is_connected = False
        self._heard_at = 0.0

    def _connect_loop(self, retry: KazooRetry) -> Any:
        """One round over all servers. Raises what kazoo raises at the end of a round."""
        if self._wants_longer:
            self._patience_s = min(self._patience_s * 2, self._timeout_s)
        began = time.monotonic()
        try:
            return super()._connect_loop(retry)
        finally:
            self._wants_longer = not self._is_connected and time.monotonic() - began >= self._patience_s

    def _connect_attempt(self, host: str, hostip: str, port: int, retry: KazooRetry) -> Any:
        """STOP_CONNECTING ends the client, as kazoo has it; None leads to the next server."""
        try:
            return super()._connect_attempt(host, hostip, port, retry)
        except _LoginFailed as refused:
            now = time.monotonic()
            if not self.sasl_failure:
                self._refused_since = now
            self.sasl_failure = str(refused)
            if now - self._refusal_logged_at >= REFUSALS_LOGGED_EVERY_S:
                self._refusal_logged_at = now
                self.logger.warning("no session with ZooKeeper %s:%s, trying again: %s", host, port, refused)
            has_tried_enough = now - self._refused_since >= self._timeout_s
            return STOP_CONNECTING if self.client._session_id and has_tried_enough else None

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        """Returns kazoo's read and connect timeout in ms, and sets `_timeout_s` to the negotiated session timeout."""
        self._is_connected = False
        self.handler.leave_at = math.inf
        self.handler.patience_s = self._patience_s
        read_timeout_ms, connect_timeout_ms = super()._connect(host, hostip, port)
        self._timeout_s = read_timeout_ms / _KAZOO_SILENCE_PART / 1000
        self._is_connected = True
        self._heard_at = time.monotonic()
        return read_timeout_ms, connect_timeout_ms

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        answer = super()._invoke(min(timeout, self._patience_s), request, xid)
        if isinstance(request, Connect) and answer[0].time_out > 0 and self._login is not None:
            try:
                self._log_in(self._login)
            except DigestError as error:
                raise _LoginFailed(f"SASL as user {self._login.username!r}: {error}") from None
            self.sasl_failure = ""
        self._patience_s = self._first_patience_s
        return answer

    def _log_in(self, login: SaslLogin) -> None:
        """Raises DigestError when the server does not let us in, or does not prove that it knows the password."""
        challenge = self._ask_sasl(b"", 1)
        if not challenge:
            raise DigestError("the server does not have it: its JAAS file has no section Server")
        response = respond(challenge, login.username, login.password)
        check_proof(self._ask_sasl(response.token, 2), response)

    def _ask_sasl(self, token: bytes, xid: int) -> bytes:
        self._submit(SASL(token), self._patience_s, xid)
        header, buffer, offset = self._read_header(self._patience_s)
        if header.err in (_AUTH_FAILED, _SASL_REQUIRED):
            raise DigestError("the server refuses the user or the password")
        if header.err or header.xid != xid:
            raise DigestError(f"the server answers with error {header.err}")
        return SASL.deserialize(buffer, offset)[0] or b""

    def _submit(self, request: Any, timeout: float, xid: int | None = None) -> None:
        if self._is_connected:
            self.handler.leave_if_silent()
            if self.handler.leave_at == math.inf:
                self.handler.leave_at = max(
                    self._heard_at + self._timeout_s * SILENCE_PART, time.monotonic() + self._timeout_s * ANSWER_PART
                )
        super()._submit(request, timeout, xid)

    def _read_socket(self, read_timeout: float) -> Any:
        answer = super()._read_socket(read_timeout)
        self._heard_at = time.monotonic()
        # Responses arrive in order: the timeout of the other outstanding requests starts now.
        is_waiting = self.client._pending or self.ping_outstanding.is_set()
        self.handler.leave_at = self._heard_at + self._timeout_s * SILENCE_PART if is_waiting else math.inf
        return answer


@dataclass(slots=True)
class _SetWatches:
    """The SetWatches request, which kazoo does not have: paths by kind of watch, and the session's last zxid."""

    relative_zxid: int
    data: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)

    type: ClassVar[int] = 101

    def serialize(self) -> bytes:
        out = [struct.pack(">q", self.relative_zxid)]
        for paths in (self.data, self.absent, self.children):
            out.append(struct.pack(">i", len(paths)))
            for path in paths:
                encoded = path.encode()
                out.append(struct.pack(">i", len(encoded)) + encoded)
        return b"".join(out)

    @classmethod
    def deserialize(cls, _buffer: bytes, _offset: int) -> None:
        return None


@dataclass(slots=True)
class ReadMany:
    """The multiRead request, which kazoo does not have: the data of many nodes (ZooKeeper 3.6 and later)."""

    paths: list[str]

    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        out = bytearray()
        for path in self.paths:
            encoded = path.encode()
            out += _PART.pack(GetData.type, False, -1)
            out += struct.pack(">i", len(encoded)) + encoded + b"\0"  # no watch
        return bytes(out + _PART.pack(-1, True, -1))

    def deserialize(self, buffer: bytes, offset: int) -> list[tuple[Any, Exception | None]]:
        """For each path ((data or None, stat), None) or (None, error), with kazoo's types."""
        found: list[tuple[Any, Exception | None]] = []
        for _ in self.paths:
            kind, _, _ = _PART.unpack_from(buffer, offset)
            offset += _PART.size
            if kind == GetData.type:
                data, offset = read_buffer(buffer, offset)
                found.append(((data, ZnodeStat._make(stat_struct.unpack_from(buffer, offset))), None))
                offset += stat_struct.size
            else:
                (code,) = struct.unpack_from(">i", buffer, offset)
                found.append((None, EXCEPTIONS[code]()))
                offset += 4
        return found


_PART = struct.Struct(">i?i")
"""The header of each part of a multiRead request and response: type, end marker, error code."""


class SessionClient(KazooClient):  # type: ignore[misc]
    """A kazoo client for one session.

    Args:
        hosts: without chroot, which the adapter adds and strips.
        timeout_s: the requested session timeout in seconds.
        session: id and password of the session to attach to.
        on_state: called on the connection's thread; must not block.
        tls: gives the context of a new connection; None for bytes as they are.
        login: authenticates each new connection; None for none.
    """

    def __init__(
        self,
        hosts: str,
        timeout_s: float,
        session: tuple[int, bytes] | None,
        on_state: Callable[[SessionClient, LinkState], None],
        logger: logging.Logger,
        *,
        tls: Callable[[], SSLContext] | None = None,
        login: SaslLogin | None = None,
    ) -> None:
        self.logger: logging.Logger
        self._absent: set[str] = set()
        self._on_state = on_state
        super().__init__(
            hosts=hosts,
            timeout=timeout_s,
            client_id=session,
            handler=_InlineHandler(tls),
            connection_retry=KazooRetry(
                max_tries=-1, delay=RECONNECT_DELAY_S, backoff=1.5, max_delay=RECONNECT_MAX_DELAY_S
            ),
            logger=logger,
        )
        self._connection = _PatientConnection(self, timeout_s, login)

    @property
    def refusal(self) -> str:
        """Why the last connection came to nothing, when TLS or SASL is the reason; else ""."""
        if self.handler.tls_failure:
            return f"TLS: {self.handler.tls_failure}"
        return str(self._connection.sasl_failure)

    @property
    def session(self) -> tuple[int, bytes]:
        """Id and password, also while disconnected; the id is 0 before the first connection."""
        return self._session_id or 0, self._session_passwd

    def note_existence(self, path: str, is_present: bool) -> None:
        """Records for SetWatches whether a read with a watch found the node. Called on the connection's thread with the
        path including the chroot."""
        if is_present:
            self._absent.discard(path)
        else:
            self._absent.add(path)

    def drop(self) -> None:
        """Drops the connection; the session expires by its timeout. Does not block."""
        silent = self.logger.getChild("dropped")
        silent.disabled = True  # no warning of kazoo for the intended loss of the connection
        self.logger = self._connection.logger = silent
        self._stopped.set()
        connection = self._connection._socket
        if connection is not None:
            try:
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not that of TLS, which the other thread uses
            except OSError:
                pass  # not connected: the connection's thread checks `_stopped`

    def end(self) -> None:
        """Closes the session at the server. Blocks: not for the event loop."""
        self.stop()
        self.release()

    def release(self) -> None:
        """Waits for the connection's thread to end and frees its sockets. Blocks."""
        if self._connection.stop(STOP_TIMEOUT_S):
            self._connection.close()

    def _session_callback(self, state: str) -> None:
        before = self._state
        if state == KeeperState.CONNECTED and before == KeeperState.CONNECTING:
            self._set_watches_again()
        super()._session_callback(state)
        if state == before:
            return
        if state == KeeperState.CONNECTED:
            self._on_state(self, LinkState.CONNECTED)
        elif state == KeeperState.EXPIRED_SESSION:
            self._stopped.set()
            self._on_state(self, LinkState.EXPIRED)
        elif state in (KeeperState.CLOSED, KeeperState.AUTH_FAILED):
            self._on_state(self, LinkState.CLOSED)
        elif before == KeeperState.CONNECTED:
            self._on_state(self, LinkState.SUSPENDED)

    def _reset_watchers(self) -> None:
        if self._state != KeeperState.CONNECTING:
            self._child_watchers: defaultdict[str, set[Any]] = defaultdict(set)
            self._data_watchers: defaultdict[str, set[Any]] = defaultdict(set)
            self._absent.clear()

    def _set_watches_again(self) -> None:
        """Puts SetWatches before all waiting requests: a read must not complete before the missed watch events."""
        data = sorted(path for path, watchers in self._data_watchers.items() if watchers and path not in self._absent)
        absent = sorted(path for path, watchers in self._data_watchers.items() if watchers and path in self._absent)
        children = sorted(path for path, watchers in self._child_watchers.items() if watchers)
        requests = []
        current = _SetWatches(self.last_zxid)
        used = 0
        for kind, paths in enumerate((data, absent, children)):
            for path in paths:
                if used + len(path) > SET_WATCHES_BYTES:
                    requests.append(current)
                    current, used = _SetWatches(self.last_zxid), 0
                (current.data, current.absent, current.children)[kind].append(path)
                used += len(path.encode()) + 4
        if used:
            requests.append(current)
        for request in reversed(requests):
            self._queue.appendleft((request, self.handler.async_result()))
            self._connection._write_sock.send(b"\0")  # kazoo's loop takes one request for each byte


def request_answer(result: Any) -> tuple[Any, BaseException | None]:
    """(value, error) of a finished kazoo request."""
    return (result.value, None) if result.exception is None else (None, result.exception)
