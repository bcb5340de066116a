"""Durations as Kubernetes writes them (metav1.Duration): 10s, 1h30m, 500ms."""

from __future__ import annotations

import re

_PARTS = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,9})m(?!s))?(?:(\d{1,9})s)?(?:(\d{1,12})ms)?")
_MS = (3_600_000, 60_000, 1000, 1)
FORM = "a duration such as 500ms, 10s, 5m or 1h30m"


def duration_ms(text: str) -> int:
    """The milliseconds of a duration.

    Raises:
        ValueError: the text is none.

    >>> duration_ms("1h30m"), duration_ms("10s"), duration_ms("500ms"), duration_ms("0s")
    (5400000, 10000, 500, 0)
    """
    match = _PARTS.fullmatch(text)
    if not text or match is None:
        raise ValueError(f"{text!r} is not {FORM}")
    return sum(int(number or 0) * unit for number, unit in zip(match.groups(), _MS, strict=True))
