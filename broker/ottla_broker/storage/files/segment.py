"""One segment of a log: its log file, its indexes, and the positions of its batches.

A closed segment that nobody reads is one small object: its file is opened and its index mapped at the first read. The
active segment has its file open and its index in memory, and knows the exact positions of its latest batches, so that a
read at the end of the log finds its batch without I/O. Index files are not kept open: entries are written rarely, and a
broker with thousands of partitions needs its descriptors for log files.

Not here: when to roll (`log/flushing.py`), which offsets a batch gets (`log/appender.py`), the search in batch headers
(`log/segment_lookup.py`). Source: LogSegment of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import errno
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla_broker.ports.disk import Disk, File
from ottla_broker.ports.futures import pass_on, retrieve
from ottla_broker.ports.os_errors import is_sound
from ottla_broker.storage.files.directory_contents import DirectoryContents
from ottla_broker.storage.files.index_rebuilding import rebuild_indexes
from ottla_broker.storage.files.indexes import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    GrowingIndex,
    MappedIndex,
    is_sound_time_index,
)
from ottla_broker.storage.files.names import INDEX, LOG, TIME_INDEX, offset_name
from ottla_broker.storage.files.transaction_index import AbortedTransaction, TransactionIndex

_RECENT_BATCHES = 1024
"""Batches whose exact position is known; half of them at least."""

_INDEX_WRITE_BYTES = 1024
"""Index entries stay in memory until this many bytes, a flush or a roll: recovery rebuilds them anyway."""

_REBUILT_INTERVAL_BYTES = 4096
"""index.interval.bytes of rebuilt indexes: Kafka's default."""

_UNINDEXED_BYTES = 1024 * 1024
"""The index of a segment as large as this is rebuilt when it has no entry."""


