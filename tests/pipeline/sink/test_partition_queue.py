"""The order of a partition's batches, whatever fails of those in flight."""

from __future__ import annotations

import pytest

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.compression import Codec

pytest.importorskip("pyarrow")

from ottla_pipeline.sink.partition_queue import BatchOutcome, PartitionQueue, QueuedBatch, outcome_of
from ottla_pipeline.sink.plain_batch import PlainBatch


def batch(records: int) -> PlainBatch:
    return PlainBatch(b"", Codec.NONE, records, 0, 0)


def queue(*records: int, has_sequences: bool = True) -> PartitionQueue:
    made = PartitionQueue(has_sequences=has_sequences)
    for count in records:
        made.add(batch(count), 0.0)
    return made


def sent(from_queue: PartitionQueue, now: float = 0.0) -> list[QueuedBatch]:
    found = []
    while from_queue.ready(now) is not None:
        found.append(from_queue.sent())
    return found


def test_each_batch_begins_where_the_one_before_ended() -> None:
    assert [entry.sequence for entry in sent(queue(10, 5, 1))] == [0, 10, 15]
    assert [entry.sequence for entry in sent(queue(10, 5, has_sequences=False))] == [-1, -1]


def test_nothing_is_sent_behind_a_failed_batch_until_all_have_their_answer() -> None:
    found = queue(1, 1, 1)
    first, second, third = sent(found)
    found.add(batch(1), 0.0)
    found.failed(second, 10.0, 0.1, 1.0)
    assert found.ready(99.0) is None and found.follows_failed(third)
    found.failed(third, 10.0, 0.1, 1.0)
    assert found.ready(99.0) is None
    found.written(first)
    assert found.ready(10.05) is None
    assert [entry.sequence for entry in sent(found, 10.1)] == [1, 2, 3]


def test_what_failed_is_sent_again_in_its_order_with_its_sequences() -> None:
    found = queue(4, 4)
    first, second = sent(found)
    found.failed(second, 0.0, 0.1, 1.0)
    found.split(first, [batch(2), batch(2)])
    assert [(entry.sequence, entry.batch.records) for entry in sent(found, 99.0)] == [(0, 2), (2, 2), (4, 4)]


def test_pauses_grow_up_to_their_limit_and_begin_again_after_success() -> None:
    found = queue(1)
    pauses = []
    for _ in range(6):
        (entry,) = sent(found, 99.0)
        found.failed(entry, 0.0, 0.1, 1.0)
        pauses.append(round(found.retry_at, 1))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    (entry,) = sent(found, 99.0)
    found.written(entry)
    assert found.is_empty


@pytest.mark.parametrize(
    ("error", "records", "follows_failed", "outcome"),
    [
        (ErrorCode.NONE, 5, False, BatchOutcome.WRITTEN),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, 5, False, BatchOutcome.WRITTEN),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 5, True, BatchOutcome.RETRY),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 5, False, BatchOutcome.REFUSED),
        (ErrorCode.MESSAGE_TOO_LARGE, 5, False, BatchOutcome.SPLIT),
        (ErrorCode.MESSAGE_TOO_LARGE, 1, False, BatchOutcome.REFUSED),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 5, False, BatchOutcome.RETRY_ELSEWHERE),
        (ErrorCode.KAFKA_STORAGE_ERROR, 5, False, BatchOutcome.RETRY_ELSEWHERE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, 5, False, BatchOutcome.RETRY),
        (ErrorCode.REQUEST_TIMED_OUT, 5, False, BatchOutcome.RETRY),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 5, False, BatchOutcome.FENCED),
        (ErrorCode.INVALID_TIMESTAMP, 5, False, BatchOutcome.REFUSED),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 5, False, BatchOutcome.REFUSED),
    ],
)
def test_each_error_has_one_outcome(
    error: ErrorCode, records: int, follows_failed: bool, outcome: BatchOutcome
) -> None:
    assert outcome_of(error, records, follows_failed) is outcome
