"""Replicas on a full log directory: who hands over to the others in sync, and who goes on alone.

A full directory takes no appends, and is not lost: it serves reads, and has room again some day. Where another replica
is in sync, that one does better. The broker answers LeaderAndIsr with KAFKA_STORAGE_ERROR (56), as for a failed
directory; the controller elects another leader, takes this replica out of the ISR, and asks again when the broker
writes that the directory has changed. Where no other is in sync the replica keeps its leadership and refuses appends.

`decide_full` is pure. `FullDirectories` remembers which replicas have been handed over, and sees when that went wrong:
two full replicas that point at each other, or one whose successor died, leave a partition without leader. Not here:
carrying out commands (`replica_manager`), measuring disks (`storage`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ottla_broker.metadata.cache import NO_LEADER, MetadataCache
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.partition import Partition


@dataclass(frozen=True, slots=True)
class FullDecision:
    """Whether the replica is to be answered for with 56, and why."""

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


class FullDirectories:
    """Of one broker. `report` has the controller ask again about this broker's replicas."""

    def __init__(self, metadata: MetadataCache, report: Callable[[], None]) -> None:
        self._metadata = metadata
        self._report = report
        self._handed_over: dict[TopicPartition, None] = {}

    def decide(self, tp: TopicPartition, isr: Sequence[int]) -> FullDecision:
        """For a replica whose log is full, and the ISR that the controller has just named."""
        known = self._metadata.partition(*tp)
        offline = () if known is None else known.offline_replicas
        usable = [broker for broker in self._metadata.brokers if broker not in offline]
        return decide_full(self._metadata.broker_id, isr=isr, usable=usable)

    def hand_over(self, partition: Partition) -> None:
        """The controller was answered 56 for a replica that is only full; it has resigned.

        A log that had assigned what it could not write has room later than its directory: when that is taken back.
        """
        self._handed_over[partition.topic_partition] = None

        def on_write() -> None:
            if not partition.log.is_full:
                partition.on_follower_write = None
                self._report()

        partition.on_follower_write = on_write
        on_write()

    def take_back(self, tp: TopicPartition) -> None:
        """The replica leads or follows again, or is gone."""
        self._handed_over.pop(tp, None)

    def is_handed_over(self, tp: TopicPartition) -> bool:
        return tp in self._handed_over

    def on_metadata_changed(self) -> None:
        """Reports when a partition that was handed over has found no leader, and would have one here."""
        broker_id = self._metadata.broker_id
        for tp in self._handed_over:
            known = self._metadata.partition(*tp)
            if known is None or known.leader != NO_LEADER or broker_id not in known.isr:
                continue
            if not self.decide(tp, known.isr).hand_over:
                self._report()
                return
