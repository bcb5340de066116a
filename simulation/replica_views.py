"""Compares the replicas of a partition batch by batch, from their files, without the brokers.

A `Truth` is what the leaders have committed: (base offset, next offset, leader epoch, CRC) of each batch. A `View` is
how far the files of one replica have been compared with it; it continues there unless the log was truncated. These logs
start at offset 0 and are never compacted.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import NamedTuple

from simulation.filesystem import DirectoryNode, FileNode

_HEADER = struct.Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta."""
_FULL_HEADER_BYTES = 61


class Entry(NamedTuple):
    """One batch. Followers keep the leader's batches as they are, so all of it agrees."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    crc: int


def _base_offset(entry: Entry) -> int:
    return entry.base_offset


class Truth:
    """What was committed, in order, without a gap."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    @property
    def end_offset(self) -> int:
        return self.entries[-1].end_offset if self.entries else 0

    def leader_epoch_at(self, offset: int) -> int:
        """The leader epoch of the batch with this offset, -1 for none."""
        index = bisect_right(self.entries, offset, key=_base_offset) - 1
        return self.entries[index].leader_epoch if index >= 0 and offset < self.entries[index].end_offset else -1

    def cut(self, offset: int) -> None:
        """Nothing from `offset` on is settled any more."""
        while self.entries and self.entries[-1].end_offset > offset:
            self.entries.pop()


class View:
    """One replica's files. `limit`: from this offset on they may differ, for a loss that was permitted; `home` is the
    log directory where they were last."""

    __slots__ = ("_directory", "_next_offset", "_node", "_position", "_shrinks", "home", "limit", "matched", "segment")

    def __init__(self) -> None:
        self.limit = 1 << 62
        self.home = ""
        self._directory: DirectoryNode | None = None
        self.restart()

    def restart(self) -> None:
        """Compares from the first byte again."""
        self.segment = ""
        self.matched = 0
        """So many entries of the truth stand here."""
        self._node: FileNode | None = None
        self._position = 0
        self._next_offset = 0
        self._shrinks = 0

    def compare(self, directory: DirectoryNode, truth: Truth, up_to: int, *, may_extend: bool = False) -> str:
        """Compares on to offset `up_to`; with `may_extend` what stands beyond the truth becomes part of it.

        Gives what differs, "" when nothing does. Files that end before `up_to` are no difference: see `end_offset`.
        """
        if self._directory is not directory or not self._is_as_left(directory):
            self._directory = directory
            self.restart()
        entries = truth.entries
        if self.matched > len(entries):
            self.restart()
        while True:
            entry, after = self._next(directory)
            if entry is None or entry.base_offset >= up_to:
                return ""
            if self.matched < len(entries):
                known = entries[self.matched]
                if known != entry:
                    return f"has {_text(entry)} where {_text(known)} was committed"
            elif not may_extend:
                return ""
            elif entry.base_offset != truth.end_offset:
                return f"has {_text(entry)} behind offset {truth.end_offset}"
            else:
                entries.append(entry)
            self.matched += 1
            self._position = after
            self._next_offset = entry.end_offset

    def end_offset(self, truth: Truth) -> int:
        """The offset up to which `compare` found the truth here."""
        return truth.entries[self.matched - 1].end_offset if self.matched else 0

    def _is_as_left(self, directory: DirectoryNode) -> bool:
        node = self._node
        return node is None or (directory.entries.get(self.segment) is node and node.shrinks == self._shrinks)

    def _next(self, directory: DirectoryNode) -> tuple[Entry | None, int]:
        """The batch at the position, and the position behind it; goes on to the next segment at the end of one."""
        while True:
            node = self._node
            if node is not None:
                found = _entry_at(node.data, self._position)
                if found is not None:
                    return found
            following = _segment_after(directory, self.segment)
            if following is None:
                return None, 0
            if node is not None and int(following[0].removesuffix(".log")) != self._next_offset:
                return None, 0  # what stands before it is still being written
            self.segment, self._node = following
            self._shrinks = self._node.shrinks
            self._position = 0


def durable_agreement(directory: DirectoryNode | None, truth: Truth) -> int:
    """The offset up to which the platter, without the page cache, holds the truth."""
    if directory is None:
        return 0
    matched = 0
    entries = truth.entries
    for name, node in sorted(directory.durable.items()):
        if not name.endswith(".log") or not isinstance(node, FileNode):
            continue
        data = bytearray(node.durable())
        position = 0
        while matched < len(entries):
            found = _entry_at(data, position)
            if found is None or found[0] != entries[matched]:
                break
            matched += 1
            position = found[1]
        if position < len(data):
            break
    return entries[matched - 1].end_offset if matched else 0


def _entry_at(data: bytearray, position: int) -> tuple[Entry, int] | None:
    if len(data) - position < _FULL_HEADER_BYTES:
        return None
    base, length, epoch, _, crc, _, last_delta = _HEADER.unpack_from(data, position)
    after = position + 12 + length
    if after > len(data) or length <= 0:
        return None
    return Entry(base, base + last_delta + 1, epoch, crc), after


def _segment_after(directory: DirectoryNode, name: str) -> tuple[str, FileNode] | None:
    """The next log file by name, which is its base offset."""
    best: str | None = None
    for entry in directory.entries:
        if entry.endswith(".log") and entry > name and (best is None or entry < best):
            best = entry
    if best is None:
        return None
    node = directory.entries[best]
    return (best, node) if isinstance(node, FileNode) else None


def _text(entry: Entry) -> str:
    return f"offsets {entry.base_offset}..{entry.end_offset - 1} of epoch {entry.leader_epoch} (CRC {entry.crc:08x})"
