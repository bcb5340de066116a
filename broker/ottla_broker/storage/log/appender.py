"""Appends to one log: a leader's batches, transaction markers, and the batches that a follower fetched.

A leader's append is the hot path: one struct, one checksum over the received bytes, one comparison for everything that
may be wrong, two fields patched in place, and the received memoryview itself is queued for the disk. No record is
parsed and no byte is copied.

Not here: what is wrong with a refused batch (`append_checks.py`), when a segment is full (`flushing.py`), what happens
when the write is done (`writes.py`), batches whose records must be decoded (`replication.append_queue`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from ottla_broker.config.topics import INTERNAL_TOPICS
from ottla_broker.ports.clock import Clock
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
from ottla_broker.records.control_records import EndTransactionMarker, build_marker, read_marker
from ottla_broker.records.errors import CorruptBatch, InvalidRecord
from ottla_broker.records.formats import MAGIC_OFFSET, batches, is_batch_intact
from ottla_broker.records.preparation import NO_BOUND
from ottla_broker.storage.files.indexes import MAX_RELATIVE_OFFSET
from ottla_broker.storage.files.segment import Segment
from ottla_broker.storage.files.transaction_index import AbortedTransaction
from ottla_broker.storage.log.append_checks import (
    UNUSUAL_IN_TRANSACTION,
    UNUSUAL_MASK,
    AppendInfo,
    PreparationNeeded,
    check_sequence,
    refusal,
    stamp_append_time,
)
from ottla_broker.storage.log.flushing import LogFlusher
from ottla_broker.storage.log.state import LogState
from ottla_broker.storage.log.verification import AppendOrigin, TransactionalAppend

_MAX_CODEC = 4
_CODEC_MASK = 0x07
_unpack_header = HEADER.unpack_from
_pack_patch = PATCH.pack_into


class LogAppender:
    """The appends of one log."""

    __slots__ = ("_clock", "_flusher", "_is_header_enough", "_is_preparing", "_on_written", "_state", "_watch")

    def __init__(
        self,
        state: LogState,
        clock: Clock,
        flusher: LogFlusher,
        on_written: Callable[[asyncio.Future[Any]], None],
        watch: Callable[[asyncio.Future[Any]], None],
    ) -> None:
        """`on_written`: the callback of every write. `watch` handles the failure of a call that nobody awaits."""
        self._state = state
        self._clock = clock
        self._flusher = flusher
        self._on_written = on_written
        self._watch = watch
        self._is_preparing = False
        self._is_header_enough = False
        """An ordinary batch of format 2 is appended after a look at its header."""
        self.configure()

    @property
    def is_preparing(self) -> bool:
        """Batches that came earlier are still being prepared."""
        return self._is_preparing

    def set_preparing(self, is_preparing: bool) -> None:
        """While earlier batches are being prepared, later ones get PreparationNeeded, so that they keep their order."""
        self._is_preparing = is_preparing
        self.configure()

    def configure(self) -> None:
        """Follows a changed `LogState.config`."""
        state = self._state
        config = state.config
        has_rules = config.codec is not None or config.rules.has_record_rules
        self._is_header_enough = not (
            self._is_preparing
            or config.is_log_append_time
            or (has_rules and state.topic_partition.topic not in INTERNAL_TOPICS)
        )

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        is_prepared: bool = False,
        transaction: TransactionalAppend | None = None,
    ) -> AppendInfo:
        """Checks a producer's batch, assigns its offsets, patches it in place and queues its write.

        The write is done when `log_end_offset` is above the answer's last offset; until then the buffer must not
        change. A duplicate of an idempotent producer gets its original offsets.

        Args:
            records: one batch, as received.
            leader_epoch: of the partition's leader, which is this broker.
            is_prepared: `records.preparation` has checked and converted the records.
            transaction: given when the request has a transactional id, so that the batch may be part of one.

        Raises:
            PreparationNeeded: the batch has format 0 or 1, or the topic's configuration asks for more than a look at
                the header, or earlier batches are being prepared.
            VerificationNeeded: the batch would begin a transaction, and `transaction` does not verify it.
            KafkaError: in this order: KAFKA_STORAGE_ERROR; INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE,
                RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, TRANSACTIONAL_ID_AUTHORIZATION_FAILED (structure);
                CORRUPT_MESSAGE (checksum); OUT_OF_ORDER_SEQUENCE_NUMBER (see `verification`);
                INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER or
                NOT_ENOUGH_REPLICAS_AFTER_APPEND (see `producers`), INVALID_TXN_STATE
                (KIP-98). The produce handler checks the codec against the request's version.
        """
        state = self._state
        if state.is_failed or state.is_full:
            raise state.storage_error()
        config = state.config
        size = len(records)
        if size < HEADER_BYTES:
            raise self._unusual(records, transaction)
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
            or attributes & (UNUSUAL_MASK if transaction is None else UNUSUAL_IN_TRANSACTION)
            or attributes & _CODEC_MASK > _MAX_CODEC
            or size > config.max_message_bytes
            or size > config.segment_bytes
            or max_timestamp < base_timestamp
            or producer_id < -1
        ):
            raise self._unusual(records, transaction)
        if crc32c(records[CRC_START:]) != crc:
            raise CorruptBatch(f"the checksum of the batch for {state.topic_partition} does not fit")
        append_time = -1
        if not self._is_header_enough:
            now_ms = self._clock.now_ms()
            if not is_prepared and self._needs_preparation(attributes, max_timestamp, now_ms):
                raise PreparationNeeded
            if config.is_log_append_time:
                append_time = base_timestamp = max_timestamp = now_ms
        if state.is_truncating:
            raise state.truncating_error()

        if producer_id >= 0:
            check_sequence(base_sequence, producer_id)
            last_sequence = (base_sequence + last_delta) & MAX_SEQUENCE
            in_transaction = attributes & TRANSACTIONAL_MASK != 0
            original = None
            if (
                transaction is None
                or not in_transaction
                or self._check_transaction(producer_id, producer_epoch, base_sequence, transaction)
            ):
                original = state.producers.check(
                    producer_id,
                    producer_epoch,
                    base_sequence,
                    last_sequence,
                    in_transaction,
                    state.high_watermark,
                    state.check_gap,
                )
            if original is not None:
                repeated_at = -1 if append_time < 0 else original.timestamp
                return AppendInfo(original.first_offset, original.last_offset, True, repeated_at)

        if append_time >= 0:
            records = stamp_append_time(records, append_time)
        first = state.assigned_offset
        last = first + last_delta
        segment = state.active_segment
        if self._flusher.needs_roll(segment, size, last, max_timestamp):
            segment = self._flusher.roll()
        if leader_epoch != state.epochs.latest:
            state.epochs.assign(leader_epoch, first)
        try:
            _pack_patch(records, 0, first, length, leader_epoch)
        except (TypeError, BufferError):  # a read-only buffer, from a caller that is not the network
            records = memoryview(bytearray(records))
            _pack_patch(records, 0, first, length, leader_epoch)
        if producer_id >= 0:
            state.producers.update(
                producer_id, producer_epoch, last_sequence, last, last_delta, max_timestamp, in_transaction
            )
        write = segment.append((records,), self._on_written)
        segment.add_batch(first, last, size, max_timestamp, base_timestamp, config.index_interval_bytes)
        state.assigned_offset = last + 1
        self._track_or_sync(segment, write)
        return AppendInfo(first, last, False, append_time)

    def _check_transaction(
        self, producer_id: int, producer_epoch: int, sequence: int, transaction: TransactionalAppend
    ) -> bool:
        """Checks the transaction of a batch that is part of one; whether the sequence is to be checked then."""
        producers = self._state.producers
        if self._state.config.verifies_transactions or transaction.adds_partition:
            producers.check_verified(producer_id, producer_epoch, sequence, transaction)
        if transaction.origin is AppendOrigin.CLIENT:
            return True
        producers.check_epoch(producer_id, producer_epoch)
        return False

    def _unusual(self, records: memoryview, transaction: TransactionalAppend | None) -> Exception:
        """What to raise for records that are not one ordinary batch of format 2."""
        is_old = len(records) > MAGIC_OFFSET and records[MAGIC_OFFSET] < MAGIC
        if is_old and self._state.topic_partition.topic not in INTERNAL_TOPICS:
            return PreparationNeeded()
        return refusal(records, self._state.config, transaction is not None)

    def _needs_preparation(self, attributes: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether the batch's records must be decoded, or it must wait for earlier batches whose records are."""
        if self._is_preparing:
            return True
        rules = self._state.config.rules
        if self._state.topic_partition.topic in INTERNAL_TOPICS:
            return False  # the coordinators' own batches
        if rules.needs_keys or rules.validates or (rules.codec is not None and attributes & _CODEC_MASK != rules.codec):
            return True
        if rules.is_append_time:
            return False
        # The header has the largest timestamp, not the smallest.
        return rules.before_max_ms != NO_BOUND or max_timestamp > now_ms + rules.after_max_ms

    def append_marker(
        self,
        marker: EndTransactionMarker,
        producer_id: int,
        producer_epoch: int,
        leader_epoch: int,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Appends a transaction coordinator's marker: a control batch of one record (WriteTxnMarkers, KIP-98).

        It ends the producer's open transaction in this log. A repeated marker is appended too, and ends nothing.
        `transaction_version`: of the transaction; from 2 on the epoch is above that of its records (KIP-1228).

        Raises KafkaError KAFKA_STORAGE_ERROR, INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        state = self._state
        if state.is_failed or state.is_full:
            raise state.storage_error()
        if state.is_truncating:
            raise state.truncating_error()
        state.producers.check_marker(producer_id, producer_epoch, marker.coordinator_epoch, transaction_version)
        now = self._clock.now_ms()
        is_append_time = state.config.is_log_append_time
        records = build_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=now,
            leader_epoch=leader_epoch,
            attributes=TIMESTAMP_TYPE_MASK if is_append_time else 0,
        )
        size = len(records)
        offset = state.assigned_offset
        segment = state.active_segment
        if self._flusher.needs_roll(segment, size, offset, now):
            segment = self._flusher.roll()
        if leader_epoch != state.epochs.latest:
            state.epochs.assign(leader_epoch, offset)
        _pack_patch(records, 0, offset, size - LOG_OVERHEAD, leader_epoch)
        aborted = state.producers.end_transaction(producer_id, producer_epoch, offset, now, marker)
        self._end_transaction(aborted)
        write = segment.append((memoryview(records),), self._on_written)
        segment.add_batch(offset, offset, size, now, now, state.config.index_interval_bytes)
        state.assigned_offset = offset + 1
        self._track_or_sync(segment, write)
        return AppendInfo(offset, offset, log_append_time_ms=now if is_append_time else -1)

    def append_as_follower(self, records: memoryview, leader_epoch: int | None = None) -> AppendInfo:
        """Appends fetched batches with the offsets and epochs that the leader assigned; drops a partial last batch.

        Args:
            records: batches, as received.
            leader_epoch: of the leader that sent them; a batch of a later epoch is refused.

        Returns the offsets; without a whole batch the last offset is below the first.

        Raises KafkaError KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE (structure or checksum), INVALID_RECORD (offsets that do
        not follow the end of the log, a later leader epoch).
        """
        state = self._state
        if state.is_failed or state.is_full:
            raise state.storage_error()
        if state.is_truncating:
            raise state.truncating_error()
        checked = self._checked_batches(records, leader_epoch)
        first_offset = state.assigned_offset
        if not checked:
            return AppendInfo(first_offset, first_offset - 1)
        first_offset = checked[0][1].base_offset
        interval = state.config.index_interval_bytes
        flusher = self._flusher
        start = end = 0
        for position, header in checked:
            segment = state.active_segment
            size = header.size
            if flusher.needs_roll(segment, size, header.last_offset, header.max_timestamp):
                if end > start:
                    self._track_or_sync(segment, segment.append((records[start:end],), self._on_written))
                    start = position
                # A compacted log may have a gap that is too wide for the relative offsets of an index: the batch behind
                # it begins a segment of its own.
                is_far = header.last_offset - state.assigned_offset > MAX_RELATIVE_OFFSET
                segment = flusher.roll(header.base_offset if is_far else None)
            if header.leader_epoch != state.epochs.latest and header.magic == MAGIC:
                state.epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                self._update_producers(header, records[position : position + size])
            segment.add_batch(
                header.base_offset, header.last_offset, size, header.max_timestamp, header.base_timestamp, interval
            )
            state.assigned_offset = header.next_offset
            end = position + size
        segment = state.active_segment
        self._track_or_sync(segment, segment.append((records[start:end],), self._on_written))
        return AppendInfo(first_offset, state.assigned_offset - 1)

    def _checked_batches(self, records: memoryview, leader_epoch: int | None) -> list[tuple[int, BatchHeader]]:
        """(position, header) of all whole batches. Checks all before the first is appended: a bad batch must not leave
        half a fetch in the log."""
        topic_partition = self._state.topic_partition
        expected = self._state.assigned_offset
        checked: list[tuple[int, BatchHeader]] = []
        for position, header in batches(records):
            if header.last_offset_delta < 0:
                raise CorruptBatch(f"a batch of {topic_partition} ends before it begins")
            if header.base_offset < expected:
                raise InvalidRecord(
                    f"a batch of {topic_partition} begins at offset {header.base_offset}, expected {expected}"
                )
            if not is_batch_intact(records[position : position + header.size], header.magic):
                raise CorruptBatch(
                    f"the checksum of the batch at offset {header.base_offset} of {topic_partition} does not fit"
                )
            if leader_epoch is not None and header.leader_epoch > leader_epoch and header.magic == MAGIC:
                raise InvalidRecord(
                    f"a batch of {topic_partition} at offset {header.base_offset} has leader epoch"
                    f" {header.leader_epoch}, its sender {leader_epoch}: the sender is not the leader any more"
                )
            if header.is_control and header.producer_id >= 0:
                # Raises now what `_update_producers` would raise after the first batches are appended.
                read_marker(records[position : position + header.size])
            expected = header.next_offset
            checked.append((position, header))
        return checked

    def _update_producers(self, header: BatchHeader, batch: memoryview) -> None:
        """Follows a fetched batch in the producers' state."""
        if not header.is_control:
            self._state.producers.update_from_header(header)
            return
        marker = read_marker(batch)
        if marker is not None:
            aborted = self._state.producers.end_from_header(header, marker)
            self._end_transaction(aborted)

    def _end_transaction(self, aborted: AbortedTransaction | None) -> None:
        """A marker is being appended to the active segment; `aborted` is the transaction that it aborts, if any."""
        state = self._state
        state.producers.transactions.forget_replicated(state.high_watermark)
        if aborted is not None:
            state.has_aborted_transactions = True
            state.active_segment.add_aborted(aborted)

    def _track_or_sync(self, segment: Segment, write: asyncio.Future[Any]) -> None:
        """Remembers the write of the active segment's last append; queues a sync when flush.messages is reached."""
        state = self._state
        if state.assigned_offset - state.flush_requested_offset < state.config.flush_messages:
            unfinished = state.unfinished_writes
            entry = (write, segment, segment.size, segment.next_offset, None)
            if unfinished and unfinished[-1][0] is write:
                unfinished[-1] = entry  # the Disk has joined the appends
            else:
                unfinished.append(entry)
        else:
            self._sync(segment, write)

    def _sync(self, segment: Segment, write: asyncio.Future[Any]) -> None:
        """flush.messages is reached: the records count as written once they are synced, not before."""
        state = self._state
        state.flush_requested_offset = state.assigned_offset
        self._watch(write)
        self._flusher.sync_directory()
        # The end of a segment that was rolled may still wait for its flush: the Disk keeps the order of calls.
        synced_from = segment.base_offset
        older = len(state.segments) - 2
        while older >= 0 and state.segments[older].next_offset > state.recovery_point and state.segments[older].is_open:
            self._watch(state.segments[older].when_open(_fsync))
            synced_from = state.segments[older].base_offset
            older -= 1
        sync = segment.when_open(_fsync)
        state.unfinished_writes.append((sync, segment, segment.size, segment.next_offset, synced_from))
        sync.add_done_callback(self._on_written)


def _fsync(segment: Segment) -> asyncio.Future[None]:
    assert segment.file is not None
    return segment.file.fsync()
