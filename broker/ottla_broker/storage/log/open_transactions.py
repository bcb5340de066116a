"""The transactions of a log that hold its last stable offset back (KIP-98). Pure.

A transaction is *ongoing* from its first record in this log to its marker, and *unreplicated* from then on until the
high watermark has passed the marker: until then the marker may be lost with its leader. The first unstable offset is
the smallest first offset of both kinds. Worked example with the high watermark 30:

>>> transactions = OpenTransactions()
>>> transactions.begin(7, 10)
>>> transactions.begin(8, 20)
>>> transactions.complete(10, marker_offset=35)
20
>>> transactions.first_unstable_offset(high_watermark=30)
10
>>> transactions.first_unstable_offset(high_watermark=36)
20

Not here: what a producer may append (`producers.py`), which transactions were aborted (`transaction_index.py`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable


class OpenTransactions:
    """The ongoing and unreplicated transactions of one log. A producer has at most one ongoing transaction;
    transactions begin in offset order."""

    __slots__ = ("_ongoing", "_smallest", "_unreplicated", "is_empty")

    def __init__(self) -> None:
        # An OrderedDict: the oldest one is read often, and usually removed first, which is slow in a plain dict.
        self._ongoing: OrderedDict[int, int] = OrderedDict()
        self._unreplicated: deque[tuple[int, int]] = deque()
        self._smallest = -1
        self.is_empty = True
        """Nothing holds the last stable offset below the high watermark; every read_committed fetch reads this."""

    @property
    def ongoing(self) -> Iterable[tuple[int, int]]:
        """(first offset, producer id), oldest first."""
        return self._ongoing.items()

    @property
    def unreplicated(self) -> Iterable[tuple[int, int]]:
        """(offset of the marker, first offset), in the order of the markers."""
        return self._unreplicated

    def begin(self, producer_id: int, first_offset: int) -> None:
        """A transaction begins. `first_offset` is above that of every other one."""
        self._ongoing[first_offset] = producer_id
        self.is_empty = False

    def complete(self, first_offset: int, marker_offset: int) -> int:
        """The transaction that began at `first_offset` has its marker. Returns the last stable offset for the
        transaction index: where the oldest ongoing transaction began, or the offset behind the marker."""
        self._ongoing.pop(first_offset, None)
        self.add_unreplicated(marker_offset, first_offset)
        oldest = self.first_undecided_offset
        return marker_offset + 1 if oldest is None else oldest

    def add_unreplicated(self, marker_offset: int, first_offset: int) -> None:
        """As `complete`, for a transaction that was not ongoing here."""
        if not self._unreplicated or first_offset < self._smallest:
            self._smallest = first_offset
        self._unreplicated.append((marker_offset, first_offset))
        self.is_empty = False

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest ongoing transaction began."""
        return next(iter(self._ongoing), None)

    def forget_replicated(self, high_watermark: int) -> None:
        """Forgets the transactions whose markers are below the high watermark."""
        unreplicated = self._unreplicated
        if not unreplicated or unreplicated[0][0] >= high_watermark:
            return
        while unreplicated and unreplicated[0][0] < high_watermark:
            unreplicated.popleft()
        self._smallest = min((first for _, first in unreplicated), default=-1)
        self.is_empty = not unreplicated and not self._ongoing

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """None when no transaction holds the last stable offset back. Forgets what the high watermark has passed."""
        self.forget_replicated(high_watermark)
        undecided = self.first_undecided_offset
        if not self._unreplicated:
            return undecided
        return self._smallest if undecided is None else min(self._smallest, undecided)
