"""Schedules the compaction of logs: selects the dirtiest one, runs its job in a worker, handles the job's failures.

Up to log.cleaner.threads jobs run at a time in worker processes. When no log is dirty enough the cleaner waits
log.cleaner.backoff.ms. A partition has at most one job: a job that outlives its log (deleted, created again) keeps
others from the file names that it writes. Everything here runs on the broker's event loop.

| a job ends with                           | then                                                                     |
|-------------------------------------------|--------------------------------------------------------------------------|
| its result                                | the log is clean up to there; cleaner-offset-checkpoint is written       |
| damage or an unknown format               | the partition is uncleanable until the broker restarts                   |
| a full disk, a dead worker, a changed log | the job's files are deleted; it runs again after the backoff             |
| another error of the disk                 | the log directory is offline                                             |

Source: LogCleaner and LogCleanerManager of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ottla_broker.metrics import Metrics
from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.ports.os_errors import is_sound
from ottla_broker.ports.workers import Workers
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.records.batch import HEADER_BYTES
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.cleaner.gauges import CleanerGauges
from ottla_broker.storage.cleaner.job import CleanedSegment, CompactionPlan, CompactionResult
from ottla_broker.storage.cleaner.key_map import marked_for, slots_for
from ottla_broker.storage.cleaner.producer_queries import aborted_transactions, last_records
from ottla_broker.storage.cleaner.selection import (
    CleanableLog,
    CleanableRange,
    ClosedSegment,
    cleanable,
    compaction_delay_ms,
    first_dirty_offset,
    select_dirtiest,
)
from ottla_broker.storage.files.names import CLEANED, LOG
from ottla_broker.storage.files.scan import header_at
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.log_manager import LogManager

COMPACTION_JOB = "compact-log"
_NO_LIMIT = 1e300
_NO_LAG = 2**63 - 1
_GONE = (errno.ENOENT, errno.EBADF)


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The values of the log.cleaner.* keys, which may change while the broker runs."""

    enable: bool = True
    threads: int = 1
    backoff_ms: int = 15_000
    dedupe_buffer_size: int = 134_217_728
    io_buffer_size: int = 524_288
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float = _NO_LIMIT


