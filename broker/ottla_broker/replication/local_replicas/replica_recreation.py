"""Recreated replicas on the side of the replica manager: room, throttle, progress.

Lives here: which partitions wait, on which directories there is room, creating the empty log, the throttle under which
replicas catch up (`ottla.replica.recreate.max.bytes.per.second`), metrics and status. Not here: the decision
(`replica_states.recreation_rules`), when the partition's state allows it (`server.log_dir_recovery.recreation`), the
files (`storage.log_dirs`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ottla_broker.metrics import Metrics
from ottla_broker.ports import Clock
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.local_replicas.replica_map import LocalReplicas
from ottla_broker.replication.partition import Logger, Partition
from ottla_broker.replication.replica_states.local_replica import LocalReplicaState
from ottla_broker.replication.replica_states.recreation_rules import Target
from ottla_broker.replication.replica_states.replica_events import Recreated
from ottla_broker.storage.log_dirs.log_manager import LogManager
from ottla_broker.storage.log_dirs.throttle import NO_LIMIT, CopyThrottle

_CATCH_UP_AT_ONCE = 16
"""Few at a time, so that the first are in sync long before the last."""

_NAMED = 100
"""Lost partitions that /status names."""


class ReplicaRecreation:
    """See the module."""

    def __init__(
        self,
        log_manager: LogManager,
        replicas: LocalReplicas,
        partition: Callable[[str, int], Partition | None],
        live_brokers: Callable[[], Collection[int]],
        clock: Clock,
        metrics: Metrics,
        logger: Logger,
    ) -> None:
        self._log_manager = log_manager
        self._replicas = replicas
        self._partition = partition
        self._live_brokers = live_brokers
        self._logger = logger
        self.max_bytes_per_second = NO_LIMIT
        """ottla.replica.recreate.max.bytes.per.second, as it is now."""
        self._throttle = CopyThrottle(clock, lambda: self.max_bytes_per_second)
        self._sizes: dict[TopicPartition, int] = {}
        """Bytes that each replica that catches up had on the directory that failed, where that is known."""
        self.waiting: dict[TopicPartition, str] = {}
        """Replicas on failed directories that are to be recreated, with what they wait for."""
        self.lost: dict[TopicPartition, None] = {}
        """Partitions that only a failed directory of this broker holds in full."""
        self._done = metrics.counter("ottla_replica_recreations_done", "Recreated replicas that have caught up.")
        self._bytes = metrics.counter(
            "ottla_replica_recreation_bytes", "Bytes that recreated replicas have fetched to catch up."
        )
        metrics.gauge(
            "ottla_replica_recreations", "Recreated replicas that are catching up.", lambda: len(self.catching_up)
        )
        metrics.gauge(
            "ottla_replica_recreations_waiting",
            "Replicas on failed log directories that are to be recreated.",
            lambda: len(self.waiting),
        )
        metrics.gauge(
            "ottla_replica_lost_partitions",
            "Partitions whose only in-sync replica is on a failed log directory of this broker.",
            lambda: len(self.lost),
        )

    # What waits

    @property
    def catching_up(self) -> Collection[TopicPartition]:
        """Recreated replicas that have not had every committed record yet."""
        return self._replicas.catching_up

    def is_catching_up(self, partition: TopicPartition) -> bool:
        return not self._replicas[partition].is_caught_up

    def without_log(self) -> list[TopicPartition]:
        """Partitions of this broker that are on a failed directory, or might be: the controller takes them for
        offline."""
        manager = self._log_manager
        if not manager.offline_paths:
            return []
        offline = self._replicas.in_state(LocalReplicaState.OFFLINE)
        found = dict.fromkeys([*offline, *self._replicas.reported_offline])
        return [partition for partition in found if manager.get(partition) is None]

    def size_bytes(self, partition: TopicPartition) -> int:
        """The size of the log on the failed directory, -1 when not known."""
        known = self._log_manager.offline_logs.get(partition)
        return -1 if known is None else known.size_bytes

    @property
    def is_slot_free(self) -> bool:
        """Whether one more may catch up. Those whose leader is not live do not count."""
        live = self._live_brokers()
        busy = 0
        for tp in self.catching_up:
            partition = self._partition(*tp)
            busy += partition is not None and partition.leader_id in live
        return busy < _CATCH_UP_AT_ONCE and self.max_bytes_per_second > 0

    def targets(self) -> list[Target]:
        """Directories that are online, not full and not cordoned, with the bytes beyond the reserve that the replicas
        which catch up there will not need."""
        manager = self._log_manager
        promised = dict.fromkeys(manager.states.placeable, 0)
        for tp in self.catching_up:
            log = manager.get(tp)
            if log is not None and log.state.disk.path in promised:
                promised[log.state.disk.path] += max(0, self._sizes.get(tp, 0) - log.state.size_bytes)
        return [
            Target(path, manager.states[path].free_bytes - manager.states.reserve_bytes - promised[path])
            for path in promised
            if path not in manager.cordoned
        ]

    # Creation

    async def create(self, partition: TopicPartition, topic_id: bytes, path: str) -> None:
        """Creates the empty log; it does not follow yet. KafkaError KAFKA_STORAGE_ERROR when the directory does not
        take it, or the failed one is being reopened."""
        self._sizes[partition] = self.size_bytes(partition)
        log = await self._log_manager.recreate(partition, topic_id, path, is_catching_up=True)
        self._replicas.apply(partition, Recreated(log.state.disk.path))

    # What a follower that catches up asks (`follower.CatchUp`)

    def chunk_bytes(self, largest: int) -> int:
        """Bytes of one fetch: all of these replicas together fetch as much as the throttle allows in a second."""
        return max(1, min(largest, self.max_bytes_per_second // _CATCH_UP_AT_ONCE))

    def spend(self, size: int) -> None:
        """Counts `size` fetched bytes."""
        self._bytes.inc(size)
        self._throttle.spend(size)

    def pause_s(self) -> float:
        """Seconds to pause before the next call, 0 to go on."""
        return self._throttle.pause_s()

    async def caught_up(self, partition: TopicPartition) -> None:
        """Records durably that the replica has every committed record. KafkaError."""
        await self._log_manager.registry.caught_up(partition)
        self._sizes.pop(partition, None)
        self._done.inc()
        self._logger.info("%s: recreated, it has caught up", partition)

    # Status

    def status(self) -> dict[str, Any]:
        """For /status: plain values."""
        return {
            "waiting": len(self.waiting),
            "catching_up": len(self.catching_up),
            "lost": len(self.lost),
            "lost_partitions": [str(partition) for partition in list(self.lost)[:_NAMED]],
        }
