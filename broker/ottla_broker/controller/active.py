"""The active controller of one controller epoch: assembles its acts, and fails over from the controller before.

`ActiveController` builds the parts in `acts`, gives each the values and callables that it needs, and holds them.
`fail_over` reads everything, elects where a leader is missing and sends every broker its full state. From then on the
controller runs one act after the other (`controller` sees to that), so no part needs a lock although each awaits the
coordination store. Not here: becoming the active controller, the queue (`controller`).

What was written but not sent when a controller dies, the next one sends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ottla_broker.config.inter_broker import inter_broker_versions
from ottla_broker.controller.acts.broker_changes import BrokerChanges
from ottla_broker.controller.acts.broker_responses import BrokerResponses
from ottla_broker.controller.acts.broker_shutdown import BrokerShutdowns
from ottla_broker.controller.acts.isr_writes import IsrWrites
from ottla_broker.controller.acts.leader_elections import LeaderElections
from ottla_broker.controller.acts.leader_rebalance import LeaderRebalance
from ottla_broker.controller.acts.log_dir_events import LogDirEvents
from ottla_broker.controller.acts.metadata_waits import MetadataWaits
from ottla_broker.controller.acts.reassignments import Reassignments
from ottla_broker.controller.acts.request_sender import ControlResponse, RequestSender
from ottla_broker.controller.acts.requested_elections import RequestedElections
from ottla_broker.controller.acts.topic_administration import TopicAdministration
from ottla_broker.controller.acts.topic_changes import TopicChanges
from ottla_broker.controller.acts.topic_deletions import TopicDeletions
from ottla_broker.controller.channels_port import ControllerChannels
from ottla_broker.controller.control_requests import (
    PARTITIONS_PER_STEP,
    RequestBatch,
    add_full_leader_and_isr,
    add_full_update_metadata,
)
from ottla_broker.controller.controller_epoch_parts import ControllerEpochParts
from ottla_broker.controller.partition_states import initial_partition_state
from ottla_broker.controller.replica_states import ReplicaState
from ottla_broker.metrics import Counter
from ottla_broker.ports.coordination import Watcher, WatchEvent, WatchKind

Act = Callable[[], Awaitable[None]]


class ActiveController:
    """The acts of one controller epoch. Any may raise ControllerFenced; then the controller epoch is over.

    Args:
        parts: of this controller epoch.
        listener: the name of the inter-broker listener.
        queue: queues an act by name; it runs unless the controller epoch is over by then.
        watch: makes a watcher that queues a function of the watch event in the same way.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        parts: ControllerEpochParts,
        channels: ControllerChannels,
        listener: str,
        queue: Callable[[str, Act], None],
        watch: Callable[[Callable[[WatchEvent], Awaitable[None]]], Watcher],
        unclean_elections: Counter,
    ) -> None:
        self.context = context = parts.context
        self.store = parts.store
        self._clock = clock = parts.clock
        self._waits = MetadataWaits()
        versions = inter_broker_versions(parts.config.inter_broker_protocol_version)

        def queue_response(response: ControlResponse) -> None:
            queue(f"response of broker {response.broker}", lambda: self._responses.handle(response))

        sender = self._sender = RequestSender(
            broker_id=broker_id,
            clock=clock,
            context=context,
            channels=channels,
            listener=listener,
            versions=versions,
            waits=self._waits,
            on_response=queue_response,
        )
        elections = self._elections = LeaderElections(
            parts=parts,
            versions=versions,
            unclean_elections=unclean_elections,
        )
        self.deletions = TopicDeletions(
            parts=parts,
            send=sender.send,
            queue_advance=lambda: queue("more topics to delete", lambda: self.deletions.advance()),
            markers_watcher=watch(lambda _: self.deletions.markers_changed()),
        )
        self.reassignments = Reassignments(
            parts=parts,
            elections=elections,
            send=sender.send,
            watcher=watch(lambda _: self.reassignments.requests_changed()),
        )
        self._topics = TopicChanges(
            parts=parts,
            elections=elections,
            send=sender.send,
            topics_watcher=watch(lambda _: self._topics.topics_changed()),
            topic_watcher=watch(lambda event: self._topics.topic_changed(event.path.rpartition("/")[2])),
            on_topics_gone=self.reassignments.topics_gone,
        )
        self._brokers = BrokerChanges(
            parts=parts,
            listener=listener,
            sender=sender,
            elections=elections,
            deletions=self.deletions,
            reassignments=self.reassignments,
            brokers_watcher=watch(lambda _: self._brokers.brokers_changed()),
            registration_watcher=_only_changes(watch(lambda _: self._brokers.brokers_changed())),
        )
        self._responses = BrokerResponses(
            clock=clock,
            context=context,
            brokers=self._brokers,
            deletions=self.deletions,
            reassignments=self.reassignments,
        )
        self.isr_writes = IsrWrites(
            parts=parts,
            elections=elections,
            send=sender.send,
            progress_reassignments=self.reassignments.progress,
            notifications_watcher=watch(lambda _: self.isr_writes.read_notifications()),
        )
        self._log_dir_events = LogDirEvents(
            parts=parts,
            send=sender.send,
            deletions=self.deletions,
            reassignments=self.reassignments,
            watcher=watch(lambda _: self._log_dir_events.handle()),
        )
        self.requested_elections = RequestedElections(
            parts=parts,
            elections=elections,
            send=sender.send,
            waits=self._waits,
            progress_reassignments=self.reassignments.progress,
            znode_watcher=watch(lambda _: self.requested_elections.read_znode()),
        )
        self._rebalance = LeaderRebalance(
            context=context, clock=clock, config=parts.config, elections=self.requested_elections, queue=queue
        )
        self.shutdowns = BrokerShutdowns(context=context, clock=clock, elections=elections, sender=sender)
        self.administration = TopicAdministration(
            parts=parts,
            topics=self._topics,
            deletions=self.deletions,
            waits=self._waits,
        )

    async def fail_over(self) -> None:
        """Reads everything, sets the watches, sends every broker its full state, and elects where a leader is missing.

        Source: onControllerFailover of Apache Kafka's KafkaController.
        """
        context = self.context
        await self._brokers.load()
        await self._topics.load()
        await self._elections.read_leadership(list(context.partitions()))
        await self.deletions.load()
        for broker in context.broker_ids():
            self._sender.open_channel(broker)
        # The brokers need each other's endpoints before they follow one another, and the topics at once: while leaders
        # are elected, a broker that has just started would deny them to its clients.
        metadata = RequestBatch()
        add_full_update_metadata(metadata, context, context.brokers)
        await self._sender.send(metadata)
        for number, partition in enumerate(context.partitions(), 1):
            if not number % PARTITIONS_PER_STEP:
                await self._clock.sleep(0)
            state = initial_partition_state(context.leadership.get(partition), context.online_brokers(partition))
            context.init_partition(partition, state)
        for number, replica in enumerate(context.replicas_on(context.assigned_brokers()), 1):
            if not number % PARTITIONS_PER_STEP:
                await self._clock.sleep(0)
            online = context.is_online(replica)
            context.init_replica(replica, ReplicaState.ONLINE if online else ReplicaState.OFFLINE)
        batch = RequestBatch()
        await self._elections.elect(context.partitions(), batch)
        add_full_leader_and_isr(batch, context, context.brokers)
        batch.add_metadata(context.brokers, context.partitions())
        await self._sender.send(batch)
        await self.deletions.markers_changed()
        await self.isr_writes.read_notifications()
        await self.reassignments.resume()
        await self._log_dir_events.handle()
        await self.requested_elections.read_znode()
        self._rebalance.start()

    def resign(self, error: Exception) -> None:
        """Closes the channels, so that nothing is sent any more, and fails whoever waits with the error."""
        self._sender.close()
        self._waits.fail(error)


def _only_changes(watcher: Watcher) -> Watcher:
    """Passes on changes of a node. That one is gone, the watch on its parent reports."""

    def on_event(event: WatchEvent) -> None:
        if event.kind is WatchKind.CHANGED:
            watcher(event)

    return on_event
