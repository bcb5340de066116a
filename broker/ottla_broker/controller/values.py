"""The controller's values: replicas, leadership, registered brokers, topics.

Immutable, and shared by the decisions, the context and the requests. Not here: their JSON and their paths in the
coordination store (`ottla_broker.coordination.znodes`), their form on the wire (`control_requests`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, NamedTuple

from ottla_broker.config.features import Ranges
from ottla_broker.config.listeners import Endpoint
from ottla_broker.records.ids import TopicPartition

NO_LEADER = -1
"""The leader of a partition that no replica can lead now."""

LEADER_DURING_DELETE = -2
"""The leader in an UpdateMetadata that removes the partition from a broker's metadata: its topic is being deleted."""

NO_EPOCH = -1

TOPICS_PER_EVENT: Final = 20
"""One event creates, or begins to delete, at most so many topics: the failure of a broker does not wait for all of a
thousand."""

EPOCH_DURING_DELETE = -2
"""The leader epoch in a StopReplica v3+ for a topic that is being deleted; brokers accept it at any leader epoch."""


def metric_name(topic: str) -> str:
    """The topic's name as its metrics have it: two topics that differ only in '.' and '_' would share them.

    >>> metric_name("a.b")
    'a_b'
    """
    return topic.replace(".", "_")


class Replica(NamedTuple):
    """One partition on one broker. Sorts by topic, then partition, then broker."""

    topic: str
    partition: int
    broker: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class LeaderRecoveryState(IntEnum):
    """KIP-704: RECOVERING marks the leader of an unclean election until it reports that it has recovered."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Leadership of one partition, as its state znode holds it.

    `partition_epoch` is the version of that znode, `controller_epoch` the one of the controller that wrote it. `zxid`
    is the zxid of that write where the znode was read, and -1 for what this controller has written itself.
    `leader_broker_epoch` names the incarnation of the leader that was elected, -1 where Apache Kafka wrote the znode.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    controller_epoch: int
    recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    zxid: int = field(default=-1, compare=False)
    leader_broker_epoch: int = field(default=-1, compare=False)

    def led_by(
        self,
        leader: int,
        isr: tuple[int, ...],
        recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED,
    ) -> LeaderAndIsr:
        """The next leadership. Every change that the controller makes raises the leader epoch by one."""
        return replace(self, leader=leader, isr=isr, leader_epoch=self.leader_epoch + 1, recovery_state=recovery_state)

    def recovered(self) -> LeaderAndIsr:
        """The same leadership for a fleet whose inter.broker.protocol.version is below 3.2 and lacks KIP-704."""
        return replace(self, recovery_state=LeaderRecoveryState.RECOVERED)

    def written(self, partition_epoch: int, controller_epoch: int) -> LeaderAndIsr:
        """This leadership once the znode holds it at that version."""
        return replace(self, partition_epoch=partition_epoch, controller_epoch=controller_epoch, zxid=-1)


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The replicas of one partition in order of preference; `adding` and `removing` during a reassignment (KIP-455)."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """A live broker. `epoch` is the czxid of its registration, so every registration has a higher one."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    max_partition_replicas: int | None = None
    """How many replicas it may hold (`decisions.capacity`); None when it does not register a limit."""
    features: Ranges = field(default_factory=dict, hash=False)
    """The features that it supports (KIP-584)."""

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of the named listener, None when the broker does not have it."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as its znode holds it. `topic_id` is 16 bytes, None for a topic that a tool before 2.8 created."""

    name: str
    topic_id: bytes | None
    partitions: Mapping[int, ReplicaAssignment]
