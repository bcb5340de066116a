"""Creates, grows and deletes topics on request: CreateTopics, CreatePartitions, DeleteTopics.

Each method decides, writes, sends the result to the brokers, and returns one result per topic at once. Where the client
wants to wait until its broker knows, the result has a future for that. Not here: what is valid
(`decisions.topic_plans`), time limits (`controller`), the requests on the wire (`server.handlers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from ottla_broker.controller.acts.metadata_waits import MetadataWaits
from ottla_broker.controller.acts.topic_changes import TopicChanges
from ottla_broker.controller.acts.topic_deletions import TopicDeletions
from ottla_broker.controller.controller_epoch_parts import ControllerEpochParts
from ottla_broker.controller.decisions.assignment import RackMode
from ottla_broker.controller.decisions.capacity import Capacity
from ottla_broker.controller.decisions.topic_plans import NewTopic, TopicGrowth, TopicPlan, plan_growth, plan_topic
from ottla_broker.controller.decisions.topic_rules import check_collisions
from ottla_broker.controller.store import too_large_topic
from ottla_broker.controller.values import NO_LEADER, ReplicaAssignment, Topic
from ottla_broker.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("ottla.controller")

TOPICS_PER_TURN: Final = 20
"""Of a request; after so many the loop does other work."""

Charge = Callable[[int], None]
"""Called with the number of partitions that are about to be created or deleted (KIP-599).

Raises KafkaError(THROTTLING_QUOTA_EXCEEDED): they are not.
"""


def free_of_charge(partitions: int) -> None:
    """The charge of a change without a quota."""


@contextmanager
def _error_of_topic(name: str) -> Iterator[None]:
    """Makes an unforeseen exception of a topic's plan the error of that topic.

    A plan has changed nothing, so the controller goes on. What is written afterwards is no plan.

    Source: ZkAdminManager, where each topic of a request has a result, whatever is thrown.
    """
    try:
        yield
    except KafkaError:
        raise
    except Exception as error:
        logger.exception("topic %s cannot be planned", name)
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the plan of topic '{name}' failed: {error!r}") from error


@dataclass(slots=True)
class TopicResult:
    """The result for one topic of a request. `plan` is what was created, or would be."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    plan: TopicPlan | None = None
    done: asyncio.Future[None] | None = None
    """Completes when the controller's broker has the change in its metadata; None when there is nothing to wait for."""


