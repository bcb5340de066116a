"""Handles the responses of brokers to LeaderAndIsr and StopReplica.

They report which log directories are offline or back online, and which replicas are deleted. Not here: receiving them
(`request_sender`), what follows from a log directory that changes (`broker_changes`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ottla_broker.controller.acts.broker_changes import BrokerChanges
from ottla_broker.controller.acts.reassignments import Reassignments
from ottla_broker.controller.acts.request_sender import ControlResponse
from ottla_broker.controller.acts.topic_deletions import TopicDeletions
from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.control_requests import PARTITIONS_PER_STEP
from ottla_broker.controller.replica_states import ReplicaState
from ottla_broker.controller.values import Replica
from ottla_broker.ports import Clock
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition

logger = logging.getLogger("ottla.controller")


class BrokerResponses:
    """Handles the responses of one controller epoch."""

    def __init__(
        self,
        *,
        clock: Clock,
        context: ControllerContext,
        brokers: BrokerChanges,
        deletions: TopicDeletions,
        reassignments: Reassignments,
    ) -> None:
        self._clock = clock
        self._context = context
        self._brokers = brokers
        self._deletions = deletions
        self._reassignments = reassignments

    async def handle(self, response: ControlResponse) -> None:
        """Handles one response; that of an earlier incarnation of its broker is ignored."""
        broker = self._context.brokers.get(response.broker)
        if broker is None or broker.epoch != response.broker_epoch:
            return
        if response.api_key is ApiKey.LEADER_AND_ISR:
            await self._leader_and_isr(response.broker, response.response)
        else:
            await self._stop_replica(response.broker, response.deleted, response.response)

    async def _leader_and_isr(self, broker: int, response: Any) -> None:
        """KAFKA_STORAGE_ERROR: the replica's log directory is offline. NONE: it is online. Other errors say nothing.

        Of a replica that is being deleted only NONE counts. Its StopReplica reports whether it can be deleted, and a
        KAFKA_STORAGE_ERROR may be older than its log directory's return.
        """
        context = self._context
        if response.error_code != ErrorCode.NONE:
            return
        offline, online = [], []
        answered = 0
        for topic in response.topics:
            answered += len(topic.partition_errors)
            if answered >= PARTITIONS_PER_STEP:
                answered = 0
                await self._clock.sleep(0)
            name = context.topic_name(bytes(topic.topic_id))
            for entry in topic.partition_errors if name is not None else ():
                replica = Replica(str(name), entry.partition_index, broker)
                if broker not in context.replicas_of(replica.topic_partition):
                    continue
                if entry.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                    if not context.is_deleting(replica.topic) and context.set_log_dir_offline(replica, True):
                        offline.append(replica)
                elif entry.error_code == ErrorCode.NONE and context.set_log_dir_offline(replica, False):
                    online.append(replica)
        if offline:
            logger.warning("broker %d: the log directories of %d replicas are offline", broker, len(offline))
            await self._brokers.replicas_offline(offline)
        if online:
            await self._brokers.replicas_online(online)

    async def _stop_replica(self, broker: int, deleted: Sequence[TopicPartition], response: Any) -> None:
        """Records which replicas are deleted, of those that the request was to delete."""
        context = self._context
        errors = {
            TopicPartition(entry.topic_name, entry.partition_index): entry.error_code
            for entry in response.partition_errors
        }
        if response.error_code:
            errors = dict.fromkeys(deleted, response.error_code)
        self._reassignments.stop_answered(broker, deleted, errors)
        for partition in deleted:
            replica = Replica(*partition, broker)
            state = context.replica_state(replica)
            if state not in (ReplicaState.DELETION_STARTED, ReplicaState.DELETION_INELIGIBLE):
                continue
            error = errors.get(partition, ErrorCode.NONE)
            if error == ErrorCode.NONE:
                context.move_replica(replica, ReplicaState.DELETION_SUCCESSFUL)
            elif state is ReplicaState.DELETION_STARTED:
                logger.warning("broker %d could not delete %s: error %d", broker, partition, error)
                context.move_replica(replica, ReplicaState.DELETION_INELIGIBLE)
        await self._deletions.complete(partition.topic for partition in deleted)
