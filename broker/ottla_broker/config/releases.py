"""Release names in values: inter.broker.protocol.version and message format versions. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

_LEVELS: Final = {
    "0.8.0": (),
    "0.8.1": (),
    "0.8.2": (),
    "0.9.0": (),
    "0.10.0": (0, 1),
    "0.10.1": (0, 1, 2),
    "0.10.2": (0,),
    "0.11.0": (0, 1, 2),
    "1.0": (0,),
    "1.1": (0,),
    "2.0": (0, 1),
    "2.1": (0, 1, 2),
    "2.2": (0, 1),
    "2.3": (0, 1),
    "2.4": (0, 1),
    "2.5": (0,),
    "2.6": (0,),
    "2.7": (0, 1, 2),
    "2.8": (0, 1),
    "3.0": (0, 1),
    "3.1": (0,),
    "3.2": (0,),
    "3.3": (0, 1, 2, 3),
    "3.4": (0,),
    "3.5": (0, 1, 2),
    "3.6": (0, 1, 2),
    "3.7": (0, 1, 2, 3, 4),
    "3.8": (0,),
    "3.9": (0,),
    "4.0": (0, 1),
}
"""The releases that 3.9.1 has a name for, with the levels that were given out while each was made. Those of 4.0 were
not all given out, so that 4.0 without one means nothing yet. Source: MetadataVersion."""

_OLDEST_SPOKEN, _NEWEST_SPOKEN = (2, 8), (3, 9)
"""Releases whose requests are spoken between brokers: those of which 3.9.1 and this release have all versions."""
_NEVER_SPOKEN: Final = ("2.8-IV0",)
"""No release spoke it, and its LeaderAndIsr has no topic ids, which came with 2.8-IV1."""


def _release_and_level(text: str) -> tuple[str, int | None] | None:
    """("3.5", 2) of "3.5", "3.5.1" and "3.5-IV2"; None for what 3.9.1 has no name for.

    What stands behind the second dot says nothing (behind the third, where the release begins with 0), and a release
    without a level means its last one. Source: MetadataVersion.fromVersionString.
    """
    parts = text.split(".")
    while parts and not parts[-1]:
        del parts[-1]
    kept = 3 if text.startswith("0.") else 2
    name, separator, digits = (".".join(parts[:kept]) if len(parts) > kept else text).partition("-IV")
    levels = _LEVELS.get(name)
    if levels is None:
        return None
    if separator:
        found = next((number for number in levels if str(number) == digits), None)
        return None if found is None else (name, found)
    return None if name == "4.0" else (name, levels[-1] if levels else None)


def level(text: str) -> tuple[int, int, int] | None:
    """(major, minor, level) of a release that is spoken between brokers, None for any other.

    >>> level("3.5"), level("3.5-IV0"), level("3.9.1"), level("2.8"), level("2.8-IV0"), level("3.5-IV3"), level("4.0")
    ((3, 5, 2), (3, 5, 0), (3, 9, 0), (2, 8, 1), None, None, None)
    """
    found = _release_and_level(text)
    if found is None or found[1] is None or f"{found[0]}-IV{found[1]}" in _NEVER_SPOKEN:
        return None
    major, minor = (int(number) for number in found[0].split(".")[:2])
    return (major, minor, found[1]) if _OLDEST_SPOKEN <= (major, minor) <= _NEWEST_SPOKEN else None


def canonical_release(text: str) -> str | None:
    """The shortest name of a release that is spoken between brokers, None for any other.

    >>> canonical_release("3.9.1"), canonical_release("3.9-IV0"), canonical_release("3.5-IV1"), canonical_release("4.0")
    ('3.9', '3.9', '3.5-IV1', None)
    """
    found = level(text)
    if found is None:
        return None
    name = f"{found[0]}.{found[1]}"
    return name if found == level(name) else f"{name}-IV{found[2]}"


def protocol_version(value: Any) -> str | None:
    """Validator of inter.broker.protocol.version."""
    if level(value) is not None:
        return None
    wanted = "a release between 2.8 and 3.9, such as 3.9"
    release = value.partition("-IV")[0]
    if level(release) is None or release not in _LEVELS:
        return wanted
    names = [f"{release}-IV{number}" for number in _LEVELS[release]]
    return f"{wanted}; of {release} these levels are known: {', '.join(n for n in names if n not in _NEVER_SPOKEN)}"


def any_release(value: Any) -> str | None:
    """Validator of message format versions. Source: MetadataVersionValidator."""
    return None if _release_and_level(value) is not None else "a release from 0.8.0 to 3.9, such as 3.0"


def throttled_replicas(value: Any) -> str | None:
    """Validator of the throttled replica lists: `*`, or PARTITION:BROKER separated by commas.

    Items may be empty, as in Apache Kafka: who takes one out of the list may leave a comma behind.
    """
    if "".join(value) == "*" or all(re.fullmatch("([0-9]+:[0-9]+)?", item) for item in value):
        return None
    return "* or PARTITION:BROKER,PARTITION:BROKER,..."
