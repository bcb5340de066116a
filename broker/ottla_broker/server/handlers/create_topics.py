"""CreateTopics (key 19, at the controller).

Behaviour
    Each topic by itself: a refused one does not stop the others. Counts of -1 mean num.partitions and
    default.replication.factor. Replicas are spread over racks (KIP-36); a request of a broker (automatic creation)
    ignores racks that only some brokers have. The response is sent when this broker knows a leader of every partition.
Rights, in this order
    Create:Cluster (all topics): the next right decides.
    Create:Topic (each topic): the error of the topic.
    DescribeConfigs:Topic (the configuration of each topic (v5+)): the error beside the topic.
Errors, in this order
    NOT_CONTROLLER for every topic. INVALID_REQUEST (__cluster_metadata, which KRaft keeps; a name twice).
    TOPIC_AUTHORIZATION_FAILED, also for a topic that exists; beside a topic whose configuration may not be described.
    Then those of `controller.decisions.topic_plans`: TOPIC_ALREADY_EXISTS, INVALID_CONFIG (no value), INVALID_REQUEST
    (counts and replicas), INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_TOPIC_EXCEPTION,
    INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, POLICY_VIOLATION (a broker would hold more replicas than it may).
    THROTTLING_QUOTA_EXCEEDED (from v6: the client's controller_mutation_rate is used up; before, it is throttled).
    REQUEST_TIMED_OUT: created, not yet known here.
Versions
    1: validateOnly, error messages. 2: throttle time. 4: -1 for the counts (KIP-464). 5: flexible; the counts and
    configuration of what was created (KIP-525). 6: may be throttled (KIP-599). 7: topic id (KIP-516).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Set

from ottla_broker.authorization.access import NOTHING
from ottla_broker.authorization.resources import CLUSTER_NAME, AclOperation, ResourceType
from ottla_broker.config.broker import BrokerConfig
from ottla_broker.controller.acts.topic_administration import TopicResult
from ottla_broker.controller.decisions.assignment import RackMode
from ottla_broker.controller.decisions.topic_plans import NewTopic
from ottla_broker.controller.decisions.topic_rules import CLUSTER_METADATA_TOPIC
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services

_FIRST_STRICT_VERSION = 6


async def handle(services: Services, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """One result per topic, in the order of the request."""
    times: Counter[str] = Counter()
    async for topic in context.each(request.topics):
        times[topic.name] += 1
    refused: dict[int, CreatableTopicResult] = {}
    denied: Set[str] = NOTHING
    hidden = await context.denied_of_many(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, times, logs=False)
    if not context.may(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, logs=False):
        denied = await context.denied_of_many(AclOperation.CREATE, ResourceType.TOPIC, times)
    wanted: list[tuple[int, NewTopic]] = []
    async for index, topic in context.each(enumerate(request.topics)):
        if not services.controller.is_active:
            refused[index] = _refusal(topic.name, ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER.message)
        elif topic.name == CLUSTER_METADATA_TOPIC:
            message = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
            refused[index] = _refusal(topic.name, ErrorCode.INVALID_REQUEST, message)
        elif times[topic.name] > 1:
            refused[index] = _refusal(topic.name, ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")
        elif topic.name in denied:
            refused[index] = _refusal(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        else:
            try:
                wanted.append((index, _new_topic(topic)))
            except KafkaError as error:
                refused[index] = _refusal(topic.name, error.code, error.message)
    if services.controller.is_active:
        for result in refused.values():
            _hide_config(result, hidden)
    results = dict(refused)
    if wanted:
        for (index, _), result in zip(wanted, await _create(services, context, request, wanted, hidden), strict=True):
            results[index] = result
    return CreateTopicsResponse(topics=[results[index] for index in sorted(results)])


async def _create(
    services: Services,
    context: RequestContext,
    request: CreateTopicsRequest,
    wanted: list[tuple[int, NewTopic]],
    hidden: Set[str],
) -> list[CreatableTopicResult]:
    try:
        results = await services.controller.create_topics(
            [new for _, new in wanted],
            timeout_ms=request.timeout_ms,
            validate_only=request.validate_only,
            mode=RackMode.SAFE if context.is_privileged else RackMode.ENFORCED,
            charge=services.throttle.mutation_charge(context, is_strict=context.api_version >= _FIRST_STRICT_VERSION),
        )
    except KafkaError as error:
        return [_refusal(new.name, error.code, error.message) async for _, new in context.each(wanted)]
    config = services.dynamic_config.config
    return [
        _response(result, config, request.validate_only, hides_config=result.name in hidden)
        async for result in context.each(results, 5)
    ]


def _new_topic(topic: CreatableTopic) -> NewTopic:
    """Raises KafkaError(INVALID_REPLICA_ASSIGNMENT) when a partition's replicas are given twice."""
    assignment: dict[int, tuple[int, ...]] = {}
    for entry in topic.assignments:
        if entry.partition_index in assignment:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {entry.partition_index}",
            )
        assignment[entry.partition_index] = tuple(entry.broker_ids)
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        assignment or None,
        {config.name: config.value for config in topic.configs},
    )


def _response(
    result: TopicResult, config: BrokerConfig, validate_only: bool, *, hides_config: bool
) -> CreatableTopicResult:
    plan = result.plan
    if result.error is not ErrorCode.NONE or plan is None:
        return _refusal(result.name, result.error, result.message)
    response = CreatableTopicResult(name=result.name, configs=[])
    if hides_config:
        _hide_config(response, (result.name,))
    else:
        response.num_partitions = len(plan.topic.partitions)
        response.replication_factor = len(plan.topic.partitions[0].replicas)
        response.configs = [
            CreatableTopicConfigs(
                name=found.name,
                value=found.value,
                read_only=found.is_read_only,
                config_source=int(found.source),
                is_sensitive=found.is_sensitive,
            )
            for found in config.topic_config(plan.overrides).describe_all()
        ]
    if not validate_only and not hides_config and plan.topic.topic_id is not None:
        response.topic_id = plan.topic.topic_id
    return response


def _hide_config(result: CreatableTopicResult, hidden: Container[str]) -> None:
    if result.name in hidden:
        result.topic_config_error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _refusal(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=int(code), error_message=message, configs=[])
