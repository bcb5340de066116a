"""ConsumerGroupHeartbeat on one group (KIP-848): joining, staying, leaving. Pure.

A heartbeat does three things in one step, each of which may make records:

1. The member is created or updated. A changed subscription, or changed topics, raises the group epoch.
2. A group epoch above the assignment epoch gives a new target assignment.
3. The member moves towards its target assignment (`reconciliation`).

Source: GroupMetadataManager.consumerGroupHeartbeat of Apache Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from ottla_broker.groups.consumer.assignors.assignor import Assignor
from ottla_broker.groups.consumer.consumer_group import ConsumerGroup
from ottla_broker.groups.consumer.group_image import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_PARTITIONS,
    STATIC_LEAVE_EPOCH,
    Assignment,
    ConsumerGroupImage,
    ConsumerMember,
    TopicView,
    is_subset,
)
from ottla_broker.groups.consumer.group_requests import (
    ConsumerGroupEffect,
    GroupHeartbeat,
    GroupRequestRefused,
    HeartbeatAnswer,
    MemberTimer,
    MemberTimerKey,
    ResolveExpressions,
    SetTimer,
    StopTimer,
)
from ottla_broker.groups.consumer.reconciliation import MustRejoin, reconcile
from ottla_broker.groups.consumer.states import MemberState
from ottla_broker.groups.consumer.target_assignment import with_target_assignment, with_topics
from ottla_broker.groups.consumer.topic_expressions import InvalidExpression, compiled
from ottla_broker.groups.decisions import Explain
from ottla_broker.protocol.errors import ErrorCode

FIRST_VERSION_WITH_MEMBER_ID = 1
"""Of ConsumerGroupHeartbeat: from it on a member chooses its own id (KIP-1082)."""

MIN_RESOLUTION_INTERVAL_MS = 10_000
"""Regular expressions are resolved again at most this often."""
RESOLUTION_INTERVAL_MS = 600_000
"""And at least this often (group.consumer.regex.refresh.interval.ms of 4.x)."""


def check_heartbeat(
    group_id: str, request: GroupHeartbeat, api_version: int, assignors: Mapping[str, Assignor]
) -> None:
    """Whether the request is one that a group can be asked.

    Raises:
        GroupRequestRefused: INVALID_REQUEST, which names the field, or UNSUPPORTED_ASSIGNOR.

    Source: GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid.
    """
    epoch = request.member_epoch
    if not request.member_id and (
        api_version >= FIRST_VERSION_WITH_MEMBER_ID or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    ):
        raise GroupRequestRefused(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    for name, value in (("GroupId", group_id), ("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            raise GroupRequestRefused(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise GroupRequestRefused(
                ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request."
            )
        if request.owned is None or request.owned:
            raise GroupRequestRefused(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            message = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            raise GroupRequestRefused(ErrorCode.INVALID_REQUEST, message)
    elif epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise GroupRequestRefused(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise GroupRequestRefused(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        message = f"ServerAssignor {request.server_assignor} is not supported. "
        raise GroupRequestRefused(
            ErrorCode.UNSUPPORTED_ASSIGNOR, f"{message}Supported assignors: {', '.join(assignors)}."
        )


def heartbeat(group: ConsumerGroup, request: GroupHeartbeat, topics: TopicView, now_ms: int) -> HeartbeatAnswer:
    """ConsumerGroupHeartbeat. Errors in order: GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, UNRELEASED_INSTANCE_ID,
    FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH, INVALID_REGULAR_EXPRESSION."""
    try:
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return _leave(group, request, topics)
        return _stay(group, request, topics, now_ms)
    except GroupRequestRefused as refusal:
        return HeartbeatAnswer(refusal.error, refusal.message)


def _stay(group: ConsumerGroup, request: GroupHeartbeat, topics: TopicView, now_ms: int) -> HeartbeatAnswer:
    config = group.config
    member_id = request.member_id or request.new_member_id
    if len(group.image.members) >= config.group_consumer_max_size and member_id not in group.image.members:
        limit = config.group_consumer_max_size
        message = f"The consumer group has reached its maximum capacity of {limit} members."
        raise GroupRequestRefused(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
    image, member, effects = find_member(group, request, member_id)
    updated = _updated(member, request)
    bumps_epoch = image.epoch == 0 or updated.subscribed_topic_names != member.subscribed_topic_names
    bumps_epoch |= _expression_changes_subscription(image, member, updated)
    effects += _resolution(group, image, member, updated, topics, now_ms)
    image, updated = advance(group, image, updated, topics, request.owned, bumps_epoch=bumps_epoch)
    session = MemberTimerKey(MemberTimer.SESSION, member_id)
    effects += revocation_timer(member, updated)
    effects.append(SetTimer(session, config.group_consumer_session_timeout_ms))
    group.topics_version = topics.version
    group.is_resolving = group.is_resolving or any(isinstance(effect, ResolveExpressions) for effect in effects)
    group.install(image, *effects)
    is_full = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.owned is not None
    )
    has_news = request.member_epoch == JOIN_EPOCH or is_full or updated.assigned != member.assigned
    return HeartbeatAnswer(
        ErrorCode.NONE,
        None,
        member_id,
        updated.member_epoch,
        config.group_consumer_heartbeat_interval_ms,
        updated.assigned if has_news else None,
    )


def find_member(
    group: ConsumerGroup, request: GroupHeartbeat, member_id: str
) -> tuple[ConsumerGroupImage, ConsumerMember, list[ConsumerGroupEffect]]:
    """The member that the request is of, the image that has it, unless it is new, and what replacing another one asks
    for. Raises GroupRequestRefused."""
    image = group.image
    is_joining = request.member_epoch == JOIN_EPOCH
    if request.instance_id is None:
        member = image.members.get(member_id)
        if member is None:
            if not is_joining:
                raise GroupRequestRefused(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
                )
            return image, ConsumerMember(member_id), [Explain(f"member {member_id} joins")]
        _check_epoch(member, request)
        return image, member, []
    holder = group.static_member(request.instance_id)
    if is_joining:
        if holder is None:
            explanation = Explain(f"static member {member_id} joins with instance id {request.instance_id}")
            return image, image.members.get(member_id) or ConsumerMember(member_id), [explanation]
        if not holder.uses_classic_protocol and holder.member_epoch != STATIC_LEAVE_EPOCH:
            message = f"Static member {member_id} with instance id {request.instance_id} cannot join the group because "
            raise GroupRequestRefused(
                ErrorCode.UNRELEASED_INSTANCE_ID, f"{message}the instance id is owned by {holder.member_id} member."
            )
        return replaced(image, holder, member_id)
    if holder is None:
        raise GroupRequestRefused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
    check_instance(holder, member_id)
    _check_epoch(holder, request)
    return image, holder, []


def replaced(
    image: ConsumerGroupImage, holder: ConsumerMember, member_id: str
) -> tuple[ConsumerGroupImage, ConsumerMember, list[ConsumerGroupEffect]]:
    """A static member comes back with another member id: it has the subscription and the assignments of before.

    Source: GroupMetadataManager.replaceMember.
    """
    member = replace(holder, member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH)
    members = {key: each for key, each in image.members.items() if key != holder.member_id}
    targets = {key: each for key, each in image.targets.items() if key != holder.member_id}
    targets[member_id] = image.target(holder.member_id)
    effects: list[ConsumerGroupEffect] = [
        Explain(f"static member {holder.instance_id} comes back as {member_id}, which replaces {holder.member_id}"),
        *(StopTimer(MemberTimerKey(kind, holder.member_id)) for kind in MemberTimer),
    ]
    return replace(image, members={**members, member_id: member}, targets=targets), member, effects


def check_instance(holder: ConsumerMember, member_id: str) -> None:
    """Raises GroupRequestRefused with FENCED_INSTANCE_ID where another member has the instance id."""
    if holder.member_id != member_id:
        message = f"Static member {member_id} with instance id {holder.instance_id} was fenced by member"
        raise GroupRequestRefused(ErrorCode.FENCED_INSTANCE_ID, f"{message} {holder.member_id}.")


def advance(
    group: ConsumerGroup,
    image: ConsumerGroupImage,
    updated: ConsumerMember,
    topics: TopicView,
    owned: Assignment | None,
    *,
    bumps_epoch: bool,
) -> tuple[ConsumerGroupImage, ConsumerMember]:
    """Steps 1 to 3 of the module docstring for a member that is found: the new image and the member in it."""
    if image.members.get(updated.member_id) != updated:
        image = image.with_member(updated).with_used_expressions()
    if bumps_epoch or group.topics_version != topics.version:
        image = with_topics(image, topics, bumps_epoch=bumps_epoch)
    image = with_target_assignment(image, group.config.group_consumer_assignors)
    try:
        reconciled = reconcile(
            image.members[updated.member_id],
            image.assignment_epoch,
            image.target(updated.member_id),
            owned,
            partial(_is_free, group, updated),
        )
    except MustRejoin:
        message = "The member is in an unknown state. The member must abandon all its partitions and rejoin."
        raise GroupRequestRefused(ErrorCode.FENCED_MEMBER_EPOCH, message) from None
    if reconciled is not image.members[updated.member_id]:
        image = image.with_member(reconciled)
    return image, reconciled


def _is_free(group: ConsumerGroup, member: ConsumerMember, topic_id: bytes, partition: int) -> bool:
    """What the static member owned that this one replaces is free for it too."""
    if group.is_free_for(member.member_id, topic_id, partition):
        return True
    holder = None if member.instance_id is None else group.static_member(member.instance_id)
    return holder is not None and group.is_free_for(holder.member_id, topic_id, partition)


def revocation_timer(before: ConsumerMember, after: ConsumerMember) -> list[ConsumerGroupEffect]:
    """A member that has partitions to revoke has its rebalance timeout for it."""
    if after is before or after.has_same_assignment_record(before):
        return []
    key = MemberTimerKey(MemberTimer.REVOCATION, after.member_id)
    if after.state is MemberState.UNREVOKED_PARTITIONS:
        return [SetTimer(key, after.rebalance_timeout_ms)]
    return [StopTimer(key)]


def _updated(member: ConsumerMember, request: GroupHeartbeat) -> ConsumerMember:
    names = request.subscribed_topic_names
    regex = request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    updated = replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        subscribed_topic_names=member.subscribed_topic_names if names is None else tuple(sorted(set(names))),
        subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )
    return member if updated == member else updated


def _expression_changes_subscription(
    image: ConsumerGroupImage, member: ConsumerMember, updated: ConsumerMember
) -> bool:
    """Whether the member changes to a regular expression that is resolved, or to none. Raises GroupRequestRefused."""
    regex = updated.subscribed_topic_regex
    if (regex or None) == (member.subscribed_topic_regex or None):
        return False
    if not regex:
        return True
    if regex not in image.regexes():
        try:
            compiled(regex)
        except InvalidExpression as error:
            message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
            raise GroupRequestRefused(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None
    return regex in image.expressions


def _resolution(
    group: ConsumerGroup,
    image: ConsumerGroupImage,
    member: ConsumerMember,
    updated: ConsumerMember,
    topics: TopicView,
    now_ms: int,
) -> list[ConsumerGroupEffect]:
    """Whether the regular expressions are resolved now, all at once so that the group rebalances once.

    Source: GroupMetadataManager.maybeUpdateRegularExpressions.
    """
    after = image.with_member(updated).with_used_expressions()
    regexes = after.regexes()
    if not regexes or group.is_resolving:
        return []
    known = next(iter(image.expressions.values()), None)
    if known is not None and now_ms <= known.timestamp_ms + MIN_RESOLUTION_INTERVAL_MS:
        return []
    is_due = (
        known is None
        or len(regexes) != len(after.expressions)
        or group.expressions_version != topics.version
        or now_ms > known.timestamp_ms + RESOLUTION_INTERVAL_MS
    )
    if not is_due:
        return []
    return [ResolveExpressions(tuple(regexes))]


def _check_epoch(member: ConsumerMember, request: GroupHeartbeat) -> None:
    """An epoch behind is accepted where the answer with the newer one may have been lost."""
    received, known = request.member_epoch, member.member_epoch
    rejoin = "The member must abandon all its partitions and rejoin."
    if received > known:
        message = f"The consumer group member has a greater member epoch ({received}) than the one known by the group "
        raise GroupRequestRefused(ErrorCode.FENCED_MEMBER_EPOCH, f"{message}coordinator ({known}). {rejoin}")
    if received < known:
        is_previous = received == member.previous_member_epoch
        if not is_previous or request.owned is None or not is_subset(request.owned, member.assigned):
            message = f"The consumer group member has a smaller member epoch ({received}) than the one known by the "
            raise GroupRequestRefused(ErrorCode.FENCED_MEMBER_EPOCH, f"{message}group coordinator ({known}). {rejoin}")


def _leave(group: ConsumerGroup, request: GroupHeartbeat, topics: TopicView) -> HeartbeatAnswer:
    answer = HeartbeatAnswer(ErrorCode.NONE, None, request.member_id, request.member_epoch)
    if request.instance_id is None:
        if request.member_id not in group.image.members:
            message = f"Member {request.member_id} is not a member of group {group.group_id}."
            raise GroupRequestRefused(ErrorCode.UNKNOWN_MEMBER_ID, message)
        group.remove([request.member_id], "it left", topics)
        return answer
    holder = group.static_member(request.instance_id)
    if holder is None:
        raise GroupRequestRefused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
    check_instance(holder, request.member_id)
    if request.member_epoch == LEAVE_EPOCH:
        group.remove([holder.member_id], "it left", topics)
        return answer
    away = replace(holder, member_epoch=STATIC_LEAVE_EPOCH, pending_revocation=NO_PARTITIONS)
    group.install(
        group.image.with_member(away),
        Explain(f"static member {holder.instance_id} ({holder.member_id}) left for a while"),
        StopTimer(MemberTimerKey(MemberTimer.REVOCATION, holder.member_id)),
    )
    return answer
