"""Compacts one log, as a job of the Workers port: plain values in, requests to the broker, plain values out.

    1. read the dirty range and add every key's last offset to a map of bounded size; a full map ends the range early
    2. for each group of segments up to there: write what is kept to `<base>.log.cleaned` and its indexes, all synced,
       and request from the broker to replace the group with it; the answer has the files to unlink, or None to stop
    3. return the offset up to which the log is clean now

Each group is replaced before the next one begins, so no more than one additional segment takes up space. Bytes read and
written count against log.cleaner.io.max.bytes.per.second.

A batch with a wrong checksum, or one that no rule fits, ends the job: damage never deletes records.
Source: Cleaner.doClean of Apache Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from ottla_broker.ports.disk import Buffer, Disk, File
from ottla_broker.records.batch import HEADER_BYTES, MAGIC, BatchHeader
from ottla_broker.records.control_records import read_marker
from ottla_broker.records.errors import CorruptBatch
from ottla_broker.records.formats import decode_batch, header_at, is_batch_intact
from ottla_broker.records.legacy import MIN_ENTRY_BYTES
from ottla_broker.records.places import Place, payload_of, record_places
from ottla_broker.storage.cleaner.filtering import NOTHING, WHOLE, BatchFilter, places_of
from ottla_broker.storage.cleaner.key_map import KeyMap
from ottla_broker.storage.cleaner.selection import SourceSegment, group_segments
from ottla_broker.storage.cleaner.transaction_view import TransactionView
from ottla_broker.storage.files.indexes import GrowingIndex
from ottla_broker.storage.files.names import CLEANED, INDEX, LOG, TIME_INDEX, TXN_INDEX, offset_name
from ottla_broker.storage.files.transaction_index import AbortedTransaction

Ask: TypeAlias = Callable[[Any], Awaitable[Any]]

_SYNC_EVERY_BYTES = 16 * 1024 * 1024
"""Written bytes are synced in portions, so that the last sync of a large segment does not delay the log's own."""

_PAUSE_S = 0.05
"""The shortest pause of the throttle."""


class CompactionPlan(NamedTuple):
    """What to compact. Offsets are absolute, sizes in bytes, times in ms."""

    directory: str
    segments: list[tuple[int, int]]
    """(base offset, bytes) of the log's segments from its start up to `end`."""
    first_dirty: int
    end: int
    slots: int
    marked: int
    load_factor: float
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    io_buffer_bytes: int
    io_bytes_per_second: float
    """0: no limit."""
    last_records: dict[int, tuple[int, int]]
    aborted: list[tuple[int, int, int, int]]
    """`AbortedTransaction`s that overlap the segments."""


class CleanedSegment(NamedTuple):
    """The request to the broker: replace the segments `bases` with this one, which is durable in `.cleaned` files."""

    bases: list[int]
    size: int
    max_timestamp: int
    max_timestamp_offset: int
    has_transaction_index: bool


class CompactionResult(NamedTuple):
    """The result of a compaction."""

    end: int
    """The log is clean up to here."""
    is_stopped: bool
    """The broker stopped the job, because the log has changed."""
    keys: int
    map_utilization: float
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    keyless_dropped: int


async def compact_log(disk: Disk, ask: Ask, plan: CompactionPlan) -> CompactionResult:
    """Compacts one log. Raises CorruptBatch, UnsupportedCompression (the log is uncleanable), OSError."""
    compaction = _Compaction(disk, plan)
    end = await compaction.build_map()
    is_stopped = not await compaction.rewrite(ask, end)
    keys, batch_filter = compaction.keys, compaction.batch_filter
    return CompactionResult(
        plan.first_dirty if is_stopped else end,
        is_stopped,
        len(keys),
        keys.utilization,
        compaction.bytes_read,
        compaction.bytes_written,
        compaction.records_read,
        batch_filter.records_kept,
        batch_filter.keyless_dropped,
    )


