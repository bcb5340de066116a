"""Moves leaderships back to the preferred replicas periodically (auto.leader.rebalance.enable), as Kafka 3.9 does.

A broker that restarts leads nothing until this runs: its leaderships moved away when it stopped. The first run is five
seconds after a failover, the next ones every leader.imbalance.check.interval.seconds. A rolling restart is not
disturbed: only a replica that is online and in sync becomes leader, and no broker that shuts down.

Unlike Apache Kafka's, a run leaves a broker out that has registered since the run before (or since the failover), and
is repeated after five seconds: where addresses follow readiness (Kubernetes), clients do not reach such a broker yet,
and the restart of the controller often is that of others too.

Not here: which partitions (`decisions.leader_imbalance`), electing (`requested_elections`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ottla_broker.config import BrokerConfig
from ottla_broker.controller.acts.requested_elections import ElectionType, RequestedElections
from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.decisions.leader_imbalance import decide_imbalance
from ottla_broker.ports.clock import Clock

logger = logging.getLogger("ottla.controller")

FIRST_RUN_S: Final = 5.0
"""After a failover, which often comes with the restart of a broker."""


class LeaderRebalance:
    """The periodic elections of one controller epoch.

    Args:
        queue: queues an act by name; the controller runs it unless the controller epoch is over by then.
    """

    def __init__(
        self,
        *,
        context: ControllerContext,
        clock: Clock,
        config: BrokerConfig,
        elections: RequestedElections,
        queue: Callable[[str, Callable[[], Awaitable[None]]], None],
    ) -> None:
        self._context = context
        self._clock = clock
        self._config = config
        self._elections = elections
        self._queue = queue
        self._seen: dict[int, int] = {}
        """The epochs of the brokers that were registered at the last look."""

    def start(self) -> None:
        """Schedules the first run, unless auto.leader.rebalance.enable is false."""
        if self._config.auto_leader_rebalance_enable:
            self._newly_registered()
            self._clock.call_later(FIRST_RUN_S, self._queue_run)

    def _queue_run(self) -> None:
        self._queue("leader rebalance", self._run)

    async def _run(self) -> None:
        is_complete = await self._rebalance()
        interval = float(self._config.leader_imbalance_check_interval_seconds)
        self._clock.call_later(interval if is_complete else FIRST_RUN_S, self._queue_run)

    def _newly_registered(self) -> set[int]:
        """The brokers whose registration was not there at the last look."""
        before, self._seen = self._seen, {number: broker.epoch for number, broker in self._context.brokers.items()}
        return {broker for broker, epoch in self._seen.items() if before.get(broker) != epoch}

    async def _rebalance(self) -> bool:
        """Elects the preferred leaders of every broker that leads too few of the partitions that prefer it. False when
        some have registered too short a time ago."""
        new = self._newly_registered()
        is_complete = True
        for found in decide_imbalance(self._context, self._config.leader_imbalance_per_broker_percentage):
            if found.broker in new:
                is_complete = False
                continue
            logger.log(
                logging.INFO if found.electable else logging.DEBUG,
                "broker %d leads %d of the %d partitions that prefer it: %d preferred elections",
                found.broker,
                found.preferring - found.led_by_others,
                found.preferring,
                len(found.electable),
            )
            await self._elections.elect(found.electable, ElectionType.PREFERRED)
        return is_complete
