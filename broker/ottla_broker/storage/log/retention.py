"""Deletes the oldest records of a log: retention.ms, retention.bytes, and DeleteRecords (KIP-107).

The log start offset moves first, then whole segments below it are deleted. The order of calls is what a start relies on
after a crash: the names of the remaining segments and the producer snapshot at their start, the checkpoint of the log
start offset, then the files are renamed to `.deleted`; they are unlinked after file.delete.delay.ms.

Source: UnifiedLog.deleteOldSegments and maybeIncrementLogStartOffset of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable

from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.storage.files.names import (
    DELETED,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    parse_offset_file,
)
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.log.failures import LogFailures
from ottla_broker.storage.log.flushing import LogFlusher
from ottla_broker.storage.log.state import LogOwner, LogState
from ottla_broker.storage.log.timestamps import TimestampLookup


class LogRetention:
    """Deletes old records of one log."""

    __slots__ = ("_clock", "_failures", "_flusher", "_owner", "_state", "_timestamps", "_truncate_fully")

    def __init__(
        self,
        state: LogState,
        clock: Clock,
        owner: LogOwner,
        failures: LogFailures,
        flusher: LogFlusher,
        timestamps: TimestampLookup,
        truncate_fully: Callable[[int], Awaitable[None]],
    ) -> None:
        self._state = state
        self._clock = clock
        self._owner = owner
        self._failures = failures
        self._flusher = flusher
        self._timestamps = timestamps
        self._truncate_fully = truncate_fully

    # -- log start offset ---------------------------------------------------------------------------------------

    def advance_log_start_offset(self, offset: int) -> asyncio.Future[None]:
        """Deletes the records below `offset` (KIP-107); done when the checkpoint has the offset. The next retention run
        deletes their segments. Raises KafkaError OFFSET_OUT_OF_RANGE above the high watermark."""
        state = self._state
        if offset > state.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {state.topic_partition} is beyond the high watermark {state.high_watermark}",
            )
        return self._failures.spawn(self._advance_log_start_offset(offset), "advance log start offset")

    async def _advance_log_start_offset(self, offset: int) -> None:
        state = self._state
        if state.successor is not None:
            await state.successor.retention.start_at(offset)
            return
        future = state.future  # it may have replaced this log by the time the checkpoint is written
        state.raise_log_start_offset(offset)
        # Also when it did not move: the write of the checkpoint that moved it may still be under way.
        if not await self._owner.checkpoint_log_start_offsets(state.disk):
            # The next start would bring the records back: the client has to retry. Their segments are deleted anyway.
            raise OSError(errno.EAGAIN, "the log start offsets could not be written", state.disk.path)
        if future is not None:
            try:
                await future.retention.start_at(offset)
            except KafkaError:
                if state.successor is not None:
                    raise

    async def start_at(self, offset: int) -> None:
        """A future replica takes the log start offset of the log that it copies, whatever records it has itself. Done
        when the checkpoint has the offset. Raises KafkaError KAFKA_STORAGE_ERROR."""
        if offset > self._state.assigned_offset:
            await self._truncate_fully(offset)
        else:
            await self._failures.handle_errors(self._advance_log_start_offset(offset))

    # -- old segments -------------------------------------------------------------------------------------------

    async def delete_old_segments(self) -> int:
        """Applies retention.ms, retention.bytes and the log start offset; returns the number of deleted segments.

        Only segments wholly below the high watermark are deleted, from the oldest on. With cleanup.policy=compact alone
        only the log start offset counts. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        return await self._failures.handle_errors(self._delete_old_segments())

    async def _delete_old_segments(self) -> int:
        state = self._state
        async with state.lock:
            if state.is_failed:
                return 0
            deletable = await self._count_deletable()
            if not deletable:
                return 0
            if deletable == len(state.segments):
                if state.unfinished_writes:
                    deletable -= 1  # the last segment is deleted next time
                else:
                    self._flusher.roll()
            deleted, state.segments = state.segments[:deletable], state.segments[deletable:]
            try:
                if deleted:
                    await self._delete(deleted)
            except OSError:
                # For lack of room: the next run deletes what is left, or it would take up its room for ever.
                state.segments = [*[segment for segment in deleted if not segment.is_gone], *state.segments]
                raise
            return deletable

    async def _count_deletable(self) -> int:
        """How many of the oldest segments may be deleted."""
        state = self._state
        config = state.config
        deletable = 0
        excess = state.size_bytes - config.retention_bytes if config.retention_bytes >= 0 else 0
        now = self._clock.now_ms()
        oldest = now - config.retention_ms if config.retention_ms >= 0 else None
        for segment in state.segments:
            is_active = segment is state.active_segment
            if segment.next_offset > state.high_watermark or (is_active and not segment.size):
                break
            is_below_start = not is_active and segment.next_offset <= state.log_start_offset
            is_excess = config.is_deleted and excess - segment.size >= 0
            end = segment.next_offset
            is_old = config.is_deleted and oldest is not None and await self._age_timestamp(segment, now) < oldest
            if not (is_below_start or (is_excess and config.retention_bytes >= 0) or is_old):
                break
            if segment.next_offset != end:
                break  # appended to during the await: the new records are young, and may be above the high watermark
            excess -= segment.size
            deletable += 1
        return deletable

    async def _age_timestamp(self, segment: Segment, now_ms: int) -> int:
        """What retention.ms counts from: the largest timestamp, or the file's modification time when the records have
        none, as those of message format 0."""
        largest = await self._timestamps.largest_timestamp(segment)
        if largest > now_ms and not segment.is_future_reported:
            segment.is_future_reported = True
            self._owner.notice(
                f"{segment.name(LOG)} in {self._state.disk.path} has a record with the timestamp {largest}, which is "
                "in the future: retention.ms keeps it, and what follows it, until then"
            )
        return largest if largest >= 0 else await self._state.disk.modified_ms(segment.name(LOG))

    async def _delete(self, segments: list[Segment]) -> None:
        """Deletes segments that are not in the list any more. Raises OSError."""
        state = self._state
        start = state.segments[0].base_offset
        # Before the first await: a read of what is deleted must not get what follows it.
        state.raise_log_start_offset(start)
        state.recovery_point = max(state.recovery_point, start)
        state.flushed_offset = max(state.flushed_offset, start)
        # Before the old segments and their snapshots are gone, the remaining ones must be durable.
        await self._flusher.sync_names()
        await self._flusher.write_snapshot(state.segments[0])
        # A start after a crash must not look for segments that are gone.
        await self._owner.checkpoint_log_start_offsets(state.disk)
        for segment in segments:
            segment.is_gone = True
            await segment.close()
        suffixes = (*SEGMENT_SUFFIXES, SNAPSHOT)
        files: list[tuple[int, int, str]] = []
        for name, _, _ in await state.disk.list(state.directory):
            parsed = parse_offset_file(name)
            # By offset, not by segment: an orderly stop leaves a snapshot in the middle of one.
            if parsed is not None and not parsed.marker and parsed.suffix in suffixes and parsed.offset < start:
                files.append((parsed.offset, suffixes.index(parsed.suffix), name))
        renamed: list[str] = []
        # The .log of each first: without its index it would seem to need recovery.
        for _, _, name in sorted(files):
            await state.disk.rename(f"{state.directory}/{name}", f"{state.directory}/{name}{DELETED}")
            renamed.append(f"{name}{DELETED}")
        self._clock.call_later(state.config.file_delete_delay_ms / 1000, self._unlink, renamed)

    def _unlink(self, names: list[str]) -> None:
        state = self._state
        if not state.is_failed:
            for name in names:
                self._failures.watch(state.disk.delete(f"{state.directory}/{name}"))
