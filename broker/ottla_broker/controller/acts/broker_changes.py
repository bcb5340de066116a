"""Follows the live brokers: brokers and log directories that go offline or come back, registrations that change.

Each moves leaders, shrinks or restores ISRs, and sends the brokers what they need. Not here: the responses that report
log directories (`broker_responses`), controlled shutdowns (`broker_shutdown`).

Source: onBrokerStartup, onBrokerFailure and onReplicasBecomeOffline of Apache Kafka's KafkaController.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ottla_broker.config.features import incompatible
from ottla_broker.config.listeners import Endpoint
from ottla_broker.controller.acts.leader_elections import LeaderElections
from ottla_broker.controller.acts.reassignments import Reassignments
from ottla_broker.controller.acts.request_sender import RequestSender
from ottla_broker.controller.acts.topic_deletions import TopicDeletions
from ottla_broker.controller.control_requests import RequestBatch, add_full_leader_and_isr, add_full_update_metadata
from ottla_broker.controller.controller_epoch_parts import ControllerEpochParts
from ottla_broker.controller.replica_states import ReplicaState
from ottla_broker.controller.values import RegisteredBroker, Replica
from ottla_broker.coordination.znodes import ZnodeError
from ottla_broker.ports.coordination import Watcher

logger = logging.getLogger("ottla.controller")


class BrokerChanges:
    """The live brokers of one controller epoch.

    Args:
        listener: the name of the inter-broker listener.
        brokers_watcher: called when a broker registers or goes.
        registration_watcher: called when a registration changes or goes.
    """

    def __init__(
        self,
        *,
        parts: ControllerEpochParts,
        listener: str,
        sender: RequestSender,
        elections: LeaderElections,
        deletions: TopicDeletions,
        reassignments: Reassignments,
        brokers_watcher: Watcher,
        registration_watcher: Watcher,
    ) -> None:
        self._context = parts.context
        self._store = parts.store
        self._config = parts.config
        self._listener = listener
        self._sender = sender
        self._elections = elections
        self._deletions = deletions
        self._reassignments = reassignments
        self._brokers_watcher = brokers_watcher
        self._registration_watcher = registration_watcher

    async def load(self) -> None:
        """Reads every registration into the context and sets the watches. Part of the failover."""
        self._context.brokers = await self._read_registrations()

    async def brokers_changed(self) -> None:
        """Brokers have gone or come, or registrations have changed.

        A new epoch under a known id is a restart that was too quick for the watch. A registration with the same epoch
        may have other listeners: Apache Kafka changes them while it runs.
        """
        context = self._context
        found = await self._read_registrations()
        gone = [
            broker
            for broker in context.broker_ids()
            if broker not in found or found[broker].epoch != context.brokers[broker].epoch
        ]
        come = [broker for broker in sorted(found) if broker not in context.brokers or broker in gone]
        if gone:
            logger.info("brokers are gone: %s", gone)
            await self._brokers_gone(gone)
        if come:
            logger.info("brokers have registered: %s", come)
            await self._brokers_registered({broker: found[broker] for broker in come})
        changed = [broker for broker in sorted(context.brokers) if found[broker] != context.brokers[broker]]
        if changed:
            logger.info("brokers have changed their registrations: %s", changed)
            await self._registrations_changed({broker: found[broker] for broker in changed})

    async def _read_registrations(self) -> dict[int, RegisteredBroker]:
        ids = await self._store.broker_ids(self._brokers_watcher)
        found = await self._store.brokers(ids, self._registration_watcher)
        return await self._compatible(found)

    async def _compatible(self, brokers: dict[int, RegisteredBroker]) -> dict[int, RegisteredBroker]:
        """The brokers that support every finalized feature (KIP-584). Brokers of Apache Kafka 3.9 support none."""
        try:
            finalized, _ = await self._store.finalized_features()
        except ZnodeError as error:
            logger.error("finalized features are ignored: %s", error)
            return brokers
        found = {}
        for broker, registration in brokers.items():
            lacking = incompatible(finalized, registration.features)
            if lacking:
                logger.warning("broker %d is left out: it does not support the finalized features %s", broker, lacking)
            else:
                found[broker] = registration
        return found

    async def _registrations_changed(self, brokers: Mapping[int, RegisteredBroker]) -> None:
        """Sends every broker the new endpoints. A broker whose own channel has to go elsewhere gets a full state again:
        the requests that it has not answered go with the channel."""
        context = self._context
        moved = [
            broker
            for broker in sorted(brokers)
            if self._address(context.brokers[broker]) != self._address(brokers[broker])
        ]
        context.brokers.update(brokers)
        for broker in moved:
            self._sender.close_channel(broker)
            self._sender.open_channel(broker)
        batch = RequestBatch()
        batch.add_metadata(broker for broker in context.brokers if broker not in moved)
        await self._sender.send(batch)
        if not moved:
            return
        metadata = RequestBatch()
        add_full_update_metadata(metadata, context, moved)
        await self._sender.send(metadata)
        full = RequestBatch()
        add_full_leader_and_isr(full, context, moved)
        self._deletions.add_unanswered(moved, full)
        await self._sender.send(full)
        await self._reassignments.stop_removed_replicas(moved)

    def _address(self, broker: RegisteredBroker) -> tuple[Endpoint | None, Endpoint | None]:
        control_plane = self._config.control_plane_listener_name
        return broker.endpoint(self._listener), broker.endpoint(control_plane) if control_plane else None

    async def _brokers_gone(self, brokers: Sequence[int]) -> None:
        context = self._context
        for broker in brokers:
            self._sender.close_channel(broker)
            del context.brokers[broker]
            context.shutting_down.discard(broker)
            context.forget_offline_log_dirs(broker)
        await self.replicas_offline(context.replicas_on(brokers))

    async def replicas_offline(self, replicas: Sequence[Replica]) -> None:
        """These replicas are offline: their leaders move, their ISRs shrink, every broker gets the new metadata."""
        context = self._context
        batch = RequestBatch()
        affected = []
        for replica in replicas:
            if context.is_deleting(replica.topic):
                if context.replica_state(replica) is ReplicaState.DELETION_STARTED:
                    context.move_replica(replica, ReplicaState.DELETION_INELIGIBLE)
                continue
            context.move_replica(replica, ReplicaState.OFFLINE)
            affected.append(replica.topic_partition)
            # Only a broker that is alive, with an offline log directory, gets this one.
            batch.add_stop_replica(replica, delete=False)
        await self._elections.elect(affected, batch)
        # Also without any change of leadership: the live brokers and the offline replicas have changed.
        batch.add_metadata(context.brokers, affected)
        await self._sender.send(batch)
        # An unclean election may have made the target of a reassignment the whole ISR.
        await self._reassignments.progress(affected)

    async def replicas_online(self, replicas: Sequence[Replica]) -> None:
        """The log directories of these replicas are online again: they lead and follow as they may."""
        context = self._context
        batch = RequestBatch()
        partitions = []
        for replica in replicas:
            if not context.is_deleting(replica.topic):
                context.move_replica(replica, ReplicaState.ONLINE)
                partitions.append(replica.topic_partition)
                # It may have missed a change of the leader.
                batch.add_leader_and_isr([replica.broker], replica.topic_partition)
        await self._elections.elect(partitions, batch)
        batch.add_metadata(context.brokers, partitions)
        await self._sender.send(batch)
        await self._deletions.advance(sorted({replica.topic for replica in replicas}))
        await self._reassignments.replicas_online({replica.broker for replica in replicas})

    async def _brokers_registered(self, brokers: Mapping[int, RegisteredBroker]) -> None:
        context = self._context
        known = context.broker_ids()
        for broker in sorted(brokers):
            context.brokers[broker] = brokers[broker]
            context.forget_offline_log_dirs(broker)
            self._sender.open_channel(broker)
        if known:
            endpoints = RequestBatch()
            endpoints.add_metadata(known)
            await self._sender.send(endpoints)
        metadata = RequestBatch()
        add_full_update_metadata(metadata, context, brokers)
        await self._sender.send(metadata)
        replicas = context.replicas_on(brokers)
        for replica in replicas:
            if not context.is_deleting(replica.topic):
                context.move_replica(replica, ReplicaState.ONLINE)
        batch = RequestBatch()
        await self._elections.elect(context.partitions(), batch)
        add_full_leader_and_isr(batch, context, brokers)
        # The metadata of every broker lists these replicas as offline.
        batch.add_metadata(context.brokers, (replica.topic_partition for replica in replicas))
        await self._sender.send(batch)
        await self._deletions.advance(sorted({replica.topic for replica in replicas}))
        await self._reassignments.replicas_online(brokers)
