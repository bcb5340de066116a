"""Elections that somebody asks for: ElectLeaders (KIP-460), the znode of older tools, a topic that may elect uncleanly.

Acts of the active controller, one event each; `elections` judges. Not here: elections after a broker or a directory
went or came (`active`), the ones by the clock (`preferred_balance`), the request on the wire (`server.handlers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from ottla_broker.controller.control_requests import RequestBatch
from ottla_broker.controller.decisions.leader_election import Election, Verdict, judge_preferred, judge_unclean
from ottla_broker.controller.values import LeaderAndIsr
from ottla_broker.coordination import znodes
from ottla_broker.ports.clock import Clock
from ottla_broker.ports.coordination import Watcher
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition

if TYPE_CHECKING:
    from ottla_broker.controller.active import ActiveController

logger = logging.getLogger("ottla.controller")


class ElectionType(IntEnum):
    """`ElectionType` of ElectLeaders v1+."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(slots=True)
class ElectionResult:
    """What became of one partition of a request."""

    partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    done: asyncio.Future[None] | None = None
    """Completes when the controller's broker knows the new leader; shared by the partitions of a topic, None when
    there is nothing to wait for."""


async def elect_leaders(
    active: ActiveController, partitions: Iterable[TopicPartition] | None, election_type: ElectionType, *, clock: Clock
) -> list[ElectionResult]:
    """One result per partition, sorted; None asks for all, and those that need no election are then left out."""
    context = active.context
    asked = sorted(context.partitions() if partitions is None else frozenset(partitions))
    results: dict[TopicPartition, ElectionResult] = {}
    electable = []
    for partition in asked:
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
    verdicts = await hold_elections(active, electable, election_type)
    waits: dict[str, asyncio.Future[None]] = {}
    for partition in electable:
        verdict = verdicts[partition]
        if verdict.error is not ErrorCode.NONE:
            results[partition] = ElectionResult(partition, verdict.error, verdict.reason)
            continue
        if partition.topic not in waits:
            waits[partition.topic] = clock.create_future()
            active.waits.add(partition.topic, lambda: True, waits[partition.topic])
        results[partition] = ElectionResult(partition, done=waits[partition.topic])
    return [
        results[partition]
        for partition in asked
        if partitions is not None or results[partition].error is not ErrorCode.ELECTION_NOT_NEEDED
    ]


async def hold_elections(
    active: ActiveController, partitions: Sequence[TopicPartition], election_type: ElectionType
) -> dict[TopicPartition, Verdict]:
    """Judges each partition, writes and tells what follows; the verdict on each of them."""
    context = active.context
    verdicts: dict[TopicPartition, Verdict] = {}

    def judge(partition: TopicPartition) -> Verdict:
        assignment, current = context.assignment_of(partition), context.leadership.get(partition)
        online = context.electable_brokers(partition)
        if election_type is ElectionType.PREFERRED:
            return judge_preferred(assignment.replicas, current, online=online)
        return judge_unclean(assignment.replicas, current, online=online, adding=assignment.adding)

    async def decide(pending: Sequence[TopicPartition]) -> dict[TopicPartition, Election]:
        elections = {}
        for partition in pending:
            before, verdict = verdicts.get(partition), judge(partition)
            if _is_held(before, verdict, context.leadership.get(partition)):
                continue
            verdicts[partition] = verdict
            if verdict.election is not None:
                elections[partition] = verdict.election
        return elections

    batch = RequestBatch()
    await active.elect(partitions, batch, decide=decide)
    active.send(batch)
    for partition in partitions:
        if partition not in verdicts or partition in context.unreadable:
            verdicts[partition] = Verdict(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{znodes.PartitionState.path(*partition)} cannot be read; the controller's log says why",
            )
    # The ISR of an unclean election may be the target of a reassignment.
    await active.reassignments.progress(partitions)
    return verdicts


def _is_held(before: Verdict | None, again: Verdict, current: LeaderAndIsr | None) -> bool:
    """Whether an election that is judged again has been held: the answer to its write was lost, and whoever asked for
    it is not to hear that there was no need."""
    return (
        before is not None
        and before.election is not None
        and again.error is ErrorCode.ELECTION_NOT_NEEDED
        and current is not None
        and current.leader == before.election.leadership.leader
    )


async def requested_by_znode(active: ActiveController, watcher: Watcher) -> None:
    """/admin/preferred_replica_election, as tools before Kafka 2.4 write it: elections, then the node goes.

    Whoever wrote it takes the node's end as the answer; what could not be elected is in the log.
    """
    context = active.context
    partitions = await active.store.preferred_elections(watcher)
    if partitions is None:
        return
    known = [p for p in partitions if context.replicas_of(p) and not context.is_deleting(p.topic)]
    for partition in partitions:
        if partition not in known:
            logger.warning("preferred election of %s: there is no such partition, or its topic is deleted", partition)
    _log_refusals("preferred", await hold_elections(active, known, ElectionType.PREFERRED))
    await active.store.delete_nodes([znodes.PREFERRED_REPLICA_ELECTION])


async def unclean_allowed(active: ActiveController, topic: str | None) -> None:
    """unclean.leader.election.enable has become true for a topic, or for all (None): elects where a leader is missing.

    The rule asks each topic's own configuration again, so a topic that says false is left alone.
    """
    context = active.context
    partitions = context.partitions() if topic is None else context.partitions_of(topic)
    leaderless = [partition for partition in partitions if context.leads_nobody_online(partition)]
    if leaderless:
        batch = RequestBatch()
        await active.elect(leaderless, batch)
        active.send(batch)
        await active.reassignments.progress(leaderless)


def _log_refusals(kind: str, verdicts: Mapping[TopicPartition, Verdict]) -> None:
    for partition in sorted(verdicts):
        verdict = verdicts[partition]
        if verdict.error is not ErrorCode.NONE:
            logger.warning("%s election of %s: %s", kind, partition, verdict.reason)
