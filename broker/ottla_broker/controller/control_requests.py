"""LeaderAndIsr, UpdateMetadata and StopReplica, built from what the controller has decided.

Pure: a `RequestBatch` collects who must hear of which partitions while an event is worked on, `build` turns it and
the context into one request per broker and API. Not here: sending (`channels_port`), deciding.

Per broker the order is LeaderAndIsr, UpdateMetadata, StopReplica: a client that learns of a leader finds it ready.
A broker that is new to the fleet needs the endpoints of the others before it can follow them: the caller sends it an
UpdateMetadata in a batch of its own first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from ottla_broker.config.inter_broker import InterBrokerVersions
from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.values import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    NO_EPOCH,
    Broker,
    LeaderAndIsr,
    Replica,
)
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.generated import leader_and_isr, stop_replica, update_metadata
from ottla_broker.records.ids import TopicPartition


class UpdateType(IntEnum):
    """`Type` of LeaderAndIsr v5+ and of UpdateMetadata v8+."""

    UNKNOWN = 0
    """Of an UpdateMetadata that is not full, as Apache Kafka's."""
    INCREMENTAL = 1
    FULL = 2
    """Names every replica of the broker, or every topic: what it holds besides is stray and may be deleted, topics that
    it knows besides are gone."""


UPDATE_METADATA_WITH_TYPE: Final = 8
"""Before this version an UpdateMetadata cannot say that it is full."""


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """One request to one broker."""

    broker: int
    api_key: ApiKey
    version: int
    body: Any


class RequestBatch:
    """Who must hear of what. Filled by the acts of one event, built and sent once at its end."""

    def __init__(self) -> None:
        self._leader_and_isr: dict[int, dict[TopicPartition, bool]] = {}
        self._full: set[int] = set()
        self._metadata_brokers: set[int] = set()
        self._metadata_partitions: set[TopicPartition] = set()
        self._is_metadata_full = False
        self._stop: dict[int, dict[TopicPartition, bool]] = {}

    def tell_leadership(self, brokers: Iterable[int], partition: TopicPartition, *, is_new: bool = False) -> None:
        """The brokers hold a replica and must hear who leads; `is_new` the first time they hear of the partition."""
        for broker in brokers:
            partitions = self._leader_and_isr.setdefault(broker, {})
            partitions[partition] = is_new or partitions.get(partition, False)

    def tell_everything(self, broker: int) -> None:
        """The broker's LeaderAndIsr of this batch is FULL: it names every replica that the broker should have."""
        self._full.add(broker)
        self._leader_and_isr.setdefault(broker, {})

    def tell_metadata(self, brokers: Iterable[int], partitions: Iterable[TopicPartition] = ()) -> None:
        """The brokers must hear of the live brokers, and of the partitions that any part of the batch names."""
        self._metadata_brokers.update(brokers)
        self._metadata_partitions.update(partitions)

    def tell_all_metadata(self, brokers: Iterable[int], partitions: Iterable[TopicPartition]) -> None:
        """As `tell_metadata`, of all partitions: the UpdateMetadata of this batch is FULL if its version can say so."""
        self.tell_metadata(brokers, partitions)
        self._is_metadata_full = True

    def stop(self, replica: Replica, *, delete: bool) -> None:
        """The replica's broker stops fetching or leading, and deletes the log if asked.

        One that is to be deleted hears no leadership in this batch.
        """
        if delete:
            self._leader_and_isr.get(replica.broker, {}).pop(replica.topic_partition, None)
        partitions = self._stop.setdefault(replica.broker, {})
        partitions[replica.topic_partition] = delete or partitions.get(replica.topic_partition, False)

    def leave_out(self, broker: int) -> None:
        """This broker hears nothing of what the batch says so far."""
        self._leader_and_isr.pop(broker, None)
        self._full.discard(broker)
        self._metadata_brokers.discard(broker)
        self._stop.pop(broker, None)

    def build(
        self, context: ControllerContext, controller_id: int, listener: str, versions: InterBrokerVersions
    ) -> list[ControlRequest]:
        """The requests, by broker; brokers that are not alive get none. `listener` is the inter-broker one."""
        metadata: tuple[list[update_metadata.UpdateMetadataTopicState], list[update_metadata.UpdateMetadataBroker]]
        metadata = ([], [])
        if self._metadata_brokers:
            metadata = (
                _metadata_topics(context, sorted(self._metadata_partitions)),
                [_metadata_broker(context.brokers[broker]) for broker in context.broker_ids()],
            )
        is_metadata_full = self._is_metadata_full and versions.update_metadata >= UPDATE_METADATA_WITH_TYPE
        requests = []
        for broker in context.broker_ids():
            epoch = context.brokers[broker].epoch
            if broker in self._leader_and_isr:
                body: Any = self._leader_and_isr_request(context, controller_id, broker, listener, versions)
                if body is not None:
                    requests.append(ControlRequest(broker, ApiKey.LEADER_AND_ISR, versions.leader_and_isr, body))
            if broker in self._metadata_brokers:
                body = update_metadata.UpdateMetadataRequest(
                    controller_id=controller_id,
                    type=UpdateType.FULL if is_metadata_full else UpdateType.UNKNOWN,
                    controller_epoch=context.epoch,
                    broker_epoch=epoch,
                    topic_states=metadata[0],
                    live_brokers=metadata[1],
                )
                requests.append(ControlRequest(broker, ApiKey.UPDATE_METADATA, versions.update_metadata, body))
            if broker in self._stop:
                body = stop_replica.StopReplicaRequest(
                    controller_id=controller_id,
                    controller_epoch=context.epoch,
                    broker_epoch=epoch,
                    topic_states=_stopped_topics(context, self._stop[broker]),
                )
                requests.append(ControlRequest(broker, ApiKey.STOP_REPLICA, versions.stop_replica, body))
        return requests

    def _leader_and_isr_request(
        self,
        context: ControllerContext,
        controller_id: int,
        broker: int,
        listener: str,
        versions: InterBrokerVersions,
    ) -> leader_and_isr.LeaderAndIsrRequest | None:
        partitions = self._leader_and_isr[broker]
        topics: dict[str, leader_and_isr.LeaderAndIsrTopicState] = {}
        leaders: set[int] = set()
        for partition in sorted(partitions):
            leadership = context.leadership.get(partition)
            if leadership is None:
                continue
            leaders.add(leadership.leader)
            topic = topics.get(partition.topic)
            if topic is None:
                topic = topics[partition.topic] = leader_and_isr.LeaderAndIsrTopicState(
                    topic_name=partition.topic, topic_id=context.topic_id(partition.topic) or ZERO_UUID
                )
            state = _leader_and_isr_state(context, partition, leadership, partitions[partition])
            if versions.has_leader_recovery:
                state.leader_recovery_state = leadership.recovery_state
            topic.partition_states.append(state)
        is_full = broker in self._full
        if not topics and not is_full:
            return None
        live_leaders = []
        for leader in sorted(leaders & context.brokers.keys()):
            endpoint = context.brokers[leader].endpoint(listener)
            if endpoint is not None:
                live_leaders.append(
                    leader_and_isr.LeaderAndIsrLiveLeader(broker_id=leader, host_name=endpoint.host, port=endpoint.port)
                )
        return leader_and_isr.LeaderAndIsrRequest(
            controller_id=controller_id,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker].epoch,
            type=UpdateType.FULL if is_full else UpdateType.INCREMENTAL,
            topic_states=list(topics.values()),
            live_leaders=live_leaders,
        )


