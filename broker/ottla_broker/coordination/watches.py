"""One-shot watches of one session: the callbacks for a path. Pure.

As in ZooKeeper, `get` and `exists` set a data watch and `children` a child watch. The deletion of a node fires both
kinds; a callback with both is called once. Callbacks are called in the order in which they were set.
"""

from __future__ import annotations

from ottla_broker.ports.coordination import Watcher, WatchEvent, WatchKind


class OneShotWatches:
    """The watches by path. A callback that is set twice on a path is called once."""

    __slots__ = ("_children", "_data")

    def __init__(self) -> None:
        self._data: dict[str, dict[Watcher, None]] = {}
        self._children: dict[str, dict[Watcher, None]] = {}

    def add_data(self, path: str, watcher: Watcher) -> None:
        self._data.setdefault(path, {})[watcher] = None

    def add_children(self, path: str, watcher: Watcher) -> None:
        self._children.setdefault(path, {})[watcher] = None

    def take(self, event: WatchEvent) -> list[Watcher]:
        """Removes and returns the callbacks of an event."""
        fired: dict[Watcher, None] = {}
        if event.kind is not WatchKind.CHILDREN:
            fired.update(self._data.pop(event.path, {}))
        if event.kind in (WatchKind.CHILDREN, WatchKind.DELETED):
            fired.update(self._children.pop(event.path, {}))
        return list(fired)

    def clear(self) -> None:
        """Removes all watches, at the end of the session."""
        self._data.clear()
        self._children.clear()
