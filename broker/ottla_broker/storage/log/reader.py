"""Reads a log for fetches: file ranges that the network sends without copying.

`LogReader.read` answers at once when it needs no disk: the position is known, or the page cache has the batch headers
to find it, and the bytes are cached. Otherwise a task opens files, maps indexes and reads ahead on the disk's thread.

Not here: the search for a batch (`segment_lookup.py`), offsets by timestamp (`timestamps.py`), the aborted transactions
of a read (`aborted_transactions.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from ottla_broker.ports.disk import File, FileRange
from ottla_broker.ports.futures import retrieve
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import LOG_OVERHEAD, PREFIX, PREFIX_BYTES
from ottla_broker.storage.files.scan import BLOCK_BYTES, find_in_block
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.log.segment_lookup import SegmentLookup
from ottla_broker.storage.log.state import LogState

_TAIL_BYTES = 4 * 1024 * 1024
"""The page cache is taken to hold so many bytes before the end of the active segment: they were just written."""

A_LOT = 1 << 30
"""`bytes_between` when the range begins in a closed segment: more than any fetch.min.bytes in use."""


class LogRead(NamedTuple):
    """File ranges, which the caller sends or releases, and their bytes."""

    chunks: Sequence[FileRange]
    size: int
    base_offset: int = -1
    """Of the segment."""
    end_position: int = 0
    """Behind the last byte, in the segment's file."""


NOTHING = LogRead((), 0)


