"""Before the registration: waits while others may have what this broker lost with its power or a log directory.

What was not flushed may be gone, and a state znode does not say which incarnation of a broker its ISR means. A
controller that finds the broker registered would let it lead with the rest, and the others would cut their logs to
that. So the broker does not register until it is out of every ISR in which another member may have more than it: a live
member, because then the controller, ours or Apache Kafka's, removes this one as it does with any broker that is gone;
and a dead member that may come back with all it had. The wait ends after `limit_s`: from then on availability counts
for more.

Members that have lost power as well have no more than this one. They publish that in ephemeral znodes under
/ottla/power_lost, so when a whole fleet comes back nobody waits. A broker of which only one directory has lost power,
because that was offline at the last start, does not publish it: it may have what others have lost.

A directory that was empty and is formatted may replace one that had replicas. What is assigned to this broker and has
no log is then lost altogether, and a member that has lost power may have more of it; only one that has no log at all,
as its znode says, has not. Worked example: 0 is the active controller, leads t-0 with the ISR 0, 1, 2, and comes back
with a new disk. It could register just when its old session ends; the next controller would take it for the leader it
was, with an empty log. So it waits until that controller has t-0 led by 1.

On the calling side of the ports Coordination and Clock. Not here: how a power loss and an empty directory are detected
(`storage.log_dirs.log_directory`), the registration itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from ottla_broker.coordination import znodes
from ottla_broker.ports import Clock, Coordination
from ottla_broker.ports.coordination import NodeExists, NoNode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.store.registration import make_path

_LOOK_S: Final = 0.1
_AT_ONCE: Final = 500
"""So many znodes are requested before the first answer is awaited."""
_EMPTY: Final = b"empty"
"""In the node of a broker that has no log at all."""


@dataclass(frozen=True, slots=True)
class PossibleLoss:
    """What a broker that is about to register may have lost.

    Args:
        partitions: those that may have lost something with the power.
        absent: those that are assigned to the broker and have no log there.
        is_empty: the broker has no log at all.
        has_others: it has logs that have lost nothing.
    """

    partitions: Collection[TopicPartition]
    absent: Collection[TopicPartition] = ()
    is_empty: bool = False
    has_others: bool = False


def is_relied_on(in_sync: Collection[int], broker_id: int, lost: Collection[int]) -> bool:
    """Does an ISR count on this broker although another member may have more? `lost` have lost power too.

    >>> is_relied_on((0, 1), 0, {0}), is_relied_on((0, 1), 0, {0, 1}), is_relied_on((0,), 0, {0})
    (True, False, False)
    """
    return broker_id in in_sync and any(member != broker_id and member not in lost for member in in_sync)


async def assigned(coordination: Coordination, broker_id: int) -> list[TopicPartition]:
    """The partitions that are to have a replica on the broker, of topics that can be read. Raises CoordinationError."""
    topics = await coordination.children(znodes.TOPICS)
    found: list[TopicPartition] = []
    for topic, data in zip(topics, await _read(coordination, map(znodes.topic_path, topics)), strict=True):
        with contextlib.suppress(znodes.ZnodeError):
            if data is not None:
                partitions = znodes.TopicAssignment.decode(topic, data).partitions
                found += [
                    TopicPartition(topic, index) for index in sorted(partitions) if broker_id in partitions[index]
                ]
    return found


async def until_out_of_sync(
    coordination: Coordination,
    clock: Clock,
    broker_id: int,
    loss: PossibleLoss,
    limit_s: float,
    logger: logging.LoggerAdapter[Any],
) -> None:
    """Returns when no ISR relies on this broker, which is not registered, or after `limit_s`, which is logged.

    Raises CoordinationError.
    """
    deadline = clock.monotonic() + limit_s
    has_log = dict.fromkeys(loss.partitions, True) | dict.fromkeys(loss.absent, False)
    await make_path(coordination, znodes.POWER_LOST)
    if loss.is_empty or (any(has_log.values()) and not loss.has_others):
        await _say_so(coordination, broker_id, loss.is_empty)
    while True:
        lost, emptied = await _lost(coordination)
        # Of a topic that is being deleted nobody changes the ISR any more.
        deleted = set(await coordination.children(znodes.DELETE_TOPICS))
        left = [tp for tp in has_log if tp.topic not in deleted]
        in_sync = await _in_sync(coordination, left)
        has_log = {
            tp: has_log[tp]
            for tp, isr in zip(left, in_sync, strict=True)
            if is_relied_on(isr, broker_id, lost if has_log[tp] else emptied)
        }
        if not has_log:
            return
        if clock.monotonic() > deadline:
            logger.error(
                "power was lost, or a directory failed or was empty: after %.0f s this broker is still in the ISR of "
                "%d partitions (%s first), which a member that has not come back may hold whole: registering anyway",
                limit_s,
                len(has_log),
                next(iter(has_log)),
            )
            return
        await clock.sleep(_LOOK_S)


async def _lost(coordination: Coordination) -> tuple[set[int], set[int]]:
    """(brokers that have lost power or everything, those of them that have nothing)."""
    names = await coordination.children(znodes.POWER_LOST)
    said = await _read(coordination, [f"{znodes.POWER_LOST}/{name}" for name in names])
    return {int(name) for name in names}, {int(name) for name, data in zip(names, said, strict=True) if data == _EMPTY}


async def _say_so(coordination: Coordination, broker_id: int, is_empty: bool) -> None:
    await no_longer_lost(coordination, broker_id)  # an earlier life's, which would go with its session
    with contextlib.suppress(NodeExists):  # a session has ended at the start: a registration beside this one said so
        path = f"{znodes.POWER_LOST}/{broker_id}"
        await coordination.create(path, _EMPTY if is_empty else b"", ephemeral=True)


async def no_longer_lost(coordination: Coordination, broker_id: int) -> None:
    """The broker is registered: what it has from now on counts. Raises CoordinationError."""
    with contextlib.suppress(NoNode):
        await coordination.delete(f"{znodes.POWER_LOST}/{broker_id}")


async def _in_sync(coordination: Coordination, partitions: list[TopicPartition]) -> list[tuple[int, ...]]:
    """The ISR of each partition, empty where there is none or its znode cannot be understood."""
    found: list[tuple[int, ...]] = []
    states = await _read(coordination, (znodes.PartitionStateZnode.path(*tp) for tp in partitions))
    for tp, data in zip(partitions, states, strict=True):
        try:
            found.append(() if data is None else znodes.PartitionStateZnode.decode(*tp, data).isr)
        except znodes.ZnodeError:
            found.append(())
    return found


async def _read(coordination: Coordination, paths: Iterable[str]) -> list[bytes | None]:
    """The content of each node, None where there is none."""
    wanted = list(paths)
    found: list[bytes | None] = []
    for first in range(0, len(wanted), _AT_ONCE):
        part = wanted[first : first + _AT_ONCE]
        for answer in await asyncio.gather(*map(coordination.get, part), return_exceptions=True):
            if isinstance(answer, NoNode):
                found.append(None)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.append(answer[0])
    return found
