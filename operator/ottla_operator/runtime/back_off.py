"""The time before the next try after failures in a row: it doubles with each, up to five minutes."""

from __future__ import annotations

FIRST_BACK_OFF_S = 1.0
LONGEST_BACK_OFF_S = 300.0


def back_off_s(failures: int, first_s: float = FIRST_BACK_OFF_S) -> float:
    """
    >>> [back_off_s(count) for count in (1, 2, 5, 50)], back_off_s(3, 10.0)
    ([1.0, 2.0, 16.0, 300.0], 40.0)
    """
    return float(min(first_s * 2 ** min(failures - 1, 16), LONGEST_BACK_OFF_S))
