"""Converts a group with members between the classic and the consumer protocol (KIP-848, online migration). Pure.

A classic group is converted when a member joins with the consumer protocol: its members stay, as members of the classic
protocol, each with the partitions that the leader gave it. A group of the consumer protocol is converted when only
members of the classic protocol are left: the classic group begins with a rebalance.

Source: ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup, GroupMetadataManager.validateOnlineUpgrade.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ottla_broker.groups.consumer.consumer_group import owned_by
from ottla_broker.groups.consumer.consumer_protocol_bytes import (
    NotAConsumer,
    read_assignment,
    read_subscription,
    write_assignment,
)
from ottla_broker.groups.consumer.group_image import (
    Assignment,
    ClassicMetadata,
    ConsumerGroupImage,
    ConsumerMember,
    TopicView,
    assignment_of,
)
from ottla_broker.groups.consumer.group_requests import ConsumerGroupConfig, GroupRequestRefused
from ottla_broker.groups.consumer.target_assignment import with_topics
from ottla_broker.groups.decisions import GroupSnapshot, MemberSnapshot, Protocols
from ottla_broker.groups.machine import Group
from ottla_broker.groups.membership import Member, Membership
from ottla_broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from ottla_broker.protocol.errors import ErrorCode


def upgraded(group: Group, config: ConsumerGroupConfig, topics: TopicView) -> ConsumerGroupImage:
    """The image of a classic group with members. The group stays as it is; whoever uses the image ends it.

    Raises:
        GroupRequestRefused: GROUP_ID_NOT_FOUND, with the reason.
    """
    if not config.group_consumer_migration_policy.allows_upgrade:
        raise _cannot(group, "online upgrade is disabled")
    if not group.is_consumer_group:
        raise _cannot(group, "the group does not use the consumer embedded protocol")
    if len(group.membership) > config.group_consumer_max_size:
        raise _cannot(group, "the group size exceeds the consumer group maximum size")
    members: dict[str, ConsumerMember] = {}
    targets: dict[str, Assignment] = {}
    for member in group.membership.all():
        try:
            converted = _upgraded_member(member, group, topics)
        except NotAConsumer as error:
            raise _cannot(group, f"{member.member_id}: {error}") from None
        members[member.member_id] = converted
        targets[member.member_id] = converted.assigned
    generation = group.generation_id
    image = ConsumerGroupImage(group.group_id, generation, generation, members, targets)
    # The topics are those of now; the member that joins raises the epoch.
    return replace(with_topics(image, topics, bumps_epoch=False), epoch=generation)


def _upgraded_member(member: Member, group: Group, topics: TopicView) -> ConsumerMember:
    metadata = member.protocols[0][1] if group.protocol_name is None else member.metadata(group.protocol_name)
    subscription = read_subscription(metadata, topics)
    return ConsumerMember(
        member.member_id,
        member.group_instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        subscription.topic_names,
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        member_epoch=group.generation_id,
        previous_member_epoch=group.generation_id,
        assigned=read_assignment(member.assignment, topics),
    )


def _cannot(group: Group, reason: str) -> GroupRequestRefused:
    message = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}."
    return GroupRequestRefused(ErrorCode.GROUP_ID_NOT_FOUND, message)


@dataclass(frozen=True, slots=True)
class DowngradedGroup:
    """A classic group to begin with: its record, and what its members can speak."""

    snapshot: GroupSnapshot
    protocols: Mapping[str, Protocols]
    """By member id."""


def downgraded(image: ConsumerGroupImage, leaving: Collection[str], topics: TopicView, now_ms: int) -> DowngradedGroup:
    """The classic group of the members that are left, all of which speak the classic protocol.

    Its generation is the group epoch. It has no leader yet: nobody has the partitions of the members that leave, so
    the group begins with a rebalance, on this coordinator or, should this one fail, on the next. Each member has what
    it owns, also what it still has to revoke, where Apache Kafka gives it its target assignment: a group that is
    converted back before the rebalance has ended would take a partition for a member's that another one still uses.
    """
    left = [member for member_id, member in image.members.items() if member_id not in leaving]
    membership = Membership()
    protocols: dict[str, Protocols] = {}
    for member in left:
        assert member.classic is not None, member.member_id
        protocols[member.member_id] = member.classic.protocols
        membership.add(
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.classic.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.classic.protocols,
                _written(member, assignment_of(owned_by(member)), topics),
            )
        )
    name = membership.select_protocol()
    members: list[MemberSnapshot] = [member.snapshot(name, member.assignment) for member in membership.all()]
    snapshot = GroupSnapshot(image.group_id, CONSUMER_PROTOCOL_TYPE, image.epoch, name, None, now_ms, tuple(members))
    return DowngradedGroup(snapshot, protocols)


def _written(member: ConsumerMember, owned: Assignment, topics: TopicView) -> bytes:
    assert member.classic is not None
    try:
        version = read_subscription(member.classic.protocols[0][1], topics).version
    except NotAConsumer:
        return b""
    return write_assignment(version, owned, topics)
