"""One partition's log on one log directory: `Log` holds its values and its parts together.

| part                                        | what it does                                               |
|---------------------------------------------|------------------------------------------------------------|
| `state.LogState`                            | the values: segments, offsets, configuration               |
| `appender.LogAppender`                      | appends of leaders, followers and transaction coordinators |
| `writes.WriteTracker`                       | moves the log end offset when writes are done              |
| `failures.LogFailures`                      | what an OSError means: a full or an offline directory      |
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

Only the modules of this package assign what `state` has; others call its methods.

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
which opens, writes and closes in one call of the lane. Whoever renames the directory of an open log calls
`closer.rename_directory`, which sets the `directory` of the log and of its segments in the turn of the loop in which it
calls `Disk.rename`: calls queued before that find the old name, later ones the new name. Whoever changes a directory
while its log is being opened calls `contents.forget()` first.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla_broker.ports.clock import Clock
from ottla_broker.storage.log.aborted_transactions import AbortedTransactionLookup
from ottla_broker.storage.log.appender import LogAppender
from ottla_broker.storage.log.closing import LogCloser
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.failures import LogFailures
from ottla_broker.storage.log.flushing import LogFlusher
from ottla_broker.storage.log.reader import LogReader
from ottla_broker.storage.log.retention import LogRetention
from ottla_broker.storage.log.segment_lookup import SegmentLookup
from ottla_broker.storage.log.segment_replacement import SegmentReplacement
from ottla_broker.storage.log.state import LogOwner, LogState
from ottla_broker.storage.log.timestamps import TimestampLookup
from ottla_broker.storage.log.truncation import LogTruncation
from ottla_broker.storage.log.verification import Verification
from ottla_broker.storage.log.writes import WriteTracker


class Log:
    """See the module. `loading.open_log` creates it. `state` has the values; what a log does, its parts do."""

    __slots__ = (
        "_clock",
        "aborted",
        "append_as_follower",
        "append_as_leader",
        "appender",
        "bytes_between",
        "closer",
        "failures",
        "flusher",
        "read",
        "read_bytes",
        "replacement",
        "retention",
        "state",
        "timestamps",
        "truncation",
        "wait_until_written",
    )

    def __init__(self, state: LogState, clock: Clock, owner: LogOwner) -> None:
        self.state: Final = state
        self._clock = clock
        self.failures: Final = LogFailures(state, clock, owner)
        writes = WriteTracker(state, self.failures)
        self.flusher: Final = LogFlusher(state, clock, self.failures)
        self.appender: Final = LogAppender(state, clock, self.flusher, writes.on_written, self.failures.watch)
        lookup = SegmentLookup(state, self.failures, owner.notice)
        reader = LogReader(state, lookup)
        self.timestamps: Final = TimestampLookup(state, clock, lookup)
        self.aborted: Final = AbortedTransactionLookup(state, lookup)
        self.truncation: Final = LogTruncation(state, clock, owner, self.failures, writes, lookup, self.flusher)
        self.retention: Final = LogRetention(
            state,
            clock,
            owner,
            self.failures,
            self.flusher,
            self.timestamps,
            self.truncation.truncate_fully_and_start_at,
        )
        self.replacement: Final = SegmentReplacement(state, clock, owner, self.failures)
        self.closer: Final = LogCloser(state, self.failures, writes, self.flusher)
        # What every request calls stands here itself: one look-up less.
        self.append_as_leader = self.appender.append_as_leader
        self.append_as_follower = self.appender.append_as_follower
        self.read = reader.read
        self.read_bytes = reader.read_bytes
        self.bytes_between = reader.bytes_between
        self.wait_until_written = writes.wait_until_written

    # What needs a clock or two of the parts.

    def configure(self, config: LogConfig) -> None:
        """Applies a changed configuration from the next append on."""
        self.state.config = config
        self.appender.configure()

    async def wait_until_open(self) -> None:
        """Waits until the files of a new log exist. Raises OSError."""
        opening = self.state.active_segment.opening
        if opening is not None:
            await opening

    def has_late_transaction(self, max_timeout_ms: int) -> bool:
        """See `LogState.has_late_transaction`."""
        return self.state.has_late_transaction(max_timeout_ms, self._clock.now_ms())

    def begin_verification(self, producer_id: int, producer_epoch: int, sequence: int) -> Verification | None:
        """See `ProducerStates.begin_verification`."""
        return self.state.producers.begin_verification(producer_id, producer_epoch, sequence, self._clock.now_ms())

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
