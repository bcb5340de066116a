"""Whether the partitions of a fetch can be read, up to which offset, and how much of min_bytes they have.

Lives here: the order of the errors of one partition, divergence (KIP-595), the closest replica (KIP-392), the throttle
of followers (KIP-73), and what counts towards min_bytes. Nothing here waits or changes a partition, but for
`acknowledge`, by which a follower's fetch moves its fetch state.

Source: ReplicaManager.readFromLog and DelayedFetch.tryComplete.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.fetch import EpochEndOffset
from ottla_broker.records.compression import Codec
from ottla_broker.replication.divergence import UNDEFINED
from ottla_broker.replication.fetch.fetch_values import READ_COMMITTED, FetchEnvironment, FetchParams
from ottla_broker.replication.fetch.partition_fetch import PartitionFetch
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.replica_selector import candidates, closest
from ottla_broker.storage.log.reader import A_LOT

DENIED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_UNKNOWN_LEADER_EPOCH = int(ErrorCode.UNKNOWN_LEADER_EPOCH)
_OFFSET_OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
ENOUGH: Final = 1 << 62
"""More bytes than any min_bytes."""
_UNSUPPORTED_COMPRESSION_TYPE = int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


def check(item: PartitionFetch, params: FetchParams, environment: FetchEnvironment) -> None:
    """Sets `error`, `preferred` or `diverging` of an item that has a replica, as of now.

    In this order: TOPIC_AUTHORIZATION_FAILED, KAFKA_STORAGE_ERROR or what else stands in place of the replica,
    FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, UNKNOWN_LEADER_EPOCH (a follower that is no
    replica), a preferred replica, OFFSET_OUT_OF_RANGE, divergence, UNSUPPORTED_COMPRESSION_TYPE.
    """
    partition = item.partition
    assert partition is not None
    if params.may_read is not None and not params.may_read(item.topic):
        item.error = DENIED
        return
    requested = item.requested
    log = partition.log.state
    offset = requested.fetch_offset
    if log.is_failed or not partition.is_assigned:
        found = environment.replicas.partition_or_error(item.topic, requested.partition)
        item.error = int(found) if isinstance(found, ErrorCode) else _NOT_LEADER
        return
    replica_id = params.replica_id
    current_epoch = requested.current_leader_epoch
    epoch_error = partition.check_epoch(current_epoch) if current_epoch >= 0 else ErrorCode.NONE
    if epoch_error:
        item.error = int(epoch_error)
    elif not partition.is_leader and (
        replica_id >= 0 or not params.capabilities.may_read_from_followers or partition.replica.is_idle
    ):
        item.error = _NOT_LEADER
    elif replica_id >= 0 and replica_id not in partition.followers:
        item.error = _UNKNOWN_LEADER_EPOCH if current_epoch >= 0 else _NOT_LEADER
    elif params.rack and partition.is_leader and (preferred := _closest(partition, params, environment, offset)) >= 0:
        item.preferred = preferred
    elif offset < log.log_start_offset:
        item.error = _OFFSET_OUT_OF_RANGE
    elif requested.last_fetched_epoch >= 0:
        _check_divergence(item, partition)
    elif offset > log.log_end_offset:
        item.error = _OFFSET_OUT_OF_RANGE
    elif not params.capabilities.reads_zstd and log.config.codec is Codec.ZSTD:
        item.error = _UNSUPPORTED_COMPRESSION_TYPE


def _check_divergence(item: PartitionFetch, partition: Partition) -> None:
    requested = item.requested
    log = partition.log.state
    if requested.last_fetched_epoch == log.epochs.latest and requested.fetch_offset <= log.log_end_offset:
        return  # the usual case
    end = partition.divergence(requested.fetch_offset, requested.last_fetched_epoch)
    if end is UNDEFINED:
        item.error = _OFFSET_OUT_OF_RANGE
    elif end is not None:
        item.diverging = EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)


def _closest(partition: Partition, params: FetchParams, environment: FetchEnvironment, offset: int) -> int:
    """The follower that the consumer reads from instead, -1: it reads here."""
    brokers = environment.metadata.brokers
    own = brokers.get(environment.replicas.broker_id)
    found = (
        (follower, broker.rack)
        for follower in candidates(partition.followers.values(), partition.in_sync.committed, offset)
        if (broker := brokers.get(follower.broker_id)) is not None and params.listener in broker.endpoints
    )
    return closest(params.rack, own.rack if own is not None else None, found).broker_id


def acknowledge(items: Iterable[PartitionFetch], params: FetchParams) -> None:
    """Records a follower's fetch: it has everything below its offsets on its disk."""
    for item in items:
        partition = item.partition
        if partition is not None and not item.error and item.diverging is None:
            requested = item.requested
            partition.on_follower_fetch(
                params.replica_id, requested.fetch_offset, requested.log_start_offset, params.replica_epoch
            )


def upper_offset(partition: Partition, params: FetchParams) -> int:
    """The offset that the client reads below: the log end for a follower, else high watermark or last stable offset."""
    log = partition.log.state
    if params.replica_id >= 0:
        return log.log_end_offset
    return log.last_stable_offset if params.isolation_level == READ_COMMITTED else log.high_watermark


def available_bytes(
    items: Iterable[PartitionFetch], params: FetchParams, environment: FetchEnvironment, found: int = 0
) -> int:
    """What counts towards min_bytes: the fetch is answered at once when it is as much.

    Args:
        found: what the partitions before these have.

    Returns:
        ENOUGH where a partition has something else to say.
    """
    min_bytes = params.min_bytes
    available = found
    for item in items:
        if item.error or item.diverging is not None or item.preferred >= 0:
            return ENOUGH
        partition = item.partition
        assert partition is not None
        if params.reports_high_watermark and _has_new_high_watermark(partition, params.replica_id):
            return ENOUGH
        offset = item.requested.fetch_offset
        upper = upper_offset(partition, params)
        if (
            offset < upper
            and available < min_bytes
            and (params.replica_id < 0 or not is_throttled(partition, params, environment))
        ):
            if min_bytes <= 1:
                return ENOUGH
            stored = partition.log.bytes_between(offset, upper)
            if stored >= A_LOT:
                # A client that reads closed segments is behind, and does not wait: what a fetch may take of its
                # partitions can stay below min_bytes for ever.
                return ENOUGH
            available += min(stored, item.requested.partition_max_bytes)
    return available


def is_throttled(partition: Partition, params: FetchParams, environment: FetchEnvironment) -> bool:
    """Whether the follower gets nothing of this partition now, because of leader.replication.throttled.rate (KIP-73).

    A follower that the high watermark waits for is never throttled.
    """
    throttled = partition.log.state.config.throttled_by_leader
    if not throttled:
        return False
    replicas = environment.replicas
    return (
        throttled.has(partition.index, replicas.broker_id)
        and replicas.quotas.leader.is_exceeded
        and not partition.limits_high_watermark(params.replica_id)
    )


def _has_new_high_watermark(partition: Partition, replica_id: int) -> bool:
    return partition.log.state.high_watermark > partition.followers[replica_id].sent_high_watermark
