"""Elects leaders: decides for each partition, writes the state znodes and adds the result to a batch of requests.

Every act that changes leaderships goes through `LeaderElections.elect`, each with its own rule: the one for brokers and
log directories that went offline or came back stands here, the others come from their acts. Not here: the rules
themselves (`decisions.leader_election` and its neighbours), sending the batch.

A state znode that another writer has changed meanwhile (a leader of an older protocol, or this controller where the
answer to its write was lost) is read again and decided again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from ottla_broker.config.inter_broker import InterBrokerVersions
from ottla_broker.controller.control_requests import RequestBatch
from ottla_broker.controller.controller_epoch_parts import ControllerEpochParts
from ottla_broker.controller.decisions.leader_election import Election, decide_initial_leader, decide_leader
from ottla_broker.controller.partition_states import PartitionState
from ottla_broker.controller.store import ControllerFenced, StateConflict
from ottla_broker.controller.values import LeaderAndIsr
from ottla_broker.metrics import Counter
from ottla_broker.records.ids import TopicPartition

logger = logging.getLogger("ottla.controller")

ELECTIONS_PER_TURN: Final = 500
"""Partitions decided and written together: the event loop does other work after each so many."""

READ_PER_TURN: Final = 1000
"""States read, and decoded in one piece, at a time."""

LOGGED_ELECTIONS: Final = 100
"""Where one act elects more leaders, the log has their number, and one line for each only at level DEBUG."""

DecideElections = Callable[[Sequence[TopicPartition]], Awaitable[dict[TopicPartition, Election]]]
"""A rule: the leaderships to write, for those of the partitions where something changes."""


class LeaderElections:
    """Writes the leaderships of one controller epoch.

    Raises ControllerFenced from each method once another broker has become the controller.
    """

    def __init__(
        self,
        *,
        parts: ControllerEpochParts,
        versions: InterBrokerVersions,
        unclean_elections: Counter,
    ) -> None:
        self._context = parts.context
        self._store = parts.store
        self._clock = parts.clock
        self._config = parts.config
        self._versions = versions
        self._unclean_elections = unclean_elections

    async def read_leadership(self, partitions: Sequence[TopicPartition]) -> None:
        """Brings the context up to date with the state znodes of these partitions.

        Raises:
            ControllerFenced: a later controller has written one of them.
        """
        for start in range(0, len(partitions), READ_PER_TURN):
            await self._read_some(partitions[start : start + READ_PER_TURN])

    async def _read_some(self, partitions: Sequence[TopicPartition]) -> None:
        context = self._context
        found = await self._store.leadership(partitions)
        for partition in partitions:
            context.unreadable_partitions.discard(partition)
            leadership = found.get(partition)
            if leadership is None:
                context.leadership.pop(partition, None)
                if partition in found:
                    context.unreadable_partitions.add(partition)
                continue
            if leadership.controller_epoch > context.epoch:
                raise ControllerFenced(f"{partition} was written by controller epoch {leadership.controller_epoch}")
            context.leadership[partition] = leadership

    async def elect(
        self,
        partitions: Iterable[TopicPartition],
        batch: RequestBatch,
        *,
        is_new: bool = False,
        decide: DecideElections | None = None,
    ) -> None:
        """Decides for each partition, writes what changes, and adds the requests for it to the batch.

        Args:
            is_new: the partitions have just been created.
            decide: the rule; by default the one for brokers that went offline or came back. It is asked again for
                partitions whose state znode another writer has changed.
        """
        context = self._context
        wanted = sorted(
            {p for p in partitions if not context.is_deleting(p.topic) and p not in context.unreadable_partitions}
        )
        written = 0
        for start in range(0, len(wanted), ELECTIONS_PER_TURN):
            some = wanted[start : start + ELECTIONS_PER_TURN]
            is_logged = len(wanted) <= LOGGED_ELECTIONS
            written += await self._elect_some(
                some, batch, is_new=is_new, decide=decide or self._decide, is_logged=is_logged
            )
            # Also when there was nothing to write: the loop has other work, and heartbeats to send.
            await self._clock.sleep(0)
        if written > LOGGED_ELECTIONS:
            logger.info("%d partitions of %d have new leaderships", written, len(wanted))

    async def _elect_some(
        self,
        pending: list[TopicPartition],
        batch: RequestBatch,
        *,
        is_new: bool,
        decide: DecideElections,
        is_logged: bool,
    ) -> int:
        """The number of leaderships written."""
        context = self._context
        count = 0
        while pending:
            elections = await decide(pending)
            new = frozenset(partition for partition in elections if partition not in context.leadership)
            leaderships = {
                partition: context.with_leader_incarnation(election.leadership)
                for partition, election in elections.items()
            }
            if not self._versions.has_leader_recovery:
                leaderships = {partition: found.recovered() for partition, found in leaderships.items()}
            written = await self._store.write_leadership(leaderships, context.epoch, new=new)
            conflicts: dict[TopicPartition, StateConflict] = {}
            for partition, outcome in written.items():
                if isinstance(outcome, StateConflict):
                    logger.info("%s: decided again, %s", partition, outcome.reason)
                    conflicts[partition] = outcome
                    continue
                context.leadership[partition] = outcome
                count += 1
                self._log_election(partition, elections[partition], outcome, is_logged)
                self._add_to(batch, partition, is_new=is_new or partition in new)
            self._update_partition_states(partition for partition in pending if partition not in conflicts)
            pending = await self._read_conflicts(conflicts, new, batch) if conflicts else []
        return count

    def _add_to(self, batch: RequestBatch, partition: TopicPartition, *, is_new: bool) -> None:
        batch.add_leader_and_isr(self._context.online_brokers(partition), partition, is_new=is_new)
        batch.add_metadata(self._context.brokers, [partition])

    async def _read_conflicts(
        self, conflicts: Mapping[TopicPartition, StateConflict], new: frozenset[TopicPartition], batch: RequestBatch
    ) -> list[TopicPartition]:
        """Reads the states that were not as expected.

        Returns:
            The partitions to decide again.
        """
        context = self._context
        await self.read_leadership(sorted(conflicts))
        again = []
        for partition in sorted(conflicts):
            if partition in context.unreadable_partitions:
                continue
            if partition in context.leadership:
                # A new one was written by this controller: no broker has it yet.
                self._add_to(batch, partition, is_new=partition in new)
            elif partition in new:
                if conflicts[partition].is_gone:
                    # Another program has removed the topic; the watch on the topics fires.
                    continue
                await self._store.repair_partition_node(partition)
            again.append(partition)
        return again

    async def _decide(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Election]:
        """The rule for brokers and log directories that went offline or came back."""
        context = self._context
        unclean: dict[str, bool] = {}
        elections: dict[TopicPartition, Election] = {}
        for partition in partitions:
            replicas, online = context.replicas_of(partition), context.electable_brokers(partition)
            current = context.leadership.get(partition)
            if current is None:
                election = decide_initial_leader(replicas, online, context.epoch)
            else:
                if online and not online.intersection(current.isr) and partition.topic not in unclean:
                    unclean[partition.topic] = await self._is_unclean_election_enabled(partition.topic)
                election = decide_leader(
                    replicas,
                    current,
                    online=online,
                    unclean=unclean.get(partition.topic, False),
                    adding=context.assignment_of(partition).adding,
                    has_leader_restarted=context.has_leader_restarted(partition),
                )
            if election is not None:
                elections[partition] = election
        return elections

    async def _is_unclean_election_enabled(self, topic: str) -> bool:
        return self._config.topic_config(await self._store.topic_config(topic)).unclean_leader_election_enable

    def _log_election(
        self, partition: TopicPartition, election: Election, written: LeaderAndIsr, is_logged: bool
    ) -> None:
        level = logging.INFO if is_logged else logging.DEBUG
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

    def _update_partition_states(self, partitions: Iterable[TopicPartition]) -> None:
        context = self._context
        for partition in partitions:
            if partition in context.leadership:
                offline = context.is_leader_offline(partition)
                context.move_partition(partition, PartitionState.OFFLINE if offline else PartitionState.ONLINE)
