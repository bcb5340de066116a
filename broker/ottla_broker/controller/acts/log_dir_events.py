"""Handles log dir events: a broker reports that a log directory has failed, is full, or is back online (KIP-112).

A broker writes `/log_dir_event_notification/log_dir_event_N`, which names nothing but the broker. The controller sends
it a LeaderAndIsr with every replica at its present leadership. The response reports each replica: KAFKA_STORAGE_ERROR
for an offline log directory, NONE for an online one (`broker_responses`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from ottla_broker.controller.acts.reassignments import Reassignments
from ottla_broker.controller.acts.topic_deletions import TopicDeletions
from ottla_broker.controller.control_requests import RequestBatch
from ottla_broker.controller.controller_epoch_parts import ControllerEpochParts
from ottla_broker.ports.coordination import Watcher

logger = logging.getLogger("ottla.controller")


class LogDirEvents:
    """The log dir events of one controller epoch.

    Args:
        send: sends a batch to the brokers.
        watcher: called when an event comes.
    """

    def __init__(
        self,
        *,
        parts: ControllerEpochParts,
        send: Callable[[RequestBatch], Awaitable[object]],
        deletions: TopicDeletions,
        reassignments: Reassignments,
        watcher: Watcher,
    ) -> None:
        self._context = parts.context
        self._store = parts.store
        self._send = send
        self._deletions = deletions
        self._reassignments = reassignments
        self._watcher = watcher

    async def handle(self) -> None:
        """Asks the brokers that have written events about their replicas, then removes the events.

        The requests are sent first: a controller that dies in between leaves the events to the next one.
        """
        context = self._context
        paths, brokers = await self._store.log_dir_events(self._watcher)
        living = [broker for broker in brokers if broker in context.brokers]
        if living:
            logger.info("log directories of brokers %s have changed: asking for their replicas", living)
            batch = RequestBatch()
            for replica in context.replicas_on(living):
                if context.is_deleting(replica.topic):
                    # The deletion asks by its StopReplica, and goes on where the log directory is online again.
                    context.set_log_dir_offline(replica, False)
                else:
                    batch.add_leader_and_isr([replica.broker], replica.topic_partition)
            # Responses that are on their way may be older than the log directory's return, and none would follow.
            self._deletions.add_unanswered(living, batch)
            await self._send(batch)
            await self._reassignments.stop_removed_replicas(living)
            await self._deletions.advance(sorted(context.topics_to_delete))
        await self._store.delete_nodes(paths)
