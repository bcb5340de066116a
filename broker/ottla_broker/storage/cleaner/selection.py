"""Selects the log to clean next, the range of its offsets, and the segments that are merged. Pure.

    offsets  0 ........ 40 ............ 90 ......... 120 ..... 130
             | clean    | dirty         | uncleanable | active |
                        first_dirty     end

The dirty ratio is dirty / (clean + dirty) in bytes. A log is cleaned when its ratio is above
min.cleanable.dirty.ratio, or when a dirty record is older than max.compaction.lag.ms; of several logs the one with the
highest ratio. `end` is the end of a segment at or below: the base offset of the active segment, the high watermark, the
last stable offset, the recovery point (so that recovery never truncates a cleaned segment), and the first segment with
a record younger than min.compaction.lag.ms. Source: LogCleanerManager of Apache Kafka.

>>> segments = [ClosedSegment(0, 50, 100), ClosedSegment(40, 50, 200), ClosedSegment(90, 30, 900)]
>>> found = cleanable(segments, active_base=120, first_dirty=40, bounds=(130, 125), now_ms=1000, min_lag_ms=200)
>>> found, round(found.dirty_ratio, 2)
(CleanableRange(first_dirty=40, end=90, clean_bytes=50, dirty_bytes=50), 0.5)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

MAX_OFFSETS = 2**31 - 1
"""The highest relative offset that an index entry can express."""


class ClosedSegment(NamedTuple):
    """A closed segment: base offset, bytes, largest timestamp in ms (-1 without one)."""

    base_offset: int
    size: int
    largest_timestamp: int


class CleanableRange(NamedTuple):
    """The dirty range of a log, from `first_dirty` to `end`, and the bytes of it and of the clean range before it."""

    first_dirty: int
    end: int
    clean_bytes: int
    dirty_bytes: int

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def first_dirty_offset(checkpoint: int, log_start_offset: int, log_end_offset: int) -> int:
    """Where cleaning continues: at the checkpoint, or at the log start offset when the checkpoint is outside the log,
    because it was truncated or its start deleted."""
    return checkpoint if log_start_offset <= checkpoint <= log_end_offset else log_start_offset


def cleanable(
    segments: Sequence[ClosedSegment],
    *,
    active_base: int,
    first_dirty: int,
    bounds: Iterable[int],
    now_ms: int,
    min_lag_ms: int,
) -> CleanableRange:
    """The range of a log that may be cleaned.

    Args:
        segments: the closed ones, in order.
        active_base: base offset of the active segment.
        first_dirty: where cleaning continues.
        bounds: offsets at or above which nothing may be cleaned.
        now_ms: the time in ms.
        min_lag_ms: min.compaction.lag.ms.
    """
    limit = min(active_base, *bounds)
    end = first_dirty
    clean = dirty = 0
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else active_base
        if next_base <= first_dirty:
            clean += segment.size
            continue
        # Whole segments only: a follower may have to truncate the end of one that reaches beyond the limit.
        is_young = min_lag_ms > 0 and segment.largest_timestamp > now_ms - min_lag_ms
        if next_base > limit or is_young:
            break
        dirty += segment.size
        end = next_base
    return CleanableRange(first_dirty, end, clean, dirty)


def compaction_delay_ms(first_timestamps: Iterable[int], now_ms: int, max_lag_ms: int) -> int:
    """By how much the oldest dirty record is older than max.compaction.lag.ms; 0 when none is. `first_timestamps`: of
    the first batch of each dirty closed segment."""
    known = [timestamp for timestamp in first_timestamps if timestamp > 0]
    return max(0, now_ms - max(max_lag_ms, 0) - min(known)) if known else 0


class CleanableLog(NamedTuple):
    """A log that could be cleaned. `number` is the caller's name for it."""

    number: int
    dirty: CleanableRange
    min_ratio: float
    delay_ms: int


def select_dirtiest(candidates: Iterable[CleanableLog]) -> CleanableLog | None:
    """The log with the highest dirty ratio of those that may be cleaned; of equals the first."""
    ready = [
        one
        for one in candidates
        if one.dirty.dirty_bytes > 0 and (one.delay_ms > 0 or one.dirty.dirty_ratio > one.min_ratio)
    ]
    return max(ready, key=lambda one: one.dirty.dirty_ratio, default=None)


class SourceSegment(NamedTuple):
    """A segment to clean: base offset, bytes, bytes of its two indexes, and the next segment's base offset."""

    base_offset: int
    size: int
    index_size: int
    time_index_size: int
    next_base: int


def group_segments(
    segments: Sequence[SourceSegment], *, segment_bytes: int, segment_index_bytes: int
) -> list[list[SourceSegment]]:
    """Groups neighbouring segments that fit one segment together: each group is written as one segment.

    A single segment above the limit is a group of its own.

    >>> sources = [SourceSegment(0, 60, 8, 12, 10), SourceSegment(10, 30, 8, 12, 20), SourceSegment(20, 30, 8, 12, 30)]
    >>> [[one.base_offset for one in group] for group in group_segments(
    ...     sources, segment_bytes=100, segment_index_bytes=1000)]
    [[0, 10], [20]]
    """
    groups: list[list[SourceSegment]] = []
    size = index = time_index = 0
    for segment in segments:
        fits = (
            bool(groups)
            and size + segment.size <= segment_bytes
            and index + segment.index_size <= segment_index_bytes
            and time_index + segment.time_index_size <= segment_index_bytes
            and (not segment.size or segment.next_base - 1 - groups[-1][0].base_offset <= MAX_OFFSETS)
        )
        if not fits:
            groups.append([])
            size = index = time_index = 0
        groups[-1].append(segment)
        size += segment.size
        index += segment.index_size
        time_index += segment.time_index_size
    return groups
