"""Decides what compaction keeps of a batch: all of it, some of its records, its empty header, or nothing. Pure.

The usual case is cheap: a batch whose records are all kept is copied byte by byte. Where some are kept, runs of their
bytes are copied; base offset, base timestamp and last offset do not change, so the deltas do not either. Records are
encoded again only where the batch gets its delete horizon.

A record of offset o and key k is kept when no record in the dirty range has k at a higher offset. A tombstone (null
value) is kept until its batch's delete horizon: the first compaction that keeps it sets attribute bit 6 of the batch
and its base timestamp to now + delete.retention.ms (KIP-534). A consumer that reaches the end of the log within
delete.retention.ms of that compaction has seen every deletion.

An empty header is kept of the batch with a live producer's last sequence, which a restart needs (KIP-98), and of the
last batch of a cleaned segment, which shows the offsets that it covers.
Source: Cleaner.cleanInto and MemoryRecords.filterTo of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from ottla_broker.records.batch import (
    CODEC_MASK,
    CONTROL_MASK,
    CRC_START,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    checksum,
    read_header,
)
from ottla_broker.records.compression import Codec, codec_of, compress
from ottla_broker.records.control_records import read_marker
from ottla_broker.records.formats import decode_batch
from ottla_broker.records.places import Place, payload_of, record_ends, record_places, timestamp_place
from ottla_broker.records.record import Record, build_batch
from ottla_broker.records.varint import decode_varint, encode_varint
from ottla_broker.storage.cleaner.key_map import KeyMap
from ottla_broker.storage.cleaner.transaction_view import TransactionView

WHOLE: Final = b"whole"
"""The batch is copied as it is."""
NOTHING: Final = b""
"""Nothing of the batch is kept."""

LastRecords: TypeAlias = Mapping[int, tuple[int, int]]
"""For the ids of live producers: (last offset of its last data batch or -1, epoch)."""


class BatchFilter:
    """The filter of one compaction; `filter` takes every batch in the order of the log."""

    def __init__(
        self,
        keys: KeyMap,
        transactions: TransactionView,
        last_records: LastRecords,
        *,
        now_ms: int,
        delete_retention_ms: int,
        max_decompressed_bytes: int,
    ) -> None:
        self._keys = keys
        self._transactions = transactions
        self._last_records = last_records
        self._now_ms = now_ms
        self._horizon = now_ms + delete_retention_ms
        self._max_bytes = max_decompressed_bytes
        self.records_kept = 0
        self.keyless_dropped = 0

    def filter(self, chunk: bytes, position: int, header: BatchHeader, is_last: bool) -> bytes:
        """`WHOLE`, `NOTHING`, or the batch that replaces it. `is_last`: the last batch of the cleaned segment.

        Raises CorruptBatch, UnsupportedCompression when the records do not fit the header, BatchTooLarge.
        """
        if header.magic != MAGIC:
            return self._filter_old(chunk, position, header, is_last)
        attributes = header.attributes
        is_control = bool(attributes & CONTROL_MASK)
        if is_control:
            can_be_dropped = self._transactions.marker(
                header, read_marker(memoryview(chunk)[position : position + header.size])
            )
        else:
            can_be_dropped = self._transactions.data(header)
        horizon = header.base_timestamp if attributes & DELETE_HORIZON_MASK else None
        is_past = horizon is not None and horizon <= self._now_ms
        keeps_header = is_last or (header.producer_id >= 0 and self._is_last_of_producer(header, is_control))
        count = header.record_count
        if not count:
            return WHOLE if keeps_header else NOTHING
        if can_be_dropped and (not is_control or is_past):
            return self._empty(header) if keeps_header else NOTHING
        if is_control:
            self.records_kept += count
            if not can_be_dropped or horizon is not None:
                return WHOLE
            data, start, end = payload_of(chunk, position, header, self._max_bytes)
            return self._with_horizon(header, data, start, record_places(data, start, end, count), None)

        marks = self._keys.marks(header.base_offset, header.last_offset)
        if marks is not None and len(marks) == count:  # no offset is missing: each mark is that of one record
            kept_count = marks.count(0)
            self.records_kept += kept_count
            if kept_count == count:
                return WHOLE
            if not kept_count:
                return self._empty(header) if keeps_header else NOTHING
            data, start, end = payload_of(chunk, position, header, self._max_bytes)
            kept = [number for number, mark in enumerate(marks) if not mark]
            return _some(header, data, start, record_ends(data, start, end, count), kept)

        data, start, end = payload_of(chunk, position, header, self._max_bytes)
        places = record_places(data, start, end, count)
        kept, has_tombstone = self._select(header.base_offset, places, is_past)
        if len(kept) == count:
            self.records_kept += count
            if has_tombstone and horizon is None:
                return self._with_horizon(header, data, start, places, None)
            return WHOLE
        if not kept:
            return self._empty(header) if keeps_header else NOTHING
        self.records_kept += len(kept)
        if has_tombstone and horizon is None:
            return self._with_horizon(header, data, start, places, kept)
        return _some(header, data, start, [place[0] for place in places], kept)

    def _filter_old(self, chunk: bytes, position: int, header: BatchHeader, is_last: bool) -> bytes:
        """An entry of message format 0 or 1: the records that are kept become a batch of format 2."""
        records = decode_batch(memoryview(chunk)[position : position + header.size], self._max_bytes)
        kept, has_tombstone = self._select(header.base_offset, places_of(header, records), False)
        self.records_kept += len(kept)
        if len(kept) == len(records) and not has_tombstone:
            return WHOLE
        if not kept and not is_last:
            return NOTHING
        batch = build_batch(
            [records[number] for number in kept] or records[-1:],
            codec=codec_of(header.attributes),
            attributes=header.attributes & TIMESTAMP_TYPE_MASK,
        )
        new_header = read_header(batch)
        new_header = new_header._replace(last_offset_delta=header.last_offset - new_header.base_offset)
        if not kept:
            return self._empty(new_header)
        data, start, end = payload_of(bytes(batch), 0, new_header, self._max_bytes)
        new_places = record_places(data, start, end, len(kept))
        if has_tombstone:
            return self._with_horizon(new_header, data, start, new_places, None)
        return _build(
            new_header,
            data[start:end],
            len(kept),
            new_header.attributes,
            new_header.base_timestamp,
            new_header.max_timestamp,
        )

    def _select(self, base_offset: int, places: list[Place], is_past: bool) -> tuple[list[int], bool]:
        """(numbers of the records that are kept, whether one of them is a tombstone)."""
        kept: list[int] = []
        has_tombstone = False
        keep = kept.append
        last_offset_of = self._keys.get
        latest = self._keys.latest_offset
        for number, (_, delta, key, has_value, _) in enumerate(places):
            offset = base_offset + delta
            if offset > latest:
                keep(number)
                has_tombstone = has_tombstone or not has_value
            elif key is None:
                self.keyless_dropped += 1  # from before the topic was compacted: no later record can replace it
            elif offset >= last_offset_of(key):
                if has_value:
                    keep(number)
                elif not is_past:
                    keep(number)
                    has_tombstone = True
        return kept, has_tombstone

    def _is_last_of_producer(self, header: BatchHeader, is_control: bool) -> bool:
        last = self._last_records.get(header.producer_id)
        if last is None:
            return False
        offset, epoch = last
        if offset >= 0:
            return header.last_offset == offset
        # Only a marker is left of the producer: it has the epoch that fences older producers of the id.
        return is_control and header.producer_epoch == epoch

    def _with_horizon(
        self, header: BatchHeader, data: bytes, start: int, places: list[Place], kept: list[int] | None
    ) -> bytes:
        """A batch of the records `kept` (None: all), with timestamps relative to the delete horizon."""
        parts: list[bytes] = []
        latest = -1
        horizon = self._horizon
        numbers = range(len(places)) if kept is None else kept
        for number in numbers:
            begin = places[number - 1][0] if number else start
            after, _, _, _, at = places[number]
            _, body = decode_varint(data, begin)
            delta, rest = decode_varint(data, at)
            timestamp = header.max_timestamp if header.has_append_time else header.base_timestamp + delta
            latest = max(latest, timestamp)
            shifted = encode_varint(timestamp - horizon)
            parts.append(encode_varint(at - body + len(shifted) + after - rest))
            parts.append(data[body:at])
            parts.append(shifted)
            parts.append(data[rest:after])
        attributes = header.attributes | DELETE_HORIZON_MASK
        return _build(header, b"".join(parts), len(numbers), attributes, horizon, latest)

    def _empty(self, header: BatchHeader) -> bytes:
        """A batch without records: offsets, producer, sequence, largest timestamp."""
        attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_MASK)
        return _build(header, b"", 0, attributes, -1, header.max_timestamp)


def places_of(header: BatchHeader, records: Iterable[Record]) -> list[Place]:
    """The places of the records of an entry of message format 0 or 1, which have no positions."""
    return [(0, one.offset - header.base_offset, one.key, one.value is not None, 0) for one in records]


def _some(header: BatchHeader, data: bytes, start: int, ends: list[int], kept: list[int]) -> bytes:
    """A batch of the records `kept`, copied as runs of bytes. `ends`: the positions behind each record."""
    parts: list[bytes] = []
    latest = -1
    run_start = run_end = -1
    for number in kept:
        begin = ends[number - 1] if number else start
        if begin != run_end:
            if run_start >= 0:
                parts.append(data[run_start:run_end])
            run_start = begin
        run_end = ends[number]
        at = timestamp_place(data, begin)
        byte = data[at]
        delta = (byte >> 1) ^ -(byte & 1) if byte < 0x80 else decode_varint(data, at)[0]
        if header.base_timestamp + delta > latest:
            latest = header.base_timestamp + delta
    parts.append(data[run_start:run_end])
    if header.has_append_time:
        latest = header.max_timestamp
    return _build(header, b"".join(parts), len(kept), header.attributes, header.base_timestamp, latest)


def _build(
    header: BatchHeader, records: bytes, count: int, attributes: int, base_timestamp: int, max_timestamp: int
) -> bytes:
    codec = attributes & CODEC_MASK
    if codec:
        records = compress(Codec(codec), records)
    batch = bytearray(HEADER_BYTES)
    batch += records
    HEADER.pack_into(
        batch,
        0,
        *header._replace(
            length=len(batch) - LOG_OVERHEAD,
            crc=0,
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=count,
        ),
    )
    batch[17:CRC_START] = checksum(batch).to_bytes(4, "big")
    return bytes(batch)