class Segment:
    """Sizes and positions in bytes. `size` and `next_offset` include batches whose write is not done."""

    __slots__ = (
        "_index_write",
        "_lock",
        "_opening",
        "_time_index_write",
        "_waiting",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "directory",
        "disk",
        "file",
        "first_timestamp",
        "index",
        "index_entries",
        "is_future_reported",
        "is_gone",
        "is_used",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "recent_offsets",
        "recent_positions",
        "roll_jitter_ms",
        "size",
        "time_index_entries",
        "transactions",
        "unwritten_snapshot",
        "was_reindexed",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, size: int, next_offset: int, now_ms: int) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.next_offset = next_offset
        self.created_ms = now_ms
        self.file: File | None = None
        self.index: GrowingIndex | MappedIndex | None = None
        self.bytes_since_index = 0
        self.index_entries = 0
        self.time_index_entries = 0
        self.roll_jitter_ms = 0
        self.unwritten_snapshot = b""
        """The producer snapshot at its start, until a flush writes it."""
        self.is_gone = False
        """Its files are being deleted: they must not be opened again."""
        self.is_used = False
        """Whether it was read since the last `close_idle_segments`."""
        self.is_future_reported = False
        """A line in the broker's log says that its records have timestamps in the future."""
        self.was_reindexed = False
        """Its indexes were damaged and have been rebuilt, which happens once."""
        self.first_timestamp: int | None = None
        self.max_timestamp: int | None = None
        """Largest timestamp of the segment in ms, -1 when it has none, None while it is unknown."""
        self.max_timestamp_offset = base_offset
        self.recent_offsets = array("q")
        self.recent_positions = array("q")
        self.transactions: TransactionIndex | None = None
        """None when the segment has no aborted transaction."""
        self._opening: asyncio.Future[Any] | None = None
        self._waiting: list[tuple[Callable[[Segment], asyncio.Future[Any]], asyncio.Future[Any]]] | None = None
        """The calls that wait for the files, in order; None while no files are being opened."""
        self._lock: asyncio.Lock | None = None
        self._index_write: asyncio.Future[int] | None = None
        self._time_index_write: asyncio.Future[int] | None = None
        """Writes of index entries that are not done yet."""

    def name(self, suffix: str) -> str:
        """The path of one of its files, relative to the log directory."""
        return f"{self.directory}/{offset_name(self.base_offset, suffix)}"

    @property
    def lock(self) -> asyncio.Lock:
        """Held while its files are opened, truncated or renamed."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    # -- growing (the active segment) --------------------------------------------------------------------------

    def start(self, behind: asyncio.Future[Any] | None = None) -> None:
        """Creates the files of an empty segment, which becomes the active one. Appends may follow at once.

        `behind`: the last call on the segment before. The files are created when it is done, and not when it fails:
        neither that nor a kill may leave files behind a hole, which would look like a gap of compaction.
        """
        self.index = GrowingIndex(self.base_offset)
        self.max_timestamp = -1
        self._waiting = []
        self._opening = self._make_files() if behind is None else _after(behind, self._make_files)
        self._opening.add_done_callback(self._on_open)

    def _make_files(self) -> asyncio.Future[Any]:
        opening: list[asyncio.Future[Any]] = [self.disk.open(self.name(LOG), create=True)]
        opening += [self.disk.append_to(self.name(suffix), ()) for suffix in (INDEX, TIME_INDEX)]
        return asyncio.gather(*opening)

    def _on_open(self, opening: asyncio.Future[Any]) -> None:
        waiting, self._waiting = self._waiting or (), None
        if opening.cancelled() or opening.exception() is not None:
            for _, result in waiting:
                pass_on(opening, result)
            return
        self.file = opening.result()[0]
        # All of them now: calls from here on go straight to the file, and must not overtake them.
        for call, result in waiting:
            call(self).add_done_callback(partial(pass_on, target=result))

    async def opened(self) -> None:
        """Waits until the files are open and the calls that waited for them are queued."""
        if self.file is None and self._opening is not None:
            # Also when it is done: its callbacks run later, `_on_open` first, and ours after them.
            await asyncio.wait([self._opening])

    @property
    def opening(self) -> asyncio.Future[Any] | None:
        """The call that opens its files, done or not; None when it was not made."""
        return self._opening

    @property
    def is_open(self) -> bool:
        """Whether calls on its file can be queued: a closed segment's file is opened only when it is read."""
        return self.file is not None or self._waiting is not None

    def append(
        self, buffers: tuple[memoryview, ...], on_done: Callable[[asyncio.Future[int]], None]
    ) -> asyncio.Future[int]:
        """Queues a write at the end of the file; `add_batch` takes its batches. `on_done` as in the Disk port."""
        if self.file is not None:
            return self.file.append(buffers, on_done)
        write = self.when_open(lambda segment: segment.file.append(buffers))  # type: ignore[union-attr]
        write.add_done_callback(on_done)
        return write

    def when_open(self, call: Callable[[Segment], asyncio.Future[Any]]) -> asyncio.Future[Any]:
        """Makes the call now or, in order, as soon as the files of a new segment are open."""
        if self.file is not None:
            return call(self)
        opening = self._opening
        assert opening is not None, "appends go to a segment that was started"
        result: asyncio.Future[Any] = opening.get_loop().create_future()
        if self._waiting is None:
            pass_on(opening, result)  # it has failed
        else:
            self._waiting.append((call, result))
        return result

    def add_batch(
        self, first_offset: int, last_offset: int, size: int, max_timestamp: int, base_timestamp: int, interval: int
    ) -> None:
        """Adds a batch at the end of the segment to its size, indexes and recent positions.

        `size` is in bytes, the timestamps in ms; `interval` is index.interval.bytes.
        """
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

    def add_aborted(self, entry: AbortedTransaction) -> None:
        """Adds a transaction that a marker in this segment aborts to the transaction index."""
        if self.transactions is None:
            self.transactions = TransactionIndex(self.disk, self.directory, self.base_offset, is_new=True)
        self.transactions.add(entry)

    def end_index(self) -> list[asyncio.Future[Any]]:
        """Queues the writes of all index entries; the last time entry is the segment's largest timestamp."""
        if isinstance(self.index, GrowingIndex) and self.max_timestamp is not None:
            self.index.add_time(self.max_timestamp, self.max_timestamp_offset)
            self.time_index_entries = self.index.time_count
        return self.write_index()

    def write_index(self) -> list[asyncio.Future[Any]]:
        """Queues the writes of the index entries that the files lack; returns the writes that are not done.

        One at a time for each file: entries that found no room are written before later ones.
        """
        index = self.index
        if not isinstance(index, GrowingIndex):
            return []
        if self._index_write is None and (entries := index.unwritten_offset_entries):
            index.unwritten_offset_entries = bytearray()
            self._index_write = self._append_entries(INDEX, entries)
            self._index_write.add_done_callback(partial(self._on_index_written, index, entries, False))
        if self._time_index_write is None and (entries := index.unwritten_time_entries):
            index.unwritten_time_entries = bytearray()
            self._time_index_write = self._append_entries(TIME_INDEX, entries)
            self._time_index_write.add_done_callback(partial(self._on_index_written, index, entries, True))
        return [write for write in (self._index_write, self._time_index_write) if write is not None]

    def _append_entries(self, suffix: str, entries: bytearray) -> asyncio.Future[int]:
        """Queues entries behind the writes of their batches, also while those wait for the files of a new segment."""
        if self.file is None and self._opening is not None:
            return self.when_open(lambda segment: segment.disk.append_to(segment.name(suffix), (entries,)))
        return self.disk.append_to(self.name(suffix), (entries,))

    def _on_index_written(
        self, index: GrowingIndex, entries: bytearray, is_time: bool, write: asyncio.Future[int]
    ) -> None:
        if is_time:
            self._time_index_write = None
        else:
            self._index_write = None
        # Another failure takes the log directory offline, which the next append reports.
        if not write.cancelled() and is_sound(write.exception()):
            if is_time:
                index.unwritten_time_entries = entries + index.unwritten_time_entries
            else:
                index.unwritten_offset_entries = entries + index.unwritten_offset_entries

    async def _write_whole_index(self) -> None:
        """Returns when the files have every entry. OSError, also while there is no room for them."""
        while writes := self.write_index():
            # Not awaited one by one: `_on_index_written` must run for each before the next `write_index`.
            await asyncio.wait(writes)
            for write in writes:
                write.result()

    async def resume(self, size: int, contents: DirectoryContents | None = None) -> None:
        """Makes a closed segment the active one again: opens its file, truncates it to `size` bytes and loads its
        index. The caller walks the batches behind the last index entry (`walk_tail`). Raises OSError.

        `contents`: of its directory, where they have been read already.
        """
        await self._write_whole_index()
        if self.transactions is not None:
            await self.transactions.settle()
        # Under the lock, so that no read maps an index file that is about to be truncated.
        async with self.lock:
            await self.close()
            file = await self.disk.open(self.name(LOG), create=True)
            self.index = GrowingIndex(
                self.base_offset,
                await self._index_bytes(INDEX, contents),
                await self._index_bytes(TIME_INDEX, contents),
            )
            if file.size > size:
                await file.truncate(size)
                await file.fsync()
            if self.transactions is not None:
                await self.transactions.resume()
            self.size = size
            self.recent_offsets = array("q")
            self.recent_positions = array("q")
            self.file = file

    async def _index_bytes(self, suffix: str, contents: DirectoryContents | None) -> bytes:
        """The content of an index file; creates an empty one when there is none."""
        name = self.name(suffix)
        try:
            if contents is not None:
                return await contents.read(name.rpartition("/")[2])
            return await self.disk.read_file(name)
        except FileNotFoundError:
            await self.disk.append_to(name, ())
            return b""

    async def trim_indexes(self) -> None:
        """Truncates preallocated or torn tails of the active segment's index files, so that appends follow the last
        entry. Raises OSError."""
        index = self.index
        assert isinstance(index, GrowingIndex)
        if not index.has_tail:
            return
        for suffix, size in (
            (INDEX, index.count * OFFSET_ENTRY_BYTES),
            (TIME_INDEX, index.time_count * TIME_ENTRY_BYTES),
        ):
            file = await self.disk.open(self.name(suffix))
            if file.size > size:
                await file.truncate(size)
            await file.close()
        index.has_tail = False

    async def cut_index(self, next_offset: int) -> None:
        """Drops the index entries at or above `next_offset`, where the truncated segment ends. Raises OSError."""
        index = self.index
        assert isinstance(index, GrowingIndex)
        index.truncate(self.size, next_offset)
        await self.trim_indexes()
        if self.transactions is not None:
            await self.transactions.truncate(next_offset)
        self.index_entries, self.time_index_entries = index.count, index.time_count
        self.max_timestamp, self.max_timestamp_offset = index.last_time

    # -- lookups ------------------------------------------------------------------------------------------------

    def find_position(self, offset: int) -> tuple[int, bool] | None:
        """(position, is_exact): of the batch that holds `offset` when exact, else of a batch at or before it.

        The segment's size for an offset at or beyond its end. None while a closed segment's index is not mapped.
        """
        if offset >= self.next_offset:
            return self.size, True
        recent = self.recent_offsets
        if recent and offset >= recent[0]:
            # Exact only at a batch's base offset: above it, the offset is in the batch or in a gap that compaction left
            # behind it, which only the header shows.
            found = bisect_right(recent, offset) - 1
            return self.recent_positions[found], recent[found] == offset
        if self.index is None or self.file is None:
            return None
        self.is_used = True
        found, position = self.index.floor(offset)
        return position, found == offset

    def offset_bound(self, position: int) -> int:
        """An offset above all batches that begin before `position`, as low as the index can tell."""
        recent = self.recent_positions
        if recent and position >= recent[0]:
            found = bisect_left(recent, position)
            return self.recent_offsets[found] if found < len(recent) else self.next_offset
        entry = None if self.index is None else self.index.first_from_position(position)
        return self.next_offset if entry is None else entry

    async def make_ready(self) -> None:
        """Opens the file and maps the index. Raises OSError, FileNotFoundError when the segment has been deleted."""
        self.is_used = True
        if self.file is not None and self.index is not None:
            return
        async with self.lock:
            if self.is_gone:
                raise FileNotFoundError(errno.ENOENT, "the segment has been deleted", self.name(LOG))
            if self.index is None:
                index = MappedIndex(await self._map(INDEX), self.base_offset)
                is_sound = index.is_sound(self.size, self.next_offset) and (index.count or self.size < _UNINDEXED_BYTES)
                if not is_sound and await self._rebuild():
                    index = MappedIndex(await self._map(INDEX), self.base_offset)
                self.index = index
            if self.file is None:
                await self.opened()
                if self.file is None:
                    self.file = await self.disk.open(self.name(LOG))

    async def time_index(self) -> memoryview:
        """The time index file of a closed segment. Raises OSError."""
        view = await self._map(TIME_INDEX)
        # Empty for batches without timestamps, and when somebody replaced the file.
        is_sound = is_sound_time_index(view, self.base_offset, self.next_offset) and bool(view or not self.size)
        if not is_sound and await self.reindex():
            view = await self._map(TIME_INDEX)
        return view

    async def reindex(self) -> bool:
        """Rebuilds the indexes of a closed segment; False when they were rebuilt before, or the segment is deleted or
        active. Raises OSError."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            is_mapped = isinstance(self.index, MappedIndex)
            if self.is_gone or not (is_mapped or self.index is None) or not await self._rebuild():
                return False
            if is_mapped:
                self.index = MappedIndex(await self._map(INDEX), self.base_offset)
            return True

    async def _rebuild(self) -> bool:
        if self.was_reindexed:
            return False
        self.was_reindexed = True
        await rebuild_indexes(self.disk, self.directory, self.base_offset, _REBUILT_INTERVAL_BYTES)
        return True

    async def _map(self, suffix: str) -> memoryview:
        file = await self.disk.open(self.name(suffix))
        view = await file.map()
        await file.close()
        return view

    async def sync(self) -> None:
        """Makes everything assigned so far durable, the indexes too. Raises OSError."""
        # With the largest timestamp so far: the recovery point may become this segment's end, and recovery does not
        # scan a segment that ends there.
        await self.opened()
        self.end_index()
        await self._write_whole_index()
        syncs = [self.file.fsync() if self.file is not None else self.disk.fsync_file(self.name(LOG))]
        syncs += [self.disk.fsync_file(self.name(suffix)) for suffix in (INDEX, TIME_INDEX)]
        for sync in syncs:
            await sync
        if self.transactions is not None:
            await self.transactions.sync()

    async def write_out(self) -> None:
        """Starts the write-back of dirty pages without a sync, so that a later `sync` takes less time."""
        await self.opened()
        if self.file is not None:
            await self.file.write_out()

    async def freeze(self) -> None:
        """Drops what only an active segment needs, after the roll and the sync; its index is mapped at the next read.
        Raises OSError."""
        async with self.lock:  # reads that are opening it finish first: without its index it would seem deleted
            self.recent_offsets = array("q")
            self.recent_positions = array("q")
            self.index = None
        if self.transactions is not None:
            await self.transactions.freeze()

    async def close(self) -> None:
        """Closes the file; ranges that are being sent keep theirs."""
        await self.opened()
        if self.file is not None:
            # Not awaited: it closes when the last range has been sent, which depends on slow consumers.
            self.file.close().add_done_callback(retrieve)
        self.file = None
        self._opening = None
        self.index = None
        if self.transactions is not None:
            await self.transactions.close()


def _after(before: asyncio.Future[Any], call: Callable[[], asyncio.Future[Any]]) -> asyncio.Future[Any]:
    """Makes the call when `before` has succeeded; otherwise the answer is that of `before`."""
    result: asyncio.Future[Any] = before.get_loop().create_future()

    def proceed(_: object) -> None:
        if before.cancelled() or before.exception() is not None:
            pass_on(before, result)
            return
        call().add_done_callback(partial(pass_on, target=result))

    before.add_done_callback(proceed)
    return result
