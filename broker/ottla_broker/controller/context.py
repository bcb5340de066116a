"""What the active controller knows: one plain container, filled at failover and kept current by every event.

Not here: how it is read from the store (`store`) and what is decided from it. Iteration is always sorted: the
requests built from it must come out the same in every run of the simulator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ottla_broker.controller.partition_states import PartitionState, check_partition_transition
from ottla_broker.controller.replica_states import ReplicaState, check_replica_transition
from ottla_broker.controller.values import NO_LEADER, Broker, LeaderAndIsr, Replica, ReplicaAssignment, Topic
from ottla_broker.records.ids import TopicPartition


class ControllerContext:
    """Made anew for every term of office. `epoch` is the controller epoch, `epoch_version` its znode's version."""

    def __init__(self, epoch: int, epoch_version: int) -> None:
        self.epoch = epoch
        self.epoch_version = epoch_version
        self.brokers: dict[int, Broker] = {}
        """The live brokers."""
        self.shutting_down: set[int] = set()
        """Those of them that have asked for a controlled shutdown."""
        self.leadership: dict[TopicPartition, LeaderAndIsr] = {}
        self.topics_to_delete: set[str] = set()
        """Topics with a marker in /admin/delete_topics."""
        self.deletion_started: set[str] = set()
        """Those of them that the brokers have been told to forget."""
        self.unreadable: set[TopicPartition] = set()
        """Partitions whose state znode cannot be read: nothing is decided about them."""
        self._topics: dict[str, bytes | None] = {}
        self._names: dict[bytes, str] = {}
        self._assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self._partition_states: dict[TopicPartition, PartitionState] = {}
        self._replica_states: dict[Replica, ReplicaState] = {}
        self._failed_directories: set[Replica] = set()

    # Topics

    def add_topic(self, topic: Topic) -> None:
        """Adds a topic, or replaces the assignment of one that is known. Partition states are the caller's."""
        self._topics[topic.name] = topic.topic_id
        if topic.topic_id is not None:
            self._names[topic.topic_id] = topic.name
        self._assignments[topic.name] = dict(topic.partitions)

    def set_assignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Gives a known partition other replicas. Replica states are the caller's."""
        self._assignments[partition.topic][partition.partition] = assignment

    def remove_topic(self, name: str) -> None:
        """Forgets a topic that is deleted, and everything about its partitions."""
        for partition in self.partitions_of(name):
            for broker in self.replicas_of(partition):
                replica = Replica(*partition, broker)
                self._replica_states.pop(replica, None)
                self._failed_directories.discard(replica)
            self._partition_states.pop(partition, None)
            self.leadership.pop(partition, None)
            self.unreadable.discard(partition)
        topic_id = self._topics.pop(name, None)
        if topic_id is not None:
            self._names.pop(topic_id, None)
        self._assignments.pop(name, None)
        self.topics_to_delete.discard(name)
        self.deletion_started.discard(name)

    def topic_names(self) -> list[str]:
        return sorted(self._topics)

    def has_topic(self, name: str) -> bool:
        return name in self._topics

    def topic_id(self, name: str) -> bytes | None:
        """16 bytes, None for a topic without id."""
        return self._topics.get(name)

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def topic(self, name: str) -> Topic:
        """KeyError for an unknown topic."""
        return Topic(name, self._topics[name], dict(sorted(self._assignments[name].items())))

    def partitions(self) -> Iterator[TopicPartition]:
        """Every assigned partition."""
        for name in self.topic_names():
            yield from self.partitions_of(name)

    def partitions_of(self, name: str) -> list[TopicPartition]:
        return [TopicPartition(name, partition) for partition in sorted(self._assignments.get(name, ()))]

    def assignment_of(self, partition: TopicPartition) -> ReplicaAssignment:
        """Without replicas for an unknown partition."""
        return self._assignments.get(partition.topic, {}).get(partition.partition, ReplicaAssignment(()))

    def replicas_of(self, partition: TopicPartition) -> tuple[int, ...]:
        return self.assignment_of(partition).replicas

    def replicas_of_topic(self, name: str) -> list[Replica]:
        return [
            Replica(*partition, broker)
            for partition in self.partitions_of(name)
            for broker in self.replicas_of(partition)
        ]

    def replicas_on(self, brokers: Iterable[int]) -> list[Replica]:
        """Every replica that is assigned to one of the brokers."""
        wanted = frozenset(brokers)
        return [
            Replica(*partition, broker)
            for partition in self.partitions()
            for broker in self.replicas_of(partition)
            if broker in wanted
        ]

    def replica_counts(self) -> Counter[int]:
        """How many replicas are assigned to each broker; those of topics that are being deleted too."""
        counts: Counter[int] = Counter()
        for assignments in self._assignments.values():
            for assignment in assignments.values():
                counts.update(assignment.replicas)
        return counts

    def is_deleting(self, topic: str) -> bool:
        return topic in self.topics_to_delete

    # Brokers and failed directories

    def broker_ids(self) -> list[int]:
        return sorted(self.brokers)

    def is_online(self, replica: Replica) -> bool:
        """True when its broker is alive and its log directory is not known to have failed."""
        return replica.broker in self.brokers and replica not in self._failed_directories

    def online_brokers(self, partition: TopicPartition) -> frozenset[int]:
        """The brokers whose replica of the partition can be used."""
        return frozenset(
            broker for broker in self.replicas_of(partition) if self.is_online(Replica(*partition, broker))
        )

    def electable_brokers(self, partition: TopicPartition) -> frozenset[int]:
        """The brokers that an election may choose from: the online ones, and of those that shut down only whom the
        partition cannot do without. A clean leader for a moment is better than none, or an unclean one."""
        online = self.online_brokers(partition)
        staying = online - self.shutting_down
        leadership = self.leadership.get(partition)
        in_sync = () if leadership is None else leadership.isr
        if not staying or (not staying.intersection(in_sync) and online.intersection(in_sync)):
            return online
        return staying

    def has_new_leader_life(self, partition: TopicPartition) -> bool:
        """Has the leader registered anew since whoever wrote the leadership took it for alive?"""
        leadership = self.leadership.get(partition)
        leader = self.brokers.get(leadership.leader) if leadership is not None else None
        if leadership is None or leader is None:
            return False
        if leadership.leader_broker_epoch >= 0:
            return leader.epoch != leadership.leader_broker_epoch
        return leader.epoch > leadership.zxid >= 0

    def of_this_life(self, leadership: LeaderAndIsr) -> LeaderAndIsr:
        """The leadership as it is to be written: for the life of the leader that is known here."""
        leader = self.brokers.get(leadership.leader)
        return replace(leadership, leader_broker_epoch=-1 if leader is None else leader.epoch)

    def brokers_for_isr(self, partition: TopicPartition) -> frozenset[int]:
        """The brokers that may be in the ISR: nobody joins it who shuts down, but who is in it may stay."""
        leadership = self.leadership.get(partition)
        joining = self.shutting_down.difference(() if leadership is None else leadership.isr)
        return self.online_brokers(partition) - joining

    def set_directory_failed(self, replica: Replica, failed: bool) -> bool:
        """Notes what the broker said about the replica's log directory. True when that is news."""
        if failed == (replica in self._failed_directories):
            return False
        if failed:
            self._failed_directories.add(replica)
        else:
            self._failed_directories.discard(replica)
        return True

    def forget_failed_directories(self, broker: int) -> None:
        """A broker that dies or restarts tells anew which of its directories work."""
        self._failed_directories = {replica for replica in self._failed_directories if replica.broker != broker}

    def leads_nobody_online(self, partition: TopicPartition) -> bool:
        """True when the partition has had a leader and that one cannot be used now."""
        leadership = self.leadership.get(partition)
        return leadership is not None and (
            leadership.leader == NO_LEADER or leadership.leader not in self.online_brokers(partition)
        )

    # States

    def partition_state(self, partition: TopicPartition) -> PartitionState:
        return self._partition_states.get(partition, PartitionState.NON_EXISTENT)

    def move_partition(self, partition: TopicPartition, state: PartitionState) -> None:
        """Raises IllegalTransition for a change that the table does not have."""
        check_partition_transition(partition, self.partition_state(partition), state)
        self._partition_states[partition] = state

    def init_partition(self, partition: TopicPartition, state: PartitionState) -> None:
        """The state found at failover: no transition."""
        self._partition_states[partition] = state

    def replica_state(self, replica: Replica) -> ReplicaState:
        return self._replica_states.get(replica, ReplicaState.NON_EXISTENT)

    def move_replica(self, replica: Replica, state: ReplicaState) -> None:
        """Raises IllegalTransition for a change that the table does not have."""
        check_replica_transition(replica, self.replica_state(replica), state)
        self._replica_states[replica] = state

    def forget_replica(self, replica: Replica) -> None:
        """The replica is no longer assigned."""
        self._replica_states.pop(replica, None)
        self._failed_directories.discard(replica)

    def init_replica(self, replica: Replica, state: ReplicaState) -> None:
        """The state found at failover: no transition."""
        self._replica_states[replica] = state
