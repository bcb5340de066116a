"""What leaders change themselves: AlterPartition (KIP-497), and the state znodes that older leaders write.

Acts of the active controller, one event each; `isr_changes` judges. Not here: the request on the wire
(`server.handlers`), finding the topics that it names (`administration`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla_broker.controller.control_requests import RequestBatch
from ottla_broker.controller.decisions.isr_changes import IsrChange, IsrDecision, decide_isr_change
from ottla_broker.controller.store import StateConflict
from ottla_broker.controller.values import LeaderAndIsr
from ottla_broker.ports.coordination import Watcher
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition

if TYPE_CHECKING:
    from ottla_broker.controller.active import ActiveController

logger = logging.getLogger("ottla.controller")


@dataclass(frozen=True, slots=True)
class IsrAnswer:
    """What a leader is told about one partition of its AlterPartition."""

    error: ErrorCode
    leadership: LeaderAndIsr | None = None


async def alter_isrs(
    active: ActiveController, changes: Mapping[TopicPartition, IsrChange], version: int
) -> dict[TopicPartition, IsrAnswer]:
    """AlterPartition of one leader: each change is judged, written, and told to every broker."""
    context = active.context
    epochs = {broker: context.brokers[broker].epoch for broker in context.broker_ids()}
    decisions: dict[TopicPartition, IsrDecision] = {}
    for partition, change in sorted(changes.items()):
        decisions[partition] = decide_isr_change(
            change,
            None if context.is_deleting(partition.topic) else context.leadership.get(partition),
            replicas=context.replicas_of(partition),
            online=context.brokers_for_isr(partition),
            broker_epochs=epochs,
            version=version,
        )
    to_write = {partition: decision.write for partition, decision in decisions.items() if decision.write}
    conflicts = await _write_isrs(active, to_write)
    batch = RequestBatch()
    batch.tell_metadata(context.brokers if to_write else (), to_write)
    active.send(batch)
    answers: dict[TopicPartition, IsrAnswer] = {}
    for partition, decision in decisions.items():
        if partition in conflicts:
            answers[partition] = IsrAnswer(ErrorCode.INVALID_UPDATE_VERSION)
        elif decision.error is ErrorCode.NONE:
            logger.debug("%s: %s", partition, decision.reason)
            answers[partition] = IsrAnswer(ErrorCode.NONE, context.leadership[partition])
        else:
            logger.info("%s: AlterPartition refused (%s): %s", partition, decision.error.name, decision.reason)
            answers[partition] = IsrAnswer(decision.error)
    await active.reassignments.progress(to_write)
    return answers


async def _write_isrs(active: ActiveController, changes: Mapping[TopicPartition, LeaderAndIsr]) -> set[TopicPartition]:
    """Writes the ISRs; gives those that somebody else had written before, which are read anew.

    A state that is found as it was to be written, one version on, is our own: the answer to the write was lost.
    The leader must hear so, for it asks only once and would keep a partition epoch that nobody accepts.
    """
    context = active.context
    wanted = {partition: context.of_this_life(leadership) for partition, leadership in changes.items()}
    written = await active.store.write_leadership(wanted, context.epoch, new=frozenset())
    missed = []
    for partition, outcome in written.items():
        if isinstance(outcome, StateConflict):
            missed.append(partition)
        else:
            context.leadership[partition] = outcome
    if missed:
        await active.read_leadership(missed)
    return {
        partition
        for partition in missed
        if context.leadership.get(partition)
        != changes[partition].written(changes[partition].partition_epoch + 1, context.epoch)
    }


async def isr_notified(active: ActiveController, watcher: Watcher) -> None:
    """Leaders of an older protocol have written state znodes themselves: read them and tell everybody."""
    paths, partitions = await active.store.isr_notifications(watcher)
    known = [partition for partition in partitions if partition in active.context.leadership]
    if known:
        await active.read_leadership(known)
        batch = RequestBatch()
        batch.tell_metadata(active.context.brokers, known)
        active.send(batch)
        await active.reassignments.progress(known)
    await active.store.delete_nodes(paths)
