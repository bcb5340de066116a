"""Reading a log: finding the batch of an offset and handing out file ranges; finding offsets by time.

`read` answers at once when it needs no disk: the place is known (or the page cache has the headers to find it) and the
bytes are cached. Otherwise a task opens, maps and reads ahead on the lane first. Worked example: entries of the index
at offset 100 → byte 4 200 and 190 → 8 600, a fetch of 150: floor gives byte 4 200, from there headers are walked until
one holds 150; everything from that batch on is one range of the file.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla_broker.ports.disk import File, FileRange
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import LOG_OVERHEAD, PREFIX, PREFIX_BYTES, BatchHeader
from ottla_broker.records.errors import CorruptBatch
from ottla_broker.records.formats import decode_batch
from ottla_broker.storage.files.indexes import GrowingIndex, floor_of_timestamp, last_time_entry
from ottla_broker.storage.files.names import LOG
from ottla_broker.storage.files.scan import BLOCK_BYTES, HeaderWalk, find_in_block
from ottla_broker.storage.files.segment import Segment, retrieve
from ottla_broker.storage.log.state import LogState

_T = TypeVar("_T")

_TAIL_BYTES = 4 * 1024 * 1024
"""So close to the end of the active segment the page cache still holds the bytes that were just written."""

A_LOT = 1 << 30
"""`bytes_between` when the range leaves the active segment: more than any min_bytes in use."""


class LogRead(NamedTuple):
    """File ranges, to be sent or released, and their bytes."""

    chunks: Sequence[FileRange]
    size: int
    base_offset: int = -1
    """Of the segment."""
    end_position: int = 0
    """Behind the last byte, in the segment's file."""


class TimestampAndOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


NOTHING = LogRead((), 0)


