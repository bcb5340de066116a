"""Reads the partitions of one fetch, one after the other, into the results that are sent.

A log answers at once from memory and file ranges, or later from the disk; then the pass goes on in a callback. The
first batch of the first partition with data is read even when it is larger than max_bytes (KIP-74). What is read are
ranges of the segment files: records are neither copied nor decoded here.

While the disk is read, anything may happen to the partitions: this broker may become a follower of one, truncate its
log and write other records at the same offsets. So each partition that is read after a wait is checked again, and what
was read before a wait is dropped when its file range is stale.

With isolation level read_committed a result also names the transactions that were aborted among its records (KIP-98):
producer id and first offset, in the order of their markers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias, cast

from ottla_broker.ports.disk import FileRange
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.fetch import AbortedTransaction, PartitionData
from ottla_broker.replication.fetch import checks
from ottla_broker.replication.fetch.fetch_values import READ_COMMITTED, FetchEnvironment, FetchParams
from ottla_broker.replication.fetch.partition_fetch import PartitionFetch
from ottla_broker.replication.partition import Partition
from ottla_broker.storage.files.transaction_index import AbortedTransaction as IndexedTransaction
from ottla_broker.storage.log.reader import LogRead

_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)

_Aborted: TypeAlias = "asyncio.Future[list[IndexedTransaction]]"


def new_result(item: PartitionFetch, params: FetchParams) -> PartitionData:
    """The result of a partition without its records: its error, or its offsets as of now."""
    data = PartitionData(partition_index=item.requested.partition, records=b"", high_watermark=-1)
    partition = item.partition
    if item.error or partition is None:
        data.error_code = item.error
        data.aborted_transactions = None
        return data
    log = partition.log.state
    data.high_watermark = log.high_watermark
    data.last_stable_offset = log.last_stable_offset
    data.log_start_offset = log.log_start_offset
    data.aborted_transactions = [] if params.isolation_level == READ_COMMITTED else None
    data.diverging_epoch = item.diverging
    data.preferred_read_replica = item.preferred
    if params.reports_high_watermark:
        follower = partition.followers.get(params.replica_id)
        if follower is not None:
            follower.sent_high_watermark = log.high_watermark
    return data


def fail_result(data: PartitionData, error: BaseException) -> None:
    """Makes a result one that carries this error and nothing else; what is not a KafkaError is a storage error."""
    release(data)
    data.records = b""
    data.error_code = int(error.code) if isinstance(error, KafkaError) else _STORAGE_ERROR
    data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
    data.aborted_transactions = None


def release(data: PartitionData) -> None:
    """Gives the file ranges of a result back that is not sent."""
    for chunk in _file_ranges(data):
        chunk.release()


class PartitionReads:
    """One pass over the items of a fetch; calls `finish` once with a result for each item, in their order."""

    __slots__ = ("_environment", "_finish", "_items", "_params", "_results")

    def __init__(
        self,
        items: Sequence[PartitionFetch],
        params: FetchParams,
        environment: FetchEnvironment,
        finish: Callable[[list[PartitionData]], None],
    ) -> None:
        self._items = items
        self._params = params
        self._environment = environment
        self._finish = finish
        self._results: list[PartitionData] = []

    def start(self) -> None:
        """Reads until the disk has to be waited for, or all is read."""
        self._read_from(0, self._params.max_bytes)

    def _read_from(self, start: int, left_bytes: int) -> None:
        """Reads the items from position `start` on; more than 0 after a wait. `left_bytes` are left of max_bytes."""
        items, results = self._items, self._results
        params, environment = self._params, self._environment
        for position in range(start, len(items)):
            item = items[position]
            if start:
                self._check_again(item)
            data = new_result(item, params)
            results.append(data)
            partition = item.partition
            if data.error_code or item.diverging is not None or partition is None or item.preferred >= 0:
                continue
            offset = item.requested.fetch_offset
            upper = checks.upper_offset(partition, params)
            is_first = left_bytes == params.max_bytes
            if (
                offset >= upper
                or (left_bytes <= 0 and not is_first)
                or checks.is_throttled(partition, params, environment)
            ):
                continue
            max_bytes = min(item.requested.partition_max_bytes, left_bytes)
            try:
                read = partition.log.read(offset, max_bytes, upper, at_least_one_batch=is_first)
            except KafkaError as error:
                fail_result(data, error)
                continue
            if isinstance(read, asyncio.Future):
                if not read.done():
                    read.add_done_callback(partial(self._on_read, position, left_bytes, partition, upper))
                    return
                size, aborted = self._take_future(read, item, data, partition, upper)
            else:
                size, aborted = self._take(read, item, data, partition, upper)
            left_bytes -= size
            if aborted is not None:
                aborted.add_done_callback(partial(self._on_aborted, position, left_bytes))
                return
        if start:
            self._drop_stale()
        self._finish(results)

    def _on_read(
        self, position: int, left_bytes: int, partition: Partition, upper: int, read: asyncio.Future[LogRead]
    ) -> None:
        if read.cancelled():
            return
        item = self._items[position]
        self._check_again(item)
        if item.error or item.diverging is not None or item.preferred >= 0:
            if read.exception() is None:
                for chunk in read.result().chunks:
                    chunk.release()
            self._results[-1] = new_result(item, self._params)
            self._read_from(position + 1, left_bytes)
            return
        size, aborted = self._take_future(read, item, self._results[-1], partition, upper)
        if aborted is not None:
            aborted.add_done_callback(partial(self._on_aborted, position, left_bytes - size))
            return
        self._read_from(position + 1, left_bytes - size)

    def _on_aborted(self, position: int, left_bytes: int, found: _Aborted) -> None:
        if found.cancelled():
            return
        data = self._results[-1]
        error = found.exception()
        if error is None:
            data.aborted_transactions = _aborted(found.result())
        else:
            # Without the list the consumer would take aborted records for committed ones.
            fail_result(data, error)
        self._read_from(position + 1, left_bytes)

    def _check_again(self, item: PartitionFetch) -> None:
        """After a wait: records that another leader epoch wrote must not leave as those of the requested one."""
        if item.partition is not None and not item.error:
            item.diverging, item.preferred = None, -1
            checks.check(item, self._params, self._environment)

    def _drop_stale(self) -> None:
        """Drops what was read before a wait and truncated since. Sent as it is, it would end the connection."""
        for data in self._results:
            if any(chunk.is_stale for chunk in _file_ranges(data)):
                fail_result(data, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it was truncated meanwhile"))

    def _take_future(
        self, read: asyncio.Future[LogRead], item: PartitionFetch, data: PartitionData, partition: Partition, upper: int
    ) -> tuple[int, _Aborted | None]:
        error = read.exception()
        if error is None:
            return self._take(read.result(), item, data, partition, upper)
        fail_result(data, error)
        return 0, None

    def _take(
        self, read: LogRead, item: PartitionFetch, data: PartitionData, partition: Partition, upper: int
    ) -> tuple[int, _Aborted | None]:
        """The bytes taken, and the aborted transactions when they are read later."""
        size: int = read.size
        if not size:
            return 0, None
        data.records = tuple(read.chunks)
        params = self._params
        if params.replica_id >= 0:
            self._count_replication(partition, size)
            return size, None
        partition.bytes_out(size)
        if partition.log.state.has_aborted_transactions and params.isolation_level == READ_COMMITTED:
            aborted = partition.log.aborted_in(read, item.requested.fetch_offset, upper)
            if isinstance(aborted, asyncio.Future):
                return size, aborted
            data.aborted_transactions = _aborted(aborted)
        return size, None

    def _count_replication(self, partition: Partition, size: int) -> None:
        replicas = self._environment.replicas
        quotas = replicas.quotas
        quotas.bytes_out.inc(size)
        if self._params.replica_id in partition.adding:
            quotas.reassigned_out.inc(size)
        throttled = partition.log.state.config.throttled_by_leader
        if throttled and throttled.has(partition.index, replicas.broker_id):
            quotas.leader.record(size)


def _file_ranges(data: PartitionData) -> Iterable[FileRange]:
    return cast("tuple[FileRange, ...]", data.records or ())


def _aborted(found: list[IndexedTransaction]) -> list[AbortedTransaction]:
    return [AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in found]
