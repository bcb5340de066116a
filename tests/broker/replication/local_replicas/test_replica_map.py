"""The map of all local replicas: its indexes say the same as the values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.local_replicas.replica_map import LocalReplicas
from ottla_broker.replication.replica_states.local_replica import LocalReplica, LocalReplicaState, Reported
from ottla_broker.replication.replica_states.replica_events import LogDirFailed, LogFound, ReplicaEvent
from ottla_broker.replication.replica_states.states import RefusedEvent
from tests.broker.replication.replica_states.test_states import EVENTS

PARTITIONS = [TopicPartition("t", index) for index in range(3)]


@given(st.lists(st.tuples(st.sampled_from(PARTITIONS), EVENTS), max_size=40))
def test_the_indexes_name_the_replicas_whose_values_say_so(events: list[tuple[TopicPartition, ReplicaEvent]]) -> None:
    notified: dict[TopicPartition, LocalReplica] = {}
    replicas = LocalReplicas(notified.__setitem__)
    for partition, event in events:
        try:
            replicas.apply(partition, event)
        except RefusedEvent:
            continue
    values = {partition: replicas[partition] for partition in PARTITIONS}
    assert values == {partition: notified.get(partition, LocalReplica()) for partition in PARTITIONS}
    for state in set(LocalReplicaState) - {LocalReplicaState.ABSENT}:
        assert set(replicas.in_state(state)) == {tp for tp, one in values.items() if one.state is state}
    assert set(replicas.reported_offline) == {tp for tp, one in values.items() if one.reported is Reported.OFFLINE}
    assert set(replicas.catching_up) == {tp for tp, one in values.items() if not one.is_caught_up}
    assert set(replicas.power_loss_suspected) == {tp for tp, one in values.items() if one.power_loss_suspected}
    assert replicas.has_offline is any(one.is_offline for one in values.values())


def test_a_change_notifies_once_and_an_event_without_consequence_does_not() -> None:
    notified: list[LocalReplicaState] = []
    replicas = LocalReplicas(lambda partition, replica: notified.append(replica.state))
    replicas.apply(PARTITIONS[0], LogFound("/d0"))
    replicas.apply(PARTITIONS[0], LogDirFailed("/d0"))
    replicas.apply(PARTITIONS[0], LogDirFailed("/d0"))
    assert notified == [LocalReplicaState.LOADED, LocalReplicaState.OFFLINE]
