"""Writes a cleaned segment: the `.cleaned` log file, and its indexes in memory."""

from __future__ import annotations

from ottla_broker.ports.disk import Buffer, File
from ottla_broker.records.batch import BatchHeader
from ottla_broker.records.formats import header_at
from ottla_broker.storage.files.indexes import GrowingIndex

_SYNC_EVERY_BYTES = 16 * 1024 * 1024
"""Written bytes are synced in portions, so that the last sync of a large segment does not delay the log's own."""


class CleanedSegmentWriter:
    """Writes the cleaned segment: its file, and its indexes in memory."""

    def __init__(self, file: File, base_offset: int, interval: int) -> None:
        self._file = file
        self._interval = interval
        self._buffers: list[Buffer] = []
        self._run: tuple[bytes, int, int] | None = None
        self._last_entry = 0
        self._unsynced = 0
        self.index = GrowingIndex(base_offset)
        self.size = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset

    def add_whole(self, chunk: bytes, position: int, header: BatchHeader) -> None:
        """Adds a batch of `chunk` without a change; neighbours are written as one run."""
        after = position + header.size
        if self._run is not None and self._run[0] is chunk and self._run[2] == position:
            self._run = (chunk, self._run[1], after)
        else:
            self._end_run()
            self._run = (chunk, position, after)
        self._count(header, header.size, header.max_timestamp)

    def add(self, batch: bytes, header: BatchHeader) -> None:
        """Adds the batch that replaces the one with `header`."""
        self._end_run()
        self._buffers.append(batch)
        built = header_at(batch, 0)
        assert built is not None
        self._count(built, len(batch), built.max_timestamp)

    def _count(self, header: BatchHeader, size: int, max_timestamp: int) -> None:
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = max_timestamp, header.last_offset
        if self.size - self._last_entry > self._interval:
            self.index.add(header.base_offset, header.last_offset, self.size)
            self.index.add_time(self.max_timestamp, self.max_timestamp_offset)
            self._last_entry = self.size
        self.size += size

    def _end_run(self) -> None:
        if self._run is not None:
            chunk, start, end = self._run
            self._buffers.append(memoryview(chunk)[start:end])
            self._run = None

    async def write(self) -> None:
        """Writes what was added since the last call. Raises OSError."""
        self._end_run()
        if not self._buffers:
            return
        buffers, self._buffers = self._buffers, []
        await self._file.append(buffers)
        self._unsynced += sum(map(len, buffers))
        if self._unsynced >= _SYNC_EVERY_BYTES:
            self._unsynced = 0
            await self._file.fsync()

    async def close(self) -> None:
        self.index.add_time(self.max_timestamp, self.max_timestamp_offset)
        await self._file.fsync()
        await self._file.close()
