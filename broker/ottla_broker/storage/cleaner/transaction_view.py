"""Follows the transactions of a log while compaction reads it in order (KIP-98). Pure.

Records of an aborted transaction are dropped whatever their keys. A marker is kept as long as any batch of its
transaction is: without it, a consumer would take a committed transaction for an open one, or records of an aborted one
for committed. After that it gets a delete horizon (KIP-534) and is deleted like a tombstone.

| batch                     | its transaction        | `marker` or `data` returns: it can be dropped               |
|---------------------------|------------------------|-------------------------------------------------------------|
| data                      | aborted                | True                                                        |
| data                      | committed, or none     | False                                                       |
| marker, commit or abort   | no batch of it is left | True                                                        |
| marker, commit            | a batch is left        | False                                                       |
| marker, abort             | a batch is left        | False, and the transaction stays in the transaction index   |

Source: CleanedTransactionMetadata of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla_broker.records.batch import BatchHeader
from ottla_broker.records.control_records import ControlType, EndTransactionMarker
from ottla_broker.storage.files.transaction_index import AbortedTransaction


class TransactionView:
    """The transactions of one log; `data` and `marker` take every batch in the order of the log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._aborting: dict[int, AbortedTransaction] = {}
        self._aborting_with_data: dict[int, None] = {}
        self._committing: dict[int, None] = {}
        self._kept: list[AbortedTransaction] = []

    def _begin(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            one = self._coming.pop()
            self._aborting.setdefault(one.producer_id, one)

    def data(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._begin(header.last_offset)
        producer = header.producer_id
        if producer in self._aborting:
            self._aborting_with_data[producer] = None
            return True
        self._committing[producer] = None
        return False

    def marker(self, header: BatchHeader, marker: EndTransactionMarker | None) -> bool:
        """Whether no batch of a control batch's transaction is left. `marker` is None for a batch without records."""
        self._begin(header.last_offset)
        producer = header.producer_id
        if marker is None:
            return not header.record_count  # another type of control record is kept
        if marker.type is ControlType.ABORT:
            aborted = self._aborting.pop(producer, None)
            if aborted is not None and producer in self._aborting_with_data:
                del self._aborting_with_data[producer]
                self._kept.append(aborted)
                return False
            return True
        has_data = producer in self._committing
        self._committing.pop(producer, None)
        return not has_data

    def take_kept(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers were kept since the last call, for the transaction index."""
        kept, self._kept = self._kept, []
        return kept
