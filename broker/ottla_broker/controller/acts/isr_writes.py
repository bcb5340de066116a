"""Changes ISRs for their leaders: AlterPartition (KIP-497), and the state znodes that older leaders write themselves.

Not here: the rules (`decisions.isr_changes`), the request on the wire (`server.handlers`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla_broker.controller.acts.leader_elections import LeaderElections
from ottla_broker.controller.control_requests import RequestBatch
from ottla_broker.controller.controller_epoch_parts import ControllerEpochParts
from ottla_broker.controller.decisions.isr_changes import IsrChange, IsrDecision, decide_isr_change
from ottla_broker.controller.store import StateConflict
from ottla_broker.controller.values import LeaderAndIsr
from ottla_broker.ports.coordination import Watcher
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition

logger = logging.getLogger("ottla.controller")


@dataclass(frozen=True, slots=True)
class TopicIsrChanges:
    """The changes of one topic, which is named by its id (AlterPartition v2+) or by its name."""

    topic_id: bytes | None
    name: str | None
    changes: Mapping[int, IsrChange]


@dataclass(frozen=True, slots=True)
class IsrResult:
    """The result for one partition of an AlterPartition: an error, or the leadership as it is now."""

    error: ErrorCode
    leadership: LeaderAndIsr | None = None


class IsrWrites:
    """The changes of ISRs in one controller epoch.

    Args:
        send: sends a batch to the brokers.
        progress_reassignments: called with the partitions whose ISR has changed.
        notifications_watcher: called when a notification comes.
    """

    def __init__(
        self,
        *,
        parts: ControllerEpochParts,
        elections: LeaderElections,
        send: Callable[[RequestBatch], Awaitable[object]],
        progress_reassignments: Callable[[Iterable[TopicPartition]], Awaitable[None]],
        notifications_watcher: Watcher,
    ) -> None:
        self._context = parts.context
        self._store = parts.store
        self._elections = elections
        self._send = send
        self._progress_reassignments = progress_reassignments
        self._notifications_watcher = notifications_watcher

    async def alter_partitions(
        self, broker: int, broker_epoch: int, topics: Sequence[TopicIsrChanges], version: int
    ) -> list[dict[int, IsrResult]]:
        """AlterPartition of the leader `broker`.

        Args:
            version: the version of the request.

        Returns:
            One dict per topic, in their order: the result of each partition.

        Raises:
            KafkaError: STALE_BROKER_EPOCH, the sender is not alive or is an earlier incarnation.
        """
        context = self._context
        living = context.brokers.get(broker)
        if living is None or living.epoch != broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {broker} has the epoch {None if living is None else living.epoch}, not {broker_epoch}",
            )
        names: list[str | None] = []
        changes: dict[TopicPartition, IsrChange] = {}
        for topic in topics:
            name = topic.name if topic.topic_id is None else context.topic_name(topic.topic_id)
            names.append(name)
            if name is not None:
                changes.update({TopicPartition(name, partition): change for partition, change in topic.changes.items()})
        results = await self._alter(changes, version)
        return [
            {
                partition: IsrResult(ErrorCode.UNKNOWN_TOPIC_ID)
                if name is None
                else results[TopicPartition(name, partition)]
                for partition in topic.changes
            }
            for name, topic in zip(names, topics, strict=True)
        ]

    async def _alter(
        self, changes: Mapping[TopicPartition, IsrChange], version: int
    ) -> dict[TopicPartition, IsrResult]:
        """Decides each change, writes it, and sends it to every broker."""
        context = self._context
        epochs = {broker: context.brokers[broker].epoch for broker in context.broker_ids()}
        decisions: dict[TopicPartition, IsrDecision] = {}
        for partition, change in sorted(changes.items()):
            decisions[partition] = decide_isr_change(
                change,
                None if context.is_deleting(partition.topic) else context.leadership.get(partition),
                replicas=context.replicas_of(partition),
                online=context.isr_candidates(partition),
                broker_epochs=epochs,
                version=version,
            )
        to_write = {partition: decision.write for partition, decision in decisions.items() if decision.write}
        conflicts = await self._write(to_write)
        batch = RequestBatch()
        batch.add_metadata(context.brokers if to_write else (), to_write)
        await self._send(batch)
        results: dict[TopicPartition, IsrResult] = {}
        for partition, decision in decisions.items():
            if partition in conflicts:
                results[partition] = IsrResult(ErrorCode.INVALID_UPDATE_VERSION)
            elif decision.error is ErrorCode.NONE:
                logger.debug("%s: %s", partition, decision.reason)
                results[partition] = IsrResult(ErrorCode.NONE, context.leadership[partition])
            else:
                logger.info("%s: AlterPartition refused (%s): %s", partition, decision.error.name, decision.reason)
                results[partition] = IsrResult(decision.error)
        await self._progress_reassignments(to_write)
        return results

    async def _write(self, changes: Mapping[TopicPartition, LeaderAndIsr]) -> set[TopicPartition]:
        """Writes the ISRs. A state that another writer has changed meanwhile is read again.

        A state that is found as it was to be written, one version on, was written by this controller and the answer was
        lost. The leader must get it: it asks only once and would keep a partition epoch that nobody accepts.

        Returns:
            The partitions whose ISR was not written.
        """
        context = self._context
        wanted = {partition: context.with_leader_incarnation(leadership) for partition, leadership in changes.items()}
        written = await self._store.write_leadership(wanted, context.epoch, new=frozenset())
        missed = []
        for partition, outcome in written.items():
            if isinstance(outcome, StateConflict):
                missed.append(partition)
            else:
                context.leadership[partition] = outcome
        if missed:
            await self._elections.read_leadership(missed)
        return {
            partition
            for partition in missed
            if context.leadership.get(partition)
            != changes[partition].written(changes[partition].partition_epoch + 1, context.epoch)
        }

    async def read_notifications(self) -> None:
        """Reads the state znodes that leaders of an older protocol have written, and sends them to every broker."""
        context = self._context
        paths, partitions = await self._store.isr_notifications(self._notifications_watcher)
        known = [partition for partition in partitions if partition in context.leadership]
        if known:
            await self._elections.read_leadership(known)
            batch = RequestBatch()
            batch.add_metadata(context.brokers, known)
            await self._send(batch)
            await self._progress_reassignments(known)
        await self._store.delete_nodes(paths)
