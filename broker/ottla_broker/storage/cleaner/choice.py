"""Which part of which log is cleaned next, and how its segments are put together. Pure.

    offsets  0 ........ 40 ............ 90 ......... 120 ..... 130
             | clean    | dirty         | not yet    | active  |
                        first_dirty     end

The dirty ratio is dirty / (clean + dirty) in bytes. A log is cleaned when its ratio is above
min.cleanable.dirty.ratio, or when a dirty record is older than max.compaction.lag.ms; of several the one with the
highest ratio (G39 of the 2.6 document: the highest head to tail). `end` is where a segment ends, at or below: the
active segment's begin, the high watermark, the last stable offset, the recovery point (what is cleaned is durable, so
that a recovery never cuts a cleaned segment), and the first segment with a record younger than min.compaction.lag.ms.

>>> segments = [Span(0, 50, 100), Span(40, 50, 200), Span(90, 30, 900)]
>>> found = cleanable(segments, active_base=120, first_dirty=40, bounds=(130, 125), now_ms=1000, min_lag_ms=200)
>>> found, round(found.dirty_ratio, 2)
(Cleanable(first_dirty=40, end=90, clean_bytes=50, dirty_bytes=50), 0.5)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

MAX_OFFSETS = 2**31 - 1
"""Offsets of one segment: what an index entry can tell."""


class Span(NamedTuple):
    """A closed segment: base offset, bytes, largest timestamp in ms (-1 without one)."""

    base_offset: int
    size: int
    largest_timestamp: int


class Cleanable(NamedTuple):
    """A log's dirty part, `first_dirty` to `end`, and what stands before it."""

    first_dirty: int
    end: int
    clean_bytes: int
    dirty_bytes: int

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def first_dirty_offset(checkpoint: int, log_start_offset: int, log_end_offset: int) -> int:
    """Where cleaning goes on: at the log's start when the checkpoint is outside (it was cut, or its start deleted)."""
    return checkpoint if log_start_offset <= checkpoint <= log_end_offset else log_start_offset


def cleanable(
    segments: Sequence[Span],
    *,
    active_base: int,
    first_dirty: int,
    bounds: Iterable[int],
    now_ms: int,
    min_lag_ms: int,
) -> Cleanable:
    """`segments`: the closed ones, in order; `bounds`: offsets at or above which nothing may be cleaned."""
    limit = min(active_base, *bounds)
    end = first_dirty
    clean = dirty = 0
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else active_base
        if next_base <= first_dirty:
            clean += segment.size
            continue
        # Whole segments only: of one that reaches beyond the limit, a follower may still have to cut the end.
        is_young = min_lag_ms > 0 and segment.largest_timestamp > now_ms - min_lag_ms
        if next_base > limit or is_young:
            break
        dirty += segment.size
        end = next_base
    return Cleanable(first_dirty, end, clean, dirty)


def compaction_delay_ms(first_timestamps: Iterable[int], now_ms: int, max_lag_ms: int) -> int:
    """By how much the oldest dirty record is older than max.compaction.lag.ms; 0 when none is. `first_timestamps`: of
    the first batch of each dirty closed segment."""
    known = [timestamp for timestamp in first_timestamps if timestamp > 0]
    return max(0, now_ms - max(max_lag_ms, 0) - min(known)) if known else 0


class Candidate(NamedTuple):
    """A log that could be cleaned. `number` is the caller's."""

    number: int
    part: Cleanable
    min_ratio: float
    delay_ms: int


def choose(candidates: Iterable[Candidate]) -> Candidate | None:
    """The dirtiest of those that may be cleaned; of equals the first."""
    ready = [
        one
        for one in candidates
        if one.part.dirty_bytes > 0 and (one.delay_ms > 0 or one.part.dirty_ratio > one.min_ratio)
    ]
    return max(ready, key=lambda one: one.part.dirty_ratio, default=None)


class Source(NamedTuple):
    """A segment to be cleaned: base offset, bytes, bytes of its two indexes, and the next segment's base offset."""

    base_offset: int
    size: int
    index_size: int
    time_index_size: int
    next_base: int


def group_segments(segments: Sequence[Source], *, segment_bytes: int, segment_index_bytes: int) -> list[list[Source]]:
    """Neighbours whose sizes together fit one segment are written into one, so that small ones do not pile up.

    A single segment above the limit is a group of its own.

    >>> sources = [Source(0, 60, 8, 12, 10), Source(10, 30, 8, 12, 20), Source(20, 30, 8, 12, 30)]
    >>> [[one.base_offset for one in group] for group in group_segments(
    ...     sources, segment_bytes=100, segment_index_bytes=1000)]
    [[0, 10], [20]]
    """
    groups: list[list[Source]] = []
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
