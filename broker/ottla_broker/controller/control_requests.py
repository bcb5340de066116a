"""Builds the LeaderAndIsr, UpdateMetadata and StopReplica requests that one act sends to the brokers.

Pure. A `RequestBatch` collects which brokers get which partitions; `build` turns it and the context into at most one
request per broker and API. A request may be about every partition of the fleet, so it is built in steps, between which
the caller does other work; the context must stay as it is meanwhile. Not here: sending (`acts.request_sender`),
deciding (`decisions`).

Each broker gets LeaderAndIsr, UpdateMetadata, StopReplica in this order, so a client that learns of a leader finds it
ready. A broker that has just registered needs the endpoints of the others before it can follow them: the caller sends
it an UpdateMetadata in an earlier batch.

Source: AbstractControllerBrokerRequestBatch of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from ottla_broker.config.inter_broker import InterBrokerVersions
from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.values import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    NO_EPOCH,
    LeaderAndIsr,
    RegisteredBroker,
    Replica,
)
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.generated import leader_and_isr, stop_replica, update_metadata
from ottla_broker.records.ids import TopicPartition


class UpdateType(IntEnum):
    """`Type` of LeaderAndIsr v5+ and of UpdateMetadata v8+."""

    UNKNOWN = 0
    """The type of an UpdateMetadata that is not full, as in Apache Kafka."""
    INCREMENTAL = 1
    FULL = 2
    """The request names every replica of the broker, or every topic. Other replicas that the broker has are stray and
    may be deleted; other topics in its metadata are gone."""


SECURITY_PROTOCOLS: Final[Mapping[str, int]] = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Their numbers in UpdateMetadata."""

PARTITIONS_PER_STEP: Final = 250
"""Of a request that is built in steps."""

UPDATE_METADATA_WITH_TYPE: Final = 8
"""The first version of UpdateMetadata with a type."""


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """One request to one broker."""

    broker: int
    api_key: ApiKey
    version: int
    body: Any


