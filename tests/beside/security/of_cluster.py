"""APIs whose rights are on the cluster, and those that need none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla_broker.authorization.resources import AclOperation, PatternType, PermissionType, ResourceType
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from tests.beside.security.names import ALL_TOPICS, SOMEBODY, TOPICS, Names
from tests.beside.security.rows import Build, Row
from tests.beside.security.world import World

_Op, _Type = AclOperation, ResourceType
_DESCRIBE, _ALTER = (_Op.DESCRIBE, _Type.CLUSTER), (_Op.ALTER, _Type.CLUSTER)
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = (_Op.DESCRIBE_CONFIGS, _Type.CLUSTER), (_Op.ALTER_CONFIGS, _Type.CLUSTER)
_ALTER_TOPIC, _DESCRIBE_TOPIC = (_Op.ALTER, _Type.TOPIC), (_Op.DESCRIBE, _Type.TOPIC)
_ALL = (_Op.ALL, _Type.CLUSTER)
_BROKER, _LOGGER, _CLIENT_METRICS, _GROUP = 4, 8, 16, 32
"""Types of resources that have a configuration."""
_BROKER_ID = "1"
_SET = 0
_ANY = 1
_SOMEBODY = f"User:{SOMEBODY}"
_TIMEOUT_MS = 10_000


def _names(names: Names) -> Sequence[str]:
    assert names.topics is not None
    return names.topics


def _describe_acls(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.DESCRIBE_ACLS)
    return api.DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY if version else int(PatternType.LITERAL),
        principal_filter=_SOMEBODY,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )


def _create_acls(world: World, names: Names, version: int) -> Any:
    """One that can be, and one that cannot."""
    api = codec.module(ApiKey.CREATE_ACLS)
    creations = [
        api.AclCreation(
            resource_type=int(ResourceType.TOPIC),
            resource_name=name,
            resource_pattern_type=int(PatternType.LITERAL),
            principal=_SOMEBODY,
            host="*",
            operation=int(AclOperation.READ),
            permission_type=int(PermissionType.ALLOW),
        )
        for name in ("of carl", "")
    ]
    return api.CreateAclsRequest(creations=creations)


def _delete_acls(world: World, names: Names, version: int) -> Any:
    """The same filter twice."""
    api = codec.module(ApiKey.DELETE_ACLS)
    one = api.DeleteAclsFilter(
        resource_type_filter=int(ResourceType.TOPIC),
        resource_name_filter="of carl",
        pattern_type_filter=int(PatternType.LITERAL),
        principal_filter=_SOMEBODY,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    return api.DeleteAclsRequest(filters=[one, one])


def _describe_configs(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.DESCRIBE_CONFIGS)
    resources = [
        api.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name, keys in (
            (_BROKER, _BROKER_ID, ["log.cleaner.threads", "broker.id"]),
            (_BROKER, "", ["log.cleaner.threads"]),
            (_BROKER, "99", ["log.cleaner.threads"]),
            (_LOGGER, _BROKER_ID, ["nope"]),
        )
    ]
    return api.DescribeConfigsRequest(resources=resources)


def _describe_config_of(kind: int) -> Build:
    def build(world: World, names: Names, version: int) -> Any:
        api = codec.module(ApiKey.DESCRIBE_CONFIGS)
        resource = api.DescribeConfigsResource(resource_type=kind, resource_name="nope", configuration_keys=["nope"])
        return api.DescribeConfigsRequest(resources=[resource])

    return build


_CHANGES = (
    (_BROKER, _BROKER_ID, "log.cleaner.threads", "1"),
    (_BROKER, "", "log.cleaner.threads", "1"),
    (_BROKER, "99", "log.cleaner.threads", "1"),
    *((_BROKER, name, "log.cleaner.threads", "1") for name in ("01", "+1", "-1", " 1", "1_0", "one")),
)
"""Of this broker, of all, of another one, and under names that mean one of them to whoever reads numbers loosely."""


def _alter_configs(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.ALTER_CONFIGS)
    resources = [
        api.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[api.AlterableConfig(name=key, value=value)]
        )
        for kind, name, key, value in _CHANGES
    ]
    return api.AlterConfigsRequest(resources=resources, validate_only=True)


def _incremental_alter_configs(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    resources = [
        api.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[api.AlterableConfig(name=key, config_operation=_SET, value=value)],
        )
        for kind, name, key, value in (*_CHANGES, (_LOGGER, _BROKER_ID, "nope", "INFO"))
    ]
    return api.IncrementalAlterConfigsRequest(resources=resources, validate_only=True)


def _alter_config_of(kind: int) -> Build:
    def build(world: World, names: Names, version: int) -> Any:
        api = codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
        config = api.AlterableConfig(name="nope", config_operation=_SET, value="1")
        resource = api.AlterConfigsResource(resource_type=kind, resource_name="nope", configs=[config])
        return api.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)

    return build


def _alter_replica_log_dirs(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.ALTER_REPLICA_LOG_DIRS)
    topics = [api.AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in _names(names)]
    return api.AlterReplicaLogDirsRequest(dirs=[api.AlterReplicaLogDir(path="/nowhere", topics=topics)])


def _describe_log_dirs(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.DESCRIBE_LOG_DIRS)
    if names.topics is None:
        return api.DescribeLogDirsRequest(topics=None)
    topics = [api.DescribableLogDirTopic(topic=name, partitions=[0]) for name in names.topics]
    return api.DescribeLogDirsRequest(topics=topics)


def _elect_leaders(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.ELECT_LEADERS)
    if names.topics is None:
        return api.ElectLeadersRequest(topic_partitions=None, timeout_ms=_TIMEOUT_MS)
    named = [api.TopicPartitions(topic=name, partitions=[0]) for name in names.topics]
    return api.ElectLeadersRequest(topic_partitions=named, timeout_ms=_TIMEOUT_MS)


def _reassign(world: World, names: Names, version: int) -> Any:
    """Cancels what is not there."""
    api = codec.module(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    part = api.ReassignablePartition(partition_index=0, replicas=None)
    topics = [api.ReassignableTopic(name=name, partitions=[part]) for name in _names(names)]
    return api.AlterPartitionReassignmentsRequest(timeout_ms=_TIMEOUT_MS, topics=topics)


def _list_reassignments(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.LIST_PARTITION_REASSIGNMENTS)
    topics = (
        None
        if names.topics is None
        else [api.ListPartitionReassignmentsTopics(name=name, partition_indexes=[0]) for name in names.topics]
    )
    return api.ListPartitionReassignmentsRequest(timeout_ms=_TIMEOUT_MS, topics=topics)


def _describe_quotas(world: World, names: Names, version: int) -> Any:
    return codec.module(ApiKey.DESCRIBE_CLIENT_QUOTAS).DescribeClientQuotasRequest()


def _alter_quotas(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.ALTER_CLIENT_QUOTAS)
    entries = [
        api.EntryData(
            entity=[api.EntityData(entity_type="user", entity_name=user)],
            ops=[api.OpData(key=key, value=1e12, remove=False)],
        )
        for user, key in (("a", "producer_byte_rate"), ("b", "nope"))
    ]
    return api.AlterClientQuotasRequest(entries=entries, validate_only=True)


def _describe_scram(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
    return api.DescribeUserScramCredentialsRequest(users=[api.UserName(name=name) for name in ("alice", "bob", "bob")])


def _describe_all_scram(world: World, names: Names, version: int) -> Any:
    return codec.module(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS).DescribeUserScramCredentialsRequest(users=None)


def _alter_scram(world: World, names: Names, version: int) -> Any:
    """Removes what nobody has, twice, and sets what is too little."""
    api = codec.module(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
    deletions = [
        api.ScramCredentialDeletion(name=name, mechanism=mechanism)
        for name, mechanism in (("alice", 1), ("bob", 2), ("bob", 2), ("carl", 9))
    ]
    upsertion = api.ScramCredentialUpsertion(
        name="dora", mechanism=1, iterations=1, salt=b"salt", salted_password=b"salted"
    )
    return api.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[upsertion])


def _update_features(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.UPDATE_FEATURES)
    update = api.FeatureUpdateKey(feature="nope", max_version_level=1)
    return api.UpdateFeaturesRequest(timeout_ms=_TIMEOUT_MS, feature_updates=[update], validate_only=version >= 1)


def _describe_cluster(world: World, names: Names, version: int) -> Any:
    return codec.module(ApiKey.DESCRIBE_CLUSTER).DescribeClusterRequest(include_cluster_authorized_operations=True)


def _metadata(world: World, names: Names, version: int) -> Any:
    return codec.module(ApiKey.METADATA).MetadataRequest(topics=[], include_cluster_authorized_operations=True)


def _list_client_metrics(world: World, names: Names, version: int) -> Any:
    return codec.module(ApiKey.LIST_CLIENT_METRICS_RESOURCES).ListClientMetricsResourcesRequest()


def _sasl_handshake(world: World, names: Names, version: int) -> Any:
    return codec.module(ApiKey.SASL_HANDSHAKE).SaslHandshakeRequest(mechanism="PLAIN")


def _sasl_authenticate(world: World, names: Names, version: int) -> Any:
    return codec.module(ApiKey.SASL_AUTHENTICATE).SaslAuthenticateRequest(auth_bytes=b"a")


_ANY_TOPICS = {**TOPICS, **ALL_TOPICS}

ROWS = (
    Row(ApiKey.DESCRIBE_ACLS, _describe_acls, (_DESCRIBE,), instead=((_ALTER,), (_ALL,))),
    Row(ApiKey.CREATE_ACLS, _create_acls, (_ALTER,), instead=((_DESCRIBE,),)),
    Row(ApiKey.DELETE_ACLS, _delete_acls, (_ALTER,), instead=((_DESCRIBE,),)),
    Row(
        ApiKey.DESCRIBE_CONFIGS,
        _describe_configs,
        (_DESCRIBE_CONFIGS,),
        about="of brokers",
        instead=((_ALTER_CONFIGS,),),
    ),
    Row(ApiKey.DESCRIBE_CONFIGS, _describe_config_of(_CLIENT_METRICS), (_DESCRIBE_CONFIGS,), about="of client metrics"),
    Row(ApiKey.DESCRIBE_CONFIGS, _describe_config_of(_GROUP), (_DESCRIBE_CONFIGS,), about="of groups"),
    Row(ApiKey.ALTER_CONFIGS, _alter_configs, (_ALTER_CONFIGS,), about="of brokers", instead=((_DESCRIBE_CONFIGS,),)),
    Row(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        _incremental_alter_configs,
        (_ALTER_CONFIGS,),
        about="of brokers",
        instead=((_DESCRIBE_CONFIGS,),),
    ),
    Row(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        _alter_config_of(_CLIENT_METRICS),
        (_ALTER_CONFIGS,),
        about="of client metrics",
    ),
    Row(ApiKey.INCREMENTAL_ALTER_CONFIGS, _alter_config_of(_GROUP), (_ALTER_CONFIGS,), about="of groups"),
    Row(ApiKey.ALTER_REPLICA_LOG_DIRS, _alter_replica_log_dirs, (_ALTER,), TOPICS, instead=((_ALTER_TOPIC,),)),
    Row(ApiKey.DESCRIBE_LOG_DIRS, _describe_log_dirs, (_DESCRIBE,), _ANY_TOPICS, instead=((_DESCRIBE_TOPIC,),)),
    Row(ApiKey.ELECT_LEADERS, _elect_leaders, (_ALTER,), _ANY_TOPICS, instead=((_ALTER_TOPIC,),)),
    Row(ApiKey.ALTER_PARTITION_REASSIGNMENTS, _reassign, (_ALTER,), TOPICS, instead=((_ALTER_TOPIC,),)),
    Row(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        _list_reassignments,
        (_DESCRIBE,),
        _ANY_TOPICS,
        instead=((_DESCRIBE_TOPIC,),),
    ),
    Row(ApiKey.DESCRIBE_CLIENT_QUOTAS, _describe_quotas, (_DESCRIBE_CONFIGS,), instead=((_DESCRIBE,),)),
    Row(ApiKey.ALTER_CLIENT_QUOTAS, _alter_quotas, (_ALTER_CONFIGS,), instead=((_ALTER,),)),
    Row(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, _describe_scram, (_DESCRIBE,)),
    Row(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, _describe_all_scram, (_DESCRIBE,), about="of all"),
    Row(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, _alter_scram, (_ALTER,), instead=((_DESCRIBE,), (_ALTER_CONFIGS,))),
    Row(ApiKey.UPDATE_FEATURES, _update_features, (_ALTER,), instead=((_DESCRIBE,),)),
    Row(ApiKey.DESCRIBE_CLUSTER, _describe_cluster, (_DESCRIBE,), instead=((_ALTER,), (_ALL,))),
    Row(ApiKey.METADATA, _metadata, (_DESCRIBE,), about="of the cluster", lowest=8, highest=10, instead=((_ALL,),)),
    Row(ApiKey.LIST_CLIENT_METRICS_RESOURCES, _list_client_metrics, (_DESCRIBE_CONFIGS,), is_ours_alone=True),
    Row(ApiKey.SASL_HANDSHAKE, _sasl_handshake),
    Row(ApiKey.SASL_AUTHENTICATE, _sasl_authenticate),
)
