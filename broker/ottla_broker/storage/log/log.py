"""One partition's log on one log directory: `Log` holds its values and its parts together.

| part                                        | what it does                                               |
|---------------------------------------------|------------------------------------------------------------|
| `state.LogState`                            | the values: segments, offsets, configuration               |
| `appender.LogAppender`                      | appends of leaders, followers and transaction coordinators |
| `writes.WriteTracker`                       | moves the log end offset when writes are done              |
| `failures.LogFailures`                      | what an OSError means: the log directory is full or offlin |
| `flushing.LogFlusher`                       | rolls and flushes segments                                 |
| `reader.LogReader`, `segment_lookup`        | reads for fetches                                          |
| `timestamps.TimestampLookup`                | offsets by timestamp                                       |
| `aborted_transactions`                      | the aborted transactions of a read                         |
| `truncation.LogTruncation`                  | truncations                                                |
| `retention.LogRetention`                    | old segments and the log start offset                      |
| `segment_replacement.SegmentReplacement`    | swaps in what compaction has written                       |
| `closing.LogCloser`                         | closes and renames files                                   |

Each part has the values and the parts that it needs, in the order of the table; none has the `Log`. Everything runs on
the broker's event loop. A log touches files only through its Disk, which keeps the order of calls.

Where many partitions are looked at, read `log.state`: it saves the call of a property.

What others may rely on:

Three ends. `assigned_offset` >= `log_end_offset` (written) >= flushed. An append assigns offsets at once and queues
the write; the record is written when `log_end_offset` passes it. Where flush.messages asks for a sync,
`log_end_offset` moves with the sync and not with the write, so nobody sees a record before its promise holds.

Appends:
- `append_as_leader` checks a batch, assigns its offsets in place and returns before it is written. It raises
  `KafkaError`. A duplicate gets the offsets of the original.
- `PreparationNeeded` asks the caller to prepare the batch first (`replication.append_queue`). It is never raised for
  internal topics, or for a batch that is prepared or that the broker wrote itself.
- The log does not know the version of the request: the produce handler refuses zstd before Produce version 7.
- `append_as_follower` takes whole batches with the leader's offsets and epochs, and drops a partial last batch.
- An internal writer does what the produce handler does: it appends, and where `log_end_offset` (acks=1) or
  `high_watermark` (acks=-1) has not passed the last offset it adds a `DelayedProduce` to the queue of the partition.

Reads. A read returns whole batches that end below its upper offset: a batch that straddles it is not visible yet. It
returns at once where the page cache has the bytes, else a future. A segment may hold message formats 0 and 1;
`records.formats` reads all three. A file is not closed while a slow consumer may still be sent a range of it.

High watermark. `maybe_advance_high_watermark` never goes back. The last stable offset is derived from it and from the
transactions that are open.

Failures. When a log directory goes offline, each of its logs sets `is_failed`, calls `on_failure` once, and raises
KAFKA_STORAGE_ERROR from then on. When it is full (`is_full`), only appends raise it. What an OSError means (no room,
shortage, failure) is decided by `ports.os_errors` alone; a shortage of descriptors or memory takes no directory
offline.

Files. An active segment keeps its log file open and nothing else. Index entries go through `Disk.append_to(path)`,
which opens, writes and closes in one call of the lane. Whoever renames the directory of an open log sets the
`directory` of the log and of its segments in the same turn of the loop in which it calls `Disk.rename`: calls queued
before that find the old name, later ones the new name. Whoever changes a directory while its log is being opened
calls `contents.forget()` first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.records.control_records import EndTransactionMarker
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.files.transaction_index import AbortedTransaction
from ottla_broker.storage.log.aborted_transactions import AbortedTransactionLookup
from ottla_broker.storage.log.append_checks import AppendInfo
from ottla_broker.storage.log.appender import LogAppender
from ottla_broker.storage.log.closing import LogCloser
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.failures import LogFailures
from ottla_broker.storage.log.flushing import LogFlusher
from ottla_broker.storage.log.leader_epochs import LeaderEpochs
from ottla_broker.storage.log.producers import CheckGap, ProducerStates
from ottla_broker.storage.log.reader import LogRead, LogReader
from ottla_broker.storage.log.record_search import RecordSearch
from ottla_broker.storage.log.retention import LogRetention
from ottla_broker.storage.log.segment_lookup import SegmentLookup
from ottla_broker.storage.log.segment_replacement import SegmentReplacement
from ottla_broker.storage.log.state import LogOwner, LogState, TwinLog
from ottla_broker.storage.log.timestamps import TimestampAndOffset, TimestampLookup
from ottla_broker.storage.log.truncation import LogTruncation
from ottla_broker.storage.log.verification import Verification
from ottla_broker.storage.log.writes import WriteTracker


class Log:
    """See the module. `loading.open_log` creates it."""

    __slots__ = (
        "_aborted_transactions",
        "_appender",
        "_clock",
        "_closer",
        "_failures",
        "_flusher",
        "_replacement",
        "_retention",
        "_timestamps",
        "_truncation",
        "append_as_follower",
        "append_as_leader",
        "bytes_between",
        "read",
        "read_bytes",
        "state",
        "wait_until_written",
    )

    def __init__(
        self,
        *,
        topic_partition: TopicPartition,
        topic_id: bytes | None,
        directory: str,
        disk: Disk,
        clock: Clock,
        owner: LogOwner,
        config: LogConfig,
        segments: list[Segment],
        log_start_offset: int,
        recovery_point: int,
        high_watermark: int,
        epochs: LeaderEpochs,
        producers: ProducerStates,
    ) -> None:
        self.state = state = LogState(
            topic_partition=topic_partition,
            topic_id=topic_id,
            directory=directory,
            disk=disk,
            config=config,
            segments=segments,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            high_watermark=high_watermark,
            epochs=epochs,
            producers=producers,
            now_ms=clock.now_ms(),
        )
        self._clock = clock
        self._failures = failures = LogFailures(state, clock, owner)
        writes = WriteTracker(state, failures)
        self._flusher = flusher = LogFlusher(state, clock, failures)
        self._appender = appender = LogAppender(state, clock, flusher, writes.on_written, failures.watch)
        lookup = SegmentLookup(state, failures, owner.notice)
        reader = LogReader(state, lookup)
        self._timestamps = timestamps = TimestampLookup(state, clock, lookup)
        self._aborted_transactions = AbortedTransactionLookup(state, lookup)
        self._truncation = truncation = LogTruncation(state, clock, owner, failures, writes, lookup, flusher)
        self._retention = LogRetention(
            state, clock, owner, failures, flusher, timestamps, truncation.truncate_fully_and_start_at
        )
        self._replacement = SegmentReplacement(state, clock, owner, failures)
        self._closer = LogCloser(state, failures, writes, flusher)
        # The methods of a part themselves, where one more call would be felt.
        self.append_as_leader = appender.append_as_leader
        self.append_as_follower = appender.append_as_follower
        self.read = reader.read
        self.read_bytes = reader.read_bytes
        self.bytes_between = reader.bytes_between
        self.wait_until_written = writes.wait_until_written

    # -- values (`LogState`) ------------------------------------------------------------------------------------

    @property
    def topic_partition(self) -> TopicPartition:
        return self.state.topic_partition

    @property
    def topic_id(self) -> bytes | None:
        return self.state.topic_id

    @property
    def disk(self) -> Disk:
        return self.state.disk

    @property
    def directory(self) -> str:
        """Relative to the log directory."""
        return self.state.directory

    @property
    def config(self) -> LogConfig:
        return self.state.config

    @property
    def segments(self) -> list[Segment]:
        return self.state.segments

    @property
    def size_bytes(self) -> int:
        return self.state.size_bytes

    @property
    def epochs(self) -> LeaderEpochs:
        return self.state.epochs

    @property
    def latest_epoch(self) -> int:
        """The latest leader epoch, -1 when the log has none."""
        return self.state.epochs.latest

    @property
    def producers(self) -> ProducerStates:
        return self.state.producers

    @property
    def log_start_offset(self) -> int:
        return self.state.log_start_offset

    @property
    def local_low_watermark(self) -> int:
        """The lowest log start offset of this log and its future replica: KIP-107 counts both."""
        return self.state.local_low_watermark

    @property
    def high_watermark(self) -> int:
        return self.state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed consumers stop (KIP-98)."""
        return self.state.last_stable_offset

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is not settled (KIP-98)."""
        return self.state.first_unstable_offset

    @property
    def log_end_offset(self) -> int:
        """The offset behind the last written record."""
        return self.state.log_end_offset

    @property
    def assigned_offset(self) -> int:
        """The offset that the next record gets."""
        return self.state.assigned_offset

    @property
    def recovery_point(self) -> int:
        return self.state.recovery_point

    @property
    def flushed_offset(self) -> int:
        return self.state.flushed_offset

    @property
    def last_flush_ms(self) -> int:
        return self.state.last_flush_ms

    @property
    def clean_offset(self) -> int:
        """The log is compacted up to here."""
        return self.state.clean_offset

    @property
    def truncation_count(self) -> int:
        """How often a truncation began: bytes that were read before it must not be used after it."""
        return self.state.truncation_count

    @property
    def replacement_count(self) -> int:
        """How often compaction replaced segments."""
        return self.state.replacement_count

    @property
    def is_truncating(self) -> bool:
        return self.state.is_truncating

    @property
    def is_failed(self) -> bool:
        """The log directory is offline, or the log is closed."""
        return self.state.is_failed

    @property
    def is_full(self) -> bool:
        """The log directory is full, or a write met a shortage: appends are refused."""
        return self.state.is_full

    @property
    def has_aborted_transactions(self) -> bool:
        return self.state.has_aborted_transactions

    @property
    def future(self) -> TwinLog | None:
        """The future replica (KIP-113)."""
        return self.state.future

    @property
    def lock(self) -> asyncio.Lock:
        """Held by whatever changes more than the end of the log."""
        return self.state.lock

    @property
    def on_append(self) -> Callable[[], None] | None:
        """Called when the log end offset has moved."""
        return self.state.on_append

    @on_append.setter
    def on_append(self, callback: Callable[[], None] | None) -> None:
        self.state.on_append = callback

    @property
    def on_failure(self) -> Callable[[], None] | None:
        """Called when the log has failed, or its unwritten records are lost."""
        return self.state.on_failure

    @on_failure.setter
    def on_failure(self, callback: Callable[[], None] | None) -> None:
        self.state.on_failure = callback

    @property
    def check_gap(self) -> CheckGap | None:
        """Called when a client's batch leaves a gap or the log does not know its producer; it may refuse it."""
        return self.state.check_gap

    @check_gap.setter
    def check_gap(self, callback: CheckGap | None) -> None:
        self.state.check_gap = callback

    def segment_of(self, offset: int) -> Segment:
        """See `LogState.segment_of`."""
        return self.state.segment_of(offset)

    def maybe_advance_high_watermark(self, offset: int) -> bool:
        """See `LogState.maybe_advance_high_watermark`."""
        return self.state.maybe_advance_high_watermark(offset)

    def has_late_transaction(self, max_timeout_ms: int) -> bool:
        """See `LogState.has_late_transaction`."""
        return self.state.has_late_transaction(max_timeout_ms, self._clock.now_ms())

    def storage_error(self) -> KafkaError:
        """Why this log refuses a call."""
        return self.state.storage_error()

    def configure(self, config: LogConfig) -> None:
        """Applies a changed configuration from the next append on."""
        self.state.config = config
        self._appender.configure()

    async def wait_until_open(self) -> None:
        """Waits until the files of a new log exist. Raises OSError."""
        opening = self.state.active_segment.opening
        if opening is not None:
            await opening

    # -- leader epochs (KIP-101, KIP-279) -----------------------------------------------------------------------

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch known here at or below it, (-1, -1) when there is none."""
        return self.state.epochs.end_offset(leader_epoch, self.state.log_end_offset)

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> asyncio.Future[None]:
        """From `start_offset` on records are of `leader_epoch`.

        The answer is done at once, and the next flush writes the file: the batch headers have an epoch with records,
        and an epoch without records ends where the next one begins.
        """
        self.state.epochs.assign(leader_epoch, start_offset)
        done: asyncio.Future[None] = self._clock.create_future()
        done.set_result(None)
        return done

    # -- appends (`LogAppender`) --------------------------------------------------------------------------------

    def append_marker(
        self,
        marker: EndTransactionMarker,
        producer_id: int,
        producer_epoch: int,
        leader_epoch: int,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """See `LogAppender.append_marker`."""
        return self._appender.append_marker(marker, producer_id, producer_epoch, leader_epoch, transaction_version)

    def begin_verification(self, producer_id: int, producer_epoch: int, sequence: int) -> Verification | None:
        """See `ProducerStates.begin_verification`."""
        return self.state.producers.begin_verification(producer_id, producer_epoch, sequence, self._clock.now_ms())

    @property
    def is_preparing(self) -> bool:
        """Batches that came earlier are still being prepared."""
        return self._appender.is_preparing

    def set_preparing(self, is_preparing: bool) -> None:
        """See `LogAppender.set_preparing`."""
        self._appender.set_preparing(is_preparing)

    # -- reads --------------------------------------------------------------------------------------------------

    def offset_for_timestamp(
        self, timestamp: int, upper_offset: int, search: RecordSearch
    ) -> asyncio.Future[TimestampAndOffset | None]:
        """See `TimestampLookup.offset_for_timestamp`."""
        return self._timestamps.offset_for_timestamp(timestamp, upper_offset, search)

    def max_timestamp(
        self, upper_offset: int | None, search: RecordSearch
    ) -> asyncio.Future[TimestampAndOffset | None]:
        """See `TimestampLookup.max_timestamp`."""
        return self._timestamps.max_timestamp(upper_offset, search)

    def segment_offsets(self, timestamp: int | None, max_offsets: int) -> asyncio.Future[list[int]]:
        """See `TimestampLookup.segment_offsets`."""
        return self._timestamps.segment_offsets(timestamp, max_offsets)

    async def largest_timestamp(self, segment: Segment) -> int:
        """See `TimestampLookup.largest_timestamp`."""
        return await self._timestamps.largest_timestamp(segment)

    def aborted_in(
        self, read: LogRead, offset: int, upper: int
    ) -> list[AbortedTransaction] | asyncio.Future[list[AbortedTransaction]]:
        """See `AbortedTransactionLookup.aborted_in`."""
        return self._aborted_transactions.aborted_in(read, offset, upper)

    def aborted_transactions(
        self, lower: int, upper: int
    ) -> list[AbortedTransaction] | asyncio.Future[list[AbortedTransaction]]:
        """See `AbortedTransactionLookup.aborted_transactions`."""
        return self._aborted_transactions.aborted_transactions(lower, upper)

    # -- changes of segments ------------------------------------------------------------------------------------

    def roll(self) -> Segment:
        """Closes the active segment and starts a new one at the next offset, which it returns."""
        return self._flusher.roll()

    @property
    def rolling(self) -> asyncio.Task[None] | None:
        """The task that finishes the last roll, while there is one."""
        return self._flusher.rolling

    async def flush(self) -> None:
        """Makes everything assigned so far durable and moves the recovery point. Raises OSError."""
        await self._flusher.flush()

    def truncate_to(self, offset: int) -> asyncio.Future[None]:
        """See `LogTruncation.truncate_to`."""
        return self._truncation.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> asyncio.Future[None]:
        """See `LogTruncation.truncate_fully_and_start_at`."""
        return self._truncation.truncate_fully_and_start_at(offset)

    def advance_log_start_offset(self, offset: int) -> asyncio.Future[None]:
        """See `LogRetention.advance_log_start_offset`."""
        return self._retention.advance_log_start_offset(offset)

    async def start_at(self, offset: int) -> None:
        """See `LogRetention.start_at`."""
        await self._retention.start_at(offset)

    async def delete_old_segments(self) -> int:
        """See `LogRetention.delete_old_segments`."""
        return await self._retention.delete_old_segments()

    def replace_segments(
        self,
        sources: Sequence[Segment],
        truncations: int,
        *,
        size: int,
        max_timestamp: int,
        max_timestamp_offset: int,
        has_transaction_index: bool,
    ) -> asyncio.Future[list[str] | None]:
        """See `SegmentReplacement.replace_segments`."""
        return self._replacement.replace_segments(
            sources,
            truncations,
            size=size,
            max_timestamp=max_timestamp,
            max_timestamp_offset=max_timestamp_offset,
            has_transaction_index=has_transaction_index,
        )

    # -- the log directory --------------------------------------------------------------------------------------

    def mark_offline(self) -> bool:
        """See `LogFailures.mark_offline`."""
        return self._failures.mark_offline()

    def notify_failure(self) -> None:
        """See `LogFailures.notify_failure`."""
        self._failures.notify_failure()

    def mark_full(self) -> None:
        """The log directory is full: refuses appends until `resume_appends`."""
        self.state.is_full = True

    def resume_appends(self) -> None:
        """See `LogTruncation.resume_appends`."""
        self._truncation.resume_appends()

    def replace_with(self, successor: TwinLog) -> None:
        """The future replica has replaced this log, which takes no appends and calls no callbacks any more. Reads that
        are under way go on until the log is abandoned."""
        state = self.state
        state.future = None
        state.successor = successor
        state.on_append = state.on_failure = None
        state.is_truncating = True

    # -- files (`LogCloser`) ------------------------------------------------------------------------------------

    async def close_idle_segments(self) -> None:
        """See `LogCloser.close_idle_segments`."""
        await self._closer.close_idle_segments()

    async def close(self) -> None:
        """See `LogCloser.close`."""
        await self._closer.close()

    async def abandon(self) -> None:
        """See `LogCloser.abandon`."""
        await self._closer.abandon()

    def rename_directory(self, name: str) -> asyncio.Future[Any]:
        """See `LogCloser.rename_directory`."""
        return self._closer.rename_directory(name)

    def set_directory(self, name: str) -> None:
        """See `LogCloser.set_directory`."""
        self._closer.set_directory(name)
