"""Members of the classic protocol in a group of the consumer protocol: what JoinGroup and the others do there. Pure.

An online migration rolls the consumers of a group one by one; until the last one is done the group has members of both
protocols. To a member of the classic protocol a member epoch is a generation, and the coordinator is the leader: the
member joins, gets its assignment with SyncGroup, and is sent REBALANCE_IN_PROGRESS where it has to join again.

Source: classicGroupJoinToConsumerGroup and its siblings in GroupMetadataManager of Apache Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ottla_broker.groups.consumer.consumer_group import ConsumerGroup
from ottla_broker.groups.consumer.consumer_protocol_bytes import NotAConsumer, read_subscription, write_assignment
from ottla_broker.groups.consumer.group_image import (
    ClassicMetadata,
    ConsumerGroupImage,
    ConsumerMember,
    TopicView,
    partitions_of,
)
from ottla_broker.groups.consumer.group_requests import (
    ConsumerGroupEffect,
    ConvertToClassic,
    GroupRequestRefused,
    MemberTimer,
    MemberTimerKey,
    SetTimer,
    StopTimer,
)
from ottla_broker.groups.consumer.heartbeats import advance, check_instance, replaced
from ottla_broker.groups.consumer.states import MemberState
from ottla_broker.groups.decisions import (
    NO_MEMBER_ID,
    Explain,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    SyncAnswer,
    SyncRequest,
)
from ottla_broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from ottla_broker.protocol.errors import ErrorCode


def join(group: ConsumerGroup, request: JoinRequest, topics: TopicView) -> JoinAnswer:
    """JoinGroup. Errors in order: GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL, MEMBER_ID_REQUIRED (KIP-394),
    UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    try:
        return _join(group, request, topics)
    except GroupRequestRefused as refusal:
        return JoinAnswer(refusal.error, request.member_id)


def sync(group: ConsumerGroup, request: SyncRequest, topics: TopicView) -> SyncAnswer:
    """SyncGroup. Errors in order: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS."""
    try:
        member, classic = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        name, metadata = classic.protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (None, name):
            return SyncAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.image.epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            # One that has partitions to revoke has joined: it goes on, and joins again when it has revoked them.
            group.install(group.image, _join_timer(member))
            return SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
        version = read_subscription(metadata, topics).version
    except GroupRequestRefused as refusal:
        return SyncAnswer(refusal.error)
    group.install(
        group.image,
        StopTimer(MemberTimerKey(MemberTimer.SYNC, member.member_id)),
        _session_timer(member.member_id, classic),
    )
    assignment = write_assignment(version, member.assigned, topics)
    return SyncAnswer(ErrorCode.NONE, assignment, request.protocol_type, request.protocol_name)


def heartbeat(group: ConsumerGroup, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
    """Heartbeat. Errors in order: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS."""
    try:
        member, classic = _classic_member(group, member_id, group_instance_id)
        _check_generation(member, generation_id)
    except GroupRequestRefused as refusal:
        return refusal.error
    effects: list[ConsumerGroupEffect] = [_session_timer(member_id, classic)]
    must_join = (
        member.member_epoch < group.image.epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not _is_waiting(group, member))
    )
    if must_join:
        effects.append(_join_timer(member))
    group.install(group.image, *effects)
    return ErrorCode.REBALANCE_IN_PROGRESS if must_join else ErrorCode.NONE


def leave(group: ConsumerGroup, members: Sequence[LeavingMember], topics: TopicView) -> list[ErrorCode]:
    """LeaveGroup, also for members of the consumer protocol (an administrator removes them): UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID for each."""
    errors: list[ErrorCode] = []
    gone: list[str] = []
    for leaving in members:
        error, member_id = _leaving(group, leaving)
        errors.append(error)
        if error is ErrorCode.NONE:
            gone.append(member_id)
    reasons = dict.fromkeys(leaving.reason for leaving in members if leaving.reason)
    group.remove(gone, f"left ({', '.join(reasons)})" if reasons else "left", topics)
    return errors


def _join(group: ConsumerGroup, request: JoinRequest, topics: TopicView) -> JoinAnswer:
    is_new = request.member_id == NO_MEMBER_ID
    member_id = request.new_member_id if is_new else request.member_id
    _check_room(group, member_id)
    _check_protocols(group, request)
    if is_new and request.requires_known_member_id:
        return JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    try:
        subscription = read_subscription(request.protocols[0][1], topics)
    except NotAConsumer as error:
        raise GroupRequestRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None
    image, member, effects = _find(group, request, member_id, is_new=is_new)
    classic = ClassicMetadata(request.session_timeout_ms, request.protocols)
    updated = replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=member.rack_id if subscription.rack_id is None else subscription.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=subscription.topic_names,
        subscribed_topic_regex=None,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=classic,
    )
    bumps_epoch = (
        updated.subscribed_topic_names != member.subscribed_topic_names
        or bool(member.subscribed_topic_regex)
        or image.epoch == 0
    )
    image, updated = advance(group, image, updated, topics, subscription.owned, bumps_epoch=bumps_epoch)
    group.topics_version = topics.version
    effects += [
        StopTimer(MemberTimerKey(MemberTimer.JOIN, member_id)),
        StopTimer(MemberTimerKey(MemberTimer.REVOCATION, member_id)),
        _session_timer(member_id, classic),
        SetTimer(MemberTimerKey(MemberTimer.SYNC, member_id), request.rebalance_timeout_ms),
    ]
    if _is_last_to_change(group, member, image):
        effects.append(ConvertToClassic(()))
    group.install(image, *effects)
    return JoinAnswer(ErrorCode.NONE, member_id, updated.member_epoch, CONSUMER_PROTOCOL_TYPE, request.protocols[0][0])


