"""Reads one range of one partition on an executor, fetch by fetch.

The next fetch runs while the records of the last one are converted, so that broker and task work in parallel; one
receive buffer serves the whole range. After the loss of a leader the read continues from its position with the new one.
A task leaves its connections to the next one of its process.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla_broker.records.batch import LOG_OVERHEAD, PREFIX, PREFIX_BYTES
from ottla_broker.records.errors import RecordsError, UnsupportedMessageFormat
from ottla_pipeline.errors import ClusterUnreachable, DataLoss, RequestRefused, UnreadableRecords
from ottla_pipeline.reading import old_formats
from ottla_pipeline.reading.columns import AbortedTransaction, Wanted, choose, columns
from ottla_pipeline.reading.offset_range import ANY_TOPIC_ID, OffsetRange
from ottla_pipeline.reading.options import ReadOptions
from ottla_pipeline.reading.plan import Offsets
from ottla_pipeline.topic_partition import EARLIEST, LATEST, TopicPartition
from ottla_pipeline.wire.cluster import Cluster, NotYet, TopicRecreated
from ottla_pipeline.wire.connection import Connection, error_of
from ottla_pipeline.wire.kept import kept_cluster

_log = logging.getLogger(__name__)


def read(wanted_range: OffsetRange, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a range as Arrow batches, in the order of offsets. A compacted range has gaps.

    Raises:
        DataLoss: offsets of the range are gone, at the log's start or at its end, or the topic was deleted and created
            again, and failOnDataLoss is true (else what is there is read, with a warning).
        ClusterUnreachable: nothing was read for kafkaConsumer.pollTimeoutMs.
        UnreadableRecords, RequestRefused: what a broker sent cannot be read, or it refuses.
    """
    with kept_cluster(options.connecting) as cluster:
        try:
            bound = bind(wanted_range, cluster)
        except TopicRecreated:
            _report_recreated(wanted_range.partition, options)
            bound = bind(dataclasses.replace(wanted_range, topic_id=ANY_TOPIC_ID), cluster)
        reader = _RangeReader(bound, options, cluster)
        try:
            yield from reader.rows()
        except BaseException:
            reader.close()
            raise
        reader.give_back()


def bind(planned: OffsetRange, cluster: Offsets) -> OffsetRange:
    """The range with the offsets of now for the bounds that the user did not fix; see OffsetRange.

    TopicRecreated where the topic has another id than the planned one.
    """
    partition = planned.partition
    if planned.start_at is None and planned.end_at is None:
        return planned
    layout = cluster.layout_of([partition.topic]).get(partition.topic)
    if layout is not None and layout.topic_id != planned.topic_id != ANY_TOPIC_ID != layout.topic_id:
        raise TopicRecreated(partition.topic)

    def now(time_ms: int) -> int:
        found = cluster.offsets_at({partition: time_ms})[partition]
        return found if found >= 0 else cluster.offsets_at({partition: LATEST})[partition]

    start = planned.start if planned.start_at is None else max(planned.start, now(planned.start_at))
    end = planned.end if planned.end_at is None else now(planned.end_at)
    return dataclasses.replace(planned, start=start, end=max(start, end))


def _report_recreated(partition: TopicPartition, options: ReadOptions) -> None:
    message = f"{partition}: topic {partition.topic!r} was deleted and created again since this read was planned"
    if options.fail_on_data_loss:
        raise DataLoss(f"{message}; failOnDataLoss=false reads the new topic")
    _log.warning(message)


