"""What the log directories of a broker call when one fails, is full or is reopened.

Not here: what a log calls (`log_callbacks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ottla_broker.records.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class DirectoryCallbacks:
    """What log directories call. What has a default may be left out by whoever has no use for it.

    Args:
        on_failure: a directory went offline, with the error.
        on_change: a directory is full, or online again.
        on_reopened: a directory is live again, with its logs and whether each has every record that it had. Called in
            the turn of the loop in which the logs can be found: no command may come first.
        notice: writes a line to the broker's log.
    """

    on_failure: Callable[[str, OSError], None]
    on_change: Callable[[str], None] = lambda path: None
    on_reopened: Callable[[str, Mapping[TopicPartition, bool]], None] = lambda path, logs: None
    notice: Callable[[str], None] = lambda message: None