def _check_room(group: ConsumerGroup, member_id: str) -> None:
    members = group.image.members
    if len(members) >= group.config.group_consumer_max_size and member_id not in members:
        raise GroupRequestRefused(ErrorCode.GROUP_MAX_SIZE_REACHED, "the group is full")


def _check_protocols(group: ConsumerGroup, request: JoinRequest) -> None:
    """All members of the classic protocol have one protocol in common, should the group become a classic one."""
    classic = [member.classic for member in group.image.members.values() if member.classic is not None]
    common = [
        name
        for name, _ in request.protocols
        if all(any(name == other for other, _ in each.protocols) for each in classic)
    ]
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not common:
        raise GroupRequestRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "no protocol in common")


def _find(
    group: ConsumerGroup, request: JoinRequest, member_id: str, *, is_new: bool
) -> tuple[ConsumerGroupImage, ConsumerMember, list[ConsumerGroupEffect]]:
    image = group.image
    explanation: list[ConsumerGroupEffect] = [Explain(f"member {member_id} joins with the classic protocol")]
    if request.group_instance_id is None:
        member = image.members.get(member_id)
        return (image, ConsumerMember(member_id), explanation) if member is None else (image, member, [])
    holder = group.static_member(request.group_instance_id)
    if is_new:
        return (image, ConsumerMember(member_id), explanation) if holder is None else replaced(image, holder, member_id)
    if holder is None:
        raise GroupRequestRefused(ErrorCode.UNKNOWN_MEMBER_ID, f"instance id {request.group_instance_id} is unknown")
    check_instance(holder, member_id)
    return image, holder, []


def _is_last_to_change(group: ConsumerGroup, member: ConsumerMember, image: ConsumerGroupImage) -> bool:
    """A static member of the consumer protocol came back with the classic one, and all others have that already."""
    return (
        member.instance_id is not None
        and not member.uses_classic_protocol
        and group.config.group_consumer_migration_policy.allows_downgrade
        and len(image.members) <= group.config.group_max_size
        and all(each.uses_classic_protocol for each in image.members.values())
    )


def _classic_member(
    group: ConsumerGroup, member_id: str, group_instance_id: str | None
) -> tuple[ConsumerMember, ClassicMetadata]:
    """The member of a request; UNKNOWN_MEMBER_ID as well for one that speaks the consumer protocol."""
    if group_instance_id is None:
        member = group.image.members.get(member_id)
    else:
        member = group.static_member(group_instance_id)
        if member is not None:
            check_instance(member, member_id)
    if member is None or member.classic is None:
        raise GroupRequestRefused(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no member of the classic protocol")
    return member, member.classic


def _check_generation(member: ConsumerMember, generation_id: int) -> None:
    if member.member_epoch != generation_id:
        raise GroupRequestRefused(ErrorCode.ILLEGAL_GENERATION, f"the member epoch is {member.member_epoch}")


def _is_waiting(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether another member still owns a partition of the member's target assignment."""
    return any(
        not group.is_free_for(member.member_id, topic_id, partition)
        for topic_id, partition in partitions_of(group.image.target(member.member_id))
        if partition not in member.assigned.get(topic_id, ())
    )


def _leaving(group: ConsumerGroup, leaving: LeavingMember) -> tuple[ErrorCode, str]:
    """The error for one that leaves, and its member id: it may be named by its group instance id alone."""
    if leaving.group_instance_id is None:
        is_member = leaving.member_id in group.image.members
        return (ErrorCode.NONE if is_member else ErrorCode.UNKNOWN_MEMBER_ID), leaving.member_id
    holder = group.static_member(leaving.group_instance_id)
    if holder is None:
        return ErrorCode.UNKNOWN_MEMBER_ID, leaving.member_id
    if leaving.member_id not in (NO_MEMBER_ID, holder.member_id):
        return ErrorCode.FENCED_INSTANCE_ID, leaving.member_id
    return ErrorCode.NONE, holder.member_id


def _session_timer(member_id: str, classic: ClassicMetadata) -> SetTimer:
    return SetTimer(MemberTimerKey(MemberTimer.SESSION, member_id), classic.session_timeout_ms)


def _join_timer(member: ConsumerMember) -> SetTimer:
    """Runs from the first REBALANCE_IN_PROGRESS on."""
    key = MemberTimerKey(MemberTimer.JOIN, member.member_id)
    return SetTimer(key, member.rebalance_timeout_ms, keeps_running=True)
