"""Moves leaderships away from a broker that shuts down: ControlledShutdown (KIP-380).

Before it stops, the broker leads nothing and is in no ISR. That takes two acts, in the order that is good for clients.
`move_leaderships` sends every other broker the new leaderships: the new leaders lead, their followers follow them, and
every broker's metadata names them. Once they have answered, `stop_replicas` sends the broker itself StopReplica: it
refuses from then on, and the clients that it refuses find the new leaders ready. Between the two acts, records that it
takes with acks=all are not acknowledged, since no follower fetches them any more; their producers send them again.

The broker gets metadata and StopReplica, no LeaderAndIsr: it would fetch from the new leaders, catch up, and might join
an ISR, and every acks=all would wait for it. Other acts may send it one all the same: a broker in controlled
shutdown begins to follow only where it is in the ISR (`ReplicaManager.begin_controlled_shutdown`).

Not here: the rule (`decisions.shutdown_election`), the request on the wire (`server.handlers`), when and how often a
broker asks (`server`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla_broker.controller.acts.leader_elections import LeaderElections
from ottla_broker.controller.acts.request_sender import RequestSender
from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.control_requests import RequestBatch
from ottla_broker.controller.decisions.leader_election import Election
from ottla_broker.controller.decisions.shutdown_election import (
    decide_shutdown_election,
    movable_leaderships,
    replicated_partitions,
)
from ottla_broker.controller.values import Replica
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition

logger = logging.getLogger("ottla.controller")

ANSWER_WITHIN_S: Final = 1.0
"""A broker that does not answer delays the controlled shutdown of another one by so long at most, for each act."""

UNKNOWN_BROKER_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class MovedLeaderships:
    """The result of `move_leaderships`. It holds for this incarnation of the broker and in this controller epoch."""

    broker: int
    broker_epoch: int
    controller_epoch: int
    for_broker: RequestBatch
    """What `stop_replicas` sends."""
    others_answered: asyncio.Future[None]
    """Completes when every other broker has answered."""


@dataclass(frozen=True, slots=True)
class StoppedReplicas:
    """The result of `stop_replicas`."""

    remaining: list[TopicPartition]
    """What the broker still leads and should ask about again."""
    answered: asyncio.Future[None]
    """Completes when the broker has answered."""


class BrokerShutdowns:
    """The controlled shutdowns of one controller epoch."""

    def __init__(
        self,
        *,
        context: ControllerContext,
        clock: Clock,
        elections: LeaderElections,
        sender: RequestSender,
    ) -> None:
        self._context = context
        self._clock = clock
        self._elections = elections
        self._sender = sender

    async def move_leaderships(self, broker: int, broker_epoch: int) -> MovedLeaderships:
        """Takes the broker out of every leadership and ISR that can do without it, and sends that to the others.

        Args:
            broker_epoch: -1 is not checked (requests before version 2).

        Raises:
            KafkaError: BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
        """
        context = self._context
        living = context.brokers.get(broker)
        if living is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is not registered")
        if broker_epoch != UNKNOWN_BROKER_EPOCH and broker_epoch < living.epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH, f"broker {broker} has the epoch {living.epoch}, not {broker_epoch}"
            )
        context.shutting_down.add(broker)
        partitions = replicated_partitions(context, broker)
        logger.info("broker %d shuts down: it has replicas of %d replicated partitions", broker, len(partitions))
        batch = RequestBatch()
        await self._elections.elect(partitions, batch, decide=self._decide)
        batch.remove_broker(broker)
        for_broker = RequestBatch()
        for_broker.add_metadata([broker], partitions)
        for partition in partitions:
            leadership = context.leadership.get(partition)
            if leadership is not None and broker not in leadership.isr:
                for_broker.add_stop_replica(Replica(*partition, broker), delete=False)
        return MovedLeaderships(broker, living.epoch, context.epoch, for_broker, await self._send(batch))

    async def _decide(self, pending: Sequence[TopicPartition]) -> dict[TopicPartition, Election]:
        context = self._context
        found = {}
        for partition in pending:
            current = context.leadership.get(partition)
            if current is None:
                continue  # another program has removed its state znode; the watch on the topics fires
            election = decide_shutdown_election(
                context.replicas_of(partition),
                current,
                online=context.online_brokers(partition),
                shutting_down=context.shutting_down,
            )
            if election is not None:
                found[partition] = election
        return found

    async def stop_replicas(self, moved: MovedLeaderships) -> StoppedReplicas:
        """Sends the broker the new leaderships, and StopReplica for what it no longer leads or follows.

        Raises:
            KafkaError: and nothing is sent. NOT_CONTROLLER in a later controller epoch, which does not know which
                brokers shut down and has to be asked again. STALE_BROKER_EPOCH when the broker has gone meanwhile: its
                next incarnation is sent each leadership once, and this StopReplica would stop its replicas for good.
        """
        context = self._context
        if context.epoch != moved.controller_epoch:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        living = context.brokers.get(moved.broker)
        if living is None or living.epoch != moved.broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH, f"broker {moved.broker} has gone while its leaderships were moved"
            )
        answered = await self._send(moved.for_broker)
        return StoppedReplicas(movable_leaderships(context, moved.broker), answered)

    async def _send(self, batch: RequestBatch) -> asyncio.Future[None]:
        """Sends the batch; the future that it returns completes when every request is answered."""
        answered: asyncio.Future[None] = self._clock.create_future()
        left = 0

        def on_answer() -> None:
            nonlocal left
            left -= 1
            if left == 0 and not answered.done():
                answered.set_result(None)

        sent = await self._sender.send(batch, on_answer)
        left += sent
        if left == 0 and not answered.done():
            answered.set_result(None)
        return answered
