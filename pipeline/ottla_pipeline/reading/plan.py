"""From options to tasks: the offsets of each partition and their split. Pure, except for the calls of `Offsets`.

A range is [start, end). `minPartitions` splits the longest ranges by offsets, because nothing else is known before the
read (a compacted range has fewer records than offsets).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ottla_pipeline.errors import DataLoss, OptionError, UnknownTopic
from ottla_pipeline.reading.options import (
    Assign,
    AtEnd,
    AtOffsets,
    Bound,
    NoMatch,
    ReadOptions,
    Subscribe,
    SubscribePattern,
)
from ottla_pipeline.topic_partition import EARLIEST, LATEST, TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start, end) of one partition."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class Offsets(Protocol):
    """What planning asks the cluster; `cluster.Cluster` is one."""

    def partitions_of(self, topics: Sequence[str] | None) -> Mapping[str, Sequence[int]]:
        """The partitions of the named topics, or of all that are not internal. Topics that do not exist are absent."""
        ...

    def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The offset at a time in ms, EARLIEST or LATEST; -1 where no record is young enough."""
        ...


def plan(options: ReadOptions, cluster: Offsets, where: str) -> list[OffsetRange]:
    """The ranges to read, none of them empty. `where` names the cluster in errors.

    Raises:
        UnknownTopic: a topic or partition that was named does not exist.
        OptionError: specific offsets or times do not name exactly the partitions that are read, or no record matches.
        DataLoss: a starting offset lies behind the ending one.
    """
    partitions = _partitions(options, cluster, where)
    starts = _resolved(options.starting, partitions, cluster, options.no_match)
    ends = _resolved(options.ending, partitions, cluster, NoMatch.LATEST)
    ranges: list[OffsetRange] = []
    for partition in partitions:
        start, end = starts[partition], ends[partition]
        if start > end and options.fail_on_data_loss:
            raise DataLoss(
                f"{partition}: the starting offset {start} is greater than the ending offset {end};"
                " with failOnDataLoss=false the partition is left out"
            )
        if start < end:
            ranges.append(OffsetRange(partition, start, end))
    return split(ranges, options.min_partitions, options.max_records_per_partition)


def split(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """Splits ranges until none is longer than `max_records_per_partition` and there are about `min_partitions`.

    Pieces of a range differ by one offset at most. A range of one offset is not split, so there may be fewer.

    >>> t = TopicPartition("t", 0)
    >>> [(piece.start, piece.end) for piece in split([OffsetRange(t, 0, 10)], 3, None)]
    [(0, 3), (3, 6), (6, 10)]
    """
    pieces = list(ranges)
    if max_records_per_partition is not None:
        pieces = [part for piece in pieces for part in _cut(piece, -(-piece.size // max_records_per_partition))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(piece.size for piece in pieces)
    return [
        part for piece in pieces for part in _cut(piece, max(1, round(min_partitions * piece.size / max(total, 1))))
    ]


def _cut(piece: OffsetRange, parts: int) -> list[OffsetRange]:
    parts = min(parts, piece.size)
    bounds = [piece.start + piece.size * number // parts for number in range(parts + 1)]
    return [OffsetRange(piece.partition, begin, end) for begin, end in itertools.pairwise(bounds)]


def _partitions(options: ReadOptions, cluster: Offsets, where: str) -> list[TopicPartition]:
    topics = options.topics
    if isinstance(topics, SubscribePattern):
        found = cluster.partitions_of(None)
        chosen = [topic for topic in found if topics.pattern.search(topic)]
        return [TopicPartition(topic, number) for topic in sorted(chosen) for number in sorted(found[topic])]
    names = topics.topics if isinstance(topics, Subscribe) else [partition.topic for partition in topics.partitions]
    found = cluster.partitions_of(sorted(set(names)))
    option = "subscribe" if isinstance(topics, Subscribe) else "assign"
    for topic in names:
        if topic not in found:
            raise UnknownTopic(f"option {option}: topic {topic!r} does not exist at {where}")
    if isinstance(topics, Assign):
        for topic, number in topics.partitions:
            if number not in found[topic]:
                raise UnknownTopic(
                    f"option assign: topic {topic!r} has no partition {number} at {where}, it has {len(found[topic])}"
                )
        return sorted(topics.partitions)
    return [TopicPartition(topic, number) for topic in names for number in sorted(found[topic])]


def _resolved(
    bound: Bound, partitions: Sequence[TopicPartition], cluster: Offsets, no_match: NoMatch
) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    if isinstance(bound, AtEnd):
        return dict(cluster.offsets_at(dict.fromkeys(partitions, bound.which)))
    if isinstance(bound, AtOffsets):
        _check_named(bound.option, bound.offsets, partitions)
        ends = {partition: offset for partition, offset in bound.offsets.items() if offset in (EARLIEST, LATEST)}
        return {**bound.offsets, **(cluster.offsets_at(ends) if ends else {})}
    times = bound.timestamps
    if times is None:
        times = dict.fromkeys(partitions, bound.default)
    else:
        _check_named(bound.option, times, partitions)
    found = dict(cluster.offsets_at(times))
    unmatched = [partition for partition in partitions if found[partition] < 0]
    if unmatched and no_match is NoMatch.ERROR:
        partition = unmatched[0]
        raise OptionError(
            bound.option,
            f"{partition} has no record at or after {times[partition]};"
            " startingOffsetsByTimestampStrategy=latest would begin at its end",
        )
    if unmatched:
        found.update(cluster.offsets_at(dict.fromkeys(unmatched, LATEST)))
    return found


def _check_named(option: str, named: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition]) -> None:
    missing = sorted(set(partitions) - set(named))
    unknown = sorted(set(named) - set(partitions))
    if missing:
        raise OptionError(option, f"must name every partition that is read; {missing[0]} is missing")
    if unknown:
        raise OptionError(option, f"names {unknown[0]}, which is not read")
