"""Records of TLS: what is sent together, so that small buffers do not cost a record each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
RECORD_BYTES = 16 * 1024
"""The most bytes of a record."""


def pieces(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """The bytes in order: small buffers joined up to the size of a record, large ones as they are.

    >>> [bytes(piece) for piece in pieces([b"a", b"", b"b" * 3])]
    [b'abbb']
    >>> [len(piece) for piece in pieces([b"a", bytes(20_000), b"c"])]
    [1, 20000, 1]
    """
    small: list[Buffer] = []
    size = 0
    for buffer in buffers:
        if small and size + len(buffer) > RECORD_BYTES:
            yield small[0] if len(small) == 1 else b"".join(small)
            small, size = [], 0
        if len(buffer) > RECORD_BYTES:
            yield buffer
        elif buffer:
            small.append(buffer)
            size += len(buffer)
    if small:
        yield small[0] if len(small) == 1 else b"".join(small)