class TopicAdministration:
    """The requests of administrators in one controller epoch."""

    def __init__(
        self,
        *,
        parts: ControllerEpochParts,
        topics: TopicChanges,
        deletions: TopicDeletions,
        waits: MetadataWaits,
    ) -> None:
        self._context = parts.context
        self._store = parts.store
        self._clock = parts.clock
        self._config = parts.config
        self._topics = topics
        self._deletions = deletions
        self._waits = waits

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        mode: RackMode,
        validate_only: bool,
        charge: Charge = free_of_charge,
    ) -> list[TopicResult]:
        """One result per topic, in their order. The brokers get all of them in one batch."""
        results = []
        capacity = Capacity(self._context)
        created: list[TopicResult] = []
        for number, new in enumerate(topics, 1):
            await self._give_way(number)
            result = TopicResult(new.name)
            results.append(result)
            try:
                with _error_of_topic(new.name):
                    check_collisions(new.name, [other.name for other in created])
                    plan = plan_topic(
                        new,
                        self._context,
                        self._config,
                        self._topics.new_topic_id(),
                        self._clock.random.randrange,
                        mode,
                    )
                    _check_size(plan)
                    replicas = [broker for one in plan.topic.partitions.values() for broker in one.replicas]
                    capacity.take(f"Topic '{new.name}'", replicas)
                if not validate_only:
                    charge(len(plan.topic.partitions))
                    if not await self._store.create_topic(plan.topic, plan.overrides):
                        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{new.name}' already exists.")
                    created.append(result)
                result.plan = plan
            except KafkaError as error:
                result.error, result.message = error.code, error.message
        await self._start(created)
        return results

    async def _give_way(self, number: int) -> None:
        """The loop does other work after every so many topics of a request, also where all of them are refused."""
        if number % TOPICS_PER_TURN == 0:
            await self._clock.sleep(0)

    async def _start(self, created: Sequence[TopicResult]) -> None:
        """Elects the leaders of created topics, and sets what their results wait for."""
        topics = [result.plan.topic for result in created if result.plan is not None]
        await self._topics.add_topics(topics)
        await self._topics.watch_topics([topic.name for topic in topics])
        for result in created:
            result.done = self._when_led(result.name)

    async def create_partitions(
        self, growths: Sequence[TopicGrowth], *, validate_only: bool, charge: Charge = free_of_charge
    ) -> list[TopicResult]:
        """One result per topic, in their order."""
        results = []
        capacity = Capacity(self._context)
        for number, growth in enumerate(growths, 1):
            await self._give_way(number)
            result = TopicResult(growth.name)
            try:
                with _error_of_topic(growth.name):
                    added = plan_growth(growth, self._context)
                    _check_growth(self._context.topic(growth.name), added)
                    what = f"Topic '{growth.name}' with {growth.count} partitions"
                    capacity.take(what, [broker for replicas in added.values() for broker in replicas])
                if not validate_only:
                    charge(len(added))
                    await self._grow(growth.name, added)
                    result.done = self._when_led(growth.name)
            except KafkaError as error:
                result.error, result.message = error.code, error.message
            results.append(result)
        return results

    async def _grow(self, name: str, added: Mapping[int, tuple[int, ...]]) -> None:
        grown = await self._store.grow_topic(name, added)
        if grown is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' was deleted or changed by another program."
            )
        await self._topics.add_partitions(grown)

    async def delete_topics(
        self, names: Sequence[str], *, topic_ids: Mapping[str, bytes], charge: Charge = free_of_charge
    ) -> list[TopicResult]:
        """One result per topic, in their order. A topic that is already being deleted is unknown to clients.

        Args:
            topic_ids: the ids of those that the client named by id; another topic may have the name by now.
        """
        context = self._context
        results = []
        accepted: dict[str, Callable[[], bool]] = {}
        for number, name in enumerate(names, 1):
            await self._give_way(number)
            wanted = topic_ids.get(name)
            if wanted is not None and context.topic_name(wanted) != name:
                results.append(TopicResult(name, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID.message))
                continue
            if not context.has_topic(name) or context.is_deleting(name):
                results.append(TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This topic does not exist."))
                continue
            try:
                charge(len(context.topic(name).partitions))
            except KafkaError as error:
                results.append(TopicResult(name, error.code, error.message))
                continue
            await self._store.mark_for_deletion(name)
            accepted[name] = self._is_deletion_started(name)
            results.append(TopicResult(name))
        await self._deletions.start(list(accepted))
        for result in results:
            if result.error is ErrorCode.NONE:
                result.done = self._clock.create_future()
                self._waits.add(result.name, accepted[result.name], result.done)
        return results

    def _when_led(self, name: str) -> asyncio.Future[None]:
        """Completes once every partition has a leader and the controller's broker has it in its metadata."""
        future: asyncio.Future[None] = self._clock.create_future()
        self._waits.add(name, self._is_led(name), future)
        return future

    def _is_deletion_started(self, name: str) -> Callable[[], bool]:
        context, topic_id = self._context, self._context.topic_id(name)

        def is_started() -> bool:
            # The topic may be gone by the time the broker answers, and another one may have its name.
            if name in context.deletion_started or context.topic_id(name) != topic_id:
                return True
            # Nor is there anything to wait for where no partition has ever been in the metadata.
            partitions = context.partitions_of(name)
            return not any(tp in context.leadership or tp in context.unreadable_partitions for tp in partitions)

        return is_started

    def _is_led(self, name: str) -> Callable[[], bool]:
        context = self._context

        def is_led() -> bool:
            return all(
                partition in context.leadership and context.leadership[partition].leader != NO_LEADER
                for partition in context.partitions_of(name)
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
