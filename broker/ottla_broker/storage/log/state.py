"""The values of one log: its segments, its offsets, its configuration and what is wrong with it.

The parts of a log (appender, reader, flusher, truncation, retention, ...) share one `LogState`; `log.Log` holds them
together. Here are only values and questions about them: nothing that touches a file, waits or calls somebody.

    log_start_offset <= recovery_point <= log_end_offset (written) <= assigned_offset

An append moves `assigned_offset` at once. When its write is done, `log_end_offset` follows: followers, the high
watermark and acknowledgements depend on that one. A flush moves `flushed_offset` and `recovery_point`.

Everything runs on the broker's event loop. Whoever changes more than the end of the log holds `lock`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Protocol

from ottla_broker.ports.disk import Disk
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.leader_epochs import LeaderEpochs
from ottla_broker.storage.log.producers import CheckGap, ProducerStates

_LATE_BUFFER_MS = 5 * 60 * 1000
"""How long a coordinator may take to abort a transaction after transaction.max.timeout.ms."""


class LogOwner(Protocol):
    """What a log needs from the log manager."""

    def directory_failed(self, disk: Disk, error: OSError) -> None:
        """A call on the log directory failed: marks it, and every log in it, offline."""
        ...

    def directory_full(self, disk: Disk, error: OSError) -> None:
        """A call on the log directory found no room: marks it, and every log in it, full. For a shortage of
        descriptors or memory (`ports.os_errors`) it only writes a line to the broker's log."""
        ...

    async def checkpoint_recovery_points(self, disk: Disk) -> bool:
        """Writes the recovery points of the directory's logs; False when there is no room. Raises OSError."""
        ...

    async def checkpoint_log_start_offsets(self, disk: Disk) -> bool:
        """Writes the log start offsets of the directory's logs; False when there is no room. Raises OSError."""
        ...

    async def checkpoint_high_watermarks_in(self, disk: Disk) -> bool:
        """Writes the high watermarks of the directory's logs; False when there is no room. Raises OSError."""
        ...

    async def checkpoint_clean_offsets(self, disk: Disk) -> None:
        """Writes the offsets up to which the directory's logs are compacted. Raises OSError."""
        ...

    def notice(self, message: str) -> None:
        """Writes a line to the broker's log: something was repaired, or a person should know."""
        ...


class TwinTruncation(Protocol):
    """`LogTruncation` of another log."""

    def truncate_to(self, offset: int) -> asyncio.Future[None]: ...
    def truncate_fully_and_start_at(self, offset: int) -> asyncio.Future[None]: ...


class TwinRetention(Protocol):
    """`LogRetention` of another log."""

    async def start_at(self, offset: int) -> None: ...


class TwinLog(Protocol):
    """Another log of the same replica: its future replica (KIP-113), or the one that replaced it."""

    @property
    def state(self) -> LogState: ...
    @property
    def truncation(self) -> TwinTruncation: ...
    @property
    def retention(self) -> TwinRetention: ...


UnfinishedWrite = tuple[asyncio.Future[Any], Segment, int, int, int | None]
"""An append whose write is not done yet: the write, its segment, the position and the offset behind it, and the offset
from which on the write makes everything durable (None when it does not sync)."""


