"""Finds the batch of an offset in a log's segments, and handles segments that go away while they are read.

Worked example: the index has the entries offset 100 at byte 4 200 and offset 190 at byte 8 600. To find offset 150, the
index gives byte 4 200, and batch headers are read from there until one holds 150.

Reads take no lock. A read that finds its file gone looks at what happened meanwhile: after retention it answers
OFFSET_OUT_OF_RANGE, after a truncation NOT_LEADER_OR_FOLLOWER, after compaction it reads the new segment; only when
none of them happened is it a failure of the disk.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ottla_broker.ports.disk import File
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import BatchHeader
from ottla_broker.records.errors import CorruptBatch
from ottla_broker.storage.files.names import LOG
from ottla_broker.storage.files.scan import BLOCK_BYTES, find_in_block
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.log.failures import LogFailures
from ottla_broker.storage.log.state import LogState

_T = TypeVar("_T")


class SegmentLookup:
    """Opens the segments of one log and finds batches in them."""

    __slots__ = ("_failures", "_notice", "_state")

    def __init__(self, state: LogState, failures: LogFailures, notice: Callable[[str], None]) -> None:
        """`notice` takes a line for the broker's log."""
        self._state = state
        self._failures = failures
        self._notice = notice

    def spawn(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> asyncio.Task[_T]:
        """Starts a read as a task; `work` is called again when compaction replaced the segment that it was reading."""
        # Taken now: the task begins later, and a truncation may come between.
        state = self._state
        attempts = self._retry_if_replaced(work, state.segments, state.log_start_offset, state.truncation_count)
        return self._failures.spawn(attempts, "read of")

    async def _retry_if_replaced(
        self, work: Callable[[], Coroutine[Any, Any, _T]], segments: list[Segment], start: int, truncations: int
    ) -> _T:
        """`segments`, `start`, `truncations`: of the log when the read was asked for."""
        state = self._state
        while True:
            try:
                return await work()
            except OSError as error:
                has_changed = state.segments is not segments or state.is_truncating
                if not has_changed or error.errno not in (errno.ENOENT, errno.EBADF):
                    raise
                if state.log_start_offset > start:
                    raise self.deleted_error() from error
                if state.is_truncating or state.truncation_count != truncations:
                    # Not OFFSET_OUT_OF_RANGE: a consumer would reset its position because of a new leader.
                    message = f"{state.topic_partition} was truncated while being read"
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message) from error
                segments = state.segments

    def deleted_error(self) -> KafkaError:
        """Why a read fails whose records were deleted meanwhile."""
        message = f"records of {self._state.topic_partition} were deleted while being read"
        return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)

    def closed_error(self, segment: Segment) -> FileNotFoundError:
        """For a segment that was closed during a read; `spawn` finds out why."""
        return FileNotFoundError(errno.ENOENT, "the segment is not there any more", segment.name(LOG))

    async def open(self, segment: Segment) -> File:
        """The segment's file, its index being loaded. Raises OSError."""
        was_reindexed = segment.was_reindexed
        await segment.make_ready()
        if segment.was_reindexed and not was_reindexed:
            self._report_reindexed(segment)
        if segment.file is None:
            raise self.closed_error(segment)
        return segment.file

    async def time_index(self, segment: Segment) -> memoryview:
        """The time index of a closed segment. Raises OSError."""
        was_reindexed = segment.was_reindexed
        view = await segment.time_index()
        if segment.was_reindexed and not was_reindexed:
            self._report_reindexed(segment)
        return view

    def _report_reindexed(self, segment: Segment) -> None:
        self._notice(f"{segment.name(LOG)}: its indexes were damaged and have been rebuilt from its batches")

    async def find(self, segment: Segment, offset: int) -> tuple[int, BatchHeader | None]:
        """(position, header) of the batch that holds `offset` or is the first above it; (size, None) at the end.

        Rebuilds a damaged index. Raises OSError, CorruptBatch when the log itself is damaged.
        """
        try:
            return await self._walk_to(segment, offset)
        except CorruptBatch:
            if not await segment.reindex():
                raise
            self._report_reindexed(segment)
            return await self._walk_to(segment, offset)

    async def _walk_to(self, segment: Segment, offset: int) -> tuple[int, BatchHeader | None]:
        file = await self.open(segment)
        place = segment.find_position(offset)
        if place is None:
            raise self.closed_error(segment)
        start = position = place[0]
        end = min(segment.size, file.size)
        while position < end:
            block = await file.read(position, min(BLOCK_BYTES, end - position))
            found, header = find_in_block(block, offset, end - position)
            if header is not None and position == start > 0 and not found and header.base_offset > offset:
                raise CorruptBatch(f"{segment.name(LOG)}: the index points beyond offset {offset}")
            position += found
            if header is not None:
                return position, header
            if not found:
                raise CorruptBatch(f"{self._state.disk.path}/{segment.name(LOG)}: no batch at byte {position}")
            await asyncio.sleep(0)  # far from an index entry; the blocks may be cached
        return end, None
