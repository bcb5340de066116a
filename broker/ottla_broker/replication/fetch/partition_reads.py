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


def read_partitions(
    items: Sequence[PartitionFetch],
    params: FetchParams,
    environment: FetchEnvironment,
    finish: Callable[[list[PartitionData]], None],
    results: list[PartitionData],
    left_bytes: int,
    start: int = 0,
) -> None:
    """Reads the items; calls `finish` once with a result for each, in their order, possibly later.

    Args:
        results: those of the items before `start`.
        left_bytes: what is left of max_bytes.
        start: the position of the first item to read; more than 0 after a wait for the disk.
    """
    for position in range(start, len(items)):
        item = items[position]
        if start:
            check_again(item, params, environment)
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
            or (params.replica_id >= 0 and checks.is_throttled(partition, params, environment))
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
                suspended = _SuspendedReads(items, params, environment, results, finish)
                read.add_done_callback(partial(suspended.on_read, position, left_bytes, partition, upper))
                return
            size, aborted = _take_future(read, item, data, partition, upper, params, environment)
        else:
            size, aborted = _take(read, item, data, partition, upper, params, environment)
        left_bytes -= size
        if aborted is not None:
            suspended = _SuspendedReads(items, params, environment, results, finish)
            aborted.add_done_callback(partial(suspended.on_aborted, position, left_bytes))
            return
    if start:
        drop_stale(results)
    finish(results)


class _SuspendedReads:
    """A pass that waits for the disk."""

    __slots__ = ("_environment", "_finish", "_items", "_params", "_results")

    def __init__(
        self,
        items: Sequence[PartitionFetch],
        params: FetchParams,
        environment: FetchEnvironment,
        results: list[PartitionData],
        finish: Callable[[list[PartitionData]], None],
    ) -> None:
        self._items = items
        self._params = params
        self._environment = environment
        self._results = results
        self._finish = finish

    def on_read(
        self, position: int, left_bytes: int, partition: Partition, upper: int, read: asyncio.Future[LogRead]
    ) -> None:
        if read.cancelled():
            return
        item = self._items[position]
        check_again(item, self._params, self._environment)
        if item.error or item.diverging is not None or item.preferred >= 0:
            if read.exception() is None:
                for chunk in read.result().chunks:
                    chunk.release()
            self._results[-1] = new_result(item, self._params)
            self._read_on(position + 1, left_bytes)
            return
        size, aborted = _take_future(read, item, self._results[-1], partition, upper, self._params, self._environment)
        if aborted is not None:
            aborted.add_done_callback(partial(self.on_aborted, position, left_bytes - size))
            return
        self._read_on(position + 1, left_bytes - size)

    def on_aborted(self, position: int, left_bytes: int, found: _Aborted) -> None:
        if found.cancelled():
            return
        data = self._results[-1]
        error = found.exception()
        if error is None:
            data.aborted_transactions = _aborted(found.result())
        else:
            # Without the list the consumer would take aborted records for committed ones.
            fail_result(data, error)
        self._read_on(position + 1, left_bytes)

    def _read_on(self, start: int, left_bytes: int) -> None:
        read_partitions(self._items, self._params, self._environment, self._finish, self._results, left_bytes, start)


def check_again(item: PartitionFetch, params: FetchParams, environment: FetchEnvironment) -> None:
    """After a wait: records that another leader epoch wrote must not leave as those of the requested one."""
    if item.partition is not None and not item.error:
        item.diverging, item.preferred = None, -1
        checks.check(item, params, environment)


def drop_stale(results: Iterable[PartitionData]) -> None:
    """Drops what was read before a wait and truncated since. Sent as it is, it would end the connection."""
    for data in results:
        if any(chunk.is_stale for chunk in _file_ranges(data)):
            fail_result(data, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it was truncated meanwhile"))


def _take_future(
    read: asyncio.Future[LogRead],
    item: PartitionFetch,
    data: PartitionData,
    partition: Partition,
    upper: int,
    params: FetchParams,
    environment: FetchEnvironment,
) -> tuple[int, _Aborted | None]:
    error = read.exception()
    if error is None:
        return _take(read.result(), item, data, partition, upper, params, environment)
    fail_result(data, error)
    return 0, None


def _take(
    read: LogRead,
    item: PartitionFetch,
    data: PartitionData,
    partition: Partition,
    upper: int,
    params: FetchParams,
    environment: FetchEnvironment,
) -> tuple[int, _Aborted | None]:
    """The bytes taken, and the aborted transactions when they are read later."""
    size: int = read.size
    if not size:
        return 0, None
    data.records = tuple(read.chunks)
    if params.replica_id >= 0:
        _count_replication(partition, size, params.replica_id, environment)
        return size, None
    partition.bytes_out(size)
    if partition.log.state.has_aborted_transactions and params.isolation_level == READ_COMMITTED:
        aborted = partition.log.aborted.aborted_in(read, item.requested.fetch_offset, upper)
        if isinstance(aborted, asyncio.Future):
            return size, aborted
        data.aborted_transactions = _aborted(aborted)
    return size, None


def _count_replication(partition: Partition, size: int, replica_id: int, environment: FetchEnvironment) -> None:
    replicas = environment.replicas
    quotas = replicas.quotas
    quotas.bytes_out.inc(size)
    if replica_id in partition.adding:
        quotas.reassigned_out.inc(size)
    throttled = partition.log.state.config.throttled_by_leader
    if throttled and throttled.has(partition.index, replicas.broker_id):
        quotas.leader.record(size)


def _file_ranges(data: PartitionData) -> Iterable[FileRange]:
    """Also converted records, which are sent when they are made; b"" and small converted ones are bytes."""
    return cast("tuple[FileRange, ...]", data.records) if isinstance(data.records, tuple) else ()


def _aborted(found: list[IndexedTransaction]) -> list[AbortedTransaction]:
    return [AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in found]
