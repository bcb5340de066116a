"""Release names in values: inter.broker.protocol.version and message format versions. Pure."""

from __future__ import annotations

import re
from typing import Any

OLDEST_SPOKEN = (2, 8)
NEWEST_SPOKEN = (3, 9)
"""The releases whose requests are spoken between brokers (docs/decisions: compatibility)."""


def release(text: str) -> tuple[int, int] | None:
    """(major, minor) of "3.9", "3.9-IV0", "3.9.1" or "0.10.2-IV0" (there: (0, 10)); None when it is not a release.

    >>> release("3.9-IV0"), release("2.8"), release("newest")
    ((3, 9), (2, 8), None)
    """
    match = re.fullmatch(r"(\d+)\.(\d+)(?:\.\d+)*(?:-IV\d+)?", text)
    return (int(match[1]), int(match[2])) if match else None


def protocol_version(value: Any) -> str | None:
    """Validator of inter.broker.protocol.version."""
    found = release(value)
    if found is None or not OLDEST_SPOKEN <= found <= NEWEST_SPOKEN:
        return "a release between 2.8 and 3.9, such as 3.9"
    return None


def any_release(value: Any) -> str | None:
    """Validator of message format versions."""
    return None if release(value) is not None else "a release, such as 3.0"


def throttled_replicas(value: Any) -> str | None:
    """Validator of the throttled replica lists: `*`, or PARTITION:BROKER separated by commas."""
    if value in ((), ("*",)) or all(re.fullmatch(r"\d+:\d+", item) for item in value):
        return None
    return "* or PARTITION:BROKER,PARTITION:BROKER,..."
