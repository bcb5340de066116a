"""The KafkaTopics of one cluster: batches in order of arrival, one request of each kind to Kafka per batch.

For each KafkaTopic in this order: what status has to record, the finalizer, the change in Kafka, status. What needs no
answer of a broker is done first and never waits for one; KafkaTopics that need one stay queued while no broker answers.
An error of one KafkaTopic (a refused write, a refused change, a name that no broker takes) requeues that one alone,
after growing times; the others of its batch go on.

A topic is deleted only after an uncached read of all KafkaTopics of the namespaces that the KafkaCluster may allow:
another one may name it by now.

A KafkaTopic is named by its name, one of another namespace than that of the KafkaCluster by "namespace/name".
`concerns.topics.decisions` decides; one batch runs at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from ottla_broker.protocol.number_text import whole_number
from ottla_documents.kafka_cluster import parse_cluster, topic_namespaces_of
from ottla_documents.kafka_topic import declared_topic, parse_topic
from ottla_operator.api.condition_reasons import (
    DEFINITION_OUTDATED,
    READY,
)
from ottla_operator.api.conditions import condition_false
from ottla_operator.api.objects import (
    KAFKA_CLUSTER,
    KAFKA_TOPIC,
    NAMESPACE,
    Obj,
    dig,
    is_terminating,
    namespace_of,
    uid_of,
)
from ottla_operator.api.topics import CreateTopic, DeleteTopic, TopicDescription
from ottla_operator.concerns.config.config import internal_address
from ottla_operator.concerns.topics.decisions import (
    TopicDecision,
    decide_topic,
    found_existing,
    mark_of,
    partitions_held,
    recorded_id,
    refused,
    topic_owner_of,
    waiting,
)
from ottla_operator.concerns.topics.observation import TopicFacts
from ottla_operator.concerns.topics.partition_limits import PartitionLimits, rooms
from ottla_operator.concerns.topics.reasons import TOPIC_ALREADY_EXISTS, TOPIC_DELETION_DISABLED
from ottla_operator.ports import ApiError, KafkaAdmin, KafkaUnavailable
from ottla_operator.runtime.kafka_connection import KafkaConnection
from ottla_operator.runtime.object_cache import Key, cluster_of, name_in_cluster
from ottla_operator.runtime.prerequisites import AGAIN_S, Shortfall, status_with
from ottla_operator.runtime.task_context import TaskContext
from ottla_operator.runtime.topic_audit import TopicAudit
from ottla_operator.runtime.topic_queue import REQUEUE_S, TopicQueue
from ottla_operator.runtime.topic_writer import TopicWriter

_Thing = TypeVar("_Thing", "_Item", Obj)
_Result = TypeVar("_Result")
BATCH = 100
WRITES_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class _Item:
    """One KafkaTopic of a batch.

    `is_first_try`: its record was written in this batch. `topic_id`: what was recorded before that, "" for none.
    """

    name: str
    facts: TopicFacts
    decision: TopicDecision
    is_first_try: bool = False
    topic_id: str = ""

    @property
    def topic(self) -> str:
        return self.facts.topic.topic_name


@dataclass(frozen=True, slots=True)
class _ClusterState:
    """The cluster of the topics, and which of the namespaces of terminating KafkaTopics are terminating themselves.

    None: unknown, so nothing is decided about deletions there.
    """

    resource: Obj | None
    is_namespace_terminating: Mapping[str, bool | None] = field(default_factory=dict)

    def is_terminating(self, namespace: str) -> bool:
        """Whether nothing can be done any more for the KafkaTopics of a namespace."""
        return (
            self.resource is None
            or is_terminating(self.resource)
            or self.is_namespace_terminating.get(namespace) is True
        )

    def is_unknown(self, document: Obj) -> bool:
        """Whether nothing can be decided about a document."""
        return is_terminating(document) and self.is_namespace_terminating.get(namespace_of(document), False) is None


class TopicTask:
    """Reconciles the topics of one KafkaCluster. `queue` has their names; `reconcile_batch` handles the next batch."""

    def __init__(
        self,
        key: Key,
        context: TaskContext,
        broker_ids: Callable[[], Sequence[int]],
        *,
        asked_brokers: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        """`asked_brokers`: whom to ask (`facts.metadata_source`); empty: any broker."""
        cache, api, environment = context.cache, context.api, context.environment
        self.key = key
        self._served = context.served
        self._metrics = context.metrics
        self._prerequisites = context.prerequisites
        self.queue = TopicQueue(context.monotonic)
        self._audit = TopicAudit(context.monotonic)
        self._cache = cache
        self._api = api
        self._environment = environment
        self._broker_ids = broker_ids
        self._asked_brokers = asked_brokers
        self._kafka = KafkaConnection(environment.kafka)
        self._unanswered = 0
        """How many batches in a row asked for changes that were not answered."""
        self._log = logging.getLogger(f"ottla.operator.{key[0]}.{key[1]}.topics")
        self._writer = TopicWriter(
            key, cache, api, environment, self._log, self.queue_documents_of, self._prerequisites.wrote_status
        )

    def queue_documents_of(self, topic: str) -> None:
        """Queues every KafkaTopic that names a topic: which of them has it may have changed."""
        for document in self._cache.of_topic(self.key, topic):
            self.queue.put(self._name(document))

    def queue_documents_in(self, namespace: str) -> None:
        """Queues every KafkaTopic of another namespace, and with it those that name the same topics."""
        for name, document in self._cache.of_cluster(self.key).get(KAFKA_TOPIC.kind, {}).items():
            if namespace_of(document) == namespace != self.key[0]:
                self.queue.put(name)
                self.queue_documents_of(declared_topic(document))

    def queue_all(self) -> None:
        """Queues every KafkaTopic of the cluster: changes in Kafka send no event."""
        for name in self._cache.of_cluster(self.key).get(KAFKA_TOPIC.kind, {}):
            self.queue.put(name)
        self.queue.wake()

    async def reconcile_batch(self, *, may_ask: bool = True) -> None:
        """Handles the next batch.

        Args:
            may_ask: False while no broker has answered a moment ago: only what needs no answer is done.

        Raises:
            KafkaUnavailable: no broker answers. KafkaTopics that need an answer stay queued; all others are done.
        """
        names = self.queue.take(BATCH, with_stalled=may_ask)
        try:
            await self._handle(names, may_ask)
        except KafkaUnavailable:
            raise
        except BaseException:
            for name in names:
                self.queue.put(name)
            raise

    @property
    def audit_at(self) -> float:
        """When `audit` is due; infinity when there is nothing to look at."""
        return self._audit.due_at

    async def audit(self) -> None:
        """Looks at some of the topics, and queues the KafkaTopics of those that others have changed or deleted.

        Raises:
            KafkaUnavailable: no broker answers.
        """
        looked_at = self._audit.next_slice()
        if not looked_at:
            return
        kafka = await self._client()
        live_topics = await kafka.topics(list(dict.fromkeys(looked_at.values())))
        for name in self._audit.changed(looked_at, live_topics):
            self._log.info("topic %s was changed by others", looked_at[name])
            self._metrics.found_changed_by_others()
            self.queue.put(name)

    async def close(self) -> None:
        """Closes the connections; a later batch opens new ones."""
        await self._kafka.close()

    async def _handle(self, names: Sequence[str], may_ask: bool) -> None:
        resources = [
            resource
            for name in names
            if (resource := self._document(name)) is not None
        ]  # fmt: skip
        there = {self._name(resource) for resource in resources}
        for name in names:
            if name not in there:
                self.queue.done(name)
                self._audit.forget(name)
        cluster = await self._read_cluster(resources)
        if cluster.is_terminating(self.key[0]) or not self._cache.of_cluster(self.key).get(KAFKA_TOPIC.kind):
            await self.close()
        for resource in resources:
            if cluster.is_unknown(resource):
                self._requeue_failed(self._name(resource), "the namespace could not be read")
        resources = [resource for resource in resources if not cluster.is_unknown(resource)]
        resources = await self._without_shortfall(cluster, resources)
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
            live_topics = await kafka.topics(list(dict.fromkeys(item.topic for item in need)))
        except KafkaUnavailable:
            await self._stall(need)
            raise
        self.queue.queue_stalled()
        limits = self._limits(cluster.resource, need, live_topics)
        decided = await self._each(partial(self._decide, live_topics, brokers, limits), need)
        try:
            await self._change(kafka, cluster, decided)
        except KafkaUnavailable as error:
            self._unanswered += 1
            asked = [item for item in decided if item.decision.changes]
            self.queue.stall(item.name for item in asked)
            if self._unanswered > 1:  # the first one may have met a broker that restarts, or takes its time
                await self._stall(asked, str(error))
            raise
        self._unanswered = 0

    async def _without_shortfall(self, cluster: _ClusterState, resources: Sequence[Obj]) -> list[Obj]:
        """The KafkaTopics for which nothing is lacking (`runtime.prerequisites`). The others are requeued.

        What nothing can be done for any more only loses its finalizer, whatever is lacking: no namespace waits for it.
        """
        free = [one for one in resources if is_terminating(one) and cluster.is_terminating(namespace_of(one))]
        rest = [one for one in resources if one not in free]
        of_cluster = None
        if rest and cluster.resource is not None:
            of_cluster = await self._prerequisites.shortfall(KAFKA_CLUSTER, self.key[0], [cluster.resource])
        for namespace in dict.fromkeys(namespace_of(one) for one in rest):
            there = [one for one in rest if namespace_of(one) == namespace]
            shortfall = await self._prerequisites.shortfall(KAFKA_TOPIC, namespace, there)
            if shortfall is None and (of_cluster is None or of_cluster.reason != DEFINITION_OUTDATED):
                free += there
                continue
            lacks = shortfall or of_cluster
            assert lacks is not None, "one of the two is lacking"
            await self._each(partial(self._write_shortfall, lacks), there)
        order = {id(one): place for place, one in enumerate(resources)}
        return sorted(free, key=lambda one: order[id(one)])

    async def _write_shortfall(self, lacks: Shortfall, resource: Obj) -> None:
        self.queue.requeue_after(self._name(resource), AGAIN_S)
        if await self._prerequisites.may_write_status(KAFKA_TOPIC, resource, lacks):
            ready = condition_false(READY, lacks.reason, lacks.message)
            await self._writer.write_status(resource, status_with(resource, ready, self._environment.now()))

    async def _prepare(self, cluster: _ClusterState, resource: Obj) -> _Item:
        """Decides what needs no answer of a broker, and writes the finalizer for that."""
        facts = await self._facts(cluster, resource, self._cache.of_topic(self.key, declared_topic(resource)))
        decision = decide_topic(facts)
        if decision.finalizer is not None:
            facts = replace(facts, resource=await self._writer.set_finalizer(resource, wanted=decision.finalizer))
        return _Item(self._name(resource), facts, decision)

    async def _write(self, item: _Item) -> _Item:
        """The last step of a KafkaTopic: its status."""
        if item.decision.status is not None:
            await self._writer.write_status(item.facts.resource, item.decision.status)
        if item.facts.is_asked and not is_terminating(item.facts.resource):
            self._audit.note(item.name, item.topic, item.facts.live)
        else:
            self._audit.forget(item.name)
        if item.decision.requeue_after_wait:
            self.queue.requeue_after(item.name, REQUEUE_S)
        else:
            self.queue.done(item.name)
        return item

    async def _stall(self, items: Sequence[_Item], change: str = "") -> None:
        """Keeps KafkaTopics until a broker answers, and shows in status what they wait for.

        Args:
            change: why a change of the topics is not answered, for their status; "" for none.
        """
        self.queue.stall(item.name for item in items)
        await self._each(
            lambda item: self._writer.write_status(item.facts.resource, waiting(item.facts, change)),
            items,
            is_stalled=True,
        )

    def _limits(
        self, cluster: Obj | None, items: Sequence[_Item], live_topics: Mapping[str, TopicDescription]
    ) -> Mapping[str, PartitionLimits]:
        """The limits of the cluster for each of a batch, by name, with the room that is left for it."""
        if cluster is None or not dig(cluster, "spec", "topics"):
            return {}
        parsed, _ = parse_cluster(cluster)
        default = whole_number(parsed.brokers.config.get("num.partitions", "1"))
        limits = PartitionLimits(
            parsed.name,
            parsed.topics.max_partitions_per_topic,
            parsed.topics.max_partitions,
            max(default or 1, 1),
        )
        if not limits.in_all:
            return dict.fromkeys((item.name for item in items), limits)
        live_of = {item.name: live_topics.get(item.topic) for item in items}
        present = {name: 0 if live is None else live.partitions for name, live in live_of.items()}
        used = sum(present.values())
        for name, resource in self._cache.of_cluster(self.key).get(KAFKA_TOPIC.kind, {}).items():
            if name not in present:
                used += partitions_held(resource, limits)
        asking = [(item.name, item.facts.topic.partitions, present[item.name]) for item in items]
        return {name: replace(limits, left=left) for name, left in rooms(limits, used, asking).items()}

    async def _decide(
        self,
        live_topics: Mapping[str, TopicDescription],
        brokers: int,
        limits: Mapping[str, PartitionLimits],
        item: _Item,
    ) -> _Item:
        """Decides with Kafka's answer, and writes what has to be recorded before anything is changed."""
        facts = replace(
            item.facts,
            is_asked=True,
            live=live_topics.get(item.topic),
            brokers=brokers,
            limits=limits.get(item.name, item.facts.limits),
        )
        decision, topic_id = decide_topic(facts), recorded_id(facts)
        if decision.record is not None:
            facts = replace(facts, resource=await self._writer.write_status(facts.resource, decision.record))
        if decision.finalizer is not None:
            mark = mark_of(facts.resource, item.topic) if decision.is_marked else ""
            changed = await self._writer.set_finalizer(facts.resource, wanted=decision.finalizer, mark=mark)
            facts = replace(facts, resource=changed)
        is_first_try = decision.record is not None or decision.is_marked
        return _Item(item.name, facts, decision, is_first_try, topic_id)

    async def _change(self, kafka: KafkaAdmin, cluster: _ClusterState, decided: Sequence[_Item]) -> None:
        """Makes the changes of a batch in Kafka, and writes status after them."""
        await self._each(self._write, [item for item in decided if not item.decision.changes])
        changing = [item for item in decided if item.decision.changes and not is_terminating(item.facts.resource)]
        deleting = [item for item in decided if item.decision.changes and is_terminating(item.facts.resource)]
        if deleting:
            changing += await self._confirm(deleting)
        if not changing:
            return
        topics = list(dict.fromkeys(item.topic for item in changing))
        changes = [change for item in changing for change in item.decision.changes]
        for change in changes:
            self._metrics.changed_topic(type(change).__name__)
        errors = await kafka.change(changes)
        live_topics = await kafka.topics(topics)  # also after a timeout: the metadata shows what was done
        await self._each(partial(self._settle, errors, live_topics), changing)

    async def _confirm(self, items: Sequence[_Item]) -> list[_Item]:
        """The items whose topic still has to be deleted after an uncached read. The others lose their finalizer."""
        try:
            cluster = await self._api.get(KAFKA_CLUSTER, *self.key)
            listed = await self._list_all(cluster)
        except ApiError as error:
            for item in items:
                self._requeue_failed(item.name, f"the KafkaTopics could not be read before a deletion: {error}")
            return []
        by_topic: dict[str, list[Obj]] = {}
        for obj in listed:
            by_topic.setdefault(declared_topic(obj), []).append(obj)

        async def again(item: _Item) -> _Item | None:
            documents = by_topic.get(item.topic, [])
            fresh = next((obj for obj in documents if uid_of(obj) == uid_of(item.facts.resource)), None)
            if fresh is None:
                self.queue.done(item.name)
                return None
            facts = await self._facts(_ClusterState(cluster), fresh, documents)
            facts = replace(facts, is_asked=True, live=item.facts.live, brokers=item.facts.brokers)
            decision = decide_topic(facts)
            if any(isinstance(change, DeleteTopic) for change in decision.changes):
                return _Item(item.name, facts, decision)
            if decision.finalizer is not None:
                self._log.info("topic %s stays: its KafkaTopic has changed, or another one names it", item.topic)
                facts = replace(facts, resource=await self._writer.set_finalizer(fresh, wanted=decision.finalizer))
            await self._write(_Item(item.name, facts, decision))
            return None

        return [item for item in await self._each(again, items) if item is not None]

    async def _settle(
        self, errors: Mapping[str, str], live_topics: Mapping[str, TopicDescription], item: _Item
    ) -> None:
        """Writes status after a change, and requeues the KafkaTopic while brokers do not show the change."""
        error = errors.get(item.topic, "")
        deletes = any(isinstance(change, DeleteTopic) for change in item.decision.changes)
        live = live_topics.get(item.topic)
        if deletes and live is None and item.facts.live is None and error.startswith(TOPIC_DELETION_DISABLED):
            error = ""  # brokers say so of topics that do not exist too
        after = replace(item.facts, live=live, is_deleted=deletes and not error)
        creates = any(isinstance(change, CreateTopic) for change in item.decision.changes)
        if creates and error.startswith(TOPIC_ALREADY_EXISTS):
            error = ""
            if item.is_first_try:  # no earlier request of this KafkaTopic can have created it
                record = found_existing(after, item.topic_id)
                after = replace(after, resource=await self._writer.write_status(after.resource, record))
        if error:
            self._log.warning("topic %s: %s", item.topic, error)
            self._requeue_failed(item.name, "", REQUEUE_S)
            await self._writer.write_status(after.resource, refused(after, error))
            return
        settled = decide_topic(after)
        if is_terminating(after.resource) and settled.finalizer is False:
            await self._writer.set_finalizer(after.resource, wanted=False)
            self.queue.done(item.name)
            self.queue.queue_requeued()  # a name that was taken, or that collides with this one, may be free
            return
        if not settled.changes and settled.finalizer is None:
            await self._write(replace(item, facts=after, decision=settled))
            return
        looks = self.queue.note_settling(item.name)
        if looks > 1 and settled.status is not None:  # brokers show a change a moment after it
            await self._writer.write_status(after.resource, settled.status)
        self.queue.requeue_settling(item.name)

    async def _each(
        self, act: Callable[[_Thing], Awaitable[_Result]], things: Sequence[_Thing], *, is_stalled: bool = False
    ) -> list[_Result]:
        """Does something for each, several at once; one that fails is requeued, and the others go on.

        Args:
            is_stalled: they are queued already, and are not requeued.
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
                name = thing.name if isinstance(thing, _Item) else self._name(thing)
                document = thing.facts.resource if isinstance(thing, _Item) else thing
                self._prerequisites.was_refused(KAFKA_TOPIC, namespace_of(document), result)
                if not isinstance(result, ApiError):
                    self._log.error("KafkaTopic %s: a bug of the operator", name, exc_info=result)
                if not is_stalled:
                    self._requeue_failed(name, repr(result))
        return results

    def _requeue_failed(self, name: str, why: str, first_s: float | None = None) -> None:
        """Requeues one KafkaTopic after a failure of its own."""
        pause = self.queue.requeue_failed(name, first_s)
        if why:
            self._log.warning("KafkaTopic %s: %s; again in %.0f s", name, why, pause)

    async def _facts(self, cluster: _ClusterState, resource: Obj, documents: Sequence[Obj]) -> TopicFacts:
        topic, problems = parse_topic(resource)
        allowed = [one for one in documents if await self._is_allowed(cluster.resource, namespace_of(one))]
        return TopicFacts(
            topic=topic,
            problems=tuple(problems),
            resource=resource,
            cluster_is_terminating=cluster.is_terminating(topic.namespace),
            cluster_is_paused=dig(cluster.resource, "spec", "paused") is True,
            rebalance_mode=str(dig(cluster.resource, "spec", "rebalance", "mode") or "Auto"),
            topic_owner=topic_owner_of(resource, allowed),
            is_allowed=await self._is_allowed(cluster.resource, topic.namespace),
            now=self._environment.now(),
            bytes_to_go=_bytes_to_go(cluster.resource, topic.topic_name),
        )

    async def _is_allowed(self, cluster: Obj | None, namespace: str) -> bool:
        """Whether the cluster allows KafkaTopics of a namespace. Raises ApiError when its labels cannot be read."""
        if cluster is None or namespace == self.key[0]:
            return True
        allowed = topic_namespaces_of(cluster or {})
        if allowed.selector is None or namespace in allowed.names:
            return allowed.allows(namespace, {})
        there = self._cache.get(NAMESPACE, "", namespace)
        if there is None:
            there = await self._api.get(NAMESPACE, "", namespace)
        return there is not None and allowed.allows(namespace, dig(there, "metadata", "labels") or {})

    async def _list_all(self, cluster: Obj | None) -> list[Obj]:
        """Every KafkaTopic of the cluster, read now, from all namespaces that it may allow. Raises ApiError."""
        allowed = topic_namespaces_of(cluster or {})
        places: set[str | None] = {self.key[0], *allowed.names}
        if allowed.selector is not None:
            places = {self.key[0], *self._served} if self._served else {None}
        elif self._served:
            places.intersection_update({self.key[0], *self._served})
        listed = [obj for place in sorted(places, key=str) for obj in await self._api.list(KAFKA_TOPIC, place, "")]
        return [obj for obj in listed if cluster_of(obj) == self.key]

    def _name(self, document: Obj) -> str:
        return name_in_cluster(self.key, document)

    def _document(self, name: str) -> Obj | None:
        namespace, _, short = name.rpartition("/")
        return self._cache.get(KAFKA_TOPIC, namespace or self.key[0], short)

    async def _read_cluster(self, documents: Sequence[Obj]) -> _ClusterState:
        """The cluster now. The namespaces of terminating documents are read, and no others."""
        cluster = self._cache.get(KAFKA_CLUSTER, *self.key)
        if cluster is None or is_terminating(cluster):
            return _ClusterState(cluster)
        found: dict[str, bool | None] = {}
        for name in sorted({namespace_of(document) for document in documents if is_terminating(document)}):
            try:
                namespace = await self._api.get(NAMESPACE, "", name)
                found[name] = namespace is None or is_terminating(namespace)
            except ApiError as error:
                found[name] = False if error.status == 403 else None
        return _ClusterState(cluster, found)

    async def _client(self) -> KafkaAdmin:
        cluster = self._cache.get(KAFKA_CLUSTER, *self.key)
        bootstrap = (
            () if cluster is None else tuple(internal_address(parse_cluster(cluster)[0], i) for i in self._broker_ids())
        )
        client = await self._kafka.to(bootstrap)
        client.ask_only(self._asked_brokers())
        return client


def _bytes_to_go(cluster: Obj | None, topic: str) -> int | None:
    """What the batch of a cluster's rebalance still has to copy of a topic; None when no partition is in it.

    >>> cluster = {"status": {"rebalance": {"batch": [{"topic": "a", "bytesToGo": 5}, {"topic": "b"}]}}}
    >>> _bytes_to_go(cluster, "a"), _bytes_to_go(cluster, "b"), _bytes_to_go(cluster, "c")
    (5, 0, None)
    """
    members = [one for one in dig(cluster, "status", "rebalance", "batch") or [] if dig(one, "topic") == topic]
    return sum(int(dig(one, "bytesToGo") or 0) for one in members) if members else None
