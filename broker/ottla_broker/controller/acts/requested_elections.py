"""Elects leaders on request: ElectLeaders (KIP-460), the znode of older tools, a topic that allows unclean elections.

Not here: the rules (`decisions.leader_election`), elections after a broker or a log directory went offline or came back
(`broker_changes`), the periodic ones (`leader_rebalance`), the request on the wire (`server.handlers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ottla_broker.controller.acts.leader_elections import LeaderElections
from ottla_broker.controller.acts.metadata_waits import MetadataWaits
from ottla_broker.controller.control_requests import RequestBatch
from ottla_broker.controller.controller_epoch_parts import ControllerEpochParts
from ottla_broker.controller.decisions.leader_election import (
    Election,
    ElectionDecision,
    decide_preferred_election,
    decide_unclean_election,
)
from ottla_broker.controller.values import LeaderAndIsr
from ottla_broker.coordination import znodes
from ottla_broker.ports.coordination import Watcher
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition

logger = logging.getLogger("ottla.controller")

ASKED_PER_TURN: Final = 100
"""Partitions of a request; after so many the loop does other work."""


class ElectionType(IntEnum):
    """`ElectionType` of ElectLeaders v1+."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(slots=True)
class ElectionResult:
    """The result for one partition of an ElectLeaders."""

    partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    done: asyncio.Future[None] | None = None
    """Completes when the controller's broker has the new leader in its metadata. The partitions of a topic share it;
    None when there is nothing to wait for."""


class RequestedElections:
    """The requested elections of one controller epoch.

    Args:
        send: sends a batch to the brokers.
        progress_reassignments: called with the partitions whose ISR may have changed.
        znode_watcher: called when /admin/preferred_replica_election comes or goes.
    """

    def __init__(
        self,
        *,
        parts: ControllerEpochParts,
        elections: LeaderElections,
        send: Callable[[RequestBatch], Awaitable[object]],
        waits: MetadataWaits,
        progress_reassignments: Callable[[Iterable[TopicPartition]], Awaitable[None]],
        znode_watcher: Watcher,
    ) -> None:
        self._context = parts.context
        self._store = parts.store
        self._clock = parts.clock
        self._elections = elections
        self._send = send
        self._waits = waits
        self._progress_reassignments = progress_reassignments
        self._znode_watcher = znode_watcher

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, election_type: ElectionType
    ) -> list[ElectionResult]:
        """One result per partition, sorted. None asks for all partitions; those that need no election are left out."""
        context = self._context
        asked = sorted(context.partitions() if partitions is None else frozenset(partitions))
        results: dict[TopicPartition, ElectionResult] = {}
        electable = []
        for number, partition in enumerate(asked, 1):
            if number % ASKED_PER_TURN == 0:
                await self._clock.sleep(0)
            if not context.replicas_of(partition):
                results[partition] = ElectionResult(
                    partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
                )
            elif context.is_deleting(partition.topic):
                results[partition] = ElectionResult(
                    partition, ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted."
                )
            else:
                electable.append(partition)
        decisions = await self.elect(electable, election_type)
        waits: dict[str, asyncio.Future[None]] = {}
        for number, partition in enumerate(electable, 1):
            if number % ASKED_PER_TURN == 0:
                await self._clock.sleep(0)
            decision = decisions[partition]
            if decision.error is not ErrorCode.NONE:
                results[partition] = ElectionResult(partition, decision.error, decision.reason)
                continue
            if partition.topic not in waits:
                waits[partition.topic] = self._clock.create_future()
                self._waits.add(partition.topic, lambda: True, waits[partition.topic])
            results[partition] = ElectionResult(partition, done=waits[partition.topic])
        answers = []
        for number, partition in enumerate(asked, 1):
            if number % ASKED_PER_TURN == 0:
                await self._clock.sleep(0)
            if partitions is not None or results[partition].error is not ErrorCode.ELECTION_NOT_NEEDED:
                answers.append(results[partition])
        return answers

    async def elect(
        self, partitions: Sequence[TopicPartition], election_type: ElectionType
    ) -> dict[TopicPartition, ElectionDecision]:
        """Decides each partition, writes the new leaderships and sends them to the brokers.

        Returns:
            The decision for each partition.
        """
        context = self._context
        decisions: dict[TopicPartition, ElectionDecision] = {}

        async def decide(pending: Sequence[TopicPartition]) -> dict[TopicPartition, Election]:
            elections = {}
            for partition in pending:
                before, decision = decisions.get(partition), self._decide(partition, election_type)
                if _is_written(before, decision, context.leadership.get(partition)):
                    continue
                decisions[partition] = decision
                if decision.election is not None:
                    elections[partition] = decision.election
            return elections

        batch = RequestBatch()
        await self._elections.elect(partitions, batch, decide=decide)
        await self._send(batch)
        for partition in partitions:
            if partition not in decisions or partition in context.unreadable_partitions:
                decisions[partition] = ElectionDecision(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{znodes.PartitionStateZnode.path(*partition)} cannot be read; the controller's log says why",
                )
        # The ISR of an unclean election may be the target of a reassignment.
        await self._progress_reassignments(partitions)
        return decisions

    def _decide(self, partition: TopicPartition, election_type: ElectionType) -> ElectionDecision:
        context = self._context
        assignment, current = context.assignment_of(partition), context.leadership.get(partition)
        online = context.electable_brokers(partition)
        if election_type is ElectionType.PREFERRED:
            return decide_preferred_election(assignment.replicas, current, online=online)
        return decide_unclean_election(assignment.replicas, current, online=online, adding=assignment.adding)

    async def read_znode(self) -> None:
        """Carries out /admin/preferred_replica_election, which tools older than Kafka 2.4 write, and deletes it.

        The deletion is the tool's answer. What could not be elected is in the log.
        """
        context = self._context
        partitions = await self._store.preferred_elections(self._znode_watcher)
        if partitions is None:
            return
        known = [p for p in partitions if context.replicas_of(p) and not context.is_deleting(p.topic)]
        for partition in partitions:
            if partition not in known:
                logger.warning("preferred election of %s: no such partition, or its topic is being deleted", partition)
        _log_refusals("preferred", await self.elect(known, ElectionType.PREFERRED))
        await self._store.delete_nodes([znodes.PREFERRED_REPLICA_ELECTION])

    async def unclean_election_enabled(self, topic: str | None) -> None:
        """Elects where a leader is missing: unclean.leader.election.enable is now true for a topic, or for all (None).

        The rule reads each topic's own configuration, so a topic with the value false is left alone.
        """
        context = self._context
        partitions = context.partitions() if topic is None else context.partitions_of(topic)
        leaderless = [partition for partition in partitions if context.is_leader_offline(partition)]
        if leaderless:
            batch = RequestBatch()
            await self._elections.elect(leaderless, batch)
            await self._send(batch)
            await self._progress_reassignments(leaderless)


def _is_written(before: ElectionDecision | None, again: ElectionDecision, current: LeaderAndIsr | None) -> bool:
    """True for an election whose write succeeded although its answer was lost: decided again it looks not needed, and
    the client must not get that error."""
    return (
        before is not None
        and before.election is not None
        and again.error is ErrorCode.ELECTION_NOT_NEEDED
        and current is not None
        and current.leader == before.election.leadership.leader
    )


def _log_refusals(kind: str, decisions: Mapping[TopicPartition, ElectionDecision]) -> None:
    for partition in sorted(decisions):
        decision = decisions[partition]
        if decision.error is not ErrorCode.NONE:
            logger.warning("%s election of %s: %s", kind, partition, decision.reason)
