"""DeleteTopics (key 20, at the controller).

Behaviour
    Marks topics for deletion, by name or by id. The response is sent when this broker no longer knows them; logs
    and znodes are deleted afterwards, the logs of a dead broker when it returns.
Rights, in this order
    Describe:Topic (each topic): the error of the topic, by id (v6+) without its name.
    Delete:Topic (each topic): the error of the topic.
Errors, in this order
    NOT_CONTROLLER, then TOPIC_DELETION_DISABLED (delete.topic.enable; INVALID_REQUEST before v3), for every topic.
    INVALID_REQUEST for every topic when one has both name and id. UNKNOWN_TOPIC_ID. TOPIC_AUTHORIZATION_FAILED.
    UNKNOWN_TOPIC_OR_PARTITION, also for one that is being deleted already. THROTTLING_QUOTA_EXCEEDED (from v5: the
    client's controller_mutation_rate is used up; before, it is throttled). REQUEST_TIMED_OUT: marked, still known here.
Versions
    1: throttle time. 4: flexible. 5: error messages, may be throttled (KIP-599). 6: topic ids (KIP-516).
"""

from __future__ import annotations

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.controller.acts.topic_administration import TopicResult
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla_broker.server.handler_api import RequestContext, Services

_FIRST_STRICT_VERSION = 5


async def handle(services: Services, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """One result per topic, in the order of the request."""
    states = (
        request.topics
        if context.api_version >= 6
        else [DeleteTopicState(name=name, topic_id=ZERO_UUID) async for name in context.each(request.topic_names)]
    )
    refusal = _refusal_of_all(services, context.api_version)
    if refusal is None:
        async for state in context.each(states):
            if state.name is not None and bytes(state.topic_id) != ZERO_UUID:
                refusal = KafkaError(ErrorCode.INVALID_REQUEST, "Topic name and topic ID can not both be specified.")
    if refusal is not None:
        return DeleteTopicsResponse(
            responses=[
                _result(state.name, bytes(state.topic_id), refusal.code, refusal.message)
                async for state in context.each(states)
            ]
        )
    names: list[str | None] = []
    # A topic named twice, perhaps by name and by id, is deleted once and has two results.
    wanted: dict[str, None] = {}
    # When the controller handles it, the topic of this id may be deleted and another one may have its name.
    topic_ids: dict[str, bytes] = {}
    async for state in context.each(states):
        name = _name_of(services, state)
        names.append(name)
        if name is not None:
            wanted[name] = None
        if name and state.name is None:
            topic_ids[name] = bytes(state.topic_id)
    hidden = await context.denied_of_many(AclOperation.DESCRIBE, ResourceType.TOPIC, wanted)
    denied = {
        *await context.denied_of_many(AclOperation.DELETE, ResourceType.TOPIC, wanted),
        *(name for name in topic_ids if name in hidden),
    }
    wanted = {name: None for name in wanted if name not in denied}
    results = await _delete(services, context, list(wanted), topic_ids, request.timeout_ms)
    responses = []
    async for state, name in context.each(zip(states, names, strict=True)):
        topic_id = bytes(state.topic_id)
        if name is not None and name in denied:
            # Its id is no secret, its name is.
            known = None if state.name is None and name in hidden else name
            responses.append(_result(known, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None))
        elif name is not None:
            result = results[name]
            kept = None if result.error is ErrorCode.UNKNOWN_TOPIC_ID else name
            responses.append(_result(kept, topic_id, result.error, result.message))
        elif topic_id != ZERO_UUID:
            responses.append(_result(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID.message))
        else:
            responses.append(_result(None, topic_id, ErrorCode.INVALID_REQUEST, "The topic has neither name nor id."))
    return DeleteTopicsResponse(responses=responses)


async def _delete(
    services: Services, context: RequestContext, names: list[str], topic_ids: dict[str, bytes], timeout_ms: int
) -> dict[str, TopicResult]:
    if not names:
        return {}
    try:
        results = await services.controller.delete_topics(
            names,
            timeout_ms=timeout_ms,
            topic_ids=topic_ids,
            charge=services.throttle.mutation_charge(context, is_strict=context.api_version >= _FIRST_STRICT_VERSION),
        )
    except KafkaError as error:
        return {name: TopicResult(name, error.code, error.message) for name in names}
    return {result.name: result for result in results}


def _refusal_of_all(services: Services, version: int) -> KafkaError | None:
    if not services.controller.is_active:
        return KafkaError(ErrorCode.NOT_CONTROLLER)
    if not services.config.delete_topic_enable:
        return KafkaError(ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED)
    return None


def _name_of(services: Services, state: DeleteTopicState) -> str | None:
    if bytes(state.topic_id) == ZERO_UUID:
        return state.name
    return services.controller.topic_name(bytes(state.topic_id))


def _result(name: str | None, topic_id: bytes, code: ErrorCode, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=int(code), error_message=message)
