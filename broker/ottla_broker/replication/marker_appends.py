"""Appends transaction markers to the partitions that this broker leads, and waits for their in-sync replicas.

Both ways of a marker end here: WriteTxnMarkers of another broker's coordinator, and the coordinator on this broker,
which needs no connection to itself. Not here: which partitions have which leader (`transactions.marker_sender`).

A marker in a partition of `__consumer_offsets` is reported to the group coordinator once it is committed: the offsets
that the transaction committed before it take effect, or are dropped.

Source: KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, Protocol

from ottla_broker.config.topics import CONSUMER_OFFSETS
from ottla_broker.ports import Clock
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.control_records import ControlType, EndTransactionMarker
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.delayed import DelayedProduce
from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager

logger = logging.getLogger("ottla.replication")

MARKERS_AT_ONCE: Final = 50
"""At 20 µs each. A transaction of many partitions has one in each of them."""


class MarkerToAppend(NamedTuple):
    """The outcome of one transaction, for partitions of this broker."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
    partitions: Sequence[TopicPartition]


class EndGroupTransaction(Protocol):
    """`GroupCoordinator.end_transaction`."""

    def __call__(
        self, partition: int, leader_epoch: int, producer_id: int, marker_offset: int, *, is_commit: bool
    ) -> None: ...


class AppendedMarker:
    """One marker in one partition, as the partition's queue of acknowledgements sees it."""

    __slots__ = ("base_offset", "error_code")

    def __init__(self) -> None:
        self.error_code = 0
        self.base_offset = -1


MarkerResults = Mapping[int, Mapping[TopicPartition, AppendedMarker]]
"""By producer id and partition."""


class _GroupMarker(NamedTuple):
    """A marker in a partition of `__consumer_offsets`, and the epoch in which it was appended."""

    partition: int
    leader_epoch: int
    producer_id: int
    offset: int
    is_commit: bool
    written: AppendedMarker


_Place = tuple[MarkerToAppend, TopicPartition, dict[TopicPartition, AppendedMarker]]
"""A marker, a partition of it, and where the result goes."""


def _one_by_one(
    markers: Iterable[MarkerToAppend], results: dict[int, dict[TopicPartition, AppendedMarker]]
) -> Iterator[_Place]:
    for marker in markers:
        partitions = results.setdefault(marker.producer_id, {})
        for topic_partition in marker.partitions:
            yield marker, topic_partition, partitions


class MarkerAppends:
    """Made once per broker.

    Args:
        timeout_s: request.timeout.ms in seconds: how long the in-sync replicas are waited for.
    """

    def __init__(
        self,
        replica_manager: ReplicaManager,
        clock: Clock,
        timeout_s: float,
        end_group_transaction: EndGroupTransaction,
    ) -> None:
        self._clock = clock
        self._replicas = replica_manager
        self._timeout_s = timeout_s
        self._end_group_transaction = end_group_transaction

    def append(self, markers: Iterable[MarkerToAppend], on_written: Callable[[MarkerResults], None]) -> None:
        """Appends the markers, `MARKERS_AT_ONCE` of them before it returns. `on_written` is called once, when all are
        committed or have failed, or after the timeout; possibly before this returns.

        Errors, in this order, per partition: KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION,
        NOT_ENOUGH_REPLICAS, INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED; later REQUEST_TIMED_OUT,
        NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER.
        """
        results: dict[int, dict[TopicPartition, AppendedMarker]] = {}
        group_markers: list[_GroupMarker] = []
        waiting = DelayedProduce(partial(self._finish, results, group_markers, on_written))
        waiting.pending = 1  # until all are appended
        self._append_some(_one_by_one(markers, results), group_markers, waiting)

    def _append_some(
        self, places: Iterator[_Place], group_markers: list[_GroupMarker], waiting: DelayedProduce
    ) -> None:
        """Appends some, and the others in later iterations of the loop."""
        some = list(islice(places, MARKERS_AT_ONCE))
        for marker, topic_partition, partitions in some:
            written = partitions[topic_partition] = AppendedMarker()
            try:
                leader_epoch, offset = self._append(topic_partition, marker, waiting, written)
            except KafkaError as error:
                written.error_code = int(error.code)
                continue
            except Exception:
                logger.exception(
                    "the marker of producer %d in %s cannot be appended", marker.producer_id, topic_partition
                )
                written.error_code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
                continue
            if topic_partition.topic == CONSUMER_OFFSETS:
                index, producer_id = topic_partition.partition, marker.producer_id
                group_markers.append(_GroupMarker(index, leader_epoch, producer_id, offset, marker.is_commit, written))
        if len(some) == MARKERS_AT_ONCE:
            self._clock.call_soon(self._append_some, places, group_markers, waiting)
            return
        if waiting.pending > 1:
            self._replicas.wheel.arm(waiting, self._timeout_s)
        waiting.one_done()

    def _append(
        self,
        topic_partition: TopicPartition,
        marker: MarkerToAppend,
        waiting: DelayedProduce,
        written: AppendedMarker,
    ) -> tuple[int, int]:
        """Returns the leader epoch of the append and the marker's offset."""
        partition = self._replicas.partition_or_error(*topic_partition)
        if isinstance(partition, ErrorCode):
            raise KafkaError(partition)
        kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
        end = EndTransactionMarker(kind, marker.coordinator_epoch)
        info = partition.append_marker(end, marker.producer_id, marker.producer_epoch, marker.transaction_version)
        if partition.log.state.high_watermark <= info.last_offset:
            partition.acks_all.add(info.last_offset + 1, waiting, written)
        else:
            written.error_code = partition.acknowledgement()
        return partition.leader_epoch, info.first_offset

    def _finish(
        self,
        results: MarkerResults,
        group_markers: Sequence[_GroupMarker],
        on_written: Callable[[MarkerResults], None],
    ) -> None:
        for partition, leader_epoch, producer_id, offset, is_commit, written in group_markers:
            if not written.error_code:
                self._end_group_transaction(partition, leader_epoch, producer_id, offset, is_commit=is_commit)
        on_written(results)
