"""What a log remembers of idempotent producers: their last five batches, and the snapshot file (KIP-98, 5.3). Pure.

The rules, in the order they are checked, for a batch of producer p with epoch e and sequences f..l:

1. same epoch, and f..l are those of one of the five: a duplicate, answered with that batch's offsets;
2. e below the known epoch: INVALID_PRODUCER_EPOCH;
3. e above it: f must be 0, else OUT_OF_ORDER_SEQUENCE_NUMBER;
4. same epoch: f must follow the last sequence, 2^31-1 being followed by 0, else OUT_OF_ORDER_SEQUENCE_NUMBER;
5. a producer that is not known (new, expired) may begin anywhere.

What came by replication or from the log itself was checked by a leader and is only taken down.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from crc32c import crc32c

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import MAX_SEQUENCE, NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader
from ottla_broker.storage.checkpoints import CheckpointError

_KEPT_BATCHES = 5
_SNAPSHOT_HEAD = Struct(">hI")
_SNAPSHOT_COUNT = Struct(">i")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1
_CRC_START = 6
NO_OFFSET = -1


class ProducerBatch(NamedTuple):
    """One appended batch: its last sequence and offset, last offset delta, and largest timestamp in ms."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer's state in this partition. `batches` holds the latest five, the newest last."""

    __slots__ = ("batches", "coordinator_epoch", "current_txn_first_offset", "epoch", "last_timestamp", "producer_id")

    def __init__(self, producer_id: int, epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.current_txn_first_offset = NO_OFFSET
        self.last_timestamp = -1
        self.batches: list[ProducerBatch] = []

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerStates:
    """All producers of one log. `end_offset` is the offset up to which batches have been taken down."""

    __slots__ = ("_entries", "end_offset")

    def __init__(self, end_offset: int = 0) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self.end_offset = end_offset

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Iterable[ProducerEntry]:
        return self._entries.values()

    def check(
        self, producer_id: int, producer_epoch: int, first_sequence: int, last_sequence: int
    ) -> ProducerBatch | None:
        """A client's batch before it is appended: the batch it repeats, or None when it may be appended.

        KafkaError INVALID_PRODUCER_EPOCH or OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return None
        if producer_epoch == entry.epoch:
            for batch in entry.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                    return batch
            expected = (entry.last_sequence + 1) & MAX_SEQUENCE
            if first_sequence != expected:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} epoch {producer_epoch}: sequence {first_sequence} does not follow "
                    f"{entry.last_sequence}",
                )
        elif producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id}: epoch {producer_epoch} is older than {entry.epoch}",
            )
        elif first_sequence != 0 and entry.epoch != NO_PRODUCER_EPOCH:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id}: the new epoch {producer_epoch} begins with sequence {first_sequence}, not 0",
            )
        return None

    def update(
        self,
        producer_id: int,
        producer_epoch: int,
        last_sequence: int,
        last_offset: int,
        offset_delta: int,
        timestamp: int,
        is_transactional: bool = False,
    ) -> None:
        """Takes down a data batch that has been given its offsets."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, producer_epoch)
        elif entry.epoch != producer_epoch:
            entry.epoch = producer_epoch
            entry.batches.clear()
        if last_sequence != NO_SEQUENCE:
            if len(entry.batches) == _KEPT_BATCHES:
                del entry.batches[0]
            entry.batches.append(ProducerBatch(last_sequence, last_offset, offset_delta, timestamp))
        entry.last_timestamp = timestamp
        if is_transactional and entry.current_txn_first_offset == NO_OFFSET:
            entry.current_txn_first_offset = last_offset - offset_delta

    def update_from_header(self, header: BatchHeader) -> None:
        """Takes down a batch that a leader has checked: replication, recovery, replay. Markers: `end_transaction`."""
        if header.producer_id >= 0 and not header.is_control:
            self.update(
                header.producer_id,
                header.producer_epoch,
                header.last_sequence,
                header.last_offset,
                header.last_offset_delta,
                header.max_timestamp,
                header.is_transactional,
            )

    def end_transaction(self, header: BatchHeader, coordinator_epoch: int) -> None:
        """Takes down a marker: the producer's transaction is over, its epoch may have grown."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_id, header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.current_txn_first_offset = NO_OFFSET
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = header.max_timestamp

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets producers idle for longer than producer.id.expiration.ms and without an open transaction."""
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.current_txn_first_offset == NO_OFFSET and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]

    def dump(self) -> list[tuple[int, int, int, int, int, list[tuple[int, int, int, int]]]]:
        """Everything, as plain values for the way between processes; the snapshot file keeps only the last batch."""
        return [
            (
                entry.producer_id,
                entry.epoch,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
                entry.last_timestamp,
                [(*batch,) for batch in entry.batches],
            )
            for entry in self._entries.values()
        ]

    @classmethod
    def restore(
        cls, dump: list[tuple[int, int, int, int, int, list[tuple[int, int, int, int]]]], end_offset: int
    ) -> ProducerStates:
        """What `dump` gave."""
        states = cls(end_offset)
        for producer_id, epoch, coordinator_epoch, txn, timestamp, batches in dump:
            entry = states._entries[producer_id] = ProducerEntry(producer_id, epoch)
            entry.coordinator_epoch = coordinator_epoch
            entry.current_txn_first_offset = txn
            entry.last_timestamp = timestamp
            entry.batches = [ProducerBatch(*batch) for batch in batches]
        return states

    def encode(self) -> bytes:
        """The snapshot file: int16 version 1, uint32 CRC-32C of what follows, int32 count, entries.

        One entry for each batch that is kept, the newest of a producer last. Apache Kafka writes that one alone and,
        reading, lets the last entry of a producer win, so both read each other's files. With one alone, a producer
        that had five requests in flight when its broker died would be told OUT_OF_ORDER_SEQUENCE_NUMBER for the first
        of them, begin anew with another epoch and write all of them twice.
        """
        rows = 0
        body = bytearray(_SNAPSHOT_COUNT.size)
        for entry in self._entries.values():
            for batch in entry.batches or [ProducerBatch(NO_SEQUENCE, NO_OFFSET, 0, entry.last_timestamp)]:
                rows += 1
                body += _SNAPSHOT_ENTRY.pack(
                    entry.producer_id,
                    entry.epoch,
                    batch.last_sequence,
                    batch.last_offset,
                    batch.offset_delta,
                    batch.timestamp,
                    entry.coordinator_epoch,
                    entry.current_txn_first_offset,
                )
        _SNAPSHOT_COUNT.pack_into(body, 0, rows)
        return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def decode(cls, name: str, data: bytes, end_offset: int) -> ProducerStates:
        """CheckpointError when version, checksum or length do not fit."""
        states = cls(end_offset)
        try:
            version, crc = _SNAPSHOT_HEAD.unpack_from(data)
            (count,) = _SNAPSHOT_COUNT.unpack_from(data, _CRC_START)
            if version != _SNAPSHOT_VERSION:
                raise CheckpointError(f"{name}: version {version} is not known, only {_SNAPSHOT_VERSION}")
            if crc32c(memoryview(data)[_CRC_START:]) != crc:
                raise CheckpointError(f"{name}: the checksum does not fit")
            position = _CRC_START + _SNAPSHOT_COUNT.size
            for number in range(count):
                values = _SNAPSHOT_ENTRY.unpack_from(data, position + number * _SNAPSHOT_ENTRY.size)
                producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, txn = values
                entry = states._entries.get(producer_id)
                if entry is None or entry.epoch != epoch:
                    entry = states._entries[producer_id] = ProducerEntry(producer_id, epoch)
                entry.coordinator_epoch = coordinator_epoch
                entry.current_txn_first_offset = txn
                entry.last_timestamp = timestamp
                if last_sequence != NO_SEQUENCE or last_offset != NO_OFFSET:
                    entry.batches.append(ProducerBatch(last_sequence, last_offset, delta, timestamp))
        except StructError as error:
            raise CheckpointError(f"{name}: {error}") from None
        return states
