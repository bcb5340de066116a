"""How many tasks read the ranges of a plan, by the rules of the stock connector. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from ottla_pipeline.reading.offset_range import OffsetRange


def split_batch(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """The ranges of a batch read, split where `minPartitions` or `maxRecordsPerPartition` ask for it.

    Without a split, a partition whose end is still open gets a task even when it is empty now. Lengths decide whether
    to split before offsets are known, so `maxRecordsPerPartition` splits only where a range has an explicit end.

    Source: KafkaOffsetReaderAdmin.getOffsetRangesFromUnresolvedOffsets.
    """
    few = min_partitions is not None and min_partitions > len(ranges)
    long = max_records_per_partition is not None and any(
        piece.unresolved_size > max_records_per_partition for piece in ranges
    )
    if few or long:
        return split(ranges, min_partitions, max_records_per_partition)
    return [piece for piece in ranges if piece.size > 0 or piece.end_at is not None]


def split(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """Ranges that are not empty: none longer than `max_records_per_partition`, about `min_partitions` of them.

    Source: KafkaOffsetRangeCalculator.getRanges.

    >>> from ottla_pipeline.topic_partition import TopicPartition
    >>> t = TopicPartition("t", 0)
    >>> [(piece.start, piece.end) for piece in split([OffsetRange(t, 0, 10)], 3, None)]
    [(0, 3), (3, 6), (6, 10)]
    """
    pieces = [piece for piece in ranges if piece.size > 0]
    if max_records_per_partition is not None:
        pieces = [part for piece in pieces for part in _cut(piece, -(-piece.size // max_records_per_partition))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(piece.size for piece in pieces)
    whole = [piece for piece in pieces if _parts(piece.size, total, min_partitions) == 1]
    kept = {piece.partition for piece in whole}
    rest = total - sum(piece.size for piece in whole)
    count = max(min_partitions - len(whole), 1)
    return [
        part
        for piece in pieces
        for part in _cut(piece, 1 if piece.partition in kept else _parts(piece.size, rest, count))
    ]


def _parts(size: int, total: int, count: int) -> int:
    return max(math.floor(size / total * count + 0.5), 1)


def _cut(piece: OffsetRange, parts: int) -> list[OffsetRange]:
    """`parts` pieces side by side, without empty ones; only the last one's end is still open."""
    found: list[OffsetRange] = []
    start = piece.start
    for number in range(parts):
        end = start + (piece.end - start) // (parts - number)
        if end > start:
            found.append(dataclasses.replace(piece, start=start, end=end, end_at=None))
            start = end
    if found:
        found[-1] = dataclasses.replace(found[-1], end_at=piece.end_at)
    return found
