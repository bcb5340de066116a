"""ConsumerGroupDescribe (key 69): groups of the consumer protocol (KIP-848).

Behaviour
    State, epochs, assignor and members of each group, with their current and their target assignments; topics that do
    not exist any more are left out of these. One result for each id, as often as it is named. AuthorizedOperations are
    computed when requested (KIP-430). Clients ask with DescribeGroups for what is not found here.
Rights, in this order
    Describe:Group (each group): the error of the group.
    Describe:Topic (each topic of its members): the error of the group, without its members.
Errors, in this order, for each group
    UNSUPPORTED_VERSION, INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE (shutting down), NOT_COORDINATOR,
    COORDINATOR_LOAD_IN_PROGRESS, GROUP_ID_NOT_FOUND (no such group, or a classic one).
Versions
    All are flexible. 1: MemberType (KIP-1099).
"""

from __future__ import annotations

from ottla_broker.authorization.resources import NOT_ASKED, AclOperation, ResourceType
from ottla_broker.groups.consumer.group_image import Assignment, ConsumerMember
from ottla_broker.groups.coordinator import ConsumerGroupDescription
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import consumer_group_describe as wire
from ottla_broker.protocol.generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.consumer_protocol import serves_consumer_groups

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


async def handle(
    services: Services, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Answers from memory."""
    if not serves_consumer_groups(services):
        code = int(ErrorCode.UNSUPPORTED_VERSION)
        groups = [
            DescribedGroup(group_id=group_id, error_code=code) async for group_id in context.each(request.group_ids)
        ]
        return ConsumerGroupDescribeResponse(groups=groups)
    wants_operations = request.include_authorized_operations
    wanted = await context.distinct(request.group_ids)
    denied = await context.denied_of_many(AclOperation.DESCRIBE, ResourceType.GROUP, request.group_ids)
    refusal = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedGroup(group_id=group_id, error_code=refusal)
            if group_id in denied
            else await _described(
                services,
                context,
                group_id,
                services.group_coordinator.describe_consumer_group(group_id),
                wants_operations=wants_operations,
            )
            async for group_id in context.each(wanted)
        ]
    )


async def _described(
    services: Services,
    context: RequestContext,
    group_id: str,
    found: ConsumerGroupDescription,
    *,
    wants_operations: bool,
) -> DescribedGroup:
    image = found.image
    if image is None:
        return DescribedGroup(group_id=group_id, error_code=int(found.error), error_message=found.message)
    topics = {
        topic_id
        async for member_id, member in context.each(tuple(image.members.items()))
        for topic_id in (*member.assigned, *image.target(member_id))
    }
    names = {name: 1 for topic_id in topics if (name := services.metadata.topic_name(topic_id)) is not None}
    if await context.denied_of_many(AclOperation.DESCRIBE, ResourceType.TOPIC, names):
        return DescribedGroup(
            group_id=group_id,
            error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            error_message="The group has topics that the client may not describe.",
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=found.state,
        group_epoch=image.epoch,
        assignment_epoch=image.assignment_epoch,
        assignor_name=found.assignor,
        members=[
            _member(services, member, image.target(member_id))
            # A copy: members may come and go between two turns.
            async for member_id, member in context.each(tuple(image.members.items()))
        ],
        authorized_operations=context.authorized_operations(ResourceType.GROUP, group_id)
        if wants_operations
        else NOT_ASKED,
    )


def _member(services: Services, member: ConsumerMember, target: Assignment) -> wire.Member:
    return wire.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(services, member.assigned),
        target_assignment=_assignment(services, target),
        member_type=CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    )


def _assignment(services: Services, assignment: Assignment) -> wire.Assignment:
    topics = []
    for topic_id in sorted(assignment):
        name = services.metadata.topic_name(topic_id)
        if name is not None:
            partitions = sorted(assignment[topic_id])
            topics.append(wire.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=partitions))
    return wire.Assignment(topic_partitions=topics)
