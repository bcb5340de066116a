"""LocalReplicas: the state of every replica on this broker, by partition.

Lives here: the values, and which replicas are in a state that somebody asks for. `apply` is the only way to change one.
Not here: what follows from an event (`replica_states`), carrying the effects out (`command_execution`). On the broker's
loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.replica_states.local_replica import LocalReplica, LocalReplicaState, Reported
from ottla_broker.replication.replica_states.replica_events import ReplicaEvent
from ottla_broker.replication.replica_states.states import decide
from ottla_broker.replication.replica_states.transitions import ReplicaDecision

_ABSENT: Final = LocalReplica()


class LocalReplicas:
    """See the module. `on_change` is called with each new value."""

    def __init__(self, on_change: Callable[[TopicPartition, LocalReplica], None]) -> None:
        self._on_change = on_change
        self._values: dict[TopicPartition, LocalReplica] = {}
        self._by_state: dict[LocalReplicaState, dict[TopicPartition, None]] = {state: {} for state in LocalReplicaState}
        self._reported_offline: dict[TopicPartition, None] = {}
        self._catching_up: dict[TopicPartition, None] = {}
        self._short: dict[TopicPartition, None] = {}
        self._power_loss_suspected: dict[TopicPartition, None] = {}

    def __getitem__(self, partition: TopicPartition) -> LocalReplica:
        return self._values.get(partition, _ABSENT)

    def apply(self, partition: TopicPartition, event: ReplicaEvent) -> ReplicaDecision:
        """Decides and keeps the new value; the caller carries the effects out."""
        before = self[partition]
        decision = decide(before, event)
        after = decision.replica
        if after is not before and after != before:
            self._keep(partition, before, after)
        return decision

    def _keep(self, partition: TopicPartition, before: LocalReplica, after: LocalReplica) -> None:
        self._by_state[before.state].pop(partition, None)
        if after == _ABSENT:
            del self._values[partition]
        else:
            self._values[partition] = after
            self._by_state[after.state][partition] = None
        for found, is_in in (
            (self._reported_offline, after.reported is Reported.OFFLINE),
            (self._catching_up, not after.is_caught_up),
            (self._short, after.has_lost_tail),
            (self._power_loss_suspected, after.power_loss_suspected),
        ):
            if is_in:
                found[partition] = None
            else:
                found.pop(partition, None)
        self._on_change(partition, after)

    def in_state(self, state: LocalReplicaState) -> Collection[TopicPartition]:
        """The replicas in this state, as they are at any time."""
        return self._by_state[state].keys()

    @property
    def reported_offline(self) -> Collection[TopicPartition]:
        """The replicas that the controller takes for offline, as they are at any time."""
        return self._reported_offline.keys()

    @property
    def catching_up(self) -> Collection[TopicPartition]:
        """Recreated replicas that have not had every committed record, as they are at any time."""
        return self._catching_up.keys()

    @property
    def power_loss_suspected(self) -> Collection[TopicPartition]:
        """The replicas whose log directory may have lost what was not flushed, as they are at any time."""
        return self._power_loss_suspected.keys()

    @property
    def has_offline(self) -> bool:
        """Whether any replica is offline for its clients."""
        return bool(self._by_state[LocalReplicaState.OFFLINE] or self._short)
