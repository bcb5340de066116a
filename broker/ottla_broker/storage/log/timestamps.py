"""Finds offsets of a log by timestamp, for ListOffsets.

Worked example: three segments with the largest timestamps 100, 250 and 400 (ms), asked for 200. The first segment is
passed over; the time index of the second gives the last entry at or before 200, batch headers are read from there until
a batch's largest timestamp is at least 200, and its records are searched for the first one (`record_search.py`).

Source: UnifiedLog.fetchOffsetByTimestamp and legacyFetchOffsetsBefore of Apache Kafka, KIP-79, KIP-734.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from ottla_broker.ports.clock import Clock
from ottla_broker.records.batch import BatchHeader
from ottla_broker.storage.files.indexes import GrowingIndex, floor_of_timestamp, last_time_entry
from ottla_broker.storage.files.scan import HeaderWalk
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.log.record_search import RecordSearch
from ottla_broker.storage.log.segment_lookup import SegmentLookup
from ottla_broker.storage.log.state import LogState

_YIELD_BYTES = 64 * 1024
"""After so much of a file a walk over batch headers, which may be cached, lets others run."""


class TimestampAndOffset(NamedTuple):
    """A record: its timestamp in ms, its offset and its batch's leader epoch."""

    timestamp: int
    offset: int
    leader_epoch: int


