"""Follows the topics in the coordination store: topics that come or go, partitions that are added.

A topic may come from this controller, which has just created it, or from another program, which the watches report.
Both get their first leaders here. Not here: requests to create, grow or delete topics (`topic_administration`),
deleting topics (`topic_deletions`), reassignments.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from ottla_broker.controller.acts.leader_elections import LeaderElections
from ottla_broker.controller.control_requests import RequestBatch
from ottla_broker.controller.controller_epoch_parts import ControllerEpochParts
from ottla_broker.controller.partition_states import PartitionState
from ottla_broker.controller.replica_states import ReplicaState
from ottla_broker.controller.values import Replica, Topic
from ottla_broker.ports.coordination import Watcher
from ottla_broker.records.ids import TopicPartition

logger = logging.getLogger("ottla.controller")


class TopicChanges:
    """The topics of one controller epoch.

    Args:
        send: sends a batch to the brokers.
        topics_watcher: called when a topic comes or goes.
        topic_watcher: called when the znode of one topic changes.
        on_topics_gone: called after each change of the topics: some may have gone that this controller did not delete.
    """

    def __init__(
        self,
        *,
        parts: ControllerEpochParts,
        elections: LeaderElections,
        send: Callable[[RequestBatch], Awaitable[object]],
        topics_watcher: Watcher,
        topic_watcher: Watcher,
        on_topics_gone: Callable[[], Awaitable[None]],
    ) -> None:
        self._context = parts.context
        self._store = parts.store
        self._clock = parts.clock
        self._elections = elections
        self._send = send
        self._topics_watcher = topics_watcher
        self._topic_watcher = topic_watcher
        self._on_topics_gone = on_topics_gone

    async def load(self) -> None:
        """Reads every topic into the context and sets the watches. Part of the failover."""
        names = await self._store.topic_names(self._topics_watcher)
        for topic in await self._read_topics(names):
            self._context.add_topic(topic)

    async def topics_changed(self) -> None:
        """Topics have come; or their znodes are gone although this controller did not delete them."""
        context = self._context
        names = await self._store.topic_names(self._topics_watcher)
        for name in sorted(set(context.topic_names()) - set(names)):
            logger.warning("topic %s is gone from the coordination store: forgotten", name)
            if context.is_deleting(name):
                # Its marker would delete the next topic of that name.
                await self._store.unmark_for_deletion(name)
            context.remove_topic(name)
        await self._on_topics_gone()
        unknown = [name for name in names if not context.has_topic(name)]
        await self.add_topics(await self._read_topics(unknown))

    async def topic_changed(self, name: str) -> None:
        """The topic's assignment has changed: partitions may have been added."""
        for topic in await self._read_topics([name]):
            if self._context.has_topic(name):
                await self.add_partitions(topic)
            else:
                await self.add_topics([topic])

    async def watch_topics(self, names: Sequence[str]) -> None:
        """Watches topics that this controller has just created."""
        await self._store.topics(names, self._topic_watcher)

    async def add_topics(self, topics: Sequence[Topic]) -> None:
        """Adds topics of the coordination store: elects their first leaders and sends them to the brokers."""
        partitions: list[TopicPartition] = []
        for topic in topics:
            if not self._context.has_topic(topic.name):
                self._context.add_topic(topic)
                partitions.extend(self._context.partitions_of(topic.name))
        await self._start_partitions(partitions)

    async def add_partitions(self, topic: Topic) -> None:
        """Adds those partitions of a known topic that the context does not have."""
        context = self._context
        present = set(context.partitions_of(topic.name))
        added = [
            TopicPartition(topic.name, partition)
            for partition in sorted(topic.partitions)
            if TopicPartition(topic.name, partition) not in present
        ]
        if not added:
            return
        if context.is_deleting(topic.name):
            logger.warning("partitions added to topic %s are ignored: the topic is being deleted", topic.name)
            return
        known = context.topic(topic.name)
        grown = dict(known.partitions)
        grown.update({partition.partition: topic.partitions[partition.partition] for partition in added})
        context.add_topic(Topic(topic.name, known.topic_id, grown))
        await self._start_partitions(added)

    async def _start_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        if not partitions:
            return
        context = self._context
        for partition in partitions:
            context.move_partition(partition, PartitionState.NEW)
            for broker in context.replicas_of(partition):
                context.move_replica(Replica(*partition, broker), ReplicaState.NEW)
        batch = RequestBatch()
        await self._elections.elect(partitions, batch, is_new=True)
        for partition in partitions:
            online = context.online_brokers(partition)
            for broker in context.replicas_of(partition):
                context.move_replica(
                    Replica(*partition, broker), ReplicaState.ONLINE if broker in online else ReplicaState.OFFLINE
                )
        batch.add_metadata(context.brokers, partitions)
        await self._send(batch)

    async def _read_topics(self, names: Sequence[str]) -> list[Topic]:
        """Reads and watches topics and gives each an id. Those that cannot be parsed are recorded and left alone."""
        found, unreadable = await self._store.topics(names, self._topic_watcher)
        self._context.unreadable_topics.difference_update(names)
        self._context.unreadable_topics.update(unreadable)
        return [await self._with_topic_id(found[name]) for name in sorted(found)]

    async def _with_topic_id(self, topic: Topic) -> Topic:
        if topic.topic_id is not None:
            return topic
        # A tool older than topic ids rewrites the znode without the id that the topic has.
        topic_id = self._context.topic_id(topic.name) or self.new_topic_id()
        return await self._store.give_topic_id(Topic(topic.name, topic_id, topic.partitions))

    def new_topic_id(self) -> bytes:
        """A random id. As in Kafka its text does not begin with '-', which tools would take for an option."""
        while True:
            found = self._clock.uuid4().bytes
            if found[0] >> 2 != 62:
                return found
