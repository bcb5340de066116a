"""What brokers of a release understand of each other: the table behind `inter.broker.protocol.version`. Pure.

Clients agree on a version by ApiVersions; brokers send what this key says, so that a fleet can be taken from one
release to the next broker by broker: first the programs, with the key at the old release, then the key. Every request
that one broker sends to another takes its version from here, and so does what is written for other brokers to read.
What a broker *reads* does not depend on it: it answers every version that it lists.

Not here: which releases may be named (`releases`).

    >>> inter_broker_versions("3.9-IV0").fetch, inter_broker_versions("2.8").fetch
    (17, 12)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla_broker.config.releases import level

_FETCH: Final = (
    ((3, 9, 0), 17),
    ((3, 7, 4), 16),
    ((3, 5, 1), 15),
    ((3, 5, 0), 14),
    ((3, 1, 0), 13),
    ((2, 7, 1), 12),
)
"""17: directory ids (KIP-853). 16: node endpoints (KIP-951). 15: the replica's broker epoch (KIP-903). 14: tiered
storage (KIP-405). 13: topic ids (KIP-516). 12: truncation by the answer (KIP-595)."""
_LIST_OFFSETS: Final = (((3, 9, 0), 9), ((3, 5, 0), 8), ((3, 0, 1), 7), ((2, 8, 0), 6))
"""9: KIP-1005. 8: KIP-405. 7: the largest timestamp (KIP-734). 6: flexible."""
_OFFSET_FOR_LEADER_EPOCH: Final = (((2, 8, 0), 4),)
"""4: flexible."""
_ALTER_PARTITION: Final = (((3, 5, 1), 3), ((3, 3, 3), 2), ((3, 2, 0), 1), ((2, 7, 2), 0))
"""3: broker epochs of the ISR's members (KIP-903). 2: topic ids (KIP-841). 1: leader recovery state (KIP-704).

Apache Kafka takes what the controller lists in ApiVersions; the releases here are those whose controllers first list
the version, so that both say the same to a controller of the key's release, and ours says less to a newer one."""
_LEADER_AND_ISR: Final = (((3, 4, 0), 7), ((3, 2, 0), 6), ((2, 8, 1), 5))
"""7: isKRaftController (KIP-866). 6: leader recovery state (KIP-704). 5: topic ids, type (KIP-516)."""
_UPDATE_METADATA: Final = (((3, 4, 0), 8), ((2, 8, 1), 7))
"""8: isKRaftController (KIP-866). 7: topic ids (KIP-516)."""
_STOP_REPLICA: Final = (((3, 4, 0), 4), ((2, 6, 0), 3))
"""4: isKRaftController (KIP-866). 3: leader epoch and deletion per partition (KIP-570)."""
_CONTROLLED_SHUTDOWN: Final = (((2, 4, 1), 3),)
"""3: flexible."""
_WRITE_TXN_MARKERS: Final = (((2, 8, 0), 1),)
"""1: flexible."""
_NOT_SENT: Final = -1
_ADD_PARTITIONS_TO_TXN: Final = (((3, 8, 0), 5), ((3, 6, 0), 4), ((2, 8, 0), _NOT_SENT))
"""5: TRANSACTION_ABORTABLE. 4: verification (KIP-890). Coordinators of earlier releases verify nothing."""
_FEATURE_ZNODE: Final = (((3, 3, 0), 2), ((2, 7, 0), 1))
"""Of the JSON in /feature. 2: no minimum levels (KIP-778)."""
_LEADER_RECOVERY: Final = (3, 2, 0)


@dataclass(frozen=True, slots=True)
class InterBrokerVersions:
    """Versions of the requests that a broker sends to others, by API."""

    fetch: int
    list_offsets: int
    offset_for_leader_epoch: int
    alter_partition: int
    leader_and_isr: int
    update_metadata: int
    stop_replica: int
    controlled_shutdown: int
    write_txn_markers: int
    add_partitions_to_txn: int | None
    """To verify transactions; None when they cannot be verified."""
    feature_znode: int
    has_leader_recovery: bool
    """Whether an unclean election leaves the partition RECOVERING, in its state znode and in LeaderAndIsr (KIP-704)."""


def inter_broker_versions(inter_broker_protocol: str) -> InterBrokerVersions:
    """The row of a value of `inter.broker.protocol.version`. ValueError for a release that is not spoken.

    >>> old = inter_broker_versions("2.8")
    >>> old.leader_and_isr, old.update_metadata, old.stop_replica, old.alter_partition, old.has_leader_recovery
    (5, 7, 3, 0, False)
    """
    found = level(inter_broker_protocol)
    if found is None:
        raise ValueError(f"inter.broker.protocol.version {inter_broker_protocol} is not spoken")

    def since(table: tuple[tuple[tuple[int, int, int], int], ...]) -> int:
        return next(version for first, version in table if found >= first)

    verification = since(_ADD_PARTITIONS_TO_TXN)
    return InterBrokerVersions(
        fetch=since(_FETCH),
        list_offsets=since(_LIST_OFFSETS),
        offset_for_leader_epoch=since(_OFFSET_FOR_LEADER_EPOCH),
        alter_partition=since(_ALTER_PARTITION),
        leader_and_isr=since(_LEADER_AND_ISR),
        update_metadata=since(_UPDATE_METADATA),
        stop_replica=since(_STOP_REPLICA),
        controlled_shutdown=since(_CONTROLLED_SHUTDOWN),
        write_txn_markers=since(_WRITE_TXN_MARKERS),
        add_partitions_to_txn=None if verification == _NOT_SENT else verification,
        feature_znode=since(_FEATURE_ZNODE),
        has_leader_recovery=found >= _LEADER_RECOVERY,
    )
