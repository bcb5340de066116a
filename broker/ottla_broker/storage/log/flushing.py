"""Rolls the active segment of a log and flushes segments to the disk.

Recovery after a power loss relies on this order of calls:

- roll: the new segment's files are created once all earlier appends are written, so that neither a kill nor a failure
  leaves a hole; the directory is synced before anything in the new segment is synced, and before a segment is deleted.
  The old segment is synced only after it is written out, since a sync of a whole segment would hold up every other
  sync on the disk;
- flush: the names of the segments and the producer snapshots at their starts, the log and index files of every segment
  from the recovery point on, then the leader epochs; then the recovery point moves, then the checkpoint may say so.

Not here: `LogFlusher.flush_locked` is called by others that hold the log's lock (truncation, closing).
Source: UnifiedLog.roll and UnifiedLog.flush of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import errno

from ottla_broker.ports.clock import Clock
from ottla_broker.storage.files.checkpoints import encode_epochs
from ottla_broker.storage.files.indexes import MAX_RELATIVE_OFFSET
from ottla_broker.storage.files.names import LEADER_EPOCHS, SNAPSHOT, offset_name
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.failures import LogFailures
from ottla_broker.storage.log.state import LogState


class LogFlusher:
    """Rolls and flushes the segments of one log."""

    __slots__ = ("_clock", "_failures", "_is_directory_unsynced", "_rolling", "_state")

    def __init__(self, state: LogState, clock: Clock, failures: LogFailures) -> None:
        self._state = state
        self._clock = clock
        self._failures = failures
        self._is_directory_unsynced = False
        """The name of the active segment's files may not be durable yet."""
        self._rolling: asyncio.Task[None] | None = None
        """Finishes the last roll; it waits for the rolls before it."""

    @property
    def rolling(self) -> asyncio.Task[None] | None:
        """The task that finishes the last roll, while there is one."""
        return self._rolling

    # -- roll ---------------------------------------------------------------------------------------------------

    def needs_roll(self, segment: Segment, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Whether a batch needs a new segment: for segment.bytes, a full index, more than 2^31 offsets, or segment.ms
        by the timestamps of the segment's first batch and this one (KIP-33).

        Args:
            segment: the active one.
            size: of the batch, in bytes.
            last_offset: of the batch.
            max_timestamp: of the batch, in ms.
        """
        config = self._state.config
        if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if not segment.size:
            return False
        if (
            segment.size + size > config.segment_bytes
            or segment.index_entries >= config.max_index_entries
            or segment.time_index_entries >= config.max_time_index_entries
        ):
            return True
        first = segment.first_timestamp
        if first is not None and first >= 0:
            return max_timestamp - first > config.segment_ms - segment.roll_jitter_ms
        return self._clock.now_ms() - segment.created_ms > config.segment_ms - segment.roll_jitter_ms

    def roll(self, base_offset: int | None = None) -> Segment:
        """Closes the active segment and starts a new one, which it returns.

        `base_offset`: of the new segment, by default the next offset.
        """
        state = self._state
        old = state.active_segment
        old.end_index()
        base = state.assigned_offset if base_offset is None else base_offset
        old.next_offset = base
        state.producers.end_offset = base
        self.sync_directory()  # for the roll before: no more than one segment may lose its name
        segment = Segment(state.disk, state.directory, base, 0, base, self._clock.now_ms())
        segment.roll_jitter_ms = roll_jitter_ms(state.config, self._clock)
        segment.start(behind=state.unfinished_writes[-1][0] if state.unfinished_writes else old.opening)
        assert segment.opening is not None
        self._failures.watch(segment.opening)
        self._is_directory_unsynced = True
        state.segments = [*state.segments, segment]
        state.active_segment = segment
        segment.unwritten_snapshot = state.producers.encode()
        rolling = self._failures.spawn(self._finish_roll(old, segment, self._rolling), "roll")
        rolling.add_done_callback(self._on_rolled)
        self._rolling = rolling
        return segment

    def _on_rolled(self, ended: asyncio.Task[None]) -> None:
        if self._rolling is ended:
            self._rolling = None

    async def _finish_roll(self, old: Segment, new: Segment, before: asyncio.Task[None] | None) -> None:
        """Flushes the old segment and drops what only an active one needs. `before`: the same of the roll before."""
        state = self._state
        await old.write_out()
        if before is not None:
            await asyncio.wait([before])
        async with state.lock:
            if state.is_failed:
                return
            await self.flush_locked(new.base_offset)
            if state.is_failed:
                return
            if old in state.segments and old is not state.active_segment:
                await old.freeze()

    # -- flush --------------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Makes everything assigned so far durable and moves the recovery point. Raises OSError."""
        state = self._state
        await state.active_segment.write_out()
        async with state.lock:
            await self.flush_locked()

    async def flush_locked(self, up_to: int | None = None) -> None:
        """`flush` for a caller that holds the lock. `up_to`: only the segments below that base offset."""
        state = self._state
        if state.is_failed:
            return
        if state.has_unwritten_tail:
            raise OSError(errno.EAGAIN, "records that found no room must be truncated first", state.directory)
        target = state.assigned_offset if up_to is None else min(up_to, state.assigned_offset)
        if up_to is None:
            state.last_flush_ms = self._clock.now_ms()
            state.flush_requested_offset = target
        await self.sync_names()
        # What is flushed may be compacted, and then only the snapshots know its producers.
        for segment in [one for one in state.segments if one.unwritten_snapshot and one.base_offset <= target]:
            await self.write_snapshot(segment)
        if target > state.recovery_point:
            first = state.segment_of(state.recovery_point).base_offset
            for segment in [one for one in state.segments if first <= one.base_offset < target]:
                await segment.sync()
        await self.write_epochs()
        state.recovery_point = max(state.recovery_point, target)
        state.flushed_offset = max(state.flushed_offset, target)

    def sync_directory(self) -> None:
        """Queues a sync of the directory, before any later sync of the active segment: the file that has a flushed
        record is then found after a power loss."""
        if self._is_directory_unsynced:
            self._is_directory_unsynced = False
            state = self._state
            synced = state.active_segment.when_open(lambda _: state.disk.fsync_directory(state.directory))
            self._failures.watch(synced)

    async def sync_names(self) -> None:
        """Returns when a sync of the directory is queued that makes all segments' names durable. The Disk makes every
        later call after it."""
        if self._is_directory_unsynced:
            state = self._state
            active = state.active_segment
            await active.opened()
            if state.active_segment is active:  # else another segment was rolled, whose name this sync may miss
                self._is_directory_unsynced = False
            self._failures.watch(state.disk.fsync_directory(state.directory))

    async def write_snapshot(self, segment: Segment) -> None:
        """Writes the producer snapshot at the segment's start, unless it is written. Raises OSError."""
        if segment.unwritten_snapshot:
            name = f"{self._state.directory}/{offset_name(segment.base_offset, SNAPSHOT)}"
            await self._state.disk.write_file(name, segment.unwritten_snapshot)
            segment.unwritten_snapshot = b""

    async def write_epochs(self) -> None:
        """Writes leader-epoch-checkpoint when it differs from the epochs in memory. Raises OSError."""
        state = self._state
        epochs = state.epochs
        if epochs.is_dirty:
            epochs.is_dirty = False
            try:
                await state.disk.write_file(f"{state.directory}/{LEADER_EPOCHS}", encode_epochs(epochs.entries))
            except OSError:
                state.epochs.is_dirty = True
                raise


def roll_jitter_ms(config: LogConfig, clock: Clock) -> int:
    """A random time below segment.jitter.ms and segment.ms, by which a segment rolls earlier."""
    jitter = min(config.segment_jitter_ms, config.segment_ms)
    return clock.random.randrange(jitter) if jitter > 0 else 0
