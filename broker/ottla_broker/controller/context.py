"""What the active controller knows: brokers, topics, assignments, leaderships and the states of replicas.

One plain container, filled at failover and kept current by every act. Iteration is always sorted: the requests built
from it are the same in every run of the simulator. Not here: reading it from the coordination store (`store`), deciding
from it (`decisions`).

Source: ControllerContext of Apache Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ottla_broker.controller.partition_states import PartitionState, check_partition_transition
from ottla_broker.controller.replica_states import ReplicaState, check_replica_transition
from ottla_broker.controller.values import (
    NO_LEADER,
    LeaderAndIsr,
    RegisteredBroker,
    Replica,
    ReplicaAssignment,
    Topic,
    metric_name,
)
from ottla_broker.records.ids import TopicPartition


class ControllerContext:
    """A new one for each controller epoch `epoch`; `epoch_version` is the version of its znode."""

    def __init__(self, epoch: int, epoch_version: int) -> None:
        self.epoch = epoch
        self.epoch_version = epoch_version
        self.brokers: dict[int, RegisteredBroker] = {}
        """The live brokers."""
        self.shutting_down: set[int] = set()
        """The live brokers that have asked for a controlled shutdown."""
        self.leadership: dict[TopicPartition, LeaderAndIsr] = {}
        self.topics_to_delete: set[str] = set()
        """Topics with a marker in /admin/delete_topics."""
        self.deletion_started: set[str] = set()
        """Those of them that the controller has removed from the metadata of the brokers."""
        self.unreadable_partitions: set[TopicPartition] = set()
        """Partitions whose state znode cannot be parsed: nothing is decided about them."""
        self.unreadable_topics: set[str] = set()
        """Topics whose znode cannot be parsed: they have no partitions here."""
        self._topics: dict[str, bytes | None] = {}
        self._names: dict[bytes, str] = {}
        self._by_metric_name: dict[str, set[str]] = {}
        """Names that differ at most in '.' and '_'."""
        self._assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self._replica_counts: Counter[int] = Counter()
        self._partition_states: dict[TopicPartition, PartitionState] = {}
        self._replica_states: dict[Replica, ReplicaState] = {}
        self._offline_log_dirs: set[Replica] = set()
        """Replicas whose log directory is offline."""

    # Topics

    def add_topic(self, topic: Topic) -> None:
        """Adds a topic, or replaces the assignment of a known one. The caller changes the partition states."""
        self._topics[topic.name] = topic.topic_id
        self._by_metric_name.setdefault(metric_name(topic.name), set()).add(topic.name)
        if topic.topic_id is not None:
            self._names[topic.topic_id] = topic.name
        self._count(self._assignments.get(topic.name, {}).values(), -1)
        self._assignments[topic.name] = dict(topic.partitions)
        self._count(topic.partitions.values(), 1)

    def set_assignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Gives a known partition other replicas. The caller changes the replica states."""
        of_topic = self._assignments[partition.topic]
        self._count((of_topic[partition.partition],) if partition.partition in of_topic else (), -1)
        of_topic[partition.partition] = assignment
        self._count((assignment,), 1)

    def remove_topic(self, name: str) -> None:
        """Removes a deleted topic and everything about its partitions."""
        for partition in self.partitions_of(name):
            for broker in self.replicas_of(partition):
                replica = Replica(*partition, broker)
                self._replica_states.pop(replica, None)
                self._offline_log_dirs.discard(replica)
            self._partition_states.pop(partition, None)
            self.leadership.pop(partition, None)
            self.unreadable_partitions.discard(partition)
        alike = self._by_metric_name.get(metric_name(name), set())
        alike.discard(name)
        if not alike:
            self._by_metric_name.pop(metric_name(name), None)
        topic_id = self._topics.pop(name, None)
        if topic_id is not None:
            self._names.pop(topic_id, None)
        self._count(self._assignments.pop(name, {}).values(), -1)
        self.topics_to_delete.discard(name)
        self.deletion_started.discard(name)

    def topic_names(self) -> list[str]:
        return sorted(self._topics)

    def names_like(self, name: str) -> list[str]:
        """The topics whose names are this one or differ from it only in '.' and '_'."""
        return sorted(self._by_metric_name.get(metric_name(name), ()))

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
        """The partition's assignment, an empty one for an unknown partition."""
        return self._assignments.get(partition.topic, {}).get(partition.partition, ReplicaAssignment(()))

    def replicas_of(self, partition: TopicPartition) -> tuple[int, ...]:
        return self.assignment_of(partition).replicas

    def replicas_of_topic(self, name: str) -> list[Replica]:
        return [
            Replica(*partition, broker)
            for partition in self.partitions_of(name)
            for broker in self.replicas_of(partition)
        ]

    def is_new_replica(self, replica: Replica) -> bool:
        """True for a replica that a reassignment adds and that is not in the ISR yet: it holds nothing that counts, so
        its broker may create it in any log directory (`is_new` of LeaderAndIsr)."""
        partition = replica.topic_partition
        if replica.broker not in self.assignment_of(partition).adding:
            return False
        leadership = self.leadership.get(partition)
        return leadership is not None and replica.broker not in leadership.isr

    def is_fully_readable(self) -> bool:
        """False while a topic or a state znode cannot be parsed. Then no request is sent as FULL: a broker deletes the
        replicas that a FULL LeaderAndIsr does not name, and forgets the topics that a FULL UpdateMetadata does not."""
        return not self.unreadable_partitions and not self.unreadable_topics

    def assigned_brokers(self) -> list[int]:
        """Every broker that has a replica, alive or not."""
        return sorted({broker for partition in self.partitions() for broker in self.replicas_of(partition)})

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
        """How many replicas are assigned to each broker, those of topics that are being deleted included."""
        return self._replica_counts.copy()

    def _count(self, assignments: Iterable[ReplicaAssignment], sign: int) -> None:
        for assignment in assignments:
            for broker in assignment.replicas:
                self._replica_counts[broker] += sign

    def is_deleting(self, topic: str) -> bool:
        return topic in self.topics_to_delete

    # Brokers and offline log directories

    def broker_ids(self) -> list[int]:
        return sorted(self.brokers)

    def is_online(self, replica: Replica) -> bool:
        """True when its broker is alive and has not reported its log directory as offline."""
        return replica.broker in self.brokers and replica not in self._offline_log_dirs

    def online_brokers(self, partition: TopicPartition) -> frozenset[int]:
        """The brokers whose replica of the partition can be used."""
        return frozenset(
            broker for broker in self.replicas_of(partition) if self.is_online(Replica(*partition, broker))
        )

    def electable_brokers(self, partition: TopicPartition) -> frozenset[int]:
        """The brokers that an election may choose from: the online ones without those that shut down.

        Those that shut down stay eligible where they alone are online or in sync: a clean leader for a moment is better
        than none, or an unclean one.
        """
        online = self.online_brokers(partition)
        staying = online - self.shutting_down
        leadership = self.leadership.get(partition)
        in_sync = () if leadership is None else leadership.isr
        if not staying or (not staying.intersection(in_sync) and online.intersection(in_sync)):
            return online
        return staying

    def has_leader_restarted(self, partition: TopicPartition) -> bool:
        """True when the leader has registered again since its leadership was written."""
        leadership = self.leadership.get(partition)
        leader = self.brokers.get(leadership.leader) if leadership is not None else None
        if leadership is None or leader is None:
            return False
        if leadership.leader_broker_epoch >= 0:
            return leader.epoch != leadership.leader_broker_epoch
        return leader.epoch > leadership.zxid >= 0

    def with_leader_incarnation(self, leadership: LeaderAndIsr) -> LeaderAndIsr:
        """The leadership to write: with the broker epoch of the leader as this context knows it."""
        leader = self.brokers.get(leadership.leader)
        return replace(leadership, leader_broker_epoch=-1 if leader is None else leader.epoch)

    def isr_candidates(self, partition: TopicPartition) -> frozenset[int]:
        """The brokers that may be in the ISR. A broker that shuts down may stay in it, but does not join it."""
        leadership = self.leadership.get(partition)
        joining = self.shutting_down.difference(() if leadership is None else leadership.isr)
        return self.online_brokers(partition) - joining

    def set_log_dir_offline(self, replica: Replica, offline: bool) -> bool:
        """Records whether the replica's log directory is offline. True when that changes anything."""
        if offline == (replica in self._offline_log_dirs):
            return False
        if offline:
            self._offline_log_dirs.add(replica)
        else:
            self._offline_log_dirs.discard(replica)
        return True

    def forget_offline_log_dirs(self, broker: int) -> None:
        """Takes every log directory of the broker as online: after a restart it reports its offline ones again."""
        self._offline_log_dirs = {replica for replica in self._offline_log_dirs if replica.broker != broker}

    def is_leader_offline(self, partition: TopicPartition) -> bool:
        """True when the partition has a leadership and its leader is offline or none."""
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
        """Sets the state found at failover, which is no transition."""
        self._partition_states[partition] = state

    def replica_state(self, replica: Replica) -> ReplicaState:
        return self._replica_states.get(replica, ReplicaState.NON_EXISTENT)

    def move_replica(self, replica: Replica, state: ReplicaState) -> None:
        """Raises IllegalTransition for a change that the table does not have."""
        check_replica_transition(replica, self.replica_state(replica), state)
        self._replica_states[replica] = state

    def forget_replica(self, replica: Replica) -> None:
        """Removes the state of a replica that is no longer assigned."""
        self._replica_states.pop(replica, None)
        self._offline_log_dirs.discard(replica)

    def init_replica(self, replica: Replica, state: ReplicaState) -> None:
        """Sets the state found at failover, which is no transition."""
        self._replica_states[replica] = state