class TimestampLookup:
    """The lookups by timestamp of one log."""

    __slots__ = ("_clock", "_lookup", "_state")

    def __init__(self, state: LogState, clock: Clock, lookup: SegmentLookup) -> None:
        self._state = state
        self._clock = clock
        self._lookup = lookup

    def offset_for_timestamp(
        self, timestamp: int, upper_offset: int, search: RecordSearch
    ) -> asyncio.Future[TimestampAndOffset | None]:
        """The first record at or after `timestamp` (ms) below `upper_offset` (KIP-79), None when there is none."""
        return self._lookup.spawn(lambda: self._offset_for_timestamp(timestamp, upper_offset, search))

    def max_timestamp(
        self, upper_offset: int | None, search: RecordSearch
    ) -> asyncio.Future[TimestampAndOffset | None]:
        """The first record with the largest timestamp below `upper_offset` (KIP-734), None in an empty log."""
        return self._lookup.spawn(lambda: self._max_timestamp(upper_offset, search))

    def segment_offsets(self, timestamp: int | None, max_offsets: int) -> asyncio.Future[list[int]]:
        """The offsets at which segments begin, and the log end offset, newest first: the answer of ListOffsets v0.

        Args:
            timestamp: in ms; only segments whose latest record is not younger, and those before them.
            max_offsets: length of the answer at most.
        """
        return self._lookup.spawn(lambda: self._segment_offsets(timestamp, max_offsets))

    async def _segment_offsets(self, timestamp: int | None, max_offsets: int) -> list[int]:
        state = self._state
        state.check_online()
        found: list[int] = []
        for segment in tuple(state.segments):
            if timestamp is not None:
                latest = await self.largest_timestamp(segment)
                if (latest if latest >= 0 else segment.created_ms) > timestamp:
                    break
            found.append(max(segment.base_offset, state.log_start_offset))
        else:
            if state.log_end_offset > found[-1] and (timestamp is None or timestamp >= self._clock.now_ms()):
                found.append(state.log_end_offset)
        return found[::-1][: max(max_offsets, 0)]

    async def _offset_for_timestamp(
        self, timestamp: int, upper_offset: int, search: RecordSearch
    ) -> TimestampAndOffset | None:
        state = self._state
        state.check_online()
        upper = min(upper_offset, state.log_end_offset)
        for segment in tuple(state.segments):
            if segment.base_offset >= upper:
                break
            if await self.largest_timestamp(segment) < timestamp:
                continue
            found = await self._search(segment, timestamp, upper, search)
            if found is not None:
                return found
        return None

    async def _max_timestamp(self, upper_offset: int | None, search: RecordSearch) -> TimestampAndOffset | None:
        state = self._state
        state.check_online()
        upper = state.log_end_offset if upper_offset is None else min(upper_offset, state.log_end_offset)
        best: Segment | None = None
        largest = -1
        for segment in tuple(state.segments):
            if segment.base_offset < upper and (latest := await self.largest_timestamp(segment)) > largest:
                best, largest = segment, latest
        if best is None:
            return None
        found = await self._search(best, largest, upper, search)
        if found is not None or upper >= state.log_end_offset:
            return found
        # The record with the largest timestamp is not below the bound: find the largest that is. The headers say which
        # batch has it, unless retention or compaction deleted that very record.
        most = -1

        async def compare(_: Segment, __: int, header: BatchHeader) -> None:
            nonlocal most
            most = max(most, header.max_timestamp)

        await self._visit_headers(upper, compare)
        return await self._largest_record(upper, most, search) or await self._largest_record(upper, -1, search)

    async def _largest_record(self, upper: int, at_least: int, search: RecordSearch) -> TimestampAndOffset | None:
        """The first record with the largest timestamp below `upper`, of the batches that have `at_least` (ms)."""
        found: TimestampAndOffset | None = None

        async def look(segment: Segment, position: int, header: BatchHeader) -> None:
            nonlocal found
            latest = header.max_timestamp
            if latest >= at_least and (found is None or latest > found.timestamp):
                found = await self._first_in_batch(segment, position, header, latest, upper, search) or found

        await self._visit_headers(upper, look)
        return found

    async def _visit_headers(
        self, upper: int, visit: Callable[[Segment, int, BatchHeader], Coroutine[Any, Any, None]]
    ) -> None:
        """Calls `visit(segment, position, header)` for every batch below `upper`, and lets others run between many."""
        for segment in tuple(self._state.segments):
            file = await self._lookup.open(segment)
            walk = HeaderWalk(file, 0, min(segment.size, file.size))
            yielded_at = 0
            while (step := await walk.next()) is not None and step[1].base_offset < upper:
                position, header = step
                if position - yielded_at >= _YIELD_BYTES:
                    yielded_at = position
                    await asyncio.sleep(0)
                await visit(segment, position, header)

    async def largest_timestamp(self, segment: Segment) -> int:
        """The largest timestamp of a segment in ms, by its time index; -1 when it has none. Raises OSError."""
        if segment.max_timestamp is None:
            entry = last_time_entry(await self._lookup.time_index(segment), segment.base_offset)
            segment.max_timestamp, segment.max_timestamp_offset = entry or (-1, segment.base_offset)
        return segment.max_timestamp

    async def _search(
        self, segment: Segment, timestamp: int, upper: int, search: RecordSearch
    ) -> TimestampAndOffset | None:
        """The first record of the segment at or after `timestamp` below `upper`."""
        await self._lookup.open(segment)
        if isinstance(segment.index, GrowingIndex):
            first = segment.index.floor_of_timestamp(timestamp)
        else:
            first = floor_of_timestamp(await self._lookup.time_index(segment), segment.base_offset, timestamp)
        start, _ = await self._lookup.find(segment, first)
        file = await self._lookup.open(segment)
        walk = HeaderWalk(file, start, min(segment.size, file.size))
        yielded_at = start
        while (step := await walk.next()) is not None:
            position, header = step
            if position - yielded_at >= _YIELD_BYTES:
                yielded_at = position
                await asyncio.sleep(0)
            if header.base_offset >= upper:
                return None
            if header.max_timestamp >= timestamp:
                found = await self._first_in_batch(segment, position, header, timestamp, upper, search)
                if found is not None:
                    return found
        return None

    async def _first_in_batch(
        self,
        segment: Segment,
        position: int,
        header: BatchHeader,
        timestamp: int,
        upper: int,
        search: RecordSearch,
    ) -> TimestampAndOffset | None:
        """The first record of the batch at `position` that is at or after `timestamp` and below `upper`."""
        state = self._state

        async def read() -> bytes:
            return await (await self._lookup.open(segment)).read(position, header.size)

        found = await search.first_record_at(
            header,
            read,
            state.disk.path,
            timestamp,
            state.log_start_offset,
            upper,
            state.config.max_decompressed_bytes,
        )
        return None if found is None else TimestampAndOffset(*found, header.leader_epoch)
