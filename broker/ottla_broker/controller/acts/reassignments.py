"""Reassignments of one term of office: asked for, gone on with, ended (KIP-455).

Acts of the active controller, each one event or a part of one; `reassignment` decides. Not here: the requests on the
wire (`server.handlers`), the order of events (`controller`), throttles (the replicas keep those: `replication.quotas`).

Where the truth stands. `adding_replicas` and `removing_replicas` of the topic's znode say what is being reassigned,
the ISR of the state znode how far it is; nothing else is remembered, so a controller that takes office goes on from
these two. `/admin/reassign_partitions` is only another way to ask (tools before KIP-455 write it): an entry begins a
reassignment and leaves the node when that has ended or something newer has replaced it.

The order of writes. When a reassignment begins or is cancelled: state, topic, brokers. The state is written first
since it alone is conditional on an ISR that nobody has changed; a crash behind it has changed an epoch and no more.
When it ends: state, brokers, topic. A crash before the last has the next controller do it again.

Replicas that have to go are told by StopReplica. One whose broker is not alive, or cannot delete, is told again when
it registers or its log directories change, for as long as this term lasts; after a change of controller our brokers
hear from a full LeaderAndIsr what they should not have, or find it out when a directory is back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla_broker.controller.control_requests import RequestBatch
from ottla_broker.controller.decisions import reassignment_steps as reassignment
from ottla_broker.controller.decisions.capacity import Capacity
from ottla_broker.controller.decisions.leader_election import Election, decide_initial
from ottla_broker.controller.decisions.reassignment_steps import Phase, Step, finished, is_ongoing
from ottla_broker.controller.partition_states import PartitionState
from ottla_broker.controller.replica_states import ReplicaState
from ottla_broker.controller.store import too_large_topic
from ottla_broker.controller.values import Replica, ReplicaAssignment, Topic
from ottla_broker.ports.coordination import Watcher
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition

if TYPE_CHECKING:
    from ottla_broker.controller.active import ActiveController

logger = logging.getLogger("ottla.controller")

_Plan = Callable[[TopicPartition], ReplicaAssignment | None]
"""The assignment that a partition is to have from now on, None to leave it alone. Asked anew after a conflict."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """What was decided about one partition: its assignment from now on, and the step it is at."""

    before: ReplicaAssignment
    after: ReplicaAssignment
    step: Step
    is_first: bool
    """The partition has never been led."""

    @property
    def is_end(self) -> bool:
        return self.step.phase is Phase.END

    @property
    def settled(self) -> ReplicaAssignment:
        """The assignment once the turn has been carried out."""
        return finished(self.after) if self.is_end else self.after

    @property
    def leaving(self) -> tuple[int, ...]:
        """The replicas that are to be deleted with this turn."""
        return reassignment.unneeded(self.before, self.settled)


class Reassignments:
    """See the module."""

    def __init__(self, active: ActiveController, watcher: Watcher) -> None:
        """`watcher` is called when /admin/reassign_partitions changes."""
        self._active = active
        self._watcher = watcher
        self._leaving: dict[Replica, None] = {}
        """Replicas that were told to go, or will be when their broker lives, and have not said that they are gone."""
        self._asked: Mapping[TopicPartition, tuple[int, ...]] = {}
        """What /admin/reassign_partitions held when it was last read."""

    # What clients ask

    async def alter(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> dict[TopicPartition, KafkaError | None]:
        """AlterPartitionReassignments: a target for each partition, None cancels. An error for each that is refused.

        The errors, in this order: those of `reassignment.plan`, UNKNOWN_TOPIC_OR_PARTITION (also of a topic that is
        being deleted), UNKNOWN_SERVER_ERROR (its state cannot be read), INVALID_REPLICA_ASSIGNMENT (the topic with all
        that is asked of it would be larger than a znode; a broker would hold more replicas than it may).
        """
        live = frozenset(self._active.context.brokers) - self._active.context.shutting_down
        answers = self._check(wanted, live=live)
        accepted = {partition: wanted[partition] for partition, error in answers.items() if error is None}
        # The latest request counts, wherever it came from.
        await self._forget_requests(accepted)
        answers.update(await self._begin(accepted, live=live))
        for partition, error in answers.items():
            if error is not None:
                logger.info("%s is not reassigned (%s): %s", partition, error.code.name, error.message)
        return answers

    def ongoing(self, asked: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, ReplicaAssignment]:
        """What is being reassigned, of all partitions or of those asked for."""
        context = self._active.context
        found = {}
        for partition in context.partitions() if asked is None else sorted(set(asked)):
            assignment = context.assignment_of(partition)
            if is_ongoing(assignment) and not context.is_deleting(partition.topic):
                found[partition] = assignment
        return found

    def is_learner(self, replica: Replica) -> bool:
        """Whether the replica is being added and holds nothing yet that counts: it may be made anew anywhere."""
        context = self._active.context
        partition = replica.topic_partition
        if replica.broker not in context.assignment_of(partition).adding:
            return False
        leadership = context.leadership.get(partition)
        return leadership is not None and replica.broker not in leadership.isr

    # Events

    async def take_office(self) -> None:
        """Goes on with what the controllers before have begun; whether they had told the leaders is not known."""
        await self._carry_out(list(self.ongoing()), announce=True)
        await self.requests_changed()

    async def requests_changed(self) -> None:
        """/admin/reassign_partitions has changed."""
        context = self._active.context
        self._asked = await self._active.store.reassignment_requests(self._watcher)
        # A broker that is not alive may come: tools before KIP-455 wait for it.
        every_broker = frozenset(broker for replicas in self._asked.values() for broker in replicas)
        wanted: dict[TopicPartition, tuple[int, ...] | None] = {}
        for partition, replicas in self._asked.items():
            current = context.assignment_of(partition)
            if not (is_ongoing(current) and reassignment.target(current) == replicas):
                wanted[partition] = replicas
        answers = self._check(wanted, live=every_broker)
        accepted = {partition: wanted[partition] for partition, error in answers.items() if error is None}
        answers.update(await self._begin(accepted, live=every_broker))
        refused = {partition: error for partition, error in answers.items() if error is not None}
        for partition, error in refused.items():
            logger.warning("/admin/reassign_partitions: %s is left out: %s", partition, error.message)
        await self._forget_requests(refused)

    async def progress(self, partitions: Iterable[TopicPartition]) -> None:
        """The ISR of these partitions, or which of their replicas are online, has changed."""
        moving = [partition for partition in partitions if is_ongoing(self._active.context.assignment_of(partition))]
        if moving:
            await self._carry_out(sorted(set(moving)), announce=False)

    async def replicas_came(self, brokers: Collection[int]) -> None:
        """Brokers have registered, or log directories of theirs work again."""
        self.tell_leaving(brokers)
        await self.progress(
            [
                partition
                for partition, assignment in self.ongoing().items()
                if any(broker in brokers for broker in assignment.replicas)
            ]
        )

    def tell_leaving(self, brokers: Collection[int]) -> None:
        """Tells these brokers once more which of their replicas have to go. What has moved away has no state among the
        broker's replicas: nothing but an event of its directories says that it may be deleted by now."""
        context = self._active.context
        batch = RequestBatch()
        for replica in sorted(self._leaving):
            if replica.broker not in brokers:
                continue
            if replica.broker in context.replicas_of(replica.topic_partition):
                del self._leaving[replica]
            else:
                batch.stop(replica, delete=True)
        self._active.send(batch)

    def stop_answered(
        self, broker: int, deleted: Iterable[TopicPartition], errors: Mapping[TopicPartition, int]
    ) -> None:
        """A broker's answer to StopReplica with deletion."""
        for partition in deleted:
            replica = Replica(*partition, broker)
            if replica not in self._leaving:
                continue
            error = errors.get(partition, ErrorCode.NONE)
            if error == ErrorCode.NONE:
                del self._leaving[replica]
            else:
                logger.warning(
                    "broker %d could not delete %s, which has moved away: error %d", broker, partition, error
                )

    async def topics_gone(self) -> None:
        """Topics have been removed: nobody waits for their reassignment."""
        await self._forget_requests(
            partition for partition in self._asked if not self._active.context.has_topic(partition.topic)
        )

    # Deciding and carrying out

    def _check(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None], *, live: frozenset[int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """An error, or None, for each partition, in their order."""
        answers: dict[TopicPartition, KafkaError | None] = {}
        planned: dict[str, dict[int, ReplicaAssignment]] = {}
        capacity = Capacity(self._active.context)
        for partition, replicas in sorted(wanted.items()):
            try:
                after = self._plan(partition, replicas, live)
                self._check_exists(partition)
                present = self._active.context.replicas_of(partition)
                coming = [broker for broker in after.replicas if broker not in present]
                capacity.take(f"The reassignment of {partition}", coming, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
            except KafkaError as error:
                answers[partition] = error
            else:
                answers[partition] = None
                planned.setdefault(partition.topic, {})[partition.partition] = after
        for name, assignments in planned.items():
            topic = self._active.context.topic(name)
            # The largest that it becomes: the replicas of RS, and the lists of those that come and go.
            too_large = too_large_topic(Topic(name, topic.topic_id, {**topic.partitions, **assignments}))
            if too_large:
                refusal = KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, too_large)
                answers.update({TopicPartition(name, partition): refusal for partition in assignments})
        return answers

    def _check_exists(self, partition: TopicPartition) -> None:
        context = self._active.context
        if context.is_deleting(partition.topic) or not context.replicas_of(partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        if partition in context.unreadable:
            raise _unreadable()

    def _plan(
        self, partition: TopicPartition, wanted: tuple[int, ...] | None, live: frozenset[int]
    ) -> ReplicaAssignment:
        context = self._active.context
        current = context.assignment_of(partition)
        leadership = context.leadership.get(partition)
        involved = (*current.replicas, *(leadership.isr if leadership else ()))
        return reassignment.plan(current, leadership, wanted, live=live, online=self._online(partition, involved))

    def _online(self, partition: TopicPartition, brokers: Iterable[int]) -> frozenset[int]:
        return frozenset(b for b in brokers if self._active.context.is_online(Replica(*partition, b)))

    async def _begin(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None], *, live: frozenset[int]
    ) -> dict[TopicPartition, KafkaError | None]:
        answers: dict[TopicPartition, KafkaError | None] = dict.fromkeys(wanted)

        def plan(partition: TopicPartition) -> ReplicaAssignment | None:
            # Asked again when the ISR turns out to be another one: what was allowed may be so no more.
            try:
                answers[partition] = None
                return self._plan(partition, wanted[partition], live)
            except KafkaError as error:
                answers[partition] = error
                return None

        vanished = await self._take_turns(list(wanted), plan, announce=True)
        for partition in vanished:
            answers[partition] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        for partition in wanted:
            if partition in self._active.context.unreadable:
                answers[partition] = _unreadable()
        return answers

    async def _carry_out(self, partitions: Sequence[TopicPartition], *, announce: bool) -> None:
        context = self._active.context

        def plan(partition: TopicPartition) -> ReplicaAssignment:
            assignment = context.assignment_of(partition)
            # What was never led holds nothing: there is nothing to wait for.
            return assignment if partition in context.leadership else finished(assignment)

        await self._take_turns(partitions, plan, announce=announce)

    async def _take_turns(
        self, partitions: Sequence[TopicPartition], plan: _Plan, *, announce: bool
    ) -> list[TopicPartition]:
        """One step for each partition whose plan is not None; gives those whose topic is gone."""
        if not partitions:
            return []
        active, context = self._active, self._active.context
        turns: dict[TopicPartition, _Turn] = {}

        async def decide(pending: Sequence[TopicPartition]) -> dict[TopicPartition, Election]:
            elections = {}
            for partition in pending:
                turns.pop(partition, None)
                after = plan(partition)
                if after is None:
                    continue
                step = self._step(partition, after, announce)
                is_first = partition not in context.leadership
                turns[partition] = _Turn(context.assignment_of(partition), after, step, is_first)
                if step.election is not None:
                    elections[partition] = step.election
            return elections

        batch = RequestBatch()
        await active.elect(partitions, batch, decide=decide)
        for partition in [partition for partition in turns if partition in context.unreadable]:
            del turns[partition]  # what was decided has not been written
        vanished: list[TopicPartition] = []
        # Also of what ends at once: the brokers are about to hear of it, and the next controller has to know that it is
        # to go on. It would tell a leader nothing new of replicas in an epoch that the leader has heard of already.
        begun = {p: turn.after for p, turn in turns.items() if turn.after != turn.before}
        vanished += await self._write(begun)
        ended = {p: turn.settled for p, turn in turns.items() if turn.is_end and turn.settled != turn.after}
        for partition in sorted(turns):
            if partition not in vanished:
                self._change(partition, turns[partition], batch)
        active.send(batch)
        vanished += await self._write(ended)
        await self._forget_requests(p for p, turn in turns.items() if not is_ongoing(turn.settled))
        return vanished

    def _step(self, partition: TopicPartition, after: ReplicaAssignment, announce: bool) -> Step:
        context = self._active.context
        current = context.leadership.get(partition)
        if current is None:
            initial = decide_initial(after.replicas, self._online(partition, after.replicas), context.epoch)
            return Step(Phase.DONE, "the partition has never been led", initial)
        online = self._online(partition, (*after.replicas, *current.isr))
        # Nobody is made leader who is about to leave, but for want of anybody else.
        staying = online - context.shutting_down
        if staying.intersection(current.isr):
            online = staying
        return reassignment.next_step(after, current, online, announce=announce)

    def _change(self, partition: TopicPartition, turn: _Turn, batch: RequestBatch) -> None:
        """Takes the new assignment into the context, and tells the replicas that come, stay and go."""
        context = self._active.context
        if turn.step.election is None and turn.after == turn.before and not turn.is_end:
            return
        logger.info(
            "reassignment of %s from %s to %s, %s: %s",
            partition,
            list(reassignment.original(turn.before)),
            list(reassignment.target(turn.after)),
            turn.step.phase.value,
            turn.step.reason,
        )
        settled = turn.settled
        context.set_assignment(partition, settled)
        for broker in settled.replicas:
            replica = Replica(*partition, broker)
            self._leaving.pop(replica, None)
            is_new = turn.is_first or self.is_learner(replica)
            if broker not in turn.before.replicas:
                context.move_replica(replica, ReplicaState.NEW)
                context.move_replica(
                    replica, ReplicaState.ONLINE if context.is_online(replica) else ReplicaState.OFFLINE
                )
            if context.is_online(replica):
                batch.tell_leadership([broker], partition, is_new=is_new)
        for broker in turn.leaving:
            replica = Replica(*partition, broker)
            context.forget_replica(replica)
            self._leaving[replica] = None
            batch.stop(replica, delete=True)
        if partition in context.leadership:
            offline = context.leads_nobody_online(partition)
            context.move_partition(partition, PartitionState.OFFLINE if offline else PartitionState.ONLINE)
        batch.tell_metadata(context.brokers, [partition])

    async def _write(self, changes: Mapping[TopicPartition, ReplicaAssignment]) -> list[TopicPartition]:
        """Writes the topics' znodes; gives the partitions whose topic is gone."""
        by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
        for partition, assignment in sorted(changes.items()):
            by_topic.setdefault(partition.topic, {})[partition.partition] = assignment
        vanished = []
        for topic, assignments in by_topic.items():
            if not await self._active.store.write_assignments(topic, assignments):
                vanished += [TopicPartition(topic, index) for index in assignments]
        return vanished

    async def _forget_requests(self, partitions: Iterable[TopicPartition]) -> None:
        """Takes partitions out of /admin/reassign_partitions, whose last one takes the node with it."""
        gone = [partition for partition in partitions if partition in self._asked]
        if gone:
            self._asked = await self._active.store.forget_reassignment_requests(gone)


def _unreadable() -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The partition's state cannot be read.")