def _leader_and_isr_state(
    context: ControllerContext, partition: TopicPartition, leadership: LeaderAndIsr, is_new: bool
) -> leader_and_isr.LeaderAndIsrPartitionState:
    assignment = context.assignment_of(partition)
    return leader_and_isr.LeaderAndIsrPartitionState(
        partition_index=partition.partition,
        controller_epoch=leadership.controller_epoch,
        leader=leadership.leader,
        leader_epoch=leadership.leader_epoch,
        isr=list(leadership.isr),
        partition_epoch=leadership.partition_epoch,
        replicas=list(assignment.replicas),
        adding_replicas=list(assignment.adding),
        removing_replicas=list(assignment.removing),
        is_new=is_new,
    )


def _metadata_topics(
    context: ControllerContext, partitions: list[TopicPartition]
) -> list[update_metadata.UpdateMetadataTopicState]:
    topics: dict[str, update_metadata.UpdateMetadataTopicState] = {}
    for partition in partitions:
        leadership = context.leadership.get(partition)
        is_deleted = context.is_deleting(partition.topic)
        if leadership is None and is_deleted and partition in context.unreadable:
            # An earlier controller may have told of it.
            leadership = LeaderAndIsr(LEADER_DURING_DELETE, 0, (), 0, context.epoch)
        if leadership is None:
            continue
        topic = topics.get(partition.topic)
        if topic is None:
            topic = topics[partition.topic] = update_metadata.UpdateMetadataTopicState(
                topic_name=partition.topic, topic_id=context.topic_id(partition.topic) or ZERO_UUID
            )
        online = context.online_brokers(partition)
        replicas = context.replicas_of(partition)
        topic.partition_states.append(
            update_metadata.UpdateMetadataPartitionState(
                partition_index=partition.partition,
                controller_epoch=leadership.controller_epoch,
                leader=LEADER_DURING_DELETE if is_deleted else leadership.leader,
                leader_epoch=0 if is_deleted else leadership.leader_epoch,
                isr=list(leadership.isr),
                zk_version=0 if is_deleted else leadership.partition_epoch,
                replicas=list(replicas),
                offline_replicas=[broker for broker in replicas if broker not in online],
            )
        )
    return list(topics.values())


def _metadata_broker(broker: Broker) -> update_metadata.UpdateMetadataBroker:
    return update_metadata.UpdateMetadataBroker(
        id=broker.id,
        endpoints=[
            update_metadata.UpdateMetadataEndpoint(
                host=endpoint.host,
                port=endpoint.port,
                listener=endpoint.listener,
                security_protocol=endpoint.security_protocol,
            )
            for endpoint in broker.endpoints
        ],
        rack=broker.rack,
    )


def _stopped_topics(
    context: ControllerContext, partitions: dict[TopicPartition, bool]
) -> list[stop_replica.StopReplicaTopicState]:
    topics: dict[str, stop_replica.StopReplicaTopicState] = {}
    for partition in sorted(partitions):
        leadership = context.leadership.get(partition)
        if context.is_deleting(partition.topic):
            epoch = EPOCH_DURING_DELETE
        else:
            epoch = NO_EPOCH if leadership is None else leadership.leader_epoch
        topics.setdefault(
            partition.topic, stop_replica.StopReplicaTopicState(topic_name=partition.topic)
        ).partition_states.append(
            stop_replica.StopReplicaPartitionState(
                partition_index=partition.partition, leader_epoch=epoch, delete_partition=partitions[partition]
            )
        )
    return list(topics.values())


def deleted_partitions(stop_replica: Any) -> list[TopicPartition]:
    """The partitions that a StopReplica v3+ asks to delete."""
    return [
        TopicPartition(topic.topic_name, entry.partition_index)
        for topic in stop_replica.topic_states
        for entry in topic.partition_states
        if entry.delete_partition
    ]