class LogCleaner:
    """The log cleaner. `start` it after the logs are loaded, `close` it before they are closed."""

    def __init__(
        self,
        log_manager: LogManager,
        clock: Clock,
        workers: Workers,
        settings: Callable[[], CleanerSettings],
        metrics: Metrics,
        *,
        on_notice: Callable[[str], None] = lambda message: None,
    ) -> None:
        """`on_notice` takes a line for the broker's log. `settings` returns the current values."""
        self._log_manager = log_manager
        self._clock = clock
        self._workers = workers
        self._settings = settings
        self._notice = on_notice
        self._running: dict[TopicPartition, tuple[Log, asyncio.Task[Any]]] = {}
        self._not_before: dict[TopicPartition, float] = {}
        self._replacing: dict[TopicPartition, asyncio.Future[list[str] | None]] = {}
        self._flushing: dict[TopicPartition, asyncio.Task[Any]] = {}
        self._paused: dict[TopicPartition, Log] = {}
        """Logs that have a future replica (KIP-113), which are not cleaned."""
        self._reported: dict[TopicPartition, str] = {}
        self._uncleanable: dict[TopicPartition, tuple[Log, str]] = {}
        self._scheduler: asyncio.Task[Any] | None = None
        self._is_closed = False
        self._last_round = clock.monotonic()
        log_manager.future_replicas.cleaning = self
        self.gauges = CleanerGauges(
            metrics,
            [*log_manager.live_paths, *log_manager.offline_paths],
            self.uncleanable_bytes,
            self._since_last_round_s,
        )

    # -- scheduling -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._scheduler = self._clock.spawn(self._schedule(), name="log cleaner")

    async def close(self) -> None:
        """Stops the cleaner: running jobs end at their next request, a segment replacement is finished."""
        self._is_closed = True
        tasks = [task for _, task in self._running.values()]
        if self._scheduler is not None:
            tasks.append(self._scheduler)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _schedule(self) -> None:
        while not self._is_closed:
            settings = self._settings()
            if settings.enable:
                await self._start_jobs(settings)
            self._last_round = self._clock.monotonic()
            timeout = max(settings.backoff_ms / 1000, 0.001)
            if self._running:
                await asyncio.wait(
                    [task for _, task in self._running.values()], timeout=timeout, return_when=asyncio.FIRST_COMPLETED
                )
            else:
                await self._clock.sleep(timeout)
            for log, task in list(self._running.values()):
                if log.state.is_failed:  # deleted, or its log directory is offline, where the job may hang for ever
                    task.cancel()

    async def _start_jobs(self, settings: CleanerSettings) -> None:
        while len(self._running) < settings.threads and not self._is_closed:
            chosen = await self._select()
            if chosen is None:
                return
            log = chosen[0]
            partition = log.state.topic_partition
            task = self._clock.spawn(self._clean(*chosen, settings), name=f"clean {partition}")
            self._running[partition] = (log, task)
            task.add_done_callback(partial(self._ended, partition))

    def _ended(self, partition: TopicPartition, _: asyncio.Task[Any]) -> None:
        self._running.pop(partition, None)
        self._replacing.pop(partition, None)

    async def clean_dirtiest(self) -> TopicPartition | None:
        """Cleans the dirtiest log; returns its partition, None when no log needs it. For tests and tools that do not
        `start` the cleaner."""
        chosen = await self._select()
        if chosen is None:
            return None
        await self._clean(*chosen, self._settings())
        return chosen[0].state.topic_partition

    # -- future replicas (`log_dirs.future_swap.CleaningControl`) ---------------------------------------------------

    async def abort_and_pause(self, partition: TopicPartition) -> None:
        """Returns when no job of the log runs; none starts until `resume`."""
        log = self._log_manager.get(partition)
        if log is not None:
            self._paused[partition] = log
        running = self._running.get(partition)
        if running is not None:
            replacement = self._replacing.get(partition)
            running[1].cancel()
            await asyncio.wait([running[1]])
            await self._delete_leftovers(running[0], replacement)

    def resume(self, partition: TopicPartition) -> None:
        """The log may be cleaned again."""
        self._paused.pop(partition, None)

    def alter_checkpoint_dir(self, partition: TopicPartition, source: Disk, destination: Disk) -> None:
        """A future replica has replaced its log, and is as clean as that was. The next cleaning in its directory writes
        the checkpoint; after a crash before that, all of it counts as dirty."""
        before, now = self._paused.get(partition), self._log_manager.get(partition)
        if before is not None and now is not None:
            # Recovery takes what is below a clean offset for durable.
            now.state.cleaned_to(min(before.state.clean_offset, now.state.recovery_point))

    # -- what to clean ----------------------------------------------------------------------------------------------

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """The reason for each partition that is uncleanable."""
        return {partition: reason for partition, (_, reason) in self._uncleanable_logs()}

    def _uncleanable_logs(self) -> Iterator[tuple[TopicPartition, tuple[Log, str]]]:
        for partition, (log, reason) in list(self._uncleanable.items()):
            if self._log_manager.get(partition) is log:
                yield partition, (log, reason)
            else:
                del self._uncleanable[partition]  # the log was deleted or replaced

    async def _select(self) -> tuple[Log, CleanableRange, int] | None:
        """(the dirtiest log, the range to clean, the log's truncation count then); None when no log needs cleaning."""
        logs = self._log_manager.logs
        truncations = [log.state.truncation_count for log in logs]
        uncleanable = self.uncleanable
        candidates: list[CleanableLog] = []
        dirtiest = 0.0
        longest_delay = 0
        now = self._clock.monotonic()
        for number, log in enumerate(logs):
            partition = log.state.topic_partition
            if (
                not log.state.config.is_compacted
                or log.state.is_failed
                or partition in self._running
                or partition in uncleanable
            ):
                continue
            if partition in self._paused or self._not_before.get(partition, 0.0) > now:
                continue
            if log.state.is_truncating or log.state.truncation_count != truncations[number]:
                continue  # its segments may be those before the truncation
            self._not_before.pop(partition, None)
            if log.state.recovery_point < log.state.segments[-1].base_offset and partition not in self._flushing:
                # After a recovery nothing counts as durable until the next roll, which may be hours away.
                self._flushing[partition] = self._clock.spawn(
                    self._flush(log), name=f"flush {partition} for compaction"
                )
            try:
                dirty = await self._cleanable(log)
                delay = await self._delay_ms(log, dirty) if dirty.dirty_bytes else 0
            except OSError as error:
                if not log.state.is_failed and error.errno not in _GONE:
                    self._log_manager.directory_failed(log.state.disk, error)
                continue
            dirtiest = max(dirtiest, dirty.dirty_ratio)
            longest_delay = max(longest_delay, delay)
            candidates.append(CleanableLog(number, dirty, log.state.config.min_cleanable_dirty_ratio, delay))
        self.gauges.max_dirty_percent.set(int(dirtiest * 100))
        self.gauges.max_compaction_delay_s.set(longest_delay // 1000)
        # A log may have got a future replica during the awaits above.
        chosen = select_dirtiest(
            [one for one in candidates if logs[one.number].state.topic_partition not in self._paused]
        )
        return None if chosen is None else (logs[chosen.number], chosen.dirty, truncations[chosen.number])

    async def _flush(self, log: Log) -> None:
        try:
            await self._log_manager.guarded(log.state.disk, log.flusher.flush())
        except KafkaError:
            return  # the log manager has reported it
        finally:
            self._flushing.pop(log.state.topic_partition, None)

    async def _cleanable(self, log: Log) -> CleanableRange:
        config = log.state.config
        closed = log.state.segments[:-1]
        active_base = log.state.segments[-1].base_offset
        spans: list[ClosedSegment] = []
        for segment in closed:
            largest = await log.timestamps.largest_timestamp(segment) if config.min_compaction_lag_ms > 0 else -1
            spans.append(ClosedSegment(segment.base_offset, segment.size, largest))
        return cleanable(
            spans,
            active_base=active_base,
            first_dirty=first_dirty_offset(
                log.state.clean_offset, log.state.log_start_offset, log.state.log_end_offset
            ),
            bounds=(log.state.last_stable_offset, log.state.recovery_point),
            now_ms=self._clock.now_ms(),
            min_lag_ms=config.min_compaction_lag_ms,
        )

    async def _delay_ms(self, log: Log, dirty: CleanableRange) -> int:
        if log.state.config.max_compaction_lag_ms == _NO_LAG:
            return 0
        firsts = [
            await _first_timestamp(log, segment)
            for segment in log.state.segments[:-1]
            if segment.next_offset > dirty.first_dirty
        ]
        return compaction_delay_ms(firsts, self._clock.now_ms(), log.state.config.max_compaction_lag_ms)

    # -- one pass ---------------------------------------------------------------------------------------------------

    async def _clean(self, log: Log, dirty: CleanableRange, truncations: int, settings: CleanerSettings) -> None:
        partition = log.state.topic_partition
        sources = {one.base_offset: one for one in log.state.segments[:-1] if one.base_offset < dirty.end}
        if not sources or log.state.truncation_count != truncations:
            return  # retention deleted all of it, or a truncation: selected again with its new segments
        replacement: asyncio.Future[list[str] | None] | None = None
        started = self._clock.monotonic()

        async def answer(request: CleanedSegment) -> list[str] | None:
            nonlocal replacement
            replacement = log.replacement.replace_segments(
                [sources[base] for base in request.bases],
                truncations,
                size=request.size,
                max_timestamp=request.max_timestamp,
                max_timestamp_offset=request.max_timestamp_offset,
                has_transaction_index=request.has_transaction_index,
            )
            self._replacing[partition] = replacement
            # Shielded: it must not end in the middle when the worker dies or the cleaner is closed.
            return await asyncio.shield(replacement)

        try:
            plan = await self._plan(log, dirty, list(sources.values()), settings)
            cleaned: CompactionResult = await self._workers.run(
                COMPACTION_JOB, log.state.disk.path, plan, answer=answer
            )
        except Exception as error:
            has_changed = log.state.truncation_count != truncations or any(
                segment not in log.state.segments for segment in sources.values()
            )
            self._failed(log, error, has_changed=has_changed)
            await self._delete_leftovers(log, replacement)
            return
        if cleaned.is_stopped or cleaned.end <= dirty.first_dirty:
            self._not_before[partition] = self._clock.monotonic() + settings.backoff_ms / 1000
            await self._delete_leftovers(log, replacement)
            return
        self._reported.pop(partition, None)
        self.gauges.record(cleaned, self._clock.monotonic() - started)
        if cleaned.keyless_dropped:
            self._notice(f"{partition}: {cleaned.keyless_dropped} records without a key were dropped by compaction")
        if log.state.truncation_count == truncations and not log.state.is_failed:
            log.state.cleaned_to(cleaned.end)
            try:
                await self._log_manager.checkpoints.write_clean_offsets(log.state.disk)
            except OSError as error:
                self._log_manager.directory_failed(log.state.disk, error)

    async def _plan(
        self, log: Log, dirty: CleanableRange, sources: list[Segment], settings: CleanerSettings
    ) -> CompactionPlan:
        config = log.state.config
        threads = max(1, settings.threads)
        rate = settings.io_max_bytes_per_second
        buffer, offsets = settings.dedupe_buffer_size // threads, dirty.end - dirty.first_dirty
        return CompactionPlan(
            directory=log.state.directory,
            segments=[(segment.base_offset, segment.size) for segment in sources],
            first_dirty=dirty.first_dirty,
            end=dirty.end,
            slots=slots_for(buffer, offsets),
            marked=marked_for(buffer, offsets),
            load_factor=settings.io_buffer_load_factor,
            now_ms=self._clock.now_ms(),
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            io_buffer_bytes=settings.io_buffer_size // threads,
            max_decompressed_bytes=config.max_decompressed_bytes,
            io_bytes_per_second=0.0 if rate >= _NO_LIMIT else rate / threads,
            last_records=last_records(log),
            aborted=[(*one,) for one in await aborted_transactions(log, dirty.end)],
        )

    def _failed(self, log: Log, error: Exception, *, has_changed: bool) -> None:
        partition = log.state.topic_partition
        if self._is_closed or log.state.is_failed:
            return  # the broker stops, the log was deleted, or its failure is reported already
        self._not_before[partition] = self._clock.monotonic() + self._settings().backoff_ms / 1000
        if isinstance(error, OSError):
            if is_sound(error):
                self._report_once(partition, f"compaction of {partition} in {log.state.disk.path} waits: {error}")
            elif error.errno not in _GONE:
                self._log_manager.directory_failed(log.state.disk, error)
            elif not has_changed:  # else retention or a truncation deleted the file
                self._mark_uncleanable(log, error)
        elif _is_dead_worker(error):
            self._report_once(partition, f"compaction of {partition} in {log.state.disk.path} is retried: {error}")
        elif not has_changed:  # else the job has read what a truncation removed or replaced
            self._mark_uncleanable(log, error)

    def _report_once(self, partition: TopicPartition, line: str) -> None:
        """Writes the line to the broker's log, unless it is the same as at the last attempt."""
        if self._reported.get(partition) != line:
            self._reported[partition] = line
            self._notice(line)

    def _mark_uncleanable(self, log: Log, error: Exception) -> None:
        reason = str(error) or repr(error)
        self._uncleanable[log.state.topic_partition] = (log, reason)
        self._notice(
            f"{log.state.topic_partition} in {log.state.disk.path} cannot be compacted and is left unchanged until the "
            f"broker restarts: {reason}"
        )

    async def _delete_leftovers(self, log: Log, replacement: asyncio.Future[list[str] | None] | None) -> None:
        """Deletes the files of a job that failed, after the segment replacement that it requested."""
        disk = log.state.disk
        unlinked: list[str] = []
        if replacement is not None:
            await asyncio.wait([replacement])
            if not replacement.cancelled() and replacement.exception() is None:
                unlinked = replacement.result() or []
        try:
            if await disk.exists(log.state.directory):
                present = [name for name, _, _ in await disk.list(log.state.directory)]
                for name in [*unlinked, *(f"{log.state.directory}/{one}" for one in present if one.endswith(CLEANED))]:
                    await disk.delete(name)
        except OSError as error:
            if not log.state.is_failed and not self._is_closed and error.errno not in _GONE:
                self._log_manager.directory_failed(disk, error)

    # -- metrics ----------------------------------------------------------------------------------------------------

    def uncleanable_bytes(self, path: str) -> tuple[int, int]:
        """(partitions, bytes) of a log directory that are uncleanable."""
        logs = [log for _, (log, _) in self._uncleanable_logs() if log.state.disk.path == path]
        return len(logs), sum(log.state.size_bytes - log.state.segments[-1].size for log in logs)

    def _since_last_round_s(self) -> float:
        return self._clock.monotonic() - self._last_round


def _is_dead_worker(error: Exception) -> bool:
    return isinstance(error, RuntimeError) and not isinstance(error, KafkaError) and "worker process" in str(error)


async def _first_timestamp(log: Log, segment: Segment) -> int:
    """The timestamp of the segment's first batch, in ms; -1 when it has none."""
    if segment.first_timestamp is None:
        file = await log.state.disk.open(segment.name(LOG))
        header = header_at(await file.read(0, HEADER_BYTES), 0)
        await file.close()
        segment.first_timestamp = -1 if header is None else header.base_timestamp
    return segment.first_timestamp
