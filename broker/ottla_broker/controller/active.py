"""What the controller does while it is in office: the acts that follow each event.

One `ActiveController` per term. Its coroutines run one at a time, one event after the other (`controller` sees to
that), so no lock is needed although each awaits the store. Not here: being elected, the queue of events and the
watches (`controller`), the requests of administrators (`administration`), deciding (`elections` and the other pure
modules).

Every act has the same shape: decide, write under the fence, note in the context what has been written, and tell the
brokers in one batch at the end. What was written and not told when the controller dies, its successor tells.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla_broker.config.inter_broker import inter_broker_versions
from ottla_broker.controller.acts import isr_writes
from ottla_broker.controller.acts import log_dir_events as directory_events
from ottla_broker.controller.acts import requested_elections as leader_elections
from ottla_broker.controller.acts.metadata_waits import MetadataWaits
from ottla_broker.controller.acts.reassignments import Reassignments
from ottla_broker.controller.acts.topic_deletions import TopicDeletions
from ottla_broker.controller.channels_port import ControllerChannels
from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.control_requests import RequestBatch, deleted_partitions
from ottla_broker.controller.decisions.leader_election import Election, decide_after_offline, decide_initial
from ottla_broker.controller.partition_states import PartitionState, initial_partition_state
from ottla_broker.controller.replica_states import ReplicaState
from ottla_broker.controller.store import ControllerFenced, ControllerStore, StateConflict
from ottla_broker.controller.values import Broker, Endpoint, LeaderAndIsr, Replica, Topic
from ottla_broker.metrics import Counter
from ottla_broker.ports.clock import Clock
from ottla_broker.ports.coordination import Watcher
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition

logger = logging.getLogger("ottla.controller")


@dataclass(frozen=True, slots=True)
class Watches:
    """What is to be called when something in the store changes."""

    brokers: Watcher
    registrations: Watcher
    topics: Watcher
    topic: Watcher
    deletions: Watcher
    isr_notifications: Watcher
    reassignments: Watcher
    preferred_elections: Watcher
    directories: Watcher


@dataclass(frozen=True, slots=True)
class Answer:
    """A broker's answer to LeaderAndIsr or StopReplica; `deleted` are the partitions that the latter was to delete."""

    broker: int
    broker_epoch: int
    api_key: ApiKey
    response: Any
    deleted: tuple[TopicPartition, ...] = ()


ELECTIONS_AT_ONCE: Final = 500
"""Partitions decided and written together: the loop goes on with other work after each so many."""

NAMED_ELECTIONS: Final = 100
"""Of more elections than these in one event the log tells the number; a line each is for the level DEBUG."""

Decide = Callable[[Sequence[TopicPartition]], Awaitable[dict[TopicPartition, Election]]]
"""The leaderships to write, of those of the partitions for which something changes."""


