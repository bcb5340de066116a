"""Decides which brokers lead too few of the partitions that prefer them (auto.leader.rebalance.enable).

Pure. Not here: when it is asked, and electing the preferred leaders (`acts.leader_rebalance`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.decisions.leader_election import decide_preferred_election
from ottla_broker.records.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class LeaderImbalance:
    """A broker that leads too few of the partitions that prefer it."""

    broker: int
    led_by_others: int
    preferring: int
    """The partitions whose first replica this broker is; `led_by_others` of them have another leader."""
    electable: tuple[TopicPartition, ...]
    """Those that it can lead now."""


def decide_imbalance(context: ControllerContext, percentage: int) -> list[LeaderImbalance]:
    """The brokers for which others lead more than `percentage` percent of the partitions that prefer them, by id.

    Topics that are being deleted do not count. Partitions that are being reassigned count but are not electable: the
    reassignment elects their leaders.
    """
    preferring: dict[int, int] = {}
    elsewhere: dict[int, list[TopicPartition]] = {}
    for partition in context.partitions():
        replicas = context.replicas_of(partition)
        if not replicas or context.is_deleting(partition.topic):
            continue
        preferred = replicas[0]
        preferring[preferred] = preferring.get(preferred, 0) + 1
        leadership = context.leadership.get(partition)
        if leadership is not None and leadership.leader != preferred:
            elsewhere.setdefault(preferred, []).append(partition)
    return [
        LeaderImbalance(
            broker, len(partitions), preferring[broker], tuple(p for p in partitions if _is_electable(context, p))
        )
        for broker, partitions in sorted(elsewhere.items())
        if len(partitions) * 100 > percentage * preferring[broker]
    ]


def _is_electable(context: ControllerContext, partition: TopicPartition) -> bool:
    assignment = context.assignment_of(partition)
    if assignment.adding or assignment.removing:
        return False
    decision = decide_preferred_election(
        assignment.replicas, context.leadership.get(partition), online=context.electable_brokers(partition)
    )
    return decision.election is not None
