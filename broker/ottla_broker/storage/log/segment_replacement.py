"""Replaces segments of a log with a cleaned segment that compaction has written.

The next start understands every state of the files in between (`files/swaps.py`):

| on the disk                                          | after a crash here                                      |
|------------------------------------------------------|---------------------------------------------------------|
| `B.log.cleaned` and its indexes, all synced          | they are deleted, the log is unchanged                  |
| indexes renamed to `.swap`, then `B.log` too; synced | the cleaned segment counts: the swap is finished        |
| old files renamed to `.deleted`; synced              | the same; `.deleted` files are deleted                  |
| `.swap` renamed away, indexes first; synced          | done                                                    |

Without room for another name in the second row the log stays as it was. From the third row on there is no way back: an
old file that cannot be renamed is deleted, which takes longer and needs no room.

The compaction job unlinks the `.deleted` files at once, outside the disk's thread: a reader in the middle of one keeps
its open file, and no more than one additional segment takes up space.

Source: LogCleaner.cleanSegments and UnifiedLog.replaceSegments of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.os_errors import is_sound
from ottla_broker.storage.files.names import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    offset_name,
)
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.files.transaction_index import TransactionIndex
from ottla_broker.storage.log.failures import LogFailures
from ottla_broker.storage.log.state import LogOwner, LogState
from ottla_broker.storage.shortages import retry_on_shortage

_INDEXES_THEN_LOG = (TXN_INDEX, TIME_INDEX, INDEX, LOG)
_OLD = (TXN_INDEX, LOG, INDEX, TIME_INDEX)
"""The transaction index before the log: once the old log is gone, a transaction index counts as the new one's. The
other indexes after it: they can be rebuilt, but a log that is still there must have them."""


class SegmentReplacement:
    """Replaces segments of one log."""

    __slots__ = ("_clock", "_failures", "_owner", "_state")

    def __init__(self, state: LogState, clock: Clock, owner: LogOwner, failures: LogFailures) -> None:
        self._state = state
        self._clock = clock
        self._owner = owner
        self._failures = failures

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
        """Replaces `sources` with the cleaned segment in the `.cleaned` files. Readers wait for a few renames.

        Args:
            sources: neighbours below the recovery point; the `.cleaned` files have the first one's base offset.
            truncations: the log's truncation count when the compaction began.
            size: of the cleaned segment, in bytes.
            max_timestamp: in ms.
            max_timestamp_offset: the offset that the time index has for it.
            has_transaction_index: whether the cleaned segment has one.

        Returns the files to unlink. None, and the log is unchanged, when it has changed since (truncated, retention
        deleted a source, not compacted any more, failed) or the directory has no room for a checkpoint or a name.

        Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        state = self._state
        segment = Segment(
            state.disk,
            state.directory,
            sources[0].base_offset,
            size,
            sources[-1].next_offset,
            min(source.created_ms for source in sources),
        )
        segment.max_timestamp, segment.max_timestamp_offset = max_timestamp, max_timestamp_offset
        if has_transaction_index:
            segment.transactions = TransactionIndex(state.disk, state.directory, segment.base_offset, is_new=False)
        return self._failures.spawn(
            self._replace_segments(list(sources), truncations, segment, has_transaction_index), "replace segments of"
        )

    async def _replace_segments(
        self, sources: list[Segment], truncations: int, segment: Segment, has_transaction_index: bool
    ) -> list[str] | None:
        state = self._state
        async with state.lock:
            if not self._are_current(sources, truncations):
                return None
            # The checkpoint first, so that recovery neither scans nor truncates a cleaned segment.
            if not await self._owner.checkpoint_recovery_points(state.disk):
                return None
            written = [suffix for suffix in _INDEXES_THEN_LOG if has_transaction_index or suffix != TXN_INDEX]
            if not await self._rename_to_swap(segment, written):
                return None
            async with segment.lock:  # reads of it wait until its files have their names
                async with AsyncExitStack() as opening:
                    for source in sources:
                        await opening.enter_async_context(source.lock)  # reads that are opening it finish first
                    # Without an await in between: a read that finds a listed segment gone reports a failed disk.
                    for source in sources:
                        source.is_gone = True
                    first = state.segments.index(sources[0])
                    state.segments = [*state.segments[:first], segment, *state.segments[first + len(sources) :]]
                    if state.written_segment in sources:
                        # Nothing behind them is written: a truncation to the end of the log cuts here.
                        state.written_segment, state.written_position = segment, segment.size
                    state.replacement_count += 1
                try:
                    unlinked = await self._rename_to_deleted(sources)
                    for suffix in written:
                        renamed = partial(state.disk.rename, segment.name(suffix) + SWAP, segment.name(suffix))
                        await retry_on_shortage(self._clock, renamed)
                    await retry_on_shortage(self._clock, partial(state.disk.fsync_directory, state.directory))
                except OSError as error:
                    if not is_sound(error):
                        raise
                    # There is no way back: recovery finishes it when the log directory is back online.
                    raise OSError(
                        errno.EIO, f"a cleaned segment is half in place: {error}", segment.name(LOG)
                    ) from None
            for source in sources:
                await source.close()
            return unlinked

    async def _rename_to_swap(self, segment: Segment, suffixes: list[str]) -> bool:
        """From here on a start finishes the replacement. False when there is no room for the names: the log is
        unchanged. Raises OSError."""
        disk, directory = self._state.disk, self._state.directory
        try:
            for suffix in suffixes:
                await disk.rename(segment.name(suffix) + CLEANED, segment.name(suffix) + SWAP)
            await disk.fsync_directory(directory)
        except OSError as error:
            if not is_sound(error):
                raise
            for suffix in reversed(suffixes):  # the log first: it decides whether the swap counts
                await disk.delete(segment.name(suffix) + SWAP)
            await disk.fsync_directory(directory)
            self._owner.directory_full(disk, error)
            return False
        return True

    def _are_current(self, sources: list[Segment], truncations: int) -> bool:
        """Whether `sources` are still neighbouring closed segments of a compacted log that may be replaced."""
        state = self._state
        if not state.config.is_compacted:
            return False
        if state.is_failed or state.successor is not None:
            return False
        if state.is_truncating or state.truncation_count != truncations:
            return False
        if sources[0] not in state.segments or sources[-1].next_offset > state.recovery_point:
            return False
        first = state.segments.index(sources[0])
        present = state.segments[first : first + len(sources)]
        return present == sources and state.active_segment not in sources

    async def _rename_to_deleted(self, sources: list[Segment]) -> list[str]:
        """Renames the files of the sources; returns the new names. Raises OSError."""
        disk, directory = self._state.disk, self._state.directory
        existing = [name for name, _, _ in await retry_on_shortage(self._clock, partial(disk.list, directory))]
        renamed: list[str] = []
        for number, source in enumerate(sources):
            for suffix in _OLD if not number else (*_OLD, SNAPSHOT):
                name = offset_name(source.base_offset, suffix)
                if name in existing:
                    path = f"{directory}/{name}"
                    try:
                        await retry_on_shortage(self._clock, partial(disk.rename, path, path + DELETED))
                        renamed.append(path + DELETED)
                    except OSError as error:
                        if not is_sound(error):
                            raise
                        await disk.delete(path)
        await retry_on_shortage(self._clock, partial(disk.fsync_directory, directory))
        return renamed
