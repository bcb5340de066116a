"""How many replicas move at the same time, and when to look how far they are.

The next ones begin when the last are done, so a look follows soon while what moves is small. Large replicas are bounded
by their number: each reads and writes a whole log. Small ones are done by the next look, so more of them go together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

SMALL_BYTES = 1 << 20
"""A replica of at most this size is small."""
SMALL_FOR_ONE = 10
"""How many small replicas may move at the same time for each large one that may."""
SOON_BYTES = 64 << 20
"""What is copied within about a second."""
SOON_S = 0.5
REQUEUE_S = 2.0

_Move = TypeVar("_Move")


def chosen(
    moves: Iterable[_Move], size_bytes: Callable[[_Move], int], most: int, under_way: Iterable[int] = ()
) -> list[_Move]:
    """The moves to begin now, in their order: at most `most` large ones at the same time, and ten times as many small.

    Args:
        under_way: the sizes of what moves already.

    >>> chosen([5 << 20, 1, 6 << 20, 2], lambda size: size, 1)
    [5242880, 1, 2]
    >>> chosen([5 << 20, 1], lambda size: size, 1, under_way=[7 << 20])
    [1]
    """
    sizes = list(under_way)
    large = sum(1 for size in sizes if size > SMALL_BYTES)
    small = len(sizes) - large
    found = []
    for move in moves:
        if size_bytes(move) > SMALL_BYTES:
            if large < most:
                large += 1
                found.append(move)
        elif small < most * SMALL_FOR_ONE:
            small += 1
            found.append(move)
    return found


def look_after_s(bytes_to_go: Sequence[int]) -> float:
    """When to look at moves that are under way again, by what the one has to copy that is done first.

    >>> look_after_s([0, 1 << 40]), look_after_s([1 << 40])
    (0.5, 2.0)
    """
    return SOON_S if min(bytes_to_go, default=0) <= SOON_BYTES else REQUEUE_S
