"""After a loss of power: no registration while others may hold what this broker's replicas have lost.

What was not flushed may be gone, and the state znodes do not tell which life of a broker an ISR means. A controller
that finds the broker registered would let it lead with what is left, and the others would cut their logs to that. So
the broker stays away until it is out of every ISR in which another member may have more than it: one that lives, for
then the controller, ours or Apache Kafka's, takes this one out as it does with any broker that is gone; and one that is
dead and may come back with all it had. Waiting has an end (`limit_s`): from then on availability counts for more.

Members that have lost power as well hold no more than this one. They say so in ephemeral nodes under
/ottla/power_lost, so when a whole fleet comes back nobody waits for anybody.

On the calling side of the Coordination and Clock ports. Not here: what tells a loss of power
(`storage.log_directory`), the registration itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterable
from typing import Any, Final

from ottla_broker.coordination import znodes
from ottla_broker.ports import Clock, Coordination
from ottla_broker.ports.coordination import NodeExists, NoNode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.registration import make_path

_LOOK_S: Final = 0.1
_AT_ONCE: Final = 500
"""So many state znodes are asked for before the first answer is awaited."""


def is_relied_on(in_sync: Collection[int], broker_id: int, lost: Collection[int]) -> bool:
    """Does an ISR count on this broker although another member may have more? `lost` have lost power too.

    >>> is_relied_on((0, 1), 0, {0}), is_relied_on((0, 1), 0, {0, 1}), is_relied_on((0,), 0, {0})
    (True, False, False)
    """
    return broker_id in in_sync and any(member != broker_id and member not in lost for member in in_sync)


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
    await _say_so(coordination, broker_id)
    while True:
        lost = {int(name) for name in await coordination.children(znodes.POWER_LOST)}
        # Of a topic that is being deleted nobody changes the ISR any more.
        deleted = set(await coordination.children(znodes.DELETE_TOPICS))
        left = [tp for tp in left if tp.topic not in deleted]
        in_sync = await _in_sync(coordination, left)
        left = [tp for tp, isr in zip(left, in_sync, strict=True) if is_relied_on(isr, broker_id, lost)]
        if not left:
            return
        if clock.monotonic() > deadline:
            logger.error(
                "power was lost, and after %.0f s this broker is still in the ISR of %d partitions (%s first), which "
                "a member that has not come back may hold whole: registering all the same",
                limit_s,
                len(left),
                left[0],
            )
            return
        await clock.sleep(_LOOK_S)


async def _say_so(coordination: Coordination, broker_id: int) -> None:
    await make_path(coordination, znodes.POWER_LOST)
    await no_longer_lost(coordination, broker_id)  # an earlier life's, which would go with its session
    with contextlib.suppress(NodeExists):  # a session has ended at the start: a registration beside this one said so
        await coordination.create(f"{znodes.POWER_LOST}/{broker_id}", ephemeral=True)


async def no_longer_lost(coordination: Coordination, broker_id: int) -> None:
    """The broker is registered: what it has from now on counts. Raises CoordinationError."""
    with contextlib.suppress(NoNode):
        await coordination.delete(f"{znodes.POWER_LOST}/{broker_id}")


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
