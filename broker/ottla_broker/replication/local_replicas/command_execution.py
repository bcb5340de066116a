"""Carries out what the controller, or a partition's state in the coordination store, says about this broker's replicas.

Each command is decided by the table of `replica_states` and ends with the effects that it names: logs are opened,
created, deleted or made strays, partitions lead, follow or end.

Concurrency: commands run one after the other (the lock `commands`). Each sees the result of the one before, whatever
files that had to wait for. Produce and fetch requests never wait for the lock, nor for more than `_PARTITIONS_PER_TURN`
partitions of a command: a request of the controller may name every replica of the broker.

Not here: which commands are too old for the whole broker (`fencing`), finding partitions (`hosted_partitions`), timers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.local_replicas.fencing import CommandFence
from ottla_broker.replication.local_replicas.full_log_dirs import FullLogDirs
from ottla_broker.replication.local_replicas.hosted_partitions import is_another_topic
from ottla_broker.replication.local_replicas.local_replica_parts import LocalReplicaParts
from ottla_broker.replication.partition import Partition, PartitionContext
from ottla_broker.replication.replica_states.commands import LeadershipCommand, StopCommand
from ottla_broker.replication.replica_states.local_replica import LocalReplicaState
from ottla_broker.replication.replica_states.replica_events import (
    Assigned,
    BrokerStopping,
    LeaderAndIsrAnswered,
    LeaderAndIsrReceived,
    LogRemoved,
    NotAssigned,
    PartitionStateRead,
    ReplicaEffect,
    ServingEnded,
    StopReplicaReceived,
    TopicIdMatch,
    TopicReplaced,
)
from ottla_broker.replication.replica_states.states import decide
from ottla_broker.replication.replica_states.transitions import ReplicaDecision
from ottla_broker.storage.files.names import is_topic_name
from ottla_broker.storage.log.log import Log

_NAMED_PARTITIONS = 100
"""A command about more partitions than these is logged as one line; a line each is for the level DEBUG."""

_PARTITIONS_PER_TURN = 100
"""After so many partitions of a command the loop does other work."""

LeadershipListener: TypeAlias = Callable[[Sequence[Partition], Sequence[Partition]], None]
"""Takes (became leader, became follower or stopped) after each command that changes something."""


class CommandExecution:
    """Carries out the commands of one broker.

    Args:
        context: what a new partition needs.
        resume_moves: called with the partitions of a command: moves between log directories that a restart has
            interrupted go on.
    """

    def __init__(
        self,
        context: PartitionContext,
        parts: LocalReplicaParts,
        fence: CommandFence,
        full_log_dirs: FullLogDirs,
        resume_moves: Callable[[Sequence[Partition]], None],
    ) -> None:
        self._context = context
        self._clock = parts.clock
        self._log_manager = parts.log_manager
        self._fence = fence
        self._replicas = parts.replicas
        self._partitions = parts.partitions
        self._fetchers = parts.fetchers
        self._full_log_dirs = full_log_dirs
        self._commands = parts.commands
        self._resume_moves = resume_moves
        self._logger = parts.logger
        self._loading: asyncio.Task[Exception | None] | None = None
        self._listeners: list[LeadershipListener] = []
        self.is_shutting_down = False
        """The broker is in controlled shutdown: it begins to follow only where it is in the ISR."""
        self.is_stopped = False

    def add_listener(self, listener: LeadershipListener) -> None:
        self._listeners.append(listener)

    async def stop(self) -> None:
        """Stops following and leading: nothing is acknowledged from then on."""
        self.is_stopped = True
        if self._loading is not None:
            self._loading.cancel()
        async with self._commands:
            await self._fetchers.close()
            for number, partition in enumerate(self._partitions):
                await self._yield_after(number)
                self._replicas.apply(partition.topic_partition, BrokerStopping())
                partition.resign()
            await self._log_manager.checkpoint_high_watermarks()

    # LeaderAndIsr

    async def apply_leadership(
        self,
        controller_epoch: int,
        commands: Sequence[LeadershipCommand],
        *,
        is_full: bool = False,
        load_topic: Callable[[str], Awaitable[object]] | None = None,
        connection: int | None = None,
    ) -> dict[TopicPartition, ErrorCode] | ErrorCode:
        """LeaderAndIsr: an error for each partition, or one for all (STALE_CONTROLLER_EPOCH).

        NONE also for a repeated command when an answer was KAFKA_STORAGE_ERROR since the last newer one: the replica is
        back. As often as it is repeated: an answer may be lost, and nothing else tells the controller.

        Per partition, in this order: INVALID_PARTITIONS and INVALID_TOPIC_EXCEPTION (no directory may be made for such
        a name), KAFKA_STORAGE_ERROR (its directory is offline), INCONSISTENT_TOPIC_ID,
        STALE_CONTROLLER_EPOCH (the leader epoch is not greater than the known one, unless only the topic id is new),
        UNKNOWN_TOPIC_OR_PARTITION (this broker is no replica).

        Args:
            is_full: the request names every partition of this broker. What it does not name is stray: stopped and
                deleted, or renamed to -stray when no command has named it since the start. What is served of a topic
                that it names with another id becomes a stray, and is not answered with INCONSISTENT_TOPIC_ID.
            load_topic: called for each topic that is new here.
            connection: as in `CommandFence.accepts`.
        """
        # Of several for one partition the last counts: both would pass the check of the leader epoch.
        commands = list({command.topic_partition: command for command in commands}.values())
        async with self._commands:
            if not self._fence.accepts(controller_epoch, connection):
                return ErrorCode.STALE_CONTROLLER_EPOCH
            if is_full and not self.is_stopped:
                await self._set_replaced_topics_aside(commands)  # first: the configuration is another topic's too
            if load_topic is not None:
                # Within the lock: a full request that fell behind a later one would delete what that one made.
                names = dict.fromkeys(command.topic_partition.topic for command in commands)
                topics = self._partitions.topics
                await self._load_topics(
                    [name for name in names if name not in topics and is_topic_name(name)], load_topic
                )
            if self.is_stopped:
                return {command.topic_partition: ErrorCode.REPLICA_NOT_AVAILABLE for command in commands}
            errors: dict[TopicPartition, ErrorCode] = {}
            accepted: list[LeadershipCommand] = []
            full: dict[TopicPartition, None] = {}
            for number, command in enumerate(commands):
                await self._yield_after(number)
                tp = command.topic_partition
                decision = self._check(command)
                errors[tp] = decision.error
                partition = self._partitions.get(*tp)
                if ReplicaEffect.ASSIGN in decision.effects:
                    accepted.append(command)
                elif ReplicaEffect.SET_TOPIC_ID in decision.effects and partition is not None:
                    self._partitions.set_topic_id(partition, command.topic_id)
                elif decision.error is ErrorCode.KAFKA_STORAGE_ERROR:
                    if decision.replica.has_lost_tail or not decision.replica.is_caught_up:
                        self._logger.info("%s is not used yet: %s", tp, decision.reason)
                    if partition is not None and partition.log.state.is_full:
                        full[tp] = None
            leaders, followers = await self._assign_all(accepted, errors)
            handed_over = await self._record_answers(commands, errors, full)
            stray = await self._remove_strays(commands) if is_full else []
            await self._follow(followers)
            self._resume_moves([*leaders, *followers])
            self._notify(leaders, [*followers, *handed_over, *stray])
            return errors

    async def _yield_after(self, number: int) -> None:
        """Lets the loop do other work now and then, when `number` partitions of a command are done."""
        if number and not number % _PARTITIONS_PER_TURN:
            await self._clock.sleep(0)

    def _check(self, command: LeadershipCommand) -> ReplicaDecision:
        tp = command.topic_partition
        partition = self._partitions.get(*tp)
        replica = self._replicas[tp]
        if partition is None and tp.partition < 0:
            return ReplicaDecision(replica, reason="no such partition", error=ErrorCode.INVALID_PARTITIONS)
        if partition is None and not is_topic_name(tp.topic):
            return ReplicaDecision(replica, reason="no topic name", error=ErrorCode.INVALID_TOPIC_EXCEPTION)
        log = self._log_manager.get(tp) if partition is None else partition.log
        is_full = log is not None and log.state.is_full and replica.state is not LocalReplicaState.OFFLINE
        event = LeaderAndIsrReceived(
            self._context.broker_id,
            command,
            _topic_id_match(ZERO_UUID if partition is None else partition.topic_id, command.topic_id),
            self._full_log_dirs.leave_to_others(tp, command.isr) if is_full else "",
        )
        return decide(replica, event)

    async def _assign_all(
        self, accepted: Sequence[LeadershipCommand], errors: dict[TopicPartition, ErrorCode]
    ) -> tuple[list[Partition], list[Partition]]:
        """(those that lead now, those that do not); a log that cannot be opened or created becomes an error."""
        await self._fetchers.remove([command.topic_partition for command in accepted])
        leaders: list[Partition] = []
        followers: list[Partition] = []
        for number, (command, opened) in enumerate(zip(accepted, await self._open_logs(accepted), strict=True)):
            await self._yield_after(number)
            tp = command.topic_partition
            if isinstance(opened, KafkaError):
                self._logger.error("%s: %s", tp, opened.message)
                errors[tp] = opened.code
            elif isinstance(opened, Exception):
                # Unexpected, and no reason to leave the other partitions of the request unfollowed.
                self._logger.error("%s cannot be used", tp, exc_info=opened)
                errors[tp] = ErrorCode.KAFKA_STORAGE_ERROR
            elif isinstance(opened, BaseException):
                raise opened
            else:
                is_leader = command.leader == self._context.broker_id
                stays_stopped = self.is_shutting_down and self._context.broker_id not in command.isr
                assigned = Assigned(command.leader_epoch, is_leader, opened.state.disk.path, stays_stopped)
                decision = self._replicas.apply(tp, assigned)
                if decision.error is not ErrorCode.NONE:
                    self._logger.warning("%s: LeaderAndIsr refused: %s", tp, decision.reason)
                    errors[tp] = decision.error
                else:
                    partition = self._assign(command, opened)
                    (leaders if partition.is_leader else followers).append(partition)
        level = logging.INFO if len(accepted) <= _NAMED_PARTITIONS else logging.DEBUG
        for partition in (*leaders, *followers) if self._logger.isEnabledFor(level) else ():
            self._logger.log(level, "%r, isr %s", partition, list(partition.in_sync.committed))
        if level != logging.INFO:
            self._logger.info("leads %d partitions more, follows %d", len(leaders), len(followers))
        return leaders, followers

    async def _follow(self, followers: Sequence[Partition]) -> None:
        for start in range(0, len(followers), _PARTITIONS_PER_TURN):
            await self._yield_after(start)
            some = followers[start : start + _PARTITIONS_PER_TURN]
            self._fetchers.add([partition for partition in some if not partition.replica.is_idle])

    async def _open_logs(self, commands: Sequence[LeadershipCommand]) -> list[Log | BaseException]:
        """The log of each, created where there is none, many at once: each creation waits for several syncs."""
        opened: list[Log | BaseException] = []
        for start in range(0, len(commands), _PARTITIONS_PER_TURN):
            some = commands[start : start + _PARTITIONS_PER_TURN]
            opened += await asyncio.gather(*map(self._open_log, some), return_exceptions=True)
        return opened

    async def _open_log(self, command: LeadershipCommand) -> Log:
        tp = command.topic_partition
        log = self._log_manager.get(tp)
        if (
            log is not None
            and self._partitions.get(*tp) is None
            and is_another_topic(log.state.topic_id, command.topic_id)
        ):
            self._logger.warning(
                "%s on disk belongs to topic id %s, the topic has %s now: making it a stray",
                tp,
                (log.state.topic_id or b"").hex(),
                command.topic_id.hex(),
            )
            self._replicas.apply(tp, TopicReplaced())
            try:
                await self._log_manager.make_stray(tp)
            finally:
                self._replicas.apply(tp, LogRemoved())
        return await self._log_manager.get_or_create(tp, command.topic_id, command.is_new)

    def _assign(self, command: LeadershipCommand, log: Log) -> Partition:
        """Nothing waits here: no request may come between an epoch's entry and the leadership it belongs to."""
        tp = command.topic_partition
        partition = self._partitions.get(*tp)
        if partition is None:
            topic_id = command.topic_id
            if topic_id == ZERO_UUID and log.state.topic_id is not None:
                topic_id = log.state.topic_id
            partition = Partition(self._context, tp, log, topic_id)
            partition.led = self._replicas[tp].led
            partition.set_replica(self._replicas[tp])
            self._partitions.add(partition)
        elif command.topic_id != ZERO_UUID and partition.topic_id == ZERO_UUID:
            self._partitions.set_topic_id(partition, command.topic_id)
        partition.adding, partition.removing = command.adding, command.removing
        partition.is_in_last_known_isr = self._context.broker_id in command.isr
        if command.leader == self._context.broker_id:
            log.assign_epoch(command.leader_epoch, log.state.assigned_offset)
            partition.become_leader(
                command.leader_epoch, command.partition_epoch, command.controller_epoch, command.replicas, command.isr
            )
        else:
            partition.become_follower(
                command.leader,
                command.leader_epoch,
                command.partition_epoch,
                command.controller_epoch,
                command.replicas,
            )
        return partition

    async def _record_answers(
        self,
        commands: Sequence[LeadershipCommand],
        errors: Mapping[TopicPartition, ErrorCode],
        full: Mapping[TopicPartition, None],
    ) -> list[Partition]:
        """What the controller hears. Gives the partitions that others lead from now on: until their log has room they
        neither lead nor follow, also when it has got room while the other commands were carried out."""
        handed_over: list[Partition] = []
        for number, command in enumerate(commands):
            await self._yield_after(number)
            tp = command.topic_partition
            answered = LeaderAndIsrAnswered(errors[tp], command.leader_epoch, tp in full)
            decision = self._replicas.apply(tp, answered)
            partition = self._partitions.get(*tp)
            if ReplicaEffect.RESIGN in decision.effects and partition is not None:
                handed_over.append(partition)
        if handed_over:
            self._logger.warning("full log directories: other brokers in sync lead %d replicas", len(handed_over))
            await self._fetchers.remove([partition.topic_partition for partition in handed_over])
            for partition in handed_over:
                partition.resign()
                self._full_log_dirs.report_room(partition)
        return handed_over

    async def _load_topics(self, names: Sequence[str], load: Callable[[str], Awaitable[object]]) -> None:
        """Left unfinished when the broker stops: the coordination store may be out of reach, and `stop` waits for the
        lock."""

        async def load_all() -> Exception | None:
            try:
                for name in names:
                    await load(name)
            except Exception as error:  # raised by whoever waits
                return error
            return None

        if names and not self.is_stopped:
            self._loading = self._clock.spawn(load_all(), name="configuration of new topics")
            await asyncio.wait([self._loading])
            if not self._loading.cancelled() and (error := self._loading.result()) is not None:
                raise error

    # StopReplica and removal

    async def stop_replicas(
        self, controller_epoch: int, commands: Sequence[StopCommand], *, connection: int | None = None
    ) -> dict[TopicPartition, ErrorCode] | ErrorCode:
        """StopReplica: an error for each partition, or STALE_CONTROLLER_EPOCH for all.

        Per partition: REPLICA_NOT_AVAILABLE (this broker stops), KAFKA_STORAGE_ERROR (offline directory; also
        what is stopped only and waits with a shorter log), FENCED_LEADER_EPOCH (the command is older than what this
        broker knows; -1 and -2 are never). A log without a partition is deleted too: its topic may have gone while
        this broker was down. `connection` as in `CommandFence.accepts`.
        """
        async with self._commands:
            if not self._fence.accepts(controller_epoch, connection):
                return ErrorCode.STALE_CONTROLLER_EPOCH
            if self.is_stopped:
                # The logs are being closed; the controller asks again when this broker has come back.
                return {command.topic_partition: ErrorCode.REPLICA_NOT_AVAILABLE for command in commands}
            errors: dict[TopicPartition, ErrorCode] = {}
            stopped: list[Partition] = []
            for number, command in enumerate(commands):
                await self._yield_after(number)
                tp = command.topic_partition
                event = StopReplicaReceived(command.leader_epoch, command.delete)
                partition = self._partitions.get(*tp)
                decision = decide(self._replicas[tp], event)
                if decision.error is ErrorCode.NONE:
                    await self._fetchers.remove([tp])
                    decision = self._replicas.apply(tp, event)  # its directory may have failed meanwhile
                if decision.error is not ErrorCode.NONE:
                    errors[tp] = decision.error
                    continue
                if partition is not None and ReplicaEffect.RESIGN in decision.effects:
                    partition.resign()
                errors[tp] = await self._carry_out_removal(tp, decision, is_asked=True)
                if partition is not None:
                    stopped.append(partition)
            self._notify([], stopped)
            return errors

    async def _carry_out_removal(
        self, tp: TopicPartition, decision: ReplicaDecision, *, is_asked: bool = False
    ) -> ErrorCode:
        """The effects that end with no log here, of those that `decision` has. `is_asked`: StopReplica deletes it."""
        partition = self._partitions.get(*tp)
        if ReplicaEffect.END_SERVING in decision.effects and partition is not None:
            self._partitions.remove(partition)
        removals = {
            ReplicaEffect.DELETE_LOG: self._log_manager.delete,
            ReplicaEffect.SET_LOG_ASIDE: self._log_manager.make_stray,
        }
        error = ErrorCode.NONE
        for effect in decision.effects:
            if effect in removals:
                try:
                    await removals[effect](tp)
                except KafkaError as failure:
                    self._logger.error("%s cannot be removed: %s", tp, failure.message)
                    error = failure.code
                self._replicas.apply(tp, LogRemoved(is_deleted=is_asked and error is ErrorCode.NONE))
        return error

    async def _set_replaced_topics_aside(self, commands: Sequence[LeadershipCommand]) -> None:
        """Ends what is served here of topics that were deleted, and created again, while this broker heard nothing."""
        ids = {command.topic_partition.topic: command.topic_id for command in commands}
        for partition in self._partitions:
            tp, topic_id = partition.topic_partition, ids.get(partition.topic, ZERO_UUID)
            if is_another_topic(partition.topic_id, topic_id):
                await self._fetchers.remove([tp])
                if partition.replica.state is LocalReplicaState.OFFLINE:
                    continue  # compared when its directory is back
                self._logger.warning("%s has topic id %s now: making the former one a stray", tp, topic_id.hex())
                decision = self._replicas.apply(tp, TopicReplaced())
                await self._carry_out_removal(tp, decision)
                self._notify([], [partition])

    async def _remove_strays(self, commands: Sequence[LeadershipCommand]) -> list[Partition]:
        """What a full request does not name. Gives the partitions among it."""
        named = {command.topic_partition for command in commands}
        stray = [partition for partition in self._partitions if partition.topic_partition not in named]
        for partition in stray:
            tp = partition.topic_partition
            self._logger.warning("%s is not assigned to this broker any more: deleting it", tp)
            await self._fetchers.remove([tp])
            await self._carry_out_removal(tp, self._replicas.apply(tp, NotAssigned()))
        for log in self._log_manager.logs:
            tp = log.state.topic_partition
            if tp not in named and self._partitions.get(*tp) is None:
                self._logger.warning("%s was found on disk and is not assigned to this broker: making it a stray", tp)
                await self._carry_out_removal(tp, self._replicas.apply(tp, NotAssigned()))
        return stray

    # Log directories

    def end_serving_offline(self) -> None:
        """A log directory is offline: its partitions neither lead nor follow any more. Requests are answered
        KAFKA_STORAGE_ERROR from now on; the rest follows once the command under way is carried out."""
        self._clock.spawn(self._end_serving_offline(), name="replicas of a failed log directory")

    async def _end_serving_offline(self) -> None:
        async with self._commands:
            # By their states: by now, behind a long command, the directory may be back, or they be recreated elsewhere.
            offline = [
                partition for partition in self._partitions if partition.replica.state is LocalReplicaState.OFFLINE
            ]
            await self._fetchers.remove([partition.topic_partition for partition in offline])
            for partition in offline:
                self._replicas.apply(partition.topic_partition, ServingEnded(partition.last_led()))
                self._partitions.remove(partition, ErrorCode.KAFKA_STORAGE_ERROR)
            self._notify([], offline)

    async def readmit(self, states: Sequence[LeadershipCommand], *, reported_only: bool = False) -> None:
        """Replicas that are back lead and follow by `states`, their partitions' in the coordination store.

        A repeated command of the controller is answered NONE: that is how it learns that they are back.
        `reported_only`: one without a partition only while the controller takes it for offline.
        """
        async with self._commands:
            if self.is_stopped:
                return
            accepted = []
            for state in states:
                tp = state.topic_partition
                # What has no log was deleted since its state was read: the znodes of a topic stand until all of it is
                # gone.
                is_here = self._log_manager.get(tp) is not None
                event = PartitionStateRead(state.leader_epoch, is_here, reported_only)
                if ReplicaEffect.ASSIGN in decide(self._replicas[tp], event).effects:
                    accepted.append(state)
            leaders, followers = await self._assign_all(accepted, {})
            await self._follow(followers)
            self._notify(leaders, followers)

    async def set_unassigned_aside(self, partitions: Sequence[TopicPartition]) -> None:
        """Logs that are back, or recreated, and, as the coordination store says, not this broker's any more.

        The controller may have asked for their deletion while the directory was offline, and may be another by now. If
        it asks again they are deleted. What it has assigned here meanwhile stays.
        """
        async with self._commands:
            for tp in partitions:
                if not self.is_stopped and self._partitions.get(*tp) is None:
                    await self._carry_out_removal(tp, self._replicas.apply(tp, NotAssigned()))

    def _notify(self, leaders: Sequence[Partition], others: Sequence[Partition]) -> None:
        if leaders or others:
            for listener in self._listeners:
                listener(leaders, others)


def _topic_id_match(known_id: bytes, topic_id: bytes) -> TopicIdMatch:
    """`known_id` is the partition's, zeros where there is none.

    >>> _topic_id_match(ZERO_UUID, b"a" * 16).value, _topic_id_match(b"a" * 16, ZERO_UUID).value
    ('new', 'missing')
    """
    if known_id == topic_id:
        return TopicIdMatch.SAME
    if known_id == ZERO_UUID:
        return TopicIdMatch.NEW
    return TopicIdMatch.MISSING if topic_id == ZERO_UUID else TopicIdMatch.OTHER
