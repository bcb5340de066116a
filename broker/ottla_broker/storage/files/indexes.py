"""The offset index and the time index of a segment: file formats, lookups, and both indexes of the active segment.

Offset index entry, 8 bytes: relative offset i32, position i32; the offset lies in the batch at that position. Time
index entry, 12 bytes: timestamp i64, relative offset i32; every record up to that offset is not later than the
timestamp. Both are sparse (one entry per index.interval.bytes) and sorted. A file that Apache Kafka preallocated ends
in entries of zeros, which do not count.

Not here: files (`segment.py` writes the entries of `GrowingIndex` and maps the files of closed segments).
Source: OffsetIndex and TimeIndex of Apache Kafka.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import islice, pairwise
from operator import lt
from struct import Struct
from sys import byteorder

from ottla_broker.ports.disk import Buffer

OFFSET_ENTRY = Struct(">ii")
OFFSET_ENTRY_BYTES = OFFSET_ENTRY.size
TIME_ENTRY = Struct(">qi")
TIME_ENTRY_BYTES = TIME_ENTRY.size

MAX_RELATIVE_OFFSET = 2**31 - 1


def entry_count(index: Buffer, entry_bytes: int) -> int:
    """Entries of an index file without a preallocated tail of zeros or a torn last entry."""
    count = len(index) // entry_bytes
    zeros = bytes(entry_bytes)
    if not count or bytes(index[(count - 1) * entry_bytes : count * entry_bytes]) != zeros:
        return count
    low, high = 0, count - 1
    # Real entries after the first are never all zero, so the tail of zeros can be bisected.
    while low < high:
        middle = (low + high) // 2
        if bytes(index[middle * entry_bytes : (middle + 1) * entry_bytes]) == zeros:
            high = middle
        else:
            low = middle + 1
    return low


class MappedIndex:
    """A closed segment's offset index, read in place."""

    __slots__ = ("_base_offset", "_count", "_view")

    def __init__(self, view: memoryview, base_offset: int) -> None:
        self._view = view
        self._base_offset = base_offset
        self._count = entry_count(view, OFFSET_ENTRY_BYTES)

    @property
    def count(self) -> int:
        return self._count

    def is_sound(self, size: int, next_offset: int) -> bool:
        """Whether the entries can belong to a segment of `size` bytes that ends before `next_offset`: sorted, and
        inside it. A wrong entry within these bounds shows when it is used."""
        if not self._count:
            return True
        values = array("i", bytes(self._view[: self._count * OFFSET_ENTRY_BYTES]))
        if byteorder == "little":
            values.byteswap()
        offsets, positions = values[0::2], values[1::2]
        return (
            offsets[0] >= 0
            and positions[0] >= 0
            and offsets[-1] < next_offset - self._base_offset
            and positions[-1] < size
            and all(map(lt, offsets, islice(offsets, 1, None)))
            and all(map(lt, positions, islice(positions, 1, None)))
        )

    def floor(self, offset: int) -> tuple[int, int]:
        """(offset, position) of the last entry at or below `offset`, (base offset, 0) when there is none."""
        relative = offset - self._base_offset
        view, unpack = self._view, OFFSET_ENTRY.unpack_from
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if unpack(view, middle * OFFSET_ENTRY_BYTES)[0] <= relative:
                low = middle + 1
            else:
                high = middle
        if not low:
            return self._base_offset, 0
        found, position = unpack(view, (low - 1) * OFFSET_ENTRY_BYTES)
        return self._base_offset + found, position

    def first_from_position(self, position: int) -> int | None:
        """The offset of the first entry at `position` or behind, None when there is none."""
        view, unpack = self._view, OFFSET_ENTRY.unpack_from
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if unpack(view, middle * OFFSET_ENTRY_BYTES)[1] < position:
                low = middle + 1
            else:
                high = middle
        if low == self._count:
            return None
        relative: int = unpack(view, low * OFFSET_ENTRY_BYTES)[0]
        return self._base_offset + relative


