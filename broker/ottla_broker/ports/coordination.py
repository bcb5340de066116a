"""The Coordination port: ZooKeeper's model, which is what Kafka's rules are written in.

Paths, JSON and their meaning stand in `ottla_broker.coordination.znodes`, not here. Every data change bumps the
node's version; `multi` is all or nothing. Watches are one-shot and are delivered before any read that sees the
change completes. After EXPIRED every call fails with SessionExpired until the adapter, by itself, has a new session and
has told so by CONNECTED with a new session id; watches and ephemeral nodes of the old one are gone. Between SUSPENDED
and CONNECTED or EXPIRED, new calls wait; those under way failed with ConnectionLoss. Watches outlive a mere reconnect.

Calls of one session take effect in the order they were made, so a read sees the writes called before it. Errors are
set on the future (a path that ZooKeeper would not take is a ValueError at once); everything is called on, and calls
back on, the broker's event loop. The first connection is told as CONNECTED too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias


class CoordinationError(Exception):
    """Base of the errors a caller can act on; `path` names the node."""

    def __init__(self, path: str = "", message: str = "") -> None:
        super().__init__(message or f"{type(self).__name__}: {path}")
        self.path = path


class NoNode(CoordinationError): ...


class NodeExists(CoordinationError): ...


class BadVersion(CoordinationError): ...


class NotEmpty(CoordinationError): ...


class NoChildrenForEphemerals(CoordinationError):
    """The parent of the node to be made is ephemeral."""


class ConnectionLoss(CoordinationError):
    """The outcome is unknown: a write may or may not have happened. Re-read before trying again."""


class SessionExpired(CoordinationError):
    """The session and its ephemeral nodes are gone."""


class MultiFailed(CoordinationError):
    """A `multi` was refused whole. `index` is the first failing operation, `cause` its error."""

    def __init__(self, index: int, cause: CoordinationError) -> None:
        super().__init__(cause.path, f"operation {index} of the transaction: {cause}")
        self.index = index
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Stat:
    """czxid and mzxid grow over the whole store; ephemeral_owner is a session id or 0."""

    czxid: int
    mzxid: int
    version: int
    ephemeral_owner: int
    num_children: int = 0


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int


Operation: TypeAlias = Create | Set | Delete | Check


class WatchKind(Enum):
    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    kind: WatchKind
    path: str


Watcher: TypeAlias = Callable[[WatchEvent], None]


class SessionEvent(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class Coordination(Protocol):
    @property
    def session_id(self) -> int: ...

    @property
    def session_password(self) -> bytes: ...

    async def start(self, session: tuple[int, bytes] | None = None) -> None:
        """Connects. With `session` (id, password) it re-attaches to a living session of an earlier process,
        ends it (its ephemeral nodes are gone when `start` returns) and opens a new one. ConnectionLoss when the
        ensemble cannot be reached in time."""
        ...

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes are gone when this returns."""
        ...

    def abandon(self) -> None:
        """Drops the connection without ending the session (halt, crash): it expires by its timeout."""
        ...

    def add_session_listener(self, listener: Callable[[SessionEvent], None]) -> None: ...

    def get(self, path: str, watch: Watcher | None = None) -> asyncio.Future[tuple[bytes, Stat]]:
        """NoNode when absent (then no watch is left)."""
        ...

    def exists(self, path: str, watch: Watcher | None = None) -> asyncio.Future[Stat | None]:
        """The watch is left in both cases and fires on creation too."""
        ...

    def children(self, path: str, watch: Watcher | None = None) -> asyncio.Future[list[str]]:
        """Sorted names."""
        ...

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> asyncio.Future[str]:
        """Gives the path made (with its 10-digit number when `sequence`). NodeExists, NoNode (parent)."""
        ...

    def set(self, path: str, data: bytes, version: int = -1) -> asyncio.Future[Stat]:
        """BadVersion, NoNode."""
        ...

    def delete(self, path: str, version: int = -1) -> asyncio.Future[None]:
        """BadVersion, NoNode, NotEmpty."""
        ...

    def multi(self, operations: Sequence[Operation]) -> asyncio.Future[list[str | Stat | None]]:
        """One result per operation (path for Create, Stat for Set, None else); MultiFailed changes nothing."""
        ...
