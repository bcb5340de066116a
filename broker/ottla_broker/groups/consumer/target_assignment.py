"""When a group needs a new target assignment, and what it is. Pure.

Source: GroupMetadataManager.updateSubscriptionMetadata, TargetAssignmentBuilder of Apache Kafka's group coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ottla_broker.groups.consumer.assignors.assignor import Assignor, MemberSubscription
from ottla_broker.groups.consumer.group_image import (
    NO_PARTITIONS,
    Assignment,
    ConsumerGroupImage,
    ConsumerMember,
    SubscribedTopic,
    TopicView,
)


def with_topics(image: ConsumerGroupImage, topics: TopicView, *, bumps_epoch: bool) -> ConsumerGroupImage:
    """The image with the topics of its subscriptions as they are now.

    The group epoch rises where they have changed, or with `bumps_epoch`.
    """
    found: dict[str, SubscribedTopic] = {}
    for name in image.subscribed_names():
        topic = topics.find(name)
        if topic is not None:
            found[name] = topic
    if found != image.topics:
        return replace(image, topics=found, epoch=image.epoch + 1)
    return replace(image, epoch=image.epoch + 1) if bumps_epoch else image


def with_target_assignment(image: ConsumerGroupImage, assignors: Mapping[str, Assignor]) -> ConsumerGroupImage:
    """The image with the target assignment of its group epoch; the same where it has that already."""
    if image.epoch <= image.assignment_epoch:
        return image
    ids = {name: topic.topic_id for name, topic in image.topics.items()}
    members = {
        member_id: MemberSubscription(
            tuple(sorted(ids[name] for name in image.topics_of(member) if name in ids)),
            member.instance_id,
            image.target(member_id),
        )
        for member_id, member in image.members.items()
    }
    counts = {topic.topic_id: topic.partition_count for topic in image.topics.values()}
    assigned = assignors[preferred_assignor(image.members, assignors)](members, counts)
    targets: dict[str, Assignment] = {}
    for member_id in image.members:
        target, previous = assigned.get(member_id, NO_PARTITIONS), image.targets.get(member_id)
        targets[member_id] = previous if previous is not None and previous == target else target
    return replace(image, targets=targets, assignment_epoch=image.epoch)


def preferred_assignor(members: Mapping[str, ConsumerMember], assignors: Mapping[str, Assignor]) -> str:
    """The assignor that most members name, ties in the order of the configuration; the first where nobody names one.

    >>> members = {name: ConsumerMember(name, server_assignor=name[0]) for name in ("b1", "b2", "a1", "x1")}
    >>> preferred_assignor(members, {"a": None, "b": None}), preferred_assignor({}, {"a": None, "b": None})
    ('b', 'a')
    """
    votes = dict.fromkeys(assignors, 0)
    for member in members.values():
        if member.server_assignor in votes:
            votes[member.server_assignor] += 1
    return max(votes, key=votes.__getitem__)
