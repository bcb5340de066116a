"""APIs whose rights are on groups; with offsets, on topics too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from tests.beside.security.names import (
    ALL_TOPICS,
    GROUP,
    GROUPS,
    IDLE_GROUP,
    IDLE_GROUPS,
    TOPIC,
    TOPICS,
    Names,
    beside,
    one_of,
)
from tests.beside.security.rows import NAMES_IDS, Row
from tests.beside.security.world import World

_Op, _Type = AclOperation, ResourceType
_READ, _DESCRIBE, _DELETE = (_Op.READ, _Type.GROUP), (_Op.DESCRIBE, _Type.GROUP), (_Op.DELETE, _Type.GROUP)
_READ_TOPIC, _DESCRIBE_TOPIC = (_Op.READ, _Type.TOPIC), (_Op.DESCRIBE, _Type.TOPIC)
_DESCRIBE_CLUSTER = (_Op.DESCRIBE, _Type.CLUSTER)
_TOO_SHORT_MS = 5
"""A session timeout that is refused: nobody joins."""
_GROUP_KEY, _SHARE_KEY = 0, 2


def _names(names: Names) -> Sequence[str]:
    assert names.topics is not None
    return names.topics


def _offset_commit(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.OFFSET_COMMIT)
    part = api.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [
        api.OffsetCommitRequestTopic(topic_id=world.topic_id(name), partitions=[part])
        if version >= NAMES_IDS[ApiKey.OFFSET_COMMIT]
        else api.OffsetCommitRequestTopic(name=name, partitions=[part])
        for name in _names(names)
    ]
    return api.OffsetCommitRequest(group_id=names.groups[0], topics=topics)


def _offset_fetch(world: World, names: Names, version: int) -> Any:
    """Below version 8 of one group."""
    api = codec.module(ApiKey.OFFSET_FETCH)
    if version < 8:
        topics = (
            None
            if names.topics is None
            else [api.OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in names.topics]
        )
        return api.OffsetFetchRequest(group_id=names.groups[0], topics=topics) if len(names.groups) == 1 else None
    groups = [
        api.OffsetFetchRequestGroup(
            group_id=group,
            topics=None
            if names.topics is None
            else [
                api.OffsetFetchRequestTopics(topic_id=world.topic_id(name), partition_indexes=[0])
                if version >= NAMES_IDS[ApiKey.OFFSET_FETCH]
                else api.OffsetFetchRequestTopics(name=name, partition_indexes=[0])
                for name in names.topics
            ],
        )
        for group in names.groups
    ]
    return api.OffsetFetchRequest(groups=groups)


def _offset_delete(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.OFFSET_DELETE)
    part = api.OffsetDeleteRequestPartition(partition_index=0)
    topics = [api.OffsetDeleteRequestTopic(name=name, partitions=[part]) for name in _names(names)]
    return api.OffsetDeleteRequest(group_id=names.groups[0], topics=topics)


def _find_coordinator(world: World, names: Names, version: int, key_type: int = _GROUP_KEY) -> Any:
    """Below version 4 of one group."""
    api = codec.module(ApiKey.FIND_COORDINATOR)
    if version < 4:
        is_one = len(names.groups) == 1
        return api.FindCoordinatorRequest(key=names.groups[0], key_type=key_type) if is_one else None
    return api.FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(names.groups))


def _find_share_coordinator(world: World, names: Names, version: int) -> Any:
    return _find_coordinator(world, names, version, _SHARE_KEY)


def _join(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.JOIN_GROUP)
    protocols = [api.JoinGroupRequestProtocol(name="range", metadata=b"m")]
    return api.JoinGroupRequest(
        group_id=names.groups[0],
        session_timeout_ms=_TOO_SHORT_MS,
        rebalance_timeout_ms=_TOO_SHORT_MS,
        protocol_type="consumer",
        protocols=protocols,
    )


def _join_as_another_kind(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.JOIN_GROUP)
    protocols = [api.JoinGroupRequestProtocol(name="another", metadata=b"m")]
    return api.JoinGroupRequest(
        group_id=names.groups[0],
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="another",
        protocols=protocols,
    )


def _heartbeat(world: World, names: Names, version: int) -> Any:
    member_id, generation = world.member(names.groups[0])
    api = codec.module(ApiKey.HEARTBEAT)
    return api.HeartbeatRequest(group_id=names.groups[0], generation_id=generation, member_id=member_id)


def _leave(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.LEAVE_GROUP)
    if version < 3:
        return api.LeaveGroupRequest(group_id=names.groups[0], member_id="nobody")
    members = [api.MemberIdentity(member_id="nobody"), api.MemberIdentity(member_id="nobody else")]
    return api.LeaveGroupRequest(group_id=names.groups[0], members=members)


def _sync(world: World, names: Names, version: int) -> Any:
    member_id, generation = world.member(names.groups[0])
    api = codec.module(ApiKey.SYNC_GROUP)
    kind = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    return api.SyncGroupRequest(group_id=names.groups[0], generation_id=generation, member_id=member_id, **kind)


def _describe(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.DESCRIBE_GROUPS)
    return api.DescribeGroupsRequest(groups=list(names.groups), include_authorized_operations=version >= 3)


def _list(world: World, names: Names, version: int) -> Any:
    return codec.module(ApiKey.LIST_GROUPS).ListGroupsRequest()


def _delete(world: World, names: Names, version: int) -> Any:
    return codec.module(ApiKey.DELETE_GROUPS).DeleteGroupsRequest(groups_names=list(names.groups))


def _consumer_group_heartbeat(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    return api.ConsumerGroupHeartbeatRequest(
        group_id=names.groups[0], member_id="nobody", member_epoch=1, subscribed_topic_names=list(names.topics or ())
    )


def _consumer_group_describe(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.CONSUMER_GROUP_DESCRIBE)
    return api.ConsumerGroupDescribeRequest(group_ids=list(names.groups), include_authorized_operations=True)


def _with_topics(group: str, variants: Mapping[str, Names]) -> Mapping[str, Names]:
    found = dict(beside(variants, groups=(group,)))
    return {**found, "missing group": next(iter(found.values())).missing(_Type.GROUP)}


ROWS = (
    Row(ApiKey.OFFSET_COMMIT, _offset_commit, (_READ, _READ_TOPIC), _with_topics(IDLE_GROUP, TOPICS)),
    Row(ApiKey.OFFSET_FETCH, _offset_fetch, (_DESCRIBE, _DESCRIBE_TOPIC), _with_topics(IDLE_GROUP, TOPICS)),
    Row(
        ApiKey.OFFSET_FETCH,
        _offset_fetch,
        (_DESCRIBE, _DESCRIBE_TOPIC),
        _with_topics(IDLE_GROUP, ALL_TOPICS),
        "of all topics",
        lowest=2,
    ),
    Row(
        ApiKey.OFFSET_FETCH,
        _offset_fetch,
        (_DESCRIBE, _DESCRIBE_TOPIC),
        beside(IDLE_GROUPS, topics=(TOPIC,)),
        "of groups",
        lowest=8,
    ),
    Row(
        ApiKey.OFFSET_DELETE,
        _offset_delete,
        (_DELETE, _READ_TOPIC),
        _with_topics(IDLE_GROUP, TOPICS),
        instead=((_READ, _READ_TOPIC),),
    ),
    Row(ApiKey.FIND_COORDINATOR, _find_coordinator, (_DESCRIBE,), GROUPS, "of groups"),
    Row(ApiKey.FIND_COORDINATOR, _find_share_coordinator, (_DESCRIBE,), GROUPS, "of share groups", lowest=1),
    Row(ApiKey.JOIN_GROUP, _join, (_READ,), one_of(GROUPS), instead=((_DESCRIBE,),)),
    Row(ApiKey.JOIN_GROUP, _join_as_another_kind, (_READ,), {"existing": GROUPS["existing"]}, "as another kind"),
    Row(ApiKey.HEARTBEAT, _heartbeat, (_READ,), one_of(GROUPS)),
    Row(ApiKey.LEAVE_GROUP, _leave, (_READ,), one_of(GROUPS)),
    Row(ApiKey.SYNC_GROUP, _sync, (_READ,), one_of(GROUPS)),
    Row(
        ApiKey.DESCRIBE_GROUPS,
        _describe,
        (_DESCRIBE,),
        GROUPS,
        instead=((_READ,), (_DELETE,), ((_Op.ALL, _Type.GROUP),)),
    ),
    Row(
        ApiKey.LIST_GROUPS, _list, (_DESCRIBE,), {"": Names(groups=(GROUP,))}, instead=((_DESCRIBE_CLUSTER,), (_READ,))
    ),
    Row(ApiKey.DELETE_GROUPS, _delete, (_DELETE,), GROUPS, instead=((_READ,),)),
    Row(ApiKey.DELETE_GROUPS, _delete, (_DELETE,), IDLE_GROUPS, "without members", changes=True),
    Row(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        _consumer_group_heartbeat,
        (_READ, _DESCRIBE_TOPIC),
        beside(one_of(GROUPS), topics=(TOPIC,)),
    ),
    Row(ApiKey.CONSUMER_GROUP_DESCRIBE, _consumer_group_describe, (_DESCRIBE,), GROUPS),
)
