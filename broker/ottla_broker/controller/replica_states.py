"""The replica state machine: which states one replica may pass through.

Rule 1: every change of a replica's state goes through `check_replica_transition`; the table is the whole truth.

| to                  | valid from                                  |
|---------------------|---------------------------------------------|
| New                 | NonExistent                                 |
| Online              | New, Online, Offline, DeletionIneligible    |
| Offline             | New, Online, Offline, DeletionIneligible    |
| DeletionStarted     | Offline                                     |
| DeletionSuccessful  | DeletionStarted, DeletionIneligible         |
| DeletionIneligible  | Offline, DeletionStarted                    |
| NonExistent         | DeletionSuccessful                          |

- New: just assigned, has never followed or led.
- Online: its broker is alive and its log directory is online.
- Offline: its broker is dead or its log directory is offline.
- DeletionStarted: a StopReplica with deletion is under way. DeletionSuccessful: the broker has confirmed it.
- DeletionIneligible: it cannot be deleted now (dead broker, offline log directory, an error). The topic's deletion
waits
  until the broker or the log directory is back. An earlier StopReplica may still succeed.

Pure. Not here: the requests that go with a transition (`acts`).

Source: ReplicaStateMachine of Apache Kafka.
"""

from __future__ import annotations

from enum import Enum

from ottla_broker.controller.partition_states import IllegalTransition
from ottla_broker.controller.values import Replica


class ReplicaState(Enum):
    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


_S = ReplicaState

VALID_PREVIOUS_REPLICA_STATES: dict[ReplicaState, frozenset[ReplicaState]] = {
    _S.NEW: frozenset({_S.NON_EXISTENT}),
    _S.ONLINE: frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE, _S.DELETION_INELIGIBLE}),
    _S.OFFLINE: frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE, _S.DELETION_INELIGIBLE}),
    _S.DELETION_STARTED: frozenset({_S.OFFLINE}),
    _S.DELETION_SUCCESSFUL: frozenset({_S.DELETION_STARTED, _S.DELETION_INELIGIBLE}),
    _S.DELETION_INELIGIBLE: frozenset({_S.OFFLINE, _S.DELETION_STARTED}),
    _S.NON_EXISTENT: frozenset({_S.DELETION_SUCCESSFUL}),
}


def check_replica_transition(replica: Replica, before: ReplicaState, after: ReplicaState) -> None:
    """Raises IllegalTransition unless the table allows it."""
    if before not in VALID_PREVIOUS_REPLICA_STATES[after]:
        raise IllegalTransition(
            f"replica {replica.topic_partition} of broker {replica.broker} cannot become {after.value} "
            f"from {before.value}"
        )
