"""The log cleaner on the broker's loop: which log is cleaned next, its job, what its failures mean, its metrics.

Up to log.cleaner.threads jobs run at a time in worker processes. When no log is dirty enough it waits
log.cleaner.backoff.ms. A log is in at most one job, by partition, so that a job which outlives its log (deleted,
created anew) keeps others off the names it writes.

| a job ends with                          | then                                                                  |
|------------------------------------------|-----------------------------------------------------------------------|
| its result                               | the log is clean up to there; cleaner-offset-checkpoint is written   |
| damage or a format it does not know      | the partition is uncleanable until the broker starts again; others go on |
| a full disk, a dead worker, a changed log | what it left is deleted; tried again after the backoff                |
| another error of the disk                | the directory is offline                                              |
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ottla_broker.metrics import Gauge, Metrics
from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.ports.os_errors import is_sound
from ottla_broker.ports.workers import Workers
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.records.batch import HEADER_BYTES
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.cleaner.choice import (
    Candidate,
    Cleanable,
    Span,
    choose,
    cleanable,
    compaction_delay_ms,
    first_dirty_offset,
)
from ottla_broker.storage.cleaner.job import Cleaned, CleanedSegment, Plan
from ottla_broker.storage.cleaner.key_map import marked_for, slots_for
from ottla_broker.storage.cleaner.positions import aborted_transactions, last_records
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
    """Broker-level values, named after their keys without `log.cleaner.`; they may change while the broker runs."""

    enable: bool = True
    threads: int = 1
    backoff_ms: int = 15_000
    dedupe_buffer_size: int = 134_217_728
    io_buffer_size: int = 524_288
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float = _NO_LIMIT


class LogCleaner:
    """See the module. `start` after the logs are loaded, `close` before they are closed."""

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
        """`on_notice` takes one line for the broker's log."""
        self._log_manager = log_manager
        self._clock = clock
        self._workers = workers
        self._settings = settings
        self._notice = on_notice
        self._passes: dict[TopicPartition, tuple[Log, asyncio.Task[Any]]] = {}
        self._not_before: dict[TopicPartition, float] = {}
        self._replacing: dict[TopicPartition, asyncio.Future[list[str] | None]] = {}
        self._flushing: dict[TopicPartition, asyncio.Task[Any]] = {}
        self._paused: dict[TopicPartition, Log] = {}
        """Logs that are being copied to another directory."""
        self._told: dict[TopicPartition, str] = {}
        self._uncleanable: dict[TopicPartition, tuple[Log, str]] = {}
        self._scheduler: asyncio.Task[Any] | None = None
        self._is_closed = False
        self._last_round = clock.monotonic()
        log_manager.future_replicas.cleaning = self
        self.gauges = _Gauges(metrics, log_manager, self.uncleanable_bytes, self._since_last_round_s)

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._scheduler = self._clock.spawn(self._schedule(), name="log cleaner")

    async def close(self) -> None:
        """No further pass; those under way end at their next question, a replacement under way is finished."""
        self._is_closed = True
        tasks = [task for _, task in self._passes.values()]
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
                await self._begin_passes(settings)
            self._last_round = self._clock.monotonic()
            timeout = max(settings.backoff_ms / 1000, 0.001)
            if self._passes:
                await asyncio.wait(
                    [task for _, task in self._passes.values()], timeout=timeout, return_when=asyncio.FIRST_COMPLETED
                )
            else:
                await self._clock.sleep(timeout)
            for log, task in list(self._passes.values()):
                if log.is_failed:  # deleted, or its directory is offline and may hang the job for ever
                    task.cancel()

    async def _begin_passes(self, settings: CleanerSettings) -> None:
        while len(self._passes) < settings.threads and not self._is_closed:
            chosen = await self._choose()
            if chosen is None:
                return
            log = chosen[0]
            partition = log.topic_partition
            task = self._clock.spawn(self._pass(*chosen, settings), name=f"clean {partition}")
            self._passes[partition] = (log, task)
            task.add_done_callback(partial(self._ended, partition))

    def _ended(self, partition: TopicPartition, _: asyncio.Task[Any]) -> None:
        self._passes.pop(partition, None)
        self._replacing.pop(partition, None)

    async def clean_dirtiest(self) -> TopicPartition | None:
        """One pass over the log that needs it most, to its end; None when none does. For whoever does not `start`."""
        chosen = await self._choose()
        if chosen is None:
            return None
        await self._pass(*chosen, self._settings())
        return chosen[0].topic_partition

    # -- moves between directories (`moves.Cleaning`) ---------------------------------------------------------------

    async def abort_and_pause(self, partition: TopicPartition) -> None:
        """Returns when nothing of the log is being cleaned any more, and nothing will be until `resume`."""
        log = self._log_manager.get(partition)
        if log is not None:
            self._paused[partition] = log
        running = self._passes.get(partition)
        if running is not None:
            replacement = self._replacing.get(partition)
            running[1].cancel()
            await asyncio.wait([running[1]])
            await self._tidy(running[0], replacement)

    def resume(self, partition: TopicPartition) -> None:
        self._paused.pop(partition, None)

    def alter_checkpoint_dir(self, partition: TopicPartition, source: Disk, destination: Disk) -> None:
        """The copy is as clean as the log was. Its checkpoint is written with the next cleaning: until then, after a
        crash, all of it counts as dirty."""
        before, now = self._paused.get(partition), self._log_manager.get(partition)
        if before is not None and now is not None:
            now.state.clean_offset = min(before.clean_offset, now.log_end_offset)

    # -- what to clean ----------------------------------------------------------------------------------------------

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """Why each partition that the cleaner gave up cannot be cleaned."""
        return {partition: reason for partition, (_, reason) in self._given_up()}

    def _given_up(self) -> Iterator[tuple[TopicPartition, tuple[Log, str]]]:
        for partition, (log, reason) in list(self._uncleanable.items()):
            if self._log_manager.get(partition) is log:
                yield partition, (log, reason)
            else:
                del self._uncleanable[partition]  # deleted, or another log by now

    async def _choose(self) -> tuple[Log, Cleanable, int] | None:
        """The log, its part to clean, and the log's count of truncations when that was looked at."""
        logs = self._log_manager.logs
        truncations = [log.truncation_count for log in logs]
        given_up = self.uncleanable
        candidates: list[Candidate] = []
        dirtiest = 0.0
        longest_delay = 0
        now = self._clock.monotonic()
        for number, log in enumerate(logs):
            partition = log.topic_partition
            if not log.config.is_compacted or log.is_failed or partition in self._passes or partition in given_up:
                continue
            if partition in self._paused or self._not_before.get(partition, 0.0) > now:
                continue
            if log.is_truncating or log.truncation_count != truncations[number]:
                continue  # its segments may still be those of before
            self._not_before.pop(partition, None)
            if log.recovery_point < log.segments[-1].base_offset and partition not in self._flushing:
                # After a recovery nothing counts as durable until the next roll, which may be far.
                self._flushing[partition] = self._clock.spawn(
                    self._flush(log), name=f"flush {partition} for compaction"
                )
            try:
                part = await self._cleanable(log)
                delay = await self._delay_ms(log, part) if part.dirty_bytes else 0
            except OSError as error:
                if not log.is_failed and error.errno not in _GONE:
                    self._log_manager.directory_failed(log.disk, error)
                continue
            dirtiest = max(dirtiest, part.dirty_ratio)
            longest_delay = max(longest_delay, delay)
            candidates.append(Candidate(number, part, log.config.min_cleanable_dirty_ratio, delay))
        self.gauges.max_dirty_percent.set(int(dirtiest * 100))
        self.gauges.max_compaction_delay_s.set(longest_delay // 1000)
        # One that has begun to move while it, or another one, was looked at is not cleaned either.
        chosen = choose([one for one in candidates if logs[one.number].topic_partition not in self._paused])
        return None if chosen is None else (logs[chosen.number], chosen.part, truncations[chosen.number])

    async def _flush(self, log: Log) -> None:
        try:
            await self._log_manager.guarded(log.disk, log.flush())
        except KafkaError:
            return  # told by the log manager
        finally:
            self._flushing.pop(log.topic_partition, None)

    async def _cleanable(self, log: Log) -> Cleanable:
        config = log.config
        closed = log.segments[:-1]
        active_base = log.segments[-1].base_offset
        spans: list[Span] = []
        for segment in closed:
            largest = await log.largest_timestamp(segment) if config.min_compaction_lag_ms > 0 else -1
            spans.append(Span(segment.base_offset, segment.size, largest))
        return cleanable(
            spans,
            active_base=active_base,
            first_dirty=first_dirty_offset(log.clean_offset, log.log_start_offset, log.log_end_offset),
            bounds=(log.last_stable_offset, log.recovery_point),
            now_ms=self._clock.now_ms(),
            min_lag_ms=config.min_compaction_lag_ms,
        )

    async def _delay_ms(self, log: Log, part: Cleanable) -> int:
        if log.config.max_compaction_lag_ms == _NO_LAG:
            return 0
        firsts = [
            await _first_timestamp(log, segment)
            for segment in log.segments[:-1]
            if segment.next_offset > part.first_dirty
        ]
        return compaction_delay_ms(firsts, self._clock.now_ms(), log.config.max_compaction_lag_ms)

    # -- one pass ---------------------------------------------------------------------------------------------------

    async def _pass(self, log: Log, part: Cleanable, truncations: int, settings: CleanerSettings) -> None:
        partition = log.topic_partition
        if log.truncation_count != truncations:
            return  # the next look sees what is there now
        sources = {one.base_offset: one for one in log.segments[:-1] if one.base_offset < part.end}
        replacement: asyncio.Future[list[str] | None] | None = None
        started = self._clock.monotonic()

        async def answer(question: CleanedSegment) -> list[str] | None:
            nonlocal replacement
            replacement = log.replace_segments(
                [sources[base] for base in question.bases],
                truncations,
                size=question.size,
                max_timestamp=question.max_timestamp,
                max_timestamp_offset=question.max_timestamp_offset,
                has_transaction_index=question.has_transaction_index,
            )
            self._replacing[partition] = replacement
            # Not to be cut short in the middle when the worker dies or the cleaner is closed.
            return await asyncio.shield(replacement)

        try:
            plan = await self._plan(log, part, list(sources.values()), settings)
            cleaned: Cleaned = await self._workers.run(COMPACTION_JOB, log.disk.path, plan, answer=answer)
        except Exception as error:
            has_changed = log.truncation_count != truncations or any(
                segment not in log.segments for segment in sources.values()
            )
            self._failed(log, error, has_changed=has_changed)
            await self._tidy(log, replacement)
            return
        if cleaned.is_stopped or cleaned.end <= part.first_dirty:
            self._not_before[partition] = self._clock.monotonic() + settings.backoff_ms / 1000
            await self._tidy(log, replacement)
            return
        self._told.pop(partition, None)
        self.gauges.took(cleaned, self._clock.monotonic() - started)
        if cleaned.keyless_dropped:
            self._notice(f"{partition}: {cleaned.keyless_dropped} records without a key were dropped by compaction")
        if log.truncation_count == truncations and not log.is_failed:
            log.state.clean_offset = cleaned.end
            try:
                await self._log_manager.checkpoints.write_clean_offsets(log.disk)
            except OSError as error:
                self._log_manager.directory_failed(log.disk, error)

    async def _plan(self, log: Log, part: Cleanable, sources: list[Segment], settings: CleanerSettings) -> Plan:
        config = log.config
        threads = max(1, settings.threads)
        rate = settings.io_max_bytes_per_second
        buffer, offsets = settings.dedupe_buffer_size // threads, part.end - part.first_dirty
        return Plan(
            directory=log.directory,
            segments=[(segment.base_offset, segment.size) for segment in sources],
            first_dirty=part.first_dirty,
            end=part.end,
            slots=slots_for(buffer, offsets),
            marked=marked_for(buffer, offsets),
            load_factor=settings.io_buffer_load_factor,
            now_ms=self._clock.now_ms(),
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            io_buffer_bytes=settings.io_buffer_size // threads,
            io_bytes_per_second=0.0 if rate >= _NO_LIMIT else rate / threads,
            last_records=last_records(log),
            aborted=[(*one,) for one in await aborted_transactions(log, part.end)],
        )

    def _failed(self, log: Log, error: Exception, *, has_changed: bool) -> None:
        partition = log.topic_partition
        if self._is_closed or log.is_failed:
            return  # the broker is stopping, the log was deleted, or its failure has been told
        self._not_before[partition] = self._clock.monotonic() + self._settings().backoff_ms / 1000
        if isinstance(error, OSError):
            if is_sound(error):
                self._tell(partition, f"compaction of {partition} in {log.disk.path} waits: {error}")
            elif error.errno not in _GONE:
                self._log_manager.directory_failed(log.disk, error)
            elif not has_changed:  # otherwise retention or a truncation took the file
                self._give_up(log, error)
        elif _is_dead_worker(error):
            self._tell(partition, f"compaction of {partition} in {log.disk.path} begins again: {error}")
        elif not has_changed:  # otherwise the job has read what a truncation took away or wrote anew
            self._give_up(log, error)

    def _tell(self, partition: TopicPartition, line: str) -> None:
        """Once, not at every attempt."""
        if self._told.get(partition) != line:
            self._told[partition] = line
            self._notice(line)

    def _give_up(self, log: Log, error: Exception) -> None:
        reason = str(error) or repr(error)
        self._uncleanable[log.topic_partition] = (log, reason)
        self._notice(
            f"{log.topic_partition} in {log.disk.path} cannot be compacted and is left as it is until the broker "
            f"starts again: {reason}"
        )

    async def _tidy(self, log: Log, replacement: asyncio.Future[list[str] | None] | None) -> None:
        """Deletes what a job that came to no end has left, once the replacement it asked for is through."""
        disk = log.disk
        unlinked: list[str] = []
        if replacement is not None:
            await asyncio.wait([replacement])
            if not replacement.cancelled() and replacement.exception() is None:
                unlinked = replacement.result() or []
        try:
            if await disk.exists(log.directory):
                present = [name for name, _, _ in await disk.list(log.directory)]
                for name in [*unlinked, *(f"{log.directory}/{one}" for one in present if one.endswith(CLEANED))]:
                    await disk.delete(name)
        except OSError as error:
            if not log.is_failed and not self._is_closed and error.errno not in _GONE:
                self._log_manager.directory_failed(disk, error)

    # -- what metrics tell ------------------------------------------------------------------------------------------

    def uncleanable_bytes(self, path: str) -> tuple[int, int]:
        """(partitions, bytes) of a log directory that are not cleaned any more."""
        logs = [log for _, (log, _) in self._given_up() if log.disk.path == path]
        return len(logs), sum(log.size_bytes - log.segments[-1].size for log in logs)

    def _since_last_round_s(self) -> float:
        return self._clock.monotonic() - self._last_round


class _Gauges:
    """The cleaner's metrics: Kafka's MBeans of kafka.log:type=LogCleaner and LogCleanerManager."""

    def __init__(
        self,
        metrics: Metrics,
        log_manager: LogManager,
        uncleanable: Callable[[str], tuple[int, int]],
        since_last_round_s: Callable[[], float],
    ) -> None:
        def gauge(name: str, text: str, function: Callable[[], float] | None = None) -> Gauge:
            return metrics.gauge(f"kafka_log_{name}", text, function)

        for path in [*log_manager.live_paths, *log_manager.offline_paths]:
            metrics.gauge(
                "kafka_log_logcleanermanager_uncleanable_partitions_count",
                "Partitions that the cleaner has given up because they are damaged.",
                lambda path=path: uncleanable(path)[0],  # type: ignore[misc]
                logdirectory=path,
            )
            metrics.gauge(
                "kafka_log_logcleanermanager_uncleanable_bytes",
                "Bytes of the partitions that the cleaner has given up.",
                lambda path=path: uncleanable(path)[1],  # type: ignore[misc]
                logdirectory=path,
            )
        gauge(
            "logcleanermanager_time_since_last_run_seconds",
            "Time since the cleaner last looked for a log to clean.",
            since_last_round_s,
        )
        self.max_dirty_percent = gauge(
            "logcleanermanager_max_dirty_percent", "The highest dirty ratio of a compacted log, in percent."
        )
        self.max_compaction_delay_s = gauge(
            "logcleaner_max_compaction_delay_secs", "The longest time beyond max.compaction.lag.ms, in seconds."
        )
        self.max_buffer_utilization = gauge(
            "logcleaner_max_buffer_utilization_percent", "How full the last cleaning's map of keys got, in percent."
        )
        self.recopy = gauge(
            "logcleaner_cleaner_recopy_percent", "Bytes written of those read by the last cleaning, in percent."
        )
        self.max_clean_time_s = gauge("logcleaner_max_clean_time_secs", "How long the last cleaning took, in seconds.")
        self.runs = metrics.counter("ottla_log_cleaner_runs", "Logs cleaned.")
        self.bytes_read = metrics.counter("ottla_log_cleaner_read_bytes", "Bytes the cleaner has read.")
        self.bytes_written = metrics.counter("ottla_log_cleaner_written_bytes", "Bytes the cleaner has written.")
        self.dropped = metrics.counter("ottla_log_cleaner_dropped_records", "Records that compaction removed.")

    def took(self, cleaned: Cleaned, seconds: float) -> None:
        self.max_buffer_utilization.set(int(cleaned.map_utilization * 100))
        self.recopy.set(int(100 * cleaned.bytes_written / cleaned.bytes_read) if cleaned.bytes_read else 0)
        self.max_clean_time_s.set(int(seconds))
        self.runs.inc()
        self.bytes_read.inc(cleaned.bytes_read)
        self.bytes_written.inc(cleaned.bytes_written)
        self.dropped.inc(cleaned.records_read - cleaned.records_kept)


def _is_dead_worker(error: Exception) -> bool:
    return isinstance(error, RuntimeError) and not isinstance(error, KafkaError) and "worker process" in str(error)


async def _first_timestamp(log: Log, segment: Segment) -> int:
    """Of the segment's first batch, in ms; -1 when it has none."""
    if segment.first_timestamp is None:
        file = await log.disk.open(segment.name(LOG))
        header = header_at(await file.read(0, HEADER_BYTES), 0)
        await file.close()
        segment.first_timestamp = -1 if header is None else header.base_timestamp
    return segment.first_timestamp
