"""The files of one simulated log directory: the content of the page cache and the content of the device.

A file is bytes plus the changes since its last fsync; a directory is entries plus the changes since its own fsync. A
process crash changes nothing. `DiskImage.lose_power` draws which changes survive:

* a file keeps a prefix of its unsynced writes with the next one torn at a sector boundary, or any subset of its dirty
  sectors (lost ones are zeros, or the content before a truncation), or nothing, or everything;
* a directory keeps a prefix of its unsynced changes: a created file may be missing, a deleted one exist again and a
  renamed one have its old name, each independently of the file's bytes. A rename is atomic.

No time, queue or futures: see `simulation.disk`.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ottla_broker.ports.disk import Buffer

SECTOR = 512


class FileNode:
    """A file's bytes now, and enough to tell what of them is durable."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self._dirty_from = len(self.data)
        """Bytes before this position are the same in memory and on the platter."""
        self._durable_tail = b""
        """What the platter holds from `_dirty_from` on: not empty only after a truncation that was not synced."""
        self._changes: list[tuple[int, bytes | None]] = []
        """(position, bytes) of an append, (size, None) of a truncation, since the last fsync."""
        self.modified_s = 0.0
        """Virtual time of the last append or truncation by an open file."""
        self.cuts: list[int] = []
        """The sizes that open files of it have been asked to cut it to."""
        self.shrinks = 0
        """How often bytes that stood here were taken away: by a truncation or a loss of power."""

    def append(self, data: bytes) -> None:
        self._changes.append((len(self.data), data))
        self.data += data

    def truncate(self, size: int) -> None:
        if size >= len(self.data):
            if size > len(self.data):
                self.append(bytes(size - len(self.data)))
            return
        if size < self._dirty_from:
            self._durable_tail = bytes(self.data[size : self._dirty_from]) + self._durable_tail
            self._dirty_from = size
        self.shrinks += 1
        del self.data[size:]
        self._changes.append((size, None))

    def replace(self) -> None:
        """O_TRUNC."""
        self.truncate(0)

    def sync(self) -> None:
        self._dirty_from = len(self.data)
        self._durable_tail = b""
        self._changes.clear()

    @property
    def is_dirty(self) -> bool:
        return bool(self._changes)

    def durable(self) -> bytes:
        return bytes(memoryview(self.data)[: self._dirty_from]) + self._durable_tail

    def lose_power(self, draw: random.Random) -> None:
        """Leaves what the platter happens to hold; that is then both the memory's and the platter's."""
        if not self._changes:
            return
        durable = self.durable()
        choice = draw.random()
        if choice < 0.15:
            survivor = bytearray(durable)
        elif choice < 0.25:
            survivor = self.data
        elif choice < 0.75:
            survivor = self._prefix_of_changes(durable, draw)
        else:
            survivor = self._some_sectors(durable, draw)
        self.data = bytearray(survivor)
        self.shrinks += 1
        self.sync()

    def _prefix_of_changes(self, durable: bytes, draw: random.Random) -> bytearray:
        state = bytearray(durable)
        count = draw.randrange(len(self._changes) + 1)
        for position, data in self._changes[:count]:
            if data is None:
                del state[position:]
            else:
                state[position : position + len(data)] = data
        if count < len(self._changes):
            position, torn = self._changes[count]
            if torn is not None:
                state[position:] = _tear(position, torn, draw)
        return state

    def _some_sectors(self, durable: bytes, draw: random.Random) -> bytearray:
        current = self.data
        low, high = sorted((len(durable), len(current)))
        size = draw.choice((low, high, max(low, draw.randint(low, high) // SECTOR * SECTOR)))
        lost = draw.choice((0.05, 0.3, 0.8))
        state = bytearray(size)
        start = min(self._dirty_from, size)
        state[:start] = current[:start]
        while start < size:
            end = min((start // SECTOR + 1) * SECTOR, size)
            source = durable if draw.random() < lost else current
            piece = source[start:end]
            state[start : start + len(piece)] = piece
            start = end
        return state


def _tear(position: int, data: bytes, draw: random.Random) -> bytes:
    """A write of which only some sectors arrived: cut at a sector boundary, or whole in length with zeros within."""
    first = -position % SECTOR
    boundaries = [0, *range(first, len(data), SECTOR)]
    if draw.random() < 0.5:
        return data[: draw.choice(boundaries)]
    torn = bytearray(data)
    for start, end in zip(boundaries, [*boundaries[1:], len(data)], strict=True):
        if draw.random() < 0.5:
            torn[start:end] = bytes(end - start)
    return bytes(torn)


@dataclass
class DirectoryNode:
    """A directory's entries now and on the platter, with the changes between the two."""

    entries: dict[str, FileNode | DirectoryNode] = field(default_factory=dict)
    durable: dict[str, FileNode | DirectoryNode] = field(default_factory=dict)
    changes: list[tuple[int, tuple[tuple[str, FileNode | DirectoryNode | None], ...]]] = field(default_factory=list)
    """(number, ((name, node or None when removed), ...)): the parts of one change happen together."""

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.changes.clear()


Node = FileNode | DirectoryNode


class DiskImage:
    """One log directory of a machine: it survives processes, and power losses as far as it was synced."""

    def __init__(self, name: str, draw: random.Random, *, capacity_bytes: int = 1 << 40) -> None:
        self.name = name
        self.capacity_bytes = capacity_bytes
        self.root = DirectoryNode()
        self.holder: object | None = None
        """The Disk that holds `.lock`."""
        self.failure: int | None = None
        """An errno that every call fails with, until it is None again."""
        self.fails_in: int | None = None
        """So many calls are still served before `failure` becomes EIO."""
        self.slow_s = 0.0
        """Every call takes up to so much longer."""
        self._is_hung = False
        self.waiting: list[Callable[[], None]] = []
        """Called, once, when the image hangs no longer."""
        self._draw = draw
        self._next_change = 0

    # -- faults -----------------------------------------------------------------------------------------------------

    @property
    def is_hung(self) -> bool:
        """No call completes while this is set."""
        return self._is_hung

    @is_hung.setter
    def is_hung(self, value: bool) -> None:
        self._is_hung = value
        if not value:
            waiting, self.waiting = self.waiting, []
            for go_on in waiting:
                go_on()

    def count_call(self) -> None:
        """A call is about to take effect."""
        if self.fails_in is not None:
            self.fails_in -= 1
            if self.fails_in < 0:
                self.fails_in = None
                self.failure = errno.EIO

    # -- names ------------------------------------------------------------------------------------------------------

    def find(self, name: str) -> Node:
        """FileNotFoundError when absent."""
        node: Node = self.root
        for part in _parts(name):
            if not isinstance(node, DirectoryNode) or part not in node.entries:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", name)
            node = node.entries[part]
        return node

    def find_file(self, name: str) -> FileNode:
        node = self.find(name)
        if not isinstance(node, FileNode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", name)
        return node

    def find_directory(self, name: str) -> DirectoryNode:
        node = self.find(name)
        if not isinstance(node, DirectoryNode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", name)
        return node

    def exists(self, name: str) -> bool:
        try:
            self.find(name)
        except FileNotFoundError:
            return False
        return True

    def _parent(self, name: str) -> tuple[DirectoryNode, str]:
        parts = _parts(name)
        return self.find_directory("/".join(parts[:-1])), parts[-1]

    def _change(self, directory: DirectoryNode, *parts: tuple[str, Node | None], number: int | None = None) -> None:
        if number is None:
            self._next_change += 1
            number = self._next_change
        for name, node in parts:
            if node is None:
                directory.entries.pop(name, None)
            else:
                directory.entries[name] = node
        directory.changes.append((number, parts))

    # -- calls ------------------------------------------------------------------------------------------------------

    def create_file(self, name: str) -> FileNode:
        """Opens, or creates empty."""
        parent, last = self._parent(name)
        node = parent.entries.get(last)
        if node is None:
            node = FileNode()
            self._change(parent, (last, node))
        if not isinstance(node, FileNode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", name)
        return node

    def make_directory(self, name: str) -> None:
        node: Node = self.root
        for part in _parts(name):
            if not isinstance(node, DirectoryNode):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", name)
            child = node.entries.get(part)
            if child is None:
                child = DirectoryNode()
                self._change(node, (part, child))
            node = child

    def rename(self, old: str, new: str) -> None:
        source, old_name = self._parent(old)
        node = source.entries.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", old)
        target, new_name = self._parent(new)
        if source is target:
            self._change(source, (old_name, None), (new_name, node))
        else:
            self._next_change += 1
            self._change(source, (old_name, None), number=self._next_change)
            self._change(target, (new_name, node), number=self._next_change)

    def delete(self, name: str) -> None:
        try:
            node = self.find(name)
        except FileNotFoundError:
            return
        if isinstance(node, DirectoryNode):
            for child in sorted(node.entries):
                self.delete(f"{name}/{child}")
        parent, last = self._parent(name)
        self._change(parent, (last, None))

    def used_bytes(self) -> int:
        return sum(len(node.data) for node in _files(self.root))

    def check_space(self, more: int) -> int:
        """How many of `more` bytes still fit."""
        return max(0, min(more, self.capacity_bytes - self.used_bytes())) if self.capacity_bytes < 1 << 40 else more

    # -- power ------------------------------------------------------------------------------------------------------

    def lose_power(self) -> None:
        """Draws what the platter holds and leaves that as the contents."""
        self.holder = None
        self.is_hung = False
        self.slow_s = 0.0
        self._keep_entries(self.root)
        for node in _files(self.root):
            node.lose_power(self._draw)

    def _keep_entries(self, root: DirectoryNode) -> None:
        directories = list(_directories_of_both(root))
        cuts = []
        for directory in directories:
            choice = self._draw.random()
            count = len(directory.changes)
            if choice < 0.25:
                count = 0
            elif choice < 0.75:
                count = self._draw.randrange(count + 1)
            cuts.append(count)
        _keep_moves_whole(directories, cuts)
        for directory, cut in zip(directories, cuts, strict=True):
            entries = dict(directory.durable)
            for _, parts in directory.changes[:cut]:
                for name, node in parts:
                    if node is None:
                        entries.pop(name, None)
                    else:
                        entries[name] = node
            directory.entries = entries
            directory.sync()


def _keep_moves_whole(directories: Sequence[DirectoryNode], cuts: list[int]) -> None:
    """Lowers cuts until a move between two directories is kept on both sides or on none."""
    while True:
        kept: dict[int, int] = {}
        total: dict[int, int] = {}
        for directory, cut in zip(directories, cuts, strict=True):
            for index, (number, _) in enumerate(directory.changes):
                total[number] = total.get(number, 0) + 1
                kept[number] = kept.get(number, 0) + (index < cut)
        is_whole = True
        for position, directory in enumerate(directories):
            for index, (number, _) in enumerate(directory.changes[: cuts[position]]):
                if kept[number] < total[number]:
                    cuts[position] = index
                    is_whole = False
                    break
        if is_whole:
            return


def _directories_of_both(root: DirectoryNode) -> Iterator[DirectoryNode]:
    """Every directory that is reachable now or was on the platter or in between, each once."""
    seen: dict[int, DirectoryNode] = {}
    stack = [root]
    while stack:
        directory = stack.pop()
        if id(directory) in seen:
            continue
        seen[id(directory)] = directory
        yield directory
        reachable: list[Node] = [*directory.entries.values(), *directory.durable.values()]
        reachable += [node for _, parts in directory.changes for _, node in parts if node is not None]
        stack += [node for node in reachable if isinstance(node, DirectoryNode)]


def _files(directory: DirectoryNode) -> Iterator[FileNode]:
    for node in directory.entries.values():
        if isinstance(node, FileNode):
            yield node
        else:
            yield from _files(node)


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part and part != "."]


def joined(buffers: Sequence[Buffer]) -> bytes:
    return b"".join(buffers)
