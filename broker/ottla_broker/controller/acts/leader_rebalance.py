"""Leaderships go back to the preferred replicas by themselves (auto.leader.rebalance.enable), as Kafka 3.9 does it.

`decide_imbalance` is pure: which partitions of which brokers. `PreferredBalance` asks it by the clock, one event of the
controller's queue each time. Not here: electing (`leader_elections`).

A broker that restarts leads nothing until this runs: leaders moved away when it stopped and stay where they are. First
five seconds after a controller has taken office, then every leader.imbalance.check.interval.seconds. Whoever rolls the
fleet is not in its way: only a replica that is online and in sync gets a leadership, and one that shuts down is not
online to the controller.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla_broker.controller.acts.requested_elections import ElectionType, hold_elections
from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.decisions.leader_election import judge_preferred
from ottla_broker.ports.clock import Clock
from ottla_broker.records.ids import TopicPartition

if TYPE_CHECKING:
    from ottla_broker.controller.active import ActiveController

logger = logging.getLogger("ottla.controller")

FIRST_CHECK_S: Final = 5.0
"""After a change of controller, which is often the restart of a broker too."""


@dataclass(frozen=True, slots=True)
class Imbalance:
    """A broker that leads too few of the partitions that prefer it."""

    broker: int
    elsewhere: int
    preferring: int
    """Partitions led by others, out of those whose first replica this broker is."""
    electable: tuple[TopicPartition, ...]
    """Those that it can lead now."""


def decide_imbalance(context: ControllerContext, percentage: int) -> list[Imbalance]:
    """The brokers with more than `percentage` percent of their preferred leaderships elsewhere, by id.

    Topics being deleted do not count. Partitions being reassigned count and are left alone: their reassignment elects.
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
        Imbalance(
            broker, len(partitions), preferring[broker], tuple(p for p in partitions if _is_electable(context, p))
        )
        for broker, partitions in sorted(elsewhere.items())
        if len(partitions) * 100 > percentage * preferring[broker]
    ]


def _is_electable(context: ControllerContext, partition: TopicPartition) -> bool:
    assignment = context.assignment_of(partition)
    if assignment.adding or assignment.removing:
        return False
    verdict = judge_preferred(
        assignment.replicas, context.leadership.get(partition), online=context.electable_brokers(partition)
    )
    return verdict.election is not None


async def balance(active: ActiveController) -> None:
    """One round: every broker that leads too little gets back what it can lead."""
    for found in decide_imbalance(active.context, active.config["leader.imbalance.per.broker.percentage"]):
        logger.log(
            logging.INFO if found.electable else logging.DEBUG,
            "broker %d leads %d of the %d partitions that prefer it: %d preferred elections",
            found.broker,
            found.preferring - found.elsewhere,
            found.preferring,
            len(found.electable),
        )
        await hold_elections(active, found.electable, ElectionType.PREFERRED)


class PreferredBalance:
    """The rounds of one term. `queue(name, act)` has an act run as an event while the term lasts."""

    def __init__(
        self,
        clock: Clock,
        config: Mapping[str, Any],
        queue: Callable[[str, Callable[[ActiveController], Awaitable[None]]], None],
    ) -> None:
        self._clock = clock
        self._config = config
        self._queue = queue

    def start(self) -> None:
        """Nothing with auto.leader.rebalance.enable=false."""
        if self._config["auto.leader.rebalance.enable"]:
            self._clock.call_later(FIRST_CHECK_S, self._due)

    def _due(self) -> None:
        self._queue("preferred leaders", self._round)

    async def _round(self, active: ActiveController) -> None:
        await balance(active)
        self._clock.call_later(float(self._config["leader.imbalance.check.interval.seconds"]), self._due)
