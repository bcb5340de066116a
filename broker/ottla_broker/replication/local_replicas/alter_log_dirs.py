"""AlterLogDirs: moves replicas between log directories (KIP-113), as the replica manager sees it.

Lives here: AlterReplicaLogDirs and DescribeLogDirs, resuming future replicas after a start, and the swap. Not here: the
future replica, its copying and its files (`storage.log_dirs.future_replicas`).

During the swap nothing may be appended. A follower stops fetching. For a leader, produce requests that name the
partition wait in `paused`, in their order, and go on when the future log has taken over: no client is refused, and the
wait is the time to copy the last few batches. A swap that takes longer than `_LONGEST_PAUSE_S` is cancelled, and tried
again later.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ottla_broker.metrics import Metrics
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.rates import WindowedRate
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.local_replicas.local_replica_parts import LocalReplicaParts
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.replica_states.local_replica import LocalReplicaState
from ottla_broker.replication.replica_states.replica_events import FutureReplicaSwapped
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.future_replicas import FutureReplica

_LONGEST_PAUSE_S = 1.0

_REPLICAS_PER_TURN: Final = 10
"""After so many of a request the loop does other work."""

UNKNOWN_LAG = -1
"""Offset lag of a log that no command of the controller has named since the start."""

PausedRequests = dict[tuple[str, int], list[Callable[[], None]]]
"""By topic and partition: the requests that go on after the swap."""

_RATE_WINDOWS, _RATE_WINDOW_S = 11, 1.0
"""What the measured rate is taken over, as that of replication is by default."""


@dataclass(frozen=True, slots=True)
class DescribedReplica:
    """One log of a directory: bytes, and the records it lacks."""

    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(slots=True)
class DescribedDirectory:
    """One log directory; bytes are -1 where they are not known."""

    path: str
    error: ErrorCode = ErrorCode.NONE
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False
    replicas: list[DescribedReplica] = field(default_factory=list)


class AlterLogDirs:
    """See the module.

    Args:
        exists: whether the fleet has a partition.
        report: has the controller send LeaderAndIsr for this broker's replicas again.
    """

    def __init__(
        self,
        parts: LocalReplicaParts,
        exists: Callable[[TopicPartition], bool],
        report: Callable[[], None],
        metrics: Metrics,
    ) -> None:
        self._report = report
        self._replicas = parts.replicas
        self._partitions = parts.partitions
        self._exists = exists
        self._log_manager = parts.log_manager
        self._moves = parts.log_manager.future_replicas
        self._clock = clock = parts.clock
        self._commands = parts.commands
        self._fetchers = parts.fetchers
        self._logger = parts.logger
        self.paused: PausedRequests = {}
        """Almost always empty; the produce handler looks at it."""
        self._done = metrics.counter(
            "ottla_future_replica_swaps", "Future replicas that have taken their replica's place."
        )
        copied = metrics.counter("ottla_future_replica_bytes", "Bytes copied to future replicas.")
        rate = WindowedRate(_RATE_WINDOWS, _RATE_WINDOW_S)

        def on_copied(size: int) -> None:
            copied.inc(size)
            rate.record(size, clock.monotonic())

        self._moves.copying.on_copied = on_copied
        metrics.gauge(
            "kafka_server_alterlogdirsreplication_byte_rate",
            "Bytes per second copied from one log directory to another.",
            lambda: rate.measure(clock.monotonic()),
        )
        moves = self._moves
        metrics.gauge("ottla_future_replicas", "Future replicas of this broker.", lambda: len(moves.in_progress))
        metrics.gauge(
            "kafka_server_replicaalterlogdirsmanager_maxlag",
            "Most records that a future replica lacks.",
            lambda: max((move.lag for move in moves.in_progress), default=0),
        )
        metrics.gauge(
            "kafka_server_replicaalterlogdirsmanager_failedpartitionscount",
            "Future replicas that stand still because of an error.",
            lambda: sum(move.failure is not None for move in moves.in_progress),
        )

    # AlterReplicaLogDirs

    async def alter(self, targets: Mapping[TopicPartition, str]) -> dict[TopicPartition, ErrorCode]:
        """Starts the move of each replica to its directory; an error for each.

        In this order: INVALID_TOPIC_EXCEPTION (the name is too long), LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR (the
        directory is offline or full), INVALID_REPLICA_ASSIGNMENT (it is cordoned), KAFKA_STORAGE_ERROR (the replica is
        on an offline directory, or any directory is), UNKNOWN_TOPIC_OR_PARTITION, REPLICA_NOT_AVAILABLE (no replica
        here); for the last two the directory is remembered.
        """
        errors: dict[TopicPartition, ErrorCode] = {}
        async with self._commands:
            for number, (tp, path) in enumerate(targets.items(), 1):
                if number % _REPLICAS_PER_TURN == 0:
                    await self._clock.sleep(0)
                try:
                    await self._alter_one(tp, path)
                    errors[tp] = ErrorCode.NONE
                except KafkaError as error:
                    self._logger.warning("%s does not move to %s: %s", tp, path, error.message)
                    errors[tp] = error.code
        return errors

    async def _alter_one(self, tp: TopicPartition, wanted: str) -> None:
        manager = self._log_manager
        if len(f"{tp}.-future") + 32 > 255:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        path = manager.configured_path(posixpath.normpath(wanted))
        if path is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log directory {wanted} is not one of log.dirs.")
        log = manager.get(tp)
        is_there = log is not None and log.state.disk.path == path
        if path not in (manager.live_paths if is_there else manager.states.placeable):
            state = manager.states[path].state.value
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {path} is {state}.")
        if path in manager.cordoned and not is_there:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Log directory {path} is cordoned.")
        if self._replicas[tp].state is LocalReplicaState.OFFLINE:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is on an offline log directory.")
        if log is None or self._partitions.get(*tp) is None:
            if log is None:
                manager.prefer(tp, path)
            error = ErrorCode.REPLICA_NOT_AVAILABLE if self._exists(tp) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(error, f"{tp} is not here yet; {path} is remembered for it.")
        move = await self._moves.create(log, manager.disk(path))
        if move is not None:
            self._logger.info("%s moves from %s to %s: future replica created", tp, log.state.disk.path, path)
            self._moves.run(move, self._finish)

    def resume(self, partitions: Collection[Partition]) -> None:
        """After a command of the controller: future replicas that a restart has interrupted go on."""
        for partition in partitions:
            move = self._moves.get(partition.topic_partition)
            if move is not None and move.current is partition.log:
                self._moves.run(move, self._finish)

    # The swap

    async def _finish(self, move: FutureReplica) -> bool:
        tp = move.current.state.topic_partition
        async with self._commands:
            partition = self._partitions.get(*tp)
            if move.is_finished or partition is None or partition.log is not move.current:
                return move.is_finished
            await self._fetchers.remove([tp])
            self.paused[tp.topic, tp.partition] = []
            swap = self._clock.spawn(self._moves.swap(move, partition.set_log), name=f"swap {tp}")
            timer = self._clock.call_later(_LONGEST_PAUSE_S, swap.cancel)
            try:
                await asyncio.wait([swap])
            finally:
                timer.cancel()
                swap.cancel()
                self._release(tp)
                if not partition.is_leader and partition.is_assigned and not partition.replica.is_idle:
                    self._fetchers.add([partition])
        has_swapped = not swap.cancelled() and swap.result()
        if has_swapped:
            self._done.inc()
            self._logger.info("%s has moved to %s", tp, partition.log.state.disk.path)
            swapped = FutureReplicaSwapped(partition.log.state.disk.path, partition.log.state.is_full)
            if self._replicas[tp].is_assigned and self._replicas.apply(tp, swapped).effects:
                self._report()  # others lead it because its log directory was full
        return has_swapped

    def wait_for_swap(self, topics: Sequence[Any], go_on: Callable[[], None]) -> bool:
        """True when one of the `topics` of a produce request has a paused partition: then `go_on` is called later, in
        the order of the requests."""
        paused = self.paused
        for topic in topics:
            for data in topic.partition_data:
                waiting = paused.get((topic.name, data.index))
                if waiting is not None:
                    waiting.append(go_on)
                    return True
        return False

    def _release(self, tp: TopicPartition) -> None:
        for go_on in self.paused.pop((tp.topic, tp.partition), ()):
            try:
                go_on()
            except Exception:
                self._logger.exception("a produce request that waited for the swap of %s failed", tp)

    # DescribeLogDirs

    async def describe(self, wanted: Mapping[str, Collection[int]] | None) -> list[DescribedDirectory]:
        """Every log directory with its logs, of the partitions that `wanted` names; None: all."""
        manager = self._log_manager
        described: list[DescribedDirectory] = []
        for path in manager.paths:
            directory = DescribedDirectory(path, is_cordoned=path in manager.cordoned)
            described.append(directory)
            if path not in manager.live_paths:
                directory.error = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            disk = manager.disk(path)
            status = manager.states[path]
            # As of the last look, a second ago at most: a disk that hangs must not keep the answer.
            if status.total_bytes < 0:
                try:
                    status.free_bytes, status.total_bytes = await manager.guarded(disk, disk.check_space())
                except KafkaError as error:
                    directory.error = error.code
                    continue
            directory.total_bytes, directory.usable_bytes = status.total_bytes, status.free_bytes
            directory.replicas = [
                self._describe(log)
                for log in manager.logs_in(disk)
                if wanted is None
                or log.state.topic_partition.partition in wanted.get(log.state.topic_partition.topic, ())
            ]
        return described

    def _describe(self, log: Log) -> DescribedReplica:
        tp = log.state.topic_partition
        current = self._log_manager.get(tp)
        is_future = log is not current
        if is_future:
            lag = UNKNOWN_LAG if current is None else current.state.log_end_offset - log.state.log_end_offset
        elif self._partitions.get(*tp) is None:
            lag = UNKNOWN_LAG
        else:
            lag = max(0, log.state.high_watermark - log.state.log_end_offset)
        return DescribedReplica(tp, log.state.size_bytes, lag, is_future)
