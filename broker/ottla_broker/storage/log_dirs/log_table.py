"""All logs of a broker by partition: current logs, future logs (KIP-113), replaced logs, and logs that are offline.

The table opens, writes and deletes nothing; the other modules of this package do and record the result here. Everything
runs on the broker's loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla_broker.ports.disk import Disk
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.log_directory import LogDirectoryError


class OfflineLog(NamedTuple):
    """What is known of a log whose directory is offline; -1 where nothing is known."""

    path: str
    log_end_offset: int = -1
    high_watermark: int = -1
    size_bytes: int = -1


class LogTable:
    """See the module. A partition is in `current` or in `offline`, never in both."""

    def __init__(self) -> None:
        self.current: dict[TopicPartition, Log] = {}
        """The logs that serve requests, in the order in which they came. `put` and `take` write it."""
        self.future: dict[TopicPartition, Log] = {}
        """The logs that will replace the current ones. Written by `put_future` and `take_future`."""
        self._of_topic: dict[str, set[TopicPartition]] = {}
        self._in_path: Counter[str] = Counter()
        self.replaced: dict[TopicPartition, Log] = {}
        """Logs that a future log has replaced and whose directories are not renamed yet."""
        self.loaded_future: dict[TopicPartition, Log] = {}
        """Future logs that a start has opened and not resumed yet."""
        self.offline: dict[TopicPartition, OfflineLog] = {}
        self.on_logs_offline: Callable[[str, Sequence[TopicPartition]], None] = lambda path, partitions: None
        """Called with a directory and the partitions that are in `offline` from now on, in the same turn of the
        loop."""

    def add(self, log: Log) -> None:
        """Adds a log that was loaded. Raises LogDirectoryError when another directory has the partition too."""
        other = self.current.get(log.state.topic_partition)
        if other is not None:
            raise LogDirectoryError(
                f"partition {log.state.topic_partition} is in two log directories, {other.state.disk.path} and "
                f"{log.state.disk.path}; one of them must be moved away"
            )
        self.put(log)

    def put(self, log: Log) -> None:
        """Makes a log the current one of its partition."""
        self._record(self.current, log)

    def put_future(self, log: Log) -> None:
        """Makes a log the future one of its partition."""
        self._record(self.future, log)

    def take(self, partition: TopicPartition) -> Log | None:
        """Removes the current log of a partition from the table. None when there is none."""
        return self._remove(self.current, partition)

    def take_future(self, partition: TopicPartition) -> Log | None:
        """Removes the future log of a partition from the table. None when there is none."""
        return self._remove(self.future, partition)

    def _record(self, logs: dict[TopicPartition, Log], log: Log) -> None:
        before = logs.get(log.state.topic_partition)
        if before is not None:
            self._in_path[before.state.disk.path] -= 1
        logs[log.state.topic_partition] = log
        self._of_topic.setdefault(log.state.topic_partition.topic, set()).add(log.state.topic_partition)
        self._in_path[log.state.disk.path] += 1

    def _remove(self, logs: dict[TopicPartition, Log], partition: TopicPartition) -> Log | None:
        log = logs.pop(partition, None)
        if log is None:
            return None
        self._in_path[log.state.disk.path] -= 1
        if partition not in self.current and partition not in self.future:
            partitions = self._of_topic[partition.topic]
            partitions.discard(partition)
            if not partitions:
                del self._of_topic[partition.topic]
        return log

    def of_topic(self, topic: str) -> list[Log]:
        """The current and future logs of a topic."""
        partitions = sorted(self._of_topic.get(topic, ()))
        return [log for table in (self.current, self.future) for one in partitions if (log := table.get(one))]

    def logs_in(self, disk: Disk) -> list[Log]:
        """The current and future logs of one directory, as DescribeLogDirs reports them."""
        return [log for log in (*self.current.values(), *self.future.values()) if log.state.disk is disk]

    def checkpointed_logs_in(self, disk: Disk) -> list[Log]:
        """Every log that the checkpoints of the directory have an entry for."""
        tables = (self.current, self.future, self.replaced, self.loaded_future)
        return [log for table in tables for log in table.values() if log.state.disk is disk]

    def count_in(self, path: str) -> int:
        """The number of current and future logs in a directory."""
        return self._in_path[path]

    def take_offline(self, disk: Disk) -> list[Log]:
        """Moves the current logs of a directory that is offline to `offline`. Returns every log of the directory."""
        failed = self.checkpointed_logs_in(disk)
        lost = [log for log in failed if self.current.get(log.state.topic_partition) is log]
        for log in lost:
            self.offline[log.state.topic_partition] = OfflineLog(
                disk.path, log.state.log_end_offset, log.state.high_watermark, log.state.size_bytes
            )
            self.take(log.state.topic_partition)
        self.on_logs_offline(disk.path, [log.state.topic_partition for log in lost])
        return failed

    def find_offline(self, partition: TopicPartition, path: str) -> OfflineLog:
        """The offline log of a partition; one that nobody knew is recorded as offline in `path`."""
        known = self.offline.get(partition)
        if known is None:
            known = self.offline[partition] = OfflineLog(path)
            self.on_logs_offline(path, [partition])
        return known
