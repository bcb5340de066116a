"""A group that is converted to the classic protocol and back: what its members own stays theirs."""

from __future__ import annotations

import struct
from types import MappingProxyType

from ottla_broker.groups.consumer.assignors.offered import offered_assignors
from ottla_broker.groups.consumer.consumer_group import ConsumerGroup
from ottla_broker.groups.consumer.group_image import (
    NO_PARTITIONS,
    Assignment,
    ClassicMetadata,
    ConsumerGroupImage,
    ConsumerMember,
)
from ottla_broker.groups.consumer.group_requests import ConsumerGroupConfig, MigrationPolicy
from ottla_broker.groups.consumer.migration import downgraded, upgraded
from ottla_broker.groups.consumer.states import MemberState
from ottla_broker.groups.decisions import GroupConfig
from ottla_broker.groups.machine import Group
from ottla_broker.protocol.generated import consumer_protocol
from tests.broker.groups.consumer.group_driver import Topics

TOPICS = Topics(t=2)
TOPIC = TOPICS.find("t")
CONFIG = ConsumerGroupConfig(
    offered_assignors(("uniform",)), group_consumer_migration_policy=MigrationPolicy(True, True)
)


def classic_member(
    member_id: str, assigned: Assignment, pending_revocation: Assignment = NO_PARTITIONS
) -> ConsumerMember:
    subscription = consumer_protocol.ConsumerProtocolSubscription(topics=["t"], user_data=None, owned_partitions=[])
    chunks = consumer_protocol.write_consumer_protocol_subscription(1, subscription)
    metadata = b"".join([struct.pack(">h", 1), *chunks])  # type: ignore[list-item]
    return ConsumerMember(
        member_id,
        subscribed_topic_names=("t",),
        classic=ClassicMetadata(10_000, (("range", metadata),)),
        member_epoch=6,
        state=MemberState.UNREVOKED_PARTITIONS if pending_revocation else MemberState.STABLE,
        assigned=assigned,
        pending_revocation=pending_revocation,
    )


def partitions(*numbers: int) -> Assignment:
    assert TOPIC is not None
    return MappingProxyType({TOPIC.topic_id: frozenset(numbers)})


def test_a_group_that_is_converted_twice_gives_nobody_what_another_member_still_owns() -> None:
    members = {
        "slow": classic_member("slow", partitions(0), partitions(1)),
        "unaware": classic_member("unaware", NO_PARTITIONS),
    }
    # The target gives a partition to a member that joined: its owner has not given it up yet.
    targets = {"slow": partitions(0), "unaware": partitions(1)}
    assert TOPIC is not None
    image = ConsumerGroupImage("g", 7, 7, members, targets, {"t": TOPIC})
    classic = Group.restored(downgraded(image, (), TOPICS, 0).snapshot, GroupConfig(), 0)
    again = ConsumerGroup(upgraded(classic, CONFIG, TOPICS), CONFIG)
    assert [again.is_free_for("unaware", TOPIC.topic_id, number) for number in (0, 1)] == [False, False]
    assert [again.is_free_for("slow", TOPIC.topic_id, number) for number in (0, 1)] == [True, True]
