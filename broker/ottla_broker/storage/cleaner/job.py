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
from ottla_broker.records.batch import MAGIC, BatchHeader
from ottla_broker.records.control_records import read_marker
from ottla_broker.records.formats import decode_batch
from ottla_broker.records.places import Place, payload_of, record_places
from ottla_broker.storage.cleaner.batch_reader import SegmentBatchReader
from ottla_broker.storage.cleaner.cleaned_segment_writer import CleanedSegmentWriter
from ottla_broker.storage.cleaner.filtering import NOTHING, WHOLE, BatchFilter, places_of
from ottla_broker.storage.cleaner.key_map import KeyMap
from ottla_broker.storage.cleaner.selection import SourceSegment, group_segments
from ottla_broker.storage.cleaner.transaction_view import TransactionView
from ottla_broker.storage.files.names import CLEANED, INDEX, LOG, TIME_INDEX, TXN_INDEX, offset_name
from ottla_broker.storage.files.transaction_index import AbortedTransaction

Ask: TypeAlias = Callable[[Any], Awaitable[Any]]

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
    max_decompressed_bytes: int
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
    """Compacts one log.

    Raises CorruptBatch, UnsupportedCompression, BatchTooLarge (the log is uncleanable), OSError.
    """
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
            max_decompressed_bytes=plan.max_decompressed_bytes,
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
        plan = self._plan
        first_dirty, most = plan.first_dirty, plan.max_decompressed_bytes
        walk = SegmentBatchReader(self._disk, self._name(base, LOG), size, self._plan.io_buffer_bytes)
        while await walk.next():
            await self._count(len(walk.chunk), 0)
            chunk = walk.chunk
            for position, header in walk.found:
                if header.last_offset < first_dirty:
                    continue
                if header.is_control:
                    seen.marker(header, read_marker(memoryview(chunk)[position : position + header.size]))
                elif not seen.data(header) and not add(
                    header.base_offset,
                    header.last_offset,
                    _places(chunk, position, header, most),
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
        output = CleanedSegmentWriter(await self._created(base, LOG), base, self._plan.index_interval_bytes)
        last = max((source.base_offset for source in group if source.size), default=base)
        for source in group:
            name = self._name(source.base_offset, LOG)
            walk = SegmentBatchReader(self._disk, name, source.size, self._plan.io_buffer_bytes)
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

    def _filter_chunk(self, walk: SegmentBatchReader, output: CleanedSegmentWriter, is_end: bool) -> None:
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


def _places(chunk: bytes, position: int, header: BatchHeader, max_bytes: int) -> Sequence[Place]:
    """The places of the records of a data batch."""
    if header.magic != MAGIC:
        return places_of(header, decode_batch(memoryview(chunk)[position : position + header.size], max_bytes))
    if not header.record_count:
        return ()
    data, start, end = payload_of(chunk, position, header, max_bytes)
    return record_places(data, start, end, header.record_count)


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
