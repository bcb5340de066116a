"""The partition state machine: which states a partition may pass through.

Rule 1: every change of a partition's state goes through `check_partition_transition`; the table is the whole truth.

| from \\ to    | NonExistent | New | Online | Offline |
|--------------|-------------|-----|--------|---------|
| NonExistent  |             | yes |        |         |
| New          |             |     | yes    | yes     |
| Online       |             |     | yes    | yes     |
| Offline      | yes         |     | yes    | yes     |

- New: assigned, never had a leader; its state znode does not exist.
- Online: has a leader that is online. Online to Online is an election while the leader is online.
- Offline: has had a leader, which is offline.
- NonExistent: never created, or deleted. Only an offline partition can be deleted.

Pure. Not here: who becomes leader (`decisions.leader_election`).

Source: PartitionStateMachine of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Set
from enum import Enum

from ottla_broker.controller.values import LeaderAndIsr
from ottla_broker.records.ids import TopicPartition


class PartitionState(Enum):
    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


VALID_PREVIOUS_PARTITION_STATES: dict[PartitionState, frozenset[PartitionState]] = {
    PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.OFFLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
}


class IllegalTransition(Exception):
    """The controller tried a change that the table does not have: a bug of the controller, whatever the input."""


def check_partition_transition(partition: TopicPartition, before: PartitionState, after: PartitionState) -> None:
    """Raises IllegalTransition unless the table allows it."""
    if before not in VALID_PREVIOUS_PARTITION_STATES[after]:
        raise IllegalTransition(f"partition {partition} cannot become {after.value} from {before.value}")


def initial_partition_state(leadership: LeaderAndIsr | None, online: Set[int]) -> PartitionState:
    """The state of an assigned partition at failover."""
    if leadership is None:
        return PartitionState.NEW
    return PartitionState.ONLINE if leadership.leader in online else PartitionState.OFFLINE
