"""The state of one log and the three positions: assigned, written, flushed.

`Log` (log.py) is put together from this, `reading.py` and `maintenance.py`; each holds one concern. Everything runs on
the broker's loop. A log never touches a file but through its Disk.

    log_start_offset ≤ recovery_point ≤ log_end_offset (written) ≤ assigned_offset

Appends move `assigned` at once; the completions of their writes, in order, move `log_end_offset`, which is what
followers, the high watermark and acknowledgements see. A failed write is final: nothing of the directory is written
any more, and every log in it is failed. A write that finds no room is not: what was assigned from there on is taken
back (`maintenance.py`), and the log refuses appends while its directory is full.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk
from ottla_broker.ports.os_errors import is_shortage, is_sound
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoints import encode_epochs
from ottla_broker.storage.files.names import LEADER_EPOCHS
from ottla_broker.storage.files.segment import Segment, retrieve
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.leader_epochs import LeaderEpochs
from ottla_broker.storage.log.producers import ProducerStates

_T = TypeVar("_T")


class LogOwner(Protocol):
    """What a log asks of the log manager."""

    def directory_failed(self, disk: Disk, error: OSError) -> None:
        """A call on the directory failed: it is offline from now on. Marks all its logs failed."""
        ...

    def directory_full(self, disk: Disk, error: OSError) -> None:
        """A call on the directory found no room: it is full from now on. Marks all its logs full. After a shortage of
        descriptors or memory (`ports.os_errors`) nothing but a notice follows."""
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
        """Writes how far the directory's logs have been compacted. Raises OSError."""
        ...

    def notice(self, message: str) -> None:
        """A line for the broker's log: something was repaired, or a person should know."""
        ...


