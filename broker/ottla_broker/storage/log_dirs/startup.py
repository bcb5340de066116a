"""Brings the log directories of a broker from locked to loaded: inspect, claim, load.

    inspect   locks every directory and reads its files; the ones that do not answer are offline
    claim     checks that the directories belong to this broker, formats empty ones, reads the replica registry
    load      renames stale logs, cleans up unfinished future replicas, loads all logs, resumes the future replicas

All directories go through a step at the same time. One that fails is offline; the broker refuses to start when none is
left, and for what only a person can decide (LogDirectoryError).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any

from ottla_broker.ports.os_errors import is_shortage
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.storage.log_dirs.future_replicas import FutureReplicas
from ottla_broker.storage.log_dirs.interrupted_future_replicas import InterruptedFutureReplicas
from ottla_broker.storage.log_dirs.loading import DirectoryLoader, all_or_first_error
from ottla_broker.storage.log_dirs.log_directory import (
    DirectoryOwner,
    LogDirectory,
    LogDirectoryError,
    check,
    claim,
    inspect,
    without_format_permission,
)
from ottla_broker.storage.log_dirs.monitor import DirectoryMonitor
from ottla_broker.storage.log_dirs.recovery_threads import LoadProgress
from ottla_broker.storage.log_dirs.replica_registry import RecreatedReplica, find_replaced_directories
from ottla_broker.storage.log_dirs.shared_parts import SharedParts
from ottla_broker.storage.log_dirs.stray_replicas import StrayReplicas


class LogDirectoryStartup:
    """See the module.

    Args:
        directories: the live directories; filled by `inspect`, one that fails later is removed.
        identity: filled by `claim`.
        may_format: `ottla.log.dirs.format`, None without the key.
    """

    def __init__(
        self,
        directories: list[LogDirectory],
        identity: DirectoryOwner,
        shared: SharedParts,
        *,
        monitor: DirectoryMonitor,
        loader: DirectoryLoader,
        future_replicas: FutureReplicas,
        progress: LoadProgress,
        may_format: Collection[str] | None,
    ) -> None:
        self._directories = directories
        self._identity = identity
        self._access = shared.access
        self._states = shared.states
        self._table = shared.table
        self._monitor = monitor
        self._registry = shared.registry
        self._loader = loader
        self._future_replicas = future_replicas
        self._progress = progress
        self._clock = shared.clock
        self._may_format = may_format
        self._notice = shared.notice
        self.is_loaded = False

    async def inspect(self) -> None:
        """Raises LogDirectoryError, and OSError when no directory answers."""
        errors: list[OSError] = []
        paths = self._access.paths

        async def inspect_one(path: str) -> None:
            try:
                work = partial(inspect, self._access.disk(path))
                self._directories.append(await self._monitor.run_with_timeout(path, work))
            except OSError as error:
                _refuse_shortage(error)
                errors.append(error)
                self._access.mark_offline(path, error)

        await all_or_first_error(self._clock, [partial(inspect_one, path) for path in paths], "inspect")
        if not self._directories:
            raise errors[0]
        self._directories.sort(key=lambda directory: paths.index(directory.path))

    async def claim(self, broker_id: int, cluster_id: str) -> None:
        """Makes the directories this broker's.

        A directory that is empty without format permission, or that is another one than before at its path, is offline
        as long as another one can be used. Raises LogDirectoryError before anything is written.
        """
        check(self._directories, broker_id, cluster_id)
        await self._each_live(self._registry.load)
        may_format = self._may_format
        ids = self._registry.registry.ids
        refused = without_format_permission(self._directories, may_format)
        refused |= find_replaced_directories(ids, self._directories, may_format)
        if len(refused) == len(self._directories):
            raise LogDirectoryError(next(iter(refused.values())))
        for path, reason in refused.items():
            self._access.mark_offline(path, OSError(errno.ENODEV, reason))
        self._directories[:] = [one for one in self._directories if one.path not in refused]
        for path in self._states.offline:
            if may_format is not None and path not in may_format:
                self._states[path].directory_id = ids.get(path)
        self._identity.broker_id, self._identity.cluster_id = broker_id, cluster_id
        await self._each_live(self._claim_one)
        await self._each_live(self._registry.record_directory_id)
        await self._save_registry()

    async def _claim_one(self, directory: LogDirectory) -> None:
        if directory.lost_power:
            self._notice(
                f"log directory {directory.path}: no clean shutdown, and the kernel has booted since: records that "
                "were not flushed may be gone"
            )
        await claim(directory, self._identity.broker_id, self._identity.cluster_id, self._clock)
        if directory.meta is not None:
            self._states[directory.path].directory_id = directory.meta.directory_id

    async def _save_registry(self) -> None:
        """A directory without room is no reason to refuse a start: the registry is written when there is room."""
        try:
            await self._registry.save_if_changed()
        except KafkaError as error:
            self._notice(error.message)

    async def load(self) -> None:
        """Opens every log; recovers those of directories that were not shut down cleanly.

        Raises:
            LogDirectoryError: a partition is in two directories, or a file is not what it should be.
            OSError: no directory is left.
        """
        await self._each_live(self._loader.prepare)
        if self._registry.registry.recreated or any(self._registry.catching_up_in.values()):
            strays = StrayReplicas(self._registry, self._access.paths, self._clock, self._notice)
            await self._each_live(strays.scan)
            await self._each_live(strays.rename_stale_logs)
            strays.update_registry(self._states.live)
        if self._states.offline:
            self._registry.start_without_some(self._clock.now_ms())
        await self._save_registry()
        interrupted = InterruptedFutureReplicas(self._clock, self._notice)
        for step in (
            interrupted.scan,
            interrupted.scan_markers,
            interrupted.delete_replaced,
            interrupted.delete_markers,
        ):
            await self._each_live(step)
        await self._record_swapped(interrupted)
        self._loader.future_logs = interrupted.future_logs(
            is_complete=not self._states.offline, recreated=self._registry.registry.recreated
        )
        await self._each_live(self._loader.load)
        await self._resume_future_replicas()
        self._progress.current.clear()
        self._loader.forget_configs()
        self.is_loaded = True

    async def _record_swapped(self, interrupted: InterruptedFutureReplicas) -> None:
        """Records logs that a future log replaced just before the broker ended: an offline directory may hold the
        older one."""
        if self._states.offline:
            await self._each_live(interrupted.scan_swapped)
            for partition, path in interrupted.swapped.items():
                if self._states.is_live(path) and partition not in self._registry.registry.recreated:
                    replica = RecreatedReplica(path, False, tuple(self._states.offline))
                    self._registry.record(partition, replica)
            await self._save_registry()

    async def _resume_future_replicas(self) -> None:
        for partition, future in self._table.loaded_future.items():
            current = self._table.current.get(partition)
            try:
                if current is None:
                    await future.closer.abandon()  # its directory has failed: the future log is left for a later start
                else:
                    await self._future_replicas.resume(current, future)
            except KafkaError:
                await future.closer.abandon()  # a directory is offline or full now; the next start tries again
        self._table.loaded_future.clear()
        self._loader.future_logs.clear()

    async def _each_live(self, work: Callable[[LogDirectory], Coroutine[Any, Any, None]]) -> None:
        """Does the work on all directories at the same time; one that fails is offline. Raises OSError when none is
        left."""
        errors: list[OSError] = []

        async def guarded(directory: LogDirectory) -> None:
            try:
                await self._monitor.run_with_timeout(directory.path, partial(work, directory))
            except OSError as error:
                _refuse_shortage(error)
                errors.append(error)
                self._access.mark_offline(directory.path, error)

        await all_or_first_error(
            self._clock, [partial(guarded, directory) for directory in self._directories], "log directories"
        )
        for directory in self._directories:
            if not self._states.is_live(directory.path):
                self._access.fail_logs(directory.disk)  # those that were loaded before it failed
        self._directories[:] = [one for one in self._directories if self._states.is_live(one.path)]
        if errors and not self._states.live:
            raise errors[0]


def _refuse_shortage(error: OSError) -> None:
    """Refuses the start instead of taking a directory offline when the process may open too few files."""
    if is_shortage(error):
        raise OSError(
            error.errno,
            f"{error.strerror}: this says nothing of the log directories, the broker needs more: a file for each "
            "partition replica beside its connections; raise the limit (ulimit -n, LimitNOFILE)",
        ) from error
