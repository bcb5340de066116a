"""The index of aborted transactions, one file per segment: format, lookups, and the file (KIP-98).

An entry is in the segment of the ABORT marker. 34 bytes, big endian: version i16 (0), producer id i64, first offset of
the transaction i64, last offset i64 (the marker's), last stable offset i64 when the marker was appended. Entries are in
the order of their markers. A segment without an aborted transaction has no file.

A fetch of the offsets lower..upper needs the entries whose transaction has records in this range. It reads from the
segment of `lower` on until an entry's last stable offset is not below `upper`: every transaction that began below
`upper` had ended by then. Worked example: transactions of producers 7 (offsets 10..40) and 8 (20..30), both aborted:

>>> index = b"".join(entry.encode() for entry in (AbortedTransaction(8, 20, 30, 10), AbortedTransaction(7, 10, 40, 41)))
>>> [entry.producer_id for entry in overlapping(index, 31, 36)[0]], overlapping(index, 31, 36)[1]
([7], True)
>>> [entry.producer_id for entry in overlapping(index, 0, 15)[0]]
[7]

Not here: which transactions are aborted (`log/producers.py`), the search across segments
(`log/aborted_transactions.py`), the rebuilding of an index (`log/recovery.py`). Source: TransactionIndex of Apache
Kafka.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import NamedTuple

from ottla_broker.ports.disk import Buffer, Disk
from ottla_broker.storage.files.checkpoints import CheckpointError
from ottla_broker.storage.files.names import TXN_INDEX, offset_name

_ENTRY = Struct(">hqqqq")
TXN_ENTRY_BYTES = _ENTRY.size
"""34."""

_VERSION = 0


class AbortedTransaction(NamedTuple):
    """One entry. `last_offset` is the ABORT marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        return _ENTRY.pack(_VERSION, *self)


def decode_entries(name: str, data: Buffer) -> list[AbortedTransaction]:
    """All entries of a file. Raises CheckpointError for an unknown version or an incomplete entry."""
    if len(data) % TXN_ENTRY_BYTES:
        raise CheckpointError(f"{name}: {len(data)} bytes are no whole number of entries of {TXN_ENTRY_BYTES}")
    entries: list[AbortedTransaction] = []
    for version, *values in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise CheckpointError(f"{name}: entry of version {version}, only {_VERSION} is known")
        entries.append(AbortedTransaction._make(values))
    return entries


def overlapping(data: Buffer, lower: int, upper: int) -> tuple[list[AbortedTransaction], bool]:
    """(the entries whose transaction has records in lower..upper (exclusive), whether no later segment has more)."""
    unpack = _ENTRY.unpack_from
    count = len(data) // TXN_ENTRY_BYTES
    found: list[AbortedTransaction] = []
    for number in range(_first_ending_at(data, count, lower), count):
        entry = AbortedTransaction._make(unpack(data, number * TXN_ENTRY_BYTES)[1:])
        if entry.first_offset < upper:
            found.append(entry)
        if entry.last_stable_offset >= upper:
            return found, True
    return found, False


def _first_ending_at(data: Buffer, count: int, offset: int) -> int:
    """Number of the first entry whose marker is at or above `offset`."""
    unpack = _ENTRY.unpack_from
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if unpack(data, middle * TXN_ENTRY_BYTES)[3] < offset:
            low = middle + 1
        else:
            high = middle
    return low


class TransactionIndex:
    """The transaction index of one segment that has an entry, or a file.

    In the active segment the entries are in memory, and each is written when it is added; the file of a closed segment
    is mapped at its first use.
    """

    __slots__ = ("_disk", "_file_name", "_is_dirty", "_is_new", "_write", "_written", "data", "directory")

    def __init__(self, disk: Disk, directory: str, base_offset: int, *, is_new: bool) -> None:
        """`is_new`: there is no file yet."""
        self._disk = disk
        self.directory = directory
        """Of the segment; changes when the log's directory is renamed."""
        self._file_name = offset_name(base_offset, TXN_INDEX)
        self._is_new = is_new
        self._is_dirty = False
        self._write: asyncio.Future[int] | None = None
        self._written = 0
        """Bytes of `data` that are in the file."""
        self.data: bytearray | memoryview | None = bytearray() if is_new else None
        """The entries, None while they are not loaded."""

    @property
    def _name(self) -> str:
        return f"{self.directory}/{self._file_name}"

    def add(self, entry: AbortedTransaction) -> None:
        """Adds an entry in the active segment: in memory at once, and queues its write."""
        assert isinstance(self.data, bytearray), "the segment is not the active one"
        self.data += entry.encode()
        self._queue()

    def _queue(self) -> None:
        """Queues one write at a time: entries that found no room are written before later ones."""
        data = self.data
        if self._write is None and isinstance(data, bytearray) and self._written < len(data):
            self._write = self._disk.append_to(self._name, (bytes(data[self._written :]),))
            self._write.add_done_callback(self._on_written)

    def _on_written(self, write: asyncio.Future[int]) -> None:
        self._write = None
        # After lack of room `settle` tries again; another failure takes the log directory offline at the next append.
        if not write.cancelled() and write.exception() is None:
            self._written = write.result()
            self._is_dirty = True
            self._queue()

    async def settle(self) -> None:
        """Returns when the file has all entries of the active segment. Raises OSError, also while there is no room."""
        while isinstance(self.data, bytearray) and self._written < len(self.data):
            self._queue()
            write = self._write
            if write is not None:
                await asyncio.wait([write])
            await asyncio.sleep(0)  # `_on_written` runs
            if write is not None:
                write.result()

    async def sync(self) -> None:
        """Makes the entries of the active segment durable. Raises OSError."""
        await self.settle()
        if self._is_dirty:
            self._is_dirty = False
            await self._disk.fsync_file(self._name)
            if self._is_new:
                await self._disk.fsync_directory(self.directory)
                self._is_new = False

    async def load(self) -> None:
        """Maps a closed segment's entries. Raises OSError, FileNotFoundError when the segment has been deleted."""
        if self.data is None:
            file = await self._disk.open(self._name)
            view = await file.map()
            await file.close()
            if self.data is None:
                self.data = view

    async def resume(self) -> None:
        """Loads the entries into memory, for a segment that becomes the active one. Raises OSError."""
        data = bytearray(await self._disk.read_file(self._name))
        self.data = data
        self._written = len(data)

    async def truncate(self, next_offset: int) -> None:
        """Drops the active segment's entries whose marker is at or above `next_offset`. Raises OSError."""
        await self.settle()
        data = self.data
        assert isinstance(data, bytearray), "the segment is not the active one"
        size = _first_ending_at(data, len(data) // TXN_ENTRY_BYTES, next_offset) * TXN_ENTRY_BYTES
        if size < len(data):
            del data[size:]
            self._written = size
            self._is_dirty = True
            file = await self._disk.open(self._name)
            await file.truncate(size)
            await file.close()

    async def freeze(self) -> None:
        """After the roll and the sync of the segment: the entries are mapped at their next use. Raises OSError."""
        await self.settle()
        self.data = None

    async def close(self) -> None:
        """Drops the entries and waits for the writes, however they end; the entries are loaded again when needed."""
        self.data = None
        while (write := self._write) is not None:
            await asyncio.wait([write])
            await asyncio.sleep(0)