class GrowingIndex:
    """Both indexes of the active segment: in memory for lookups, with the bytes that are not in the files yet.

    In memory, an entry of an appended batch has its base offset, which a read at the batch's start finds exactly. An
    entry that was loaded from the file has the batch's last offset.
    """

    __slots__ = (
        "_base_offset",
        "_offsets",
        "_positions",
        "_time_offsets",
        "_timestamps",
        "has_tail",
        "unwritten_offset_entries",
        "unwritten_time_entries",
    )

    def __init__(self, base_offset: int, offset_index: Buffer = b"", time_index: Buffer = b"") -> None:
        self._base_offset = base_offset
        self._offsets = array("q")
        self._positions = array("q")
        self._timestamps = array("q")
        self._time_offsets = array("q")
        self.unwritten_offset_entries = bytearray()
        self.unwritten_time_entries = bytearray()
        count = entry_count(offset_index, OFFSET_ENTRY_BYTES)
        self.has_tail = len(offset_index) != count * OFFSET_ENTRY_BYTES
        """Whether a file has more than the entries: a preallocated or torn tail, or entries that `truncate` dropped."""
        for relative, position in OFFSET_ENTRY.iter_unpack(memoryview(offset_index)[: count * OFFSET_ENTRY_BYTES]):
            self._offsets.append(base_offset + relative)
            self._positions.append(position)
        count = entry_count(time_index, TIME_ENTRY_BYTES)
        self.has_tail |= len(time_index) != count * TIME_ENTRY_BYTES
        for timestamp, relative in TIME_ENTRY.iter_unpack(memoryview(time_index)[: count * TIME_ENTRY_BYTES]):
            self._timestamps.append(timestamp)
            self._time_offsets.append(base_offset + relative)

    @property
    def count(self) -> int:
        """Entries of the offset index."""
        return len(self._offsets)

    @property
    def time_count(self) -> int:
        """Entries of the time index."""
        return len(self._timestamps)

    def is_sound(self, size: int) -> bool:
        """Whether loaded entries can belong to a segment of `size` bytes: sorted, and inside it."""
        for values in (self._offsets, self._positions, self._time_offsets):
            if any(after <= before for before, after in pairwise(values)):
                return False
        if any(after < before for before, after in pairwise(self._timestamps)):
            return False
        if not self._offsets:
            return True
        return self._offsets[0] >= self._base_offset and self._positions[-1] < size

    def add(self, first_offset: int, last_offset: int, position: int) -> None:
        """Adds an entry for the batch at `position`."""
        self._offsets.append(first_offset)
        self._positions.append(position)
        self.unwritten_offset_entries += OFFSET_ENTRY.pack(last_offset - self._base_offset, position)

    def add_time(self, timestamp: int, offset: int) -> None:
        """Adds an entry when the timestamp is above the last one; otherwise nothing, as the index must be sorted."""
        if self._timestamps:
            if timestamp <= self._timestamps[-1]:
                return
        elif timestamp < 0:
            return
        self._timestamps.append(timestamp)
        self._time_offsets.append(offset)
        self.unwritten_time_entries += TIME_ENTRY.pack(timestamp, offset - self._base_offset)

    def floor(self, offset: int) -> tuple[int, int]:
        """(offset, position) of the last entry at or below `offset`, (base offset, 0) when there is none."""
        found = bisect_right(self._offsets, offset) - 1
        if found < 0:
            return self._base_offset, 0
        return self._offsets[found], self._positions[found]

    def first_from_position(self, position: int) -> int | None:
        """As `MappedIndex.first_from_position`."""
        found = bisect_left(self._positions, position)
        return self._offsets[found] if found < len(self._offsets) else None

    def floor_of_timestamp(self, timestamp: int) -> int:
        """An offset below which every record is earlier than `timestamp`."""
        # The last entry below the timestamp: records up to its offset are all earlier.
        found = bisect_right(self._timestamps, timestamp - 1) - 1
        return self._base_offset if found < 0 else self._time_offsets[found]

    @property
    def last_time(self) -> tuple[int, int]:
        """(timestamp, offset) of the last time entry, (-1, base offset) without one."""
        if not self._timestamps:
            return -1, self._base_offset
        return self._timestamps[-1], self._time_offsets[-1]

    def truncate(self, position: int, next_offset: int) -> None:
        """Drops the entries at or above, in memory. Only when no entry is unwritten."""
        count = bisect_left(self._positions, position)
        del self._offsets[count:]
        del self._positions[count:]
        time_count = bisect_left(self._time_offsets, next_offset)
        del self._timestamps[time_count:]
        del self._time_offsets[time_count:]
        self.has_tail = True


def last_time_entry(time_index: Buffer, base_offset: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the last entry of a time index file."""
    count = entry_count(time_index, TIME_ENTRY_BYTES)
    if not count:
        return None
    timestamp, relative = TIME_ENTRY.unpack_from(time_index, (count - 1) * TIME_ENTRY_BYTES)
    return timestamp, base_offset + relative


def is_sound_time_index(time_index: Buffer, base_offset: int, next_offset: int) -> bool:
    """Whether the first and the last entry of a time index file can be those of a segment that ends before
    `next_offset`; the file holds whole entries."""
    if len(time_index) % TIME_ENTRY_BYTES:
        return False
    last = last_time_entry(time_index, base_offset)
    if last is None:
        return True
    timestamp: int
    relative: int
    timestamp, relative = TIME_ENTRY.unpack_from(time_index, 0)
    return 0 <= timestamp <= last[0] and 0 <= relative <= last[1] - base_offset < next_offset - base_offset


def floor_of_timestamp(time_index: Buffer, base_offset: int, timestamp: int) -> int:
    """As `GrowingIndex.floor_of_timestamp`, over the bytes of a closed segment's time index."""
    low, high = 0, entry_count(time_index, TIME_ENTRY_BYTES)
    while low < high:
        middle = (low + high) // 2
        if TIME_ENTRY.unpack_from(time_index, middle * TIME_ENTRY_BYTES)[0] < timestamp:
            low = middle + 1
        else:
            high = middle
    if not low:
        return base_offset
    relative: int = TIME_ENTRY.unpack_from(time_index, (low - 1) * TIME_ENTRY_BYTES)[1]
    return base_offset + relative