class LogReads(LogState):
    """The reading half of a log."""

    __slots__ = ()

    def read(
        self, offset: int, max_bytes: int, upper_offset: int, at_least_one_batch: bool
    ) -> LogRead | asyncio.Future[LogRead]:
        """From the batch that holds `offset`, up to `max_bytes` bytes (the last batch may be cut, the first is not),
        only batches that end below `upper_offset`. A first batch that is larger comes whole with `at_least_one_batch`;
        without it nothing comes (as in Apache Kafka, for clients of KIP-74): its beginning is of no use to anybody.

        At once when no disk is needed, else a future. KafkaError OFFSET_OUT_OF_RANGE outside of log start and end
        offset, KAFKA_STORAGE_ERROR when the directory is offline.
        """
        if self.is_failed:
            raise self.storage_error()
        end = self.log_end_offset
        if offset < self.log_start_offset or offset > end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.topic_partition} is not within {self.log_start_offset}..{end}",
            )
        upper = end if upper_offset > end else upper_offset
        if offset >= upper:
            return NOTHING
        segment = self.segment_of(offset)
        start = self._place_now(segment, offset)
        if start is not None:
            limit = self._limit_now(segment, upper)
            if limit is not None:
                available = limit - start
                if available <= 0 and segment.next_offset >= upper:
                    return NOTHING
                size = None
                if available > 0:  # else compaction took what this segment had from here on: the next one goes on
                    size = self._size_now(segment, start, available, max_bytes, at_least_one_batch)
                if size is not None:
                    if not size:
                        return NOTHING
                    file = segment.file
                    assert file is not None
                    if (segment is self._active and start >= segment.size - _TAIL_BYTES) or file.is_cached(start, size):
                        return LogRead((file.range(start, size),), size, segment.base_offset, start + size)
        return self._spawn_read(lambda: self._read_slowly(offset, max_bytes, upper, at_least_one_batch))

    def bytes_between(self, offset: int, upper_offset: int) -> int:
        """Bytes that a read of `offset` up to `upper_offset` would give, without I/O: exact near the end of the active
        segment, an estimate from above within it, `A_LOT` when it begins in a closed segment."""
        active = self._active
        upper = min(upper_offset, self.log_end_offset)
        if offset >= upper:
            return 0
        if offset < active.base_offset:
            return A_LOT
        start = active.place(offset)
        end = (self._written_position, True) if upper == self.log_end_offset else active.place(upper)
        if start is None or end is None:
            return A_LOT
        return max(end[0] - start[0], 0)

    def _spawn_read(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> asyncio.Task[_T]:
        # Taken now: the task begins a turn later, and a truncation may come between.
        return self._spawn(self._outrun(work, self.segments, self.log_start_offset, self.truncation_count), "read of")

    async def _outrun(
        self, work: Callable[[], Coroutine[Any, Any, _T]], segments: list[Segment], start: int, truncations: int
    ) -> _T:
        """A file that is gone because retention, compaction or a truncation came first is no failure of the disk."""
        while True:
            try:
                return await work()
            except OSError as error:
                has_moved = self.segments is not segments or self._is_truncating
                if not has_moved or error.errno not in (errno.ENOENT, errno.EBADF):
                    raise
                if self.log_start_offset > start:
                    raise self._deleted() from error
                if self._is_truncating or self.truncation_count != truncations:
                    # Not OFFSET_OUT_OF_RANGE: a consumer would give up its position for a change of leaders.
                    message = f"{self.topic_partition} was truncated while being read"
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message) from error
                segments = self.segments  # a cleaned segment has taken the place of this one: read that

    def _deleted(self) -> KafkaError:
        message = f"records of {self.topic_partition} were deleted while being read"
        return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)

    def _gone(self, segment: Segment) -> FileNotFoundError:
        """The segment was closed by somebody else; `_outrun` finds out whether that was in order."""
        return FileNotFoundError(errno.ENOENT, "the segment is not there any more", segment.name(LOG))

    async def _open(self, segment: Segment) -> File:
        was_reindexed = segment.was_reindexed
        await segment.make_ready()
        if segment.was_reindexed and not was_reindexed:
            self._tell_reindexed(segment)
        if segment.file is None:
            raise self._gone(segment)
        return segment.file

    def _tell_reindexed(self, segment: Segment) -> None:
        self._owner.notice(f"{segment.name(LOG)}: its indexes were damaged and have been made anew from its batches")

    # -- places, without waiting --------------------------------------------------------------------------------

    def _place_now(self, segment: Segment, offset: int) -> int | None:
        """Position of the batch that holds `offset`, None when that needs the disk."""
        place = segment.place(offset)
        if place is None or segment.file is None:
            return None
        position, is_exact = place
        if is_exact:
            return position
        limit = segment.size - position
        block = segment.file.read(position, min(BLOCK_BYTES, limit))
        if not block.done():
            block.add_done_callback(retrieve)
            return None
        found, header = find_in_block(block.result(), offset, limit)
        if header is None or (not found and header.base_offset > offset):
            return None  # further on, or the index is wrong
        return position + found

    def _limit_now(self, segment: Segment, upper: int) -> int | None:
        """Position at which batches of `upper` and beyond begin, or the segment's end."""
        if upper == self.log_end_offset and segment is self._written_segment:
            return self._written_position
        if upper >= segment.next_offset:
            return segment.size
        return self._place_now(segment, upper)

    def _size_now(self, segment: Segment, start: int, available: int, max_bytes: int, at_least_one: bool) -> int | None:
        """Bytes to give; None when telling the first batch's size needs the disk."""
        if available <= max_bytes:
            return available
        if not at_least_one and max_bytes <= 0:
            return 0
        assert segment.file is not None
        prefix = segment.file.read(start, PREFIX_BYTES)
        if not prefix.done():
            prefix.add_done_callback(retrieve)
            return None
        return self._with_first_whole(prefix.result(), max_bytes, at_least_one)

    @staticmethod
    def _with_first_whole(prefix: bytes, max_bytes: int, at_least_one: bool) -> int:
        first: int = LOG_OVERHEAD + PREFIX.unpack_from(prefix)[1]
        if first <= max_bytes:
            return max_bytes
        return first if at_least_one else 0

    # -- with the disk ------------------------------------------------------------------------------------------

    async def read_bytes(self, offset: int, max_bytes: int) -> bytes:
        """What `read` gives up to the log end with at least one batch, as bytes that the lane has read where they are
        not cached: for a copy. KafkaError as there."""
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            message = f"offset {offset} of {self.topic_partition} is not within {self.log_start_offset}..{end}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if offset == end:
            return b""
        return await self._spawn_read(lambda: self._read_bytes(offset, max_bytes, end))

    async def _read_bytes(self, offset: int, max_bytes: int, upper: int) -> bytes:
        span = await self._span(offset, max_bytes, upper, True)
        return b"" if span is None else await span[1].read(span[2], span[3])

    async def _read_slowly(self, offset: int, max_bytes: int, upper: int, at_least_one: bool) -> LogRead:
        cuts = self.truncation_count
        span = await self._span(offset, max_bytes, upper, at_least_one)
        if span is None:
            return NOTHING
        segment, file, start, size = span
        if not file.is_cached(start, size):
            await file.read_ahead(start, size)
        if segment.is_gone or (segment.file is not file and self.truncation_count == cuts):
            raise self._gone(segment)
        if segment.file is not file or start + size > file.size:
            # Truncated while we read: the fetcher comes again and finds the log as it is now.
            return NOTHING
        return LogRead((file.range(start, size),), size, segment.base_offset, start + size)

    async def _span(
        self, offset: int, max_bytes: int, upper: int, at_least_one: bool
    ) -> tuple[Segment, File, int, int] | None:
        """Where the bytes of a read stand: (segment, its file, position, size). None when there is nothing to give."""
        segment = self.segment_of(offset)
        start, header = await self._place(segment, offset)
        while header is None and segment.next_offset < upper and segment is not self.segments[-1]:
            # Compaction took the segment's last records: the next one goes on.
            segment = self.segment_of(segment.next_offset)
            start, header = await self._place(segment, offset)
        if upper == self.log_end_offset and segment is self._written_segment:
            limit = self._written_position
        elif upper >= segment.next_offset:
            limit = segment.size
        else:
            limit, _ = await self._place(segment, upper)
        file = await self._open(segment)
        self._check_online()
        if offset < self.log_start_offset:
            # By now, and the segment may be the first of those that are left.
            raise self._deleted()
        if segment not in self.segments:
            raise self._gone(segment)
        limit = min(limit, file.size)
        available = limit - start
        if available <= 0:
            return None
        size = available
        if available > max_bytes:
            prefix = await file.read(start, PREFIX_BYTES)
            size = min(self._with_first_whole(prefix, max_bytes, at_least_one), available)
        return (segment, file, start, size) if size else None

    async def _place(self, segment: Segment, offset: int) -> tuple[int, BatchHeader | None]:
        """(position, header) of the batch that holds `offset` or is the first beyond it; (size, None) at the end.

        Raises OSError, CorruptBatch when the log is damaged there. A damaged index is made anew.
        """
        try:
            return await self._walk_to(segment, offset)
        except CorruptBatch:
            if not await segment.reindex():
                raise
            self._tell_reindexed(segment)
            return await self._walk_to(segment, offset)

    async def _walk_to(self, segment: Segment, offset: int) -> tuple[int, BatchHeader | None]:
        file = await self._open(segment)
        place = segment.place(offset)
        if place is None:
            raise self._gone(segment)
        start = position = place[0]
        end = min(segment.size, file.size)
        while position < end:
            block = await file.read(position, min(BLOCK_BYTES, end - position))
            found, header = find_in_block(block, offset, end - position)
            if header is not None and position == start > 0 and not found and header.base_offset > offset:
                raise CorruptBatch(f"{segment.name(LOG)}: the index leads beyond offset {offset}")
            position += found
            if header is not None:
                return position, header
            if not found:
                raise CorruptBatch(f"{self.disk.path}/{segment.name(LOG)}: no batch at byte {position}")
        return end, None

    # -- by time ------------------------------------------------------------------------------------------------

    def offset_for_timestamp(self, timestamp: int, upper_offset: int) -> asyncio.Future[TimestampAndOffset | None]:
        """The first record at or after `timestamp` (ms) below `upper_offset` (KIP-79), None when there is none."""
        return self._spawn_read(lambda: self._offset_for_timestamp(timestamp, upper_offset))

    def max_timestamp(self, upper_offset: int | None = None) -> asyncio.Future[TimestampAndOffset | None]:
        """The first record that carries the largest timestamp below `upper_offset` (KIP-734), None in an empty log."""
        return self._spawn_read(lambda: self._max_timestamp(upper_offset))

    def segment_offsets(self, timestamp: int | None, max_offsets: int) -> asyncio.Future[list[int]]:
        """Where segments begin, and the log's end, newest first: what ListOffsets v0 answers. With `timestamp` (ms)
        from the newest segment on whose latest record is not younger; at most `max_offsets`."""
        return self._spawn_read(lambda: self._segment_offsets(timestamp, max_offsets))

    async def _segment_offsets(self, timestamp: int | None, max_offsets: int) -> list[int]:
        self._check_online()
        found: list[int] = []
        for segment in tuple(self.segments):
            if timestamp is not None:
                latest = await self.largest_timestamp(segment)
                if (latest if latest >= 0 else segment.created_ms) > timestamp:
                    break
            found.append(max(segment.base_offset, self.log_start_offset))
        else:
            if self.log_end_offset > found[-1] and (timestamp is None or timestamp >= self.clock.now_ms()):
                found.append(self.log_end_offset)
        return found[::-1][: max(max_offsets, 0)]

    async def _offset_for_timestamp(self, timestamp: int, upper_offset: int) -> TimestampAndOffset | None:
        self._check_online()
        upper = min(upper_offset, self.log_end_offset)
        for segment in tuple(self.segments):
            if segment.base_offset >= upper:
                break
            if await self.largest_timestamp(segment) < timestamp:
                continue
            found = await self._search(segment, timestamp, upper)
            if found is not None:
                return found
        return None

    async def _max_timestamp(self, upper_offset: int | None) -> TimestampAndOffset | None:
        self._check_online()
        upper = self.log_end_offset if upper_offset is None else min(upper_offset, self.log_end_offset)
        best: Segment | None = None
        largest = -1
        for segment in tuple(self.segments):
            if segment.base_offset < upper and (latest := await self.largest_timestamp(segment)) > largest:
                best, largest = segment, latest
        if best is None:
            return None
        found = await self._search(best, largest, upper)
        if found is not None or upper >= self.log_end_offset:
            return found
        # The largest one is not visible yet: look for the largest below the bound.
        for segment in tuple(self.segments):
            file = await self._open(segment)
            walk = HeaderWalk(file, 0, min(segment.size, file.size))
            while (step := await walk.next()) is not None and step[1].base_offset < upper:
                position, header = step
                if found is None or header.max_timestamp > found.timestamp:
                    candidate = await self._first_in_batch(segment, position, header, header.max_timestamp, upper)
                    found = candidate or found
        return found

    async def largest_timestamp(self, segment: Segment) -> int:
        """Of a segment, in ms: from the last entry of its time index; -1 when it has none."""
        if segment.max_timestamp is None:
            entry = last_time_entry(await self._time_index(segment), segment.base_offset)
            segment.max_timestamp, segment.max_timestamp_offset = entry or (-1, segment.base_offset)
        return segment.max_timestamp

    async def _time_index(self, segment: Segment) -> memoryview:
        was_reindexed = segment.was_reindexed
        view = await segment.time_index()
        if segment.was_reindexed and not was_reindexed:
            self._tell_reindexed(segment)
        return view

    async def _search(self, segment: Segment, timestamp: int, upper: int) -> TimestampAndOffset | None:
        await self._open(segment)
        if isinstance(segment.index, GrowingIndex):
            first = segment.index.floor_of_timestamp(timestamp)
        else:
            first = floor_of_timestamp(await self._time_index(segment), segment.base_offset, timestamp)
        start, _ = await self._place(segment, first)
        file = await self._open(segment)
        walk = HeaderWalk(file, start, min(segment.size, file.size))
        while (step := await walk.next()) is not None:
            position, header = step
            if header.base_offset >= upper:
                return None
            if header.max_timestamp >= timestamp:
                found = await self._first_in_batch(segment, position, header, timestamp, upper)
                if found is not None:
                    return found
        return None

    async def _first_in_batch(
        self, segment: Segment, position: int, header: BatchHeader, timestamp: int, upper: int
    ) -> TimestampAndOffset | None:
        batch = await (await self._open(segment)).read(position, header.size)
        for record in decode_batch(batch):
            if record.timestamp >= timestamp and self.log_start_offset <= record.offset < upper:
                return TimestampAndOffset(record.timestamp, record.offset, header.leader_epoch)
        return None
