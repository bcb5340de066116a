"""The KafkaTopics of one cluster: batches in order of arrival, each document once, one request of a kind per batch.

For each document in this order: what status has to record, the finalizer, the change in Kafka, status. What needs no
answer of the fleet is done first and never waits for one; the documents that need one stay queued while no broker
answers. An error that is one document's (a refused write, a refused change, a name that no broker takes) is tried again
for that document alone, after longer and longer waits; the others of its batch go on.

A topic is deleted only after an uncached read of all KafkaTopics of the namespace: another document may name it by now.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from ottla_operator.api.condition_reasons import TOPIC_ALREADY_EXISTS
from ottla_operator.api.events import events
from ottla_operator.api.names import TOPIC_FINALIZER
from ottla_operator.api.objects import (
    KAFKA_CLUSTER,
    KAFKA_TOPIC,
    NAMESPACE,
    Obj,
    dig,
    is_terminating,
    name_of,
    uid_of,
)
from ottla_operator.effects.ports import ApiError, Environment, KafkaAdmin, KafkaUnavailable, KubernetesApi
from ottla_operator.model.kafka_cluster import parse_cluster
from ottla_operator.model.kafka_topic import declared_topic, parse_topic
from ottla_operator.planning.config import internal_address
from ottla_operator.runtime.back_off import back_off_s
from ottla_operator.runtime.cluster_task import tell
from ottla_operator.runtime.object_cache import Key, ObjectCache, cluster_of
from ottla_operator.topics.decisions import (
    CreateTopic,
    DeleteTopic,
    TopicDecision,
    TopicDescription,
    TopicFacts,
    decide_topic,
    found_existing,
    refused,
    topic_owner_of,
    waiting,
)

_Thing = TypeVar("_Thing", "_Item", Obj)
_Result = TypeVar("_Result")
BATCH = 100
LINGER_S = 0.1
SETTLE_S = 1.0
"""How long it is before a change is looked for again that the brokers did not show at once."""
SETTLES = 10
"""How often it is looked for in that rhythm."""
WAITING_FOR_FLEET_S = 10.0
"""When a KafkaTopic is tried again that the fleet cannot serve yet; a refused change after twice as long each time."""
WRITES_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class _Item:
    """One document of a batch on its way. `is_first_try`: `record` was written in this batch."""

    facts: TopicFacts
    decision: TopicDecision
    is_first_try: bool = False

    @property
    def name(self) -> str:
        return name_of(self.facts.resource)

    @property
    def topic(self) -> str:
        return self.facts.topic.topic_name


@dataclass(frozen=True, slots=True)
class _Cluster:
    """`is_namespace_terminating` None: it could not be read, so no document that is being deleted is decided."""

    resource: Obj | None
    is_namespace_terminating: bool | None

    @property
    def is_terminating(self) -> bool:
        return self.resource is None or is_terminating(self.resource) or self.is_namespace_terminating is True


class TopicTask:
    """The topics of one KafkaCluster. `put` queues a document; `reconcile_batch` does the next batch."""

    def __init__(
        self,
        key: Key,
        store: ObjectCache,
        api: KubernetesApi,
        environment: Environment,
        broker_ids: Callable[[], Sequence[int]],
        *,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self.key = key
        self._store = store
        self._api = api
        self._environment = environment
        self._broker_ids = broker_ids
        self._monotonic = monotonic or (lambda: asyncio.get_running_loop().time())
        self._queue: dict[str, None] = {}
        self._queued = asyncio.Event()
        self._stalled: dict[str, None] = {}
        self._later: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._settling: dict[str, int] = {}
        self._kafka: KafkaAdmin | None = None
        self._bootstrap: tuple[str, ...] = ()
        self._log = logging.getLogger(f"ottla.operator.{key[0]}.{key[1]}.topics")

    def put(self, name: str) -> None:
        """Queues a document by its name, at its first place if it is queued already."""
        self._stalled.pop(name, None)
        self._later.pop(name, None)
        self._queue.setdefault(name)
        self._queued.set()

    def queue_documents_of(self, topic: str) -> None:
        """Queues every document that names a topic: which of them has it may have changed."""
        for document in self._store.of_topic(self.key, topic):
            self.put(name_of(document))

    def put_all(self) -> None:
        """Queues every document of the cluster: drift in Kafka sends no event."""
        for name in self._store.of_cluster(self.key).get(KAFKA_TOPIC.kind, {}):
            self.put(name)
        self._queued.set()

    @property
    def has_waiting(self) -> bool:
        """Whether a document waits: for more brokers, or because a change or a write was refused."""
        return bool(self._later)

    @property
    def has_stalled(self) -> bool:
        """Whether documents wait for any broker to answer."""
        return bool(self._stalled)

    @property
    def due_at(self) -> float:
        """When the next document that waits is due, by the clock of the loop; infinity when none does."""
        return min(self._later.values(), default=math.inf)

    def put_due(self) -> None:
        """Queues the documents that have waited long enough."""
        now = self._monotonic()
        for name in [name for name, due in self._later.items() if due <= now]:
            self.put(name)

    def put_waiting(self) -> None:
        """Queues all documents that wait; no event tells when the fleet can do what they ask."""
        for name in list(self._later):
            self.put(name)

    def __len__(self) -> int:
        return len(self._queue) + len(self._stalled)

    async def wait(self) -> None:
        """Until something is queued, and a little longer, so that a batch fills."""
        await self._queued.wait()
        is_new = any(name not in self._settling for name in self._queue)
        await asyncio.sleep(LINGER_S if is_new or not self._queue else SETTLE_S)

    async def reconcile_batch(self, *, may_ask: bool = True) -> None:
        """The next batch. KafkaUnavailable when no broker answers: what needs one stays queued, all else is done.

        Args:
            may_ask: False while the fleet has just not answered: only what needs no answer is done.
        """
        names = list(self._queue)[:BATCH]
        if may_ask:
            names += list(self._stalled)[: BATCH - len(names)]
        for name in names:
            self._queue.pop(name, None)
            self._stalled.pop(name, None)
        if not self._queue:
            self._queued.clear()
        try:
            await self._do(names, may_ask)
        except KafkaUnavailable:
            raise
        except BaseException:
            for name in names:
                self.put(name)
            raise

    async def close(self) -> None:
        """Gives its connections up; a later batch makes new ones."""
        kafka, self._kafka = self._kafka, None
        if kafka is not None:
            await kafka.close()

    async def _do(self, names: Sequence[str], may_ask: bool) -> None:
        resources = [
            resource
            for name in names
            if (resource := self._store.get(KAFKA_TOPIC, self.key[0], name)) is not None
        ]  # fmt: skip
        there = {name_of(resource) for resource in resources}
        for name in names:
            if name not in there:
                self._is_done(name)
        cluster = await self._cluster(any(is_terminating(resource) for resource in resources))
        if cluster.is_terminating or not self._store.of_cluster(self.key).get(KAFKA_TOPIC.kind):
            await self.close()
        if cluster.is_namespace_terminating is None:
            for resource in resources:
                if is_terminating(resource):
                    self._try_again(name_of(resource), "the namespace could not be read")
            resources = [resource for resource in resources if not is_terminating(resource)]
        items = await self._each(partial(self._prepare, cluster), resources)
        await self._each(self._write, [item for item in items if not item.decision.needs_fleet])
        need = [item for item in items if item.decision.needs_fleet]
        if not need:
            return
        if not may_ask:
            await self._stall(need)
            return
        try:
            kafka = await self._client()
            brokers = len(await kafka.brokers())
            lives = await kafka.topics(list(dict.fromkeys(item.topic for item in need)))
        except KafkaUnavailable:
            await self._stall(need)
            raise
        for name in self._stalled:
            self._queue.setdefault(name)
        self._stalled.clear()
        if self._queue:
            self._queued.set()
        decided = await self._each(partial(self._ask, lives, brokers), need)
        try:
            await self._change(kafka, cluster, decided)
        except KafkaUnavailable:
            for item in decided:
                if item.decision.changes:
                    self._stalled.setdefault(item.name)
            raise

    async def _prepare(self, cluster: _Cluster, resource: Obj) -> _Item:
        """What can be decided without the fleet, and the finalizer that goes without it."""
        facts = self._facts(cluster, resource, self._store.of_topic(self.key, declared_topic(resource)))
        decision = decide_topic(facts)
        if decision.finalizer is not None:
            facts = replace(facts, resource=await self._set_finalizer(resource, decision.finalizer))
        return _Item(facts, decision)

    async def _write(self, item: _Item) -> _Item:
        """The last step of a document: its status."""
        if item.decision.status is not None:
            await self._write_status(item.facts.resource, item.decision.status)
        if item.decision.requeue_after_wait:
            self._later[item.name] = self._monotonic() + WAITING_FOR_FLEET_S
        else:
            self._is_done(item.name)
        return item

    async def _stall(self, items: Sequence[_Item]) -> None:
        """Keeps documents until a broker answers, and shows what they wait for."""
        for item in items:
            self._stalled.setdefault(item.name)
        await self._each(
            lambda item: self._write_status(item.facts.resource, waiting(item.facts)), items, is_stalled=True
        )

    async def _ask(self, lives: Mapping[str, TopicDescription], brokers: int, item: _Item) -> _Item:
        """Decides with the fleet's answer, and writes what has to stand before anything is changed."""
        facts = replace(item.facts, is_asked=True, live=lives.get(item.topic), brokers=brokers)
        decision = decide_topic(facts)
        if decision.record is not None:
            facts = replace(facts, resource=await self._write_status(facts.resource, decision.record))
        if decision.finalizer is not None:
            facts = replace(facts, resource=await self._set_finalizer(facts.resource, decision.finalizer))
        return _Item(facts, decision, is_first_try=decision.record is not None)

    async def _change(self, kafka: KafkaAdmin, cluster: _Cluster, decided: Sequence[_Item]) -> None:
        """The changes of a batch in Kafka, and what status says after them."""
        await self._each(self._write, [item for item in decided if not item.decision.changes])
        changing = [item for item in decided if item.decision.changes and not is_terminating(item.facts.resource)]
        deleting = [item for item in decided if item.decision.changes and is_terminating(item.facts.resource)]
        if deleting:
            changing += await self._confirm(deleting)
        if not changing:
            return
        topics = list(dict.fromkeys(item.topic for item in changing))
        errors = await kafka.change([change for item in changing for change in item.decision.changes])
        lives = await kafka.topics(topics)  # in time or not: the next look tells what was done
        await self._each(partial(self._settle, errors, lives), changing)

    async def _confirm(self, items: Sequence[_Item]) -> list[_Item]:
        """Those whose topic is still to be deleted, after a read of the API server. The others are released."""
        try:
            listed = [obj for obj in await self._api.list(KAFKA_TOPIC, self.key[0], "") if cluster_of(obj) == self.key]
            cluster = await self._api.get(KAFKA_CLUSTER, *self.key)
        except ApiError as error:
            for item in items:
                self._try_again(item.name, f"the documents could not be read before a deletion: {error}")
            return []
        found: dict[str, list[Obj]] = {}
        for obj in listed:
            found.setdefault(declared_topic(obj), []).append(obj)

        async def again(item: _Item) -> _Item | None:
            documents = found.get(item.topic, [])
            fresh = next((obj for obj in documents if uid_of(obj) == uid_of(item.facts.resource)), None)
            if fresh is None:
                self._is_done(item.name)
                return None
            facts = self._facts(_Cluster(cluster, is_namespace_terminating=False), fresh, documents)
            facts = replace(facts, is_asked=True, live=item.facts.live, brokers=item.facts.brokers)
            decision = decide_topic(facts)
            if any(isinstance(change, DeleteTopic) for change in decision.changes):
                return _Item(facts, decision)
            if decision.finalizer is not None:
                self._log.info("topic %s is kept: its document has changed, or another one names it", item.topic)
                facts = replace(facts, resource=await self._set_finalizer(fresh, decision.finalizer))
            await self._write(_Item(facts, decision))
            return None

        return [item for item in await self._each(again, items) if item is not None]

    async def _settle(self, errors: Mapping[str, str], lives: Mapping[str, TopicDescription], item: _Item) -> None:
        """What a document says after its change, and whether it is looked at again."""
        after = replace(item.facts, live=lives.get(item.topic))
        error = errors.get(item.topic, "")
        creates = any(isinstance(change, CreateTopic) for change in item.decision.changes)
        if creates and error.startswith(TOPIC_ALREADY_EXISTS):
            error = ""
            if item.is_first_try:  # nobody but this document's first request could have created it for the document
                after = replace(after, resource=await self._write_status(after.resource, found_existing(after)))
        if error:
            self._log.warning("topic %s: %s", item.topic, error)
            self._try_again(item.name, "", WAITING_FOR_FLEET_S)
            await self._write_status(after.resource, refused(after, error))
            return
        settled = decide_topic(after)
        if is_terminating(after.resource) and settled.finalizer is False:
            await self._set_finalizer(after.resource, wanted=False)
            self._is_done(item.name)
            self.put_waiting()  # a name that was taken, or that collides with this one, may be free
            return
        if not settled.changes and settled.finalizer is None:
            await self._write(replace(item, facts=after, decision=settled))
            return
        looks = self._settling[item.name] = self._settling.get(item.name, 0) + 1
        if looks > 1 and settled.status is not None:  # brokers tell of a change a moment after it
            await self._write_status(after.resource, settled.status)
        if looks <= SETTLES:
            self.put(item.name)
        else:
            self._later[item.name] = self._monotonic() + back_off_s(looks - SETTLES, WAITING_FOR_FLEET_S)

    async def _each(
        self, act: Callable[[_Thing], Awaitable[_Result]], things: Sequence[_Thing], *, is_stalled: bool = False
    ) -> list[_Result]:
        """Does what does not depend on each other; an error of one is its own, and it is tried again later.

        Args:
            is_stalled: they are queued already.
        """
        limit = asyncio.Semaphore(WRITES_AT_ONCE)

        async def one(thing: _Thing) -> _Result:
            async with limit:
                return await act(thing)

        done = await asyncio.gather(*(one(thing) for thing in things), return_exceptions=True)
        results: list[_Result] = []
        for thing, result in zip(things, done, strict=True):
            if not isinstance(result, BaseException):
                results.append(result)
            elif not isinstance(result, Exception):
                raise result
            else:
                name = thing.name if isinstance(thing, _Item) else name_of(thing)
                if not isinstance(result, ApiError):
                    self._log.error("topic document %s: a mistake of the operator", name, exc_info=result)
                if not is_stalled:
                    self._try_again(name, repr(result))
        return results

    def _try_again(self, name: str, why: str, first_s: float | None = None) -> None:
        """After a failure that is this document's own."""
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        pause = back_off_s(failures) if first_s is None else back_off_s(failures, first_s)
        self._later[name] = self._monotonic() + pause
        if why:
            self._log.warning("topic document %s: %s; again in %.0f s", name, why, pause)

    def _is_done(self, name: str) -> None:
        self._failures.pop(name, None)
        self._settling.pop(name, None)

    def _facts(self, cluster: _Cluster, resource: Obj, documents: Sequence[Obj]) -> TopicFacts:
        topic, problems = parse_topic(resource)
        return TopicFacts(
            topic=topic,
            problems=tuple(problems),
            resource=resource,
            cluster_is_terminating=cluster.is_terminating,
            cluster_is_paused=dig(cluster.resource, "spec", "paused") is True,
            topic_owner=topic_owner_of(resource, documents),
            now=self._environment.now(),
        )

    async def _cluster(self, someone_waits: bool) -> _Cluster:
        """The namespace is asked only when a document is being deleted."""
        cluster = self._store.get(KAFKA_CLUSTER, *self.key)
        if cluster is None or is_terminating(cluster) or not someone_waits:
            return _Cluster(cluster, False)
        try:
            namespace = await self._api.get(NAMESPACE, "", self.key[0])
        except ApiError as error:
            return _Cluster(cluster, False if error.status == 403 else None)
        return _Cluster(cluster, namespace is None or is_terminating(namespace))

    async def _client(self) -> KafkaAdmin:
        cluster = self._store.get(KAFKA_CLUSTER, *self.key)
        bootstrap = (
            () if cluster is None else tuple(internal_address(parse_cluster(cluster)[0], i) for i in self._broker_ids())
        )
        if bootstrap != self._bootstrap:
            await self.close()
        if not bootstrap:
            raise KafkaUnavailable("the cluster has no brokers yet")
        if self._kafka is None:
            self._kafka, self._bootstrap = self._environment.kafka(bootstrap), bootstrap
        return self._kafka

    async def _set_finalizer(self, resource: Obj, wanted: bool) -> Obj:
        others = [item for item in dig(resource, "metadata", "finalizers") or [] if item != TOPIC_FINALIZER]
        try:
            changed = await self._api.set_finalizers(resource, [*others, TOPIC_FINALIZER] if wanted else others)
        except ApiError as error:
            if error.status == 404:
                self._remove(resource)
                return resource
            raise
        if is_terminating(changed) and not dig(changed, "metadata", "finalizers"):
            self._remove(changed)
        else:
            self._store.put(changed)
        return changed

    def _remove(self, resource: Obj) -> None:
        """The document is gone, and its event is not: whoever waits for its topic is looked at now."""
        self._store.remove(resource)
        self.queue_documents_of(declared_topic(resource))

    async def _write_status(self, resource: Obj, status: Obj | None) -> Obj:
        """Writes what differs, onto the newest that is known of that document; gives the document as it is then."""
        current = self._store.get(KAFKA_TOPIC, self.key[0], name_of(resource))
        if status is None or current is None or uid_of(current) != uid_of(resource):
            return resource
        before = current.get("status") or {}
        if before == status:
            return current
        try:
            changed = await self._api.replace_status({**current, "status": status})
        except ApiError as error:
            if error.status == 404:
                self._remove(resource)
                return resource
            raise
        self._store.put(changed)
        await tell(self._api, self._log, events(resource, before, status, self._environment.now()))
        return changed
