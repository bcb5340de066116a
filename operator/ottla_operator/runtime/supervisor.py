"""The tasks of the operator: one for each KafkaCluster, and one for the topics of each cluster that a KafkaTopic names.

Watch events fill the object cache and wake the tasks that an object may matter to. A failure backs off for its own
cluster only, from 1 s to 5 min. Every step is noted, so that the liveness probe notices a task that is stuck.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence

from ottla_documents.kafka_topic import declared_topic
from ottla_operator.api.names import BROKER_ID, CLUSTER
from ottla_operator.api.objects import (
    KAFKA_CLUSTER,
    KAFKA_TOPIC,
    NAMESPACE,
    NODE,
    POD,
    STATEFUL_SET,
    Obj,
    ResourceKind,
    dig,
    has_condition,
    is_terminating,
    label,
    name_of,
    namespace_of,
    uid_of,
)
from ottla_operator.facts.intervals import RESYNC_S
from ottla_operator.facts.snapshot import ContainerImages
from ottla_operator.ports import ApiError, KafkaUnavailable
from ottla_operator.runtime.back_off import back_off_s
from ottla_operator.runtime.cluster_task import ClusterTask
from ottla_operator.runtime.object_cache import Key, cluster_of, name_in_cluster
from ottla_operator.runtime.reconciling import STUCK_S, RunningTask, reconcile_forever
from ottla_operator.runtime.relisting import relist
from ottla_operator.runtime.roll_turns import RollTurns
from ottla_operator.runtime.task_context import TaskContext
from ottla_operator.runtime.topic_task import TopicTask

WITHOUT_KAFKA_S = 5.0
"""How often brokers are asked while none answers; sooner at first: in a roll others do."""


class TaskSupervisor:
    """Gets watch events (`on_event`) and runs the tasks. Nothing is written before `may_write` returns."""

    def __init__(
        self,
        context: TaskContext,
        images: ContainerImages,
        *,
        reads_nodes: bool,
        may_write: Callable[[], Awaitable[None]],
        most_rolling: int = 0,
    ) -> None:
        self._context = context
        self._cache = context.cache
        self._images = images
        self._reads_nodes = reads_nodes
        self._may_write = may_write
        self._metrics = context.metrics
        self._most_rolling = most_rolling
        self._turns: RollTurns | None = None
        self._clusters: dict[Key, RunningTask] = {}
        self._asked_brokers: dict[Key, Callable[[], Sequence[int]]] = {}
        self._topics: dict[Key, tuple[RunningTask, TopicTask]] = {}
        self._log = logging.getLogger("ottla.operator")

    def on_event(self, event: str | None, obj: Obj) -> None:
        """Handles one watch event: ADDED, MODIFIED, DELETED, or None for an object of the first list."""
        kind = obj["kind"]
        before = None
        for one in (NODE, NAMESPACE, KAFKA_CLUSTER, KAFKA_TOPIC, POD):
            if kind == one.kind:
                before = self._cache.get(one, namespace_of(obj), name_of(obj))
        if not (self._cache.remove(obj) if event == "DELETED" else self._cache.put(obj)):
            return
        running = self._clusters.get((namespace_of(obj), name_of(obj))) if kind == KAFKA_CLUSTER.kind else None
        if running is not None and not _is_same_document(before, obj):
            running.corrected.set()
        if kind == KAFKA_TOPIC.kind:
            self._queue_documents_of(before)
        if kind == POD.kind and event != "DELETED" and _is_broker_back(before, obj):
            self._queue_waiting_topics(obj)
        if event != "DELETED" and kind == KAFKA_CLUSTER.kind and _is_same_for_topics(before, obj):
            self._wake(obj, with_topics=False)
        elif (
            kind not in (NODE.kind, NAMESPACE.kind)
            or event == "DELETED"
            or before is None
            or not _has_same_labels(before, obj)
        ):
            self._wake(obj)

    def _wake(self, obj: Obj, *, with_topics: bool = True) -> None:
        """Wakes the tasks that an object may matter to.

        Args:
            with_topics: whether what a KafkaCluster says of its topics may have changed.
        """
        if obj["kind"] == NODE.kind:
            for running in self._clusters.values():
                running.dirty.set()
            return
        if obj["kind"] == NAMESPACE.kind:
            for _, topics in self._topics.values():
                topics.queue_documents_in(name_of(obj))
            return
        if obj["kind"] == KAFKA_TOPIC.kind:
            if (key := cluster_of(obj)) is not None:
                self._topic_task(key).queue.put(name_in_cluster(key, obj))
            self._queue_documents_of(obj)
            return
        key = (namespace_of(obj), name_of(obj))
        if obj["kind"] != KAFKA_CLUSTER.kind:
            owner = cluster_of(obj)
            if owner is None:
                return
            key = owner
        if self._cache.get(KAFKA_CLUSTER, *key) is not None:
            self._cluster(key).dirty.set()
        if obj["kind"] == KAFKA_CLUSTER.kind:  # created, deleted or paused
            if key in self._clusters:
                self._clusters[key].dirty.set()
            if with_topics and key in self._topics:
                self._topics[key][1].queue_all()

    def _queue_documents_of(self, document: Obj | None) -> None:
        """Queues the KafkaTopics that name the same topic as this one: another of them may have it now."""
        if document is not None and (key := cluster_of(document)) in self._topics:
            self._topics[key][1].queue_documents_of(declared_topic(document))

    def _queue_waiting_topics(self, pod: Obj) -> None:
        """Queues the KafkaTopics that wait for a time. For one with as many replicas as there are brokers a roll is a
        series of short times in which all are there, and the next try could miss each of them."""
        if (key := cluster_of(pod)) in self._topics:
            self._topics[key][1].queue.queue_requeued()

    async def resync(self, kinds: Sequence[ResourceKind], namespaces: Sequence[str]) -> None:
        """Compares the cache with what the API server lists, and wakes the tasks of what differs. Reads only.

        A namespace that may not be listed stops nothing of the others; nothing is done there (`prerequisites`).

        Args:
            namespaces: the served ones; empty: all.

        Raises:
            ApiError: something else could not be listed.
        """
        unlisted: set[str] = set()
        for kind in kinds:
            for namespace in (namespaces if kind.namespaced else ()) or (None,):
                try:
                    await self.relist(kind, namespace)
                except ApiError as error:
                    if error.status != 403 or namespace is None:
                        raise
                    unlisted.add(namespace)
        self._context.prerequisites.note_unlisted(unlisted)

    async def relist(self, kind: ResourceKind, namespace: str | None) -> str:
        """The same for one kind in one namespace (None: all), page by page. Returns the version of the list."""
        labels = "" if kind in (KAFKA_CLUSTER, KAFKA_TOPIC, NODE, NAMESPACE) else CLUSTER
        gone, version = await relist(self._context.api, self._cache, kind, namespace, labels, self.on_event)
        for obj in gone:
            self._wake(obj)
        return version

    def stuck_tasks(self) -> list[str]:
        """The tasks that have made no step for ten minutes."""
        now = asyncio.get_running_loop().time()
        running = [("cluster", key, item) for key, item in self._clusters.items()]
        running += [("topics", key, item) for key, (item, _) in self._topics.items()]
        return [f"{what} {key[0]}/{key[1]}" for what, key, item in running if now - item.step_at > STUCK_S]

    def topic_queues(self) -> dict[Key, dict[str, int]]:
        """How many KafkaTopics of each cluster wait, by what they wait for."""
        return {key: topics.queue.sizes() for key, (_, topics) in self._topics.items()}

    async def close(self) -> None:
        tasks = [item.task for item in self._clusters.values()] + [item.task for item, _ in self._topics.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._clusters.clear()
        self._topics.clear()

    def _cluster(self, key: Key) -> RunningTask:
        running = self._clusters.get(key)
        if running is None or running.task.done():
            dirty = asyncio.Event()
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._run_cluster(key), name=f"cluster {key[0]}/{key[1]}")
            running = self._clusters[key] = RunningTask(task, dirty, loop.time())
        return running

    def _topic_task(self, key: Key) -> TopicTask:
        found = self._topics.get(key)
        if found is None:
            topics = TopicTask(
                key,
                self._context,
                lambda: self._broker_ids(key),
                asked_brokers=lambda: self._asked_brokers[key]() if key in self._asked_brokers else (),
            )
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._run_topics(key, topics), name=f"topics {key[0]}/{key[1]}")
            found = self._topics[key] = (RunningTask(task, asyncio.Event(), loop.time()), topics)
        return found[1]

    def _broker_ids(self, key: Key) -> list[int]:
        stateful_sets = self._cache.of_cluster(key).get(STATEFUL_SET.kind, {}).values()
        return sorted(int(number) for obj in stateful_sets if (number := label(obj, BROKER_ID) or "").isdecimal())

    async def _run_cluster(self, key: Key) -> None:
        loop = asyncio.get_running_loop()
        if self._turns is None:
            self._turns = RollTurns(self._most_rolling, self._cache, self._context.environment.now, loop.time)
        cluster = ClusterTask(key, self._context, self._images, reads_nodes=self._reads_nodes, turns=self._turns)
        self._asked_brokers[key] = lambda: cluster.asked_brokers

        async def reconcile() -> float | None:
            with self._metrics.measured(KAFKA_CLUSTER.kind, loop.time):
                return await cluster.reconcile_once()

        try:
            await reconcile_forever(
                f"cluster {key[0]}/{key[1]}",
                lambda: self._clusters[key],
                self._may_write,
                reconcile,
                cluster.close,
                self._log,
            )
        finally:
            self._asked_brokers.pop(key, None)
            await cluster.close()

    async def _run_topics(self, key: Key, topics: TopicTask) -> None:
        loop = asyncio.get_running_loop()
        failures = unanswered = 0
        resync_at, ask_at = loop.time() + RESYNC_S, 0.0
        try:
            while True:
                running = self._topics[key][0]
                running.step_at = math.inf
                await self._may_write()
                running.step_at = loop.time()
                due = min(resync_at, topics.queue.due_at, ask_at if topics.queue.has_stalled else math.inf)
                due = min(due, max(topics.audit_at, ask_at), loop.time() + STUCK_S / 2)
                try:
                    async with asyncio.timeout(max(0.0, due - loop.time())):
                        await topics.queue.wait()
                except TimeoutError:
                    if loop.time() >= resync_at:
                        topics.queue_all()
                        resync_at = loop.time() + RESYNC_S
                topics.queue.queue_due()
                try:
                    with self._metrics.measured(KAFKA_TOPIC.kind, loop.time, counts=len(topics.queue) > 0):
                        await topics.reconcile_batch(may_ask=loop.time() >= ask_at)
                    if loop.time() >= max(topics.audit_at, ask_at):
                        await topics.audit()
                    failures = 0
                    unanswered = unanswered if topics.queue.has_stalled else 0
                except KafkaUnavailable as error:
                    self._log.info("topics of %s/%s wait: %s", *key, error)
                    unanswered += 1
                    ask_at = loop.time() + min(back_off_s(unanswered), WITHOUT_KAFKA_S)
                except Exception as error:  # a bug
                    failures += 1
                    pause = back_off_s(failures)
                    self._log.warning("topics of %s/%s: %r; again in %.0f s", *key, error, pause)
                    await asyncio.sleep(pause)
        finally:
            await topics.close()


def _is_same_for_topics(before: Obj | None, after: Obj) -> bool:
    """Whether only a KafkaCluster's status has changed, or something else that its KafkaTopics do not depend on."""
    return (
        before is not None
        and uid_of(before) == uid_of(after)
        and is_terminating(before) == is_terminating(after)
        and bool(dig(before, "spec") == dig(after, "spec"))
    )


def _is_same_document(before: Obj | None, after: Obj) -> bool:
    """Whether a person has changed nothing of a KafkaCluster: neither spec nor annotations."""
    parts = (("spec",), ("metadata", "annotations"), ("metadata", "uid"))
    return before is not None and all(dig(before, *path) == dig(after, *path) for path in parts)


def _is_broker_back(before: Obj | None, after: Obj) -> bool:
    """Whether the pod of a broker has become ready: its broker is registered."""
    was_ready = before is not None and uid_of(before) == uid_of(after) and has_condition(before, "Ready")
    return label(after, BROKER_ID) is not None and has_condition(after, "Ready") and not was_ready


def _has_same_labels(before: Obj, after: Obj) -> bool:
    """Whether the labels of a node or namespace are the same: nothing else of them matters here."""
    return bool(dig(before, "metadata", "labels") == dig(after, "metadata", "labels"))
