"""The marker files that a log directory keeps until the controller knows that its logs may have lost records.

    ottla.power-loss-suspected  there was a power loss: records that were not flushed may be gone
    ottla.new-directory         the directory was empty

A start that finds such a file removes the broker's replicas from their ISRs before it registers; the file survives
starts that do not get so far. A directory that has failed takes no file: `failed_directories` of the server records
that, with the meaning of the first one. Not here: who writes the files (`log_directory.py`), and how the replicas leave
the ISRs (`server.log_dir_recovery`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ottla_broker.ports.disk import Disk
from ottla_broker.storage.files.names import NEW_DIRECTORY, POWER_LOSS_SUSPECTED
from ottla_broker.storage.log_dirs.log_directory import LogDirectory

OnLive: TypeAlias = Callable[[str, Callable[[Disk], Awaitable[object]]], Awaitable[None]]
"""Does work on one log directory if it is live; see `DirectoryAccess.on_live`."""


class DirectoryMarkers:
    """The markers of `directories`, the list of live directories that the log manager keeps."""

    def __init__(self, directories: list[LogDirectory], on_live: OnLive) -> None:
        self._directories = directories
        self._on_live = on_live
        self.on_cleared: Callable[[LogDirectory], Awaitable[None]] = _nothing
        """Called with a directory of which nobody relies any more on what it may have lost."""

    @property
    def is_power_loss_suspected(self) -> bool:
        """Whether a directory may have lost records that were not flushed."""
        return any(directory.is_power_loss_suspected for directory in self._directories)

    @property
    def has_new_directory(self) -> bool:
        """Whether a directory was empty."""
        return any(directory.is_new for directory in self._directories)

    @property
    def may_have_kept_all(self) -> bool:
        """Whether a directory failed in an earlier incarnation and the power has not gone since: one that only hung has
        lost nothing, and others must not count on the contrary."""
        return any(one.has_failed_before and not one.lost_power for one in self._directories)

    async def broker_registered(self) -> None:
        """Deletes the markers: the broker has registered, and its replicas have left their ISRs."""
        for directory in list(self._directories):
            if directory.is_power_loss_suspected:
                await self._clear_power_loss(directory)
            if directory.is_new:
                directory.is_new = False
                await self._on_live(directory.path, lambda disk: disk.delete(NEW_DIRECTORY))

    async def reopened_replicas_reported(self) -> None:
        """Deletes the power-loss markers of directories that were reopened while the broker runs: every replica there
        has been compared with the state of its partition."""
        # The list first: a directory that is reopened while the others are written is not reported yet. One that was
        # live at the start waits for `broker_registered`.
        reopened = [one for one in self._directories if one.has_failed]
        for directory in reopened:
            await self._clear_power_loss(directory)

    async def _clear_power_loss(self, directory: LogDirectory) -> None:
        if directory.is_power_loss_suspected:
            directory.is_power_loss_suspected = False
            await self._on_live(directory.path, lambda disk: disk.delete(POWER_LOSS_SUSPECTED))
        await self.on_cleared(directory)


async def _nothing(directory: LogDirectory) -> None:
    return
