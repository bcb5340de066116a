"""A pool of receive buffers that nobody has to release, and whose sum is bounded.

A new bytearray is zeroed (0.3 s of CPU per GB at 4 MB), so buffers are reused. A buffer is free when only the pool
refers to it: every memoryview slice of a frame refers to its buffer, so the bytes stay as long as somebody keeps a
slice (an append that waits for its disk, a request in purgatory).

The pool knows every buffer that it has given away, so what they hold together is counted by their size, whoever keeps
them: a frame in progress, a request that waits or is worked on, records that wait for their disk. Nobody has to say
that a buffer is free; a look at all of them (`count`) finds it.

Not here: who waits while there is no memory (`receive_memory.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Collection

SMALLEST_BYTES = 4 * 1024
_FREE_REFERENCES = 3  # the pool's list, the loop variable, getrefcount's argument
_PROBES = 8


class BufferPool:
    """Buffers in power-of-two sizes.

    Args:
        kept_bytes: free buffers up to this sum are kept for the next.

    >>> pool = BufferPool(kept_bytes=1 << 20)
    >>> first = pool.take(5000)
    >>> len(first), pool.count()
    (8192, 8192)
    >>> del first
    >>> pool.count(), pool.total_bytes
    (0, 8192)
    """

    def __init__(self, kept_bytes: int) -> None:
        self._kept_bytes = kept_bytes
        self._by_size: dict[int, list[bytearray]] = {}
        self._next: dict[int, int] = {}
        self.total_bytes = 0
        """Of all buffers, free ones included."""
        self._taken_sizes: set[int] = set()
        """Of which a buffer was taken since the last `drop_unused`."""
        self.in_use_bytes = 0
        """At most so much is in use: what the last `count` found, and what was taken since."""

    def take(self, at_least_bytes: int) -> bytearray:
        """A buffer whose size is the next power of two; it contains old bytes."""
        size = size_of(at_least_bytes)
        self.in_use_bytes += size
        self._taken_sizes.add(size)
        kept = self._by_size.setdefault(size, [])
        count = len(kept)
        # The first free one, so that few buffers are in use: their bytes are still in the processor's cache.
        start = self._next.get(size, 0)
        for probe in range(min(2 * _PROBES, count)):
            index = probe if probe < _PROBES else (start + probe) % count
            buffer = kept[index]
            if sys.getrefcount(buffer) == _FREE_REFERENCES:
                return buffer
        # Connections may keep all of the first ones: the next request also tries others.
        self._next[size] = (start + _PROBES) % max(count, 1)
        buffer = bytearray(size)
        kept.append(buffer)
        self.total_bytes += size
        return buffer

    def take_within(self, at_least_bytes: int, limit_bytes: int) -> bytearray | None:
        """The same if then at most `limit_bytes` are in use, as `in_use_bytes` says; else None."""
        size = size_of(at_least_bytes)
        if self.in_use_bytes + size > limit_bytes:
            return None
        if self.total_bytes + size > limit_bytes and not self._has_free(size):
            self._drop_free(0, ())
        return self.take(size)

    def count(self) -> int:
        """Looks at every buffer, gives the bytes of those in use, and remembers them."""
        self.in_use_bytes = self.measure()
        return self.in_use_bytes

    def measure(self) -> int:
        """The bytes of the buffers in use."""
        in_use = 0
        for size, kept in self._by_size.items():
            free = 0
            for buffer in kept:
                if sys.getrefcount(buffer) == _FREE_REFERENCES:
                    free += 1
            in_use += size * (len(kept) - free)
        return in_use

    def drop_unused(self) -> int:
        """Frees the free buffers of each size that nobody took since the last call, and of others those beyond
        `kept_bytes`, the large ones first. Gives the bytes."""
        taken, self._taken_sizes = self._taken_sizes, set()
        return self._drop_free(self._kept_bytes, taken)

    def _drop_free(self, left: int, sizes: Collection[int]) -> int:
        dropped = in_use = 0
        for size in sorted(self._by_size):
            staying = []
            is_kept = size in sizes
            for buffer in self._by_size[size]:
                if sys.getrefcount(buffer) != _FREE_REFERENCES:
                    in_use += size
                elif is_kept and size <= left:
                    left -= size
                else:
                    dropped += size
                    continue
                staying.append(buffer)
            self._by_size[size] = staying
        self.total_bytes -= dropped
        self.in_use_bytes = in_use
        return dropped

    def _has_free(self, size: int) -> bool:
        return any(sys.getrefcount(buffer) == _FREE_REFERENCES for buffer in self._by_size.get(size, ()))


def size_of(at_least_bytes: int) -> int:
    """The size of the buffer that `take` gives.

    >>> size_of(1), size_of(4096), size_of(4097)
    (4096, 4096, 8192)
    """
    return max(SMALLEST_BYTES, 1 << (at_least_bytes - 1).bit_length())


def is_unshared(buffer: bytearray) -> bool:
    """Whether no memoryview of the buffer exists: only then may its size change.

    >>> buffer = bytearray(8)
    >>> view = memoryview(buffer)[2:3]
    >>> is_unshared(buffer)
    False
    >>> del view
    >>> is_unshared(buffer), len(buffer)
    (True, 8)
    """
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True
