"""Asks Kafka for what a rebalance moves, and remembers for a short time what was refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ottla_operator.concerns.rebalance.rebalance_status import Rebalance
from ottla_operator.facts.fleet_values import MoveRequests, PartitionId
from ottla_operator.facts.refusals import Refusals
from ottla_operator.facts.snapshot import ClusterAction
from ottla_operator.ports import KafkaAdmin


@dataclass(frozen=True, slots=True)
class MoveReplicas(ClusterAction):
    """`after`: what status.rebalance becomes once the brokers have taken the requests, None: nothing."""

    requests: MoveRequests
    after: Rebalance | None


class RebalanceExecutor:
    """Carries out the requests of one cluster. Every call raises KafkaUnavailable."""

    def __init__(self, monotonic: Callable[[], float], log: logging.Logger) -> None:
        self._log = log
        self._refused: Refusals[PartitionId] = Refusals(monotonic)

    def refused(self) -> Mapping[PartitionId, str]:
        """What was refused a short time ago, and why."""
        return self._refused.now()

    async def move_replicas(self, admin: KafkaAdmin, action: MoveReplicas) -> dict[str, object]:
        """Returns the part of status that changes once the requests are taken; a partition may be refused."""
        requests = action.requests
        errors = await admin.move(requests)
        if requests.reassign or requests.log_dirs:
            self._log.info(
                "reassignment of %d partitions, %d replicas between log directories, %d refused",
                len(requests.reassign),
                len(requests.log_dirs),
                len(errors),
            )
        self._refused.add(errors)
        return {"rebalance": None if action.after is None else action.after.to_status()}
