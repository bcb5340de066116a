"""ReplicaManager: the replicas of this broker.

Lives here: the parts and how they are connected, finding a partition for a request, the timers of replication, and what
storage reports of log directories. Not here: the states of a replica (`replica_states`), carrying out commands
(`command_execution`), what one partition does (`partition`), following (`fetchers`), wire formats. On the calling side
of Clock; everything runs on the broker's loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence

from ottla_broker.config import BrokerConfig
from ottla_broker.config.inter_broker import inter_broker_versions
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.metrics import Metrics
from ottla_broker.ports import Clock
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.alter_partition import AlterPartitionQueue
from ottla_broker.replication.delayed import TimerWheel
from ottla_broker.replication.fetcher import FetcherContext
from ottla_broker.replication.fetchers import Fetchers
from ottla_broker.replication.local_replicas.alter_log_dirs import AlterLogDirs
from ottla_broker.replication.local_replicas.command_execution import CommandExecution
from ottla_broker.replication.local_replicas.fencing import CommandFence
from ottla_broker.replication.local_replicas.full_log_dirs import FullLogDirs
from ottla_broker.replication.local_replicas.hosted_partitions import HostedPartitions
from ottla_broker.replication.local_replicas.inter_broker_context import InterBrokerContext
from ottla_broker.replication.local_replicas.local_replica_parts import LocalReplicaParts
from ottla_broker.replication.local_replicas.replica_map import LocalReplicas
from ottla_broker.replication.local_replicas.replica_recreation import ReplicaRecreation
from ottla_broker.replication.partition import Partition, PartitionContext
from ottla_broker.replication.quotas import ReplicationQuotas
from ottla_broker.replication.refused_batches import RefusedBatches
from ottla_broker.replication.replica_gauges import isr_counters, register_gauges, replication_bytes_in
from ottla_broker.replication.replica_states.commands import LeadershipCommand
from ottla_broker.replication.replica_states.local_replica import LocalReplica, LocalReplicaState
from ottla_broker.replication.replica_states.reopened import ReturnDecision
from ottla_broker.replication.replica_states.replica_events import (
    CatchUpRequired,
    CaughtUp,
    Forgotten,
    LogDirFailed,
    LogDirReopened,
    LogFound,
    LogMissing,
    PowerLossCleared,
)
from ottla_broker.replication.replica_states.transitions import decide_readmission
from ottla_broker.replication.wake_queue import WakeQueue
from ottla_broker.storage.log_dirs.log_manager import LogManager

_SHRINKS_PER_TURN = 500
"""After so many partitions a check of the ISRs lets the loop do other work."""


class ReplicaManager:
    """See the module. `log_manager` has loaded its logs when `start` is called."""

    def __init__(
        self,
        *,
        broker_id: int,
        config: BrokerConfig,
        clock: Clock,
        log_manager: LogManager,
        metadata: MetadataCache,
        metrics: Metrics,
        inter_broker: InterBrokerContext,
    ) -> None:
        self.broker_id = broker_id
        self.logger = logging.LoggerAdapter(logging.getLogger("ottla.replication"), {"broker": broker_id})
        self.clock = clock
        self.log_manager = log_manager
        self.metadata = metadata
        self.wheel = TimerWheel(clock)
        self.lag_max_ms: int = config.replica_lag_time_max_ms
        versions = inter_broker_versions(config.inter_broker_protocol_version)
        self.fence = CommandFence(clock, inter_broker.broker_epoch, self.logger)
        self._checkpoint_interval_s: float = config.replica_high_watermark_checkpoint_interval_ms / 1000
        self._is_checkpointing = False
        self._alter_partition = AlterPartitionQueue(
            clock,
            broker_id,
            inter_broker.broker_epoch,
            inter_broker.send_alter_partition,
            versions.alter_partition,
            self.logger,
        )
        self._partitions = HostedPartitions(metrics)
        self.topics = self._partitions.topics
        """The partitions of this broker by topic and index: the hot path's look-up."""
        self._topic_names = self._partitions.topic_names
        self.replicas = LocalReplicas(self._on_replica_change)
        """The state of every replica on this broker, with a partition or without."""
        log_manager.table.on_logs_offline = self._on_logs_offline
        log_manager.registry.on_catch_up = self._on_catch_up
        self.recreation = ReplicaRecreation(
            log_manager, self.replicas, self._partitions.get, self.live_brokers, clock, metrics, self.logger
        )
        self.quotas = ReplicationQuotas(config, clock, metrics)
        fetcher_context = FetcherContext(
            broker_id=broker_id,
            config=config,
            clock=clock,
            metadata=metadata,
            broker_epoch=inter_broker.broker_epoch,
            connect=inter_broker.connect,
            listener=inter_broker.listener,
            logger=self.logger,
            quotas=self.quotas,
            versions=versions,
            bytes_in=replication_bytes_in(metrics),
        )
        self._fetchers = Fetchers(fetcher_context, metrics, self.recreation)
        self._wake_queue = WakeQueue(clock, self.logger)
        self.wake = self._wake_queue.wake
        self._full = FullLogDirs(metadata, self.replicas, inter_broker.report_directories)
        self._live_before: frozenset[int] = frozenset()
        """The live brokers when the partitions were last looked at for those that have come or gone."""
        self.refused_batches = RefusedBatches(self.now_ms)
        self._commands = asyncio.Lock()
        parts = LocalReplicaParts(
            clock, log_manager, self.replicas, self._partitions, self._fetchers, self._commands, self.logger
        )
        self.alter_log_dirs = AlterLogDirs(
            parts,
            lambda tp: metadata.partition(tp.topic, tp.partition) is not None,
            inter_broker.report_directories,
            metrics,
        )
        self.paused = self.alter_log_dirs.paused
        """Partitions whose produce requests have to wait (`alter_log_dirs.wait_for_swap`); almost always empty."""
        self._execution = CommandExecution(
            PartitionContext(
                broker_id,
                self.lag_max_ms,
                self.now_ms,
                self.live_brokers,
                self.wake,
                self.propose_isr,
                self.refused_batches,
            ),
            parts,
            self.fence,
            self._full,
            self.alter_log_dirs.resume,
        )
        self.apply_leadership = self._execution.apply_leadership
        self.stop_replicas = self._execution.stop_replicas
        self.readmit = self._execution.readmit
        self.set_unassigned_aside = self._execution.set_unassigned_aside
        self.directory_failed = self._execution.end_serving_offline
        self.add_leadership_listener = self._execution.add_listener
        self._isr_changes = isr_counters(metrics)
        register_gauges(
            metrics,
            self._partitions,
            lambda: log_manager.offline_replica_count,
            self.wheel,
            config.transaction_max_timeout_ms,
        )

    def start(self) -> None:
        """Takes the logs in that were loaded, and starts the timers."""
        for tp in self.log_manager.registry.catching_up:
            self.replicas.apply(tp, CatchUpRequired())
        for log in self.log_manager.logs:
            found = LogFound(log.state.disk.path, self._is_power_loss_suspected(log.state.disk.path))
            self.replicas.apply(log.state.topic_partition, found)
        self.clock.spawn(self._shrink_isrs_forever(), name="ISR checks")
        self.clock.call_later(self._checkpoint_interval_s, self._checkpoint)

    def begin_controlled_shutdown(self) -> None:
        """From now on this broker begins to follow only where it is in the ISR.

        The controller sends it StopReplica for the other partitions. A leader waits for every follower that has caught
        up, so none of them may follow again because of a later election, a log dir event or another controller.
        """
        self._execution.is_shutting_down = True

    async def stop(self) -> None:
        """Stops following and leading, fails waiting requests, and writes the high watermarks.

        From then on clients hear NOT_LEADER_OR_FOLLOWER: nothing is acknowledged behind the last flush.
        """
        await self._execution.stop()

    # Finding partitions

    def partitions(self) -> Iterator[Partition]:
        return iter(self._partitions)

    def partition(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get(topic, index)

    def partition_or_error(self, topic: str, index: int) -> Partition | ErrorCode:
        """The partition, or why there is none here: 56 (offline directory), 6 (elsewhere), 3 (nowhere).

        Until the first UpdateMetadata nobody knows what is nowhere, and the answer is 6: for ListOffsets librdkafka
        takes 3 as final. Apache Kafka answers 3.
        """
        by_index = self.topics.get(topic)
        partition = None if by_index is None else by_index.get(index)
        if partition is not None:
            is_offline = partition.replica.state is LocalReplicaState.OFFLINE and not self._execution.is_stopped
            return ErrorCode.KAFKA_STORAGE_ERROR if is_offline else partition
        if self.is_offline(TopicPartition(topic, index)):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if not self.metadata.is_ready or self.metadata.partition(topic, index) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @property
    def has_offline(self) -> bool:
        """Whether `is_offline` holds for any partition."""
        return self.replicas.has_offline

    def is_offline(self, tp: TopicPartition) -> bool:
        """Whether this broker's replica is on an offline directory, or back from one and not to be used yet."""
        return self.replicas[tp].is_offline

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
        """By this broker's own partitions first: a leader may be asked before UpdateMetadata has come."""
        return self._topic_names.get(topic_id) or self.metadata.topic_name(topic_id)

    def now_ms(self) -> int:
        """Clock.monotonic in milliseconds."""
        return int(self.clock.monotonic() * 1000)

    def live_brokers(self) -> Collection[int]:
        return self.metadata.brokers.keys()

    def propose_isr(self, partition: Partition) -> None:
        """Sends `partition.in_sync.proposed` to the controller."""
        state = partition.in_sync
        self._isr_changes["expands" if len(state.proposed) > len(state.committed) else "shrinks"].inc()
        self._alter_partition.submit(partition)

    def resize_fetchers(self) -> None:
        """num.replica.fetchers has changed."""
        self._fetchers.resize()

    def on_metadata_changed(self) -> None:
        """After UpdateMetadata: leaders may have appeared, moved or gone.

        The partitions are looked at only when brokers have come or gone: a fleet that gets thousands of topics sends
        thousands of these requests.
        """
        self._fetchers.on_metadata_changed()
        self._full.on_metadata_changed()
        live = frozenset(self.live_brokers())
        if live == self._live_before:
            return
        self._live_before = live
        for partition in self._partitions:
            if partition.deletions:
                partition.check_deletions()
            if partition.is_leader and partition.log.state.high_watermark < partition.log.state.log_end_offset:
                # A follower outside the ISR that had caught up is waited for; it may be the one that has gone.
                partition.advance_high_watermark()

    # What storage reports

    def _on_replica_change(self, tp: TopicPartition, replica: LocalReplica) -> None:
        partition = self._partitions.get(*tp)
        if partition is not None:
            partition.set_replica(replica)

    def _on_logs_offline(self, path: str, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            self.replicas.apply(tp, LogDirFailed(path))

    def log_dir_reopened(self, path: str, logs: Mapping[TopicPartition, bool]) -> None:
        """The directory is live again with these logs; whether each has every record that it had."""
        for tp in list(self.replicas.in_state(LocalReplicaState.OFFLINE)):
            replica = self.replicas[tp]
            if replica.log_dir == path and replica.after_serving is None and tp not in logs:
                self.replicas.apply(tp, LogMissing())
        for tp, is_whole in logs.items():
            self.replicas.apply(tp, LogDirReopened(path, is_whole, self._is_power_loss_suspected(path)))

    def _is_power_loss_suspected(self, path: str) -> bool:
        return any(one.path == path and one.is_power_loss_suspected for one in self.log_manager.directories)

    def clear_power_loss(self) -> None:
        """The markers of some log directories are gone: the broker has registered, or the replicas of a reopened one
        were checked against their partitions' states."""
        for tp in list(self.replicas.power_loss_suspected):
            path = self.replicas[tp].log_dir
            if path is None or not self._is_power_loss_suspected(path):
                self.replicas.apply(tp, PowerLossCleared())

    def _on_catch_up(self, tp: TopicPartition, is_caught_up: bool) -> None:
        self.replicas.apply(tp, CaughtUp() if is_caught_up else CatchUpRequired())

    def decide_readmission(self, state: LeadershipCommand) -> ReturnDecision:
        """What becomes of a replica that is back, by its partition's state in the coordination store."""
        return decide_readmission(self.replicas[state.topic_partition], self.broker_id, state)

    async def forget(self, tp: TopicPartition, topic_id: bytes) -> None:
        """An empty log in place of one on an offline directory, whose records a person has given up. KafkaError."""
        log = await self.log_manager.recreate(tp, topic_id)
        self.replicas.apply(tp, Forgotten(log.state.disk.path))

    # Timers

    async def _shrink_isrs_forever(self) -> None:
        while not self._execution.is_stopped:
            await self.clock.sleep(self.lag_max_ms / 2000)
            await self.shrink_isrs()

    async def shrink_isrs(self) -> None:
        """Has every leader here look for followers that lag, in slices of the loop."""
        for number, partition in enumerate(self._partitions):
            if number and not number % _SHRINKS_PER_TURN:
                await self.clock.sleep(0)
            if self._execution.is_stopped:
                return
            if not number % _SHRINKS_PER_TURN:
                # Of an append in this very turn the sessions have not heard: who rested in them would seem to lag since
                # then.
                self._wake_queue.run()
            partition.shrink_isr()

    def _checkpoint(self) -> None:
        if self._execution.is_stopped:
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