class _Compaction:
    """One run of the job."""

    def __init__(self, disk: Disk, plan: CompactionPlan) -> None:
        self._disk = disk
        self._plan = plan
        self._aborted = [AbortedTransaction(*one) for one in plan.aborted]
        self._throttle = _Throttle(plan.io_bytes_per_second)
        self.keys = KeyMap(plan.slots, plan.load_factor, plan.first_dirty, plan.marked)
        self._transactions = TransactionView(self._aborted)
        self.batch_filter = BatchFilter(
            self.keys,
            self._transactions,
            plan.last_records,
            now_ms=plan.now_ms,
            delete_retention_ms=plan.delete_retention_ms,
        )
        self.bytes_read = self.bytes_written = self.records_read = 0

    # -- the keys of the dirty part ---------------------------------------------------------------------------------

    async def build_map(self) -> int:
        """Reads the dirty range; returns the offset up to which the map includes every key."""
        plan = self._plan
        # A transaction whose marker is in the clean range has ended: later records of its producer are not part of it.
        seen = TransactionView(one for one in self._aborted if one.last_offset >= plan.first_dirty)
        ends = [*(base for base, _ in plan.segments[1:]), plan.end]
        for (base, size), next_base in zip(plan.segments, ends, strict=True):
            if next_base <= plan.first_dirty:
                continue
            if not await self._add_segment(base, size, seen):
                return self.keys.latest_offset + 1
            self.keys.latest_offset = next_base - 1
        return self.keys.latest_offset + 1

    async def _add_segment(self, base: int, size: int, seen: TransactionView) -> bool:
        """Adds the keys of one segment; False when the map is full."""
        add = self.keys.add
        first_dirty = self._plan.first_dirty
        walk = _Batches(self._disk, self._name(base, LOG), size, self._plan.io_buffer_bytes)
        while await walk.next():
            await self._count(len(walk.chunk), 0)
            chunk = walk.chunk
            for position, header in walk.found:
                if header.last_offset < first_dirty:
                    continue
                if header.is_control:
                    seen.marker(header, read_marker(memoryview(chunk)[position : position + header.size]))
                elif not seen.data(header) and not add(
                    header.base_offset, header.last_offset, _places(chunk, position, header)
                ):
                    return False
                self.keys.latest_offset = header.last_offset
        return True

    # -- writing what kept -----------------------------------------------------------------------------------------

    async def rewrite(self, ask: Ask, end: int) -> bool:
        """Writes and replaces the segments group by group; False when the broker stops the job."""
        plan = self._plan
        sizes = {name: size for name, _, size in await self._disk.list(plan.directory)}
        ends = [*(base for base, _ in plan.segments[1:]), plan.end]
        sources = [
            SourceSegment(
                base,
                size,
                sizes.get(offset_name(base, INDEX), 0),
                sizes.get(offset_name(base, TIME_INDEX), 0),
                next_base,
            )
            for (base, size), next_base in zip(plan.segments, ends, strict=True)
            if base < end
        ]
        groups = group_segments(sources, segment_bytes=plan.segment_bytes, segment_index_bytes=plan.segment_index_bytes)
        for group in groups:
            unlinked = await ask(await self._write_group(group))
            if unlinked is None:
                return False
            for name in unlinked:
                await self._disk.delete(name)
        return True

    async def _write_group(self, group: list[SourceSegment]) -> CleanedSegment:
        base = group[0].base_offset
        output = _SegmentWriter(await self._created(base, LOG), base, self._plan.index_interval_bytes)
        last = max((source.base_offset for source in group if source.size), default=base)
        for source in group:
            name = self._name(source.base_offset, LOG)
            walk = _Batches(self._disk, name, source.size, self._plan.io_buffer_bytes)
            while await walk.next():
                written = output.size
                is_end = source.base_offset == last and walk.is_at_end
                self._filter_chunk(walk, output, is_end)
                await output.write()
                await self._count(len(walk.chunk), output.size - written)
        aborted = self._transactions.take_kept()
        await output.close()
        for suffix, content in (
            (INDEX, output.index.unwritten_offset_entries),
            (TIME_INDEX, output.index.unwritten_time_entries),
            (TXN_INDEX, b"".join(one.encode() for one in aborted)),
        ):
            if content or suffix != TXN_INDEX:
                await self._write_small(base, suffix, content)
        bases = [source.base_offset for source in group]
        return CleanedSegment(bases, output.size, output.max_timestamp, output.max_timestamp_offset, bool(aborted))

    def _filter_chunk(self, walk: _Batches, output: _SegmentWriter, is_end: bool) -> None:
        chunk, batch_filter = walk.chunk, self.batch_filter
        final = walk.found[-1][0] if is_end else -1
        for position, header in walk.found:
            self.records_read += header.record_count
            kept = batch_filter.filter(chunk, position, header, position == final)
            if kept is WHOLE:
                output.add_whole(chunk, position, header)
            elif kept is not NOTHING:
                output.add(kept, header)

    async def _count(self, read: int, written: int) -> None:
        self.bytes_read += read
        self.bytes_written += written
        await self._throttle.count(read + written)

    def _name(self, base: int, suffix: str) -> str:
        return f"{self._plan.directory}/{offset_name(base, suffix)}"

    async def _created(self, base: int, suffix: str) -> File:
        file = await self._disk.open(self._name(base, suffix) + CLEANED, create=True)
        if file.size:
            await file.truncate(0)  # left by an earlier compaction that failed
        return file

    async def _write_small(self, base: int, suffix: str, content: Buffer) -> None:
        file = await self._created(base, suffix)
        if content:
            await file.append((content,))
        await file.fsync()
        await file.close()


