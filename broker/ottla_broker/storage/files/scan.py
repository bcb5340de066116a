"""Walks the batch headers of a log file through the Disk port, in blocks, without reading large records."""

from __future__ import annotations

from ottla_broker.ports.disk import Buffer, File
from ottla_broker.records.batch import HEADER_BYTES, LOG_OVERHEAD, BatchHeader
from ottla_broker.records.formats import header_at
from ottla_broker.records.legacy import MIN_ENTRY_BYTES

BLOCK_BYTES = 16 * 1024
"""Covers the batches between two index entries when they are small, and wastes little when they are large."""


def find_in_block(block: Buffer, offset: int, limit: int) -> tuple[int, BatchHeader | None]:
    """Walks from the block's start to the batch that holds `offset` or is the first above it.

    Returns (position in the block, its header), or (position to continue at, None) when the block ends before it.
    `limit`: bytes of the file from the block's start on.
    """
    position = 0
    while position < limit:
        header = header_at(block, position)
        if header is None:
            return position, None
        if header.base_offset + header.last_offset_delta >= offset:
            return position, header
        position += LOG_OVERHEAD + header.length
    return position, None


class HeaderWalk:
    """The whole batches between two positions of a file, one by one; ends at the first that is damaged or incomplete.

    Not an async generator: Python closes those in a task of their own when they are not exhausted.
    """

    __slots__ = ("_block", "_block_start", "_end", "_file", "position")

    def __init__(self, file: File, start: int, end: int) -> None:
        self._file = file
        self._end = end
        self._block = b""
        self._block_start = start
        self.position = start
        """Behind the last returned batch."""

    async def next(self) -> tuple[int, BatchHeader] | None:
        """(position, header), None at the end. Raises OSError."""
        position = self.position
        if self._end - position < MIN_ENTRY_BYTES:
            return None
        inside = position - self._block_start
        if inside + HEADER_BYTES > len(self._block):
            self._block = await self._file.read(position, min(BLOCK_BYTES, self._end - position))
            self._block_start = position
            inside = 0
        header = header_at(self._block, inside)
        if header is None:
            return None
        after = position + LOG_OVERHEAD + header.length
        if after > self._end:
            return None
        self.position = after
        return position, header


__all__ = ["BLOCK_BYTES", "HeaderWalk", "find_in_block", "header_at"]
