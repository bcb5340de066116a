"""The last offset of every key of a log's dirty part, packed: 24 bytes a slot, however long the keys are. Pure.

A slot is 16 bytes of identity and 8 of offset. A key of up to 15 bytes is its own identity, padded and ended by its
length; a longer one is 15 bytes of BLAKE2 and an ending that no short one has (a chance of 10⁻²³ that any two of five
million keys meet; Apache Kafka trusts 16 bytes of MD5 for all). Open addressing by the interpreter's keyed hash, which
nobody who writes keys can foresee; so a map is of one process.

>>> keys = KeyMap(slots=8, load_factor=0.9)
>>> keys.put(b"a", 3), keys.put(b"b", 4), keys.put(b"a", 5)
(True, True, True)
>>> keys.get(b"a"), keys.get(b"b"), keys.get(b"c")
(5, 4, -1)
"""

from __future__ import annotations

from array import array
from hashlib import blake2s

BYTES_PER_KEY = 24
_IDENTITY_BYTES = 16
_SHORT = 16
_PADDING = tuple(bytes(15 - length) + bytes((length,)) for length in range(_SHORT))
_HASHED = b"\xff"


def identity(key: bytes) -> bytes:
    """16 bytes that stand for the key."""
    if len(key) < _SHORT:
        return key + _PADDING[len(key)]
    return blake2s(key, digest_size=15).digest() + _HASHED


class KeyMap:
    """Keys to offsets, up to `slots * load_factor` of them (log.cleaner.io.buffer.load.factor)."""

    __slots__ = ("_count", "_identities", "_limit", "_offsets", "_slots", "latest_offset")

    def __init__(self, slots: int, load_factor: float) -> None:
        """`slots`: 24 bytes each, at least 2, of which one always stays free. ValueError for fewer."""
        if slots < 2:
            raise ValueError(f"a key map needs two slots, not {slots}")
        self._slots = slots
        self._limit = min(max(int(slots * load_factor), 1), slots - 1)
        self._identities = bytearray(slots * _IDENTITY_BYTES)
        self._offsets = array("Q", (0,)) * slots
        self._count = 0
        self.latest_offset = -1
        """The last offset that has been taken into account: records beyond it are not judged."""

    def __len__(self) -> int:
        return self._count

    @property
    def utilization(self) -> float:
        """Taken slots as a share of those that may be taken."""
        return self._count / self._limit

    @property
    def size_bytes(self) -> int:
        return self._slots * BYTES_PER_KEY

    def put(self, key: bytes, offset: int) -> bool:
        """The key's last offset so far; False, and nothing done, when there is no room for another key."""
        name = identity(key)
        slots, offsets = self._slots, self._offsets
        slot = hash(name) % slots
        while offsets[slot]:
            at = slot * _IDENTITY_BYTES
            if self._identities[at : at + _IDENTITY_BYTES] == name:
                offsets[slot] = offset + 1
                self.latest_offset = offset
                return True
            slot += 1
            if slot == slots:
                slot = 0
        if self._count >= self._limit:
            return False
        at = slot * _IDENTITY_BYTES
        self._identities[at : at + _IDENTITY_BYTES] = name
        offsets[slot] = offset + 1
        self._count += 1
        self.latest_offset = offset
        return True

    def get(self, key: bytes) -> int:
        """The key's last offset, -1 when it is not in the dirty part."""
        name = key + _PADDING[len(key)] if len(key) < _SHORT else identity(key)
        slots, offsets = self._slots, self._offsets
        slot = hash(name) % slots
        while stored := offsets[slot]:
            at = slot * _IDENTITY_BYTES
            if self._identities[at : at + _IDENTITY_BYTES] == name:
                return stored - 1
            slot += 1
            if slot == slots:
                slot = 0
        return -1


def slots_for(buffer_bytes: int, offsets: int) -> int:
    """Slots of a map for a range of so many offsets: as many as the buffer holds, or twice as many as can be needed."""
    return max(2, min(buffer_bytes // BYTES_PER_KEY, 2 * offsets + 2))
