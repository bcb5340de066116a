"""The leader epochs of a log: which epoch began at which offset (KIP-101, KIP-279, KIP-320). Pure.

Worked example: entries (3, 0) and (5, 120), log end offset 200. Epoch 5 is the latest and ends at 200. Epochs 3 and 4
end at 120, where the next higher one begins. Epoch 2 is below all known epochs: it ended where 3 began, at 0. Epoch 6
is unknown. Source: LeaderEpochFileCache of Apache Kafka.

>>> epochs = LeaderEpochs([(3, 0), (5, 120)])
>>> [epochs.end_offset(epoch, 200) for epoch in (5, 4, 3, 2, 6)]
[(5, 200), (3, 120), (3, 120), (2, 0), (-1, -1)]
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """The entries of one log; epochs and start offsets both grow."""

    __slots__ = ("_added", "_epochs", "_has_changed", "_starts", "latest")

    def __init__(self, entries: Sequence[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._has_changed = False
        self._added = 0
        self.latest = UNDEFINED_EPOCH
        for epoch, start in entries:
            self.assign(epoch, start)
        self._has_changed = False
        self._added = 0
        """Entries at the end that the file does not have. `_has_changed`: the ones before them differ from the file."""

    @property
    def is_dirty(self) -> bool:
        """Whether the file differs. An entry that was added and dropped again makes no difference."""
        return self._has_changed or self._added > 0

    @is_dirty.setter
    def is_dirty(self, is_dirty: bool) -> None:
        self._has_changed = is_dirty
        self._added = 0

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(leader epoch, start offset), growing."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start: int) -> None:
        """From `start` on records are of `epoch`. Drops entries that contradict it (an epoch or an offset as high):
        they described records that are gone."""
        if epoch < 0 or (epoch == self.latest and start >= self._starts[-1]):
            return
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start))
        self._drop_from(keep)
        self._epochs.append(epoch)
        self._starts.append(start)
        self._added += 1
        self.latest = epoch

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest known epoch at or below `epoch`; (-1, -1) when it is unknown."""
        if epoch == UNDEFINED_EPOCH or not self._epochs:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        if epoch > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        higher = bisect_right(self._epochs, epoch)
        if not higher:
            return epoch, self._starts[0]
        return self._epochs[higher - 1], self._starts[higher]

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`, -1 when it is below all entries."""
        found = bisect_right(self._starts, offset) - 1
        return UNDEFINED_EPOCH if found < 0 else self._epochs[found]

    def truncate_from_end(self, end: int) -> None:
        """Records at `end` and above are gone."""
        self._drop_from(bisect_left(self._starts, end))

    def truncate_from_start(self, start: int) -> None:
        """Records below `start` are gone; the epoch of `start` now begins there."""
        found = bisect_right(self._starts, start) - 1
        if found < 0 or (found == 0 and self._starts[0] == start):
            return
        del self._epochs[:found]
        del self._starts[:found]
        self._starts[0] = start
        self._has_changed = True
        self._added = min(self._added, len(self._starts))

    def clear(self) -> None:
        self._drop_from(0)

    def _drop_from(self, keep: int) -> None:
        dropped = len(self._epochs) - keep
        if dropped <= 0:
            return
        del self._epochs[keep:]
        del self._starts[keep:]
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        if dropped > self._added:
            self._has_changed = True
        self._added = max(self._added - dropped, 0)
