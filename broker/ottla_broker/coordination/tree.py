"""ZooKeeper's data model as a pure state machine: operations in, changes and watch events out.

No clocks, files, futures or sessions: the embedded adapter adds SQLite, the simulated adapter adds faults. The order of
the checks is ZooKeeper's, so that every adapter returns the same error when several apply.

Example, the election of a controller:

>>> tree = Tree()
>>> _ = tree.apply([Create("/controller_epoch", b"1")], session_id=7, zxid=1)
>>> done = tree.apply([Create("/controller", b"me", ephemeral=True), Set("/controller_epoch", b"2", 0)], 7, zxid=2)
>>> [event.kind.name + " " + event.path for event in done.events]
['CREATED /controller', 'CHILDREN /', 'CHANGED /controller_epoch']
>>> tree.apply([Create("/controller", b"other"), Check("/controller_epoch", 0)], 8, zxid=3)
Traceback (most recent call last):
ottla_broker.ports.coordination.MultiFailed: operation 0 of the transaction: NodeExists: /controller
>>> [path for path, node in tree.end_session(7, zxid=3).changes if node is None]
['/controller']
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ottla_broker.ports.coordination import (
    BadVersion,
    Check,
    CoordinationError,
    Create,
    Delete,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Stat,
    WatchEvent,
    WatchKind,
)

ANY_VERSION = -1


def validate_path(path: str) -> None:
    """Raises ValueError unless ZooKeeper accepts the path: "/", or "/a/b" without empty, "." or ".." parts."""
    if path == "/":
        return
    if not path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in path[1:].split("/")):
        raise ValueError(f"not a znode path: {path!r}")


def parent_of(path: str) -> str:
    """The parent's path ("/" for "/a")."""
    return path.rpartition("/")[0] or "/"


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `creates` counts the children ever created: it is the number of the next sequential child."""

    data: bytes
    czxid: int
    mzxid: int
    version: int = 0
    ephemeral_owner: int = 0
    creates: int = 0


Change: TypeAlias = tuple[str, Node | None]
"""A path and its new node; None when the node is deleted."""

Result: TypeAlias = str | Stat | None


@dataclass(frozen=True, slots=True)
class Applied:
    """The effect of a transaction: one result per operation, the changed nodes, the watch events, in order."""

    results: list[Result]
    changes: list[Change]
    events: list[WatchEvent]


class Tree:
    """All nodes, their children and the ephemeral nodes of every session. "/" always exists."""

    __slots__ = ("_children", "_ephemerals", "_nodes")

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {"/": Node(b"", 0, 0)}
        self._children: dict[str, set[str]] = {}
        self._ephemerals: dict[int, set[str]] = {}

    def copy(self) -> Tree:
        """An independent tree with the same (immutable) nodes."""
        other = Tree()
        other._nodes = dict(self._nodes)
        other._children = {path: set(names) for path, names in self._children.items()}
        other._ephemerals = {session_id: set(paths) for session_id, paths in self._ephemerals.items()}
        return other

    def get(self, path: str) -> tuple[bytes, Stat] | None:
        node = self._nodes.get(path)
        return None if node is None else (node.data, self._stat(path, node))

    def exists(self, path: str) -> Stat | None:
        node = self._nodes.get(path)
        return None if node is None else self._stat(path, node)

    def children(self, path: str) -> list[str] | None:
        """Sorted names; None when there is no such node."""
        return sorted(self._children.get(path, ())) if path in self._nodes else None

    def ephemerals(self, session_id: int) -> list[str]:
        """Sorted paths of the session's ephemeral nodes."""
        return sorted(self._ephemerals.get(session_id, ()))

    def install(self, changes: Sequence[Change]) -> None:
        """Applies the changes of another tree's `apply`, or the rows of a file, without checks."""
        for path, node in changes:
            self._put(path, node)

    def apply(self, operations: Sequence[Operation], session_id: int, zxid: int) -> Applied:
        """Applies all operations in order, or none.

        Args:
            session_id: the owner of new ephemeral nodes.
            zxid: of the transaction; larger than all before.

        Raises:
            MultiFailed: an operation failed, with ZooKeeper's error; the tree is unchanged.
        """
        applied = Applied([], [], [])
        undo: list[Change] = []
        for index, operation in enumerate(operations):
            try:
                self._apply_one(operation, session_id, zxid, applied, undo)
            except CoordinationError as error:
                self.install(undo[::-1])
                raise MultiFailed(index, error) from None
        return applied

    def end_session(self, session_id: int, zxid: int) -> Applied:
        """Deletes the session's ephemeral nodes."""
        return self.apply([Delete(path) for path in self.ephemerals(session_id)], session_id, zxid)

    def _apply_one(
        self, operation: Operation, session_id: int, zxid: int, applied: Applied, undo: list[Change]
    ) -> None:
        match operation:
            case Create():
                path, parent = self._check_create(operation)
                self._write(
                    parent, replace(self._nodes[parent], creates=self._nodes[parent].creates + 1), applied, undo
                )
                owner = session_id if operation.ephemeral else 0
                self._write(path, Node(bytes(operation.data), zxid, zxid, ephemeral_owner=owner), applied, undo)
                applied.events.append(WatchEvent(WatchKind.CREATED, path))
                applied.events.append(WatchEvent(WatchKind.CHILDREN, parent))
                applied.results.append(path)
            case Set():
                node = self._expect(operation.path, operation.version)
                node = replace(node, data=bytes(operation.data), mzxid=zxid, version=node.version + 1)
                self._write(operation.path, node, applied, undo)
                applied.events.append(WatchEvent(WatchKind.CHANGED, operation.path))
                applied.results.append(self._stat(operation.path, node))
            case Delete():
                self._expect(operation.path, operation.version)
                if self._children.get(operation.path):
                    raise NotEmpty(operation.path)
                self._write(operation.path, None, applied, undo)
                applied.events.append(WatchEvent(WatchKind.DELETED, operation.path))
                applied.events.append(WatchEvent(WatchKind.CHILDREN, parent_of(operation.path)))
                applied.results.append(None)
            case Check():
                self._expect(operation.path, operation.version)
                applied.results.append(None)

    def _check_create(self, operation: Create) -> tuple[str, str]:
        parent = parent_of(operation.path)
        above = self._nodes.get(parent)
        if above is None:
            raise NoNode(operation.path)
        path = f"{operation.path}{above.creates:010d}" if operation.sequence else operation.path
        # A refusal names the path of the operation, as ZooKeeper's clients do: the server sends a code alone.
        if path in self._nodes:
            raise NodeExists(operation.path)
        if above.ephemeral_owner:
            raise NoChildrenForEphemerals(operation.path)
        return path, parent

    def _expect(self, path: str, version: int) -> Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path)
        return node

    def _write(self, path: str, node: Node | None, applied: Applied, undo: list[Change]) -> None:
        undo.append((path, self._nodes.get(path)))
        applied.changes.append((path, node))
        self._put(path, node)

    def _put(self, path: str, node: Node | None) -> None:
        before = self._nodes.get(path)
        if before is not None and before.ephemeral_owner:
            owned = self._ephemerals[before.ephemeral_owner]
            owned.discard(path)
            if not owned:
                del self._ephemerals[before.ephemeral_owner]
        if node is None:
            self._nodes.pop(path, None)
            siblings = self._children.get(parent_of(path))
            if siblings is not None:
                siblings.discard(path.rpartition("/")[2])
                if not siblings:
                    del self._children[parent_of(path)]
            return
        self._nodes[path] = node
        if path != "/":
            self._children.setdefault(parent_of(path), set()).add(path.rpartition("/")[2])
        if node.ephemeral_owner:
            self._ephemerals.setdefault(node.ephemeral_owner, set()).add(path)

    def _stat(self, path: str, node: Node) -> Stat:
        children = len(self._children.get(path, ()))
        return Stat(node.czxid, node.mzxid, node.version, node.ephemeral_owner, children)