def _places(chunk: bytes, position: int, header: BatchHeader) -> Sequence[Place]:
    """The places of the records of a data batch."""
    if header.magic != MAGIC:
        return places_of(header, decode_batch(memoryview(chunk)[position : position + header.size]))
    if not header.record_count:
        return ()
    data, start, end = payload_of(chunk, position, header)
    return record_places(data, start, end, header.record_count)


class _Batches:
    """Reads the batches of a segment, a buffer at a time: `chunk`, and `found` with (position in it, header).

    The file is closed at its end; after a failure the job's Disk closes it.
    """

    def __init__(self, disk: Disk, name: str, size: int, buffer_bytes: int) -> None:
        self._disk = disk
        self._name = name
        self._size = size
        self._buffer_bytes = max(buffer_bytes, HEADER_BYTES)
        self._file: File | None = None
        self._position = 0
        self.chunk = b""
        self.found: list[tuple[int, BatchHeader]] = []

    @property
    def is_at_end(self) -> bool:
        """Whether `found` are the segment's last batches."""
        return self._position >= self._size

    async def next(self) -> bool:
        """Reads the next buffer; False at the end. Raises CorruptBatch, OSError."""
        if self._file is None:
            self._file = await self._disk.open(self._name)
        wanted = self._buffer_bytes
        while self._position < self._size:
            chunk = await self._read(self._position, wanted)
            # Outside of a worker process, lets other tasks of the event loop run between two buffers.
            await asyncio.sleep(0)
            found, after, next_size = self._whole(chunk)
            if found:
                self.chunk, self.found = chunk, found
                self._position += after
                return True
            if not next_size or next_size > self._size - self._position or len(chunk) >= next_size:
                if any(chunk) or not await self._is_zero():
                    raise CorruptBatch(f"{self._name}: no whole batch at byte {self._position}")
                break  # Apache Kafka's preallocated tail
            wanted = next_size
        await self._file.close()
        return False

    def _whole(self, chunk: bytes) -> tuple[list[tuple[int, BatchHeader]], int, int]:
        """(batches, their bytes, size of the incomplete batch behind them or 0 when there is none)."""
        view = memoryview(chunk)
        found: list[tuple[int, BatchHeader]] = []
        position = 0
        end = len(chunk)
        while True:
            header = header_at(chunk, position)
            if header is None:
                return found, position, 0 if end - position >= HEADER_BYTES else MIN_ENTRY_BYTES
            after = position + header.size
            if after > end:
                return found, position, header.size
            if not is_batch_intact(view[position:after], header.magic):
                raise CorruptBatch(
                    f"{self._name}: the checksum of the batch at byte {self._position + position} does not fit"
                )
            found.append((position, header))
            position = after

    async def _read(self, position: int, wanted: int) -> bytes:
        """Reads so many bytes, fewer only at the segment's end. Raises CorruptBatch for a file that is shorter: it was
        truncated meanwhile, or is damaged."""
        assert self._file is not None
        length = min(wanted, self._size - position)
        chunk = await self._file.read(position, length)
        if len(chunk) < length:
            raise CorruptBatch(f"{self._name}: ends at byte {position + len(chunk)} of {self._size}")
        return chunk

    async def _is_zero(self) -> bool:
        position = self._position
        while position < self._size:
            block = await self._read(position, self._buffer_bytes)
            if any(block):
                return False
            position += len(block)
        return True


