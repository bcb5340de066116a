"""After a loss of power: no registration while others take this broker's replicas for in sync.

What was not flushed may be gone, and the state znodes do not tell which life of a broker an ISR means. A controller
that finds the broker registered anew, without having seen it gone (it came to office meanwhile, or was this broker
itself), would let it lead with what is left, and the others would cut their logs to that. So the broker stays away
until it is out of every ISR that has another member alive: the controller, ours or Apache Kafka's, takes it out as it
does with any broker that is gone. An ISR of which nobody else lives cannot be helped by waiting.

On the calling side of the Coordination and Clock ports. Not here: what tells a loss of power
(`storage.log_directory`), the registration itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Any, Final

from ottla_broker.coordination import znodes
from ottla_broker.ports import Clock, Coordination
from ottla_broker.ports.coordination import NoNode
from ottla_broker.records.ids import TopicPartition

_LOOK_S: Final = 0.1
_AT_ONCE: Final = 500
"""So many state znodes are asked for before the first answer is awaited."""


def is_relied_on(in_sync: Collection[int], broker_id: int, alive: Collection[int]) -> bool:
    """Does an ISR count on this broker although another member is alive?

    >>> is_relied_on((0, 1), 0, {1, 2}), is_relied_on((0, 1), 0, {2}), is_relied_on((1,), 0, {1, 2})
    (True, False, False)
    """
    return broker_id in in_sync and any(member != broker_id and member in alive for member in in_sync)


async def until_out_of_sync(
    coordination: Coordination,
    clock: Clock,
    broker_id: int,
    partitions: Iterable[TopicPartition],
    limit_s: float,
    logger: logging.LoggerAdapter[Any],
) -> None:
    """Returns when no ISR relies on this broker, which is not registered, or after `limit_s`, which is logged.

    Raises CoordinationError.
    """
    deadline = clock.monotonic() + limit_s
    left = list(partitions)
    while True:
        alive = {int(name) for name in await coordination.children(znodes.BROKER_IDS)}
        # Of a topic that is being deleted nobody changes the ISR any more.
        deleted = set(await coordination.children(znodes.DELETE_TOPICS))
        left = [tp for tp in left if tp.topic not in deleted]
        in_sync = await _in_sync(coordination, left)
        left = [tp for tp, isr in zip(left, in_sync, strict=True) if is_relied_on(isr, broker_id, alive)]
        if not left:
            return
        if clock.monotonic() > deadline:
            logger.error(
                "power was lost, and after %.0f s the controller has not taken this broker out of the ISR of %d "
                "partitions (%s first): registering all the same",
                limit_s,
                len(left),
                left[0],
            )
            return
        await clock.sleep(_LOOK_S)


async def _in_sync(coordination: Coordination, partitions: list[TopicPartition]) -> list[tuple[int, ...]]:
    """The ISR of each partition, empty where there is none or its znode cannot be understood."""
    found: list[tuple[int, ...]] = []
    for first in range(0, len(partitions), _AT_ONCE):
        part = partitions[first : first + _AT_ONCE]
        answers = await asyncio.gather(
            *(coordination.get(znodes.PartitionState.path(*tp)) for tp in part), return_exceptions=True
        )
        for tp, answer in zip(part, answers, strict=True):
            if isinstance(answer, NoNode):
                found.append(())
                continue
            if isinstance(answer, BaseException):
                raise answer
            try:
                found.append(znodes.PartitionState.decode(*tp, answer[0]).isr)
            except znodes.ZnodeError:
                found.append(())
    return found
