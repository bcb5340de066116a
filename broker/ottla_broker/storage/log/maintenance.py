"""What changes a log besides appends: roll, flush, truncation, retention, closing.

One of them runs at a time per log (`_lock`); appends go on meanwhile, except during a truncation. The order of file
calls is what recovery relies on after a power loss:

- roll: the new files once all appends before them are written, so that neither a kill nor a failure leaves a hole;
  then fsync of the directory, before anything in the new segment is synced or a segment goes; only then, or when the
  old segment is written out: any sync meanwhile would wait with everything else for that;
- flush: the segments' names and the snapshots at their starts, log and index files of every segment from the recovery
  point on, then the epochs; only then the recovery point moves, and only then may the checkpoint file say so;
- truncation below the recovery point: the checkpoint is lowered first, so that what is written anew at those offsets
  is never taken for durable; segments go from the last to the first, so that no gap can remain. One that is interrupted
  leaves a log that ends below its checkpoints: the next start lowers them before it appends (`LogManager._take_back`).
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.os_errors import is_sound
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.storage.files.directory_contents import DirectoryContents
from ottla_broker.storage.files.indexes import MAX_RELATIVE_OFFSET
from ottla_broker.storage.files.names import (
    DELETED,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    offset_name,
    parse_offset_file,
)
from ottla_broker.storage.files.scan import HeaderWalk
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.files.snapshots import drop_snapshots
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.producer_loading import load_producers
from ottla_broker.storage.log.producers import ProducerStates
from ottla_broker.storage.log.reading import LogReads
from ottla_broker.storage.log.state import LogState
from ottla_broker.storage.log.transactions import LogTransactions


class LogMaintenance(LogTransactions, LogReads, LogState):
    """The half of a log that moves whole segments."""

    __slots__ = ()

    future: LogMaintenance | None
    successor: LogMaintenance | None

    # -- roll and flush -----------------------------------------------------------------------------------------

    def _roll(self, base: int | None = None) -> Segment:
        """Closes the active segment and starts a new one at `base`, by default the next offset; gives the new one."""
        old = self._active
        old.end_index()
        base = self._assigned if base is None else base
        old.next_offset = base
        self.producers.end_offset = base
        self._sync_directory()  # for the roll before: no more than one segment is in danger of not being found again
        segment = Segment(self.disk, self.directory, base, 0, base, self.clock.now_ms())
        segment.roll_jitter_ms = roll_jitter_ms(self.config, self.clock)
        segment.start(behind=self._pending[-1][0] if self._pending else old.opening)
        assert segment.opening is not None
        self._watch(segment.opening)
        self._is_directory_unsynced = True
        self.segments = [*self.segments, segment]  # copied on write: whoever walks the list walks one state of it
        self._active = segment
        segment.unwritten_snapshot = self.producers.encode()
        rolling = self._spawn(self._finish_roll(old, segment, self._rolling), "roll")
        rolling.add_done_callback(self._on_rolled)
        self._rolling = rolling
        return segment

    def _on_rolled(self, ended: asyncio.Task[None]) -> None:
        if self._rolling is ended:
            self._rolling = None

    def _sync_directory(self) -> None:
        """In lane order before any fsync of the new file: a flushed record is in a file that is found again."""
        if self._is_directory_unsynced:
            self._is_directory_unsynced = False
            self._watch(self._active.when_open(lambda _: self.disk.fsync_directory(self.directory)))

    async def _sync_names(self) -> None:
        """Before something relies on the segments that there are: their names are on their way to the disk when this
        returns, and every later call of the lane comes behind that."""
        if self._is_directory_unsynced:
            active = self._active
            await active.opened()
            if self._active is active:  # else another has been rolled, whose name this does not take along
                self._is_directory_unsynced = False
            self._watch(self.disk.fsync_directory(self.directory))

    async def _finish_roll(self, old: Segment, new: Segment, before: asyncio.Task[None] | None) -> None:
        # A whole segment: its sync, and any other, which waits for it in the file system's journal, would hold up
        # everything else on this disk for as long as the disk takes for that.
        await old.write_out()
        if before is not None:
            await asyncio.wait([before])
        async with self._lock:
            if self.is_failed:
                return
            await self._flush(new.base_offset)
            if self.is_failed:
                return
            if old in self.segments and old is not self._active:
                await old.freeze()

    async def _write_snapshot(self, segment: Segment) -> None:
        """The producers' state at the segment's start, unless it is there."""
        if segment.unwritten_snapshot:
            name = f"{self.directory}/{offset_name(segment.base_offset, SNAPSHOT)}"
            await self.disk.write_file(name, segment.unwritten_snapshot)
            segment.unwritten_snapshot = b""

    async def flush(self) -> None:
        """Makes everything assigned so far durable and moves the recovery point. OSError when that fails."""
        await self._active.write_out()
        async with self._lock:
            await self._flush()

    async def _flush(self, up_to: int | None = None) -> None:
        """`up_to`: only the segments below that base offset."""
        if self.is_failed:
            return
        if self.is_torn:
            raise OSError(errno.EAGAIN, "records that could not be written are still to be taken back", self.directory)
        target = self._assigned if up_to is None else min(up_to, self._assigned)
        if up_to is None:
            self.last_flush_ms = self.clock.now_ms()
            self._flush_requested = target
        await self._sync_names()
        # What is flushed may be compacted, and who its producers were is then known from the snapshots alone.
        for segment in [one for one in self.segments if one.unwritten_snapshot and one.base_offset <= target]:
            await self._write_snapshot(segment)
        if target > self.recovery_point:
            first = self.segment_of(self.recovery_point).base_offset
            for segment in [one for one in self.segments if first <= one.base_offset < target]:
                await segment.sync()
        await self._write_epochs()
        self.recovery_point = max(self.recovery_point, target)
        self.flushed_offset = max(self.flushed_offset, target)

    def _needs_roll(self, segment: Segment, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Whether a batch of `size` bytes belongs into a new segment: segment.bytes, a full index, more than 2^31
        offsets, or segment.ms by the timestamps of the segment's first batch and this one (KIP-33)."""
        config = self.config
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
        return self.clock.now_ms() - segment.created_ms > config.segment_ms - segment.roll_jitter_ms

    # -- truncation ---------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> asyncio.Future[None]:
        """Drops every record at or above `offset`, with its epochs and producer state; a batch that holds `offset`
        goes whole. Nothing happens when the log ends at or below it."""
        return self._spawn(self._truncate_to(offset), "truncate")

    def truncate_fully_and_start_at(self, offset: int) -> asyncio.Future[None]:
        """Drops all records; the log is empty and begins at `offset`."""
        return self._spawn(self._truncate_fully(offset), "truncate fully")

    async def _truncate_to(self, offset: int, *, is_own: bool = False) -> None:
        """`is_own`: only files of this log are to be put right, not those of a copy that has taken its place."""
        async with self._lock:
            if self.successor is not None:
                if not is_own:
                    await self.successor._truncate_to(offset)
                return
            if self.is_torn:
                offset = min(offset, self.log_end_offset)  # what lies behind goes too, on the disk as well
            elif offset >= self._assigned:
                # A leader that appended nothing has left an epoch at the end of its log, which its successor does
                # not know: it would be asked about, and diverge, for ever.
                self.epochs.truncate_from_end(self._assigned)
                await self._write_epochs()
                return
            self._begin_cut()
            try:
                await self._settle()
                await self._cut_future(lambda future: future.truncate_to(offset))
                keeper = self.segment_of(offset)
                if self.is_torn and offset == self.log_end_offset:
                    # The segment that begins here may not even have come to its files.
                    keeper = self._written_segment
                if offset < self.segments[0].base_offset or keeper not in self.segments:
                    await self._start_at(offset)
                    return
                if offset == self.log_end_offset and keeper is self._written_segment:
                    # What lies behind was never written: there is no batch to look for.
                    position, header = self._written_position, None
                else:
                    position, header = await self._place(keeper, offset)
                end = keeper.base_offset
                if position:
                    # A wrapper of an old format tells only the offset of its last message, which may lie beyond.
                    end = offset if header is None else min(header.base_offset, offset)
                self._written_segment, self._written_position = keeper, position
                await self._begin_truncation(end)
                dropped = [segment for segment in self.segments if segment.base_offset > keeper.base_offset]
                self.segments = [segment for segment in self.segments if segment.base_offset <= keeper.base_offset]
                await self._drop_segments(dropped)
                await keeper.resume(position)
                await self._walk_tail(keeper, end)
                self._active = keeper
                self.epochs.truncate_from_end(end)
                await self._write_epochs()
                if self.log_start_offset > end:
                    # An unclean election: the checkpoint would have the next start drop what is written from here on.
                    self.log_start_offset = end
                    await self._owner.checkpoint_log_start_offsets(self.disk)
                contents = DirectoryContents(self.disk, self.directory)
                await drop_snapshots(contents, lambda snapshot: snapshot > end)
                self.producers, repairs = await load_producers(contents, self.segments, end, self.high_watermark)
                for repair in repairs:
                    self._owner.notice(repair)
            except OSError as error:
                self._cut_short(error)
                raise
            finally:
                # Another list: a read that began meanwhile, and finds its file closed, is told by it (`_outrun`).
                self.segments = list(self.segments)
                self._is_truncating = False

    async def _truncate_fully(self, offset: int) -> None:
        async with self._lock:
            if self.successor is not None:
                await self.successor._truncate_fully(offset)
                return
            self._begin_cut()
            try:
                await self._settle()
                await self._cut_future(lambda future: future.truncate_fully_and_start_at(offset))
                await self._start_at(offset)
            except OSError as error:
                self._cut_short(error)
                raise
            finally:
                self._is_truncating = False

    def _cut_short(self, error: OSError) -> None:
        """A truncation that found no room has left the log ending where it was to, and more than that in the files:
        nothing may be written behind it, and it is cut again once there is room."""
        if is_sound(error):
            self.is_torn = True
            self.fill_up()

    def _begin_cut(self) -> None:
        self._is_truncating = True
        self.truncation_count += 1

    async def _cut_future(self, cut: Callable[[LogMaintenance], Awaitable[None]]) -> None:
        """What goes here goes first, and durably, in the copy: after a crash it must not hold what this log lost."""
        future = self.future
        if future is not None:
            try:
                await cut(future)
            except KafkaError:
                self.future = None  # its directory has failed: there is no copy any more

    async def _start_at(self, offset: int) -> None:
        dropped = self.segments
        segment = Segment(self.disk, self.directory, offset, 0, offset, self.clock.now_ms())
        # At once, before the first wait: nobody reads records that are going, or beyond them.
        self.segments = [segment]
        self._active = self._written_segment = segment
        self._written_position = 0
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)  # the truncation lowers it
        self.epochs.clear()
        self.producers = ProducerStates(offset)
        await self._begin_truncation(offset)
        await self._drop_segments(dropped)
        await drop_snapshots(DirectoryContents(self.disk, self.directory), lambda snapshot: True)
        segment.start()
        await self.disk.fsync_directory(self.directory)
        await self._write_epochs()
        self.recovery_point = self.flushed_offset = offset
        await self._owner.checkpoint_log_start_offsets(self.disk)

    async def _begin_truncation(self, end: int) -> None:
        """From here on nobody sees what is to go, and the checkpoint no longer vouches for it."""
        self._assigned = self.log_end_offset = self._flush_requested = end
        was_committed = self.high_watermark > end
        self.high_watermark = min(self.high_watermark, end)
        was_clean = self.clean_offset > end
        self.clean_offset = min(self.clean_offset, end)
        if self.recovery_point > end:
            self.recovery_point = end
            await self._owner.checkpoint_recovery_points(self.disk)
        self.flushed_offset = min(self.flushed_offset, end)
        if was_clean:
            # A start would take what is written here in its place for compacted, and a deletion among it would go one
            # day and leave the value that it deleted.
            await self._owner.checkpoint_clean_offsets(self.disk)
        if was_committed:
            # An unclean election, or a leader that lost power: after a crash the checkpoint would have whatever is
            # written here in its place for committed.
            await self._owner.checkpoint_high_watermarks_in(self.disk)

    async def _drop_segments(self, segments: list[Segment]) -> None:
        for segment in reversed(segments):
            segment.is_gone = True
            await segment.close()
            for suffix in SEGMENT_SUFFIXES:
                await self.disk.delete(segment.name(suffix))
        if segments:
            await self.disk.fsync_directory(self.directory)

    async def _walk_tail(self, segment: Segment, end: int) -> None:
        """After `resume`: cuts the indexes and takes in the batches that follow the last index entry."""
        segment.next_offset = end
        await segment.cut_index(end)
        await walk_tail(segment)
        segment.next_offset = end

    # -- a full directory ---------------------------------------------------------------------------------------

    def make_room(self) -> None:
        """The directory has room again: appends are taken, once what had found no room is taken back.

        Called at every look while the log is full. One taking back at a time: another one, begun before the first is
        done, would cut off what has been appended and acknowledged since.
        """
        if not self.is_torn:
            self.is_full = False
        elif self._taking_back is None or self._taking_back.done():
            self._taking_back = self._spawn(self._take_back_unwritten(), "take back what found no room")
            self._taking_back.add_done_callback(_retrieve)

    async def _take_back_unwritten(self) -> None:
        """The log ends again where it is written to, the producers' state too: nothing behind was acknowledged.

        Example: offsets 5 to 9 are assigned, the write of 7 finds no room. 5 and 6 stay, 7 is the next offset again.
        """
        await self._truncate_to(self.log_end_offset, is_own=True)
        # It may be that a truncation found no room before it could write this.
        await self._owner.checkpoint_clean_offsets(self.disk)
        self.is_torn = self.is_full = False
        if self.on_append is not None:
            self.on_append()  # whoever follows waits for what was assigned to be written

    # -- retention ----------------------------------------------------------------------------------------------

    def advance_log_start_offset(self, offset: int) -> asyncio.Future[None]:
        """Records below `offset` are deleted (KIP-107); done when the checkpoint says so. Their segments go with the
        next retention run. KafkaError OFFSET_OUT_OF_RANGE beyond the high watermark."""
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.topic_partition} is beyond the high watermark {self.high_watermark}",
            )
        return self._spawn(self._advance_log_start_offset(offset), "advance log start offset")

    async def _advance_log_start_offset(self, offset: int) -> None:
        if self.successor is not None:
            await self.successor._advance_log_start_offset(offset)
            return
        future = self.future  # it may have taken this log's place by the time the checkpoint is written
        self._raise_log_start_offset(offset)
        # Also when it stood there already: the checkpoint of whoever moved it may still be under way.
        if not await self._owner.checkpoint_log_start_offsets(self.disk):
            # A start would bring the records back: whoever asked has to ask again. Their segments go all the same.
            raise OSError(errno.EAGAIN, "the log start offsets could not be written", self.disk.path)
        if future is not None:
            try:
                await future.begin_at(offset)
            except KafkaError:
                if self.successor is not None:
                    raise

    async def begin_at(self, offset: int) -> None:
        """As a copy: begins where the log it is made of begins, with or without records. Done when the checkpoint
        says so. KafkaError KAFKA_STORAGE_ERROR."""
        if offset > self._assigned:
            await self.truncate_fully_and_start_at(offset)
        else:
            await self._guarded(self._advance_log_start_offset(offset))

    def _raise_log_start_offset(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.high_watermark = max(self.high_watermark, offset)
            self.epochs.truncate_from_start(offset)

    async def delete_old_segments(self) -> int:
        """Applies retention.ms, retention.bytes and the log start offset; gives the number of segments deleted.

        Only segments wholly below the high watermark go, from the oldest on. With cleanup.policy=compact alone only the
        log start offset counts. Deleted files are renamed at once and unlinked after file.delete.delay.ms.
        """
        return await self._guarded(self._delete_old_segments())

    async def _delete_old_segments(self) -> int:
        async with self._lock:
            if self.is_failed:
                return 0
            config = self.config
            deletable = 0
            excess = self.size_bytes - config.retention_bytes if config.retention_bytes >= 0 else 0
            now = self.clock.now_ms()
            oldest = now - config.retention_ms if config.retention_ms >= 0 else None
            for segment in self.segments:
                if segment.next_offset > self.high_watermark or (segment is self._active and not segment.size):
                    break
                is_below_start = segment is not self._active and segment.next_offset <= self.log_start_offset
                is_excess = config.is_deleted and excess - segment.size >= 0
                end = segment.next_offset
                is_old = config.is_deleted and oldest is not None and await self._age_timestamp(segment, now) < oldest
                if not (is_below_start or (is_excess and config.retention_bytes >= 0) or is_old):
                    break
                if segment.next_offset != end:
                    break  # appended to meanwhile: what came is young, and perhaps not below the high watermark
                excess -= segment.size
                deletable += 1
            if not deletable:
                return 0
            if deletable == len(self.segments):
                if self._pending:
                    deletable -= 1  # its last batches are on their way: next time
                else:
                    self._roll()
            doomed, self.segments = self.segments[:deletable], self.segments[deletable:]
            try:
                if doomed:
                    await self._retire(doomed)
            except OSError:
                # For lack of room: what is still there goes with the next run, or it would keep its room for ever.
                self.segments = [*[segment for segment in doomed if not segment.is_gone], *self.segments]
                raise
            return deletable

    async def _age_timestamp(self, segment: Segment, now_ms: int) -> int:
        """What retention.ms counts from: the largest timestamp, or the file's last change when its records have none,
        as those of message format 0."""
        largest = await self.largest_timestamp(segment)
        if largest > now_ms and not segment.is_told_of:
            segment.is_told_of = True
            self._owner.notice(
                f"{segment.name(LOG)} in {self.disk.path} has a record with the timestamp {largest}, which is still to "
                "come: retention.ms keeps it, and what follows it, until then"
            )
        return largest if largest >= 0 else await self.disk.modified_ms(segment.name(LOG))

    async def _retire(self, doomed: list[Segment]) -> None:
        start = self.segments[0].base_offset
        # Before the first wait: nobody who asks for what goes is given what comes behind it.
        self._raise_log_start_offset(start)
        self.recovery_point = max(self.recovery_point, start)
        self.flushed_offset = max(self.flushed_offset, start)
        # What is left must be found again, and who its producers are: the snapshots before it go with their segments.
        await self._sync_names()
        await self._write_snapshot(self.segments[0])
        # The checkpoint first: segments that are gone must not be looked for after a crash.
        await self._owner.checkpoint_log_start_offsets(self.disk)
        names: list[str] = []
        for segment in doomed:
            segment.is_gone = True
            await segment.close()
        suffixes = (*SEGMENT_SUFFIXES, SNAPSHOT)
        doomed_files: list[tuple[int, int, str]] = []
        for name, _, _ in await self.disk.list(self.directory):
            parsed = parse_offset_file(name)
            # By offset, not by segment: an orderly end left its snapshot in the middle of one.
            if parsed is not None and not parsed.marker and parsed.suffix in suffixes and parsed.offset < start:
                doomed_files.append((parsed.offset, suffixes.index(parsed.suffix), name))
        # The .log of each first: without its index it would be taken for one that must be recovered.
        for _, _, name in sorted(doomed_files):
            await self.disk.rename(f"{self.directory}/{name}", f"{self.directory}/{name}{DELETED}")
            names.append(f"{name}{DELETED}")
        self.clock.call_later(self.config.file_delete_delay_ms / 1000, self._unlink, names)

    def _unlink(self, names: list[str]) -> None:
        if not self.is_failed:
            for name in names:
                self._watch(self.disk.delete(f"{self.directory}/{name}"))

    # -- descriptors --------------------------------------------------------------------------------------------

    async def close_idle_segments(self) -> None:
        """Closes the files of flushed, closed segments in which nobody has looked for a place since the last call: a
        consumer that went through the whole log must not leave a descriptor and a mapping behind in each of them."""
        async with self._lock:
            idle: list[Segment] = []
            for segment in self.segments:
                is_flushed = segment is not self._active and segment.next_offset <= self.recovery_point
                if is_flushed and segment.file is not None and not segment.is_used:
                    idle.append(segment)
                segment.is_used = False
            if idle and not self.is_failed:
                # Another list: a read that is so slow that its segment looks idle is told by it (`_outrun`).
                self.segments = list(self.segments)
                for segment in idle:
                    await segment.close()

    # -- the end ------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """An orderly end: everything flushed, snapshots of the producers at every roll and at the end, files closed."""
        if self._rolling is not None and not self.is_failed:
            await asyncio.wait([self._rolling])
        await self._guarded(self._close())

    async def _close(self) -> None:
        async with self._lock:
            if self.is_failed:
                return
            await self._settle()
            self._active.end_index()
            # A leadership without records ends where the next one begins: nobody needs to be told of it. So what
            # was idle since the start is closed without a write, however often the broker is restarted.
            self.epochs.truncate_from_end(self._assigned)
            await self._flush()
            name = f"{self.directory}/{offset_name(self._assigned, SNAPSHOT)}"
            if self._assigned > self.log_start_offset and not await self.disk.exists(name):
                self.producers.end_offset = self._assigned
                await self.disk.write_file(name, self.producers.encode())
            for segment in self.segments:
                await segment.close()
            self.is_failed = True

    def rename_directory(self, name: str) -> asyncio.Future[Any]:
        """Gives the log's directory another name within its log directory; the caller holds `lock`.

        In force for every call made from now on, since a Disk keeps their order; durable, before anything that is
        synced later, when the answer is done. OSError: it keeps the name it had, which is for `take_name`.
        """
        renamed = self.disk.rename(self.directory, name)
        self._watch(renamed)
        self.take_name(name)
        return asyncio.gather(renamed, self.disk.fsync_directory())

    def take_name(self, name: str) -> None:
        """Where the log looks for its files from now on."""
        self.directory = name
        for segment in self.segments:
            segment.directory = name
            if segment.transactions is not None:
                segment.transactions.directory = name

    async def abandon(self) -> None:
        """The log is being deleted: no further append, files closed, and nothing that changes files is under way."""
        self.is_failed = True
        self._pending.clear()
        # A flush that went on after the directory is renamed would fail, and a failed write takes the disk offline.
        async with self._lock:
            for segment in self.segments:
                await segment.close()


def roll_jitter_ms(config: LogConfig, clock: Clock) -> int:
    """By how much earlier a segment rolls by time, drawn anew for each: below segment.jitter.ms and segment.ms."""
    jitter = min(config.segment_jitter_ms, config.segment_ms)
    return clock.random.randrange(jitter) if jitter > 0 else 0


async def walk_tail(segment: Segment) -> bool:
    """Takes in what follows the last index entry of a resumed segment: recent places, largest timestamp, next offset.

    False when the segment's bytes do not end with a whole batch; then `segment.size` and `next_offset` are those of
    the whole batches.
    """
    file, end = segment.file, segment.size
    assert file is not None
    place = segment.index.floor(2**63 - 1) if segment.index is not None else (segment.base_offset, 0)
    start = place[1]
    next_offset = segment.base_offset
    after = start
    segment.first_timestamp = None
    first = await HeaderWalk(file, 0, end).next()
    if first is not None:
        segment.first_timestamp = first[1].base_timestamp
    walk = HeaderWalk(file, start, end)
    while (step := await walk.next()) is not None:
        position, header = step
        segment.recent_offsets.append(header.base_offset)
        segment.recent_positions.append(position)
        if segment.max_timestamp is None or header.max_timestamp > segment.max_timestamp:
            segment.max_timestamp, segment.max_timestamp_offset = header.max_timestamp, header.last_offset
        next_offset = header.next_offset
        after = position + header.size
    segment.bytes_since_index = after - start
    segment.size = after
    segment.next_offset = next_offset
    return after == end


def _retrieve(future: asyncio.Future[None]) -> None:
    """Its failure has been told where it came from; the next `make_room` tries again."""
    if not future.cancelled():
        future.exception()


__all__ = ["LogMaintenance", "roll_jitter_ms", "walk_tail"]
