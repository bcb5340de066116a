"""Writes the offset checkpoints of a log directory from the positions of its logs.

    recovery-point-offset-checkpoint       where recovery starts after an unclean shutdown
    log-start-offset-checkpoint            the first offset of each log
    replication-offset-checkpoint          high watermarks
    cleaner-offset-checkpoint              how far compaction has cleaned

Not here: the files and what happens when there is no room for one (`files/checkpoint_files.py`), and when each file is
written (`background_tasks.py`, the logs themselves).
"""

from __future__ import annotations

from ottla_broker.ports.disk import Disk
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoint_files import CheckpointFiles
from ottla_broker.storage.files.names import CLEAN_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from ottla_broker.storage.log_dirs.log_table import LogTable


class LogCheckpoints:
    """The checkpoints of all log directories of a broker. Every method raises OSError."""

    def __init__(self, files: CheckpointFiles, table: LogTable) -> None:
        self._files = files
        self._table = table

    async def read(self, disk: Disk, name: str) -> dict[TopicPartition, int]:
        """Reads one file; empty without it. Raises CheckpointError when it is damaged."""
        return await self._files.read(disk, name)

    def forget(self, path: str) -> None:
        """Forgets what the files of a directory contain: the directory is offline."""
        self._files.forget(path)

    async def write_recovery_points(self, disk: Disk) -> bool:
        """Returns False when there is no room."""
        offsets = {
            log.state.topic_partition: log.state.recovery_point for log in self._table.checkpointed_logs_in(disk)
        }
        return await self._files.write(disk, RECOVERY_POINTS, offsets)

    async def write_log_start_offsets(self, disk: Disk) -> bool:
        """Returns False when there is no room.

        Also writes the offsets that the name of the first segment gives: earlier segments may reappear after a power
        loss.
        """
        logs = self._table.checkpointed_logs_in(disk)
        offsets = {
            log.state.topic_partition: log.state.log_start_offset for log in logs if log.state.log_start_offset > 0
        }
        return await self._files.write(disk, LOG_START_OFFSETS, offsets)

    async def write_high_watermarks(self, disk: Disk) -> bool:
        """Returns False when there is no room."""
        offsets = {
            log.state.topic_partition: log.state.high_watermark for log in self._table.checkpointed_logs_in(disk)
        }
        return await self._files.write(disk, HIGH_WATERMARKS, offsets)

    async def write_clean_offsets(self, disk: Disk) -> None:
        """Writes the offsets of the logs that have been compacted."""
        logs = self._table.checkpointed_logs_in(disk)
        offsets = {log.state.topic_partition: log.state.clean_offset for log in logs if log.state.clean_offset > 0}
        if offsets or await disk.exists(CLEAN_OFFSETS):
            await self._files.write(disk, CLEAN_OFFSETS, offsets)

    async def write_all(self, disk: Disk) -> None:
        """Writes all four, so that a log that has left the table has no entry any more."""
        await self.write_recovery_points(disk)
        await self.write_log_start_offsets(disk)
        await self.write_high_watermarks(disk)
        await self.write_clean_offsets(disk)
