"""The aborted transactions of a range of offsets, which read_committed fetches return with the records (KIP-98).

They come from the transaction indexes of the segments from the fetch offset on. A log without aborted transactions
pays one comparison.

Not here: which transactions are open (`open_transactions.py`), the index of one segment (`files/transaction_index.py`),
the last stable offset (`LogState.last_stable_offset`).
"""

from __future__ import annotations

import asyncio

from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.files.transaction_index import AbortedTransaction, overlapping
from ottla_broker.storage.log.reader import LogRead
from ottla_broker.storage.log.segment_lookup import SegmentLookup
from ottla_broker.storage.log.state import LogState


class AbortedTransactionLookup:
    """The aborted transactions of one log."""

    __slots__ = ("_lookup", "_state")

    def __init__(self, state: LogState, lookup: SegmentLookup) -> None:
        self._state = state
        self._lookup = lookup

    def aborted_in(
        self, read: LogRead, offset: int, upper: int
    ) -> list[AbortedTransaction] | asyncio.Future[list[AbortedTransaction]]:
        """`aborted_transactions` of a read that began at `offset` with the upper offset `upper`."""
        if not self._state.has_aborted_transactions:
            return []
        segment = self._state.segment_of(read.base_offset)
        if segment.base_offset == read.base_offset:
            upper = min(upper, segment.offset_bound(read.end_position))
        return self.aborted_transactions(offset, upper)

    def aborted_transactions(
        self, lower: int, upper: int
    ) -> list[AbortedTransaction] | asyncio.Future[list[AbortedTransaction]]:
        """The aborted transactions with records in `lower` to `upper` (exclusive), in the order of their markers, which
        may be above. At once when the indexes are in memory, else a future.

        The future raises KafkaError: KAFKA_STORAGE_ERROR, or why a segment is gone (`segment_lookup`).
        """
        if not self._state.has_aborted_transactions:
            return []
        if lower < self._state.segments[0].base_offset:
            return self._lookup.spawn(lambda: self._load(lower, upper))
        found: list[AbortedTransaction] = []
        for segment in self._segments_from(lower):
            index = segment.transactions
            if index is None:
                continue
            if index.data is None:
                return self._lookup.spawn(lambda: self._load(lower, upper))
            entries, is_complete = overlapping(index.data, lower, upper)
            found += entries
            if is_complete:
                break
        return found

    async def _load(self, lower: int, upper: int) -> list[AbortedTransaction]:
        """The answer after loading the indexes. Raises OSError."""
        if lower < self._state.segments[0].base_offset:
            # The indexes of deleted segments are gone, but the caller may still hold their records.
            raise self._lookup.deleted_error()
        found: list[AbortedTransaction] = []
        for segment in self._segments_from(lower):
            index = segment.transactions
            if index is None:
                continue
            while (data := index.data) is None:
                self._state.check_online()
                if segment.is_gone:
                    raise self._lookup.closed_error(segment)
                await index.load()
            entries, is_complete = overlapping(data, lower, upper)
            found += entries
            if is_complete:
                break
        return found

    def _segments_from(self, offset: int) -> list[Segment]:
        first = self._state.segment_of(offset).base_offset
        return [segment for segment in self._state.segments if segment.base_offset >= first]