class _RangeReader:
    """The state of reading one range: the next offset, the connection to the leader, the time of the last progress."""

    def __init__(self, offset_range: OffsetRange, options: ReadOptions, cluster: Cluster) -> None:
        self._partition = offset_range.partition
        self._topic_id = offset_range.topic_id
        self._is_late = offset_range.start_at is not None
        self._end = offset_range.end
        self._next = offset_range.start
        self._options = options
        self._connecting = options.connecting
        self._cluster = cluster
        self._leader: Connection | None = None
        self._fetch_bytes = self._connecting.partition_fetch_bytes
        self._progress_at = time.monotonic()

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows of the range, in the order of offsets; raises what `read` raises."""
        is_asked = False
        while self._next < self._end:
            try:
                if not is_asked:
                    self._ask()
                is_asked = False
                assert self._leader is not None
                answer = self._leader.take().responses[0].partitions[0]
                code = error_of(answer.error_code)
                if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._skip_what_is_gone(f"{code.name}, {code.message}")
                    continue
                if code is not ErrorCode.NONE:
                    self._give_up_or_wait(code)
                    continue
                wanted = self._wanted()
                try:
                    chosen = self._chosen(answer, wanted)
                except UnsupportedMessageFormat:
                    rows, self._next = self._old_rows(answer, wanted)
                    if self._next > wanted.start:
                        self._progress_at = time.monotonic()
                        yield from rows
                    else:
                        self._fetch_more(answer.records)
                    continue
                if chosen.next_offset > self._next:
                    self._next = chosen.next_offset
                    self._progress_at = time.monotonic()
                    is_asked = self._next < self._end and self._ask_ahead()
                elif len(answer.records or b""):
                    self._fetch_more(answer.records)
                elif self._is_overdue():  # at the end of the log a fetch is empty, and no error
                    self._skip_what_is_gone("the leader has no records there")
            except TopicRecreated:
                _report_recreated(self._partition, self._options)
                self._topic_id = ANY_TOPIC_ID
                continue
            except (NotYet, OSError, IndexError) as error:
                is_asked = False
                self.close()
                self._check_progress(str(error))
                time.sleep(self._connecting.retry_interval_ms / 1000)
                continue
            try:
                yield from columns(answer.records or b"", chosen, wanted)
            except RecordsError as error:
                raise self._unreadable(error) from error

    def give_back(self) -> None:
        """Leaves the connection to the leader to the next task."""
        if self._leader is not None:
            self._cluster.give_back(self._leader)
            self._leader = None

    def close(self) -> None:
        """Closes the connection to the leader."""
        if self._leader is not None:
            self._leader.close()
            self._leader = None

    def _ask(self) -> None:
        if self._leader is None:
            self._leader = self._cluster.connect_to_leader(self._partition, self._topic_id)
        partition = FetchPartition(
            partition=self._partition.partition, fetch_offset=self._next, partition_max_bytes=self._fetch_bytes
        )
        self._leader.send(
            ApiKey.FETCH,
            FetchRequest(
                replica_id=-1,
                max_wait_ms=self._connecting.fetch_max_wait_ms,
                min_bytes=self._connecting.fetch_min_bytes,
                max_bytes=self._fetch_bytes,
                isolation_level=int(self._connecting.read_committed),
                topics=[FetchTopic(topic=self._partition.topic, topic_id=self._topic_id, partitions=[partition])],
            ),
            at_most=12 if self._topic_id == ANY_TOPIC_ID else None,  # 13 asks by id
        )

    def _ask_ahead(self) -> bool:
        """Sends the next fetch; False where the connection breaks: the rows of this answer come first."""
        try:
            self._ask()
        except OSError:
            self.close()
            return False
        return True

    def _wanted(self) -> Wanted:
        return Wanted(
            self._partition.topic,
            self._partition.partition,
            self._next,
            self._end,
            with_headers=self._options.include_headers,
            committed_only=self._connecting.read_committed,
            checks_crcs=self._connecting.check_crcs,
        )

    def _chosen(self, answer: Any, wanted: Wanted) -> Any:
        aborted = [
            AbortedTransaction(entry.producer_id, entry.first_offset) for entry in answer.aborted_transactions or ()
        ]
        try:
            return choose(answer.records or b"", wanted, aborted)
        except UnsupportedMessageFormat:
            raise
        except RecordsError as error:
            raise self._unreadable(error) from error

    def _old_rows(self, answer: Any, wanted: Wanted) -> old_formats.OldRows:
        try:
            return old_formats.rows(answer.records, wanted)
        except RecordsError as error:
            raise self._unreadable(error) from error

    def _fetch_more(self, records: memoryview) -> None:
        """A batch larger than was asked for came cut off (brokers before KIP-74): asks for all of it."""
        size = self._fetch_bytes * 2
        if len(records) >= PREFIX_BYTES:
            size = max(size, PREFIX.unpack_from(records)[1] + LOG_OVERHEAD)
        self._fetch_bytes = min(size, 2**31 - 1)
        self._check_progress("the batch there is larger than a fetch may be")

    def _skip_what_is_gone(self, reason: str) -> None:
        """The offset is not in the log: goes on at the log's start, or ends where the log ends before the range.

        NotYet with the reason where it is in the log by now.
        """
        earliest = self._cluster.offsets_at({self._partition: EARLIEST})[self._partition]
        latest = self._cluster.offsets_at({self._partition: LATEST})[self._partition]
        if earliest <= self._next < latest:
            raise NotYet(reason)
        gone = (self._next, min(earliest, self._end)) if self._next < earliest else (max(self._next, latest), self._end)
        message = (
            f"{self._partition}: offsets {gone[0]} to {gone[1] - 1} are gone,"
            f" the log begins at {earliest} and ends at {latest}"
        )
        is_before = self._next < earliest
        if self._options.fail_on_data_loss and not (self._is_late and is_before):
            raise DataLoss(f"{message}; failOnDataLoss=false reads on without them")
        _log.warning(message)
        self._next = gone[1]
        self._progress_at = time.monotonic()

    def _give_up_or_wait(self, error: ErrorCode) -> None:
        what = f"reading {self._partition} at offset {self._next}: {error.name}, {error.message}"
        if error.retriable or error in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_LEADER_EPOCH):
            raise NotYet(what)
        raise RequestRefused(what)

    def _is_overdue(self) -> bool:
        return (time.monotonic() - self._progress_at) * 1000 >= self._connecting.poll_timeout_ms

    def _check_progress(self, reason: str) -> None:
        if self._is_overdue():
            raise ClusterUnreachable(
                f"nothing of {self._partition} from offset {self._next} on could be read for"
                f" {self._connecting.poll_timeout_ms} ms (kafkaConsumer.pollTimeoutMs): {reason}"
            )

    def _unreadable(self, error: RecordsError) -> UnreadableRecords:
        return UnreadableRecords(f"{self._partition} from offset {self._next} on: {error}")
