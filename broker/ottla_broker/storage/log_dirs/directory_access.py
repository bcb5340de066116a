"""The Disk of each log directory, and what follows when a call on it fails.

    failure (EIO, EROFS, ...)     the directory is offline: its logs fail, the broker is notified once
    lack of room                  the directory is full: its logs refuse appends until a space check finds room
    shortage (EMFILE, ENOMEM)     nothing is wrong with the directory: the call fails, files that nobody reads close

Other modules of this package call a Disk through `guarded` or `on_live`. Not here: the decisions themselves
(`states.py`), periodic checks and timeouts (`monitor.py`), reopening a directory (`reopening.py`).
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Any

from ottla_broker.ports.clock import Clock
from ottla_broker.ports.disk import Disk, LogDisk
from ottla_broker.ports.os_errors import is_shortage, is_sound
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.storage.files.names import STRAY_DIRECTORY, is_renamed_directory
from ottla_broker.storage.log_dirs.directory_callbacks import DirectoryCallbacks
from ottla_broker.storage.log_dirs.log_table import LogTable
from ottla_broker.storage.log_dirs.states import (
    DirectoryDecision,
    DirectoryState,
    DirectoryStates,
    decide_after_failure,
    reason_of,
)

_SHORTAGE_NOTICE_S = 10.0


class DirectoryAccess:
    """See the module. On the broker's loop.

    Args:
        disks: by path, in the order of log.dirs. Reopening a directory replaces its Disk.
        table: the logs, which learn that their directory is full or has room again.
        callbacks: `on_failure` is called after `fail_logs`.
        fail_logs: fails the logs of a directory that went offline.
        on_shortage: closes files that nobody reads.
    """

    def __init__(
        self,
        disks: dict[str, LogDisk],
        states: DirectoryStates,
        table: LogTable,
        clock: Clock,
        callbacks: DirectoryCallbacks,
        *,
        fail_logs: Callable[[Disk], None],
        on_shortage: Callable[[], None],
    ) -> None:
        self._disks = disks
        self._states = states
        self._table = table
        self._clock = clock
        self._on_failure = callbacks.on_failure
        self._on_change = callbacks.on_change
        self._notice = callbacks.notice
        self.fail_logs = fail_logs
        """Fails the logs of a directory that went offline."""
        self._on_shortage = on_shortage
        self._next_shortage_notice = float("-inf")
        self.is_closed = False
        """The broker stops: failures have no consequences any more, and nothing new starts."""
        self.failed_at_close: dict[str, None] = {}
        """The directories that have failed since."""

    def disk(self, path: str) -> LogDisk:
        """The Disk of a directory now. Raises KeyError for a path that log.dirs does not name."""
        return self._disks[path]

    def replace_disk(self, path: str, disk: LogDisk) -> None:
        """Uses another Disk for a directory that is being reopened."""
        self._disks[path] = disk

    @property
    def disks(self) -> list[LogDisk]:
        """In the order of log.dirs; calls on the Disk of an offline directory fail."""
        return list(self._disks.values())

    @property
    def live_disks(self) -> list[LogDisk]:
        """The Disks of the online and the full directories."""
        return [self._disks[path] for path in self._states.live]

    @property
    def paths(self) -> list[str]:
        """Every log directory, in the order of log.dirs."""
        return list(self._disks)

    def is_in_use(self, disk: Disk) -> bool:
        """Whether the directory is live, and this is its Disk now."""
        return self._disks[disk.path] is disk and self._states.is_live(disk.path)

    def note_renamed(self, disk: Disk, before: str, after: str) -> None:
        """Records that the directory of a log is a stray now, or none any more."""
        strays = self._states[disk.path].strays
        strays.discard(before)
        if is_renamed_directory(after, STRAY_DIRECTORY):
            strays.add(after)

    async def guarded(self, disk: Disk, work: Awaitable[Any]) -> Any:
        """Awaits calls on a directory; an OSError has the consequences that the module lists.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR for every OSError.
        """
        try:
            return await work
        except OSError as error:
            if is_sound(error):
                self.directory_full(disk, error)
            else:
                self.directory_failed(disk, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {disk.path}: {error}") from error

    async def on_live(self, path: str, work: Callable[[Disk], Awaitable[object]]) -> None:
        """Does the work on one directory if it is live; a failure has its consequences and is not raised."""
        if self._states.is_live(path):
            try:
                await self.guarded(self._disks[path], work(self._disks[path]))
            except KafkaError:
                return

    def directory_failed(self, disk: Disk, error: OSError) -> None:
        """Takes the directory offline. A shortage of descriptors or memory is no failure of the directory."""
        if is_shortage(error):
            self.shortage(disk, error)
            return
        if self.is_closed:
            self.failed_at_close[disk.path] = None
            return
        if self._disks[disk.path] is not disk or not self.mark_offline(disk.path, error):
            return
        self.fail_logs(disk)
        self._on_failure(disk.path, error)

    def directory_full(self, disk: Disk, error: OSError) -> None:
        """Marks the directory full: its logs refuse appends until there is room.

        A shortage of descriptors or memory says nothing about the directory: only the log that met it waits, until the
        next space check.
        """
        decision = decide_after_failure(error)
        if decision is None:
            self.shortage(disk, error)
        elif not self.is_closed and self._disks[disk.path] is disk:
            self.apply(disk.path, decision)

    def shortage(self, disk: Disk, error: OSError) -> None:
        """Writes a line to the broker's log, once in a while, and closes files that nobody reads."""
        now = self._clock.monotonic()
        if self.is_closed or now < self._next_shortage_notice:
            return
        self._next_shortage_notice = now + _SHORTAGE_NOTICE_S
        self._notice(
            f"log directory {disk.path}: a call failed and is repeated later, no directory is taken offline: "
            f"{reason_of(error)}; where descriptors are short, raise the limit of open files (ulimit -n, LimitNOFILE)"
        )
        self._on_shortage()

    def apply(self, path: str, decision: DirectoryDecision) -> None:
        """Records a decision about a live directory; its logs fail, become full, or accept appends again."""
        disk = self._disks[path]
        if decision.state is DirectoryState.OFFLINE:
            self.directory_failed(disk, OSError(errno.ETIMEDOUT, decision.reason))
            return
        is_change = self._states.apply(path, decision, self._clock.now_ms())
        is_full = self._states[path].state is DirectoryState.FULL
        for log in self._table.checkpointed_logs_in(disk):
            if is_full:
                log.state.mark_full()
            elif log.state.is_full:
                log.truncation.resume_appends()
        if is_change:
            self._notice(f"log directory {path} is {decision.state.value}" + (f": {decision.reason}" * is_full))
            self._on_change(path)

    def mark_offline(self, path: str, error: OSError) -> bool:
        """Takes a directory offline without consequences for logs or broker; False when it is offline already.

        A directory that has too little room to load its logs is offline as well: none of its logs is open.
        """
        decision = DirectoryDecision(DirectoryState.OFFLINE, reason_of(error))
        if not self._states.apply(path, decision, self._clock.now_ms()):
            return False
        self._disks[path].take_offline(error)
        return True
