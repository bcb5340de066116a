"""Replicas on a full log directory: whether others in sync are to lead, and when this broker can again.

A full directory takes no appends, and is not lost: it serves reads, and has room again some day. Where another replica
is in sync, that one does better. The broker answers LeaderAndIsr with KAFKA_STORAGE_ERROR (56), as for a failed
directory; the controller elects another leader, takes this replica out of the ISR, and asks again when the broker
reports that the directory has changed. Where no other is in sync the replica keeps its leadership and refuses appends.

`decide_full` is pure. `FullLogDirs` applies it to the metadata, and sees when a replica that was handed over has to be
asked for again: its log has room, two full replicas point at each other, or the one that was to lead died. Not here:
the states of a replica (`replica_states`), carrying out commands (`command_execution`), measuring disks (`storage`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ottla_broker.metadata.cache import NO_LEADER, MetadataCache
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.local_replicas.replica_map import LocalReplicas
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.replica_states.local_replica import LocalReplicaState
from ottla_broker.replication.replica_states.replica_events import LogHasRoom


@dataclass(frozen=True, slots=True)
class FullDecision:
    """Whether LeaderAndIsr is answered KAFKA_STORAGE_ERROR for the replica, and why."""

    hand_over: bool
    reason: str


def decide_full(broker_id: int, *, isr: Sequence[int], usable: Collection[int]) -> FullDecision:
    """`usable` are the brokers that live and whose replica is not known to be offline.

    >>> decide_full(1, isr=(1, 2), usable={1, 2}).reason
    'its log directory is full, 2 is in sync'
    >>> decide_full(1, isr=(1, 2), usable={1}).reason
    'its log directory is full, and no other replica is in sync: it serves reads'
    """
    other = next((broker for broker in isr if broker != broker_id and broker in usable), None)
    if other is None:
        return FullDecision(False, "its log directory is full, and no other replica is in sync: it serves reads")
    return FullDecision(True, f"its log directory is full, {other} is in sync")


class FullLogDirs:
    """The full log directories of one broker. `report` has the controller send LeaderAndIsr for its replicas again."""

    def __init__(self, metadata: MetadataCache, replicas: LocalReplicas, report: Callable[[], None]) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._report = report

    def leave_to_others(self, tp: TopicPartition, isr: Sequence[int]) -> str:
        """Why others are to lead a replica whose log is full, by the ISR that the controller has just named; "" where
        it keeps its place."""
        decision = self._decide(tp, isr)
        return decision.reason if decision.hand_over else ""

    def _decide(self, tp: TopicPartition, isr: Sequence[int]) -> FullDecision:
        known = self._metadata.partition(*tp)
        offline = () if known is None else known.offline_replicas
        usable = [broker for broker in self._metadata.brokers if broker not in offline]
        return decide_full(self._metadata.broker_id, isr=isr, usable=usable)

    def report_room(self, partition: Partition) -> None:
        """Reports once the log of a replica that was handed over takes appends again.

        A log that had assigned what it could not write has room later than its directory: when
        it ends again at its last written record.
        """

        def on_write() -> None:
            if not partition.log.state.is_full:
                partition.on_follower_write = None
                if self._replicas.apply(partition.topic_partition, LogHasRoom()).effects:
                    self._report()

        partition.on_follower_write = on_write
        on_write()

    def on_metadata_changed(self) -> None:
        """Reports when a partition that was handed over has found no leader, and would have one here."""
        broker_id = self._metadata.broker_id
        for tp in self._replicas.in_state(LocalReplicaState.HANDED_OVER_FULL):
            known = self._metadata.partition(*tp)
            if known is None or known.leader != NO_LEADER or broker_id not in known.isr:
                continue
            if not self._decide(tp, known.isr).hand_over:
                self._report()
                return
