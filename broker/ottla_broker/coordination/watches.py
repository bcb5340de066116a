"""One-shot watches of one session: the callbacks to call when a path changes. Pure.

As in ZooKeeper, `get` and `exists` leave a data watch and `children` a child watch; a deletion fires both kinds of its
path, and a callback that waits on both is called once. Callbacks are called in the order in which they were left.
"""

from __future__ import annotations

from ottla_broker.ports.coordination import Watcher, WatchEvent, WatchKind


class OneShotWatches:
    """The watches by path. The same callback left twice on one path counts once."""

    __slots__ = ("_children", "_data")

    def __init__(self) -> None:
        self._data: dict[str, dict[Watcher, None]] = {}
        self._children: dict[str, dict[Watcher, None]] = {}

    def add_data(self, path: str, watcher: Watcher) -> None:
        self._data.setdefault(path, {})[watcher] = None

    def add_children(self, path: str, watcher: Watcher) -> None:
        self._children.setdefault(path, {})[watcher] = None

    def take(self, event: WatchEvent) -> list[Watcher]:
        """Removes and gives the callbacks that the event fires."""
        fired: dict[Watcher, None] = {}
        if event.kind is not WatchKind.CHILDREN:
            fired.update(self._data.pop(event.path, {}))
        if event.kind in (WatchKind.CHILDREN, WatchKind.DELETED):
            fired.update(self._children.pop(event.path, {}))
        return list(fired)

    def clear(self) -> None:
        """Forgets everything: the session is over, its owner reads again."""
        self._data.clear()
        self._children.clear()
