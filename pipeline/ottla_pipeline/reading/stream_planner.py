"""What a micro-batch reads: the driver's side of a stream, without Spark.

Spark keeps the offsets (its checkpoint); they are the truth, the consumer group is a mirror of them. Every offset that
Spark gives as the start of a batch to plan is the end of a batch that is done, so it is committed to the group then.

The checkpoint gets the offset where a stream begins only as the end of a batch, and Spark asks for the beginning again
after a crash in the first one. Where the beginning is not the same every time ("latest", committed offsets), the first
batch is therefore empty: its end is the beginning, and from then on it is in the checkpoint.

Spark plans a batch again, for a second branch of the query and after a crash before its commit log has the batch. A
topic that was created again is therefore known by its old id as long as the batch that begins to read it is planned.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from ottla_pipeline.errors import DataLoss, OptionError, PipelineError
from ottla_pipeline.reading.admission import NO_LIMITS, TriggerLimits, admitted, waits
from ottla_pipeline.reading.offset_range import OffsetRange
from ottla_pipeline.reading.options import AtEnd, AtOffsets, Bound, FromGroup, NoMatch, ReadOptions
from ottla_pipeline.reading.plan import Offsets, check_named, resolved
from ottla_pipeline.reading.splitting import split
from ottla_pipeline.reading.stream_offsets import losses
from ottla_pipeline.reading.topic_ids import digests, entries, name_before, recreated, remembered
from ottla_pipeline.reading.topics import asked_for, chosen, existing
from ottla_pipeline.topic_partition import EARLIEST, LATEST, TopicPartition
from ottla_pipeline.wire.group_progress import Committed

_log = logging.getLogger(__name__)

_REMEMBER_AGAIN_MS = 60 * 60 * 1000
"""Far less than offsets.retention.minutes."""

PartitionOffsets = Mapping[TopicPartition, int]


class StreamProgress(Protocol):
    """The consumer group of a stream; `group_progress.GroupProgress` is one."""

    def fetch(self) -> Mapping[TopicPartition, Committed]: ...

    def commit(self, offsets: Mapping[TopicPartition, Committed]) -> None: ...


class StreamPlanner:
    """Plans the batches of one query, in the order in which Spark asks.

    Args:
        group: where progress is mirrored to, if anywhere.
        id_store: the group that remembers the ids of topics between two runs, if any.
        sizes: the bytes of an offset at these positions, for maxBytesPerTrigger; partitions may be missing.
        clock_ms: a monotonic clock.
        pause: waits for fetchOffset.retryIntervalMs.
    """

    def __init__(
        self,
        options: ReadOptions,
        cluster: Offsets,
        group: StreamProgress | None,
        id_store: StreamProgress | None,
        sizes: Callable[[PartitionOffsets], Mapping[TopicPartition, float]],
        clock_ms: Callable[[], float],
        pause: Callable[[], None],
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._group = group
        self._id_store = id_store
        self._sizes = sizes
        self._clock_ms = clock_ms
        self._pause = pause
        self._target: dict[TopicPartition, int] | None = None
        self._ids: dict[str, bytes] | None = None  # digests of the ids of topics; None until they are looked up
        self._ids_before: dict[str, bytes] = {}  # of topics created again, before the batch from the offsets below
        self._before_start: PartitionOffsets = {}
        self._saved_ids: dict[str, bytes] | None = None
        self._saved_at_ms = 0.0
        self._begins_at: dict[TopicPartition, int] | None = None  # between `initial` and the batch that it is for
        self._committed: PartitionOffsets | None = None
        self._batch_at_ms = float("-inf")

    def freeze(self) -> None:
        """Records where the logs end: what Trigger.AvailableNow reads up to."""
        self._target = self._ends(self._layout())

    def initial(self) -> dict[TopicPartition, int]:
        """Where a query without a checkpoint begins."""
        topics = self._options.topics
        layout = chosen(topics, self._cluster.layout_of(asked_for(topics)), self._options.connecting.addresses)
        bound = self._options.starting
        check_named(bound, layout)
        if isinstance(bound, FromGroup):
            found = self._from_group(layout)
        else:
            starts = resolved(bound, list(layout), self._cluster, self._options.no_match)
            found = {partition: start.offset for partition, start in starts.items()}
            self._check_explicit(bound, found)
        self._begins_at = found
        self._ids = digests(layout)
        return found

    def latest(self, start: PartitionOffsets, *, unlimited: bool = False) -> PartitionOffsets:
        """Where the next batch ends; `start` where there is nothing to read, or not enough yet.

        DataLoss with failOnDataLoss for what is gone since `start` (else it is left out, with a warning).
        """
        begins, self._begins_at = self._begins_at, None
        is_first = begins is not None and dict(start) == begins
        if is_first and self._moves():
            return start
        layout, ends = self._settled(start)
        if not is_first:
            self._commit(start, layout)
        again = self._recreated(layout, start)
        self._report(losses(start, ends, [one for one in start if one not in layout], again))
        begin = self._begin(start, ends, again)
        limits = NO_LIMITS if unlimited else self._limits()
        now = self._clock_ms()
        if waits(limits, begin, ends, now - self._batch_at_ms):
            return start
        if limits.min_offsets is not None:
            self._batch_at_ms = now
        sizes = self._sizes({one: begin[one] for one in ends if ends[one] > begin[one]}) if limits.max_bytes else {}
        return admitted(limits, begin, ends, sizes)

    def ends_now(self) -> dict[TopicPartition, int]:
        """Where the logs end, for reports of lag."""
        return self._ends(self._layout())

    def ranges(self, start: PartitionOffsets, end: PartitionOffsets) -> list[OffsetRange]:
        """The ranges of a batch, none of them empty. DataLoss as in `latest`."""
        layout, _ = self._settled(start)
        is_first, self._begins_at = self._begins_at is not None, None
        if is_first:  # a first batch that is done again: its end is older than where the stream would begin now
            start = {partition: min(offset, end.get(partition, offset)) for partition, offset in start.items()}
        again = self._recreated(layout, start)
        self._report(losses(start, end, [one for one in {**start, **end} if one not in layout], again))
        existing_ends = {partition: offset for partition, offset in end.items() if partition in layout}
        begin = self._begin(start, existing_ends, again)
        found = [
            OffsetRange(partition, begin[partition], offset, layout[partition])
            for partition, offset in sorted(existing_ends.items())
            if offset > begin[partition]
        ]
        self._ids_before, self._before_start = again, start
        self._ids = {**(self._ids or {}), **digests({one: layout[one] for one in existing_ends})}
        self._save_ids()
        return split(found, self._options.min_partitions, self._options.max_records_per_partition)

    # -- the cluster

    def _layout(self) -> dict[TopicPartition, bytes]:
        topics = self._options.topics
        return existing(topics, self._cluster.layout_of(asked_for(topics)))

    def _settled(self, start: PartitionOffsets) -> tuple[dict[TopicPartition, bytes], dict[TopicPartition, int]]:
        """The partitions and where their logs end, up to the target of this run.

        A broker that has just started knows no topics, a new leader an older end: what looks like a loss is asked for
        again (fetchOffset.numRetries), as KafkaOffsetReader does.
        """
        for left in range(self._options.connecting.retries, -1, -1):
            layout = self._layout()
            ends = self._ends(layout)
            if start.keys() <= layout.keys() and all(ends[one] >= offset for one, offset in start.items()):
                break
            if left:
                self._pause()
        if self._target is not None:
            ends = {
                one: min(ends[one], max(self._target.get(one, 0), start.get(one, 0)))
                for one in ends
                if one in self._target or one in start
            }
        return layout, ends

    def _ends(self, layout: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, int]:
        return dict(self._cluster.offsets_at(dict.fromkeys(layout, LATEST))) if layout else {}

    def _begin(
        self, start: PartitionOffsets, ends: PartitionOffsets, recreated: Collection[str]
    ) -> dict[TopicPartition, int]:
        """Where reading goes on in each partition of `ends`: new partitions from their first offset on."""
        new = [one for one in ends if one not in start or one.topic in recreated]
        earliest = self._cluster.offsets_at(dict.fromkeys(new, EARLIEST)) if new else {}
        added = [one for one in new if one.topic not in recreated and earliest[one] > 0]
        self._report([f"{one} is new, and its log begins at offset {earliest[one]} instead of 0" for one in added])
        # A log that ends before `start` was reported; what it gets from here on is read.
        return {one: earliest[one] if one in earliest else min(start[one], ends[one]) for one in ends}

    def _recreated(self, layout: Mapping[TopicPartition, bytes], start: PartitionOffsets) -> dict[str, bytes]:
        """Topics of `start` that have another id than when they were read, with the digest of the one that they had."""
        read = {one.topic for one in start}
        if self._ids is None:
            stored = {} if self._id_store is None else self._id_store.fetch()
            metadata = [entry.metadata for _, entry in sorted(stored.items())]
            names = {name_before(topic, start): topic for topic in read}
            self._ids = remembered(metadata, read)
            self._ids_before = {names[name]: found for name, found in remembered(metadata, names).items()}
            self._before_start = start
        ids = {**self._ids, **(self._ids_before if start == self._before_start else {})}
        now = digests(layout)
        found = {topic: ids[topic] for topic in recreated(ids, now) if topic in read}
        self._ids.update({topic: topic_digest for topic, topic_digest in now.items() if topic not in found})
        return found

    def _check_explicit(self, bound: Bound, offsets: dict[TopicPartition, int]) -> None:
        """An explicit offset behind the end of a log: an error, or the end."""
        if not isinstance(bound, AtOffsets):
            return
        for partition, end in self._cluster.offsets_at(dict.fromkeys(offsets, LATEST)).items():
            if bound.offsets[partition] > end and self._options.fail_on_data_loss:
                raise OptionError(
                    bound.option,
                    f"{bound.offsets[partition]} for {partition} lies behind the end of its log, {end};"
                    " with failOnDataLoss=false the stream begins there",
                )
            offsets[partition] = min(offsets[partition], end)

    # -- the group

    def _from_group(self, layout: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, int]:
        assert self._group is not None
        committed = self._group.fetch()
        earliest = self._cluster.offsets_at(dict.fromkeys(layout, EARLIEST)) if layout else {}
        ends = self._ends(layout)
        found: dict[TopicPartition, int] = {}
        lost: list[str] = []
        for partition in layout:
            entry = committed.get(partition)
            if entry is None:
                found[partition] = earliest[partition]
                continue
            if not earliest[partition] <= entry.offset <= ends[partition]:
                lost.append(
                    f"{partition} was committed at offset {entry.offset}, and its log has {earliest[partition]}"
                    f" to {ends[partition]}"
                )
            else:
                found[partition] = entry.offset
                continue
            found[partition] = earliest[partition]
        self._report(list(dict.fromkeys(lost)))
        return found

    def _commit(self, done: PartitionOffsets, layout: Mapping[TopicPartition, bytes]) -> None:
        """Commits what is done. The checkpoint has it, so a group that refuses it does not end the query."""
        if self._group is None or done == self._committed:
            return
        try:
            self._group.commit({one: Committed(offset, "") for one, offset in done.items() if one in layout})
            self._committed = dict(done)
        except PipelineError as error:
            _log.warning("progress was not committed to group %s: %s", self._options.group_id, error)

    def _save_ids(self) -> None:
        """Remembers the topics of a batch before Spark has it in its checkpoint, and again before a broker forgets."""
        before = {name_before(topic, self._before_start): found for topic, found in self._ids_before.items()}
        ids = {**(self._ids or {}), **before}
        is_old = self._clock_ms() - self._saved_at_ms > _REMEMBER_AGAIN_MS
        if self._id_store is None or (ids == self._saved_ids and not is_old):
            return
        try:
            self._id_store.commit({one: Committed(0, text) for one, text in entries(ids).items()})
            self._saved_ids, self._saved_at_ms = ids, self._clock_ms()
        except PipelineError as error:
            _log.warning("the ids of topics are not remembered: %s", error)

    # -- options

    def _moves(self) -> bool:
        """Whether the beginning may be another one when it is asked for again."""
        bound = self._options.starting
        if isinstance(bound, AtEnd):
            return bound.which == LATEST
        if isinstance(bound, AtOffsets):
            return LATEST in bound.offsets.values()
        return isinstance(bound, FromGroup) or self._options.no_match is NoMatch.LATEST

    def _limits(self) -> TriggerLimits:
        limits = self._options.limits
        # Whoever waits for more records than there are would never end.
        return limits if self._target is None else dataclasses.replace(limits, min_offsets=None)

    def _report(self, lost: Sequence[str]) -> None:
        if lost and self._options.fail_on_data_loss:
            raise DataLoss(f"{'; '.join(lost)}; with failOnDataLoss=false the query goes on with what is there")
        for cause in lost:
            _log.warning("%s", cause)
