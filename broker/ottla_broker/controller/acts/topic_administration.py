"""What administrators and leaders ask the active controller for: creating, growing and deleting topics, ISR changes.

Each function runs as one event of the controller's queue. It judges, writes, tells the brokers, and gives a result
per topic at once; where the client wants to wait until its broker knows, the result carries a future for that. Not
here: time limits and not being the controller (`controller`), the wire (`server.handlers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ottla_broker.config.broker import BrokerConfig
from ottla_broker.controller.active import ActiveController
from ottla_broker.controller.acts import isr_writes
from ottla_broker.controller.acts.isr_writes import IsrAnswer
from ottla_broker.controller.decisions.assignment import RackMode
from ottla_broker.controller.decisions.capacity import Capacity
from ottla_broker.controller.decisions.isr_changes import IsrChange
from ottla_broker.controller.decisions.topic_plans import NewTopic, TopicGrowth, TopicPlan, plan_growth, plan_topic
from ottla_broker.controller.decisions.topic_rules import check_collisions
from ottla_broker.controller.store import too_large_topic
from ottla_broker.controller.values import NO_LEADER, ReplicaAssignment, Topic
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition


@dataclass(slots=True)
class TopicResult:
    """What became of one topic of a request. `plan` is what was created, or would be."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    plan: TopicPlan | None = None
    done: asyncio.Future[None] | None = None
    """Completes when the controller's broker knows of it; None when there is nothing to wait for."""


@dataclass(frozen=True, slots=True)
class TopicIsrChanges:
    """The changes of one topic, which is named by its id (AlterPartition v2+) or by its name."""

    topic_id: bytes | None
    name: str | None
    changes: Mapping[int, IsrChange]


async def create_topics(
    active: ActiveController,
    topics: Sequence[NewTopic],
    *,
    config: BrokerConfig,
    clock: Clock,
    mode: RackMode,
    validate_only: bool,
) -> list[TopicResult]:
    """One result per topic, in their order. The brokers hear of all of them at once."""
    results = []
    capacity = Capacity(active.context)
    created: list[TopicResult] = []
    for new in topics:
        result = TopicResult(new.name)
        results.append(result)
        try:
            check_collisions(new.name, [other.name for other in created])
            plan = plan_topic(new, active.context, config, active.new_topic_id(), clock.random.randrange, mode)
            _check_size(plan)
            replicas = [broker for one in plan.topic.partitions.values() for broker in one.replicas]
            capacity.take(f"Topic '{new.name}'", replicas)
            if not validate_only:
                if not await active.store.create_topic(plan.topic, plan.overrides):
                    raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{new.name}' already exists.")
                created.append(result)
            result.plan = plan
        except KafkaError as error:
            result.error, result.message = error.code, error.message
    await _start(active, clock, created)
    return results


async def _start(active: ActiveController, clock: Clock, created: Sequence[TopicResult]) -> None:
    """Gives the topics leaders, tells the brokers, and what is waited for."""
    topics = [result.plan.topic for result in created if result.plan is not None]
    await active.add_topics(topics)
    await active.watch_topics([topic.name for topic in topics])
    for result in created:
        result.done = _when_led(active, clock, result.name)


async def create_partitions(
    active: ActiveController, growths: Sequence[TopicGrowth], *, clock: Clock, validate_only: bool
) -> list[TopicResult]:
    """One result per topic, in their order."""
    results = []
    capacity = Capacity(active.context)
    for growth in growths:
        result = TopicResult(growth.name)
        try:
            added = plan_growth(growth, active.context)
            _check_growth(active.context.topic(growth.name), added)
            what = f"Topic '{growth.name}' with {growth.count} partitions"
            capacity.take(what, [broker for replicas in added.values() for broker in replicas])
            if not validate_only:
                await _grow(active, growth.name, added)
                result.done = _when_led(active, clock, growth.name)
        except KafkaError as error:
            result.error, result.message = error.code, error.message
        results.append(result)
    return results


async def _grow(active: ActiveController, name: str, added: Mapping[int, tuple[int, ...]]) -> None:
    grown = await active.store.grow_topic(name, added)
    if grown is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' was deleted or changed by another program."
        )
    await active.add_partitions(grown)


async def delete_topics(
    active: ActiveController, names: Sequence[str], *, clock: Clock, topic_ids: Mapping[str, bytes]
) -> list[TopicResult]:
    """One result per topic, in their order. One that is being deleted already is unknown to clients.

    `topic_ids`: of those that were named by their id. Another topic may have the name by now.
    """
    results = []
    accepted = []
    for name in names:
        wanted = topic_ids.get(name)
        if wanted is not None and active.context.topic_name(wanted) != name:
            results.append(TopicResult(name, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID.message))
            continue
        if not active.context.has_topic(name) or active.context.is_deleting(name):
            results.append(TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This topic does not exist."))
            continue
        await active.store.mark_for_deletion(name)
        accepted.append(name)
        results.append(TopicResult(name))
    await active.deletions.start(accepted)
    for result in results:
        if result.error is ErrorCode.NONE:
            result.done = clock.create_future()
            active.waits.add(result.name, lambda: True, result.done)
    return results


async def alter_isrs(
    active: ActiveController, broker: int, broker_epoch: int, topics: Sequence[TopicIsrChanges], version: int
) -> list[dict[int, IsrAnswer]]:
    """Answers per topic and partition. KafkaError STALE_BROKER_EPOCH when the sender is not the living broker."""
    context = active.context
    living = context.brokers.get(broker)
    if living is None or living.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker} has the epoch {None if living is None else living.epoch}, not {broker_epoch}",
        )
    names: list[str | None] = []
    changes: dict[TopicPartition, IsrChange] = {}
    for topic in topics:
        name = topic.name if topic.topic_id is None else context.topic_name(topic.topic_id)
        names.append(name)
        if name is not None:
            changes.update({TopicPartition(name, partition): change for partition, change in topic.changes.items()})
    answers = await isr_writes.alter_isrs(active, changes, version)
    return [
        {
            partition: IsrAnswer(ErrorCode.UNKNOWN_TOPIC_ID)
            if name is None
            else answers[TopicPartition(name, partition)]
            for partition in topic.changes
        }
        for name, topic in zip(names, topics, strict=True)
    ]


def _when_led(active: ActiveController, clock: Clock, name: str) -> asyncio.Future[None]:
    """Completes once every partition has a leader and the controller's broker knows."""
    future: asyncio.Future[None] = clock.create_future()
    active.waits.add(name, _is_led(active, name), future)
    return future


def _is_led(active: ActiveController, name: str) -> Callable[[], bool]:
    def is_led() -> bool:
        leadership = active.context.leadership
        return all(
            partition in leadership and leadership[partition].leader != NO_LEADER
            for partition in active.context.partitions_of(name)
        )

    return is_led


def _check_size(plan: TopicPlan) -> None:
    too_large = too_large_topic(plan.topic)
    if too_large:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, too_large)
    too_large = too_large_topic(plan.topic, plan.overrides)  # one transaction writes both
    if too_large:
        raise KafkaError(ErrorCode.INVALID_CONFIG, too_large)


def _check_growth(topic: Topic, added: Mapping[int, tuple[int, ...]]) -> None:
    grown = {partition: ReplicaAssignment(replicas) for partition, replicas in added.items()}
    too_large = too_large_topic(Topic(topic.name, topic.topic_id, {**topic.partitions, **grown}))
    if too_large:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, too_large)
