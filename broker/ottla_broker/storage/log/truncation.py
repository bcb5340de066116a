"""Truncates a log: for a follower whose log diverges, for an unclean election, and for writes that found no room.

Appends are refused while a truncation runs. The order of calls is what recovery relies on after a power loss:

1. the future replica (KIP-113) is truncated first, and durably: it must not keep what this log loses;
2. checkpoints above the new end are lowered: what is written at these offsets later is not durable, compacted or
   committed because an old file says so;
3. segments are deleted from the last to the first, so that no gap can remain.

A crash in between leaves a log that ends below its checkpoints: the next start lowers them before the log appends.

Worked example of a full directory: offsets 5 to 9 are assigned, the write of 7 finds no room. 5 and 6 are written, 7 is
the next offset after the truncation. No producer was acknowledged for 7 to 9.

Source: UnifiedLog.truncateTo and truncateFullyAndStartAt of Apache Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.futures import retrieve
from ottla_broker.ports.os_errors import is_sound
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.storage.files.directory_contents import DirectoryContents
from ottla_broker.storage.files.names import SEGMENT_SUFFIXES
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.files.segment_tail import walk_tail
from ottla_broker.storage.files.snapshots import drop_snapshots
from ottla_broker.storage.log.failures import LogFailures
from ottla_broker.storage.log.flushing import LogFlusher
from ottla_broker.storage.log.producer_loading import load_producers
from ottla_broker.storage.log.producers import ProducerStates
from ottla_broker.storage.log.segment_lookup import SegmentLookup
from ottla_broker.storage.log.state import LogOwner, LogState, TwinLog
from ottla_broker.storage.log.writes import WriteTracker


class LogTruncation:
    """The truncations of one log."""

    __slots__ = ("_clock", "_failures", "_flusher", "_lookup", "_owner", "_recovering", "_state", "_writes")

    def __init__(
        self,
        state: LogState,
        clock: Clock,
        owner: LogOwner,
        failures: LogFailures,
        writes: WriteTracker,
        lookup: SegmentLookup,
        flusher: LogFlusher,
    ) -> None:
        self._state = state
        self._clock = clock
        self._owner = owner
        self._failures = failures
        self._writes = writes
        self._lookup = lookup
        self._flusher = flusher
        self._recovering: asyncio.Task[None] | None = None
        """Truncates what found no room."""

    def truncate_to(self, offset: int) -> asyncio.Future[None]:
        """Drops every record at or above `offset`, with its leader epochs and producer state; a batch that holds
        `offset` is dropped whole. Does nothing when the log ends at or below it. Raises KAFKA_STORAGE_ERROR."""
        return self._failures.spawn(self._truncate_to(offset), "truncate")

    def truncate_fully_and_start_at(self, offset: int) -> asyncio.Future[None]:
        """Drops all records; the log is empty and begins at `offset`. Raises KAFKA_STORAGE_ERROR."""
        return self._failures.spawn(self._truncate_fully(offset), "truncate fully")

    def resume_appends(self) -> None:
        """The log directory has room again: the log takes appends, once what had found no room is truncated.

        Called at every check of a full log's directory. One truncation at a time: a second one would drop what was
        appended and acknowledged since the first.
        """
        state = self._state
        if not state.has_unwritten_tail:
            state.is_full = False
        elif self._recovering is None or self._recovering.done():
            self._recovering = self._failures.spawn(self._truncate_unwritten(), "truncate unwritten records of")
            # Its failure is reported where it happens; the next call tries again.
            self._recovering.add_done_callback(retrieve)

    async def _truncate_unwritten(self) -> None:
        """The log ends again where it is written to."""
        state = self._state
        await self._truncate_to(state.log_end_offset, with_successor=False)
        # A truncation may have found no room before it could write this.
        await self._owner.checkpoint_clean_offsets(state.disk)
        state.has_unwritten_tail = state.is_full = False
        if state.on_append is not None:
            state.on_append()  # a follower's fetcher waits until everything assigned is written

    async def _truncate_to(self, offset: int, *, with_successor: bool = True) -> None:
        """`with_successor`: truncates the log that has replaced this one, if there is one."""
        state = self._state
        async with state.lock:
            if state.successor is not None:
                if with_successor:
                    await state.successor.truncation.truncate_to(offset)
                return
            if offset >= state.assigned_offset and not state.has_unwritten_tail:
                # A leader that appended nothing left an epoch at the end of the log, which its successor does not
                # know: the log would ask for its end, and diverge, for ever.
                state.epochs.truncate_from_end(state.assigned_offset)
                await self._flusher.write_epochs()
                return
            self._begin()
            try:
                await self._writes.wait_until_written()
                # Now, not earlier: one of these writes may have found no room.
                end = min(offset, state.log_end_offset) if state.has_unwritten_tail else offset
                await self._truncate_future(lambda future: future.truncation.truncate_to(end))
                await self._cut(end)
            except OSError as error:
                self._on_no_room(error)
                raise
            finally:
                # A new list: a read that began meanwhile, and finds its file closed, looks at it (`segment_lookup`).
                state.segments = list(state.segments)
                state.is_truncating = False

    async def _truncate_fully(self, offset: int) -> None:
        state = self._state
        async with state.lock:
            if state.successor is not None:
                await state.successor.truncation.truncate_fully_and_start_at(offset)
                return
            self._begin()
            try:
                await self._writes.wait_until_written()
                await self._truncate_future(lambda future: future.truncation.truncate_fully_and_start_at(offset))
                await self._start_at(offset)
            except OSError as error:
                self._on_no_room(error)
                raise
            finally:
                state.is_truncating = False

    def _begin(self) -> None:
        self._state.is_truncating = True
        self._state.truncation_count += 1

    def _on_no_room(self, error: OSError) -> None:
        """A truncation that found no room: the log ends where it should, but its files have more. Nothing may be
        written behind that; it is truncated again once there is room."""
        if is_sound(error):
            self._state.has_unwritten_tail = True
            self._state.is_full = True

    async def _truncate_future(self, truncate: Callable[[TwinLog], Awaitable[None]]) -> None:
        future = self._state.future
        if future is not None:
            try:
                await truncate(future)
            except KafkaError:
                self._state.future = None  # its log directory has failed: there is no future replica any more

    async def _cut(self, offset: int) -> None:
        """Drops what is at or above `offset`, which is below the assigned offset. Raises OSError."""
        state = self._state
        last: Segment | None = state.segment_of(offset)
        if state.has_unwritten_tail and offset == state.log_end_offset and last is not state.written_segment:
            # The segment that begins here may have no files yet.
            last = next((segment for segment in reversed(state.segments) if segment.base_offset < offset), None)
        if last is None or offset < state.segments[0].base_offset:  # retention deleted everything below
            await self._start_at(offset)
            return
        if offset == state.log_end_offset and last is state.written_segment:
            # What is above was never written: there is no batch to find.
            position, header = state.written_position, None
        else:
            position, header = await self._lookup.find(last, offset)
        end = last.base_offset
        if position:
            # The header of a compressed batch of format 0 or 1 has the offset of its last message, which may be above.
            end = offset if header is None else min(header.base_offset, offset)
        state.written_segment, state.written_position = last, position
        await self._lower_offsets(end)
        dropped = [segment for segment in state.segments if segment.base_offset > last.base_offset]
        state.segments = [segment for segment in state.segments if segment.base_offset <= last.base_offset]
        await self._delete_segments(dropped)
        await last.resume(position)
        last.next_offset = end
        await last.cut_index(end)
        await walk_tail(last)
        last.next_offset = end
        state.active_segment = last
        state.epochs.truncate_from_end(end)
        await self._flusher.write_epochs()
        if state.log_start_offset > end:
            # An unclean election: with the old checkpoint, the next start would drop what is written from here on.
            state.log_start_offset = end
            await self._owner.checkpoint_log_start_offsets(state.disk)
        contents = DirectoryContents(state.disk, state.directory)
        await drop_snapshots(contents, lambda snapshot: snapshot > end)
        state.producers, repairs = await load_producers(contents, state.segments, end, state.high_watermark)
        for repair in repairs:
            self._owner.notice(repair)

    async def _start_at(self, offset: int) -> None:
        """Replaces all segments with an empty one at `offset`. Raises OSError."""
        state = self._state
        dropped = state.segments
        segment = Segment(state.disk, state.directory, offset, 0, offset, self._clock.now_ms())
        # Before the first await: nobody reads records that are being deleted, or above them.
        state.segments = [segment]
        state.active_segment = state.written_segment = segment
        state.written_position = 0
        state.log_start_offset = offset
        state.high_watermark = max(state.high_watermark, offset)  # `_lower_offsets` lowers it
        state.epochs.clear()
        state.producers = ProducerStates(offset)
        await self._lower_offsets(offset)
        await self._delete_segments(dropped)
        await drop_snapshots(DirectoryContents(state.disk, state.directory), lambda snapshot: True)
        segment.start()
        await state.disk.fsync_directory(state.directory)
        await self._flusher.write_epochs()
        state.recovery_point = state.flushed_offset = offset
        await self._owner.checkpoint_log_start_offsets(state.disk)

    async def _lower_offsets(self, end: int) -> None:
        """The log ends at `end` from now on; writes the checkpoints that say more. Raises OSError."""
        state = self._state
        state.assigned_offset = state.log_end_offset = state.flush_requested_offset = end
        was_committed = state.high_watermark > end
        state.high_watermark = min(state.high_watermark, end)
        was_clean = state.clean_offset > end
        state.clean_offset = min(state.clean_offset, end)
        if state.recovery_point > end:
            state.recovery_point = end
            await self._owner.checkpoint_recovery_points(state.disk)
        state.flushed_offset = min(state.flushed_offset, end)
        if was_clean:
            # Else the next start takes what is written here for compacted: a tombstone among it would go one day and
            # leave the value that it deleted.
            await self._owner.checkpoint_clean_offsets(state.disk)
        if was_committed:
            # An unclean election, or a leader that lost power: else the next start takes what is written here for
            # committed.
            await self._owner.checkpoint_high_watermarks_in(state.disk)

    async def _delete_segments(self, segments: list[Segment]) -> None:
        disk = self._state.disk
        for segment in reversed(segments):
            segment.is_gone = True
            await segment.close()
            for suffix in SEGMENT_SUFFIXES:
                await disk.delete(segment.name(suffix))
        if segments:
            await disk.fsync_directory(self._state.directory)