class RequestBatch:
    """The requests of one act. The act fills it, and sends it once at its end."""

    def __init__(self) -> None:
        self._leader_and_isr: dict[int, dict[TopicPartition, bool]] = {}
        self._full_leader_and_isr: set[int] = set()
        self._metadata_brokers: set[int] = set()
        self._metadata_partitions: set[TopicPartition] = set()
        self._is_metadata_full = False
        self._stop: dict[int, dict[TopicPartition, bool]] = {}

    def add_leader_and_isr(self, brokers: Iterable[int], partition: TopicPartition, *, is_new: bool = False) -> None:
        """Sends these brokers, which have a replica, the leadership; `is_new` where that creates the replica."""
        for broker in brokers:
            partitions = self._leader_and_isr.setdefault(broker, {})
            partitions[partition] = is_new or partitions.get(partition, False)

    def mark_leader_and_isr_full(self, broker: int) -> None:
        """Makes the broker's LeaderAndIsr FULL; the caller adds every replica that the broker should have."""
        self._full_leader_and_isr.add(broker)
        self._leader_and_isr.setdefault(broker, {})

    def add_metadata(self, brokers: Iterable[int], partitions: Iterable[TopicPartition] = ()) -> None:
        """Sends these brokers the live brokers and these partitions.

        One UpdateMetadata goes to all brokers that any call names, with all partitions that any call names.
        """
        self._metadata_brokers.update(brokers)
        self._metadata_partitions.update(partitions)

    def add_full_metadata(self, brokers: Iterable[int], partitions: Iterable[TopicPartition]) -> None:
        """As `add_metadata` with all partitions: the UpdateMetadata is FULL where its version has a type."""
        self.add_metadata(brokers, partitions)
        self._is_metadata_full = True

    def add_stop_replica(self, replica: Replica, *, delete: bool) -> None:
        """Stops a replica; with `delete` its broker deletes the log, and the batch sends it no leadership of it."""
        if delete:
            self._leader_and_isr.get(replica.broker, {}).pop(replica.topic_partition, None)
        partitions = self._stop.setdefault(replica.broker, {})
        partitions[replica.topic_partition] = delete or partitions.get(replica.topic_partition, False)

    def remove_broker(self, broker: int) -> None:
        """Removes everything that the batch would send to this broker."""
        self._leader_and_isr.pop(broker, None)
        self._full_leader_and_isr.discard(broker)
        self._metadata_brokers.discard(broker)
        self._stop.pop(broker, None)

    def build(
        self, context: ControllerContext, controller_id: int, listener: str, versions: InterBrokerVersions
    ) -> list[ControlRequest]:
        """The requests, sorted by broker; none for brokers that are not alive. `listener` is the inter-broker one."""
        steps = self.build_in_steps(context, controller_id, listener, versions)
        return [request for request in steps if request is not None]

    def build_in_steps(
        self, context: ControllerContext, controller_id: int, listener: str, versions: InterBrokerVersions
    ) -> Iterator[ControlRequest | None]:
        """The same, with None after every PARTITIONS_PER_STEP partitions."""
        metadata: tuple[list[update_metadata.UpdateMetadataTopicState], list[update_metadata.UpdateMetadataBroker]]
        metadata = ([], [])
        if self._metadata_brokers:
            topics = yield from _metadata_topics(context, sorted(self._metadata_partitions))
            metadata = (topics, [_metadata_broker(context.brokers[broker]) for broker in context.broker_ids()])
        is_metadata_full = self._is_metadata_full and versions.update_metadata >= UPDATE_METADATA_WITH_TYPE
        for broker in context.broker_ids():
            epoch = context.brokers[broker].epoch
            if broker in self._leader_and_isr:
                body: Any = yield from self._leader_and_isr_request(context, controller_id, broker, listener, versions)
                if body is not None:
                    yield ControlRequest(broker, ApiKey.LEADER_AND_ISR, versions.leader_and_isr, body)
            if broker in self._metadata_brokers:
                body = update_metadata.UpdateMetadataRequest(
                    controller_id=controller_id,
                    type=UpdateType.FULL if is_metadata_full else UpdateType.UNKNOWN,
                    controller_epoch=context.epoch,
                    broker_epoch=epoch,
                    topic_states=metadata[0],
                    live_brokers=metadata[1],
                )
                yield ControlRequest(broker, ApiKey.UPDATE_METADATA, versions.update_metadata, body)
            if broker in self._stop:
                body = stop_replica.StopReplicaRequest(
                    controller_id=controller_id,
                    controller_epoch=context.epoch,
                    broker_epoch=epoch,
                    topic_states=_stopped_topics(context, self._stop[broker]),
                )
                yield ControlRequest(broker, ApiKey.STOP_REPLICA, versions.stop_replica, body)

    def _leader_and_isr_request(
        self,
        context: ControllerContext,
        controller_id: int,
        broker: int,
        listener: str,
        versions: InterBrokerVersions,
    ) -> Generator[None, None, leader_and_isr.LeaderAndIsrRequest | None]:
        partitions = self._leader_and_isr[broker]
        topics: dict[str, leader_and_isr.LeaderAndIsrTopicState] = {}
        leaders: set[int] = set()
        for number, partition in enumerate(sorted(partitions), 1):
            if not number % PARTITIONS_PER_STEP:
                yield
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
        is_full = broker in self._full_leader_and_isr
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
) -> Generator[None, None, list[update_metadata.UpdateMetadataTopicState]]:
    topics: dict[str, update_metadata.UpdateMetadataTopicState] = {}
    for number, partition in enumerate(partitions, 1):
        if not number % PARTITIONS_PER_STEP:
            yield
        leadership = context.leadership.get(partition)
        is_deleted = context.is_deleting(partition.topic)
        if leadership is None and is_deleted and partition in context.unreadable_partitions:
            # An earlier controller may have put it into the metadata of brokers.
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


def _metadata_broker(broker: RegisteredBroker) -> update_metadata.UpdateMetadataBroker:
    return update_metadata.UpdateMetadataBroker(
        id=broker.id,
        endpoints=[
            update_metadata.UpdateMetadataEndpoint(
                host=endpoint.host,
                port=endpoint.port,
                listener=endpoint.listener,
                security_protocol=SECURITY_PROTOCOLS.get(endpoint.security_protocol, 0),
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


def add_full_update_metadata(batch: RequestBatch, context: ControllerContext, brokers: Iterable[int]) -> None:
    """Sends these brokers all topics.

    Where everything is readable the request is FULL: a broker that stayed alive without a session, or whose controller
    died, may have missed the deletion of a topic, and no later request would name that topic.
    """
    add = batch.add_full_metadata if context.is_fully_readable() else batch.add_metadata
    add(brokers, context.partitions())


def add_full_leader_and_isr(batch: RequestBatch, context: ControllerContext, brokers: Iterable[int]) -> None:
    """Sends each of these brokers all its replicas, where everything is readable in a FULL LeaderAndIsr."""
    if context.is_fully_readable():
        for broker in sorted(brokers):
            batch.mark_leader_and_isr_full(broker)
    for replica in context.replicas_on(brokers):
        if not context.is_deleting(replica.topic):
            batch.add_leader_and_isr([replica.broker], replica.topic_partition, is_new=context.is_new_replica(replica))


def deleted_partitions(stop_replica: Any) -> list[TopicPartition]:
    """The partitions that a StopReplica v3+ asks to delete."""
    return [
        TopicPartition(topic.topic_name, entry.partition_index)
        for topic in stop_replica.topic_states
        for entry in topic.partition_states
        if entry.delete_partition
    ]
