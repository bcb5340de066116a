"""ConsumerGroupHeartbeat (key 68): membership of a group of the consumer protocol (KIP-848).

Behaviour
    A member joins with epoch 0, stays with its epoch and leaves with -1, a static member for a while with -2. The
    response carries the partitions that it may use now, where they have changed; it comes when `__consumer_offsets` has
    what the heartbeat changed. Without the protocol (`shared.consumer_protocol`) a consumer gets the error of Apache
    Kafka 3.9 in ZooKeeper mode with its first request.
Rights, in this order
    Read:Group (the group): the error of the whole answer.
    Describe:Topic (each topic that a member names): the error of the whole answer.
    Describe:Topic (each topic that matches its regular expression): left out of the answer.
Errors, in this order
    UNSUPPORTED_VERSION, COORDINATOR_NOT_AVAILABLE (shutting down), INVALID_REQUEST, UNSUPPORTED_ASSIGNOR,
    NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID,
    UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH, INVALID_REGULAR_EXPRESSION, and the errors of the
    append: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, UNKNOWN_SERVER_ERROR (records too large).
Versions
    All are flexible. 1: a regular expression; the member chooses its own id (KIP-1082).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set

from ottla_broker.authorization.access import Access
from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.groups.consumer.group_image import Assignment, assignment_of
from ottla_broker.groups.consumer.group_requests import GroupHeartbeat
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import consumer_group_heartbeat as wire
from ottla_broker.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.handlers.shared.client_host import client_host
from ottla_broker.server.handlers.shared.consumer_protocol import serves_consumer_groups

_FIRST_VERSION_WITH_REGEX = 1


async def handle(
    services: Services, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Answers when the log has what the heartbeat changed."""
    if not serves_consumer_groups(services):
        return ConsumerGroupHeartbeatResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION))
    if not context.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return ConsumerGroupHeartbeatResponse(error_code=int(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    version = context.api_version
    names = request.subscribed_topic_names
    if names and await context.denied_of_many(AclOperation.DESCRIBE, ResourceType.TOPIC, names):
        denial = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ConsumerGroupHeartbeatResponse(error_code=int(denial), error_message=denial.message)
    answer = await services.group_coordinator.consumer_heartbeat(
        request.group_id,
        GroupHeartbeat(
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            new_member_id="" if request.member_id else str(services.clock.uuid4()),
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            subscribed_topic_names=None if names is None else tuple(names),
            subscribed_topic_regex=request.subscribed_topic_regex if version >= _FIRST_VERSION_WITH_REGEX else None,
            server_assignor=request.server_assignor,
            owned=_owned(request),
            client_id=context.client_id or "",
            client_host=client_host(context),
        ),
        version,
        _describable(context.connection.access, context.api_name),
    )
    return ConsumerGroupHeartbeatResponse(
        error_code=int(answer.error),
        error_message=answer.message,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None if answer.assignment is None else _written(answer.assignment),
    )


def _describable(access: Access | None, api_name: str) -> Callable[[Collection[str]], Set[str]] | None:
    """Which topics that match a regular expression the member may know of; None: all."""
    if access is None:
        return None
    return lambda names: (
        set(names) - access.denied(api_name, AclOperation.DESCRIBE, ResourceType.TOPIC, names, logs=False)
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    if request.topic_partitions is None:
        return None
    return assignment_of(
        (bytes(topic.topic_id), partition) for topic in request.topic_partitions for partition in topic.partitions
    )


def _written(assignment: Assignment) -> wire.Assignment:
    return wire.Assignment(
        topic_partitions=[
            wire.TopicPartitions(topic_id=topic_id, partitions=sorted(assignment[topic_id]))
            for topic_id in sorted(assignment)
        ]
    )
