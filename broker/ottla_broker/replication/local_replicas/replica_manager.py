"""ReplicaManager: the partitions of this broker, and the controller's commands about them.

Lives here: finding a partition, taking LeaderAndIsr and StopReplica in, the timers of replication, waking fetches.
Not here: what one partition does (`partition`), following (`fetchers`), wire formats. On the calling side of Clock.

Commands are taken in one after the other (`_commands`): each sees the result of the one before, whatever files it had
to wait for. Produce and fetch requests never wait for that lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ottla_broker.config.inter_broker import inter_broker_versions
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.metrics import Metrics
from ottla_broker.ports import Clock
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.alter_partition import AlterPartitionQueue, SendAlterPartition
from ottla_broker.replication.delayed import TimerWheel
from ottla_broker.replication.fetch_client import ConnectToBroker
from ottla_broker.replication.fetchers import Fetchers
from ottla_broker.replication.gauges import isr_counters, register_gauges
from ottla_broker.replication.local_replicas.commands import LeadershipCommand, StopCommand
from ottla_broker.replication.local_replicas.fencing import CommandFence
from ottla_broker.replication.local_replicas.full_log_dirs import FullDirectories
from ottla_broker.replication.local_replicas.future_replicas import LogMoves
from ottla_broker.replication.local_replicas.recreation import Recreations
from ottla_broker.replication.local_replicas.recreation_rules import may_lead
from ottla_broker.replication.local_replicas.reopened import ReturnAction, ReturnDecision, decide_return
from ottla_broker.replication.partition import NO_EPOCH, NO_LEADER, Partition, Waiter
from ottla_broker.replication.quotas import ReplicationQuotas
from ottla_broker.storage.files.names import is_topic_name
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.log_manager import LogManager

_NAMED_PARTITIONS = 100
"""A command about more partitions than these is told in one line; a line each is for the level DEBUG."""

EPOCH_DURING_DELETE = -2
"""Leader epoch of StopReplica for a topic that is being deleted: overrules every epoch."""


class ReplicaManager:
    """See the module. `log_manager` has loaded its logs when `start` is called.

    `broker_epoch` gives this broker's current epoch (the czxid of its registration); `send_alter_partition` and
    `connect` reach the controller and the other brokers; `listener` names the inter-broker listener.
    `report_directories` writes the event that has the controller ask again about this broker's replicas.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        config: Mapping[str, Any],
        clock: Clock,
        log_manager: LogManager,
        metadata: MetadataCache,
        metrics: Metrics,
        broker_epoch: Callable[[], int],
        send_alter_partition: SendAlterPartition,
        connect: ConnectToBroker,
        listener: str,
        report_directories: Callable[[], None] = lambda: None,
    ) -> None:
        self.broker_id = broker_id
        self.logger = logging.LoggerAdapter(logging.getLogger("ottla.replication"), {"broker": broker_id})
        self.clock = clock
        self.log_manager = log_manager
        self.metadata = metadata
        self.wheel = TimerWheel(clock)
        self.topics: dict[str, dict[int, Partition]] = {}
        """The partitions of this broker by topic and index: the hot path's look-up."""
        self.lag_max_ms: int = config["replica.lag.time.max.ms"]
        self.fence = CommandFence(clock, broker_epoch, self.logger)
        self._checkpoint_interval_s: float = config["replica.high.watermark.checkpoint.interval.ms"] / 1000
        self._is_checkpointing = False
        self._is_stopped = False
        self._loading: asyncio.Task[Exception | None] | None = None
        self._alter_partition = AlterPartitionQueue(
            clock,
            broker_id,
            broker_epoch,
            send_alter_partition,
            inter_broker_versions(config["inter.broker.protocol.version"]).alter_partition,
            self.logger,
        )
        self.recreations = Recreations(self, clock, metrics, self.logger)
        self.quotas = ReplicationQuotas(config, clock, metrics)
        self._fetchers = Fetchers(
            broker_id,
            config,
            clock,
            metadata,
            broker_epoch,
            connect,
            listener,
            metrics,
            self.logger,
            self.quotas,
            self.recreations,
        )
        self._commands = asyncio.Lock()
        self.moves = LogMoves(self, clock, self._commands, self._fetchers, metrics, self.logger, report_directories)
        self.held = self.moves.held
        """Partitions whose produce requests have to wait (`moves.wait_for_swap`); almost always empty."""
        self._woken: list[Waiter] = []
        self._wake_is_scheduled = False
        self._leadership_listeners: list[Callable[[Sequence[Partition], Sequence[Partition]], None]] = []
        self._metrics = metrics
        self._topic_names: dict[bytes, str] = {}
        self._told_offline: dict[TopicPartition, None] = {}
        """Partitions for which the controller was last answered KAFKA_STORAGE_ERROR."""
        self._held: dict[TopicPartition, None] = {}
        """Replicas that are back with a shorter log than before (`offline.py`)."""
        self._full = FullDirectories(metadata, report_directories)
        self._last_epochs: dict[TopicPartition, int] = {}
        """Of partitions whose directory went offline: the leader epoch that each had, or a later one of a command that
        was answered KAFKA_STORAGE_ERROR."""
        self._isr_changes = isr_counters(metrics)
        register_gauges(metrics, self, config["transaction.max.timeout.ms"])

    def start(self) -> None:
        """Starts the timers."""
        self.clock.call_later(self.lag_max_ms / 2000, self._shrink_isrs)
        self.clock.call_later(self._checkpoint_interval_s, self._checkpoint)

    async def stop(self) -> None:
        """Stops following and leading, gives waiting requests back, and writes the high watermarks.

        From then on clients hear NOT_LEADER_OR_FOLLOWER: nothing is acknowledged behind the last flush.
        """
        self._is_stopped = True
        if self._loading is not None:
            self._loading.cancel()
        async with self._commands:
            await self._fetchers.close()
            for partition in self.partitions():
                partition.resign()
            await self.log_manager.checkpoint_high_watermarks()

    def add_leadership_listener(self, listener: Callable[[Sequence[Partition], Sequence[Partition]], None]) -> None:
        """`listener(became leader, became follower or stopped)` after each command that changes something."""
        self._leadership_listeners.append(listener)

    # Finding partitions

    def partitions(self) -> Iterator[Partition]:
        for by_index in list(self.topics.values()):
            yield from list(by_index.values())

    def partition(self, topic: str, index: int) -> Partition | None:
        by_index = self.topics.get(topic)
        return None if by_index is None else by_index.get(index)

    def partition_or_error(self, topic: str, index: int) -> Partition | ErrorCode:
        """The partition, or why there is none here: 56 (offline directory), 6 (elsewhere), 3 (nowhere)."""
        by_index = self.topics.get(topic)
        partition = None if by_index is None else by_index.get(index)
        if partition is not None:
            is_lost = partition.log.is_failed and not self._is_stopped
            return ErrorCode.KAFKA_STORAGE_ERROR if is_lost else partition
        if self.is_offline(TopicPartition(topic, index)):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.metadata.partition(topic, index) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @property
    def has_offline(self) -> bool:
        """Whether `is_offline` holds for any partition."""
        return bool(self._held) or self.log_manager.offline_replica_count > 0

    def is_offline(self, tp: TopicPartition) -> bool:
        """Whether this broker's replica is on an offline directory, or back from one and not to be used yet."""
        return tp in self._held or self.log_manager.is_on_offline_directory(tp)

    def leader_or_error(self, topic: str, index: int, current_leader_epoch: int) -> Partition | ErrorCode:
        """The same, fenced by the client's epoch (KIP-320) and only when this broker leads."""
        found = self.partition_or_error(topic, index)
        if isinstance(found, ErrorCode):
            return found
        error = found.check_epoch(current_leader_epoch)
        if error is not ErrorCode.NONE:
            return error
        return found if found.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def topic_name(self, topic_id: bytes) -> str | None:
        """By this broker's own partitions first: a leader may be asked before it has heard UpdateMetadata."""
        return self._topic_names.get(topic_id) or self.metadata.topic_name(topic_id)

    # Surroundings of the partitions

    def now_ms(self) -> int:
        return int(self.clock.monotonic() * 1000)

    def live_brokers(self) -> Collection[int]:
        return self.metadata.brokers.keys()

    def wake(self, waiters: Iterable[Waiter]) -> None:
        """Later, in one turn for many appends: a fetch that is answered at once for each would read too little,
        and no append may run inside another's bookkeeping. Whoever is woken by one of the woken has its turn behind
        all of them."""
        woken = self._woken
        for waiter in waiters:
            if not waiter.is_woken:
                waiter.is_woken = True
                woken.append(waiter)
        if woken and not self._wake_is_scheduled:
            self._wake_is_scheduled = True
            self.clock.call_soon(self._run_woken)

    def _run_woken(self) -> None:
        for waiter in self._woken:  # which grows meanwhile
            waiter.is_woken = False
            try:
                waiter.on_progress()
            except Exception:
                self.logger.exception("a waiting fetch failed")
        self._woken = []
        self._wake_is_scheduled = False

    def propose_isr(self, partition: Partition) -> None:
        state = partition.in_sync
        self._isr_changes["expands" if len(state.proposed) > len(state.committed) else "shrinks"].inc()
        self.logger.info("ISR of %s: asking for %s", partition.topic_partition, list(state.proposed))
        self._alter_partition.submit(partition)

    def resize_fetchers(self) -> None:
        """num.replica.fetchers has changed."""
        self._fetchers.resize()

    def on_metadata_changed(self) -> None:
        """After UpdateMetadata: leaders may have appeared, moved or gone."""
        self._fetchers.on_metadata_changed()
        self._full.on_metadata_changed()
        for partition in self.partitions():
            if partition.deletions:
                partition.check_deletions()
            if partition.is_leader and partition.log.high_watermark < partition.log.log_end_offset:
                # A follower outside the ISR that had caught up is waited for; it may be the one that has gone.
                partition.advance_high_watermark()

    # Commands of the controller

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
        UNKNOWN_TOPIC_OR_PARTITION (this broker is no replica). With `is_full` the request names every partition of
        this broker, and what it does not name is stray: stopped and deleted, or set aside when nobody has told this
        broker to serve it since it started. What is served of a topic that it names with another id is set aside, and
        not answered with INCONSISTENT_TOPIC_ID. `load_topic` is called for each topic that is new here. `connection` as
        in `fence.accepts`.
        """
        async with self._commands:
            if not self.fence.accepts(controller_epoch, connection):
                return ErrorCode.STALE_CONTROLLER_EPOCH
            if is_full and not self._is_stopped:
                await self._set_namesakes_aside(commands)  # first: the configuration is another one's too
            if load_topic is not None:
                # Within the lock: a full request that fell behind a later one would delete what that one made.
                names = dict.fromkeys(command.topic_partition.topic for command in commands)
                await self._load_topics(
                    [name for name in names if name not in self.topics and is_topic_name(name)], load_topic
                )
            if self._is_stopped:
                return {command.topic_partition: ErrorCode.REPLICA_NOT_AVAILABLE for command in commands}
            errors: dict[TopicPartition, ErrorCode] = {}
            accepted: list[LeadershipCommand] = []
            full: list[Partition] = []
            for command in commands:
                error, is_change = self._check(command)
                errors[command.topic_partition] = error
                if is_change:
                    accepted.append(command)
                elif error is ErrorCode.KAFKA_STORAGE_ERROR:
                    partition = self.partition(*command.topic_partition)
                    if partition is not None and partition.log.is_full:
                        full.append(partition)
            leaders, followers = await self._carry_out_all(accepted, errors)
            followers += self._stopped_followers(errors, accepted)
            for command in commands:
                tp, error = command.topic_partition, errors[command.topic_partition]
                if error is ErrorCode.KAFKA_STORAGE_ERROR:
                    self._told_offline[tp] = None
                    self._last_epochs[tp] = max(command.leader_epoch, self._last_epochs.get(tp, NO_EPOCH))
                elif error is ErrorCode.NONE and tp in self._told_offline:
                    del self._told_offline[tp]
                    partition = self.partition(*tp)
                    if partition is not None:
                        partition.told_back_at = partition.leader_epoch
            # Also one that has got room while the others were carried out: the controller is told that it is offline.
            handed_over = [partition for partition in full if not partition.log.is_failed]
            await self._hand_over(handed_over)
            stray = await self._stop_strays(commands) if is_full else []
            self._fetchers.add(followers)
            self.moves.resume([*leaders, *followers])
            self._tell_listeners(leaders, [*followers, *handed_over, *stray])
            return errors

    async def _carry_out_all(
        self, accepted: Sequence[LeadershipCommand], errors: dict[TopicPartition, ErrorCode]
    ) -> tuple[list[Partition], list[Partition]]:
        """(those that lead now, those that follow); a log that cannot be had becomes an error."""
        await self._fetchers.remove([command.topic_partition for command in accepted])
        leaders: list[Partition] = []
        followers: list[Partition] = []
        for command, created in zip(accepted, await self._logs_of(accepted), strict=True):
            if isinstance(created, KafkaError):
                self.logger.error("%s: %s", command.topic_partition, created.message)
                errors[command.topic_partition] = created.code
                continue
            if isinstance(created, Exception):
                # Nobody's expectation, and no reason to leave the other partitions of the request unfollowed.
                self.logger.error("%s cannot be used", command.topic_partition, exc_info=created)
                errors[command.topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            if isinstance(created, BaseException):
                raise created
            if self._is_too_new(command):  # made anew since it was checked
                errors[command.topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            self._held.pop(command.topic_partition, None)
            self._last_epochs.pop(command.topic_partition, None)
            self._full.take_back(command.topic_partition)
            partition = self._carry_out(command, created)
            (leaders if partition.is_leader else followers).append(partition)
        level = logging.INFO if len(accepted) <= _NAMED_PARTITIONS else logging.DEBUG
        for partition in (*leaders, *followers) if self.logger.isEnabledFor(level) else ():
            self.logger.log(level, "%r, isr %s", partition, list(partition.in_sync.committed))
        if level != logging.INFO:
            self.logger.info("leads %d partitions more, follows %d", len(leaders), len(followers))
        return leaders, followers

    async def _hand_over(self, partitions: Sequence[Partition]) -> None:
        """Others lead what stands on a full directory; until there is room these neither lead nor follow."""
        if not partitions:
            return
        self.logger.warning("full log directories: %d replicas are left to others in sync", len(partitions))
        await self._fetchers.remove([partition.topic_partition for partition in partitions])
        for partition in partitions:
            partition.resign()
            self._full.hand_over(partition)

    def hold(self, tp: TopicPartition) -> None:
        """The replica is back with a shorter log than before: it answers KAFKA_STORAGE_ERROR until the partition's
        state allows it to act (`offline.py`)."""
        self._held[tp] = None

    def decide_return(self, state: LeadershipCommand, *, is_whole: bool) -> ReturnDecision:
        """What becomes of a replica that is back, by its partition's state (`offline.py`)."""
        return decide_return(
            self.broker_id,
            leader=state.leader,
            isr=state.isr,
            replicas=state.replicas,
            leader_epoch=state.leader_epoch,
            last_epoch=self._last_epochs.get(state.topic_partition),
            is_whole=is_whole,
        )

    async def readmit(self, commands: Sequence[LeadershipCommand], *, told_only: bool = False) -> None:
        """Replicas that are back lead and follow by what the coordination store says of them, not by the controller's
        word.

        A repeated command of the controller is answered NONE: that is how it learns that they are back. `told_only`:
        one without a partition only while the controller takes it for offline.
        """
        async with self._commands:
            if self._is_stopped:
                return
            # What has no log was deleted since its state was read: the nodes of a topic stand until all of it is gone.
            here = [command for command in commands if self.log_manager.get(command.topic_partition) is not None]
            new = [command for command in here if self._is_newer(command, told_only)]
            leaders, followers = await self._carry_out_all(new, {})
            self._fetchers.add(followers)
            self._tell_listeners(leaders, followers)

    async def leave(self, partitions: Sequence[TopicPartition]) -> None:
        """Copies that are back, or made anew, and, as the coordination store says, not this broker's any more: set
        aside.

        The controller may have asked for their deletion while the directory was offline, and may be another by now. If
        it asks again they are deleted. What it has assigned here anew meanwhile stays.
        """
        async with self._commands:
            for tp in partitions:
                if not self._is_stopped and self.partition(*tp) is None:
                    self._held.pop(tp, None)
                    await self._take_away(self.log_manager.make_stray, tp)

    def _is_newer(self, command: LeadershipCommand, told_only: bool) -> bool:
        partition = self.partition(*command.topic_partition)
        if partition is None:
            return not told_only or command.topic_partition in self._told_offline
        return command.leader_epoch > partition.leader_epoch

    def told_offline(self) -> Collection[TopicPartition]:
        """Partitions for which the controller was last answered KAFKA_STORAGE_ERROR, as they are at any time."""
        return self._told_offline.keys()

    def _stopped_followers(
        self, errors: Mapping[TopicPartition, ErrorCode], accepted: Sequence[LeadershipCommand]
    ) -> list[Partition]:
        """Replicas that the controller hears are back, and that it had stopped (StopReplica without deletion) when it
        heard that they were not. What was `accepted` is followed anyway."""
        changed = dict.fromkeys(command.topic_partition for command in accepted)
        back = [
            self.partition(*tp) for tp in self._told_offline if errors.get(tp) is ErrorCode.NONE and tp not in changed
        ]
        resting = [one for one in back if one is not None and not self._fetchers.follows(one.topic_partition)]
        return [partition for partition in resting if not partition.is_leader]

    def _check(self, command: LeadershipCommand) -> tuple[ErrorCode, bool]:
        """(error, whether there is something to carry out)."""
        tp = command.topic_partition
        partition = self.partition(*tp)
        if partition is None and tp.partition < 0:
            return ErrorCode.INVALID_PARTITIONS, False
        if partition is None and not is_topic_name(tp.topic):
            return ErrorCode.INVALID_TOPIC_EXCEPTION, False
        if (partition is not None and partition.log.is_failed) or self.log_manager.is_on_offline_directory(tp):
            return ErrorCode.KAFKA_STORAGE_ERROR, False
        log = self.log_manager.get(tp) if partition is None else partition.log
        if log is not None and log.is_full and self._full.decide(tp, command.isr).hand_over:
            return ErrorCode.KAFKA_STORAGE_ERROR, False
        if tp in self._held:
            decision = self.decide_return(command, is_whole=False)
            if decision.action is ReturnAction.WAIT:
                self.logger.info("%s is not used yet: %s", tp, decision.reason)
                return ErrorCode.KAFKA_STORAGE_ERROR, False
        if self._is_too_new(command):
            return ErrorCode.KAFKA_STORAGE_ERROR, False
        known_id = ZERO_UUID if partition is None else partition.topic_id
        if _is_another_topic(known_id, command.topic_id):
            return ErrorCode.INCONSISTENT_TOPIC_ID, False
        known_epoch = NO_EPOCH if partition is None else partition.leader_epoch
        if command.leader_epoch < known_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH, False
        if partition is not None and command.leader_epoch == known_epoch:
            if tp in self._told_offline:
                return ErrorCode.NONE, self._full.is_handed_over(tp)
            if partition.is_stopped and command.leader not in (NO_LEADER, self.broker_id):
                # Stopped by a controller that took it for offline and has learned better: nothing else starts it again.
                return ErrorCode.NONE, True
            if partition.told_back_at == command.leader_epoch:
                return ErrorCode.NONE, False  # asked again: the answer was lost with its connection
            if command.topic_id != ZERO_UUID and known_id == ZERO_UUID:
                self._set_topic_id(partition, command.topic_id)
                return ErrorCode.NONE, False
            if command.topic_id == ZERO_UUID and known_id != ZERO_UUID and command.leader != self.broker_id:
                # A controller of a release without topic ids has come; the id that we have goes on being right.
                return ErrorCode.NONE, False
            return ErrorCode.STALE_CONTROLLER_EPOCH, False
        if self.broker_id not in command.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False
        return ErrorCode.NONE, True

    def _is_too_new(self, command: LeadershipCommand) -> bool:
        """Whether the replica is to lead, was made anew, and has not had every record yet."""
        tp = command.topic_partition
        if command.leader != self.broker_id or may_lead(is_filling=self.recreations.is_filling(tp)):
            return False
        self.logger.warning("%s was made anew and has not had every record yet: it does not lead", tp)
        return True

    async def _logs_of(self, commands: Sequence[LeadershipCommand]) -> list[Log | BaseException]:
        """The log of each, created where there is none, all at once: each creation waits for several syncs."""
        return await asyncio.gather(*(self._log_of(command) for command in commands), return_exceptions=True)

    async def _load_topics(self, names: Sequence[str], load: Callable[[str], Awaitable[object]]) -> None:
        """Left unfinished when the broker stops: the coordination store may be unreachable, and `stop` waits for us."""

        async def load_all() -> Exception | None:
            try:
                for name in names:
                    await load(name)
            except Exception as error:  # told by whoever waits
                return error
            return None

        if names and not self._is_stopped:
            self._loading = self.clock.spawn(load_all(), name="configuration of new topics")
            await asyncio.wait([self._loading])
            if not self._loading.cancelled() and (error := self._loading.result()) is not None:
                raise error

    async def _log_of(self, command: LeadershipCommand) -> Log:
        tp = command.topic_partition
        log = self.log_manager.get(tp)
        if log is not None and self.partition(*tp) is None and _is_another_topic(log.topic_id, command.topic_id):
            self.logger.warning(
                "%s on disk belongs to topic id %s, the topic has %s now: setting it aside",
                tp,
                (log.topic_id or b"").hex(),
                command.topic_id.hex(),
            )
            await self.log_manager.make_stray(tp)
        return await self.log_manager.get_or_create(tp, command.topic_id, command.is_new)

    def _carry_out(self, command: LeadershipCommand, log: Log) -> Partition:
        """Nothing waits here: no request may come between an epoch's entry and the leadership it belongs to."""
        partition = self.partition(*command.topic_partition)
        if partition is None:
            partition = self._adopt(command.topic_partition, log, command.topic_id)
        elif command.topic_id != ZERO_UUID and partition.topic_id == ZERO_UUID:
            self._set_topic_id(partition, command.topic_id)
        partition.adding, partition.removing = command.adding, command.removing
        partition.is_named_in_sync = self.broker_id in command.isr
        if command.leader == self.broker_id:
            log.assign_epoch(command.leader_epoch, log.assigned_offset)
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

    def _adopt(self, tp: TopicPartition, log: Log, topic_id: bytes) -> Partition:
        if topic_id == ZERO_UUID and log.topic_id is not None:
            topic_id = log.topic_id
        partition = Partition(self, tp, log, topic_id)
        name = "kafka_server_brokertopicmetrics_"
        counter = self._metrics.counter
        partition.bytes_in = counter(f"{name}bytesin", "Bytes that clients produced.", topic=tp.topic).inc
        partition.bytes_out = counter(f"{name}bytesout", "Bytes that consumers fetched.", topic=tp.topic).inc
        partition.messages_in = counter(f"{name}messagesin", "Records that clients produced.", topic=tp.topic).inc
        self.topics.setdefault(tp.topic, {})[tp.partition] = partition
        if topic_id != ZERO_UUID:
            self._topic_names[topic_id] = tp.topic
        return partition

    def _set_topic_id(self, partition: Partition, topic_id: bytes) -> None:
        partition.topic_id = topic_id
        self._topic_names[topic_id] = partition.topic

    async def _set_namesakes_aside(self, commands: Sequence[LeadershipCommand]) -> None:
        """Ends what is served here of topics that were deleted, and made again, while this broker heard nothing."""
        ids = {command.topic_partition.topic: command.topic_id for command in commands}
        for partition in self.partitions():
            tp, topic_id = partition.topic_partition, ids.get(partition.topic, ZERO_UUID)
            if not partition.log.is_failed and _is_another_topic(partition.topic_id, topic_id):
                self.logger.warning("%s has topic id %s now: setting the former one aside", tp, topic_id.hex())
                await self._fetchers.remove([tp])
                self._forget(partition)
                self._tell_listeners([], [partition])
                await self._take_away(self.log_manager.make_stray, tp)

    async def _stop_strays(self, commands: Sequence[LeadershipCommand]) -> list[Partition]:
        named = {command.topic_partition for command in commands}
        stray = [partition for partition in self.partitions() if partition.topic_partition not in named]
        for partition in stray:
            self.logger.warning("%s is not assigned to this broker any more: deleting it", partition.topic_partition)
            await self._fetchers.remove([partition.topic_partition])
            self._forget(partition)
            await self._take_away(self.log_manager.delete, partition.topic_partition)
        for log in self.log_manager.logs:
            tp = log.topic_partition
            if tp not in named and self.partition(*tp) is None:
                self.logger.warning("%s was found on disk and is not assigned to this broker: setting it aside", tp)
                await self._take_away(self.log_manager.make_stray, tp)
        return stray

    async def _take_away(self, how: Callable[[TopicPartition], Awaitable[None]], tp: TopicPartition) -> ErrorCode:
        try:
            await how(tp)
        except KafkaError as error:
            self.logger.error("%s cannot be taken away: %s", tp, error.message)
            return error.code
        return ErrorCode.NONE

    async def stop_replicas(
        self, controller_epoch: int, commands: Sequence[StopCommand], *, connection: int | None = None
    ) -> dict[TopicPartition, ErrorCode] | ErrorCode:
        """StopReplica: an error for each partition, or STALE_CONTROLLER_EPOCH for all.

        Per partition: REPLICA_NOT_AVAILABLE (this broker stops), KAFKA_STORAGE_ERROR (offline directory; also
        what is stopped only and waits with a shorter log), FENCED_LEADER_EPOCH (the command is older than what this
        broker knows; -1 and -2 are never). A log without a partition is deleted too: its topic may have gone while
        this broker was down. `connection` as in `fence.accepts`.
        """
        async with self._commands:
            if not self.fence.accepts(controller_epoch, connection):
                return ErrorCode.STALE_CONTROLLER_EPOCH
            if self._is_stopped:
                # The logs are being closed; the controller asks again when this broker has come back.
                return {command.topic_partition: ErrorCode.REPLICA_NOT_AVAILABLE for command in commands}
            errors: dict[TopicPartition, ErrorCode] = {}
            stopped: list[Partition] = []
            for command in commands:
                tp = command.topic_partition
                partition = self.partition(*tp)
                # One that waits with a shorter log can be deleted: its directory works.
                is_away = self.log_manager.is_on_offline_directory(tp) or (tp in self._held and not command.delete)
                if (partition is not None and partition.log.is_failed) or is_away:
                    errors[tp] = ErrorCode.KAFKA_STORAGE_ERROR
                    continue
                is_fenced = command.leader_epoch not in (NO_EPOCH, EPOCH_DURING_DELETE)
                if partition is not None and is_fenced and command.leader_epoch < partition.leader_epoch:
                    errors[tp] = ErrorCode.FENCED_LEADER_EPOCH
                    continue
                errors[tp] = await self._stop_one(command, partition)
                if command.delete and errors[tp] is ErrorCode.NONE:
                    self._told_offline.pop(tp, None)  # it is gone, and not to be made anew
                    self._last_epochs.pop(tp, None)
                    self._held.pop(tp, None)
                if partition is not None:
                    stopped.append(partition)
            self._tell_listeners([], stopped)
            return errors

    async def _stop_one(self, command: StopCommand, partition: Partition | None) -> ErrorCode:
        tp = command.topic_partition
        await self._fetchers.remove([tp])
        if partition is not None:
            if command.delete:
                self._forget(partition)
            else:
                partition.resign()
        if not command.delete:
            return ErrorCode.NONE
        return await self._take_away(self.log_manager.delete, tp)

    def directory_failed(self) -> None:
        """A log directory is offline: its partitions neither lead nor follow any more. Requests are answered
        KAFKA_STORAGE_ERROR from now on; the rest follows once the command under way is carried out."""
        self.clock.spawn(self._drop_offline(), name="replicas of a failed log directory")

    async def _drop_offline(self) -> None:
        async with self._commands:
            # By their logs: by now, behind a long command, the directory may be back, or they be made anew elsewhere.
            offline = [partition for partition in self.partitions() if partition.log.is_failed]
            await self._fetchers.remove([partition.topic_partition for partition in offline])
            for partition in offline:
                self._last_epochs[partition.topic_partition] = partition.leader_epoch
                self._forget(partition, ErrorCode.KAFKA_STORAGE_ERROR)
            self._tell_listeners([], offline)

    def _forget(self, partition: Partition, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        by_index = self.topics[partition.topic]
        del by_index[partition.index]
        if not by_index:
            del self.topics[partition.topic]
            self._topic_names.pop(partition.topic_id, None)
            conversions = ("producemessageconversions", "fetchmessageconversions")
            for name in ("bytesin", "bytesout", "messagesin", *conversions):
                self._metrics.remove(f"kafka_server_brokertopicmetrics_{name}", topic=partition.topic)
        self._full.take_back(partition.topic_partition)
        partition.is_leader = False
        partition.is_removed = True
        partition.give_up_waiting(int(error))

    def _tell_listeners(self, leaders: Sequence[Partition], others: Sequence[Partition]) -> None:
        if leaders or others:
            for listener in self._leadership_listeners:
                listener(leaders, others)

    # Timers

    def _shrink_isrs(self) -> None:
        if self._is_stopped:
            return
        # Of an append in this very turn the sessions have not heard: who rested in them would seem to lag since then.
        self._run_woken()
        for partition in self.partitions():
            partition.shrink_isr()
        self.clock.call_later(self.lag_max_ms / 2000, self._shrink_isrs)

    def _checkpoint(self) -> None:
        if self._is_stopped:
            return
        self.clock.call_later(self._checkpoint_interval_s, self._checkpoint)
        if not self._is_checkpointing:
            self._is_checkpointing = True
            self.clock.spawn(self._write_checkpoint(), name="high watermark checkpoint")

    async def _write_checkpoint(self) -> None:
        try:
            await self.log_manager.checkpoint_high_watermarks()
        finally:
            self._is_checkpointing = False


def _is_another_topic(known_id: bytes | None, topic_id: bytes) -> bool:
    return topic_id != ZERO_UUID and known_id not in (None, ZERO_UUID, topic_id)
