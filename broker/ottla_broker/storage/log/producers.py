"""The state of a log's idempotent producers: their last five batches, and the snapshot file (KIP-98). Pure.

The rules, in the order of checking, for a batch of a producer with epoch e and sequences f..l:

1. same epoch, and f..l are the sequences of one of the five: a duplicate, which gets that batch's offsets;
2. e below the known epoch: INVALID_PRODUCER_EPOCH;
3. e above it: f must be 0, else OUT_OF_ORDER_SEQUENCE_NUMBER;
4. same epoch: f must follow the last sequence (0 follows 2^31-1); else, if f..l came before the five and is known to be
   in the log, DUPLICATE_SEQUENCE_NUMBER (NOT_ENOUGH_REPLICAS_AFTER_APPEND while it is not committed); else
   OUT_OF_ORDER_SEQUENCE_NUMBER;
5. an unknown producer (new, expired) may begin with any sequence; a batch that comes behind one of the same epoch that
   this broker refused and the producer sends again gets that one's error, also in rules 3 and 4
   (`replication.refused_batches`);
6. while the producer has an open transaction in this log, a batch outside of it gets INVALID_TXN_STATE.

A batch that begins a transaction must be verified before (`verification.py`). The group coordinator's batches have no
sequences of their own: of these rules 2 and 6 hold for them.

A transaction marker has no sequence: an older epoch gets INVALID_PRODUCER_EPOCH, an older coordinator epoch
TRANSACTION_COORDINATOR_FENCED; a repeated marker, which ends nothing, is appended. With transaction.version 2 a
marker has a higher epoch than the records of its transaction, and the next transaction has the marker's epoch: a
marker of an open transaction's own epoch is a late one of the transaction before, and gets INVALID_PRODUCER_EPOCH.
Apache Kafka 4.2 refuses each repeated marker of such a transaction; a coordinator whose response was lost then writes
no more.

In rule 4 Apache Kafka always answers OUT_OF_ORDER_SEQUENCE_NUMBER. We differ for this case: a producer that waits for a
partitioned leader sends its next batches to the new leader, gets them acknowledged, then gives the old leader up and
sends the first batches again, which the new leader has by replication. With Kafka's answer, Java's client repeats such
a batch for ever and sends nothing more to the partition; librdkafka takes a new epoch and may write others twice.

Batches from replication or from the log itself were checked by a leader: they only update the state.
Source: ProducerStateManager and ProducerAppendInfo of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import MAX_SEQUENCE, NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader
from ottla_broker.records.control_records import ControlType, EndTransactionMarker
from ottla_broker.storage.files.checkpoints import CheckpointError
from ottla_broker.storage.files.transaction_index import AbortedTransaction
from ottla_broker.storage.log.open_transactions import OpenTransactions
from ottla_broker.storage.log.verification import TransactionalAppend, Verification, Verifications

_KEPT_BATCHES = 5
_SNAPSHOT_HEAD = Struct(">hI")
_SNAPSHOT_COUNT = Struct(">i")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1
_CRC_START = 6
NO_OFFSET = -1
CheckGap: TypeAlias = Callable[[int, int, int, int | None], None]
"""Gets the id and the epoch of a producer, the first sequence of its batch, and the sequence that the log expects, None
when it does not know the producer. Raises KafkaError."""
FIRST_VERSION_WITH_EPOCHS = 2
"""The level of transaction.version from which on every transaction ends with a raised epoch (KIP-890)."""


class ProducersDump(NamedTuple):
    """A `ProducerStates` as plain values, which can be sent between processes."""

    producers: list[tuple[int, int, int, int, int, list[tuple[int, int, int, int]]]]
    """Id, epoch, coordinator epoch, first offset of the open transaction, last timestamp, batches."""
    unreplicated: list[tuple[int, int]]
    """`OpenTransactions.unreplicated`."""
    known_from: int


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
    """One producer's state in this partition. `batches` has the latest five, the newest last.

    `known` counts the sequences up to the last one, without a gap, that are known to be in the log.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "known",
        "last_timestamp",
        "producer_id",
    )

    def __init__(self, producer_id: int, epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.current_txn_first_offset = NO_OFFSET
        self.last_timestamp = -1
        self.batches: list[ProducerBatch] = []
        self.known = 0

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def is_written(self, first_sequence: int, last_sequence: int) -> bool:
        """Whether these sequences are known to be in the log, though in none of the last five batches.

        >>> entry = ProducerEntry(7, 0)
        >>> for last in range(9, 80, 10):
        ...     entry.add(ProducerBatch(last, 1000 + last, 9, 0))
        >>> entry.batches[0].first_sequence, entry.known
        (30, 80)
        >>> entry.is_written(0, 9), entry.is_written(20, 29), entry.is_written(25, 34), entry.is_written(90, 99)
        (True, True, False, False)
        """
        if not self.batches:
            return False
        newest = self.batches[-1].last_sequence
        kept = ((newest - self.batches[0].first_sequence) & MAX_SEQUENCE) + 1
        from_first, from_last = (newest - first_sequence) & MAX_SEQUENCE, (newest - last_sequence) & MAX_SEQUENCE
        return kept <= from_last <= from_first < min(self.known, MAX_SEQUENCE // 2)

    def add(self, batch: ProducerBatch) -> None:
        """Adds the newest batch."""
        batches, size = self.batches, batch.offset_delta + 1
        follows = batches and (batch.last_sequence - batches[-1].last_sequence) & MAX_SEQUENCE == size
        self.known = self.known + size if follows else size
        if len(batches) == _KEPT_BATCHES:
            del batches[0]
        batches.append(batch)


class ProducerStates:
    """All producers of one log. The state includes the batches below `end_offset`."""

    __slots__ = ("_entries", "end_offset", "known_from", "transactions", "verifications")

    def __init__(self, end_offset: int = 0) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self.end_offset = end_offset
        self.known_from = end_offset
        """Transactions that ended below it are unknown: a snapshot does not have them."""
        self.transactions = OpenTransactions()
        self.verifications = Verifications()
        """Of the transactions that are about to begin here; neither written to a file nor replicated."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Iterable[ProducerEntry]:
        return self._entries.values()

    def expected(self, producer_id: int, producer_epoch: int) -> int | None:
        """The first sequence that the next batch of a producer's epoch must have; None when it is not known.

        >>> states = ProducerStates()
        >>> states.update(7, 3, 9, 1009, 9, 0)
        >>> states.expected(7, 3), states.expected(7, 4), states.expected(8, 3)
        (10, 0, None)
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return None
        return 0 if producer_epoch > entry.epoch else (entry.last_sequence + 1) & MAX_SEQUENCE

    def lost_from(self, offset: int) -> Iterator[tuple[int, int, int, bool]]:
        """(id, epoch, first sequence, whether it is all that is known) of each producer's batches at or above `offset`.

        >>> states = ProducerStates()
        >>> for last in range(9, 80, 10):
        ...     states.update(7, 0, last, 1000 + last, 9, 0)
        >>> list(states.lost_from(1000)), list(states.lost_from(1050)), list(states.lost_from(1080))
        ([(7, 0, 0, True)], [(7, 0, 50, False)], [])
        """
        for entry in self._entries.values():
            lost = next((batch for batch in entry.batches if batch.first_offset >= offset), None)
            if lost is None:
                continue
            is_all = lost is entry.batches[0]
            first = entry.last_sequence + 1 - entry.known if is_all else lost.first_sequence
            yield entry.producer_id, entry.epoch, first & MAX_SEQUENCE, is_all

    @property
    def oldest_transaction_timestamp(self) -> int:
        """Timestamp in ms of the last record of the producer whose transaction is the oldest open one, -1 without."""
        _, producer_id = next(iter(self.transactions.ongoing), (NO_OFFSET, NO_OFFSET))
        entry = self._entries.get(producer_id)
        return -1 if entry is None else entry.last_timestamp

    @property
    def has_ended_transactions(self) -> bool:
        """Whether any producer has had a transaction marker."""
        return any(entry.coordinator_epoch >= 0 for entry in self._entries.values())

    def check(
        self,
        producer_id: int,
        producer_epoch: int,
        first_sequence: int,
        last_sequence: int,
        is_transactional: bool = False,
        high_watermark: int = 0,
        check_gap: CheckGap | None = None,
    ) -> ProducerBatch | None:
        """Checks a producer's batch before the append: returns the batch that it repeats, None when it is new.

        `check_gap` has the last word on a batch that leaves a gap or whose producer is not known here (rule 5).

        KafkaError INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER,
        NOT_ENOUGH_REPLICAS_AFTER_APPEND or INVALID_TXN_STATE, or what `check_gap` raises.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            if check_gap is not None:
                check_gap(producer_id, producer_epoch, first_sequence, None)
            return None
        if producer_epoch == entry.epoch:
            for batch in entry.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                    return batch
            expected = (entry.last_sequence + 1) & MAX_SEQUENCE
            if first_sequence != expected:
                if entry.is_written(first_sequence, last_sequence):
                    is_committed = entry.batches[0].first_offset <= high_watermark
                    raise KafkaError(
                        ErrorCode.DUPLICATE_SEQUENCE_NUMBER
                        if is_committed
                        else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                        f"producer {producer_id} epoch {producer_epoch}: sequence {first_sequence} was written before",
                    )
                if check_gap is not None:
                    check_gap(producer_id, producer_epoch, first_sequence, expected)
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} epoch {producer_epoch}: sequence {first_sequence} does not follow "
                    f"{entry.last_sequence}",
                )
        elif producer_epoch < entry.epoch:
            raise _fenced(entry, producer_epoch)
        elif first_sequence != 0 and entry.epoch != NO_PRODUCER_EPOCH:
            if check_gap is not None:
                check_gap(producer_id, producer_epoch, first_sequence, 0)
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id}: the new epoch {producer_epoch} begins with sequence {first_sequence}, not 0",
            )
        if entry.current_txn_first_offset != NO_OFFSET and not is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has a transaction open since offset {entry.current_txn_first_offset} and sent "
                "a batch that is not part of it",
            )
        return None

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Checks a transactional batch of the group coordinator before the append. Raises INVALID_PRODUCER_EPOCH."""
        entry = self._entries.get(producer_id)
        if entry is not None and producer_epoch < entry.epoch:
            raise _fenced(entry, producer_epoch)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has begun a transaction here with this epoch or a newer one, and no marker has ended it.

        Apache Kafka 3.9 does not look at the epoch, 4.0 does: after an unverified batch of a newer epoch the log would
        refuse the marker of the transaction, which would hang.
        """
        entry = self._entries.get(producer_id)
        return entry is not None and entry.current_txn_first_offset != NO_OFFSET and entry.epoch >= producer_epoch

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, now_ms: int
    ) -> Verification | None:
        """The verification that a transactional append needs; None when its transaction has begun here."""
        if self.has_open_transaction(producer_id, producer_epoch):
            return None
        return self.verifications.begin(producer_id, producer_epoch, sequence, now_ms)

    def check_verified(
        self, producer_id: int, producer_epoch: int, sequence: int, transaction: TransactionalAppend
    ) -> None:
        """Checks that the batch's transaction has begun here, or is verified. Raises as `Verifications.check`."""
        if not self.has_open_transaction(producer_id, producer_epoch):
            self.verifications.check(producer_id, producer_epoch, sequence, transaction)

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int = 0
    ) -> None:
        """Checks a marker before the append. Raises INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        if producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id}: a marker of epoch {producer_epoch} is older than {entry.epoch}",
            )
        if (
            transaction_version >= FIRST_VERSION_WITH_EPOCHS
            and producer_epoch == entry.epoch
            and entry.current_txn_first_offset != NO_OFFSET
        ):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id}: a marker of epoch {producer_epoch} is of the transaction before the open one",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"producer {producer_id}: a marker of coordinator epoch {coordinator_epoch} is older than "
                f"{entry.coordinator_epoch}",
            )

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
        """Adds a data batch that has its offsets."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, producer_epoch)
        elif entry.epoch != producer_epoch:
            entry.epoch = producer_epoch
            entry.batches.clear()
        entry.add(ProducerBatch(last_sequence, last_offset, offset_delta, timestamp))
        entry.last_timestamp = timestamp
        if is_transactional and entry.current_txn_first_offset == NO_OFFSET:
            entry.current_txn_first_offset = last_offset - offset_delta
            self.transactions.begin(producer_id, last_offset - offset_delta)
            self.verifications.end(producer_id)

    def update_from_header(self, header: BatchHeader) -> None:
        """Adds a data batch that a leader has checked: replication, recovery, replay. Markers: `end_from_header`."""
        if header.producer_id >= 0 and not header.is_control:
            self.update(
                header.producer_id,
                header.producer_epoch,
                header.last_sequence,
                header.last_offset,
                header.last_offset_delta,
                header.max_timestamp,
                # The transaction of a batch that compaction emptied has ended, and its marker may be gone.
                header.is_transactional and header.record_count > 0,
            )

    def end_transaction(
        self, producer_id: int, producer_epoch: int, offset: int, timestamp: int, marker: EndTransactionMarker
    ) -> AbortedTransaction | None:
        """Adds a marker at `offset`: the producer's transaction ends, its epoch may have grown. Returns the entry for
        the transaction index, None when the marker aborts nothing."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, producer_epoch)
        elif entry.epoch != producer_epoch:
            entry.epoch = producer_epoch
            entry.batches.clear()
        self.verifications.end(producer_id)
        first_offset = entry.current_txn_first_offset
        entry.current_txn_first_offset = NO_OFFSET
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        if first_offset == NO_OFFSET:
            return None
        last_stable_offset = self.transactions.complete(first_offset, offset)
        if marker.type is ControlType.COMMIT:
            return None
        return AbortedTransaction(producer_id, first_offset, offset, last_stable_offset)

    def end_from_header(self, header: BatchHeader, marker: EndTransactionMarker) -> AbortedTransaction | None:
        """As `end_transaction`, for a marker that was read from a log or fetched."""
        return self.end_transaction(
            header.producer_id, header.producer_epoch, header.base_offset, header.max_timestamp, marker
        )

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets producers idle for longer than producer.id.expiration.ms and without an open transaction."""
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.current_txn_first_offset == NO_OFFSET and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        self.verifications.remove_expired(now_ms, expiration_ms)

    def dump(self) -> ProducersDump:
        """Everything, also the unreplicated transactions, which the snapshot file does not have."""
        producers = [
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
        return ProducersDump(producers, list(self.transactions.unreplicated), self.known_from)

    @classmethod
    def restore(cls, dump: ProducersDump, end_offset: int) -> ProducerStates:
        """The state that `dump` returned."""
        states = cls(end_offset)
        for producer_id, epoch, coordinator_epoch, txn, timestamp, batches in dump.producers:
            entry = states._entries[producer_id] = ProducerEntry(producer_id, epoch)
            entry.coordinator_epoch = coordinator_epoch
            entry.current_txn_first_offset = txn
            entry.last_timestamp = timestamp
            for batch in batches:
                entry.add(ProducerBatch(*batch))
        states._begin_known_transactions()
        for marker_offset, first_offset in dump.unreplicated:
            states.transactions.add_unreplicated(marker_offset, first_offset)
        states.known_from = dump.known_from
        return states

    def _begin_known_transactions(self) -> None:
        for first_offset, producer_id in sorted(
            (entry.current_txn_first_offset, entry.producer_id)
            for entry in self._entries.values()
            if entry.current_txn_first_offset != NO_OFFSET
        ):
            self.transactions.begin(producer_id, first_offset)

    def encode(self) -> bytes:
        """The snapshot file: int16 version 1, uint32 CRC-32C of what follows, int32 count, entries.

        One entry for each of the last five batches, the newest of a producer last. Apache Kafka writes only the newest
        and, when it reads several, uses the last, so both read each other's files. With the newest alone, a producer
        that had five requests in flight when its broker died would get OUT_OF_ORDER_SEQUENCE_NUMBER for the first of
        them, take a new epoch and write all of them twice.
        """
        rows = 0
        body = bytearray(_SNAPSHOT_COUNT.size)
        for entry in self._entries.values():
            batches = entry.batches or [ProducerBatch(NO_SEQUENCE, NO_OFFSET, 0, entry.last_timestamp)]
            for batch in batches:
                rows += 1
                body += _SNAPSHOT_ENTRY.pack(
                    entry.producer_id,
                    entry.epoch,
                    batch.last_sequence,
                    batch.last_offset,
                    batch.offset_delta,
                    # The timestamp of a marker, where that came last: expiration counts from it.
                    entry.last_timestamp if batch is batches[-1] else batch.timestamp,
                    entry.coordinator_epoch,
                    entry.current_txn_first_offset,
                )
        _SNAPSHOT_COUNT.pack_into(body, 0, rows)
        return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def decode(cls, name: str, data: bytes, end_offset: int) -> ProducerStates:
        """The state of a snapshot file. Raises CheckpointError when version, checksum or length do not fit."""
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
                if last_offset != NO_OFFSET:
                    entry.add(ProducerBatch(last_sequence, last_offset, delta, timestamp))
        except StructError as error:
            raise CheckpointError(f"{name}: {error}") from None
        states._begin_known_transactions()
        return states


def _fenced(entry: ProducerEntry, producer_epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {entry.producer_id}: epoch {producer_epoch} is older than {entry.epoch}",
    )
