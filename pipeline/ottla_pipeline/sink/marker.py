"""The marker of a streaming query: which of its batches is committed, decided from a committed offset. Pure.

With each batch, one transaction commits the batch's number plus one as an offset of a group that belongs to the query.
Spark runs a batch again when it does not know whether the last attempt has ended: after a crash in the moment between
the end of the transaction and Spark's own commit log. The marker says which it was.

    marker   batch 7
    7        was not written: it is
    8        was written: it is skipped
    9, ...   a batch behind it was written: the checkpoint is not the one that the marker goes on from
    6, none  the batch before it left no marker: nobody can say whether this one was written, unless it is new, or so
             young that its own marker would still be there

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


class Evidence(NamedTuple):
    """What is known of a batch apart from its marker. Times in ms, None where nobody says."""

    first_new: int | None = None
    """The option missingMarker: the first batch that was not written before."""
    age_ms: int | None = None
    """The most ms for which attempts of the batch may have been made (`checkpoint.age_of_batch`)."""
    is_id_new: bool = False
    """Whether the transaction coordinator did not know the transactional id."""
    marker_kept_ms: int | None = None
    """The brokers' offsets.retention.minutes."""
    id_kept_ms: int | None = None
    """The brokers' transactional.id.expiration.ms."""


NOTHING = Evidence()
_FOREVER = 2**63
LEAST_KEPT_MS = 60_000
"""The least that offsets.retention.minutes can be."""


def is_enough(marker: int, batch_id: int) -> bool:
    """Whether the marker alone decides."""
    return marker >= batch_id


def decide(marker: int, batch_id: int, evidence: Evidence = NOTHING) -> MarkerDecision:
    """What to do with a batch.

    Args:
        marker: the committed offset, NO_MARKER where there is none.
        batch_id: of the batch, from 0.
        evidence: of the batch; looked at where the marker is not enough.

    >>> decide(8, 7).action, decide(7, 7).action, decide(6, 7).action
    (<Action.SKIP: 'skip'>, <Action.WRITE: 'write'>, <Action.REFUSE: 'refuse'>)
    >>> decide(NO_MARKER, 0, Evidence(is_id_new=True)).action, decide(NO_MARKER, 0, Evidence(age_ms=90_000)).action
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
    if marker == batch_id:
        return MarkerDecision(Action.WRITE, f"batch {batch_id} is not committed")
    if reason := _why_unwritten(batch_id, evidence):
        return MarkerDecision(Action.WRITE, reason)
    before = f"batch {batch_id - 1} left no marker, so nobody" if batch_id else "there is no marker, and nobody"
    return MarkerDecision(
        Action.REFUSE,
        f"{before} can say whether batch {batch_id} was written before: {_why_unknown(batch_id, evidence)};"
        " missingMarker=write writes it, twice if it was written before",
    )


def _why_unwritten(batch_id: int, evidence: Evidence) -> str:
    """Why a batch without a marker was certainly not written before; "" where it may have been.

    Half of what brokers keep counts, for clocks that differ.
    """
    if evidence.first_new is not None and batch_id >= evidence.first_new:
        return f"batch {batch_id} has no marker, and missingMarker lets it"
    if evidence.age_ms is not None and abs(evidence.age_ms) < (evidence.marker_kept_ms or LEAST_KEPT_MS) // 2:
        return f"batch {batch_id} was first planned {evidence.age_ms} ms ago, and its marker would still be there"
    if batch_id:
        return ""
    if evidence.is_id_new:
        # Nobody has begun a transaction of the query for as long as the id is kept.
        if evidence.age_ms is None or (
            evidence.id_kept_ms is not None and abs(evidence.age_ms) < evidence.id_kept_ms // 2
        ):
            return "batch 0 is the first use of its transactional id"
    elif evidence.age_ms is None and (evidence.marker_kept_ms or 0) >= (evidence.id_kept_ms or _FOREVER):
        # What was committed with the id has left a marker, which is there for as long as the id.
        return "batch 0 has no marker, which would be kept for as long as its transactional id"
    return ""


def _why_unknown(batch_id: int, evidence: Evidence) -> str:
    if evidence.marker_kept_ms is None:
        kept = (
            "the brokers do not say for how long they keep it (offsets.retention.minutes; DescribeConfigs of Cluster)"
        )
    else:
        kept = f"the brokers keep it for {evidence.marker_kept_ms // 60_000} minutes (offsets.retention.minutes)"
    if evidence.age_ms is not None:
        return f"it was first planned {max(evidence.age_ms, 0) / 60_000:.1f} minutes ago, and {kept}"
    if not batch_id:
        return f"its transactional id was used before, and {kept}"
    return (
        "the query wrote without guarantee=exactly-once until now, or had no batch for longer than the brokers'"
        f" offsets.retention.minutes; {kept}"
    )
