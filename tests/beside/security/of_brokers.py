"""APIs that only brokers send. Granted, they are stale: nothing happens."""

from __future__ import annotations

from typing import Any

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from tests.beside.security.names import TOPIC, Names
from tests.beside.security.rows import Row
from tests.beside.security.world import World

_CLUSTER_ACTION = (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
_ALTER = (AclOperation.ALTER, ResourceType.CLUSTER)
_BROKER_ID, _NO_BROKER = 1, 99
_STALE = 0
"""Epoch of the controller and of the broker."""


def _leader_and_isr(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.LEADER_AND_ISR)
    partition = {"partition_index": 0, "controller_epoch": _STALE, "leader": _BROKER_ID, "isr": [_BROKER_ID]}
    state = api.LeaderAndIsrPartitionState(topic_name=TOPIC if version < 2 else "", **partition)
    if version < 2:
        states = {"ungrouped_partition_states": [state]}
    else:
        states = {"topic_states": [api.LeaderAndIsrTopicState(topic_name=TOPIC, partition_states=[state])]}
    return api.LeaderAndIsrRequest(
        controller_id=_BROKER_ID, controller_epoch=_STALE, broker_epoch=_STALE if version >= 2 else -1, **states
    )


def _stop_replica(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.STOP_REPLICA)
    if version < 1:
        topics = {"ungrouped_partitions": [api.StopReplicaPartitionV0(topic_name=TOPIC)]}
    elif version < 3:
        topics = {"topics": [api.StopReplicaTopicV1(name=TOPIC, partition_indexes=[0])]}
    else:
        state = api.StopReplicaPartitionState(partition_index=0, delete_partition=True)
        topics = {"topic_states": [api.StopReplicaTopicState(topic_name=TOPIC, partition_states=[state])]}
    return api.StopReplicaRequest(
        controller_id=_BROKER_ID,
        controller_epoch=_STALE,
        broker_epoch=_STALE if version >= 1 else -1,
        delete_partitions=version < 3,
        **topics,
    )


def _update_metadata(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.UPDATE_METADATA)
    return api.UpdateMetadataRequest(
        controller_id=_BROKER_ID, controller_epoch=_STALE, broker_epoch=_STALE if version >= 5 else -1
    )


def _controlled_shutdown(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.CONTROLLED_SHUTDOWN)
    return api.ControlledShutdownRequest(broker_id=_NO_BROKER, broker_epoch=_STALE if version >= 2 else -1)


def _alter_partition(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.ALTER_PARTITION)
    partition = api.PartitionData(partition_index=0)
    topic = (
        api.TopicData(topic_name=TOPIC, partitions=[partition])
        if version < 2
        else api.TopicData(topic_id=world.topic_id(TOPIC), partitions=[partition])
    )
    return api.AlterPartitionRequest(broker_id=_BROKER_ID, broker_epoch=_STALE, topics=[topic])


def _allocate_producer_ids(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.ALLOCATE_PRODUCER_IDS)
    return api.AllocateProducerIdsRequest(broker_id=_BROKER_ID, broker_epoch=_STALE)


ROWS = tuple(
    Row(api_key, build, (_CLUSTER_ACTION,), instead=((_ALTER,),))
    for api_key, build in (
        (ApiKey.LEADER_AND_ISR, _leader_and_isr),
        (ApiKey.STOP_REPLICA, _stop_replica),
        (ApiKey.UPDATE_METADATA, _update_metadata),
        (ApiKey.CONTROLLED_SHUTDOWN, _controlled_shutdown),
        (ApiKey.ALTER_PARTITION, _alter_partition),
        (ApiKey.ALLOCATE_PRODUCER_IDS, _allocate_producer_ids),
    )
)
