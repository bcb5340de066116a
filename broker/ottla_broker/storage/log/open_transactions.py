"""Which transactions of a log are not settled yet, and so where its last stable offset stands (KIP-98, 5.4). Pure.

A transaction is *ongoing* from its first record in this log to its marker, and *unreplicated* from then on until the
high watermark has passed the marker: before that a marker may still be lost with its leader, and what it decided with
it. The first unstable offset is the smallest first offset of both kinds. Worked example, the high watermark being 30:

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
    """See the module. A producer has at most one ongoing transaction; transactions begin in offset order."""

    __slots__ = ("_ongoing", "_smallest", "_unreplicated", "is_empty")

    def __init__(self) -> None:
        # Linked, not a plain dict: the oldest one is asked for often, and usually the first to go.
        self._ongoing: OrderedDict[int, int] = OrderedDict()
        self._unreplicated: deque[tuple[int, int]] = deque()
        self._smallest = -1
        self.is_empty = True
        """Nothing keeps the last stable offset below the high watermark; every read_committed fetch asks."""

    @property
    def ongoing(self) -> Iterable[tuple[int, int]]:
        """(first offset, producer id), oldest first."""
        return self._ongoing.items()

    @property
    def unreplicated(self) -> Iterable[tuple[int, int]]:
        """(offset of the marker, first offset), in the order of the markers."""
        return self._unreplicated

    def begin(self, producer_id: int, first_offset: int) -> None:
        """`first_offset` is above that of every transaction that has begun."""
        self._ongoing[first_offset] = producer_id
        self.is_empty = False

    def complete(self, first_offset: int, marker_offset: int) -> int:
        """The transaction that began there has its marker. Gives the last stable offset as the transaction index wants
        it: where the oldest transaction that is still ongoing began, or behind the marker."""
        self._ongoing.pop(first_offset, None)
        self.add_unreplicated(marker_offset, first_offset)
        oldest = self.first_undecided_offset
        return marker_offset + 1 if oldest is None else oldest

    def add_unreplicated(self, marker_offset: int, first_offset: int) -> None:
        """As `complete`, for one whose beginning is not known as ongoing."""
        if not self._unreplicated or first_offset < self._smallest:
            self._smallest = first_offset
        self._unreplicated.append((marker_offset, first_offset))
        self.is_empty = False

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest ongoing transaction began."""
        return next(iter(self._ongoing), None)

    def forget_replicated(self, high_watermark: int) -> None:
        """Drops what the high watermark has passed."""
        unreplicated = self._unreplicated
        if not unreplicated or unreplicated[0][0] >= high_watermark:
            return
        while unreplicated and unreplicated[0][0] < high_watermark:
            unreplicated.popleft()
        self._smallest = min((first for _, first in unreplicated), default=-1)
        self.is_empty = not unreplicated and not self._ongoing

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """None: every transaction is settled. Forgets what the high watermark has passed."""
        self.forget_replicated(high_watermark)
        undecided = self.first_undecided_offset
        if not self._unreplicated:
            return undecided
        return self._smallest if undecided is None else min(self._smallest, undecided)
