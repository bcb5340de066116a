"""Release names in values: inter.broker.protocol.version and message format versions. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

_LEVELS: Final = {
    (2, 8): (1,),
    (3, 0): (0, 1),
    (3, 1): (0,),
    (3, 2): (0,),
    (3, 3): (0, 1, 2, 3),
    (3, 4): (0,),
    (3, 5): (0, 1, 2),
    (3, 6): (0, 1, 2),
    (3, 7): (0, 1, 2, 3, 4),
    (3, 8): (0,),
    (3, 9): (0,),
}
"""The releases whose requests are spoken between brokers, with the levels that were given out while each was made.

2.8-IV0 is left out: no release spoke it, and its LeaderAndIsr has no topic ids, which came with 2.8-IV1."""


def release(text: str) -> tuple[int, int] | None:
    """(major, minor) of "3.9", "3.9-IV0", "3.9.1" or "0.10.2-IV0" (there: (0, 10)); None when it is not a release.

    >>> release("3.9-IV0"), release("2.8"), release("newest")
    ((3, 9), (2, 8), None)
    """
    match = re.fullmatch(r"(\d+)\.(\d+)(?:\.\d+)*(?:-IV\d+)?", text)
    return (int(match[1]), int(match[2])) if match else None


def level(text: str) -> tuple[int, int, int] | None:
    """(major, minor, level) of a release that is spoken between brokers, None for any other.

    A release without a level means its last one, and what stands behind the second dot says nothing, as with Kafka.

    >>> level("3.5"), level("3.5-IV0"), level("3.9.1"), level("2.8"), level("2.8-IV0"), level("3.5-IV3"), level("4.0")
    ((3, 5, 2), (3, 5, 0), (3, 9, 0), (2, 8, 1), None, None, None)
    """
    match = re.fullmatch(r"(\d+)\.(\d+)(?:-IV(\d+)|\..*)?", text)
    levels = _LEVELS.get((int(match[1]), int(match[2]))) if match else None
    if match is None or levels is None:
        return None
    found = levels[-1] if match[3] is None else int(match[3])
    return (int(match[1]), int(match[2]), found) if found in levels else None


def protocol_version(value: Any) -> str | None:
    """Validator of inter.broker.protocol.version."""
    if level(value) is not None:
        return None
    wanted = "a release between 2.8 and 3.9, such as 3.9"
    found = release(value)
    if found is None or found not in _LEVELS:
        return wanted
    levels = ", ".join(f"{found[0]}.{found[1]}-IV{number}" for number in _LEVELS[found])
    return f"{wanted}; of {found[0]}.{found[1]} these levels are known: {levels}"


def any_release(value: Any) -> str | None:
    """Validator of message format versions."""
    return None if release(value) is not None else "a release, such as 3.0"


def throttled_replicas(value: Any) -> str | None:
    """Validator of the throttled replica lists: `*`, or PARTITION:BROKER separated by commas.

    Items may be empty, as in Apache Kafka: who takes one out of the list may leave a comma behind.
    """
    if "".join(value) == "*" or all(re.fullmatch("([0-9]+:[0-9]+)?", item) for item in value):
        return None
    return "* or PARTITION:BROKER,PARTITION:BROKER,..."
