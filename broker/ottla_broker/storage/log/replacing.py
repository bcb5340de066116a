"""How cleaned segments take the place of those they were made from (wire-protocol 5.26).

The order of file calls, each state of which the next start understands (`swaps.py`):

| on the disk                                          | after a crash here                                      |
|------------------------------------------------------|---------------------------------------------------------|
| `B.log.cleaned` and its indexes, all synced          | they are deleted, nothing has happened                  |
| indexes renamed to `.swap`, then `B.log` too; synced | the cleaned segment counts by now: the swap is finished |
| old files renamed to `.deleted`; synced              | the same; `.deleted` files are deleted                  |
| `.swap` renamed away, indexes first; synced          | done                                                    |

Lack of room for another name leaves the log as it was in the second row, and as it is to be from the third one on: an
old file that cannot be renamed is deleted then, which takes longer and needs none.

The `.deleted` files are unlinked at once, by the job and away from the lane: a reader that is in the middle of one
keeps its open file, and no more than one additional segment takes up space.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

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
from ottla_broker.storage.log.maintenance import LogMaintenance
from ottla_broker.storage.shortages import outlast

_INDEXES_THEN_LOG = (TXN_INDEX, TIME_INDEX, INDEX, LOG)
_OLD = (TXN_INDEX, LOG, INDEX, TIME_INDEX)
"""The transaction index before the log: once the old log is gone, what stands there counts as the new one's. The others
after it: they can be built anew, a log that is still there must have them."""


class LogReplacement(LogMaintenance):
    """The part of a log that compaction asks for."""

    __slots__ = ()

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
        """Puts the cleaned segment that stands as `.cleaned` under the first source's name in the place of `sources`,
        neighbours below the recovery point. Readers wait for a few renames, and no longer.

        `truncations`: the log's count when the cleaning began. Gives the files to unlink; None, and the log is as it
        was, when it has changed since (truncated, retention took a source, not compacted any more, failed) or the
        directory has no room for its checkpoint or another name. KAFKA_STORAGE_ERROR.
        """
        segment = Segment(
            self.disk,
            self.directory,
            sources[0].base_offset,
            size,
            sources[-1].next_offset,
            min(source.created_ms for source in sources),
        )
        segment.max_timestamp, segment.max_timestamp_offset = max_timestamp, max_timestamp_offset
        if has_transaction_index:
            segment.transactions = TransactionIndex(self.disk, self.directory, segment.base_offset, is_new=False)
        return self._spawn(
            self._replace_segments(list(sources), truncations, segment, has_transaction_index), "replace segments of"
        )

    async def _replace_segments(
        self, sources: list[Segment], truncations: int, segment: Segment, has_transaction_index: bool
    ) -> list[str] | None:
        async with self._lock:
            if not self._stand_together(sources, truncations):
                return None
            # The checkpoint first. A later recovery that began below would meet gaps, which it takes for holes if the
            # topic is not compacted any more by then.
            if not await self._owner.checkpoint_recovery_points(self.disk):
                return None
            written = [suffix for suffix in _INDEXES_THEN_LOG if has_transaction_index or suffix != TXN_INDEX]
            if not await self._make_it_count(segment, written):
                return None
            async with segment.lock:  # whoever comes to read it waits for its name
                async with AsyncExitStack() as opening:
                    for source in sources:
                        await opening.enter_async_context(source.lock)  # whoever is opening it finishes first
                    # In one turn: who found one gone that stands among the segments would take it for a failed disk.
                    for source in sources:
                        source.is_gone = True
                    first = self.segments.index(sources[0])
                    self.segments = [*self.segments[:first], segment, *self.segments[first + len(sources) :]]
                    self.replacements += 1
                try:
                    unlinked = await self._move_away(sources)
                    for suffix in written:
                        renamed = partial(self.disk.rename, segment.name(suffix) + SWAP, segment.name(suffix))
                        await outlast(self.clock, renamed)
                    await outlast(self.clock, partial(self.disk.fsync_directory, self.directory))
                except OSError as error:
                    if not is_sound(error):
                        raise
                    # There is no way back: the return of the directory will finish it.
                    raise OSError(
                        errno.EIO, f"half of a cleaned segment is in place: {error}", segment.name(LOG)
                    ) from None
            for source in sources:
                await source.close()
            return unlinked

    async def _make_it_count(self, segment: Segment, suffixes: list[str]) -> bool:
        """From here on a start finishes the replacement. False when there is no room for the names: nothing has
        happened."""
        try:
            for suffix in suffixes:
                await self.disk.rename(segment.name(suffix) + CLEANED, segment.name(suffix) + SWAP)
            await self.disk.fsync_directory(self.directory)
        except OSError as error:
            if not is_sound(error):
                raise
            for suffix in reversed(suffixes):  # the log first, which is what counts
                await self.disk.delete(segment.name(suffix) + SWAP)
            await self.disk.fsync_directory(self.directory)
            self._owner.directory_full(self.disk, error)
            return False
        return True

    def _stand_together(self, sources: list[Segment], truncations: int) -> bool:
        if not self.config.is_compacted:
            return False
        if self.is_failed or self.successor is not None or self._is_truncating or self.truncation_count != truncations:
            return False
        if sources[0] not in self.segments or sources[-1].next_offset > self.recovery_point:
            return False
        first = self.segments.index(sources[0])
        present = self.segments[first : first + len(sources)]
        return present == sources and self._active not in sources

    async def _move_away(self, sources: list[Segment]) -> list[str]:
        """Renames the files of the sources; gives the new names."""
        present = [name for name, _, _ in await outlast(self.clock, partial(self.disk.list, self.directory))]
        moved: list[str] = []
        for number, source in enumerate(sources):
            for suffix in _OLD if not number else (*_OLD, SNAPSHOT):
                name = offset_name(source.base_offset, suffix)
                if name in present:
                    path = f"{self.directory}/{name}"
                    try:
                        await outlast(self.clock, partial(self.disk.rename, path, path + DELETED))
                        moved.append(path + DELETED)
                    except OSError as error:
                        if not is_sound(error):
                            raise
                        await self.disk.delete(path)
        await outlast(self.clock, partial(self.disk.fsync_directory, self.directory))
        return moved
