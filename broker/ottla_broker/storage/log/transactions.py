"""What a log tells of its transactions: the last stable offset, and who was aborted in a range of offsets.

A read_committed consumer reads up to the last stable offset: the high watermark, or where the oldest transaction began
that is not settled. With the records it gets the aborted transactions that reach into them, from the transaction
indexes of the segments from its offset on (wire-protocol 5.4). Logs without transactions pay one comparison.

Not here: which transactions are open (`open_transactions.py`, kept by `producers.py`), the index
(`transaction_index.py`).
"""

from __future__ import annotations

import asyncio

from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.files.transaction_index import AbortedTransaction, overlapping
from ottla_broker.storage.log.reading import LogRead, LogReads
from ottla_broker.storage.log.state import LogState

_LATE_BUFFER_MS = 5 * 60 * 1000


class LogTransactions(LogReads, LogState):
    """The transactional part of a log's reading half."""

    __slots__ = ()

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction begins that is ongoing, or whose marker the high watermark has not passed; not
        below the log start offset. None without one. Nothing from it on may be compacted."""
        transactions = self.producers.transactions
        if transactions.is_empty:
            return None
        offset = transactions.first_unstable_offset(self.high_watermark)
        return None if offset is None else max(offset, self.log_start_offset)

    @property
    def last_stable_offset(self) -> int:
        """Records below it are decided: the end of what read_committed consumers see."""
        high_watermark = self.high_watermark
        if self.producers.transactions.is_empty:
            return high_watermark
        unstable = self.first_unstable_offset
        return high_watermark if unstable is None or unstable > high_watermark else unstable

    def has_late_transaction(self, max_timeout_ms: int) -> bool:
        """Whether the oldest open transaction has had no record for longer than transaction.max.timeout.ms, and five
        minutes for its coordinator to end it: nobody will (KIP-664)."""
        last_timestamp = self.producers.oldest_transaction_timestamp
        return 0 < last_timestamp < self.clock.now_ms() - max_timeout_ms - _LATE_BUFFER_MS

    def _settle_transactions(self, aborted: AbortedTransaction | None) -> None:
        """A marker is being appended to the active segment; `aborted` is the transaction that it aborts, if any."""
        self.producers.transactions.forget_replicated(self.high_watermark)
        if aborted is not None:
            self.has_aborted_transactions = True
            self._active.add_aborted(aborted)

    def aborted_in(
        self, read: LogRead, offset: int, upper: int
    ) -> list[AbortedTransaction] | asyncio.Future[list[AbortedTransaction]]:
        """The aborted transactions that reach into a read of `offset` that was bounded by `upper`; as
        `aborted_transactions`."""
        if not self.has_aborted_transactions:
            return []
        segment = self.segment_of(read.base_offset)
        if segment.base_offset == read.base_offset:
            upper = min(upper, segment.offset_bound(read.end_position))
        return self.aborted_transactions(offset, upper)

    def aborted_transactions(
        self, lower: int, upper: int
    ) -> list[AbortedTransaction] | asyncio.Future[list[AbortedTransaction]]:
        """The aborted transactions with records in lower..upper (exclusive), in the order of their markers, which may
        be beyond. At once when the indexes are in memory.

        The future raises KafkaError: KAFKA_STORAGE_ERROR, or what a read of a segment raises that went meanwhile.
        """
        if not self.has_aborted_transactions:
            return []
        if lower < self.segments[0].base_offset:
            return self._spawn_read(lambda: self._aborted_slowly(lower, upper))
        found: list[AbortedTransaction] = []
        for segment in self._segments_from(lower):
            index = segment.transactions
            if index is None:
                continue
            if index.data is None:
                return self._spawn_read(lambda: self._aborted_slowly(lower, upper))
            entries, is_complete = overlapping(index.data, lower, upper)
            found += entries
            if is_complete:
                break
        return found

    async def _aborted_slowly(self, lower: int, upper: int) -> list[AbortedTransaction]:
        if lower < self.segments[0].base_offset:
            # Who was aborted there is not known any more, and whoever asks may hold records of it all the same.
            raise self._deleted()
        found: list[AbortedTransaction] = []
        for segment in self._segments_from(lower):
            index = segment.transactions
            if index is None:
                continue
            while (data := index.data) is None:
                self._check_online()
                if segment.is_gone:
                    raise self._gone(segment)
                await index.load()
            entries, is_complete = overlapping(data, lower, upper)
            found += entries
            if is_complete:
                break
        return found

    def _segments_from(self, offset: int) -> list[Segment]:
        first = self.segment_of(offset).base_offset
        return [segment for segment in self.segments if segment.base_offset >= first]


__all__ = ["LogTransactions"]
