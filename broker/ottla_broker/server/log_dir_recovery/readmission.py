"""Has the replicas of a reopened log directory lead and follow again, without a restart of the broker.

The partition's state in the coordination store is the truth: while the directory was offline, others may have been
elected. Each replica is checked against it (`replication.replica_states.reopened`) until it may act; one that is not
assigned to this broker any more becomes a stray.
The same for partitions that a person has given up: `forget` creates them again, empty, where no other copy exists.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla_broker.coordination import znodes
from ottla_broker.ports import Clock, Coordination
from ottla_broker.ports.coordination import CoordinationError
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager
from ottla_broker.replication.replica_states.commands import LeadershipCommand
from ottla_broker.replication.replica_states.local_replica import LocalReplicaState
from ottla_broker.replication.replica_states.reopened import ReturnAction
from ottla_broker.server.store.dynamic_config import BROKERS, DynamicConfig
from ottla_broker.server.store.partition_state import read_assignment, read_command

FORGOTTEN = "ottla.log.dirs.forgotten"
_ASK_AGAIN_S = 1.0
_TRY_AGAIN_S = 5.0
"""When no directory has taken an empty log; each time all topics are read."""


class Readmission:
    """Readmits the log directories of one broker. Everything runs on its loop."""

    def __init__(
        self,
        broker_id: int,
        coordination: Coordination,
        clock: Clock,
        replica_manager: ReplicaManager,
        dynamic_config: DynamicConfig,
        report: Callable[[], None],
        logger: logging.LoggerAdapter[Any],
    ) -> None:
        """`report` has the controller send LeaderAndIsr for this broker's replicas again."""
        self._broker_id = broker_id
        self._coordination = coordination
        self._clock = clock
        self._replica_manager = replica_manager
        self._dynamic_config = dynamic_config
        self._report = report
        self._logger = logger
        self._waiting: dict[TopicPartition, None] = {}
        """Replicas whose partition's state is to be read."""
        self._unreadable: dict[TopicPartition, None] = {}
        """Of those, the ones whose state cannot be read; it is logged once."""
        self._is_running = False
        self._has_to_forget = False
        self._is_forgetting = False
        self._refused: dict[TopicPartition, str] = {}
        """What is given up and cannot be created again yet, with the logged reason."""

    def add(self, path: str, logs: Mapping[TopicPartition, bool]) -> None:
        """A log directory is back with these logs; whether each has every record that it had. Those that are shorter
        answer KAFKA_STORAGE_ERROR until their partition's state admits them."""
        self._replica_manager.log_dir_reopened(path, logs)
        for partition in logs:
            self._waiting[partition] = None
            if self._replica_manager.replicas[partition].has_lost_tail:
                self._logger.warning("%s is back, and shorter than it was: what was not synced is lost here", partition)
        self._start()

    def _start(self) -> None:
        if self._waiting and not self._is_running:
            self._is_running = True
            self._clock.spawn(self._admit(), name="readmission of a log directory's replicas")

    async def _admit(self) -> None:
        try:
            while self._waiting:
                try:
                    await self._admit_some()
                except CoordinationError as error:
                    self._logger.warning("replicas of a reopened log directory cannot be admitted yet: %s", error)
                if self._waiting:
                    await self._clock.sleep(_ASK_AGAIN_S)
                else:
                    # Others may come back meanwhile.
                    await self._replica_manager.log_manager.markers.reopened_replicas_reported()
                    self._replica_manager.clear_power_loss()
        finally:
            self._is_running = False

    async def _admit_some(self) -> None:
        assignments: dict[str, znodes.TopicAssignment | None] = {}
        commands: list[LeadershipCommand] = []
        leaving: list[TopicPartition] = []
        settled: list[TopicPartition] = []
        for partition in list(self._waiting):
            current = self._replica_manager.partition(*partition)
            if current is not None:
                if current.replica.state is not LocalReplicaState.OFFLINE:
                    settled.append(partition)  # the controller was first
                continue  # else what failed with the directory is still to be dropped
            try:
                if partition.topic not in assignments:
                    assignments[partition.topic] = await read_assignment(self._coordination, partition.topic)
                command = await read_command(self._coordination, partition, assignments[partition.topic])
            except znodes.ZnodeError as error:
                if partition not in self._unreadable:
                    self._unreadable[partition] = None
                    self._logger.error("%s is back, and waits: %s", partition, error)
                continue
            if assignments[partition.topic] is None:
                settled.append(partition)
                self._logger.info("%s is back: its topic is gone", partition)
                leaving.append(partition)
                continue
            if command is None:
                settled.append(partition)
                continue
            decision = self._replica_manager.decide_readmission(command)
            if decision.action is ReturnAction.WAIT:
                continue
            settled.append(partition)
            self._logger.info("%s is back: %s", partition, decision.reason)
            if decision.action is ReturnAction.ADMIT:
                commands.append(command)
            elif decision.action is ReturnAction.LEAVE:
                leaving.append(partition)
        # Only now: had the coordination store failed in between, all would be asked about again.
        for partition in settled:
            self._waiting.pop(partition, None)
            self._unreadable.pop(partition, None)
        await self._replica_manager.set_unassigned_aside(leaving)
        await self._replica_manager.readmit(commands)
        if commands:
            # The controller sends LeaderAndIsr again, and hears that they work: one without a leader gets one.
            self._report()

    def forget(self) -> None:
        """Applies ottla.log.dirs.forgotten as it is now: gives up what only those directories had, where they are
        offline. The entry of one that is online is removed, so that it means nothing when that one fails."""
        if self._dynamic_config.config.ottla_log_dirs_forgotten:
            self._has_to_forget = True
            if not self._is_forgetting:
                self._is_forgetting = True
                self._clock.spawn(self._forget_all(), name="directories to be forgotten")

    async def _forget_all(self) -> None:
        states = self._replica_manager.log_manager.states
        try:
            while self._has_to_forget:
                self._has_to_forget = False
                pause_s = _ASK_AGAIN_S
                try:
                    named = self._dynamic_config.config.ottla_log_dirs_forgotten
                    live = [path for path in named if path not in states.offline]
                    if live:
                        await self._take_out(live)
                    named = self._dynamic_config.config.ottla_log_dirs_forgotten
                    given_up = [path for path in named if path in states.offline]
                    if given_up and not await self._forget(given_up):
                        # Naming the directory once more would change nothing, so it would not be noticed.
                        self._has_to_forget, pause_s = True, _TRY_AGAIN_S
                except CoordinationError as error:
                    self._logger.warning("what is to be forgotten cannot be read yet: %s", error)
                    self._has_to_forget = True
                if self._has_to_forget:
                    await self._clock.sleep(pause_s)
        finally:
            self._is_forgetting = False

    async def _take_out(self, live: list[str]) -> None:
        def without(stored: dict[str, str]) -> dict[str, str]:
            named = [one.strip() for one in stored.get(FORGOTTEN, "").split(",") if one.strip()]
            left = [one for one in named if one not in live]
            new = {name: value for name, value in stored.items() if name != FORGOTTEN}
            return {**new, FORGOTTEN: ",".join(left)} if left else new

        await self._dynamic_config.update(BROKERS, str(self._broker_id), without)
        self._logger.info("%s: online, so nothing of it is given up; removed from %s", ", ".join(live), FORGOTTEN)

    async def _forget(self, paths: Sequence[str]) -> bool:
        """Creates empty logs for the partitions that have this broker alone in sync. Those that no other broker has a
        copy of start at once, the others with the next leader epoch. Partitions with other in-sync replicas lose
        nothing.

        The directories together: of several that are offline since the start nobody knows which had what. False when
        a log could not be created yet: for lack of room, say, or of a directory that is not cordoned."""
        manager = self._replica_manager.log_manager
        refused: dict[TopicPartition, str] = {}
        for topic in list(self._replica_manager.metadata.topics):
            try:
                assignment = await read_assignment(self._coordination, topic)
            except znodes.ZnodeError as error:
                self._logger.error("nothing of %s is given up: %s", topic, error)
                continue
            if assignment is None:
                continue
            for index, replicas in sorted(assignment.partitions.items()):
                partition = TopicPartition(topic, index)
                if self._broker_id not in replicas or not manager.may_be_in(partition, paths):
                    continue
                try:
                    command = await read_command(self._coordination, partition, assignment)
                    if command is None or command.isr != (self._broker_id,):
                        continue
                    await self._replica_manager.forget(partition, command.topic_id)
                except (KafkaError, znodes.ZnodeError) as error:
                    refused[partition] = str(error)
                    if self._refused.get(partition) != str(error):
                        self._logger.error("%s cannot be created again: %s", partition, error)
                    continue
                self._logger.critical(
                    "%s: its records are given up, they were only on %s; it starts again, empty",
                    partition,
                    " or ".join(paths),
                )
                # At once: should the coordination store fail over the next one, nobody would look for this one any
                # more.
                self._waiting[partition] = None
                self._start()
        self._refused = refused
        return not refused
