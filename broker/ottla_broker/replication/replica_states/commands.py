"""What the controller tells a broker to do with its replicas, as values. Not here: wire formats, carrying it out."""

from __future__ import annotations

from dataclasses import dataclass

from ottla_broker.records.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class LeadershipCommand:
    """One partition of a LeaderAndIsr request."""

    topic_partition: TopicPartition
    topic_id: bytes
    leader: int
    leader_epoch: int
    partition_epoch: int
    controller_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    is_new: bool
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    """Of the replicas, those that a reassignment adds and removes (KIP-455)."""


@dataclass(frozen=True, slots=True)
class StopCommand:
    """One partition of a StopReplica request. `leader_epoch` is -1 where the request has none."""

    topic_partition: TopicPartition
    leader_epoch: int
    delete: bool