class LogState:
    """The values that the parts of one log share. `segments` are sorted and never empty; the last one is active."""

    __slots__ = (
        "active_segment",
        "assigned_offset",
        "check_gap",
        "clean_offset",
        "config",
        "directory",
        "disk",
        "epochs",
        "flush_requested_offset",
        "flushed_offset",
        "future",
        "has_aborted_transactions",
        "has_unwritten_tail",
        "high_watermark",
        "is_failed",
        "is_full",
        "is_truncating",
        "last_flush_ms",
        "lock",
        "log_end_offset",
        "log_start_offset",
        "on_append",
        "on_failure",
        "producers",
        "recovery_point",
        "replacement_count",
        "segments",
        "successor",
        "topic_id",
        "topic_partition",
        "truncation_count",
        "unfinished_writes",
        "written_position",
        "written_segment",
    )

    def __init__(
        self,
        *,
        topic_partition: TopicPartition,
        topic_id: bytes | None,
        directory: str,
        disk: Disk,
        config: LogConfig,
        segments: list[Segment],
        log_start_offset: int,
        recovery_point: int,
        high_watermark: int,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        now_ms: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory = directory
        """Relative to the log directory."""
        self.disk = disk
        self.config = config
        self.segments = segments
        """A new list for every change: whoever iterates sees one state of it."""
        self.active_segment = segments[-1]
        self.epochs = epochs
        self.producers = producers

        self.assigned_offset = self.active_segment.next_offset
        """The offset that the next record gets."""
        self.log_end_offset = self.assigned_offset
        self.written_segment = self.active_segment
        self.written_position = self.active_segment.size
        """Where `log_end_offset` stands: a segment and a position in its file."""
        self.unfinished_writes: list[UnfinishedWrite] = []
        self.log_start_offset = log_start_offset
        self.high_watermark = min(max(high_watermark, log_start_offset), self.log_end_offset)
        self.recovery_point = recovery_point
        """Everything below is durable, with its indexes and epochs: recovery begins here."""
        self.flushed_offset = recovery_point
        """Everything below is durable in the log files."""
        self.flush_requested_offset = self.assigned_offset
        """The last flush includes everything below."""
        self.last_flush_ms = now_ms
        self.clean_offset = 0
        """The log is compacted up to here (cleaner-offset-checkpoint)."""
        self.has_aborted_transactions = any(segment.transactions is not None for segment in segments)
        """Whether a segment may have a transaction index; False for almost every log."""

        self.replacement_count = 0
        """How often compaction replaced segments."""
        self.truncation_count = 0
        """How often a truncation began: bytes that were read before it must not be used after it."""
        self.is_truncating = False
        self.is_failed = False
        """The log directory is offline, or the log is closed."""
        self.is_full = False
        """The log directory is full, or a write met a shortage: appends are refused, everything else works."""
        self.has_unwritten_tail = False
        """Assigned records found no room: the log must be truncated to `log_end_offset` before it can append."""
        self.future: TwinLog | None = None
        """The future replica (KIP-113) in another log directory; it is truncated together with this log."""
        self.successor: TwinLog | None = None
        """The future replica that has replaced this log, which takes no appends any more."""
        self.on_append: Callable[[], None] | None = None
        """Called when `log_end_offset` has moved."""
        self.check_gap: CheckGap | None = None
        """Called when a client's batch leaves a gap or the log does not know its producer; it may refuse it."""
        self.on_failure: Callable[[], None] | None = None
        """Called when the log has failed, or its unwritten records are lost."""
        self.lock = asyncio.Lock()
        """Held by whatever changes more than the end of the log: one at a time."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def local_low_watermark(self) -> int:
        """The lowest log start offset of this log and its future replica: KIP-107 counts both."""
        future = self.future
        return self.log_start_offset if future is None else min(self.log_start_offset, future.state.log_start_offset)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open, or whose marker is above the high watermark (KIP-98).

        Never below the log start offset. None without such a transaction. Compaction stops below it.
        """
        transactions = self.producers.transactions
        if transactions.is_empty:
            return None
        offset = transactions.first_unstable_offset(self.high_watermark)
        return None if offset is None else max(offset, self.log_start_offset)

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed consumers stop: the high watermark or the first unstable offset, the lower one."""
        high_watermark = self.high_watermark
        if self.producers.transactions.is_empty:
            return high_watermark
        unstable = self.first_unstable_offset
        return high_watermark if unstable is None or unstable > high_watermark else unstable

    def has_late_transaction(self, max_timeout_ms: int, now_ms: int) -> bool:
        """Whether the oldest open transaction is hanging (KIP-664): it has had no record for transaction.max.timeout.ms
        and five more minutes, in which its coordinator should have aborted it."""
        last_timestamp = self.producers.oldest_transaction_timestamp
        return 0 < last_timestamp < now_ms - max_timeout_ms - _LATE_BUFFER_MS

    def maybe_advance_high_watermark(self, offset: int) -> bool:
        """Moves the high watermark up to `offset`, at most to the log end offset; True when it moved."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    # What others than the parts of the log change.

    def identify(self, topic_id: bytes) -> None:
        """The topic has this id: the log was created before the controller knew topic ids (KIP-516)."""
        self.topic_id = topic_id

    def call(
        self,
        on_append: Callable[[], None] | None,
        on_failure: Callable[[], None] | None,
        check_gap: CheckGap | None = None,
    ) -> None:
        """Sets the callbacks."""
        self.on_append, self.on_failure, self.check_gap = on_append, on_failure, check_gap

    def cleaned_to(self, offset: int) -> None:
        """The log is compacted up to here."""
        self.clean_offset = offset

    def mark_full(self) -> None:
        """The log directory is full: refuses appends until `LogTruncation.resume_appends`."""
        self.is_full = True

    def set_future(self, future: TwinLog | None) -> None:
        """The log has a future replica now, or none any more."""
        self.future = future

    def take_over(self, old: LogState) -> None:
        """What the records that were copied from the old log do not contain: epochs without records, and producers
        whose records are deleted. After a crash the old directory may be the log again, with no more than it flushed.
        """
        self.high_watermark = max(self.high_watermark, old.high_watermark)
        self.flushed_offset = min(self.flushed_offset, old.flushed_offset)
        self.epochs = LeaderEpochs(old.epochs.entries)
        self.epochs.truncate_from_start(self.log_start_offset)
        self.epochs.is_dirty = True
        self.producers = old.producers
        self.producers.end_offset = self.assigned_offset

    def replaced_by(self, successor: TwinLog) -> None:
        """The future replica has replaced this log, which takes no appends and calls no callbacks any more. Reads that
        are under way go on until the log is abandoned."""
        self.future = None
        self.successor = successor
        self.on_append = self.on_failure = None
        self.is_truncating = True

    def raise_log_start_offset(self, offset: int) -> None:
        """Moves the log start offset up to `offset`; the high watermark and the leader epochs follow."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.high_watermark = max(self.high_watermark, offset)
            self.epochs.truncate_from_start(offset)

    def segment_of(self, offset: int) -> Segment:
        """The segment that holds `offset`; the first one for offsets below all."""
        segments = self.segments
        if offset >= segments[-1].base_offset:
            return segments[-1]
        return segments[max(bisect_right(segments, offset, key=_base_offset) - 1, 0)]

    def storage_error(self) -> KafkaError:
        """Why this log refuses a call."""
        if self.successor is not None:
            # Not KAFKA_STORAGE_ERROR: no log directory failed, and a client that retries finds the new one.
            return KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.topic_partition} has moved from {self.disk.path} to {self.successor.state.disk.path}",
            )
        problem = (
            "offline" if self.is_failed or not self.is_full else "full, or the broker is short of descriptors or memory"
        )
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory {self.disk.path} of {self.topic_partition} is {problem}"
        )

    def truncating_error(self) -> KafkaError:
        """Why an append is refused while the log is truncated."""
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is being truncated")

    def check_online(self) -> None:
        """Raises KAFKA_STORAGE_ERROR when the log directory is offline."""
        if self.is_failed:
            raise self.storage_error()


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
