"""From options to ranges: the offsets of each partition. Pure, except for the calls of `Offsets`."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from typing import NamedTuple, Protocol

from ottla_pipeline.errors import DataLoss, OptionError
from ottla_pipeline.reading.offset_range import OffsetRange
from ottla_pipeline.reading.options import AtEnd, AtOffsets, Bound, FromGroup, NoMatch, ReadOptions
from ottla_pipeline.reading.splitting import split_batch
from ottla_pipeline.reading.topics import asked_for, chosen
from ottla_pipeline.topic_partition import EARLIEST, LATEST, TopicLayout, TopicPartition


class Offsets(Protocol):
    """What planning asks the cluster; `cluster.Cluster` is one."""

    def layout_of(self, topics: Sequence[str] | None) -> Mapping[str, TopicLayout]:
        """The named topics, or all that are not internal. Topics that do not exist are absent."""
        ...

    def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The offset at a time in ms, EARLIEST or LATEST; -1 where no record is young enough."""
        ...


def plan(
    options: ReadOptions, cluster: Offsets, where: str, but: Container[TopicPartition] = frozenset()
) -> list[OffsetRange]:
    """The ranges to read, one or more for each partition. `where` names the cluster in errors.

    Args:
        but: partitions that are left out, because ranges were planned for them before.

    Raises:
        UnknownTopic: a topic or partition that was named does not exist.
        OptionError: specific offsets or times do not name exactly the partitions that are read, no record matches, or
            an ending offset lies behind the end of the log (with failOnDataLoss=false the log's end counts).
        DataLoss: a starting offset lies behind the ending one.
    """
    ids = chosen(options.topics, cluster.layout_of(asked_for(options.topics)), where)
    for bound in (options.starting, options.ending):
        check_named(bound, ids)
    partitions = [partition for partition in ids if partition not in but]
    starts = resolved(options.starting, partitions, cluster, options.no_match)
    ends = resolved(options.ending, partitions, cluster, NoMatch.LATEST)
    _check_ends(options, ends, cluster)
    ranges: list[OffsetRange] = []
    for partition in partitions:
        (start, start_at), (end, end_at) = starts[partition], ends[partition]
        if start > end and options.fail_on_data_loss:
            raise DataLoss(
                f"{partition}: the starting offset {start} is greater than the ending offset {end};"
                " with failOnDataLoss=false the partition is left out"
            )
        ranges.append(OffsetRange(partition, start, max(start, end), ids[partition], start_at, end_at))
    return split_batch(ranges, options.min_partitions, options.max_records_per_partition)


def _check_ends(options: ReadOptions, ends: dict[TopicPartition, Resolved], cluster: Offsets) -> None:
    """An explicit ending offset that is not there yet: an error, or the log's end."""
    if not isinstance(options.ending, AtOffsets):
        return
    explicit = {partition: end.offset for partition, end in ends.items() if end.again is None}
    if not explicit:
        return
    latest = cluster.offsets_at(dict.fromkeys(explicit, LATEST))
    for partition, offset in explicit.items():
        if offset > latest[partition] and options.fail_on_data_loss:
            raise OptionError(
                options.ending.option,
                f"{offset} for {partition} lies behind the end of its log, {latest[partition]};"
                " with failOnDataLoss=false what is there is read",
            )
        ends[partition] = Resolved(min(offset, latest[partition]), None)


class Resolved(NamedTuple):
    """An offset as it is now, and what to look it up by again (see OffsetRange), None where it stays."""

    offset: int
    again: int | None


def resolved(
    bound: Bound, partitions: Sequence[TopicPartition], cluster: Offsets, no_match: NoMatch
) -> dict[TopicPartition, Resolved]:
    """The offset of a bound in each partition. OptionError as in `plan`."""
    if not partitions:
        return {}
    if isinstance(bound, AtEnd):
        offsets = cluster.offsets_at(dict.fromkeys(partitions, bound.which))
        return {partition: Resolved(offsets[partition], bound.which) for partition in partitions}
    if isinstance(bound, FromGroup):
        raise OptionError(bound.option, "committed is for streams: a batch read has no group")
    if isinstance(bound, AtOffsets):
        named = {partition: bound.offsets[partition] for partition in partitions}
        ends = {partition: offset for partition, offset in named.items() if offset in (EARLIEST, LATEST)}
        offsets = cluster.offsets_at(ends) if ends else {}
        return {
            partition: Resolved(offsets[partition], offset) if partition in ends else Resolved(offset, None)
            for partition, offset in named.items()
        }
    times = {
        partition: bound.default if bound.timestamps is None else bound.timestamps[partition]
        for partition in partitions
    }
    offsets = dict(cluster.offsets_at(times))
    unmatched = [partition for partition in partitions if offsets[partition] < 0]
    if unmatched and no_match is NoMatch.ERROR:
        partition = unmatched[0]
        raise OptionError(
            bound.option,
            f"{partition} has no record at or after {times[partition]};"
            " startingOffsetsByTimestampStrategy=latest would begin at its end",
        )
    if unmatched:
        offsets.update(cluster.offsets_at(dict.fromkeys(unmatched, LATEST)))
    again = {*unmatched, *(partition for partition, time in times.items() if time < 0)}
    return {
        partition: Resolved(offsets[partition], times[partition] if partition in again else None)
        for partition in partitions
    }


def check_named(bound: Bound, partitions: Collection[TopicPartition]) -> None:
    """Offsets or times by partition name every partition that is read, and no other."""
    if isinstance(bound, AtEnd | FromGroup):
        return
    named = bound.offsets if isinstance(bound, AtOffsets) else bound.timestamps
    if named is None or not partitions:
        return
    missing = sorted(set(partitions) - set(named))
    unknown = sorted(set(named) - set(partitions))
    if missing:
        raise OptionError(bound.option, f"must name every partition that is read; {missing[0]} is missing")
    if unknown:
        raise OptionError(bound.option, f"names {unknown[0]}, which is not read")
