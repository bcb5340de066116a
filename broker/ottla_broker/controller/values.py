"""The values the controller thinks in: replicas, leadership, brokers, topics.

Plain immutable values, shared by the pure decisions, the context and the requests. Not here: their JSON and paths
(`ottla_broker.coordination.znodes`) and their wire form (`requests`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, NamedTuple

from ottla_broker.records.ids import TopicPartition

NO_LEADER = -1
"""Leader of a partition that nobody can lead now."""

LEADER_DURING_DELETE = -2
"""Leader in UpdateMetadata that tells a broker to forget the partition: its topic is being deleted."""

NO_EPOCH = -1

TOPICS_AT_ONCE: Final = 20
"""So many are created, or begin to be deleted, in one event: a broker's death does not wait for a thousand of them."""

EPOCH_DURING_DELETE = -2
"""Leader epoch in StopReplica v3+ that stands above every epoch: the topic is being deleted."""


class Replica(NamedTuple):
    """One partition on one broker. Sorts by topic, then partition, then broker."""

    topic: str
    partition: int
    broker: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class LeaderRecoveryState(IntEnum):
    """KIP-704: RECOVERING marks the leader of an unclean election until it says that it has recovered."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Leadership of one partition, as its state znode has it.

    `partition_epoch` is the version of that znode; `controller_epoch` that of the controller who wrote it; `zxid` the
    one of that write, where the znode was read, and -1 for what this controller has written itself;
    `leader_broker_epoch` names the life of the leader that was meant, -1 where Apache Kafka wrote.
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
        """The next leadership: the leader epoch grows with every change that the controller makes."""
        return replace(self, leader=leader, isr=isr, leader_epoch=self.leader_epoch + 1, recovery_state=recovery_state)

    def recovered(self) -> LeaderAndIsr:
        """The same for a fleet whose inter.broker.protocol.version (below 3.2) does not know KIP-704."""
        return replace(self, recovery_state=LeaderRecoveryState.RECOVERED)

    def written(self, partition_epoch: int, controller_epoch: int) -> LeaderAndIsr:
        """This leadership once it stands in the znode at that version."""
        return replace(self, partition_epoch=partition_epoch, controller_epoch=controller_epoch, zxid=-1)


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """Replicas of one partition in order of preference; adding and removing during a reassignment (KIP-455)."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker listens. `security_protocol`: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    listener: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker. `epoch` is the czxid of its registration, so it grows with every registration."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    max_partition_replicas: int | None = None
    """How many it may hold (`capacity`); None when it does not say."""

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of the named listener, None when the broker does not have it."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as its znode has it. `topic_id` is 16 bytes, None for a topic that a tool before 2.8 created."""

    name: str
    topic_id: bytes | None
    partitions: Mapping[int, ReplicaAssignment]
