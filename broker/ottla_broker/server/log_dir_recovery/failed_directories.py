"""Keeps in the coordination store which log directories have failed, as `/ottla/failed-log-dirs/<directory.id>`.

What a directory had not flushed when it failed may be gone, as after a power loss: the kernel drops pages that it
cannot write, and a person who repairs a file system unmounts it. While the broker runs it knows that itself, and
compares the replicas when the directory is reopened. The next start cannot know: the boot id is the same, and the
directory takes no marker file. So the failure is recorded here, and a start that finds the record treats the directory
as one that lost power. The record is deleted once nobody relies on what may be lost.

Worked example: 0 and 1 are in sync with t-0. The only directory of 0 fails in the middle of a segment's flush and is
mounted again: the segment lacks its end, the next one is there. Without the record 0 would take the hole for a gap that
compaction left, and lead with it. With it, the log ends at the hole, and 0 registers once it is out of the ISR.

Not here: what a start makes of it (`storage.log_dirs.loading`, `server.log_dir_recovery.power_loss`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import Any

from ottla_broker.ports import Clock, Coordination
from ottla_broker.ports.coordination import CoordinationError, NodeExists
from ottla_broker.server.store.registration import make_path
from ottla_broker.storage.log_dirs.log_directory import LogDirectory
from ottla_broker.storage.log_dirs.log_manager import LogManager

ROOT = "/ottla/failed-log-dirs"
_RETRY_S = 1.0
"""Pause before a failure that the store did not take is recorded again."""


class FailedDirectories:
    """The failures of one broker's directories; `DirectoryMarkers` deletes what is recorded here."""

    def __init__(
        self, coordination: Coordination, clock: Clock, log_manager: LogManager, logger: logging.LoggerAdapter[Any]
    ) -> None:
        self._coordination = coordination
        self._clock = clock
        self._log_manager = log_manager
        self._logger = logger
        self._is_claimed = False
        log_manager.markers.on_cleared = self._delete

    async def recall(self) -> None:
        """At a start, once the directories are this broker's, before the logs are loaded. Raises CoordinationError."""
        self._is_claimed = True
        await make_path(self._coordination, ROOT)  # now: there may be little time for a record
        for directory in self._log_manager.directories:
            directory_id = None if directory.meta is None else directory.meta.directory_id
            if directory_id is not None and await self._coordination.exists(f"{ROOT}/{directory_id}") is not None:
                directory.has_failed_before = directory.is_power_loss_suspected = True
                self._logger.warning(
                    "log directory %s failed when it was used last: records that were not flushed may be gone",
                    directory.path,
                )

    async def record(self, paths: Iterable[str]) -> None:
        """These directories have failed. Tries again until the store has it, or the directory is live again. Nothing
        before `recall`: the directories may be another broker's."""
        if not self._is_claimed:
            return
        await asyncio.gather(*[self._record(path) for path in list(paths)])

    async def _record(self, path: str) -> None:
        directory_id = self._log_manager.states[path].directory_id
        if directory_id is None:
            return
        is_logged = False
        while True:
            try:
                with contextlib.suppress(NodeExists):
                    await self._coordination.create(f"{ROOT}/{directory_id}", path.encode())
                return
            except CoordinationError as error:
                if not is_logged:
                    self._logger.warning("the failure of log directory %s is not recorded yet: %s", path, error)
                is_logged = True
            await self._clock.sleep(_RETRY_S)
            if self._log_manager.states.is_live(path):
                return

    async def _delete(self, directory: LogDirectory) -> None:
        """A record that stays only has the next start wait."""
        has_record = directory.has_failed or directory.has_failed_before
        # Of one that is offline again the record is of now.
        if has_record and directory.meta is not None and self._log_manager.states.is_live(directory.path):
            with contextlib.suppress(CoordinationError):
                await self._coordination.delete(f"{ROOT}/{directory.meta.directory_id}")
