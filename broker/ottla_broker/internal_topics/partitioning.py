"""Which partition of an internal topic holds a group or a transactional id, hence which broker coordinates it. Pure."""

from __future__ import annotations

from functools import lru_cache

_KEPT_NAMES = 16_384
_KEPT_LENGTH = 128
"""Of the names whose hash is kept, in characters: every request of a group or a transaction asks for it, and a client
chooses the name."""


def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 code units, 32 bits, signed.

    >>> java_string_hash("orders"), java_string_hash("polygenelubricants")
    (-1008770331, -2147483648)
    """
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        encoded = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(encoded[::2], encoded[1::2], strict=True):
            value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


NO_PARTITION = -1
"""The index of no partition: it is not known how many there are."""


def partition_for(name: str, partition_count: int | None) -> int:
    """The partition of a group id or a transactional id: abs(hash) % count, where the absolute value of the smallest
    integer is 0. NO_PARTITION without a count. Source: Utils.abs.

    >>> partition_for("orders", 50), partition_for("polygenelubricants", 50)
    (31, 0)
    >>> partition_for("orders", None) == NO_PARTITION
    True
    >>> partition_for("orders" * 50, 50) == abs(java_string_hash("orders" * 50)) % 50
    True
    """
    if not partition_count:
        return NO_PARTITION
    value = _kept_hash(name) if len(name) <= _KEPT_LENGTH else java_string_hash(name)
    return (0 if value == -(2**31) else abs(value)) % partition_count


_kept_hash = lru_cache(_KEPT_NAMES)(java_string_hash)