class LogReader:
    """The reads of one log."""

    __slots__ = ("_lookup", "_state")

    def __init__(self, state: LogState, lookup: SegmentLookup) -> None:
        self._state = state
        self._lookup = lookup

    def read(
        self, offset: int, max_bytes: int, upper_offset: int, at_least_one_batch: bool
    ) -> LogRead | asyncio.Future[LogRead]:
        """Reads from the batch that holds `offset` on, at once when no disk is needed, else as a future.

        Args:
            offset: of the first record that is wanted.
            max_bytes: the last batch may be cut off by it, the first is not.
            upper_offset: only batches that end below it.
            at_least_one_batch: a first batch above `max_bytes` comes whole; else nothing comes (KIP-74).

        Raises KafkaError OFFSET_OUT_OF_RANGE outside of the log start and end offsets, KAFKA_STORAGE_ERROR.
        """
        state = self._state
        if state.is_failed:
            raise state.storage_error()
        end = state.log_end_offset
        if offset < state.log_start_offset or offset > end:
            raise self._out_of_range(offset)
        upper = end if upper_offset > end else upper_offset
        if offset >= upper:
            return NOTHING
        segment = state.segment_of(offset)
        start = self._position_now(segment, offset)
        if start is not None:
            if upper == end and segment is state.written_segment:
                limit: int | None = state.written_position
            else:
                limit = self._limit_now(segment, upper)
            if limit is not None:
                available = limit - start
                if available <= 0 and segment.next_offset >= upper:
                    return NOTHING
                size = None
                if available > 0:  # else compaction removed the rest of this segment, and the next one continues
                    size = self._size_now(segment, start, available, max_bytes, at_least_one_batch)
                if size is not None:
                    if not size:
                        return NOTHING
                    file = segment.file
                    assert file is not None
                    if (segment is state.active_segment and start >= segment.size - _TAIL_BYTES) or file.is_cached(
                        start, size
                    ):
                        return LogRead((file.range(start, size),), size, segment.base_offset, start + size)
        return self._lookup.spawn(lambda: self._read_from_disk(offset, max_bytes, upper, at_least_one_batch))

    def _out_of_range(self, offset: int) -> KafkaError:
        state = self._state
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {state.topic_partition} is not within"
            f" {state.log_start_offset}..{state.log_end_offset}",
        )

    def bytes_between(self, offset: int, upper_offset: int) -> int:
        """Bytes that a read of `offset` up to `upper_offset` would give, without I/O.

        Exact near the end of the active segment, an upper estimate within it, `A_LOT` in a closed segment.
        """
        state = self._state
        active = state.active_segment
        upper = min(upper_offset, state.log_end_offset)
        if offset >= upper:
            return 0
        if offset < active.base_offset:
            return A_LOT
        start = active.find_position(offset)
        end = (state.written_position, True) if upper == state.log_end_offset else active.find_position(upper)
        if start is None or end is None:
            return A_LOT
        return max(end[0] - start[0], 0)

    # -- without waiting ----------------------------------------------------------------------------------------

    def _position_now(self, segment: Segment, offset: int) -> int | None:
        """Position of the batch that holds `offset`, None when that needs the disk."""
        place = segment.find_position(offset)
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
        """Position at which batches of `upper` and above begin, or the segment's end; None when that needs the disk."""
        if upper >= segment.next_offset:
            return segment.size
        return self._position_now(segment, upper)

    def _size_now(self, segment: Segment, start: int, available: int, max_bytes: int, at_least_one: bool) -> int | None:
        """Bytes to give; None when the first batch's size is not cached."""
        if available <= max_bytes:
            return available
        if not at_least_one and max_bytes <= 0:
            return 0
        assert segment.file is not None
        prefix = segment.file.read(start, PREFIX_BYTES)
        if not prefix.done():
            prefix.add_done_callback(retrieve)
            return None
        return _with_first_whole(prefix.result(), max_bytes, at_least_one)

    # -- with the disk ------------------------------------------------------------------------------------------

    async def read_bytes(self, offset: int, max_bytes: int) -> bytes:
        """The bytes of `read` up to the log end offset, at least one batch, read on the disk's thread where they are
        not cached: for a future replica. Raises KafkaError as `read`."""
        state = self._state
        end = state.log_end_offset
        if not state.log_start_offset <= offset <= end:
            raise self._out_of_range(offset)
        if offset == end:
            return b""
        return await self._lookup.spawn(lambda: self._read_bytes(offset, max_bytes, end))

    async def _read_bytes(self, offset: int, max_bytes: int, upper: int) -> bytes:
        found = await self._locate(offset, max_bytes, upper, True)
        return b"" if found is None else await found[1].read(found[2], found[3])

    async def _read_from_disk(self, offset: int, max_bytes: int, upper: int, at_least_one: bool) -> LogRead:
        truncations = self._state.truncation_count
        found = await self._locate(offset, max_bytes, upper, at_least_one)
        if found is None:
            return NOTHING
        segment, file, start, size = found
        if not file.is_cached(start, size):
            await file.read_ahead(start, size)
        if segment.is_gone or (segment.file is not file and self._state.truncation_count == truncations):
            raise self._lookup.closed_error(segment)
        if segment.file is not file or start + size > file.size:
            # Truncated during this read: the next fetch finds the log as it is now.
            return NOTHING
        return LogRead((file.range(start, size),), size, segment.base_offset, start + size)

    async def _locate(
        self, offset: int, max_bytes: int, upper: int, at_least_one: bool
    ) -> tuple[Segment, File, int, int] | None:
        """(segment, its file, position, size) of the bytes to read; None when there are none."""
        state = self._state
        find = self._lookup.find
        segment = state.segment_of(offset)
        start, header = await find(segment, offset)
        while header is None and segment.next_offset < upper and segment is not state.segments[-1]:
            # Compaction removed the last records of the segment: the next one continues.
            segment = state.segment_of(segment.next_offset)
            start, header = await find(segment, offset)
        if upper == state.log_end_offset and segment is state.written_segment:
            limit = state.written_position
        elif upper >= segment.next_offset:
            limit = segment.size
        else:
            limit, _ = await find(segment, upper)
        file = await self._lookup.open(segment)
        state.check_online()
        if offset < state.log_start_offset:
            # Deleted meanwhile; the segment may be the first of those that are left.
            raise self._lookup.deleted_error()
        if segment not in state.segments:
            raise self._lookup.closed_error(segment)
        limit = min(limit, file.size)
        available = limit - start
        if available <= 0:
            return None
        size = available
        if available > max_bytes:
            prefix = await file.read(start, PREFIX_BYTES)
            size = min(_with_first_whole(prefix, max_bytes, at_least_one), available)
        return (segment, file, start, size) if size else None


def _with_first_whole(prefix: bytes, max_bytes: int, at_least_one: bool) -> int:
    """Bytes to give of more than `max_bytes`. `prefix`: the first bytes of the first batch."""
    first: int = LOG_OVERHEAD + PREFIX.unpack_from(prefix)[1]
    if first <= max_bytes:
        return max_bytes
    return first if at_least_one else 0
