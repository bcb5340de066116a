"""The Coordination port: the coordination store, ZooKeeper or its embedded replacement, with ZooKeeper's semantics.

Not here: paths, JSON and their meaning (`ottla_broker.coordination.znodes`).

- Every change of a node's data increments its version; `multi` applies all operations or none.
- Watches fire once, before a read that sees the change completes. They survive a reconnect.
- Calls of one session take effect in the order in which they are made: a read sees the writes called before it.
- Between SUSPENDED and CONNECTED or EXPIRED new calls wait; the calls in progress have failed with ConnectionLoss.
- After EXPIRED every call fails with SessionExpired until the adapter has opened a new session and reports CONNECTED.
  Watches and ephemeral nodes of the old session are gone. The first connection is reported as CONNECTED too.
- Errors are set on the future; a path that ZooKeeper refuses is a ValueError at once.

Everything is called, and calls back, on the broker's event loop.

What others may rely on:

- Paths and contents of znodes are pure functions of `coordination.znodes`.
- An adapter is started once: a broker makes a new one for each incarnation. One embedded store serves all brokers of
  a process and outlives their sessions.
- Packets to a server may be lost silently: a ZooKeeper session moves to the next server before it expires. SUSPENDED
  may last for ever; EXPIRED arrives with the first server that answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias


class CoordinationError(Exception):
    """Base class of the errors of the store; `path` names the node."""

    def __init__(self, path: str = "", message: str = "") -> None:
        super().__init__(message or f"{type(self).__name__}: {path}")
        self.path = path


class NoNode(CoordinationError):
    """The node, or the parent of a new one, does not exist."""


class NodeExists(CoordinationError):
    """The node exists already."""


class BadVersion(CoordinationError):
    """The node has another version than the expected one."""


class NotEmpty(CoordinationError):
    """The node to be deleted has children."""


class NoChildrenForEphemerals(CoordinationError):
    """The parent of a new node is ephemeral."""


class NotPermitted(CoordinationError):
    """The ACL of the node, or of the parent of a new one, does not let this session do that."""


class ConnectionLoss(CoordinationError):
    """The outcome of a write is unknown. Read again before repeating it."""


class SessionExpired(CoordinationError):
    """The session and its ephemeral nodes are gone."""


class MultiFailed(CoordinationError):
    """A `multi` has changed nothing. `index` is the first operation that failed, `cause` its error."""

    def __init__(self, index: int, cause: CoordinationError) -> None:
        super().__init__(cause.path, f"operation {index} of the transaction: {cause}")
        self.index = index
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Stat:
    """The metadata of a node. The zxids increase over the whole store; `ephemeral_owner` is a session id or 0."""

    czxid: int
    mzxid: int
    version: int
    ephemeral_owner: int
    num_children: int = 0


@dataclass(frozen=True, slots=True)
class Create:
    """Creates a node."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replaces the data of a node; `version` -1 accepts every version."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a node; `version` -1 accepts every version."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    """Fails the transaction unless the node has this version."""

    path: str
    version: int


Operation: TypeAlias = Create | Set | Delete | Check


class WatchKind(Enum):
    """What has happened to a watched node."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A watch has fired."""

    kind: WatchKind
    path: str


Watcher: TypeAlias = Callable[[WatchEvent], None]


class SessionEvent(Enum):
    """What has happened to the session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class Coordination(Protocol):
    """A session with the coordination store. See the module."""

    @property
    def session_id(self) -> int:
        """The id of the current session."""
        ...

    @property
    def session_password(self) -> bytes:
        """With the id, lets another process attach to the session."""
        ...

    async def start(self, session: tuple[int, bytes] | None = None) -> None:
        """Connects and opens a session.

        Args:
            session: id and password of the session of an earlier process. If it still exists it is ended first: its
                ephemeral nodes are gone when `start` returns.

        Raises:
            ConnectionLoss: the ensemble cannot be reached in time.
        """
        ...

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes are gone when this returns."""
        ...

    def abandon(self) -> None:
        """Drops the connection; the session expires by its timeout, as after a crash."""
        ...

    def add_session_listener(self, listener: Callable[[SessionEvent], None]) -> None:
        """Reports session events to `listener` from now on."""
        ...

    def get(self, path: str, watch: Watcher | None = None) -> asyncio.Future[tuple[bytes, Stat]]:
        """The data of a node. NoNode, which leaves no watch."""
        ...

    def exists(self, path: str, watch: Watcher | None = None) -> asyncio.Future[Stat | None]:
        """None when the node does not exist; the watch then fires when it is created."""
        ...

    def children(self, path: str, watch: Watcher | None = None) -> asyncio.Future[list[str]]:
        """The names of the children, sorted. NoNode."""
        ...

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> asyncio.Future[str]:
        """Returns the path; with `sequence` it ends with a 10-digit number.

        NodeExists, NoNode, NoChildrenForEphemerals.
        """
        ...

    def set(self, path: str, data: bytes, version: int = -1) -> asyncio.Future[Stat]:
        """Replaces the data of a node. BadVersion, NoNode."""
        ...

    def delete(self, path: str, version: int = -1) -> asyncio.Future[None]:
        """Deletes a node. BadVersion, NoNode, NotEmpty."""
        ...

    def multi(self, operations: Sequence[Operation]) -> asyncio.Future[list[str | Stat | None]]:
        """Applies all operations or none. Returns a path for a Create, a Stat for a Set, else None. MultiFailed."""
        ...
