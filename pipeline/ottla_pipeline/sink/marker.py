"""The marker of a streaming query: which of its batches is committed, decided from a committed offset. Pure.

With each batch, one transaction commits the batch's number plus one as an offset of a group that belongs to the query.
Spark runs a batch again when it does not know whether the last attempt has ended: after a crash in the moment between
the end of the transaction and Spark's own commit log. The marker says which it was.

    marker   batch 7
    7        was not written: it is
    8        was written: it is skipped
    9, ...   a batch behind it was written: the checkpoint is not the one that the marker goes on from
    6, none  the batch before it left no marker: nobody can say whether this one was written, unless it is new

The group has the query's id, which is in the checkpoint: a new checkpoint is another query, whose batches begin at 0.
The offset is one of `__consumer_offsets`, the only topic that exists for certain, also after the target was deleted.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ottla_pipeline.topic_partition import TopicPartition

PARTITION = TopicPartition("__consumer_offsets", 0)
NO_MARKER = -1


class Action(Enum):
    """What is done with a batch."""

    WRITE = "write"
    SKIP = "skip"
    REFUSE = "refuse"


class MarkerDecision(NamedTuple):
    action: Action
    reason: str


def group_of(query_id: str) -> str:
    """The group whose offset is the marker of a query."""
    return f"ottla-sink-{query_id}"


def decide(marker: int, batch_id: int, *, may_be_missing: bool) -> MarkerDecision:
    """What to do with a batch.

    Args:
        marker: the committed offset, NO_MARKER where there is none.
        batch_id: of the batch, from 0.
        may_be_missing: whether a batch is written whose predecessor left no marker.

    >>> decide(8, 7, may_be_missing=False).action, decide(7, 7, may_be_missing=False).action
    (<Action.SKIP: 'skip'>, <Action.WRITE: 'write'>)
    >>> decide(NO_MARKER, 0, may_be_missing=False).action, decide(6, 7, may_be_missing=False).action
    (<Action.WRITE: 'write'>, <Action.REFUSE: 'refuse'>)
    """
    if marker == batch_id + 1:
        return MarkerDecision(Action.SKIP, f"batch {batch_id} is committed")
    if marker > batch_id + 1:
        return MarkerDecision(
            Action.REFUSE,
            f"batch {marker - 1} is committed, which comes after batch {batch_id}: the checkpoint was put back to an"
            " older state, and its batches need not have the rows that were written; begin with a new checkpoint",
        )
    if batch_id == 0 or marker == batch_id:
        return MarkerDecision(Action.WRITE, f"batch {batch_id} is not committed")
    if may_be_missing:
        return MarkerDecision(Action.WRITE, f"batch {batch_id - 1} left no marker, and missingMarker lets it")
    return MarkerDecision(
        Action.REFUSE,
        f"batch {batch_id - 1} left no marker, so nobody can say whether batch {batch_id} was written before: the"
        " query wrote without guarantee=exactly-once until now, or had no batch for longer than the brokers'"
        " offsets.retention.minutes; missingMarker=write writes it, twice if it was written before",
    )
