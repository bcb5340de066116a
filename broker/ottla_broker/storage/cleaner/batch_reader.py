"""Reads the batches of a segment in large buffers, for compaction, and checks them."""

from __future__ import annotations

import asyncio

from ottla_broker.ports.disk import Disk, File
from ottla_broker.records.batch import HEADER_BYTES, BatchHeader
from ottla_broker.records.errors import CorruptBatch
from ottla_broker.records.formats import header_at, is_batch_intact
from ottla_broker.records.legacy import MIN_ENTRY_BYTES


class SegmentBatchReader:
    """Reads the batches of a segment, a buffer at a time: `chunk`, and `found` with (position in it, header).

    The file is closed at its end; after a failure the job's Disk closes it.
    """

    def __init__(self, disk: Disk, name: str, size: int, buffer_bytes: int) -> None:
        self._disk = disk
        self._name = name
        self._size = size
        self._buffer_bytes = max(buffer_bytes, HEADER_BYTES)
        self._file: File | None = None
        self._position = 0
        self.chunk = b""
        self.found: list[tuple[int, BatchHeader]] = []

    @property
    def is_at_end(self) -> bool:
        """Whether `found` are the segment's last batches."""
        return self._position >= self._size

    async def next(self) -> bool:
        """Reads the next buffer; False at the end. Raises CorruptBatch, OSError."""
        if self._file is None:
            self._file = await self._disk.open(self._name)
        wanted = self._buffer_bytes
        while self._position < self._size:
            chunk = await self._read(self._position, wanted)
            # Outside of a worker process, lets other tasks of the event loop run between two buffers.
            await asyncio.sleep(0)
            found, after, next_size = self._whole(chunk)
            if found:
                self.chunk, self.found = chunk, found
                self._position += after
                return True
            if not next_size or next_size > self._size - self._position or len(chunk) >= next_size:
                if any(chunk) or not await self._is_zero():
                    raise CorruptBatch(f"{self._name}: no whole batch at byte {self._position}")
                break  # Apache Kafka's preallocated tail
            wanted = next_size
        await self._file.close()
        return False

    def _whole(self, chunk: bytes) -> tuple[list[tuple[int, BatchHeader]], int, int]:
        """(batches, their bytes, size of the incomplete batch behind them or 0 when there is none)."""
        view = memoryview(chunk)
        found: list[tuple[int, BatchHeader]] = []
        position = 0
        end = len(chunk)
        while True:
            header = header_at(chunk, position)
            if header is None:
                return found, position, 0 if end - position >= HEADER_BYTES else MIN_ENTRY_BYTES
            after = position + header.size
            if after > end:
                return found, position, header.size
            if not is_batch_intact(view[position:after], header.magic):
                raise CorruptBatch(
                    f"{self._name}: the checksum of the batch at byte {self._position + position} does not fit"
                )
            found.append((position, header))
            position = after

    async def _read(self, position: int, wanted: int) -> bytes:
        """Reads so many bytes, fewer only at the segment's end. Raises CorruptBatch for a file that is shorter: it was
        truncated meanwhile, or is damaged."""
        assert self._file is not None
        length = min(wanted, self._size - position)
        chunk = await self._file.read(position, length)
        if len(chunk) < length:
            raise CorruptBatch(f"{self._name}: ends at byte {position + len(chunk)} of {self._size}")
        return chunk

    async def _is_zero(self) -> bool:
        position = self._position
        while position < self._size:
            block = await self._read(position, self._buffer_bytes)
            if any(block):
                return False
            position += len(block)
        return True
