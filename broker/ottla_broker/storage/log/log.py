"""One replica's log: appends.

A leader's append is the hot path: one struct, one checksum over the received bytes, one comparison for everything that
may be wrong, two fields patched in place, and the received memoryview itself goes to the disk's lane. No record is
parsed, no byte copied. The rest of a log stands in `log_state.py` (positions), `reading.py`, `maintenance.py` and
`replacing.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from crc32c import crc32c

from ottla_broker.config.topics import INTERNAL_TOPICS
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    MAX_SEQUENCE,
    PATCH,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
)
from ottla_broker.records.control import EndTransactionMarker, build_marker, read_marker
from ottla_broker.records.errors import CorruptBatch, InvalidRecord
from ottla_broker.records.formats import MAGIC_OFFSET, batches, is_batch_intact
from ottla_broker.records.preparation import NO_BOUND
from ottla_broker.storage.files.indexes import MAX_RELATIVE_OFFSET
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.log.append import (
    UNUSUAL_IN_TRANSACTION,
    UNUSUAL_MASK,
    AppendInfo,
    PreparationNeeded,
    check_sequence,
    refusal,
    stamp_append_time,
)
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.replacing import LogReplacement

_MAX_CODEC = 4
_CODEC_MASK = 0x07
_unpack_header = HEADER.unpack_from
_pack_patch = PATCH.pack_into


class Log(LogReplacement):
    """See the module and docs/internals/contracts.md. Made by `loading.open_log`."""

    __slots__ = ()

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.configure(self.config)

    @property
    def latest_epoch(self) -> int:
        """The latest leader epoch, -1 when the log has none."""
        return self.epochs.latest

    def append_as_leader(
        self, records: memoryview, leader_epoch: int, is_prepared: bool = False, is_transactional: bool = False
    ) -> AppendInfo:
        """Checks a client's batch, gives it offsets, patches it in place and queues its write.

        Raises PreparationNeeded for formats 0 and 1 and where the topic asks for more than a look at the header, unless
        the batch `is_prepared` (by `records.preparation`) or the broker's own; and while others are held back.

        The buffer must not change until the write is done: when `log_end_offset` is beyond the answer's last offset.
        A duplicate of an idempotent producer gives the original offsets. `is_transactional`: the request named a
        transactional id, so that its batches may be part of a transaction. The codec is not held against the request's
        version; that is the produce handler's matter.

        Raises KafkaError, in this order: KAFKA_STORAGE_ERROR; INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE,
        RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, TRANSACTIONAL_ID_AUTHORIZATION_FAILED (structure); CORRUPT_MESSAGE
        (checksum); INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER or
        NOT_ENOUGH_REPLICAS_AFTER_APPEND (written before, see `producers`), INVALID_TXN_STATE (KIP-98).
        """
        if self.is_failed or self.is_full:
            raise self.storage_error()
        config = self.config
        size = len(records)
        if size < HEADER_BYTES:
            raise self._unusual(records, is_transactional)
        (
            _,
            length,
            _,
            magic,
            crc,
            attributes,
            last_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        ) = _unpack_header(records)
        if (
            length + LOG_OVERHEAD != size
            or magic != MAGIC
            or last_delta + 1 != count
            or count <= 0
            or attributes & (UNUSUAL_IN_TRANSACTION if is_transactional else UNUSUAL_MASK)
            or attributes & _CODEC_MASK > _MAX_CODEC
            or size > config.max_message_bytes
            or size > config.segment_bytes
            or max_timestamp < base_timestamp
            or producer_id < -1
        ):
            raise self._unusual(records, is_transactional)
        if crc32c(records[CRC_START:]) != crc:
            raise CorruptBatch(f"the checksum of the batch for {self.topic_partition} does not fit")
        append_time = -1
        if not self._takes_as_is:
            now_ms = self.clock.now_ms()
            if not is_prepared and self._needs_preparation(attributes, max_timestamp, now_ms):
                raise PreparationNeeded
            if config.is_log_append_time:
                append_time = base_timestamp = max_timestamp = now_ms
        if self._is_truncating:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is being truncated")

        if producer_id >= 0:
            check_sequence(base_sequence, producer_id)
            last_sequence = (base_sequence + last_delta) & MAX_SEQUENCE
            in_transaction = attributes & TRANSACTIONAL_MASK != 0
            original = self.producers.check(
                producer_id, producer_epoch, base_sequence, last_sequence, in_transaction, self.high_watermark
            )
            if original is not None:
                repeated_at = -1 if append_time < 0 else original.timestamp
                return AppendInfo(original.first_offset, original.last_offset, True, repeated_at)

        if append_time >= 0:
            records = stamp_append_time(records, append_time)
        first = self._assigned
        last = first + last_delta
        segment = self._active
        if self._needs_roll(segment, size, last, max_timestamp):
            segment = self._roll()
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, first)
        try:
            _pack_patch(records, 0, first, length, leader_epoch)
        except (TypeError, BufferError):  # a read-only buffer, from a caller that is not the network
            records = memoryview(bytearray(records))
            _pack_patch(records, 0, first, length, leader_epoch)
        if producer_id >= 0:
            self.producers.update(
                producer_id, producer_epoch, last_sequence, last, last_delta, max_timestamp, in_transaction
            )
        self._write(segment, records, size, first, last, max_timestamp, base_timestamp)
        return AppendInfo(first, last, False, append_time)

    def _unusual(self, records: memoryview, is_transactional: bool) -> Exception:
        """What to raise for records that are not one ordinary batch of format 2."""
        is_old = len(records) > MAGIC_OFFSET and records[MAGIC_OFFSET] < MAGIC
        if is_old and self.topic_partition.topic not in INTERNAL_TOPICS:
            return PreparationNeeded()
        return refusal(records, self.config, is_transactional)

    def _needs_preparation(self, attributes: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether a batch has to be looked into, or has to wait for others that are."""
        if self._is_held_back:
            return True
        rules = self.config.rules
        if self.topic_partition.topic in INTERNAL_TOPICS:
            return False  # the coordinators' own batches
        if rules.needs_keys or rules.validates or (rules.codec is not None and attributes & _CODEC_MASK != rules.codec):
            return True
        if rules.is_append_time:
            return False
        # A header tells the largest timestamp, not the smallest.
        return rules.before_max_ms != NO_BOUND or max_timestamp > now_ms + rules.after_max_ms

    def hold_back(self, is_held_back: bool) -> None:
        """While older batches are being prepared, newer ones get PreparationNeeded, so that they come after them."""
        self._is_held_back = is_held_back
        self._judge()

    def _judge(self) -> None:
        config = self.config
        is_special = config.codec is not None or config.rules.has_record_rules
        self._takes_as_is = not (
            self._is_held_back
            or config.is_log_append_time
            or (is_special and self.topic_partition.topic not in INTERNAL_TOPICS)
        )

    def append_marker(
        self, marker: EndTransactionMarker, producer_id: int, producer_epoch: int, leader_epoch: int
    ) -> AppendInfo:
        """As leader, for a transaction coordinator: ends the producer's transaction here, if it has one, with a control
        batch of one record. A marker may be written again, and is: then it ends nothing (KIP-98).

        Raises KafkaError KAFKA_STORAGE_ERROR, INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        if self.is_failed or self.is_full:
            raise self.storage_error()
        if self._is_truncating:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is being truncated")
        self.producers.check_marker(producer_id, producer_epoch, marker.coordinator_epoch)
        now = self.clock.now_ms()
        is_append_time = self.config.is_log_append_time
        records = build_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=now,
            leader_epoch=leader_epoch,
            attributes=TIMESTAMP_TYPE_MASK if is_append_time else 0,
        )
        size = len(records)
        offset = self._assigned
        segment = self._active
        if self._needs_roll(segment, size, offset, now):
            segment = self._roll()
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, offset)
        _pack_patch(records, 0, offset, size - LOG_OVERHEAD, leader_epoch)
        aborted = self.producers.end_transaction(producer_id, producer_epoch, offset, now, marker)
        self._settle_transactions(aborted)
        self._write(segment, memoryview(records), size, offset, offset, now, now)
        return AppendInfo(offset, offset, log_append_time_ms=now if is_append_time else -1)

    def _write(
        self,
        segment: Segment,
        records: memoryview,
        size: int,
        first: int,
        last: int,
        max_timestamp: int,
        base_timestamp: int,
    ) -> None:
        """Queues one batch at the end of the active segment."""
        write = segment.append((records,), self._on_written)
        segment.took_place(first, last, size, max_timestamp, base_timestamp, self.config.index_interval_bytes)
        self._assigned = last + 1
        self._sync_or_track(segment, write)

    def _sync_or_track(self, segment: Segment, write: asyncio.Future[int]) -> None:
        if self._assigned - self._flush_requested < self.config.flush_messages:
            self._track(write, None)
            return
        # flush.messages reached: these records count as written once they are synced, not before.
        self._flush_requested = self._assigned
        self._watch(write)
        self._sync_directory()
        # The tail of a segment that rolled may still wait for its flush: in the order of the lane it goes first.
        synced_from = segment.base_offset
        older = len(self.segments) - 2
        while older >= 0 and self.segments[older].next_offset > self.recovery_point and self.segments[older].is_open:
            self._watch(self.segments[older].when_open(_fsync))
            synced_from = self.segments[older].base_offset
            older -= 1
        self._track(segment.when_open(_fsync), synced_from)

    def append_as_follower(self, records: memoryview, leader_epoch: int | None = None) -> AppendInfo:
        """Appends whole batches with the offsets and epochs that the leader gave them; a partial last one is dropped.

        `leader_epoch`: of the leader that sent them, which has none of a later one. Without a whole batch the answer's
        last offset is below its first. Raises KafkaError KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE (structure or checksum),
        INVALID_RECORD (offsets that do not follow the log's end, a leader epoch to come).
        """
        if self.is_failed or self.is_full:
            raise self.storage_error()
        if self._is_truncating:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is being truncated")
        runs = self._checked_batches(records, leader_epoch)
        first_offset = self._assigned
        if not runs:
            return AppendInfo(first_offset, first_offset - 1)
        first_offset = runs[0][1].base_offset
        config = self.config
        start = end = 0
        for position, header in runs:
            segment = self._active
            size = header.size
            if self._needs_roll(segment, size, header.last_offset, header.max_timestamp):
                if end > start:
                    self._sync_or_track(segment, segment.append((records[start:end],), self._on_written))
                    start = position
                # Behind a gap that no index can express, a leader's compacted log goes on in a segment of its own.
                is_far = header.last_offset - self._assigned > MAX_RELATIVE_OFFSET
                segment = self._roll(header.base_offset if is_far else None)
            if header.leader_epoch != self.epochs.latest and header.magic == MAGIC:
                self.epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                self._take_down(header, records[position : position + size])
            segment.took_place(
                header.base_offset,
                header.last_offset,
                size,
                header.max_timestamp,
                header.base_timestamp,
                config.index_interval_bytes,
            )
            self._assigned = header.next_offset
            end = position + size
        self._sync_or_track(self._active, self._active.append((records[start:end],), self._on_written))
        return AppendInfo(first_offset, self._assigned - 1)

    def _checked_batches(self, records: memoryview, leader_epoch: int | None) -> list[tuple[int, BatchHeader]]:
        """All whole batches, checked before the first is taken: a bad one must not leave half a fetch behind."""
        expected = self._assigned
        runs: list[tuple[int, BatchHeader]] = []
        for position, header in batches(records):
            if header.last_offset_delta < 0:
                raise CorruptBatch(f"a batch of {self.topic_partition} ends before it begins")
            if header.base_offset < expected:
                raise InvalidRecord(
                    f"a batch of {self.topic_partition} begins at offset {header.base_offset}, expected {expected}"
                )
            if not is_batch_intact(records[position : position + header.size], header.magic):
                raise CorruptBatch(
                    f"the checksum of the batch at offset {header.base_offset} of {self.topic_partition} does not fit"
                )
            if leader_epoch is not None and header.leader_epoch > leader_epoch and header.magic == MAGIC:
                raise InvalidRecord(
                    f"a batch of {self.topic_partition} at offset {header.base_offset} is of leader epoch"
                    f" {header.leader_epoch}, the leader of {leader_epoch}: it leads no more"
                )
            if header.is_control and header.producer_id >= 0:
                read_marker(records[position : position + header.size])  # raises what `_take_down` would, in time
            expected = header.next_offset
            runs.append((position, header))
        return runs

    def _take_down(self, header: BatchHeader, batch: memoryview) -> None:
        if not header.is_control:
            self.producers.update_from_header(header)
            return
        marker = read_marker(batch)
        if marker is not None:
            aborted = self.producers.end_from_header(header, marker)
            self._settle_transactions(aborted)

    def maybe_advance_high_watermark(self, offset: int) -> bool:
        """Moves the high watermark up to `offset`, at most to the log end; True when it moved."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch known here at or below it, (-1, -1) unknown (KIP-101, KIP-279)."""
        return self.epochs.end_offset(leader_epoch, self.log_end_offset)

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> asyncio.Future[None]:
        """From `start_offset` on records are of `leader_epoch`.

        Done at once: the file follows with the next flush. Nothing depends on it before, since an epoch with records
        is found again in their headers, and one without records ends where the next one begins.
        """
        self.epochs.assign(leader_epoch, start_offset)
        done: asyncio.Future[None] = self.clock.create_future()
        done.set_result(None)
        return done

    def configure(self, config: LogConfig) -> None:
        """Takes a changed configuration from the next append on."""
        self.config = config
        self._judge()


def _fsync(segment: Segment) -> asyncio.Future[None]:
    assert segment.file is not None
    return segment.file.fsync()


__all__ = ["AppendInfo", "Log"]
