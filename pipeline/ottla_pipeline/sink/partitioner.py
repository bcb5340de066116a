"""The partition of each row, as the default partitioner of Java's producer chooses it. Pure.

A key goes to murmur2(key) modulo the number of partitions, so that it meets the records that other clients have written
with it. Rows without a key stay with one partition for a batch, then go to the next (KIP-480; KIP-794 without its
weighing of slow brokers). Source: BuiltInPartitioner and Utils.murmur2 of Apache Kafka.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ottla_pipeline.compiled.library import Functions
from ottla_pipeline.sink.record_encoding import Int64s, Octets

_M = np.uint32(0x5BD1E995)
_SEED = 0x9747B28C
_FEW = 16
"""Below so many keys, a step of numpy costs more than a loop."""


def murmur2(octets: Octets, starts: Int64s, ends: Int64s) -> npt.NDArray[np.uint32]:
    """The hash of each key octets[start:end].

    >>> data = np.frombuffer(b"21foobar", np.uint8)
    >>> murmur2(data, np.array([0, 2]), np.array([2, 8])).view(np.int32).tolist()
    [-973932308, -790332482]
    """
    lengths = ends - starts
    hashed = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    words = lengths >> 2
    at = starts.copy()
    left = np.flatnonzero(words > 0)
    step = 0
    while len(left) >= _FEW:
        word = _word(octets, at[left])
        word *= _M
        word ^= word >> np.uint32(24)
        word *= _M
        hashed[left] = (hashed[left] * _M) ^ word
        at[left] += 4
        step += 1
        left = left[words[left] > step]
    for index in left.tolist():
        end = int(starts[index]) + 4 * int(words[index])
        hashed[index] = _rest(int(hashed[index]), octets[int(at[index]) : end].tobytes())
        at[index] = end
    tail = lengths & 3
    for size, shift in ((3, 16), (2, 8), (1, 0)):
        found = np.flatnonzero(tail >= size)
        hashed[found] ^= octets[at[found] + size - 1].astype(np.uint32) << np.uint32(shift)
    found = np.flatnonzero(tail > 0)
    hashed[found] *= _M
    hashed ^= hashed >> np.uint32(13)
    hashed *= _M
    hashed ^= hashed >> np.uint32(15)
    return hashed


def partitions_of_keys(
    octets: Octets, starts: Int64s, ends: Int64s, partitions: int, compiled: Functions | None = None
) -> Int64s:
    """The partition of each key octets[start:end] among so many; `compiled` does it where there is any."""
    if compiled is not None:
        found = np.empty(len(starts), np.int64)
        compiled.partitions_of_keys(
            octets.ctypes.data, starts.ctypes.data, ends.ctypes.data, len(starts), partitions, found.ctypes.data
        )
        return found
    return (murmur2(octets, starts, ends) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions


def _word(octets: Octets, at: Int64s) -> npt.NDArray[np.uint32]:
    found = octets[at].astype(np.uint32)
    for place in (1, 2, 3):
        found |= octets[at + place].astype(np.uint32) << np.uint32(8 * place)
    return found


def _rest(hashed: int, words: bytes) -> int:
    multiplier = int(_M)
    for word in np.frombuffer(words, "<u4").tolist():
        mixed = (word * multiplier) & 0xFFFFFFFF
        mixed ^= mixed >> 24
        hashed = ((hashed * multiplier) & 0xFFFFFFFF) ^ ((mixed * multiplier) & 0xFFFFFFFF)
    return hashed
