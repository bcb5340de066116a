"""CreatePartitions (key 37, at the controller; KIP-195).

Behaviour
    Adds partitions to topics, up to the requested total. Replicas without a given assignment continue the
    placement of the topic's creation (KIP-36). The response is sent when this broker knows a leader of every partition.
Rights, in this order
    Alter:Topic (each topic): the error of the topic.
Errors, in this order
    NOT_CONTROLLER for every topic. INVALID_REQUEST (a name twice: one result for it). Then those of
    `controller.decisions.topic_plans`: INVALID_TOPIC_EXCEPTION (being deleted), UNKNOWN_TOPIC_OR_PARTITION,
    REASSIGNMENT_IN_PROGRESS, INVALID_PARTITIONS (not more than now), INVALID_REPLICA_ASSIGNMENT,
    POLICY_VIOLATION (a broker would hold more replicas than it may), THROTTLING_QUOTA_EXCEEDED (from v3: the client's
    controller_mutation_rate is used up; before, it is throttled). REQUEST_TIMED_OUT: added, not yet known here.
Versions
    2: flexible. 3: may be throttled (KIP-599).
"""

from __future__ import annotations

from collections import Counter

from ottla_broker.controller.acts.topic_administration import TopicResult
from ottla_broker.controller.decisions.topic_plans import TopicGrowth
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla_broker.server.handler_api import RequestContext, Services

_FIRST_STRICT_VERSION = 3


async def handle(
    services: Services, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """One result per topic, in the order of the request."""
    is_controller = services.controller.is_active  # as when rights were, or were not, asked for
    times: Counter[str] = Counter()
    async for topic in context.each(request.topics):
        times[topic.name] += 1
    growths = [
        TopicGrowth(
            topic.name,
            topic.count,
            None if topic.assignments is None else [tuple(entry.broker_ids) for entry in topic.assignments],
        )
        async for topic in context.each(request.topics)
        if times[topic.name] == 1
    ]
    try:
        if not is_controller:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        found = (
            await services.controller.create_partitions(
                growths,
                timeout_ms=request.timeout_ms,
                validate_only=request.validate_only,
                charge=services.throttle.mutation_charge(
                    context, is_strict=context.api_version >= _FIRST_STRICT_VERSION
                ),
            )
            if growths
            else []
        )
        results = {result.name: result for result in found}
        for name in times:
            if times[name] > 1:
                results[name] = TopicResult(name, ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
    except KafkaError as error:
        results = {name: TopicResult(name, error.code, error.message) for name in times}
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=name, error_code=int(results[name].error), error_message=results[name].message
            )
            async for name in context.each(times)
        ]
    )
