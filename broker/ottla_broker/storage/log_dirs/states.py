"""The states of log directories: online, full, offline. Decisions, and the table of what was decided. Pure.

    online ──less free than the reserve, or a write that found no room──────────▶ full
    full ──more free than the reserve──────────────────────────────────────────▶ online
    online, full ──EIO, EROFS, a failed fsync, a vanished mount, no answer──────▶ offline
    any ──EMFILE, ENFILE, ENOMEM, ... (`ports.os_errors`)───────────────────────▶ as it was: no disk has failed
    offline ──it answers again, is the same directory, and its logs are loaded──▶ online or full

A **full** directory serves reads, deletes and applies retention; nothing new is placed on it, and its partitions
refuse produce requests. An **offline** one is not touched any more, but for a probe that asks whether it is back.
Not here: who asks the disks and when (`directory_watch.py`), and what becomes of the logs (`log_manager.py`).

    >>> states = DirectoryStates(["/d0", "/d1"], reserve_bytes=100)
    >>> states.apply("/d0", after_look(states["/d0"].state, 80, reserve_bytes=100), 1000)
    True
    >>> states["/d0"].state.value, states.placeable, states.live
    ('full', ['/d1'], ['/d0', '/d1'])
    >>> states.apply("/d1", after_failure(OSError(5, "Input/output error")), 2000)
    True
    >>> states["/d1"].reason, states.live, states.offline
    ('Input/output error', ['/d0'], ['/d1'])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from ottla_broker.ports.os_errors import is_lack_of_room, is_shortage

_FASTEST_FILL_BYTES_PER_S = 2_000_000_000
_LEAST_LOOK_S = 0.05
_LONGEST_LOOK_S = 1.0


class DirectoryState(Enum):
    """As `ottla local status` and /status print them."""

    ONLINE = "online"
    FULL = "full"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a directory is from now on, and why. The reason is "" for one that is online."""

    state: DirectoryState
    reason: str = ""


ONLINE = Verdict(DirectoryState.ONLINE)


def after_failure(error: OSError) -> Verdict | None:
    """A call on the directory has failed. Lack of room makes it full, a shortage of descriptors or memory changes
    nothing (None), everything else takes it offline.

    No call is tried again: after a failed fsync the kernel has forgotten what it could not write.
    """
    if is_shortage(error):
        return None
    return Verdict(DirectoryState.FULL if is_lack_of_room(error) else DirectoryState.OFFLINE, reason_of(error))


def reason_of(error: OSError) -> str:
    """What a person is told of a failed call."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename:
        reason = f"{reason}: {error.filename!r}"
    return reason


def after_look(state: DirectoryState, free_bytes: int, *, reserve_bytes: int, margin_bytes: int = 1) -> Verdict:
    """The directory answered and tells its free bytes.

    A full one counts as online again only with `margin_bytes` above the reserve, so that it does not go back and
    forth. An offline one stays that: a look alone does not bring it back.
    """
    if state is DirectoryState.OFFLINE:
        raise ValueError("an offline directory comes back by a probe and a load of its logs")
    least = reserve_bytes + (margin_bytes if state is DirectoryState.FULL else 0)
    if free_bytes < least:
        return Verdict(
            DirectoryState.FULL,
            f"{free_bytes} bytes are free, ottla.log.dir.reserve.bytes keeps {reserve_bytes}",
        )
    return ONLINE


def after_silence(silent_s: float, probe_silent_s: float, timeout_s: float) -> Verdict | None:
    """The directory's lane has been at one call for `silent_s`, and a probe beside it for `probe_silent_s`.

    None while there is hope: a disk that is busy writing back answers a probe (then `probe_silent_s` is 0) and is only
    slow. `timeout_s` is ottla.log.dir.io.timeout.ms.
    """
    if silent_s < timeout_s or probe_silent_s < timeout_s / 2:
        return None
    return Verdict(
        DirectoryState.OFFLINE,
        f"no answer for {silent_s:.0f} s (ottla.log.dir.io.timeout.ms), a probe of {probe_silent_s:.0f} s included",
    )


def look_interval_s(free_bytes: int, reserve_bytes: int) -> float:
    """How soon to look at the free bytes again: before even the fastest disk could use up what lies above the reserve.

    >>> look_interval_s(100 << 30, 1 << 26), look_interval_s((1 << 26) + 1000, 1 << 26)
    (1.0, 0.05)
    """
    room = max(free_bytes - reserve_bytes, 0)
    return min(max(room / 2 / _FASTEST_FILL_BYTES_PER_S, _LEAST_LOOK_S), _LONGEST_LOOK_S)


@dataclass(slots=True)
class DirectoryStatus:
    """One row of the table. Bytes are -1 while they are not known; `since_ms` is the wall clock's."""

    path: str
    state: DirectoryState = DirectoryState.ONLINE
    reason: str = ""
    since_ms: int = -1
    free_bytes: int = -1
    total_bytes: int = -1
    directory_id: str | None = None
    """From meta.properties, kept while it is offline."""

    @property
    def is_live(self) -> bool:
        """Online or full: its logs are open and serve reads."""
        return self.state is not DirectoryState.OFFLINE


class DirectoryStates:
    """The table, in log.dirs order."""

    def __init__(self, paths: Sequence[str], reserve_bytes: int = 0) -> None:
        """`reserve_bytes` is ottla.log.dir.reserve.bytes; with 0 only a write that found no room makes one full."""
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
        """Online and full ones."""
        return [one.path for one in self if one.is_live]

    @property
    def placeable(self) -> list[str]:
        """Those that take new logs: online ones."""
        return [one.path for one in self if one.state is DirectoryState.ONLINE]

    @property
    def offline(self) -> list[str]:
        return [one.path for one in self if not one.is_live]

    def apply(self, path: str, verdict: Verdict, now_ms: int) -> bool:
        """Takes a decision down; True when the state has changed. A directory that is offline stays so until
        `returned`."""
        status = self._by_path[path]
        if not status.is_live:
            return False
        is_change = status.state is not verdict.state
        if is_change:
            status.since_ms = now_ms
        status.state = verdict.state
        status.reason = verdict.reason
        return is_change

    def returned(self, path: str, now_ms: int) -> None:
        """An offline directory is live again: its logs are loaded. The next look tells whether it is full."""
        status = self._by_path[path]
        status.state, status.reason, status.since_ms = DirectoryState.ONLINE, "", now_ms
