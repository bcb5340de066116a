"""The last offset of every key in a log's dirty range, in 24 bytes for each key, however long it is. Pure.

A slot is 16 bytes of identity and 8 of offset. A key of up to 15 bytes is its own identity, padded and ended by its
length; a longer one is 15 bytes of BLAKE2 and an ending that no short one has (a chance of 10⁻²³ that any two of five
million keys are equal; Apache Kafka uses 16 bytes of MD5 for all keys). Open addressing by the interpreter's keyed
hash, which a producer cannot predict; so a map is valid in one process only.

A byte for each offset, as far as the buffer reaches, marks the records that a later record replaces: the second pass
over the same records then knows which records of a batch are kept without looking at their keys.

>>> keys = KeyMap(slots=8, load_factor=0.9, first_offset=3, marked=10)
>>> keys.add(3, 5, [(0, delta, key, True, 0) for delta, key in enumerate((b"a", b"b", b"a"))])
True
>>> keys.get(b"a"), keys.get(b"b"), keys.get(b"c")
(5, 4, -1)
>>> keys.marks(3, 5)
bytearray(b'\\x01\\x00\\x00')
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from hashlib import blake2s

from ottla_broker.records.places import Place

BYTES_PER_KEY = 24
_REPLACED = 1
_LOOK = 2
"""The record must be looked at: it is a tombstone, or has no key."""
_MARKED_SHARE = 8
"""The buffer's share for marks: one byte in so many."""
_IDENTITY_BYTES = 16
_SHORT = 16
_PADDING = tuple(bytes(15 - length) + bytes((length,)) for length in range(_SHORT))
_HASHED = b"\xff"


def identity(key: bytes) -> bytes:
    """16 bytes that identify the key."""
    if len(key) < _SHORT:
        return key + _PADDING[len(key)]
    return blake2s(key, digest_size=15).digest() + _HASHED


class KeyMap:
    """Keys to offsets, up to `slots * load_factor` of them (log.cleaner.io.buffer.load.factor)."""

    __slots__ = ("_count", "_first", "_identities", "_limit", "_marks", "_offsets", "_slots", "latest_offset")

    def __init__(self, slots: int, load_factor: float, first_offset: int = 0, marked: int = 0) -> None:
        """Args:
        slots: of 24 bytes, at least 2; one is always free. ValueError for fewer.
        load_factor: the share of the slots that may be used.
        first_offset: records below it are ignored.
        marked: so many offsets from `first_offset` on have a mark.
        """
        if slots < 2:
            raise ValueError(f"a key map needs two slots, not {slots}")
        self._slots = slots
        self._limit = min(max(int(slots * load_factor), 1), slots - 1)
        self._identities = bytearray(slots * _IDENTITY_BYTES)
        self._offsets = array("Q", (0,)) * slots
        self._first = first_offset
        self._marks = bytearray(marked)
        self._count = 0
        self.latest_offset = -1
        """The last offset that the map includes: records above it are kept."""

    def __len__(self) -> int:
        return self._count

    @property
    def utilization(self) -> float:
        """Used slots as a share of those that may be used."""
        return self._count / self._limit

    @property
    def size_bytes(self) -> int:
        return self._slots * BYTES_PER_KEY

    def add(self, base_offset: int, last_offset: int, places: Iterable[Place]) -> bool:
        """Adds the records of a batch at or above `first_offset`; False when the map is full: it then includes the
        records before the one that found no room.

        A batch whose offset deltas do not ascend to its last offset, which only a broken client sends, ends the use of
        marks: its records have no distinct offsets.
        """
        slots, offsets, identities, marks = self._slots, self._offsets, self._identities, self._marks
        first, marked = self._first, len(self._marks)
        before = base_offset - 1
        for _, delta, key, has_value, _ in places:
            offset = base_offset + delta
            if not before < offset <= last_offset:
                self._marks = marks = bytearray()
                marked = 0
            before = offset
            number = offset - first
            if number < 0:
                continue
            if key is None:
                if number < marked:
                    marks[number] = _LOOK
                continue
            name = key + _PADDING[len(key)] if len(key) < _SHORT else identity(key)
            slot = hash(name) % slots
            while stored := offsets[slot]:
                if identities.startswith(name, slot * _IDENTITY_BYTES):
                    if stored - 1 - first < marked:
                        marks[stored - 1 - first] = _REPLACED
                    break
                slot += 1
                if slot == slots:
                    slot = 0
            else:
                if self._count >= self._limit:
                    self.latest_offset = offset - 1
                    return False
                at = slot * _IDENTITY_BYTES
                identities[at : at + _IDENTITY_BYTES] = name
                self._count += 1
            offsets[slot] = offset + 1
            self.latest_offset = offset
            if not has_value and number < marked:
                marks[number] = _LOOK
        return True

    def marks(self, first: int, last: int) -> bytearray | None:
        """For every offset from `first` to `last`: 1 when a later record replaces it, else 0. None when the records
        must be looked at."""
        start, end = first - self._first, last - self._first + 1
        if start < 0 or end > len(self._marks) or last > self.latest_offset:
            return None
        found = self._marks[start:end]
        return None if _LOOK in found else found

    def get(self, key: bytes) -> int:
        """The key's last offset, -1 when it is not in the dirty range."""
        name = key + _PADDING[len(key)] if len(key) < _SHORT else identity(key)
        slots, offsets = self._slots, self._offsets
        slot = hash(name) % slots
        while stored := offsets[slot]:
            if self._identities.startswith(name, slot * _IDENTITY_BYTES):
                return stored - 1
            slot += 1
            if slot == slots:
                slot = 0
        return -1


def marked_for(buffer_bytes: int, offsets: int) -> int:
    """How many of `offsets` offsets have a mark."""
    return min(buffer_bytes // _MARKED_SHARE, offsets)


def slots_for(buffer_bytes: int, offsets: int) -> int:
    """Slots of a map for `offsets` offsets: as many as the buffer has room for beside the marks, at most twice as many
    as there are offsets."""
    room = buffer_bytes - marked_for(buffer_bytes, offsets)
    return max(2, min(room // BYTES_PER_KEY, 2 * offsets + 2))