class _SegmentWriter:
    """Writes the cleaned segment: its file, and its indexes in memory."""

    def __init__(self, file: File, base_offset: int, interval: int) -> None:
        self._file = file
        self._interval = interval
        self._buffers: list[Buffer] = []
        self._run: tuple[bytes, int, int] | None = None
        self._last_entry = 0
        self._unsynced = 0
        self.index = GrowingIndex(base_offset)
        self.size = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset

    def add_whole(self, chunk: bytes, position: int, header: BatchHeader) -> None:
        """Adds a batch of `chunk` without a change; neighbours are written as one run."""
        after = position + header.size
        if self._run is not None and self._run[0] is chunk and self._run[2] == position:
            self._run = (chunk, self._run[1], after)
        else:
            self._end_run()
            self._run = (chunk, position, after)
        self._count(header, header.size, header.max_timestamp)

    def add(self, batch: bytes, header: BatchHeader) -> None:
        """Adds the batch that replaces the one with `header`."""
        self._end_run()
        self._buffers.append(batch)
        built = header_at(batch, 0)
        assert built is not None
        self._count(built, len(batch), built.max_timestamp)

    def _count(self, header: BatchHeader, size: int, max_timestamp: int) -> None:
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = max_timestamp, header.last_offset
        if self.size - self._last_entry > self._interval:
            self.index.add(header.base_offset, header.last_offset, self.size)
            self.index.add_time(self.max_timestamp, self.max_timestamp_offset)
            self._last_entry = self.size
        self.size += size

    def _end_run(self) -> None:
        if self._run is not None:
            chunk, start, end = self._run
            self._buffers.append(memoryview(chunk)[start:end])
            self._run = None

    async def write(self) -> None:
        """Writes what was added since the last call. Raises OSError."""
        self._end_run()
        if not self._buffers:
            return
        buffers, self._buffers = self._buffers, []
        await self._file.append(buffers)
        self._unsynced += sum(map(len, buffers))
        if self._unsynced >= _SYNC_EVERY_BYTES:
            self._unsynced = 0
            await self._file.fsync()

    async def close(self) -> None:
        self.index.add_time(self.max_timestamp, self.max_timestamp_offset)
        await self._file.fsync()
        await self._file.close()


class _Throttle:
    """Sleeps so that no more than `bytes_per_second` are read and written; 0 is no limit."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._total = 0
        self._start = asyncio.get_running_loop().time()

    async def count(self, count: int) -> None:
        if self._rate <= 0:
            return
        self._total += count
        ahead = self._total / self._rate - (asyncio.get_running_loop().time() - self._start)
        if ahead > _PAUSE_S:
            await asyncio.sleep(ahead)
