"""One segment of a log: its file, its indexes, and where in it a batch stands.

A closed segment that nobody reads costs one small object: its file is opened and its index mapped when first needed.
The active one has its three files open and its index in memory, and remembers the exact place of its latest batches,
so that a reader at the tail needs no I/O to be placed.

Not here: when to roll, what offsets to give (`log.py`); reading batch headers to find a place (`reading.py`).
"""

from __future__ import annotations

import asyncio
import errno
from array import array
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from ottla_broker.ports.disk import Disk, File
from ottla_broker.storage.directories import is_lack_of_room
from ottla_broker.storage.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, GrowingIndex, MappedIndex
from ottla_broker.storage.names import INDEX, LOG, TIME_INDEX, offset_name

_RECENT_BATCHES = 1024
"""Batches whose exact place is kept; half of them at least."""

_INDEX_WRITE_BYTES = 1024
"""Index entries wait in memory for this many bytes, a flush or a roll: after an unclean end they are rebuilt anyway."""


class Segment:
    """Sizes and positions in bytes; `size` and `next_offset` count what has been assigned."""

    __slots__ = (
        "_lock",
        "_opening",
        "_short_index",
        "_short_time_index",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "directory",
        "disk",
        "file",
        "first_timestamp",
        "index",
        "index_entries",
        "index_file",
        "is_gone",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "recent_offsets",
        "recent_positions",
        "roll_jitter_ms",
        "size",
        "time_index_entries",
        "time_index_file",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, size: int, next_offset: int, now_ms: int) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.next_offset = next_offset
        self.created_ms = now_ms
        self.file: File | None = None
        self.index_file: File | None = None
        self.time_index_file: File | None = None
        self.index: GrowingIndex | MappedIndex | None = None
        self.bytes_since_index = 0
        self.index_entries = 0
        self.time_index_entries = 0
        self.roll_jitter_ms = 0
        self.is_gone = False
        """Its files are being deleted: nobody opens them again."""
        self.first_timestamp: int | None = None
        self.max_timestamp: int | None = None
        """Largest timestamp of the segment in ms, -1 when it has none, None while it has not been looked up."""
        self.max_timestamp_offset = base_offset
        self.recent_offsets = array("q")
        self.recent_positions = array("q")
        self._opening: asyncio.Future[Any] | None = None
        self._lock: asyncio.Lock | None = None
        self._short_index = bytearray()
        self._short_time_index = bytearray()
        """Index entries, in order, that found no room in their files."""

    def name(self, suffix: str) -> str:
        """The path of one of its files, relative to the log directory."""
        return f"{self.directory}/{offset_name(self.base_offset, suffix)}"

    # -- growing (the active segment) --------------------------------------------------------------------------

    def start(self) -> None:
        """Makes an empty segment the active one: its files are created, appends may follow at once."""
        self.index = GrowingIndex(self.base_offset)
        self.max_timestamp = -1
        opening = [self.disk.open(self.name(suffix), create=True) for suffix in (LOG, INDEX, TIME_INDEX)]
        self._opening = asyncio.gather(*opening)
        self._opening.add_done_callback(self._on_open)

    def _on_open(self, opening: asyncio.Future[Any]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self.file, self.index_file, self.time_index_file = opening.result()

    async def _opened(self) -> None:
        """Waits for files that are being opened, and for the calls that wait for them to be on their way."""
        if self.file is None and self._opening is not None:
            # Also when it is done: its callbacks, `_on_open` first, come a turn later, and ours comes after them.
            await asyncio.wait([self._opening])

    @property
    def opening(self) -> asyncio.Future[Any] | None:
        """The opening of its files, done or not, once it has been started."""
        return self._opening

    @property
    def is_open(self) -> bool:
        """Whether calls on its file can be queued: a closed segment's file is opened only when it is read."""
        return self.file is not None or (self._opening is not None and not self._opening.done())

    def append(
        self, buffers: tuple[memoryview, ...], on_done: Callable[[asyncio.Future[int]], None]
    ) -> asyncio.Future[int]:
        """Queues the write; `took_place` has told what it is. `on_done` as in the Disk port."""
        if self.file is not None:
            return self.file.append(buffers, on_done)
        write = self.when_open(lambda segment: segment.file.append(buffers))  # type: ignore[union-attr]
        write.add_done_callback(on_done)
        return write

    def when_open(self, call: Callable[[Segment], asyncio.Future[Any]]) -> asyncio.Future[Any]:
        """Makes the call now, or, in order, as soon as the files of a new segment are open."""
        if self.file is not None:
            return call(self)
        opening = self._opening
        assert opening is not None, "appends go to a segment that was started"
        result: asyncio.Future[Any] = opening.get_loop().create_future()

        def proceed(_: object) -> None:
            if self.file is None:
                _pass_on(opening, result)
                return
            source = call(self)
            source.add_done_callback(lambda done: _pass_on(done, result))

        opening.add_done_callback(proceed)
        return result

    def took_place(
        self, first_offset: int, last_offset: int, size: int, max_timestamp: int, base_timestamp: int, interval: int
    ) -> None:
        """A batch of `size` bytes has been assigned the end of the segment; `interval` is index.interval.bytes."""
        position = self.size
        if self.max_timestamp is None or max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        since = self.bytes_since_index
        if since > interval:
            index = self.index
            assert isinstance(index, GrowingIndex)
            index.add(first_offset, last_offset, position)
            index.add_time(self.max_timestamp, self.max_timestamp_offset)
            if len(index.unwritten_offset_entries) >= _INDEX_WRITE_BYTES:
                self.write_index()
            self.index_entries = index.count
            self.time_index_entries = index.time_count
            since = 0
        if not position:
            self.first_timestamp = base_timestamp
        self.bytes_since_index = since + size
        recent = self.recent_offsets
        recent.append(first_offset)
        self.recent_positions.append(position)
        if len(recent) > _RECENT_BATCHES:
            del recent[: _RECENT_BATCHES // 2]
            del self.recent_positions[: _RECENT_BATCHES // 2]
        self.size = position + size
        self.next_offset = last_offset + 1

    def end_index(self) -> list[asyncio.Future[Any]]:
        """Queues all index entries, the last time entry being the segment's largest timestamp."""
        if isinstance(self.index, GrowingIndex) and self.max_timestamp is not None:
            self.index.add_time(self.max_timestamp, self.max_timestamp_offset)
            self.time_index_entries = self.index.time_count
        return self.write_index()

    def write_index(self) -> list[asyncio.Future[Any]]:
        """Queues the index entries that the files lack."""
        index = self.index
        writes: list[asyncio.Future[Any]] = []
        if isinstance(index, GrowingIndex):
            if index.unwritten_offset_entries:
                entries, index.unwritten_offset_entries = index.unwritten_offset_entries, bytearray()
                writes.append(self._append_to_index(entries, is_time=False))
            if index.unwritten_time_entries:
                entries, index.unwritten_time_entries = index.unwritten_time_entries, bytearray()
                writes.append(self._append_to_index(entries, is_time=True))
        return writes

    def _append_to_index(self, entries: bytearray, is_time: bool) -> asyncio.Future[Any]:
        def append(segment: Segment) -> asyncio.Future[Any]:
            file = segment.time_index_file if is_time else segment.index_file
            assert file is not None
            return file.append((entries,))

        def on_done(write: asyncio.Future[Any]) -> None:
            # A failure fails the directory, and the batches after it tell so; but for lack of room.
            if not write.cancelled() and is_lack_of_room(write.exception()):
                short = self._short_time_index if is_time else self._short_index
                short += entries

        write = self.when_open(append)
        write.add_done_callback(on_done)
        return write

    async def _complete_index(self) -> None:
        """Writes the entries that found no room. OSError, when there is none yet."""
        for is_time in (False, True):
            file = self.time_index_file if is_time else self.index_file
            if file is None or not (self._short_time_index if is_time else self._short_index):
                continue
            # What was queued behind the first of them fails as well: its entries are here, in order, after this.
            await file.truncate(file.size)
            entries = self._short_time_index if is_time else self._short_index
            if is_time:
                self._short_time_index = bytearray()
            else:
                self._short_index = bytearray()
            await self._append_to_index(entries, is_time)

    async def resume(self, size: int) -> None:
        """Makes a closed segment the active one again, cut to `size` bytes: opens its files, loads its index and
        drops what lies beyond. What follows the last index entry is for the caller to walk. Raises OSError."""
        await self._complete_index()
        for write in self.write_index():
            await write
        if self._lock is None:
            self._lock = asyncio.Lock()
        # Under the lock, so that no reader maps an index file that is about to be cut.
        async with self._lock:
            await self.close()
            file, index_file, time_index_file = [
                await self.disk.open(self.name(suffix), create=True) for suffix in (LOG, INDEX, TIME_INDEX)
            ]
            self.index = GrowingIndex(
                self.base_offset,
                await index_file.read(0, index_file.size),
                await time_index_file.read(0, time_index_file.size),
            )
            if file.size > size:
                await file.truncate(size)
                await file.fsync()
            self.size = size
            self.recent_offsets = array("q")
            self.recent_positions = array("q")
            self.file, self.index_file, self.time_index_file = file, index_file, time_index_file

    async def trim_indexes(self) -> None:
        """Cuts preallocated or torn tails off the index files of the active segment, so that appends follow the last
        entry. Raises OSError."""
        index = self.index
        assert isinstance(index, GrowingIndex) and self.index_file is not None and self.time_index_file is not None
        for file, size in (
            (self.index_file, index.count * OFFSET_ENTRY_BYTES),
            (self.time_index_file, index.time_count * TIME_ENTRY_BYTES),
        ):
            if file.size > size:
                await file.truncate(size)

    async def cut_index(self, next_offset: int) -> None:
        """Drops index entries of what was cut off; `next_offset` follows the segment's last record. Raises OSError."""
        index = self.index
        assert isinstance(index, GrowingIndex)
        index.truncate(self.size, next_offset)
        await self.trim_indexes()
        self.index_entries, self.time_index_entries = index.count, index.time_count
        self.max_timestamp, self.max_timestamp_offset = index.last_time

    # -- finding a place ----------------------------------------------------------------------------------------

    def place(self, offset: int) -> tuple[int, bool] | None:
        """(position, is_exact): of the batch that holds `offset` when exact, else of a batch at or before it.

        The segment's size for an offset at or beyond its end. None while a closed segment's index is not mapped.
        """
        if offset >= self.next_offset:
            return self.size, True
        recent = self.recent_offsets
        if recent and offset >= recent[0]:
            return self.recent_positions[bisect_right(recent, offset) - 1], True
        if self.index is None or self.file is None:
            return None
        found, position = self.index.floor(offset)
        return position, found == offset

    async def make_ready(self) -> None:
        """Opens the file and maps the index. Raises OSError, FileNotFoundError when the segment has been deleted."""
        if self.file is not None and self.index is not None:
            return
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if self.is_gone:
                raise FileNotFoundError(errno.ENOENT, "the segment has been deleted", self.name(LOG))
            if self.index is None:
                index_file = await self.disk.open(self.name(INDEX))
                view = await index_file.map()
                await index_file.close()
                self.index = MappedIndex(view, self.base_offset)
            if self.file is None:
                await self._opened()
                if self.file is None:
                    self.file = await self.disk.open(self.name(LOG))

    async def sync(self) -> None:
        """Makes everything assigned so far durable, the indexes too. Raises OSError."""
        # With the largest timestamp so far: the recovery point may come to stand at this segment's end, and recovery
        # does not look at a segment that ends there.
        await self._opened()
        await self._complete_index()
        index_writes = self.end_index()
        syncs: list[asyncio.Future[None]] = []
        opened: list[File] = []
        for file, suffix in ((self.file, LOG), (self.index_file, INDEX), (self.time_index_file, TIME_INDEX)):
            if file is None:
                file = await self.disk.open(self.name(suffix))
                opened.append(file)
            syncs.append(file.fsync())
        for future in (*index_writes, *syncs):
            await future
        for file in opened:
            await file.close()

    async def freeze(self) -> None:
        """A segment that was rolled and synced no longer keeps what only an active one needs; its index is mapped
        when asked for. Raises OSError."""
        self.recent_offsets = array("q")
        self.recent_positions = array("q")
        self.index = None
        index_files = (self.index_file, self.time_index_file)
        self.index_file = self.time_index_file = None
        for file in index_files:
            if file is not None:
                await file.close()

    async def close(self) -> None:
        """Closes the files; ranges that are being sent keep theirs."""
        await self._opened()
        for file in (self.file, self.index_file, self.time_index_file):
            if file is not None:
                # Not awaited: it closes when the last range has been sent, which a slow consumer decides.
                file.close().add_done_callback(retrieve)
        self.file = self.index_file = self.time_index_file = None
        self._opening = None
        self.index = None


def retrieve(future: asyncio.Future[Any]) -> None:
    """For a call whose failure is told elsewhere: else asyncio reports an exception that nobody asked for."""
    if not future.cancelled():
        future.exception()


def _pass_on(source: asyncio.Future[Any], target: asyncio.Future[Any]) -> None:
    if target.done():
        return
    if source.cancelled():
        target.cancel()
    elif (error := source.exception()) is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())
