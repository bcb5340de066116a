"""Renames stale logs to `-stray` at a start, before any log is opened, and updates the replica registry.

A log is stale when its replica was recreated on another directory, or deleted, while the directory of the log was
offline; so is the log of a replica that was recreated and never caught up, when another directory has one. Both steps
run on all directories before the next one starts; each raises OSError. Not here: a directory that is reopened while the
broker runs (`reopening.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla_broker.ports.clock import Clock
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.names import (
    FUTURE_REPLICA_MARKER,
    STRAY_DIRECTORY,
    parse_partition_directory,
    renamed_directory_name,
)
from ottla_broker.storage.log_dirs.log_directory import LogDirectory
from ottla_broker.storage.log_dirs.registry_files import ReplicaRegistryFiles
from ottla_broker.storage.log_dirs.replica_registry import DELETED, Reconciliation, reconcile


class StrayReplicas:
    """One start. `configured` are the paths of log.dirs; `notice` writes a line to the broker's log."""

    def __init__(
        self, registry: ReplicaRegistryFiles, configured: Sequence[str], clock: Clock, notice: Callable[[str], None]
    ) -> None:
        self._registry = registry
        self._configured = configured
        self._clock = clock
        self._notice = notice
        self._present: dict[str, dict[TopicPartition, None]] = {}
        self._never_caught_up: dict[str, list[TopicPartition]] = {}
        """By path: recreated replicas that never caught up and that the newest registry does not have."""

    async def scan(self, directory: LogDirectory) -> None:
        """Step 1: finds the partitions of the directory."""
        found = [
            parse_partition_directory(name) for name, is_directory, _ in await directory.disk.list() if is_directory
        ]
        self._present[directory.path] = {partition: None for partition in found if partition is not None}
        for partition in self._registry.catching_up_in.get(directory.path, []):
            recreated = self._registry.registry.recreated
            is_known = partition in recreated or partition not in self._present[directory.path]
            if not is_known and not await directory.disk.exists(f"{partition}/{FUTURE_REPLICA_MARKER}"):
                self._never_caught_up.setdefault(directory.path, []).append(partition)

    async def rename_stale_logs(self, directory: LogDirectory) -> None:
        """Step 2: durably."""
        strays = [partition for path, partition in self._reconcile().stale if path == directory.path]
        for partition in strays:
            path = self._registry.registry.recreated[partition].path
            reason = "deleted" if path == DELETED else f"recreated on {path}"
            self._notice(f"{partition} was {reason}; its older log in {directory.path} becomes a stray")
        for partition in self._never_caught_up.get(directory.path, []):
            others = [
                path
                for path, found in self._present.items()
                if partition in found and partition not in self._never_caught_up.get(path, ())
            ]
            if others:
                self._notice(f"{partition} in {directory.path} never caught up and becomes a stray: {others[0]} has it")
                strays.append(partition)
        for partition in strays:
            name = renamed_directory_name(partition, self._clock.uuid4().hex, STRAY_DIRECTORY)
            await directory.disk.rename(str(partition), name)
        if strays:
            await directory.disk.fsync_directory()

    def update_registry(self, live: Sequence[str]) -> None:
        """Step 3: removes what both steps have completed on the live directories; not saved."""
        self._present = {path: found for path, found in self._present.items() if path in live}
        left = self._reconcile().recreated
        for partition in list(self._registry.registry.recreated):
            self._registry.record(partition, left.get(partition))

    def _reconcile(self) -> Reconciliation:
        return reconcile(self._registry.registry.recreated, self._present, self._configured)
