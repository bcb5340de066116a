"""Reassigns partitions: starts, continues, completes and cancels reassignments (KIP-455).

Not here: the next step of a partition (`decisions.reassignment_steps`), the requests on the wire (`server.handlers`),
throttles (`replication.quotas`).

The state of a reassignment. `adding_replicas` and `removing_replicas` of the topic's znode say what is being
reassigned, the ISR of the state znode says how far it is. There is no other record, so after a failover the next
controller continues from these two. `/admin/reassign_partitions` is only another way to ask, which tools older than
KIP-455 use: an entry starts a reassignment, and is removed once that is complete or a newer request has replaced it.

The order of writes. At the start and when it is cancelled: state, topic, brokers. The state comes first because only
its write is conditional on an unchanged ISR; a crash after it has changed a leader epoch and nothing else. At the end:
state, brokers, topic. After a crash before the last write the next controller repeats the step.

Removed replicas are deleted by StopReplica. Where the broker is not alive, or cannot delete the replica, the request is
sent again when it registers or its log directories change, as long as this controller epoch lasts. After a failover a
broker of ours finds out from a full LeaderAndIsr, or when a log directory is back online, which replicas are stray.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla_broker.controller.acts.leader_elections import LeaderElections
from ottla_broker.controller.control_requests import RequestBatch
from ottla_broker.controller.controller_epoch_parts import ControllerEpochParts
from ottla_broker.controller.decisions import reassignment_steps
from ottla_broker.controller.decisions.capacity import Capacity
from ottla_broker.controller.decisions.leader_election import Election, decide_initial_leader
from ottla_broker.controller.decisions.reassignment_steps import (
    ReassignmentPhase,
    ReassignmentStep,
    finished,
    is_ongoing,
)
from ottla_broker.controller.partition_states import PartitionState
from ottla_broker.controller.replica_states import ReplicaState
from ottla_broker.controller.store import too_large_topic
from ottla_broker.controller.values import Replica, ReplicaAssignment, Topic
from ottla_broker.ports.coordination import Watcher
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition

logger = logging.getLogger("ottla.controller")

_Plan = Callable[[TopicPartition], ReplicaAssignment | None]
"""The assignment that a partition gets, None to leave it alone. Called again after a conflict."""


@dataclass(frozen=True, slots=True)
class _PartitionStep:
    """The decision about one partition: its assignment before and after, and the step it is at."""

    before: ReplicaAssignment
    after: ReplicaAssignment
    step: ReassignmentStep
    is_first: bool
    """The partition never had a leader."""

    @property
    def is_end(self) -> bool:
        return self.step.phase is ReassignmentPhase.END

    @property
    def settled(self) -> ReplicaAssignment:
        """The assignment once the step has been carried out."""
        return finished(self.after) if self.is_end else self.after

    @property
    def removed(self) -> tuple[int, ...]:
        """The replicas that this step deletes."""
        return reassignment_steps.unneeded(self.before, self.settled)


class Reassignments:
    """The reassignments of one controller epoch.

    Args:
        send: sends a batch to the brokers.
        watcher: called when /admin/reassign_partitions changes.
    """

    def __init__(
        self,
        *,
        parts: ControllerEpochParts,
        elections: LeaderElections,
        send: Callable[[RequestBatch], Awaitable[object]],
        watcher: Watcher,
    ) -> None:
        self._context = parts.context
        self._store = parts.store
        self._elections = elections
        self._send = send
        self._watcher = watcher
        self._removed: dict[Replica, None] = {}
        """Removed replicas whose brokers have not confirmed the deletion."""
        self._asked: Mapping[TopicPartition, tuple[int, ...]] = {}
        """What /admin/reassign_partitions held when it was last read."""

    # Requests of clients

    async def alter(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None], *, allows_factor_change: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """AlterPartitionReassignments: a target for each partition, None cancels. An error for each that is refused.

        The errors, in this order: those of `reassignment_steps.plan`, UNKNOWN_TOPIC_OR_PARTITION (also of a topic that
        is being deleted), UNKNOWN_SERVER_ERROR (its state cannot be read), INVALID_REPLICA_ASSIGNMENT (the topic with
        all that is asked of it would be larger than a znode; a broker would hold more replicas than it may).
        """
        live = frozenset(self._context.brokers) - self._context.shutting_down
        answers = self._check(wanted, live=live, allows_factor_change=allows_factor_change)
        accepted = {partition: wanted[partition] for partition, error in answers.items() if error is None}
        # The latest request counts, wherever it came from.
        await self._forget_requests(accepted)
        answers.update(await self._begin(accepted, live=live))
        for partition, error in answers.items():
            if error is not None:
                logger.info("%s is not reassigned (%s): %s", partition, error.code.name, error.message)
        return answers

    def ongoing(self, asked: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, ReplicaAssignment]:
        """The ongoing reassignments, of all partitions or of those asked for."""
        context = self._context
        found = {}
        for partition in context.partitions() if asked is None else sorted(set(asked)):
            assignment = context.assignment_of(partition)
            if is_ongoing(assignment) and not context.is_deleting(partition.topic):
                found[partition] = assignment
        return found

    # Events

    async def resume(self) -> None:
        """Continues what earlier controllers have started. Part of the failover.

        The leaders may not have got their last requests, so each gets its leadership under a new epoch.
        """
        await self._carry_out(list(self.ongoing()), announce=True)
        await self.requests_changed()

    async def requests_changed(self) -> None:
        """Starts what /admin/reassign_partitions asks for, after it has changed."""
        context = self._context
        self._asked = await self._store.reassignment_requests(self._watcher)
        # A broker that is not alive may register later: tools older than KIP-455 wait for it.
        every_broker = frozenset(broker for replicas in self._asked.values() for broker in replicas)
        wanted: dict[TopicPartition, tuple[int, ...] | None] = {}
        for partition, replicas in self._asked.items():
            current = context.assignment_of(partition)
            if not (is_ongoing(current) and reassignment_steps.target(current) == replicas):
                wanted[partition] = replicas
        answers = self._check(wanted, live=every_broker)
        accepted = {partition: wanted[partition] for partition, error in answers.items() if error is None}
        answers.update(await self._begin(accepted, live=every_broker))
        refused = {partition: error for partition, error in answers.items() if error is not None}
        for partition, error in refused.items():
            logger.warning("/admin/reassign_partitions: %s is refused: %s", partition, error.message)
        await self._forget_requests(refused)

    async def progress(self, partitions: Iterable[TopicPartition]) -> None:
        """Takes the next step of those partitions that are being reassigned, after a change of their ISR or of their
        online replicas."""
        moving = [partition for partition in partitions if is_ongoing(self._context.assignment_of(partition))]
        if moving:
            await self._carry_out(sorted(set(moving)), announce=False)

    async def replicas_online(self, brokers: Collection[int]) -> None:
        """Brokers have registered, or log directories of theirs are online again: continues what waits for them."""
        await self.stop_removed_replicas(brokers)
        await self.progress(
            [
                partition
                for partition, assignment in self.ongoing().items()
                if any(broker in brokers for broker in assignment.replicas)
            ]
        )

    async def stop_removed_replicas(self, brokers: Collection[int]) -> None:
        """Sends these brokers StopReplica again for their removed replicas.

        A removed replica has no replica state: only a log dir event of its broker says that it may be deletable now.
        """
        context = self._context
        batch = RequestBatch()
        for replica in sorted(self._removed):
            if replica.broker not in brokers:
                continue
            if replica.broker in context.replicas_of(replica.topic_partition):
                del self._removed[replica]
            else:
                batch.add_stop_replica(replica, delete=True)
        await self._send(batch)

    def stop_answered(
        self, broker: int, deleted: Iterable[TopicPartition], errors: Mapping[TopicPartition, int]
    ) -> None:
        """A broker has answered a StopReplica that deletes these replicas."""
        for partition in deleted:
            replica = Replica(*partition, broker)
            if replica not in self._removed:
                continue
            error = errors.get(partition, ErrorCode.NONE)
            if error == ErrorCode.NONE:
                del self._removed[replica]
            else:
                logger.warning(
                    "broker %d could not delete its removed replica of %s: error %d", broker, partition, error
                )

    async def topics_gone(self) -> None:
        """Removes the requests for topics that are gone."""
        await self._forget_requests(
            partition for partition in self._asked if not self._context.has_topic(partition.topic)
        )

    # Deciding and carrying out

    def _check(
        self,
        wanted: Mapping[TopicPartition, tuple[int, ...] | None],
        *,
        live: frozenset[int],
        allows_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """An error, or None, for each partition, in their order."""
        answers: dict[TopicPartition, KafkaError | None] = {}
        planned: dict[str, dict[int, ReplicaAssignment]] = {}
        capacity = Capacity(self._context)
        for partition, replicas in sorted(wanted.items()):
            try:
                after = self._plan(partition, replicas, live)
                self._check_exists(partition)
                if not allows_factor_change:
                    reassignment_steps.check_factor(self._context.assignment_of(partition), replicas)
                present = self._context.replicas_of(partition)
                coming = [broker for broker in after.replicas if broker not in present]
                capacity.take(f"The reassignment of {partition}", coming, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
            except KafkaError as error:
                answers[partition] = error
            else:
                answers[partition] = None
                planned.setdefault(partition.topic, {})[partition.partition] = after
        for name, assignments in planned.items():
            topic = self._context.topic(name)
            # The largest that it becomes: the replicas of RS, and the lists of added and removed ones.
            too_large = too_large_topic(Topic(name, topic.topic_id, {**topic.partitions, **assignments}))
            if too_large:
                refusal = KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, too_large)
                answers.update({TopicPartition(name, partition): refusal for partition in assignments})
        return answers

    def _check_exists(self, partition: TopicPartition) -> None:
        context = self._context
        if context.is_deleting(partition.topic) or not context.replicas_of(partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        if partition in context.unreadable_partitions:
            raise _unreadable()

    def _plan(
        self, partition: TopicPartition, wanted: tuple[int, ...] | None, live: frozenset[int]
    ) -> ReplicaAssignment:
        context = self._context
        current = context.assignment_of(partition)
        leadership = context.leadership.get(partition)
        involved = (*current.replicas, *(leadership.isr if leadership else ()))
        return reassignment_steps.plan(current, leadership, wanted, live=live, online=self._online(partition, involved))

    def _online(self, partition: TopicPartition, brokers: Iterable[int]) -> frozenset[int]:
        return frozenset(b for b in brokers if self._context.is_online(Replica(*partition, b)))

    async def _begin(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None], *, live: frozenset[int]
    ) -> dict[TopicPartition, KafkaError | None]:
        answers: dict[TopicPartition, KafkaError | None] = dict.fromkeys(wanted)

        def plan(partition: TopicPartition) -> ReplicaAssignment | None:
            # Called again where another writer has changed the ISR: the request may be invalid by now.
            try:
                answers[partition] = None
                return self._plan(partition, wanted[partition], live)
            except KafkaError as error:
                answers[partition] = error
                return None

        vanished = await self._take_steps(list(wanted), plan, announce=True)
        for partition in vanished:
            answers[partition] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        for partition in wanted:
            if partition in self._context.unreadable_partitions:
                answers[partition] = _unreadable()
        return answers

    async def _carry_out(self, partitions: Sequence[TopicPartition], *, announce: bool) -> None:
        context = self._context

        def plan(partition: TopicPartition) -> ReplicaAssignment:
            assignment = context.assignment_of(partition)
            # A partition that never had a leader holds nothing: there is nothing to wait for.
            return assignment if partition in context.leadership else finished(assignment)

        await self._take_steps(partitions, plan, announce=announce)

    async def _take_steps(
        self, partitions: Sequence[TopicPartition], plan: _Plan, *, announce: bool
    ) -> list[TopicPartition]:
        """Takes one step for each partition whose plan is not None.

        Returns:
            The partitions whose topic is gone.
        """
        if not partitions:
            return []
        context = self._context
        steps: dict[TopicPartition, _PartitionStep] = {}

        async def decide(pending: Sequence[TopicPartition]) -> dict[TopicPartition, Election]:
            elections = {}
            for partition in pending:
                steps.pop(partition, None)
                after = plan(partition)
                if after is None:
                    continue
                step = self._next_step(partition, after, announce)
                is_first = partition not in context.leadership
                steps[partition] = _PartitionStep(context.assignment_of(partition), after, step, is_first)
                if step.election is not None:
                    elections[partition] = step.election
            return elections

        batch = RequestBatch()
        await self._elections.elect(partitions, batch, decide=decide)
        for partition in [partition for partition in steps if partition in context.unreadable_partitions]:
            del steps[partition]  # what was decided has not been written
        vanished: list[TopicPartition] = []
        # Also for a reassignment that ends at once: the brokers are about to get it, and the next controller has to
        # know that it must continue. In an epoch that the leader already has, that controller could give it no new
        # replicas.
        begun = {p: one.after for p, one in steps.items() if one.after != one.before}
        vanished += await self._write(begun)
        ended = {p: one.settled for p, one in steps.items() if one.is_end and one.settled != one.after}
        for partition in sorted(steps):
            if partition not in vanished:
                self._apply(partition, steps[partition], batch)
        await self._send(batch)
        vanished += await self._write(ended)
        await self._forget_requests(p for p, one in steps.items() if not is_ongoing(one.settled))
        return vanished

    def _next_step(self, partition: TopicPartition, after: ReplicaAssignment, announce: bool) -> ReassignmentStep:
        context = self._context
        current = context.leadership.get(partition)
        if current is None:
            initial = decide_initial_leader(after.replicas, self._online(partition, after.replicas), context.epoch)
            return ReassignmentStep(ReassignmentPhase.DONE, "the partition never had a leader", initial)
        online = self._online(partition, (*after.replicas, *current.isr))
        # A broker that shuts down becomes leader only where no other one can.
        staying = online - context.shutting_down
        if staying.intersection(current.isr):
            online = staying
        return reassignment_steps.next_step(after, current, online, announce=announce)

    def _apply(self, partition: TopicPartition, change: _PartitionStep, batch: RequestBatch) -> None:
        """Puts the new assignment into the context, and the requests for it into the batch."""
        context = self._context
        if change.step.election is None and change.after == change.before and not change.is_end:
            return
        logger.info(
            "reassignment of %s from %s to %s, %s: %s",
            partition,
            list(reassignment_steps.original(change.before)),
            list(reassignment_steps.target(change.after)),
            change.step.phase.value,
            change.step.reason,
        )
        settled = change.settled
        context.set_assignment(partition, settled)
        for broker in settled.replicas:
            replica = Replica(*partition, broker)
            self._removed.pop(replica, None)
            is_new = change.is_first or context.is_new_replica(replica)
            if broker not in change.before.replicas:
                context.move_replica(replica, ReplicaState.NEW)
                context.move_replica(
                    replica, ReplicaState.ONLINE if context.is_online(replica) else ReplicaState.OFFLINE
                )
            if context.is_online(replica):
                batch.add_leader_and_isr([broker], partition, is_new=is_new)
        for broker in change.removed:
            replica = Replica(*partition, broker)
            context.forget_replica(replica)
            self._removed[replica] = None
            batch.add_stop_replica(replica, delete=True)
        if partition in context.leadership:
            offline = context.is_leader_offline(partition)
            context.move_partition(partition, PartitionState.OFFLINE if offline else PartitionState.ONLINE)
        batch.add_metadata(context.brokers, [partition])

    async def _write(self, changes: Mapping[TopicPartition, ReplicaAssignment]) -> list[TopicPartition]:
        """Writes the topics' znodes.

        Returns:
            The partitions whose topic is gone.
        """
        by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
        for partition, assignment in sorted(changes.items()):
            by_topic.setdefault(partition.topic, {})[partition.partition] = assignment
        vanished = []
        for topic, assignments in by_topic.items():
            if not await self._store.write_assignments(topic, assignments):
                vanished += [TopicPartition(topic, index) for index in assignments]
        return vanished

    async def _forget_requests(self, partitions: Iterable[TopicPartition]) -> None:
        """Removes partitions from /admin/reassign_partitions, and the node with the last one."""
        gone = [partition for partition in partitions if partition in self._asked]
        if gone:
            self._asked = await self._store.forget_reassignment_requests(gone)


def _unreadable() -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The partition's state cannot be read.")
