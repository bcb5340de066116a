"""The fast path of a recovery scan: checks runs of ordinary batches with little work for each.

Ten gibibytes of batches of a kilobyte are ten million headers. `OrdinaryBatchScan.scan` checks the batches that need
nothing else (format 2, no producer, the leader epoch of the batch before) with one partial struct, one checksum over a
slice and a few comparisons each. It stops before the first other batch, damaged or not, which `log/recovery.py` then
handles. Pure: bytes and positions in, positions out.
"""

from __future__ import annotations

from struct import Struct

from crc32c import crc32c

from ottla_broker.records.batch import CRC_START, HEADER_BYTES, LOG_OVERHEAD, MAGIC, MIN_LENGTH
from ottla_broker.storage.files.indexes import MAX_RELATIVE_OFFSET, GrowingIndex

_HEAD = Struct(">qiibI2xi8xqq")
"""Base offset, length, leader epoch, magic, crc, last offset delta, max timestamp, producer id."""


class OrdinaryBatchScan:
    """The progress of a scan in one segment. Positions are in bytes of the segment's file."""

    __slots__ = (
        "expected",
        "index",
        "interval",
        "last_entry",
        "last_offset",
        "max_timestamp",
        "max_timestamp_offset",
        "position",
    )

    def __init__(self, index: GrowingIndex, interval_bytes: int, base_offset: int, expected: int) -> None:
        self.index = index
        self.interval = interval_bytes
        self.position = 0
        self.expected = expected
        """The lowest offset at which the next batch may begin."""
        self.last_offset = base_offset + MAX_RELATIVE_OFFSET
        """The highest offset that an index of the segment can express. A batch above it has a damaged base offset: the
        checksum does not cover it."""
        self.last_entry = 0
        """Position of the last index entry."""
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset

    def scan(self, chunk: memoryview, at: int, leader_epoch: int) -> int:
        """Checks the ordinary batches of `chunk` from byte `at` on, which is byte `position` of the file.

        Returns the byte of the chunk behind the last one. `leader_epoch`: of the batch before.
        """
        unpack, checksum = _HEAD.unpack_from, crc32c
        expected = self.expected
        largest, largest_offset = self.max_timestamp, self.max_timestamp_offset
        shift = self.position - at
        next_entry = self.last_entry + self.interval - shift
        last_head = len(chunk) - HEADER_BYTES
        last_offset = self.last_offset
        while at <= last_head:
            base, length, epoch, magic, crc, delta, timestamp, producer = unpack(chunk, at)
            end = at + length + LOG_OVERHEAD
            if (
                magic != MAGIC
                or producer >= 0
                or epoch != leader_epoch
                or base < expected
                or delta < 0
                or base + delta > last_offset
                or length < MIN_LENGTH
                or end > len(chunk)
                or checksum(chunk[at + CRC_START : end]) != crc
            ):
                break
            expected = base + delta + 1
            if timestamp > largest:
                largest, largest_offset = timestamp, expected - 1
            if at > next_entry:
                self.index.add(base, expected - 1, at + shift)
                self.index.add_time(largest, largest_offset)
                next_entry = at + self.interval
            at = end
        self.last_entry = next_entry - self.interval + shift
        self.max_timestamp, self.max_timestamp_offset = largest, largest_offset
        self.expected = expected
        self.position = at + shift
        return at