class ActiveController:
    """The acts of one term of office. Any of them may raise ControllerFenced: then the term is over."""

    def __init__(
        self,
        *,
        broker_id: int,
        context: ControllerContext,
        store: ControllerStore,
        channels: ControllerChannels,
        clock: Clock,
        config: Mapping[str, Any],
        listener: str,
        watches: Watches,
        on_answer: Callable[[Answer], None],
        queue: Callable[[str, Callable[[ActiveController], Awaitable[None]]], None],
        unclean_elections: Counter,
    ) -> None:
        """`listener` is the inter-broker one; `on_answer` queues an event that ends in `answered`, `queue` any act."""
        self.context = context
        self.store = store
        self.waits = MetadataWaits()
        self.config = config
        self._broker_id = broker_id
        self._channels = channels
        self._clock = clock
        self._listener = listener
        self._versions = inter_broker_versions(config["inter.broker.protocol.version"])
        self._watches = watches
        self._on_answer = on_answer
        self._unclean_elections = unclean_elections
        self.deletions = TopicDeletions(
            context,
            store,
            config,
            watches.deletions,
            self.send,
            lambda: queue("more topics to delete", lambda active: active.deletions.go_on()),
        )
        self.reassignments = Reassignments(self, watches.reassignments)
        self._unreadable_topics: set[str] = set()
        self._is_over = False

    def leave_office(self, error: Exception) -> None:
        """Nothing is sent any more, and whoever waits gets the error. The channels are closed."""
        self._is_over = True
        self._channels.close_all()
        self.waits.give_up(error)

    # Taking office

    async def take_office(self) -> None:
        """Reads everything, arms the watches, tells every broker, and elects where a leader is missing."""
        context = self.context
        context.brokers = await self._registered()
        names = await self.store.topic_names(self._watches.topics)
        for topic in await self._read_topics(names):
            context.add_topic(topic)
        await self.read_leadership(list(context.partitions()))
        if self.config["delete.topic.enable"]:
            marked = await self.store.topics_to_delete(self._watches.deletions)
            context.topics_to_delete = {name for name in marked if context.has_topic(name)}
        for broker in context.broker_ids():
            self._open_channel(broker)
        # The brokers must know each other's endpoints before they are told to follow one another, and the topics at
        # once: while leaders are elected, a broker that has just started would deny them to its clients.
        first = RequestBatch()
        self._tell_all_metadata(context.brokers, first)
        self.send(first)
        for partition in context.partitions():
            state = initial_partition_state(context.leadership.get(partition), context.online_brokers(partition))
            context.init_partition(partition, state)
        for replica in context.replicas_on(_all_brokers(context)):
            online = context.is_online(replica)
            context.init_replica(replica, ReplicaState.ONLINE if online else ReplicaState.OFFLINE)
        batch = RequestBatch()
        await self.elect(context.partitions(), batch)
        self._tell_everything(context.brokers, batch)
        batch.tell_metadata(context.brokers, context.partitions())
        self.send(batch)
        await self.deletions.markers_changed()
        await self.isr_notified()
        await self.reassignments.take_office()
        await self.directories_changed()
        await self.preferred_elections_requested()

    async def _read_topics(self, names: Sequence[str]) -> list[Topic]:
        """The topics, watched, each with an id; those that cannot be read are remembered and left alone."""
        found, unreadable = await self.store.topics(names, self._watches.topic)
        self._unreadable_topics.difference_update(names)
        self._unreadable_topics.update(unreadable)
        return [await self._with_topic_id(found[name]) for name in sorted(found)]

    async def _with_topic_id(self, topic: Topic) -> Topic:
        if topic.topic_id is not None:
            return topic
        # A tool of before topic ids writes a topic anew without the one it has.
        topic_id = self.context.topic_id(topic.name) or self.new_topic_id()
        return await self.store.give_topic_id(Topic(topic.name, topic_id, topic.partitions))

    def new_topic_id(self) -> bytes:
        """A random id; as Kafka's, its text form does not begin with '-', which tools would take for an option."""
        while True:
            found = self._clock.uuid4().bytes
            if found[0] >> 2 != 62:
                return found

    async def read_leadership(self, partitions: Sequence[TopicPartition]) -> None:
        """Brings the context up to date with the state znodes of these partitions.

        ControllerFenced when a later controller has written one of them.
        """
        found = await self.store.leadership(partitions)
        for partition in partitions:
            self.context.unreadable.discard(partition)
            leadership = found.get(partition)
            if leadership is None:
                self.context.leadership.pop(partition, None)
                if partition in found:
                    self.context.unreadable.add(partition)
                continue
            if leadership.controller_epoch > self.context.epoch:
                raise ControllerFenced(f"{partition} was written by controller epoch {leadership.controller_epoch}")
            self.context.leadership[partition] = leadership

    # Brokers

    async def brokers_changed(self) -> None:
        """Brokers have gone, come, or both: a new epoch under a known id is a restart that was too quick to be seen.
        Or a registration says something else: Apache Kafka's listeners may change while it runs."""
        context = self.context
        found = await self._registered()
        gone = [
            broker
            for broker in context.broker_ids()
            if broker not in found or found[broker].epoch != context.brokers[broker].epoch
        ]
        come = [broker for broker in sorted(found) if broker not in context.brokers or broker in gone]
        if gone:
            logger.info("brokers gone: %s", gone)
            await self._brokers_gone(gone)
        if come:
            logger.info("brokers come: %s", come)
            await self._brokers_come({broker: found[broker] for broker in come})
        changed = [broker for broker in sorted(context.brokers) if found[broker] != context.brokers[broker]]
        if changed:
            logger.info("the registrations of brokers have changed: %s", changed)
            self._registrations_changed({broker: found[broker] for broker in changed})

    def _registrations_changed(self, brokers: Mapping[int, Broker]) -> None:
        """Everybody hears the new endpoints. A broker whose own channel has to go elsewhere is told everything again:
        what it has not answered yet goes with the channel."""
        context = self.context
        moved = [
            broker
            for broker in sorted(brokers)
            if self._address(context.brokers[broker]) != self._address(brokers[broker])
        ]
        context.brokers.update(brokers)
        for broker in moved:
            self._close_channel(broker)
            self._open_channel(broker)
        batch = RequestBatch()
        batch.tell_metadata(broker for broker in context.brokers if broker not in moved)
        self.send(batch)
        if not moved:
            return
        welcome = RequestBatch()
        self._tell_all_metadata(moved, welcome)
        self.send(welcome)
        again = RequestBatch()
        self._tell_everything(moved, again)
        self.deletions.tell_again(moved, again)
        self.send(again)
        self.reassignments.tell_leaving(moved)

    def _address(self, broker: Broker) -> tuple[Endpoint | None, Endpoint | None]:
        control_plane = self.config["control.plane.listener.name"]
        return broker.endpoint(self._listener), broker.endpoint(control_plane) if control_plane else None

    async def _registered(self) -> dict[int, Broker]:
        ids = await self.store.broker_ids(self._watches.brokers)
        return await self.store.brokers(ids, self._watches.registrations)

    async def _brokers_gone(self, brokers: Sequence[int]) -> None:
        context = self.context
        for broker in brokers:
            self._close_channel(broker)
            del context.brokers[broker]
            context.shutting_down.discard(broker)
            context.forget_failed_directories(broker)
        await self.replicas_gone(context.replicas_on(brokers))

    async def replicas_gone(self, replicas: Sequence[Replica]) -> None:
        """These replicas cannot be used any more: their leaders move, their ISRs shrink, everybody hears of it."""
        context = self.context
        batch = RequestBatch()
        affected = []
        for replica in replicas:
            if context.is_deleting(replica.topic):
                if context.replica_state(replica) is ReplicaState.DELETION_STARTED:
                    context.move_replica(replica, ReplicaState.DELETION_INELIGIBLE)
                continue
            context.move_replica(replica, ReplicaState.OFFLINE)
            affected.append(replica.topic_partition)
            # Only a broker that lives with a failed directory hears this one.
            batch.stop(replica, delete=False)
        await self.elect(affected, batch)
        # Also without any change of leadership: which brokers live and which replicas are offline has changed.
        batch.tell_metadata(context.brokers, affected)
        self.send(batch)
        # An unclean election may have made the target of a reassignment the whole ISR.
        await self.reassignments.progress(affected)

    async def _brokers_come(self, brokers: Mapping[int, Any]) -> None:
        context = self.context
        known = context.broker_ids()
        for broker in sorted(brokers):
            context.brokers[broker] = brokers[broker]
            context.forget_failed_directories(broker)
            self._open_channel(broker)
        if known:
            introduction = RequestBatch()
            introduction.tell_metadata(known)
            self.send(introduction)
        welcome = RequestBatch()
        self._tell_all_metadata(brokers, welcome)
        self.send(welcome)
        replicas = context.replicas_on(brokers)
        for replica in replicas:
            if not context.is_deleting(replica.topic):
                context.move_replica(replica, ReplicaState.ONLINE)
        batch = RequestBatch()
        await self.elect(context.partitions(), batch)
        self._tell_everything(brokers, batch)
        # The replicas that are back are no longer offline in anybody's metadata.
        batch.tell_metadata(context.brokers, (replica.topic_partition for replica in replicas))
        self.send(batch)
        await self.deletions.go_on(sorted({replica.topic for replica in replicas}))
        await self.reassignments.replicas_came(brokers)

    def _is_everything_known(self) -> bool:
        """While some znode cannot be read, no request claims to be full: a broker deletes what a full LeaderAndIsr does
        not name, and forgets the topics that a full UpdateMetadata does not name."""
        return not self.context.unreadable and not self._unreadable_topics

    def _tell_all_metadata(self, brokers: Iterable[int], batch: RequestBatch) -> None:
        """A full UpdateMetadata: brokers that live on without a session, or whose controller died, may have missed the
        end of a topic, of which nobody would tell them any more."""
        tell = batch.tell_all_metadata if self._is_everything_known() else batch.tell_metadata
        tell(brokers, self.context.partitions())

    def _tell_everything(self, brokers: Iterable[int], batch: RequestBatch) -> None:
        """A full LeaderAndIsr for each of the brokers."""
        if self._is_everything_known():
            for broker in sorted(brokers):
                batch.tell_everything(broker)
        for replica in self.context.replicas_on(brokers):
            if not self.context.is_deleting(replica.topic):
                batch.tell_leadership(
                    [replica.broker], replica.topic_partition, is_new=self.reassignments.is_learner(replica)
                )

    # Topics and partitions

    async def topics_changed(self) -> None:
        """Topics have come, made by a tool; or their znodes are gone without a deletion that we know of."""
        context = self.context
        names = await self.store.topic_names(self._watches.topics)
        for name in sorted(set(context.topic_names()) - set(names)):
            logger.warning("topic %s has vanished from the store: forgotten", name)
            if context.is_deleting(name):
                # Its marker would delete the next topic of that name.
                await self.store.unmark_for_deletion(name)
            context.remove_topic(name)
        await self.reassignments.topics_gone()
        unknown = [name for name in names if not context.has_topic(name)]
        await self.add_topics(await self._read_topics(unknown))

    async def topic_changed(self, name: str) -> None:
        """The topic's assignment has changed: partitions may have been added."""
        for topic in await self._read_topics([name]):
            if self.context.has_topic(name):
                await self.add_partitions(topic)
            else:
                await self.add_topics([topic])

    async def watch_topics(self, names: Sequence[str]) -> None:
        """Arms the watch of topics that this controller has just created itself."""
        await self.store.topics(names, self._watches.topic)

    async def add_topics(self, topics: Sequence[Topic]) -> None:
        """Topics that stand in the store and are new here: elects their first leaders and tells the brokers."""
        partitions: list[TopicPartition] = []
        for topic in topics:
            if not self.context.has_topic(topic.name):
                self.context.add_topic(topic)
                partitions.extend(self.context.partitions_of(topic.name))
        await self._start_partitions(partitions)

    async def add_partitions(self, topic: Topic) -> None:
        """Partitions of a known topic that are new here."""
        context = self.context
        present = set(context.partitions_of(topic.name))
        added = [
            TopicPartition(topic.name, partition)
            for partition in sorted(topic.partitions)
            if TopicPartition(topic.name, partition) not in present
        ]
        if not added:
            return
        if context.is_deleting(topic.name):
            logger.warning("partitions added to topic %s, which is being deleted, are left out", topic.name)
            return
        known = context.topic(topic.name)
        grown = dict(known.partitions)
        grown.update({partition.partition: topic.partitions[partition.partition] for partition in added})
        context.add_topic(Topic(topic.name, known.topic_id, grown))
        await self._start_partitions(added)

    async def _start_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        if not partitions:
            return
        context = self.context
        for partition in partitions:
            context.move_partition(partition, PartitionState.NEW)
            for broker in context.replicas_of(partition):
                context.move_replica(Replica(*partition, broker), ReplicaState.NEW)
        batch = RequestBatch()
        await self.elect(partitions, batch, is_new=True)
        for partition in partitions:
            online = context.online_brokers(partition)
            for broker in context.replicas_of(partition):
                context.move_replica(
                    Replica(*partition, broker), ReplicaState.ONLINE if broker in online else ReplicaState.OFFLINE
                )
        batch.tell_metadata(context.brokers, partitions)
        self.send(batch)

    # Elections

    async def elect(
        self,
        partitions: Iterable[TopicPartition],
        batch: RequestBatch,
        *,
        is_new: bool = False,
        decide: Decide | None = None,
    ) -> None:
        """Decides for each partition, writes what changed, and puts it into the batch.

        `decide` is another rule than that for brokers that went or came; it may be asked again for some of them.

        A state znode that somebody else has written meanwhile (a leader of an older protocol, our own write whose
        answer was lost) is read again and decided again.
        """
        context = self.context
        wanted = sorted({p for p in partitions if not context.is_deleting(p.topic) and p not in context.unreadable})
        held = 0
        for start in range(0, len(wanted), ELECTIONS_AT_ONCE):
            some = wanted[start : start + ELECTIONS_AT_ONCE]
            is_named = len(wanted) <= NAMED_ELECTIONS
            held += await self._elect_some(some, batch, is_new=is_new, decide=decide or self._decide, is_named=is_named)
            # Also when there was nothing to write: the loop has other work, and heartbeats to send.
            await self._clock.sleep(0)
        if held > NAMED_ELECTIONS:
            logger.info("%d partitions of %d have new leaderships", held, len(wanted))

    async def _elect_some(
        self, pending: list[TopicPartition], batch: RequestBatch, *, is_new: bool, decide: Decide, is_named: bool
    ) -> int:
        """The number of leaderships written; each has a line of its own in the log where `is_named`."""
        context = self.context
        held = 0
        while pending:
            elections = await decide(pending)
            new = frozenset(partition for partition in elections if partition not in context.leadership)
            leaderships = {
                partition: context.of_this_life(election.leadership) for partition, election in elections.items()
            }
            if not self._versions.has_leader_recovery:
                leaderships = {partition: found.recovered() for partition, found in leaderships.items()}
            written = await self.store.write_leadership(leaderships, context.epoch, new=new)
            conflicts: dict[TopicPartition, StateConflict] = {}
            for partition, outcome in written.items():
                if isinstance(outcome, StateConflict):
                    logger.info("%s: decided again, %s", partition, outcome.reason)
                    conflicts[partition] = outcome
                    continue
                context.leadership[partition] = outcome
                held += 1
                self._note_election(partition, elections[partition], outcome, is_named)
                batch.tell_leadership(context.online_brokers(partition), partition, is_new=is_new or partition in new)
                batch.tell_metadata(context.brokers, [partition])
            self._note_partition_states(partition for partition in pending if partition not in conflicts)
            pending = await self._read_conflicts(conflicts, new, batch) if conflicts else []
        return held

    async def _read_conflicts(
        self, conflicts: Mapping[TopicPartition, StateConflict], new: frozenset[TopicPartition], batch: RequestBatch
    ) -> list[TopicPartition]:
        """Reads the states that were not as expected; gives the partitions to decide about again."""
        context = self.context
        await self.read_leadership(sorted(conflicts))
        again = []
        for partition in sorted(conflicts):
            if partition in context.unreadable:
                continue
            if partition in context.leadership:
                # One that was new is our own write: nobody has been told of it yet.
                batch.tell_leadership(context.online_brokers(partition), partition, is_new=partition in new)
                batch.tell_metadata(context.brokers, [partition])
            elif partition in new:
                if conflicts[partition].is_gone:
                    # The topic itself has been removed under us; the watch on topics tells.
                    continue
                await self.store.repair_partition_node(partition)
            again.append(partition)
        return again

    async def _decide(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Election]:
        context = self.context
        unclean: dict[str, bool] = {}
        elections: dict[TopicPartition, Election] = {}
        for partition in partitions:
            replicas, online = context.replicas_of(partition), context.electable_brokers(partition)
            current = context.leadership.get(partition)
            if current is None:
                election = decide_initial(replicas, online, context.epoch)
            else:
                if online and not online.intersection(current.isr) and partition.topic not in unclean:
                    unclean[partition.topic] = await self._is_unclean_allowed(partition.topic)
                allowed = unclean.get(partition.topic, False)
                adding = context.assignment_of(partition).adding
                is_new_life = context.has_new_leader_life(partition)
                election = decide_after_offline(
                    replicas, current, online=online, unclean=allowed, adding=adding, is_new_life=is_new_life
                )
            if election is not None:
                elections[partition] = election
        return elections

    async def _is_unclean_allowed(self, topic: str) -> bool:
        override = (await self.store.topic_config(topic)).get("unclean.leader.election.enable")
        if override is not None:
            return override.strip().lower() == "true"
        return bool(self.config["unclean.leader.election.enable"])

    def _note_election(
        self, partition: TopicPartition, election: Election, written: LeaderAndIsr, is_named: bool
    ) -> None:
        level = logging.INFO if is_named else logging.DEBUG
        if election.unclean:
            self._unclean_elections.inc()
            level = logging.WARNING
        if not logger.isEnabledFor(level):
            return
        logger.log(
            level,
            "%s: leader %d, epoch %d, ISR %s: %s",
            partition,
            written.leader,
            written.leader_epoch,
            list(written.isr),
            election.reason,
        )

    def _note_partition_states(self, partitions: Iterable[TopicPartition]) -> None:
        context = self.context
        for partition in partitions:
            if partition in context.leadership:
                offline = context.leads_nobody_online(partition)
                context.move_partition(partition, PartitionState.OFFLINE if offline else PartitionState.ONLINE)

    # Answers of brokers

    async def answered(self, answer: Answer) -> None:
        """An answer to LeaderAndIsr or StopReplica; one to an earlier incarnation of the broker says nothing."""
        broker = self.context.brokers.get(answer.broker)
        if broker is None or broker.epoch != answer.broker_epoch:
            return
        if answer.api_key is ApiKey.LEADER_AND_ISR:
            await self._leadership_answered(answer.broker, answer.response)
        else:
            await self._stop_answered(answer.broker, answer.deleted, answer.response)

    async def _leadership_answered(self, broker: int, response: Any) -> None:
        """LeaderAndIsr: 56 means that the replica's directory has failed, NONE that it works; others are stale.

        Of replicas that are being deleted only NONE is news: whether they can be deleted, their StopReplica tells, and
        56 may be from before their directory was back.
        """
        context = self.context
        if response.error_code != ErrorCode.NONE:
            return
        gone, back = [], []
        for topic in response.topics:
            name = context.topic_name(bytes(topic.topic_id))
            for entry in topic.partition_errors if name is not None else ():
                replica = Replica(str(name), entry.partition_index, broker)
                if broker not in context.replicas_of(replica.topic_partition):
                    continue
                if entry.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                    if not context.is_deleting(replica.topic) and context.set_directory_failed(replica, True):
                        gone.append(replica)
                elif entry.error_code == ErrorCode.NONE and context.set_directory_failed(replica, False):
                    back.append(replica)
        if gone:
            logger.warning("broker %d: the log directories of %d replicas have failed", broker, len(gone))
            await self.replicas_gone(gone)
        if back:
            await self.replicas_back(back)

    async def replicas_back(self, replicas: Sequence[Replica]) -> None:
        batch = RequestBatch()
        partitions = []
        for replica in replicas:
            if not self.context.is_deleting(replica.topic):
                self.context.move_replica(replica, ReplicaState.ONLINE)
                partitions.append(replica.topic_partition)
                # It may have missed who leads by now.
                batch.tell_leadership([replica.broker], replica.topic_partition)
        await self.elect(partitions, batch)
        batch.tell_metadata(self.context.brokers, partitions)
        self.send(batch)
        await self.deletions.go_on(sorted({replica.topic for replica in replicas}))
        await self.reassignments.replicas_came({replica.broker for replica in replicas})

    async def _stop_answered(self, broker: int, deleted: Sequence[TopicPartition], response: Any) -> None:
        """StopReplica: which of the replicas that were to be deleted are gone."""
        context = self.context
        errors = {
            TopicPartition(entry.topic_name, entry.partition_index): entry.error_code
            for entry in response.partition_errors
        }
        if response.error_code:
            errors = dict.fromkeys(deleted, response.error_code)
        self.reassignments.stop_answered(broker, deleted, errors)
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
        await self.deletions.complete(partition.topic for partition in deleted)

    async def isr_notified(self) -> None:
        """Leaders of an older protocol have written state znodes themselves."""
        await isr_writes.isr_notified(self, self._watches.isr_notifications)

    async def directories_changed(self) -> None:
        """Brokers have written that a log directory of theirs has failed, is full, or is back."""
        await directory_events.directories_changed(self, self._watches.directories)

    async def preferred_elections_requested(self) -> None:
        """A tool has written which partitions are to have their preferred leaders."""
        await leader_elections.requested_by_znode(self, self._watches.preferred_elections)

    # Sending

    def _open_channel(self, broker: int) -> None:
        if self.context.brokers[broker].endpoint(self._listener) is None:
            logger.error("broker %d cannot be reached: it has no listener %s", broker, self._listener)
            return
        self._channels.open(self.context.brokers[broker])

    def _close_channel(self, broker: int) -> None:
        self._channels.close(broker)
        if broker == self._broker_id:
            self.waits.reset()

    def send(self, batch: RequestBatch, on_answer: Callable[[], None] | None = None) -> int:
        """Sends a batch and gives the number of its requests; `on_answer` is called for each that is answered."""
        if self._is_over:
            return 0
        count = 0
        for request in batch.build(self.context, self._broker_id, self._listener, self._versions):
            if self.context.brokers[request.broker].endpoint(self._listener) is None:
                continue
            count += 1
            if request.broker == self._broker_id and request.api_key is ApiKey.UPDATE_METADATA:
                self.waits.sent(frozenset(topic.topic_name for topic in request.body.topic_states))
            self._channels.send(
                request.broker,
                request.api_key,
                request.version,
                request.body,
                self._answer_handler(request.broker, request.api_key, request.body, on_answer),
            )
        return count

    def _answer_handler(
        self, broker: int, api_key: ApiKey, body: Any, on_answer: Callable[[], None] | None
    ) -> Callable[[Any], None]:
        epoch = self.context.brokers[broker].epoch
        deleted = tuple(deleted_partitions(body)) if api_key is ApiKey.STOP_REPLICA else ()

        def on_response(response: Any) -> None:
            if self._is_over:
                return
            if api_key is not ApiKey.UPDATE_METADATA:
                self._on_answer(Answer(broker, epoch, api_key, response, deleted))
            elif broker == self._broker_id:
                self.waits.answered()
            if on_answer is not None:
                on_answer()

        return on_response


def _all_brokers(context: ControllerContext) -> list[int]:
    """Every broker that holds a replica, alive or not."""
    return sorted({broker for partition in context.partitions() for broker in context.replicas_of(partition)})
