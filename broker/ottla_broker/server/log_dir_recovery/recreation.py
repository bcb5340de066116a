"""Recreates the replicas of failed log directories as soon as their partitions' states allow it.

The state znode in the coordination store is the truth, and the log-directory event the only message to the controller,
so any controller will do, Apache Kafka's too (`replication.replica_states.recreation_rules` has the four steps).
Nothing is remembered here: a replica waits when the controller takes it for offline and it has no log, so a restart in
the middle continues; the replicas that catch up are in the replica registry.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ottla_broker.coordination import znodes
from ottla_broker.ports import Clock, Coordination
from ottla_broker.ports.coordination import CoordinationError
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager
from ottla_broker.replication.replica_states.commands import LeadershipCommand
from ottla_broker.replication.replica_states.local_replica import LocalReplicaState
from ottla_broker.replication.replica_states.recreation_rules import RecreationAction, decide_recreation
from ottla_broker.server.store.partition_state import read_assignment, read_command

_PASS_S = 1.0
_READ_PER_PASS = 200
"""Partitions looked at per pass, in turn: thousands must not keep the coordination store busy."""


class RecreationTask:
    """Recreates the replicas of one broker. Everything runs on its loop. `report` writes the log-directory event."""

    def __init__(
        self,
        broker_id: int,
        coordination: Coordination,
        clock: Clock,
        replica_manager: ReplicaManager,
        report: Callable[[], None],
        logger: logging.LoggerAdapter[Any],
    ) -> None:
        self._broker_id = broker_id
        self._coordination = coordination
        self._clock = clock
        self._replica_manager = replica_manager
        self._recreations = replica_manager.recreation
        self._report = report
        self._logger = logger
        self._is_running = False
        self._next = 0

    def start(self) -> None:
        """Starts the task, unless it runs: a directory has failed, or is offline at the start."""
        if not self._is_running:
            self._is_running = True
            self._clock.spawn(self._run(), name="recreation of replicas")

    async def _run(self) -> None:
        try:
            while self._replica_manager.log_manager.offline_paths or self._recreations.catching_up:
                try:
                    await self._pass()
                except CoordinationError as error:
                    self._logger.warning("replicas cannot be recreated yet: %s", error)
                await self._clock.sleep(_PASS_S)
        finally:
            self._is_running = False
            self._recreations.waiting.clear()
            self._recreations.lost.clear()

    def _candidates(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """(without a log, recreated and taken for offline by the controller)."""
        without_log = self._recreations.without_log()
        # Of one that was catching up when its new directory failed too, nothing is left: it is recreated once more.
        refused = [
            one
            for one in self._replica_manager.replicas.reported_offline
            if self._recreations.is_catching_up(one) and one not in without_log
        ]
        return without_log, refused

    async def _pass(self) -> None:
        without_log, refused = self._candidates()
        recreations = self._recreations
        pending = [*refused, *without_log]
        still = dict.fromkeys(pending)  # a dead disk may have held thousands, and a pass runs every second
        for known in (recreations.waiting, recreations.lost):
            for partition in [one for one in known if one not in still]:
                del known[partition]
        first = self._next if self._next < len(pending) else 0
        chosen = pending[first : first + _READ_PER_PASS]
        self._next = first + len(chosen)
        assignments: dict[str, znodes.TopicAssignment | None] = {}
        has_changed = False
        for partition in chosen:
            try:
                if partition.topic not in assignments:
                    assignments[partition.topic] = await read_assignment(self._coordination, partition.topic)
                # Before the state is read: what a leader had asked for by then stands in it.
                is_known_offline = self._is_known_offline(partition)
                command = await read_command(self._coordination, partition, assignments[partition.topic])
                has_changed |= await self._look(
                    partition, command, is_catching_up=partition in refused, is_known_offline=is_known_offline
                )
            except znodes.ZnodeError as error:
                recreations.waiting[partition] = str(error)
        if has_changed:
            self._report()

    def _is_known_offline(self, partition: TopicPartition) -> bool:
        """Whether the controller has published that it takes the replica for offline, and has not heard otherwise."""
        known = self._replica_manager.metadata.partition(*partition)
        is_offline = known is not None and self._broker_id in known.offline_replicas
        return is_offline and partition in self._replica_manager.replicas.reported_offline

    async def _look(
        self,
        partition: TopicPartition,
        command: LeadershipCommand | None,
        *,
        is_catching_up: bool,
        is_known_offline: bool,
    ) -> bool:
        """Whether to report that the replica works."""
        recreations = self._recreations
        recreations.waiting.pop(partition, None)
        was_lost = recreations.lost.pop(partition, "") is None
        if command is None:
            if is_catching_up:
                await self._replica_manager.set_unassigned_aside([partition])
            return False
        decision = decide_recreation(
            self._broker_id,
            leader=command.leader,
            isr=command.isr,
            replicas=command.replicas,
            size_bytes=recreations.size_bytes(partition),
            targets=recreations.targets(),
            is_slot_free=recreations.is_slot_free,
            is_known_offline=is_known_offline,
            is_catching_up=is_catching_up,
        )
        if decision.action is RecreationAction.WAIT:
            recreations.waiting[partition] = decision.reason
            return False
        if decision.action is RecreationAction.LOST:
            recreations.lost[partition] = None
            if not was_lost:
                self._logger.error(
                    "%s is lost here: %s, on a log directory that is offline", partition, decision.reason
                )
            return False
        if decision.action is RecreationAction.LEAVE and is_catching_up:
            await self._replica_manager.set_unassigned_aside([partition])
            return False
        if decision.action is RecreationAction.REJOIN:
            await self._replica_manager.readmit([command])
            return True
        if decision.action is RecreationAction.CREATE:
            return await self._create(command, decision.path, decision.reason)
        return False

    async def _create(self, command: LeadershipCommand, path: str, reason: str) -> bool:
        partition = command.topic_partition
        manager = self._replica_manager
        # One whose directory is not known has been deleted, as far as the controller knows, unless it is reported
        # offline. Of one whose directory is known a deletion is answered KAFKA_STORAGE_ERROR while that is offline.
        reported_only = manager.replicas[partition].state is not LocalReplicaState.OFFLINE
        if reported_only and partition not in manager.replicas.reported_offline:
            return False
        self._logger.info("%s is recreated on %s, leader %d: %s", partition, path, command.leader, reason)
        try:
            await self._recreations.create(partition, command.topic_id, path)
        except KafkaError as error:
            self._logger.warning("%s cannot be recreated yet: %s", partition, error.message)
            self._recreations.waiting[partition] = error.message
            return False
        return await self._follow(partition, reported_only=reported_only)

    async def _follow(self, partition: TopicPartition, *, reported_only: bool) -> bool:
        """As the state says by now: an order to delete the replica, which came while it had no log, is not repeated;
        and the nodes of a topic that is deleted stand until the last broker has answered."""
        assignment = await read_assignment(self._coordination, partition.topic)
        command = await read_command(self._coordination, partition, assignment)
        if command is None or self._broker_id not in command.replicas:
            await self._replica_manager.set_unassigned_aside([partition])
            return False
        await self._replica_manager.readmit([command], reported_only=reported_only)
        if reported_only and self._replica_manager.partition(*partition) is None:
            await self._replica_manager.set_unassigned_aside([partition])
            return False
        return True
