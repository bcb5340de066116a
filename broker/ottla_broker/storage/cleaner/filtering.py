"""What stays of one batch: all of it, some of its records, its empty header, or nothing. Pure.

The common case is cheap: a batch whose records all stay is copied as it stands, without being looked at again. Where
only some stay, the bytes of runs of them are copied; base offset, base timestamp and last offset stay, so every
delta does too. Records are written anew only where the batch gets its delete horizon.

A record of offset o and key k stays when nothing in the dirty part has k at a higher offset. A tombstone (null value)
stays until its batch's delete horizon: when it survives a cleaning for the first time its batch gets bit 6, and its
base timestamp becomes now + delete.retention.ms (KIP-534). So a reader that reaches the end within delete.retention.ms
of that cleaning has seen every deletion.

An empty header stays of the batch that holds a live producer's last sequence, so that a restart knows it (KIP-98), and
of the last batch of a cleaned segment, so that the segment still tells which offsets it covers.
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
from ottla_broker.records.control import read_marker
from ottla_broker.records.formats import decode_batch
from ottla_broker.records.places import Place, payload_of, record_ends, record_places, timestamp_place
from ottla_broker.records.record import Record, build_batch
from ottla_broker.records.varint import decode_varint, encode_varint
from ottla_broker.storage.cleaner.key_map import KeyMap
from ottla_broker.storage.cleaner.transactions import TransactionView

WHOLE: Final = b"whole"
"""The answer for a batch that is to be copied as it stands."""
NOTHING: Final = b""
"""The answer for a batch of which nothing stays."""

LastRecords: TypeAlias = Mapping[int, tuple[int, int]]
"""Of live producers, by id: (last offset of its last data batch or -1, epoch)."""


class BatchFilter:
    """One cleaning's judgement. Feed it every batch in the order of the log."""

    def __init__(
        self,
        keys: KeyMap,
        transactions: TransactionView,
        last_records: LastRecords,
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._keys = keys
        self._transactions = transactions
        self._last_records = last_records
        self._now_ms = now_ms
        self._horizon = now_ms + delete_retention_ms
        self.records_kept = 0
        self.keyless_dropped = 0

    def filter(self, chunk: bytes, position: int, header: BatchHeader, is_last: bool) -> bytes:
        """`WHOLE`, `NOTHING`, or the batch that takes its place. `is_last`: of the segment being written.

        CorruptBatch, UnsupportedCompression when the records do not fit the header.
        """
        if header.magic != MAGIC:
            return self._filter_old(chunk, position, header, is_last)
        attributes = header.attributes
        is_control = bool(attributes & CONTROL_MASK)
        if is_control:
            is_unneeded = self._transactions.marker(
                header, read_marker(memoryview(chunk)[position : position + header.size])
            )
        else:
            is_unneeded = self._transactions.data(header)
        horizon = header.base_timestamp if attributes & DELETE_HORIZON_MASK else None
        is_past = horizon is not None and horizon <= self._now_ms
        stays_empty = is_last or (header.producer_id >= 0 and self._is_last_of_producer(header, is_control))
        count = header.record_count
        if not count:
            return WHOLE if stays_empty else NOTHING
        if is_unneeded and (not is_control or is_past):
            return self._empty(header) if stays_empty else NOTHING
        if is_control:
            self.records_kept += count
            if not is_unneeded or horizon is not None:
                return WHOLE
            data, start, end = payload_of(chunk, position, header)
            return self._with_horizon(header, data, start, record_places(data, start, end, count), None)

        marks = self._keys.marks(header.base_offset, header.last_offset)
        if marks is not None and len(marks) == count:  # it has every offset: the marks are those of its records
            stay = marks.count(0)
            self.records_kept += stay
            if stay == count:
                return WHOLE
            if not stay:
                return self._empty(header) if stays_empty else NOTHING
            data, start, end = payload_of(chunk, position, header)
            staying = [number for number, mark in enumerate(marks) if not mark]
            return _some(header, data, start, record_ends(data, start, end, count), staying)

        data, start, end = payload_of(chunk, position, header)
        places = record_places(data, start, end, count)
        kept, has_tombstone = self._judge(header.base_offset, places, is_past)
        if len(kept) == count:
            self.records_kept += count
            if has_tombstone and horizon is None:
                return self._with_horizon(header, data, start, places, None)
            return WHOLE
        if not kept:
            return self._empty(header) if stays_empty else NOTHING
        self.records_kept += len(kept)
        if has_tombstone and horizon is None:
            return self._with_horizon(header, data, start, places, kept)
        return _some(header, data, start, [place[0] for place in places], kept)

    def _filter_old(self, chunk: bytes, position: int, header: BatchHeader, is_last: bool) -> bytes:
        """An entry of message format 0 or 1: what stays of it becomes a batch of format 2."""
        records = decode_batch(memoryview(chunk)[position : position + header.size])
        kept, has_tombstone = self._judge(header.base_offset, places_of(header, records), False)
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
        made = read_header(batch)
        made = made._replace(last_offset_delta=header.last_offset - made.base_offset)
        if not kept:
            return self._empty(made)
        data, start, end = payload_of(bytes(batch), 0, made)
        made_places = record_places(data, start, end, len(kept))
        if has_tombstone:
            return self._with_horizon(made, data, start, made_places, None)
        return _build(made, data[start:end], len(kept), made.attributes, made.base_timestamp, made.max_timestamp)

    def _judge(self, base_offset: int, places: list[Place], is_past: bool) -> tuple[list[int], bool]:
        """(numbers of the records that stay, whether one of them is a tombstone)."""
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
                self.keyless_dropped += 1  # from before the topic was compacted: nothing could ever replace it
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
        # Only a marker is left of it: it holds the epoch that fences older producers of its id.
        return is_control and header.producer_epoch == epoch

    def _with_horizon(
        self, header: BatchHeader, data: bytes, start: int, places: list[Place], kept: list[int] | None
    ) -> bytes:
        """The records `kept` (None: all), their timestamps relative to the delete horizon."""
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
        """The header alone: offsets, producer, sequence, largest timestamp."""
        attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_MASK)
        return _build(header, b"", 0, attributes, -1, header.max_timestamp)


def places_of(header: BatchHeader, records: Iterable[Record]) -> list[Place]:
    """Of the records of an entry of message format 0 or 1, as far as they have any."""
    return [(0, one.offset - header.base_offset, one.key, one.value is not None, 0) for one in records]


def _some(header: BatchHeader, data: bytes, start: int, ends: list[int], kept: list[int]) -> bytes:
    """The records `kept`, as runs of bytes. `ends`: the positions after each record."""
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
