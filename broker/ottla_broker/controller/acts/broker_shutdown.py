"""A broker that shuts down leads nothing and is in no ISR before it stops: ControlledShutdown (KIP-380, 5.23).

Acts of the active controller, two events; `leaving` decides. Not here: the wire (`server.handlers`), when and how often
a broker asks (`server.leaving`).

The order matters to clients. First everybody else hears: the new leaders lead, their followers follow them, and every
broker's metadata points to them (`move_away`). When they have answered, the leaving broker hears (`tell_leaving`): it
refuses from then on, and whoever it refuses finds the next leader ready. Until then records that it takes with acks=all
are acknowledged by nobody, for no follower fetches them any more; their producers send them again.

The leaving broker gets metadata and StopReplica, no LeaderAndIsr: it would fetch from the new leaders, which wait for
whoever has caught up and might join the ISR, and with them every acks=all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla_broker.controller.control_requests import RequestBatch
from ottla_broker.controller.decisions.leader_election import Election
from ottla_broker.controller.decisions.shutdown_election import concerned, decide_leaving, still_led
from ottla_broker.controller.values import Replica
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition

if TYPE_CHECKING:
    from ottla_broker.controller.active import ActiveController

logger = logging.getLogger("ottla.controller")

TELL_WITHIN_S: Final = 1.0
"""How long a broker that does not answer keeps another one from leaving."""

UNKNOWN_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class Handover:
    """What has been decided about a leaving broker. `told` completes when everybody else has answered.

    It holds for this life of the broker and in this term.
    """

    broker: int
    broker_epoch: int
    controller_epoch: int
    for_broker: RequestBatch
    told: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class Left:
    """`remaining`: what the broker still leads and had better wait for. `told` completes when it has answered."""

    remaining: list[TopicPartition]
    told: asyncio.Future[None]


async def move_away(active: ActiveController, clock: Clock, broker: int, broker_epoch: int) -> Handover:
    """Takes the broker out of every leadership and ISR that can do without it, and tells everybody else.

    `broker_epoch` -1 is not checked (requests before version 2). KafkaError: BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
    """
    context = active.context
    living = context.brokers.get(broker)
    if living is None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is not registered")
    if broker_epoch != UNKNOWN_EPOCH and broker_epoch < living.epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker} has the epoch {living.epoch}, not {broker_epoch}"
        )
    context.shutting_down.add(broker)
    partitions = concerned(context, broker)
    logger.info("broker %d shuts down: it holds %d replicated partitions", broker, len(partitions))

    async def decide(pending: Sequence[TopicPartition]) -> dict[TopicPartition, Election]:
        found = {}
        for partition in pending:
            current = context.leadership.get(partition)
            if current is None:
                continue  # its state znode has gone under us; the watch on topics tells
            election = decide_leaving(
                context.replicas_of(partition),
                current,
                online=context.online_brokers(partition),
                leaving=context.shutting_down,
            )
            if election is not None:
                found[partition] = election
        return found

    batch = RequestBatch()
    await active.elect(partitions, batch, decide=decide)
    batch.leave_out(broker)
    for_broker = RequestBatch()
    for_broker.tell_metadata([broker], partitions)
    for partition in partitions:
        leadership = context.leadership.get(partition)
        if leadership is not None and broker not in leadership.isr:
            for_broker.stop(Replica(*partition, broker), delete=False)
    return Handover(broker, living.epoch, context.epoch, for_broker, _send(active, clock, batch))


async def tell_leaving(active: ActiveController, clock: Clock, handover: Handover) -> Left:
    """Tells the leaving broker who leads, and to stop leading and following.

    KafkaError, and nothing is told: NOT_CONTROLLER in a later term, which does not know who leaves and is asked again;
    STALE_BROKER_EPOCH when the broker has gone meanwhile. Its next life is told to follow once: it would stop for good.
    """
    if active.context.epoch != handover.controller_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    living = active.context.brokers.get(handover.broker)
    if living is None or living.epoch != handover.broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {handover.broker} has gone while it was handing over")
    told = _send(active, clock, handover.for_broker)
    return Left(still_led(active.context, handover.broker), told)


def _send(active: ActiveController, clock: Clock, batch: RequestBatch) -> asyncio.Future[None]:
    """Sends, and gives a future that completes when every request is answered."""
    told: asyncio.Future[None] = clock.create_future()
    left = 0

    def on_answer() -> None:
        nonlocal left
        left -= 1
        if left == 0 and not told.done():
            told.set_result(None)

    left += active.send(batch, on_answer)
    if left == 0:
        told.set_result(None)
    return told
