"""Topics that are being deleted: from the marker in /admin/delete_topics to the last znode.

Acts of the active controller; what the next step of a topic is, `topic_deletion` decides. Not here: the answers of
brokers to StopReplica (`active`), the requests of administrators (`administration`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.control_requests import RequestBatch
from ottla_broker.controller.decisions.topic_deletion import decide_deletion
from ottla_broker.controller.partition_states import PartitionState
from ottla_broker.controller.replica_states import ReplicaState
from ottla_broker.controller.store import ControllerStore
from ottla_broker.controller.values import TOPICS_AT_ONCE
from ottla_broker.ports.coordination import Watcher

logger = logging.getLogger("ottla.controller")


class TopicDeletions:
    """The deletions of one term of office."""

    def __init__(
        self,
        context: ControllerContext,
        store: ControllerStore,
        config: Mapping[str, Any],
        watcher: Watcher,
        send: Callable[[RequestBatch], object],
        go_on_soon: Callable[[], None],
    ) -> None:
        """`watcher` is called when markers come; `send` takes what is to be told to the brokers; `go_on_soon` queues
        an event that ends in `go_on`."""
        self._context = context
        self._store = store
        self._config = config
        self._watcher = watcher
        self._send = send
        self._go_on_soon = go_on_soon
        self._due: dict[str, None] = {}
        """Topics whose next step is to be taken."""

    async def markers_changed(self) -> None:
        """Markers have come, by us or by a tool."""
        context = self._context
        marked = await self._store.topics_to_delete(self._watcher)
        if not self._config["delete.topic.enable"]:
            context.topics_to_delete.clear()
            for name in marked:
                logger.warning("topic %s is not deleted: delete.topic.enable is false", name)
                await self._store.unmark_for_deletion(name)
            return
        for name in marked:
            if not context.has_topic(name):
                await self._store.unmark_for_deletion(name)
        await self.start([name for name in marked if context.has_topic(name)])

    async def start(self, names: Sequence[str]) -> None:
        """Deletes topics that have a marker."""
        self._context.topics_to_delete.update(names)
        await self.go_on([name for name in names if name not in self._context.deletion_started])

    async def go_on(self, names: Iterable[str] = ()) -> None:
        """Takes the next step of each of these topics that is being deleted, behind those that are due already; of very
        many the rest is left to events that follow."""
        context = self._context
        self._due.update(dict.fromkeys(sorted(names)))
        self._due = {name: None for name in self._due if context.is_deleting(name) and context.has_topic(name)}
        some = list(self._due)[:TOPICS_AT_ONCE]
        batch = RequestBatch()
        for name in some:
            del self._due[name]
            if name not in context.deletion_started:
                context.deletion_started.add(name)
                partitions = context.partitions_of(name)
                for partition in partitions:
                    context.move_partition(partition, PartitionState.OFFLINE)
                    context.move_partition(partition, PartitionState.NON_EXISTENT)
                batch.tell_metadata(context.brokers, partitions)
            step = decide_deletion(context, name)
            logger.info("deletion of topic %s: %s", name, step.reason)
            for replica in step.wait_for:
                if context.replica_state(replica) is not ReplicaState.DELETION_STARTED:
                    context.move_replica(replica, ReplicaState.OFFLINE)
                context.move_replica(replica, ReplicaState.DELETION_INELIGIBLE)
            for replica in step.delete:
                context.move_replica(replica, ReplicaState.OFFLINE)
                context.move_replica(replica, ReplicaState.DELETION_STARTED)
                batch.stop(replica, delete=True)
        self._send(batch)
        if self._due:
            self._go_on_soon()
        await self.complete(some)

    def tell_again(self, brokers: Iterable[int], batch: RequestBatch) -> None:
        """What these brokers have been told to delete, and have not answered yet."""
        for replica in self._context.replicas_on(brokers):
            if self._context.replica_state(replica) is ReplicaState.DELETION_STARTED:
                batch.stop(replica, delete=True)

    async def complete(self, names: Iterable[str]) -> None:
        context = self._context
        for name in sorted(set(names)):
            if name in context.deletion_started and decide_deletion(context, name).is_complete:
                await self._store.remove_topic(name)
                context.remove_topic(name)
                logger.info("topic %s is deleted", name)
