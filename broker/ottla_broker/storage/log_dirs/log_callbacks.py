"""What a log calls when its directory fails or is full, and when it needs a checkpoint of its directory.

Implements `storage.log.state.LogOwner`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

from ottla_broker.ports.disk import Disk

_OnError: TypeAlias = Callable[[Disk, OSError], None]
_Write: TypeAlias = Callable[[Disk], Coroutine[Any, Any, bool]]


@dataclass(frozen=True, slots=True)
class LogCallbacks:
    """One value for all logs of a broker."""

    directory_failed: _OnError
    directory_full: _OnError
    checkpoint_recovery_points: _Write
    checkpoint_log_start_offsets: _Write
    checkpoint_high_watermarks_in: _Write
    checkpoint_clean_offsets: Callable[[Disk], Coroutine[Any, Any, None]]
    notice: Callable[[str], None]
    """Writes a line to the broker's log."""
