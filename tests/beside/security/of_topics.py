"""APIs that name topics, and whose rights are on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.records.batch import TRANSACTIONAL_MASK
from tests.beside.security.names import ALL_TOPICS, TOPICS, TRANSACTIONAL_ID, Names, beside
from tests.beside.security.rows import NAMES_IDS, Row
from tests.beside.security.world import World, batch

_Op, _Type = AclOperation, ResourceType
_DESCRIBE, _CREATE = (_Op.DESCRIBE, _Type.TOPIC), (_Op.CREATE, _Type.TOPIC)
_DESCRIBE_CONFIGS = (_Op.DESCRIBE_CONFIGS, _Type.TOPIC)
_CREATE_ANY = (_Op.CREATE, _Type.CLUSTER)
_CLUSTER_ACTION = (_Op.CLUSTER_ACTION, _Type.CLUSTER)
_LATEST = -1
_FOLLOWER = 5
"""The id of a broker that there is not."""
_TOPIC_RESOURCE = 2
_SET = 0
_TIMEOUT_MS = 10_000


def _names(names: Names) -> Sequence[str]:
    assert names.topics is not None
    return names.topics


def _produce(world: World, names: Names, version: int, **fields: Any) -> Any:
    api = codec.module(ApiKey.PRODUCE)
    part = api.PartitionProduceData(index=0, records=batch(**fields))
    data = [
        api.TopicProduceData(topic_id=world.topic_id(name), partition_data=[part])
        if version >= NAMES_IDS[ApiKey.PRODUCE]
        else api.TopicProduceData(name=name, partition_data=[part])
        for name in _names(names)
    ]
    return api.ProduceRequest(acks=1, timeout_ms=_TIMEOUT_MS, topic_data=data)


def _produce_in_a_transaction(world: World, names: Names, version: int) -> Any:
    transactional_id = names.transactional_ids[0]
    producer_id, epoch = world.transaction(transactional_id, *_names(names))
    in_a_transaction = {"attributes": TRANSACTIONAL_MASK, "producer_id": producer_id, "producer_epoch": epoch}
    body = _produce(world, names, version, base_sequence=0, **in_a_transaction)
    body.transactional_id = transactional_id
    return body


def _produce_with_an_id(world: World, names: Names, version: int) -> Any:
    body = _produce(world, names, version)
    body.transactional_id = names.transactional_ids[0]
    return body


def _fetch(world: World, names: Names, version: int, replica_id: int = -1) -> Any:
    api = codec.module(ApiKey.FETCH)
    part = api.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topics = [
        api.FetchTopic(topic_id=world.topic_id(name), partitions=[part])
        if version >= NAMES_IDS[ApiKey.FETCH]
        else api.FetchTopic(topic=name, partitions=[part])
        for name in _names(names)
    ]
    body = api.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, session_epoch=-1, topics=topics)
    if version >= 15:
        body.replica_state = api.ReplicaState(replica_id=replica_id, replica_epoch=1)
    else:
        body.replica_id = replica_id
    return body


def _fetch_as_a_follower(world: World, names: Names, version: int) -> Any:
    return _fetch(world, names, version, _FOLLOWER)


def _list_offsets(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.LIST_OFFSETS)
    part = api.ListOffsetsPartition(partition_index=0, timestamp=_LATEST)
    topics = [api.ListOffsetsTopic(name=name, partitions=[part]) for name in _names(names)]
    return api.ListOffsetsRequest(replica_id=-1, topics=topics)


def _epoch_ends(world: World, names: Names, version: int, replica_id: int = -1) -> Any:
    api = codec.module(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    part = api.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topics = [api.OffsetForLeaderTopic(topic=name, partitions=[part]) for name in _names(names)]
    return api.OffsetForLeaderEpochRequest(replica_id=replica_id if version >= 3 else -2, topics=topics)


def _epoch_ends_for_a_follower(world: World, names: Names, version: int) -> Any:
    return _epoch_ends(world, names, version, _FOLLOWER)


def _metadata(world: World, names: Names, version: int, *, creates: bool = False) -> Any:
    api = codec.module(ApiKey.METADATA)
    topics = None if names.topics is None else [api.MetadataRequestTopic(name=name) for name in names.topics]
    return api.MetadataRequest(
        topics=[] if topics is None and version == 0 else topics,
        allow_auto_topic_creation=creates or version < 4,
        include_topic_authorized_operations=version >= 8,
    )


def _metadata_that_creates(world: World, names: Names, version: int) -> Any:
    return _metadata(world, names, version, creates=True)


def _metadata_by_id(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.METADATA)
    topics = [api.MetadataRequestTopic(topic_id=world.topic_id(name), name=None) for name in _names(names)]
    return api.MetadataRequest(topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=True)


def _describe_topic_partitions(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
    topics = [api.TopicRequest(name=name) for name in names.topics or ()]
    return api.DescribeTopicPartitionsRequest(topics=topics)


def _create_topics(world: World, names: Names, version: int, *, validate_only: bool = False) -> Any:
    api = codec.module(ApiKey.CREATE_TOPICS)
    topics = [api.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in _names(names)]
    return api.CreateTopicsRequest(topics=topics, timeout_ms=_TIMEOUT_MS, validate_only=validate_only)


def _validate_topics(world: World, names: Names, version: int) -> Any:
    return _create_topics(world, names, version, validate_only=True)


def _delete_topics(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.DELETE_TOPICS)
    if version < 6:
        return api.DeleteTopicsRequest(topic_names=list(_names(names)), timeout_ms=_TIMEOUT_MS)
    topics = [api.DeleteTopicState(name=name) for name in _names(names)]
    return api.DeleteTopicsRequest(topics=topics, timeout_ms=_TIMEOUT_MS)


def _delete_topics_by_id(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.DELETE_TOPICS)
    topics = [api.DeleteTopicState(name=None, topic_id=world.topic_id(name)) for name in _names(names)]
    return api.DeleteTopicsRequest(topics=topics, timeout_ms=_TIMEOUT_MS)


def _delete_records(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.DELETE_RECORDS)
    part = api.DeleteRecordsPartition(partition_index=0, offset=0)
    topics = [api.DeleteRecordsTopic(name=name, partitions=[part]) for name in _names(names)]
    return api.DeleteRecordsRequest(topics=topics, timeout_ms=_TIMEOUT_MS)


def _create_partitions(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.CREATE_PARTITIONS)
    topics = [api.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in _names(names)]
    return api.CreatePartitionsRequest(topics=topics, timeout_ms=_TIMEOUT_MS, validate_only=True)


def _describe_configs(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.DESCRIBE_CONFIGS)
    resources = [
        api.DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=["retention.ms", "cleanup.policy"]
        )
        for name in _names(names)
    ]
    return api.DescribeConfigsRequest(resources=resources)


def _alter_configs(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.ALTER_CONFIGS)
    configs = [api.AlterableConfig(name="retention.ms", value="-1")]
    resources = [
        api.AlterConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=name, configs=configs)
        for name in _names(names)
    ]
    return api.AlterConfigsRequest(resources=resources, validate_only=True)


def _incremental_alter_configs(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    configs = [api.AlterableConfig(name="retention.ms", config_operation=_SET, value="-1")]
    resources = [
        api.AlterConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=name, configs=configs)
        for name in _names(names)
    ]
    return api.IncrementalAlterConfigsRequest(resources=resources, validate_only=True)


def _describe_producers(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.DESCRIBE_PRODUCERS)
    topics = [api.TopicRequest(name=name, partition_indexes=[0]) for name in _names(names)]
    return api.DescribeProducersRequest(topics=topics)


_WRITE = ((_Op.WRITE, _Type.TOPIC),)
_READ = ((_Op.READ, _Type.TOPIC),)
_IN_A_TRANSACTION = beside(TOPICS, transactional_ids=(TRANSACTIONAL_ID,))
_MAY_CREATE = (
    (_CREATE,),
    (_CREATE_ANY,),
    (_DESCRIBE, _CREATE),
    (_DESCRIBE, _CREATE_ANY),
    (_CREATE_ANY, _DESCRIBE_CONFIGS),
)

ROWS = (
    Row(ApiKey.PRODUCE, _produce, _WRITE, TOPICS),
    Row(
        ApiKey.PRODUCE,
        _produce_in_a_transaction,
        ((_Op.WRITE, _Type.TRANSACTIONAL_ID), *_WRITE),
        {
            **_IN_A_TRANSACTION,
            "missing transactional id": _IN_A_TRANSACTION["existing"].missing(_Type.TRANSACTIONAL_ID),
        },
        "in a transaction",
        lowest=3,
    ),
    Row(
        ApiKey.PRODUCE,
        _produce_with_an_id,
        _WRITE,
        _IN_A_TRANSACTION,
        "with a transactional id and no transactional batch",
        lowest=3,
    ),
    Row(ApiKey.FETCH, _fetch, _READ, TOPICS),
    Row(ApiKey.FETCH, _fetch_as_a_follower, (_CLUSTER_ACTION,), TOPICS, "as a follower", instead=(_READ,)),
    Row(ApiKey.LIST_OFFSETS, _list_offsets, (_DESCRIBE,), TOPICS),
    Row(ApiKey.OFFSET_FOR_LEADER_EPOCH, _epoch_ends, (_DESCRIBE,), TOPICS, instead=((_CLUSTER_ACTION,),)),
    Row(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        _epoch_ends_for_a_follower,
        (_CLUSTER_ACTION,),
        TOPICS,
        "as a follower",
        lowest=3,
        instead=((_DESCRIBE,),),
    ),
    Row(ApiKey.METADATA, _metadata, (_DESCRIBE,), TOPICS, lowest=4, instead=(_WRITE, ((_Op.ALL, _Type.TOPIC),))),
    Row(ApiKey.METADATA, _metadata, (_DESCRIBE,), ALL_TOPICS, instead=((_CREATE_ANY,), _READ)),
    Row(
        ApiKey.METADATA,
        _metadata_that_creates,
        (_DESCRIBE,),
        TOPICS,
        "that may create",
        instead=_MAY_CREATE,
        changes=True,
    ),
    Row(ApiKey.METADATA, _metadata_by_id, (_DESCRIBE,), TOPICS, "by id", lowest=10),
    Row(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        _describe_topic_partitions,
        (_DESCRIBE,),
        {**TOPICS, **ALL_TOPICS},
        is_ours_alone=True,
    ),
    Row(ApiKey.CREATE_TOPICS, _validate_topics, (_CREATE,), TOPICS, "validated", lowest=1, instead=_MAY_CREATE),
    Row(
        ApiKey.CREATE_TOPICS,
        _create_topics,
        (_CREATE, _DESCRIBE_CONFIGS),
        TOPICS,
        instead=_MAY_CREATE,
        changes=True,
    ),
    Row(
        ApiKey.DELETE_TOPICS,
        _delete_topics,
        ((_Op.DELETE, _Type.TOPIC),),
        TOPICS,
        instead=((_DESCRIBE,),),
        changes=True,
    ),
    Row(
        ApiKey.DELETE_TOPICS,
        _delete_topics_by_id,
        ((_Op.DELETE, _Type.TOPIC),),
        TOPICS,
        "by id",
        lowest=6,
        instead=((_DESCRIBE,),),
        changes=True,
    ),
    Row(ApiKey.DELETE_RECORDS, _delete_records, ((_Op.DELETE, _Type.TOPIC),), TOPICS),
    Row(ApiKey.CREATE_PARTITIONS, _create_partitions, ((_Op.ALTER, _Type.TOPIC),), TOPICS),
    Row(ApiKey.DESCRIBE_CONFIGS, _describe_configs, (_DESCRIBE_CONFIGS,), TOPICS, "of topics", instead=((_DESCRIBE,),)),
    Row(
        ApiKey.ALTER_CONFIGS,
        _alter_configs,
        ((_Op.ALTER_CONFIGS, _Type.TOPIC),),
        TOPICS,
        "of topics",
        instead=((_DESCRIBE_CONFIGS,),),
    ),
    Row(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        _incremental_alter_configs,
        ((_Op.ALTER_CONFIGS, _Type.TOPIC),),
        TOPICS,
        "of topics",
        instead=((_DESCRIBE_CONFIGS,),),
    ),
    Row(ApiKey.DESCRIBE_PRODUCERS, _describe_producers, _READ, TOPICS),
)
