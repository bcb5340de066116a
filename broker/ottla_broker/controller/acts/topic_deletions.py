"""Deletes topics: from the marker in /admin/delete_topics to the last znode.

Not here: the next step of a topic (`decisions.topic_deletion`), the responses to StopReplica (`broker_responses`), the
requests of clients (`topic_administration`).

Source: TopicDeletionManager of Apache Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from ottla_broker.controller.control_requests import RequestBatch
from ottla_broker.controller.controller_epoch_parts import ControllerEpochParts
from ottla_broker.controller.decisions.topic_deletion import decide_deletion
from ottla_broker.controller.partition_states import PartitionState
from ottla_broker.controller.replica_states import ReplicaState
from ottla_broker.controller.values import TOPICS_PER_EVENT
from ottla_broker.ports.coordination import Watcher

logger = logging.getLogger("ottla.controller")


class TopicDeletions:
    """The deletions of one controller epoch.

    Args:
        send: sends a batch to the brokers.
        queue_advance: queues an event that calls `advance`.
        markers_watcher: called when a marker comes or goes.
    """

    def __init__(
        self,
        *,
        parts: ControllerEpochParts,
        send: Callable[[RequestBatch], Awaitable[object]],
        queue_advance: Callable[[], None],
        markers_watcher: Watcher,
    ) -> None:
        self._context = parts.context
        self._store = parts.store
        self._config = parts.config
        self._send = send
        self._queue_advance = queue_advance
        self._markers_watcher = markers_watcher
        self._due: dict[str, None] = {}
        """Topics whose next step is to be taken."""

    async def load(self) -> None:
        """Reads the markers of known topics into the context and sets the watch. Part of the failover."""
        if self._config.delete_topic_enable:
            marked = await self._store.topics_to_delete(self._markers_watcher)
            self._context.topics_to_delete = {name for name in marked if self._context.has_topic(name)}

    async def markers_changed(self) -> None:
        """Starts the deletion of topics that this controller or a tool has marked."""
        context = self._context
        marked = await self._store.topics_to_delete(self._markers_watcher)
        if not self._config.delete_topic_enable:
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
        """Starts the deletion of topics that have a marker."""
        self._context.topics_to_delete.update(names)
        await self.advance([name for name in names if name not in self._context.deletion_started])

    async def advance(self, names: Iterable[str] = ()) -> None:
        """Takes the next step of each of these topics that is being deleted, after those that are already due.

        One call takes the steps of TOPICS_PER_EVENT topics and queues an event for the others.
        """
        context = self._context
        self._due.update(dict.fromkeys(sorted(names)))
        self._due = {name: None for name in self._due if context.is_deleting(name) and context.has_topic(name)}
        some = list(self._due)[:TOPICS_PER_EVENT]
        batch = RequestBatch()
        for name in some:
            del self._due[name]
            if name not in context.deletion_started:
                context.deletion_started.add(name)
                partitions = context.partitions_of(name)
                for partition in partitions:
                    context.move_partition(partition, PartitionState.OFFLINE)
                    context.move_partition(partition, PartitionState.NON_EXISTENT)
                batch.add_metadata(context.brokers, partitions)
            step = decide_deletion(context, name)
            logger.info("deletion of topic %s: %s", name, step.reason)
            for replica in step.wait_for:
                if context.replica_state(replica) is not ReplicaState.DELETION_STARTED:
                    context.move_replica(replica, ReplicaState.OFFLINE)
                context.move_replica(replica, ReplicaState.DELETION_INELIGIBLE)
            for replica in step.delete:
                context.move_replica(replica, ReplicaState.OFFLINE)
                context.move_replica(replica, ReplicaState.DELETION_STARTED)
                batch.add_stop_replica(replica, delete=True)
        await self._send(batch)
        if self._due:
            self._queue_advance()
        await self.complete(some)

    def add_unanswered(self, brokers: Iterable[int], batch: RequestBatch) -> None:
        """Adds the deletions that these brokers have been sent and have not answered."""
        for replica in self._context.replicas_on(brokers):
            if self._context.replica_state(replica) is ReplicaState.DELETION_STARTED:
                batch.add_stop_replica(replica, delete=True)

    async def complete(self, names: Iterable[str]) -> None:
        """Removes the znodes of those of these topics whose replicas are all deleted."""
        context = self._context
        for name in sorted(set(names)):
            if name in context.deletion_started and decide_deletion(context, name).is_complete:
                await self._store.remove_topic(name)
                context.remove_topic(name)
                logger.info("topic %s is deleted", name)
