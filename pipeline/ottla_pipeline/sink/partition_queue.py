"""The batches of one partition on their way to its leader: sequences, what may be sent, what an answer means. Pure.

Batches keep the order of their sequences, which the broker checks (KIP-98). Several may be in flight. When one of them
fails, those behind it fail too, with OUT_OF_ORDER_SEQUENCE_NUMBER: nothing more is sent until all have their answer,
and then all that failed are sent again from the first one on. A batch that arrived, and whose answer was lost, is not
written twice: the broker knows the last five.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.batch import MAX_SEQUENCE, NO_SEQUENCE
from ottla_pipeline.sink.plain_batch import PlainBatch


class BatchOutcome(Enum):
    """What the answer to a batch means."""

    WRITTEN = "written"
    RETRY = "retry"
    RETRY_ELSEWHERE = "retry after new metadata"
    SPLIT = "split"
    FENCED = "fenced"
    REFUSED = "refused"


_ELSEWHERE = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    )
)


def outcome_of(error: ErrorCode, records: int, follows_failed: bool) -> BatchOutcome:
    """The outcome of a batch of so many records. Source: Sender.completeBatch and TransactionManager of Apache Kafka.

    Args:
        error: of the partition, in the answer.
        records: of the batch.
        follows_failed: whether a batch before it has no good answer: then a gap in the sequences is expected.
    """
    if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return BatchOutcome.WRITTEN
    if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and follows_failed:
        return BatchOutcome.RETRY
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE) and records > 1:
        return BatchOutcome.SPLIT
    if error in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED):
        return BatchOutcome.FENCED
    if error in _ELSEWHERE:
        return BatchOutcome.RETRY_ELSEWHERE
    return BatchOutcome.RETRY if error.retriable else BatchOutcome.REFUSED


class QueuedBatch:
    """A batch with its sequence. `header` is made when it is sent; `order` sorts the batches of a queue."""

    __slots__ = ("batch", "header", "order", "queued_at", "sequence")

    def __init__(self, batch: PlainBatch, order: tuple[int, ...], sequence: int, queued_at: float) -> None:
        self.batch = batch
        self.order = order
        self.sequence = sequence
        self.queued_at = queued_at
        self.header: bytes | None = None


def _order(entry: QueuedBatch) -> tuple[int, ...]:
    return entry.order


class PartitionQueue:
    """The queue of one partition. Times are seconds of a monotonic clock."""

    def __init__(self, has_sequences: bool) -> None:
        self._has_sequences = has_sequences
        self._next_sequence = 0
        self._added = 0
        self._waiting: deque[QueuedBatch] = deque()
        self._in_flight: list[QueuedBatch] = []
        self._failed: list[QueuedBatch] = []
        self._attempts = 0
        self.retry_at = 0.0

    @property
    def is_empty(self) -> bool:
        return not (self._waiting or self._in_flight or self._failed)

    @property
    def oldest(self) -> QueuedBatch | None:
        """The batch with the lowest sequence that is not known to be written."""
        found = [*self._failed, *self._in_flight, *((self._waiting[0],) if self._waiting else ())]
        return min(found, key=_order, default=None)

    def add(self, batch: PlainBatch, now: float) -> None:
        """Appends a batch, which gets the next sequence."""
        sequence = self._next_sequence if self._has_sequences else NO_SEQUENCE
        self._next_sequence = (self._next_sequence + batch.records) & MAX_SEQUENCE
        self._added += 1
        self._waiting.append(QueuedBatch(batch, (self._added,), sequence, now))

    def ready(self, now: float) -> QueuedBatch | None:
        """The batch that may be sent now."""
        if self._failed or now < self.retry_at or not self._waiting:
            return None
        return self._waiting[0]

    def sent(self) -> QueuedBatch:
        """Takes the batch that `ready` gave: it is in flight."""
        entry = self._waiting.popleft()
        self._in_flight.append(entry)
        return entry

    def follows_failed(self, entry: QueuedBatch) -> bool:
        """Whether a batch before it has failed or has no answer yet."""
        return bool(self._failed) or self._in_flight[0] is not entry

    def written(self, entry: QueuedBatch) -> None:
        """The batch is in the log."""
        self._in_flight.remove(entry)
        self._attempts = 0
        self._resume()

    def failed(self, entry: QueuedBatch, now: float, backoff_s: float, backoff_max_s: float) -> None:
        """The batch is to be sent again, after a pause that doubles from attempt to attempt."""
        self._in_flight.remove(entry)
        if not self._failed:
            self.retry_at = now + min(backoff_s * 2 ** min(self._attempts, 16), backoff_max_s)
            self._attempts += 1
        self._failed.append(entry)
        self._resume()

    def split(self, entry: QueuedBatch, parts: list[PlainBatch]) -> None:
        """The batch was too large: its parts take its place and its sequences."""
        self._in_flight.remove(entry)
        sequence = entry.sequence
        for number, part in enumerate(parts):
            self._failed.append(QueuedBatch(part, (*entry.order, number), sequence, entry.queued_at))
            if self._has_sequences:
                sequence = (sequence + part.records) & MAX_SEQUENCE
        self._resume()

    def _resume(self) -> None:
        """When nothing is in flight any more, what failed goes before what waits, in the order of sending."""
        if self._failed and not self._in_flight:
            self._waiting.extendleft(sorted(self._failed, key=_order, reverse=True))
            self._failed = []
