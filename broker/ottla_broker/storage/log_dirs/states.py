"""The states of a log directory (online, full, offline), the decisions that change them, and their table. Pure.

    online ──less free than the reserve, or a write without room────────────────▶ full
    full ──more free than the reserve──────────────────────────────────────────▶ online
    online, full ──EIO, EROFS, a failed fsync, a vanished mount, no answer──────▶ offline
    any ──EMFILE, ENFILE, ENOMEM, ... (`ports.os_errors`)───────────────────────▶ unchanged: no disk has failed
    offline ──it answers again, is the same directory, and its logs are loaded──▶ online or full

A **full** directory serves reads, deletes and applies retention; nothing new is placed on it, and its partitions
refuse produce requests. An **offline** directory is not used, except for a probe that finds out whether it is back.
Not here: when the disks are checked (`monitor.py`), and what follows for the logs (`directory_access.py`).

    >>> states = DirectoryStates(["/d0", "/d1"], reserve_bytes=100)
    >>> states.apply("/d0", decide_after_space_check(states["/d0"].state, 80, reserve_bytes=100), 1000)
    True
    >>> states["/d0"].state.value, states.placeable, states.live
    ('full', ['/d1'], ['/d0', '/d1'])
    >>> states.apply("/d1", decide_after_failure(OSError(5, "Input/output error")), 2000)
    True
    >>> states["/d1"].reason, states.live, states.offline
    ('Input/output error', ['/d0'], ['/d1'])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from ottla_broker.ports.os_errors import is_lack_of_room, is_shortage

_FASTEST_FILL_BYTES_PER_S = 2_000_000_000
_MIN_SPACE_CHECK_S = 0.05
_MAX_SPACE_CHECK_S = 1.0


class DirectoryState(Enum):
    """The values are what `ottla local status` and /status print."""

    ONLINE = "online"
    FULL = "full"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class DirectoryDecision:
    """The state of a directory from now on, and why. The reason of an online one is empty."""

    state: DirectoryState
    reason: str = ""


ONLINE = DirectoryDecision(DirectoryState.ONLINE)


def decide_after_failure(error: OSError) -> DirectoryDecision | None:
    """Decides after a failed call on the directory.

    Lack of room makes it full, a shortage of descriptors or memory changes nothing (None), everything else takes it
    offline. No call is repeated: after a failed fsync the kernel has forgotten what it could not write.
    """
    if is_shortage(error):
        return None
    return DirectoryDecision(
        DirectoryState.FULL if is_lack_of_room(error) else DirectoryState.OFFLINE, reason_of(error)
    )


def reason_of(error: OSError) -> str:
    """The failed call in words, for logs and status."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename:
        reason = f"{reason}: {error.filename!r}"
    return reason


def decide_after_space_check(
    state: DirectoryState, free_bytes: int, *, reserve_bytes: int, margin_bytes: int = 1
) -> DirectoryDecision:
    """Decides after the directory has reported its free bytes.

    A full directory is online again only with `margin_bytes` above the reserve, so that it does not alternate. Raises
    ValueError for an offline one: free bytes alone do not reopen it.
    """
    if state is DirectoryState.OFFLINE:
        raise ValueError("an offline directory is reopened by a probe and a load of its logs")
    least = reserve_bytes + (margin_bytes if state is DirectoryState.FULL else 0)
    if free_bytes < least:
        return DirectoryDecision(
            DirectoryState.FULL,
            f"{free_bytes} bytes are free, ottla.log.dir.reserve.bytes keeps {reserve_bytes}",
        )
    return ONLINE


def decide_after_silence(silent_s: float, probe_silent_s: float, timeout_s: float) -> DirectoryDecision | None:
    """Decides while a call on the directory has not returned for `silent_s`, and a probe not for `probe_silent_s`.

    None means to wait on: a disk that is busy writing back answers a probe (then `probe_silent_s` is 0) and is only
    slow. `timeout_s` is ottla.log.dir.io.timeout.ms.
    """
    if silent_s < timeout_s or probe_silent_s < timeout_s / 2:
        return None
    return DirectoryDecision(
        DirectoryState.OFFLINE,
        f"no answer for {silent_s:.0f} s (ottla.log.dir.io.timeout.ms), a probe of {probe_silent_s:.0f} s included",
    )


def space_check_interval_s(free_bytes: int, reserve_bytes: int) -> float:
    """Seconds to the next space check: before even the fastest disk could use up what lies above the reserve.

    >>> space_check_interval_s(100 << 30, 1 << 26), space_check_interval_s((1 << 26) + 1000, 1 << 26)
    (1.0, 0.05)
    """
    room = max(free_bytes - reserve_bytes, 0)
    return min(max(room / 2 / _FASTEST_FILL_BYTES_PER_S, _MIN_SPACE_CHECK_S), _MAX_SPACE_CHECK_S)


@dataclass(slots=True)
class DirectoryStatus:
    """One row of the table. Bytes are -1 while they are unknown; `since_ms` is wall-clock time."""

    path: str
    state: DirectoryState = DirectoryState.ONLINE
    reason: str = ""
    since_ms: int = -1
    free_bytes: int = -1
    total_bytes: int = -1
    directory_id: str | None = None
    """From meta.properties; still there while the directory is offline."""
    strays: set[str] = field(default_factory=set)
    """The `-stray` directories: logs that are not assigned to this broker, and that nothing deletes."""

    @property
    def is_live(self) -> bool:
        """Online or full: its logs are open and serve reads."""
        return self.state is not DirectoryState.OFFLINE


class DirectoryStates:
    """The table, in log.dirs order."""

    def __init__(self, paths: Sequence[str], reserve_bytes: int = 0) -> None:
        """`reserve_bytes`: ottla.log.dir.reserve.bytes; with 0 only a write without room makes a directory full."""
        self.reserve_bytes = reserve_bytes
        self._by_path = {path: DirectoryStatus(path) for path in paths}

    def __getitem__(self, path: str) -> DirectoryStatus:
        """KeyError for a path that log.dirs does not name."""
        return self._by_path[path]

    def __iter__(self) -> Iterator[DirectoryStatus]:
        return iter(self._by_path.values())

    def is_live(self, path: str) -> bool:
        return self._by_path[path].is_live

    @property
    def live(self) -> list[str]:
        """The online and the full directories."""
        return [one.path for one in self if one.is_live]

    @property
    def placeable(self) -> list[str]:
        """The directories that take new logs: the online ones."""
        return [one.path for one in self if one.state is DirectoryState.ONLINE]

    @property
    def offline(self) -> list[str]:
        return [one.path for one in self if not one.is_live]

    def apply(self, path: str, decision: DirectoryDecision, now_ms: int) -> bool:
        """Records a decision; True when the state has changed. An offline directory stays offline until `reopened`."""
        status = self._by_path[path]
        if not status.is_live:
            return False
        is_change = status.state is not decision.state
        if is_change:
            status.since_ms = now_ms
        status.state = decision.state
        status.reason = decision.reason
        return is_change

    def reopened(self, path: str, now_ms: int) -> None:
        """An offline directory is live again: its logs are loaded. The next space check finds out if it is full."""
        status = self._by_path[path]
        status.state, status.reason, status.since_ms = DirectoryState.ONLINE, "", now_ms
