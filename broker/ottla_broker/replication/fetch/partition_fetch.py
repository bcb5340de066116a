"""PartitionFetch: one partition of a fetch, with what the last check found."""

from __future__ import annotations

from ottla_broker.protocol.generated.fetch import EpochEndOffset
from ottla_broker.replication.fetch.fetch_values import RequestedPartition
from ottla_broker.replication.partition import Partition


class PartitionFetch:
    """One partition of a fetch.

    `partition` is the replica here, None where there is none. `error` is 0 while it can be read, `preferred` the broker
    id of the closest replica, -1: this one. `diverging` says where the follower's log leaves the leader's.
    """

    __slots__ = ("diverging", "error", "partition", "preferred", "requested", "topic")

    def __init__(self, topic: str, requested: RequestedPartition) -> None:
        self.topic = topic
        self.requested = requested
        self.partition: Partition | None = None
        self.error = 0
        self.diverging: EpochEndOffset | None = None
        self.preferred = -1
