"""Log directories of brokers that have failed, filled up or come back (KIP-112; wire-protocol.md 5.12).

An act of the active controller. A broker writes `/log_dir_event_notification/log_dir_event_N`, which names nothing but
the broker. The controller asks it about every replica by LeaderAndIsr at the leadership they have; the answers tell:
KAFKA_STORAGE_ERROR (56) is offline, NONE is back, anything else is no news (`active.answered`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla_broker.controller.control_requests import RequestBatch
from ottla_broker.ports.coordination import Watcher

if TYPE_CHECKING:
    from ottla_broker.controller.active import ActiveController

logger = logging.getLogger("ottla.controller")


async def directories_changed(active: ActiveController, watcher: Watcher) -> None:
    """Asks the brokers of the events that stand in the store, then removes the events.

    The questions are sent before the events go: a controller that dies in between leaves them to the next one.
    """
    context = active.context
    paths, brokers = await active.store.log_dir_events(watcher)
    living = [broker for broker in brokers if broker in context.brokers]
    if living:
        logger.info("log directories of brokers %s have changed: asking for their replicas", living)
        batch = RequestBatch()
        for replica in context.replicas_on(living):
            if context.is_deleting(replica.topic):
                # Asked by the deletion itself, which goes on where the directory is back.
                context.set_directory_failed(replica, False)
            else:
                batch.tell_leadership([replica.broker], replica.topic_partition)
        # The answers that are under way may be from before the directory was back, and none would follow.
        active.deletions.tell_again(living, batch)
        active.send(batch)
        active.reassignments.tell_leaving(living)
        await active.deletions.go_on(sorted(context.topics_to_delete))
    await active.store.delete_nodes(paths)
