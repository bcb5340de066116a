"""The KafkaTopics of one cluster: batches in order of arrival, each document once, one request of a kind per batch.

The finalizer is written before a topic is created, the status after. A batch that meets a fleet that does not answer
keeps its documents queued.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ottla_operator.api.names import TOPIC_FINALIZER
from ottla_operator.api.objects import (
    KAFKA_CLUSTER,
    KAFKA_TOPIC,
    NAMESPACE,
    Obj,
    dig,
    is_deleting,
    name_of,
    uid_of,
)
from ottla_operator.effects.ports import ApiError, KafkaAdmin, KafkaError, KubernetesApi, Surroundings
from ottla_operator.model.cluster import parse_cluster
from ottla_operator.model.topic import parse_topic
from ottla_operator.planning.config import internal_address
from ottla_operator.runtime.cluster_task import events, tell
from ottla_operator.runtime.store import Key, Store
from ottla_operator.topics.decisions import (
    TopicChange,
    TopicDecision,
    TopicFacts,
    TopicView,
    decide_topic,
    oldest_first,
    refused,
    waiting,
)

_Result = TypeVar("_Result")
BATCH = 100
LINGER_S = 0.1
SETTLE_S = 1.0
"""How long it is before a change is looked for again that the brokers did not show at once."""
WRITES_AT_ONCE = 8


class TopicTask:
    """The topics of one KafkaCluster. `put` queues a document; `batch_once` does the next batch."""

    def __init__(
        self,
        key: Key,
        store: Store,
        api: KubernetesApi,
        surroundings: Surroundings,
        broker_ids: Callable[[], Sequence[int]],
    ) -> None:
        self.key = key
        self._store = store
        self._api = api
        self._surroundings = surroundings
        self._broker_ids = broker_ids
        self._queue: dict[str, None] = {}
        self._queued = asyncio.Event()
        self._waiting: dict[str, None] = {}
        self._settling: set[str] = set()
        self._first: dict[str, Obj] = {}
        self._kafka: KafkaAdmin | None = None
        self._bootstrap: tuple[str, ...] = ()
        self._log = logging.getLogger(f"ottla.operator.{key[0]}.{key[1]}.topics")

    def put(self, name: str) -> None:
        """Queues a document by its name, at its first place if it is queued already."""
        self._queue.setdefault(name)
        self._queued.set()

    def put_all(self) -> None:
        """Queues every document of the cluster: drift in Kafka sends no event."""
        for name in self._store.of_cluster(self.key).get(KAFKA_TOPIC.kind, {}):
            self.put(name)

    @property
    def has_waiting(self) -> bool:
        """Whether a document waits for the fleet: for more brokers, or because a change was refused."""
        return bool(self._waiting)

    def put_waiting(self) -> None:
        """Queues the documents that wait for the fleet; no event tells when it can do what they ask."""
        waiting, self._waiting = self._waiting, {}
        for name in waiting:
            self.put(name)

    def __len__(self) -> int:
        return len(self._queue)

    async def wait(self) -> None:
        """Until something is queued, and a little longer, so that a batch fills."""
        await self._queued.wait()
        is_new = any(name not in self._settling for name in self._queue)
        await asyncio.sleep(LINGER_S if is_new else SETTLE_S)

    async def batch_once(self) -> None:
        """The next batch. On KafkaError and ApiError its documents stay queued, and the error is raised."""
        names = list(self._queue)[:BATCH]
        for name in names:
            del self._queue[name]
        if not self._queue:
            self._queued.clear()
        try:
            again = await self._do(names)
        except (KafkaError, ApiError):
            for name in names:
                self.put(name)
            raise
        for name in names:
            self._settling.discard(name)
        for name in again:
            self._settling.add(name)
            self.put(name)

    async def close(self) -> None:
        if self._kafka is not None:
            await self._kafka.close()

    async def _do(self, names: Sequence[str]) -> list[str]:
        """Gives the documents that have to be looked at again."""
        resources = [
            resource
            for name in names
            if (resource := self._store.get(KAFKA_TOPIC, self.key[0], name)) is not None
        ]  # fmt: skip
        if not resources:
            return []
        self._find_first()
        going = await self._is_going(any(is_deleting(resource) for resource in resources))
        lives: Mapping[str, TopicView] = {}
        brokers = 0
        kafka = None if going else self._client()
        try:
            if kafka is not None:
                brokers = len(await kafka.brokers())
                lives = await kafka.topics([parse_topic(resource)[0].topic_name for resource in resources])
            elif not going:
                raise KafkaError("the cluster has no brokers yet")
        except KafkaError:
            await self._tell_waiting(names)
            raise

        async def decide(resource: Obj) -> tuple[TopicFacts, TopicDecision]:
            facts = self._facts(resource, lives, brokers, going)
            decision = decide_topic(facts)
            if decision.finalizer is not None:
                resource = await self._set_finalizer(resource, decision.finalizer)
                facts = self._facts(resource, lives, brokers, going)
            return facts, decision

        return await self._change(kafka, await _few_at_once([partial(decide, resource) for resource in resources]))

    async def _tell_waiting(self, names: Sequence[str]) -> None:
        """Shows on documents that have no topic yet what they wait for. Others keep what they say."""
        resources = [self._store.get(KAFKA_TOPIC, self.key[0], name) for name in names]
        new = [
            resource
            for resource in resources
            if resource is not None and not is_deleting(resource) and dig(resource, "status", "topicId") is None
        ]
        statuses = [(resource, waiting(self._facts(resource, {}, 0, going=False))) for resource in new]
        await _few_at_once([partial(self._write_status, *item) for item in statuses])

    async def _change(self, kafka: KafkaAdmin | None, decided: Sequence[tuple[TopicFacts, TopicDecision]]) -> list[str]:
        changes: list[TopicChange] = [change for _, decision in decided for change in decision.changes]
        errors: Mapping[str, str] = {}
        lives: Mapping[str, TopicView] = {}
        if changes and kafka is not None:
            errors = await kafka.change(changes)  # in time or not: the next look tells what was done
            lives = await kafka.topics(list(dict.fromkeys(change.topic for change in changes)))
        again: list[str] = []
        statuses: list[tuple[Obj, Obj]] = []
        for facts, decision in decided:
            name, topic = facts.topic.name, facts.topic.topic_name
            status = decision.status
            if decision.look_again or topic in errors:
                self._waiting.setdefault(name)
            if decision.changes:
                after = replace(facts, live=lives.get(topic))
                if topic in errors:
                    self._log.warning("topic %s: %s", topic, errors[topic])
                    status = None if is_deleting(facts.resource) else refused(after, errors[topic])
                else:
                    settled = decide_topic(after)
                    status = settled.status
                    if settled.changes or settled.finalizer is not None:
                        again.append(name)
                        if name not in self._settling:
                            status = None  # brokers tell of a change a moment after it; nothing to be told of yet
            if status is not None:
                statuses.append((facts.resource, status))
        await _few_at_once([partial(self._write_status, *item) for item in statuses])
        return again

    def _facts(self, resource: Obj, lives: Mapping[str, TopicView], brokers: int, going: bool) -> TopicFacts:
        topic, problems = parse_topic(resource)
        cluster = self._store.get(KAFKA_CLUSTER, *self.key)
        return TopicFacts(
            topic=topic,
            problems=tuple(problems),
            resource=resource,
            live=lives.get(topic.topic_name),
            brokers=brokers,
            cluster_is_going=going,
            cluster_is_paused=dig(cluster, "spec", "paused") is True,
            rival=self._rival(resource, topic.topic_name),
            now=self._surroundings.now(),
        )

    def _rival(self, resource: Obj, topic: str) -> str:
        """The oldest document of the same topic, "" when it is this one."""
        first = self._first.get(topic, resource)
        return "" if uid_of(first) == uid_of(resource) else name_of(first)

    def _find_first(self) -> None:
        """Once per batch: who has the claim to each topic."""
        documents = oldest_first(list(self._store.of_cluster(self.key).get(KAFKA_TOPIC.kind, {}).values()))
        self._first = {str(dig(obj, "spec", "topicName") or name_of(obj)): obj for obj in reversed(documents)}

    async def _is_going(self, someone_waits: bool) -> bool:
        """Whether nobody is left to have topics; the namespace is asked only when a document is being deleted."""
        cluster = self._store.get(KAFKA_CLUSTER, *self.key)
        if cluster is None or is_deleting(cluster):
            return True
        if not someone_waits:
            return False
        try:
            namespace = await self._api.get(NAMESPACE, "", self.key[0])
        except ApiError as error:
            if error.status == 403:
                return False
            raise
        return namespace is None or is_deleting(namespace)

    def _client(self) -> KafkaAdmin | None:
        cluster = self._store.get(KAFKA_CLUSTER, *self.key)
        if cluster is None:
            return None
        bootstrap = tuple(internal_address(parse_cluster(cluster)[0], number) for number in self._broker_ids())
        if not bootstrap:
            return None
        if self._kafka is None or bootstrap != self._bootstrap:
            self._kafka, self._bootstrap = self._surroundings.kafka(bootstrap), bootstrap
        return self._kafka

    async def _set_finalizer(self, resource: Obj, wanted: bool) -> Obj:
        others = [item for item in dig(resource, "metadata", "finalizers") or [] if item != TOPIC_FINALIZER]
        try:
            changed = await self._api.set_finalizers(resource, [*others, TOPIC_FINALIZER] if wanted else others)
        except ApiError as error:
            if error.status == 404:
                self._store.remove(resource)
                return resource
            raise
        if is_deleting(changed) and not dig(changed, "metadata", "finalizers"):
            self._store.remove(changed)
        else:
            self._store.put(changed)
        return changed

    async def _write_status(self, resource: Obj, status: Obj) -> None:
        current = self._store.get(KAFKA_TOPIC, self.key[0], name_of(resource))
        if current is None or (current.get("status") or {}) == status:
            return
        before = current.get("status") or {}
        self._store.put(await self._api.replace_status({**current, "status": status}))
        await tell(self._api, self._log, events(resource, before, status, self._surroundings.now()))


async def _few_at_once(acts: Sequence[Callable[[], Awaitable[_Result]]]) -> list[_Result]:
    """Does writes that do not depend on each other; one that fails stops no other, and its error is raised then."""
    limit = asyncio.Semaphore(WRITES_AT_ONCE)

    async def one(act: Callable[[], Awaitable[_Result]]) -> _Result:
        async with limit:
            return await act()

    done = await asyncio.gather(*(one(act) for act in acts), return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException):
            raise result
    return [result for result in done if not isinstance(result, BaseException)]