class LogState:
    """See the module. `segments` are sorted and never empty; the last one is active (started or resumed)."""

    __slots__ = (
        "_active",
        "_assigned",
        "_flush_requested",
        "_is_directory_unsynced",
        "_is_held_back",
        "_is_truncating",
        "_lock",
        "_owner",
        "_pending",
        "_rolling",
        "_takes_as_is",
        "_taking_back",
        "_written_position",
        "_written_segment",
        "clean_offset",
        "clock",
        "config",
        "directory",
        "disk",
        "epochs",
        "flushed_offset",
        "future",
        "has_aborted_transactions",
        "high_watermark",
        "is_failed",
        "is_full",
        "is_torn",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "on_append",
        "on_failure",
        "producers",
        "recovery_point",
        "replacements",
        "segments",
        "successor",
        "topic_id",
        "topic_partition",
        "truncation_count",
    )

    future: LogState | None
    """The copy of this log that is being made in another log directory (moves.py); it follows what is cut off here."""
    successor: LogState | None
    """The copy that has taken this log's place: it takes no append any more, and goes with its last readers."""

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
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory = directory
        self.disk = disk
        self.clock = clock
        self.config = config
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point
        """Everything below is durable, the indexes and epochs of it too: a recovery scan starts here."""
        self.flushed_offset = recovery_point
        """Everything below is durable in its log file."""
        self.clean_offset = 0
        """Compaction has looked at everything below; for cleaner-offset-checkpoint."""
        self.replacements = 0
        """How often segments have given way to cleaned ones."""
        self.is_failed = False
        self.is_full = False
        """Its directory is full, or a write met a shortage: nothing is appended, everything else goes on."""
        self.is_torn = False
        """Something that was assigned found no room and is to be taken back."""
        self.on_append: Callable[[], None] | None = None
        self.on_failure: Callable[[], None] | None = None
        self.future = self.successor = None
        self.truncation_count = 0
        """Goes up when a truncation begins: bytes that were read before are not to be used after."""
        self.last_flush_ms = clock.now_ms()
        self.has_aborted_transactions = any(segment.transactions is not None for segment in segments)
        """Whether any segment may have a transaction index; False for almost every log."""
        self._owner = owner
        self._active = segments[-1]
        self._assigned = self._active.next_offset
        self.log_end_offset = self._assigned
        self.high_watermark = min(max(high_watermark, log_start_offset), self.log_end_offset)
        self._written_segment = self._active
        self._written_position = self._active.size
        self._flush_requested = self._assigned
        self._pending: deque[tuple[asyncio.Future[Any], Segment, int, int, int | None]] = deque()
        self._is_truncating = False
        self._is_directory_unsynced = False
        self._rolling: asyncio.Task[None] | None = None
        """What the last roll has left to do; the ones before it are waited for by it."""
        self._taking_back: asyncio.Task[None] | None = None
        self._is_held_back = False
        self._takes_as_is = False
        """Nothing but its header is looked at of a batch of format 2; see `Log.hold_back` and `Log.configure`."""
        self._lock = asyncio.Lock()

    @property
    def assigned_offset(self) -> int:
        """The offset that the next record gets."""
        return self._assigned

    @property
    def is_truncating(self) -> bool:
        return self._is_truncating

    @property
    def is_held_back(self) -> bool:
        """Batches that came before are still being prepared (`Log.hold_back`)."""
        return self._is_held_back

    @property
    def lock(self) -> asyncio.Lock:
        """Held by whatever changes more than the end of the log: one at a time."""
        return self._lock

    @property
    def local_low_watermark(self) -> int:
        """The lowest offset that any copy of this replica still holds: the log start offset here, and that of the
        copy which is being made in another directory (KIP-107 counts both)."""
        future = self.future
        return self.log_start_offset if future is None else min(self.log_start_offset, future.log_start_offset)

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    def segment_of(self, offset: int) -> Segment:
        """The segment that holds `offset`, the first one for offsets below all."""
        segments = self.segments
        if offset >= segments[-1].base_offset:
            return segments[-1]
        return segments[max(bisect_right(segments, offset, key=_base_offset) - 1, 0)]

    # -- written ------------------------------------------------------------------------------------------------

    def _track(self, write: asyncio.Future[Any], synced_from: int | None) -> None:
        """The active segment has been assigned a run of batches whose write is `write`.

        When it makes them durable, so it does with everything from `synced_from` on.
        """
        segment = self._active
        self._pending.append((write, segment, segment.size, segment.next_offset, synced_from))
        if synced_from is not None:
            write.add_done_callback(self._on_written)

    def _on_written(self, write: asyncio.Future[Any]) -> None:
        # The first callback of a drained batch takes all of its completions, so `on_append` is called once for them.
        pending = self._pending
        if self.is_failed or self.is_torn:
            retrieve(write)  # the failure has been told, by the write before it
            return
        if not pending or not pending[0][0].done():
            return
        while pending and pending[0][0].done():
            write, segment, position, offset, synced_from = pending.popleft()
            if write.cancelled():
                # The disk was closed under the log: the broker has halted.
                self.is_failed = True
                return
            error = write.exception()
            if error is not None:
                self._fail(error if isinstance(error, OSError) else OSError(str(error)))
                return
            self.log_end_offset = offset
            self._written_segment = segment
            self._written_position = position
            if synced_from is not None and synced_from <= self.flushed_offset < offset:
                self.flushed_offset = offset
        if self.on_append is not None:
            self.on_append()

    async def _settle(self) -> None:
        """Waits until everything assigned is written."""
        while self._pending and not self.is_failed:
            await asyncio.wait([self._pending[-1][0]])
            await asyncio.sleep(0)
        self._check_online()

    # -- failure ------------------------------------------------------------------------------------------------

    def storage_error(self) -> KafkaError:
        if self.successor is not None:
            # Not KAFKA_STORAGE_ERROR: no disk has failed, and whoever asks again finds the replica where it is now.
            return KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.topic_partition} has moved from {self.disk.path} to {self.successor.disk.path}",
            )
        state = (
            "offline" if self.is_failed or not self.is_full else "full, or the broker is short of descriptors or memory"
        )
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory {self.disk.path} of {self.topic_partition} is {state}"
        )

    async def opened(self) -> None:
        """Waits for the files of a new log; one that could not be opened counts for nothing. Raises OSError."""
        opening = self._active.opening
        if opening is not None:
            await opening

    def give_way_to(self, successor: LogState) -> None:
        """Another copy of the replica has taken this one's place: it takes no append any more, and tells nobody of
        what happens to it. What still reads it goes on until it is abandoned."""
        self.future = None
        self.successor = successor
        self.on_append = self.on_failure = None
        self._is_truncating = True

    def _check_online(self) -> None:
        if self.is_failed:
            raise self.storage_error()

    def _fail(self, error: OSError) -> None:
        """The directory has failed; the owner gives up each of its logs, this one included."""
        if is_sound(error):
            self._found_no_room(error)
            return
        self._owner.directory_failed(self.disk, error)
        if self.give_up():
            self.tell_failure()

    def give_up(self) -> bool:
        """Its directory is offline: what was assigned is not written, and nothing is read. False when that was so."""
        if self.is_failed:
            return False
        self.is_failed = True
        self._pending.clear()
        return True

    def tell_failure(self) -> None:
        """To whoever waits for something of this log. Their answers may have other requests follow at once."""
        if self.on_failure is not None:
            self.on_failure()

    def _found_no_room(self, error: OSError) -> None:
        """What waits to be written will not be: its producers are told, and it is taken back."""
        self._pending.clear()
        self.is_torn = True
        self._owner.directory_full(self.disk, error)
        self.fill_up()
        self.tell_failure()

    def fill_up(self) -> None:
        """The directory is full: appends are refused until `make_room`."""
        self.is_full = True

    def _watch(self, future: asyncio.Future[Any]) -> None:
        """A call nobody waits for: its failure still fails the directory."""
        future.add_done_callback(self._on_unattended)

    def _on_unattended(self, future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            error = future.exception()
            if isinstance(error, OSError) and not self.is_failed:
                if is_sound(error) and self._assigned == self.log_end_offset:
                    self._owner.directory_full(self.disk, error)  # a small file beside the log; nothing to take back
                else:
                    self._fail(error)

    async def _guarded(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Runs work on files; an OSError fails the directory and becomes KAFKA_STORAGE_ERROR."""
        try:
            return await work
        except OSError as error:
            if is_sound(error):
                self._owner.directory_full(self.disk, error)
            elif not self.is_failed:
                self._fail(error)
            if is_shortage(error) and self.successor is None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {error}") from error
            raise self.storage_error() from error

    def _spawn(self, work: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
        task: asyncio.Task[_T] = self.clock.spawn(self._guarded(work), name=f"{name} {self.topic_partition}")
        # Cancelled before its first step, the task never comes to await the work, which would be warned of.
        task.add_done_callback(lambda _: work.close())
        return task

    async def _write_epochs(self) -> None:
        """Writes the epochs when the file lacks something."""
        if self.epochs.is_dirty:
            self.epochs.is_dirty = False
            try:
                await self.disk.write_file(f"{self.directory}/{LEADER_EPOCHS}", encode_epochs(self.epochs.entries))
            except OSError:
                self.epochs.is_dirty = True
                raise


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
