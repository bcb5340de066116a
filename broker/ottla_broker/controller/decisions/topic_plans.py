"""Decides CreateTopics and CreatePartitions: what is created, or which error the client gets.

Pure: the plans depend on the context and the broker's configuration. Not here: single rules (`topic_rules`), choosing
brokers (`assignment`), the last check of each (`capacity`), creating (`acts.topic_administration`).

The order of the checks of a topic to create (the first that fails gives the error)
1. it exists                                            TOPIC_ALREADY_EXISTS
2. a configuration without value                        INVALID_CONFIG
3. both counts and an assignment given                  INVALID_REQUEST
4. partitions, then replication factor, that cannot be  INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR
5. its name, and a collision with another name          INVALID_TOPIC_EXCEPTION
6. the given assignment                                 INVALID_REPLICA_ASSIGNMENT
7. its configuration                                    INVALID_CONFIG
8. a broker would get more replicas than it may have    POLICY_VIOLATION

and of a topic to grow
1. being deleted                                        INVALID_TOPIC_EXCEPTION
2. unknown                                              UNKNOWN_TOPIC_OR_PARTITION
3. being reassigned                                     REASSIGNMENT_IN_PROGRESS
4. not more partitions than now                         INVALID_PARTITIONS
5. the given assignment                                 INVALID_REPLICA_ASSIGNMENT
6. a broker would get more replicas than it may have    POLICY_VIOLATION
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ottla_broker.config.broker import BrokerConfig
from ottla_broker.config.topics import INTERNAL_TOPICS, validate_topic_config
from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.decisions import topic_rules
from ottla_broker.controller.decisions.assignment import (
    AssignmentError,
    BrokerRack,
    InvalidPartitionCount,
    InvalidReplicationFactor,
    RackMode,
    assign_added_partitions,
    assign_new_topic,
)
from ottla_broker.controller.values import ReplicaAssignment, Topic
from ottla_broker.protocol.errors import ErrorCode, KafkaError

USE_DEFAULT = -1
"""Partitions or replication factor by the broker's num.partitions and default.replication.factor (KIP-464)."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. Either the two counts are given (or -1) or `assignment` is not empty."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignment: Mapping[int, tuple[int, ...]] | None = None
    configs: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The topic that a NewTopic becomes, and the configuration that it gets."""

    topic: Topic
    overrides: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicGrowth:
    """A topic to grow to `count` partitions; `assignments` are the replicas of the added ones, None to choose them."""

    name: str
    count: int
    assignments: Sequence[tuple[int, ...]] | None = None


def plan_topic(
    new: NewTopic,
    context: ControllerContext,
    config: BrokerConfig,
    topic_id: bytes,
    randrange: Callable[[int], int],
    mode: RackMode,
) -> TopicPlan:
    """The topic to create. Raises the KafkaError for the client when it cannot be created."""
    if context.has_topic(new.name):
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{new.name}' already exists.")
    given = new.configs or {}
    without_value = [name for name, value in given.items() if value is None]
    if without_value:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(without_value)}"
        )
    if new.assignment and (new.partitions != USE_DEFAULT or new.replication_factor != USE_DEFAULT):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the "
            "same time.",
        )
    assignment = new.assignment or _choose(new, context, config, randrange, mode)
    topic_rules.check_name(new.name)
    topic_rules.check_collisions(new.name, context.names_like(new.name))
    if new.assignment:
        topic_rules.check_partition_count(len(new.assignment))
        topic_rules.check_new_assignment(new.assignment)
    overrides = {name: value for name, value in given.items() if value is not None}
    validate_topic_config(overrides, internal=new.name in INTERNAL_TOPICS)
    partitions = {partition: ReplicaAssignment(tuple(replicas)) for partition, replicas in assignment.items()}
    return TopicPlan(Topic(new.name, topic_id, partitions), overrides)


def _choose(
    new: NewTopic,
    context: ControllerContext,
    config: BrokerConfig,
    randrange: Callable[[int], int],
    mode: RackMode,
) -> dict[int, tuple[int, ...]]:
    partitions = config.num_partitions if new.partitions == USE_DEFAULT else new.partitions
    factor = config.default_replication_factor if new.replication_factor == USE_DEFAULT else new.replication_factor
    topic_rules.check_partition_count(partitions)
    try:
        return assign_new_topic(_racks(context), partitions, factor, randrange, mode)
    except AssignmentError as error:
        raise _as_kafka_error(error) from None


def plan_growth(
    growth: TopicGrowth, context: ControllerContext, mode: RackMode = RackMode.ENFORCED
) -> dict[int, tuple[int, ...]]:
    """The replicas of the partitions to add. Raises the KafkaError for the client when they cannot be added."""
    name = growth.name
    if context.is_deleting(name):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
    if not context.has_topic(name):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    partitions = context.topic(name).partitions
    if any(assignment.adding or assignment.removing for assignment in partitions.values()):
        raise KafkaError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS, f"A partition reassignment is in progress for the topic '{name}'."
        )
    present, wanted = len(partitions), growth.count
    if wanted < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {present} partitions, which is higher than the requested {wanted}.",
        )
    if wanted == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partitions.")
    topic_rules.check_partition_count(wanted)
    if 0 not in partitions:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Unexpected existing replica assignment for topic '{name}', partition id 0 is missing.",
        )
    existing = {partition: assignment.replicas for partition, assignment in partitions.items()}
    if growth.assignments is not None:
        if len(growth.assignments) != wanted - present:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Increasing the number of partitions by {wanted - present} but {len(growth.assignments)} "
                f"assignments provided.",
            )
        added = {present + index: tuple(replicas) for index, replicas in enumerate(growth.assignments)}
        topic_rules.check_added_assignment(added, len(existing[0]), frozenset(context.brokers))
        return added
    try:
        return assign_added_partitions(_racks(context), existing, wanted, mode)
    except AssignmentError as error:
        raise _as_kafka_error(error) from None


def _racks(context: ControllerContext) -> list[BrokerRack]:
    return [BrokerRack(broker, context.brokers[broker].rack) for broker in context.broker_ids()]


def _as_kafka_error(error: AssignmentError) -> KafkaError:
    if isinstance(error, InvalidPartitionCount):
        return KafkaError(ErrorCode.INVALID_PARTITIONS, str(error))
    if isinstance(error, InvalidReplicationFactor):
        return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, str(error))
    # Racks on some brokers only: Kafka has no error code for it and answers UNKNOWN_SERVER_ERROR.
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
