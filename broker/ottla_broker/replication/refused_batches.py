"""Batches that this broker refused with a retriable error and that their producers send again. Pure.

An idempotent producer has up to five requests in flight. When a batch of it is refused with a retriable error, those
behind it must wait until it comes again:

- Of a producer that the log does not know, the next batch would be accepted, for it may begin with any sequence. A
  later success says to librdkafka that the refused batch was written too ("implicitly acked"): it would be lost.
- Of a producer that the log knows, the next batch leaves a gap. Apache Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER, upon
  which librdkafka takes a new epoch for every partition and writes again what other partitions have and it has not
  heard of: duplicates.

So the broker remembers the lowest sequence that it refused, and refuses what comes behind it with the same error:

    0..9     NOT_ENOUGH_REPLICAS              remembered: 0
    10..19   NOT_ENOUGH_REPLICAS
    0..9     appended                         remembered: nothing
    10..19   appended

A producer that has not sent the batch again within `PATIENCE_MS` has given it up: what comes behind gets
OUT_OF_ORDER_SEQUENCE_NUMBER, from a log that does not know the producer until `LIFETIME_MS` have passed.

At most `LIMIT` pairs of a partition and a producer are remembered for each of the two cases, the oldest go first. What
another broker refused is not known here. A partition is remembered by its topic's id, so that a topic that is created
again starts without refusals; by its name where this broker does not know the id yet.

Source: ours. Apache Kafka has a rule for transactions alone (KIP-890, `storage.log.verification`), and only for batches
that are refused after their verification has begun.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import HEADER_BYTES, MAGIC, read_header
from ottla_broker.records.formats import MAGIC_OFFSET
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log.lowest_sequence import LowestSequence, is_before
from ottla_broker.storage.log.producers import ProducerStates

LIMIT = 10_000
LIFETIME_MS = 300_000
"""The longest default time that a client tries for: message.timeout.ms of librdkafka. Java's delivery.timeout.ms is
120 000."""
PATIENCE_MS = 10_000
"""Clients send a refused batch again within a second, and within ten when they look for the leader meanwhile."""

SENT_AGAIN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CORRUPT_MESSAGE,
    }
)
"""The refusals of a batch after which clients send it again. After any other its producer takes a new epoch, or goes on
with the next sequence: that must not wait for a batch that never comes."""


class _ProducerInPartition(NamedTuple):
    topic: bytes | str
    """The topic's id; its name where the id is not known."""
    partition: int
    producer_id: int


class _RefusedBatch:
    """The lowest of a producer in a partition."""

    __slots__ = ("error", "lowest", "since_ms")

    def __init__(self, lowest: LowestSequence) -> None:
        self.lowest = lowest
        self.error = ErrorCode.NONE
        self.since_ms = 0

    def is_appended(self, producer_epoch: int, expected: int) -> bool:
        """Whether a log that expects this sequence of this epoch has the batch."""
        return producer_epoch == self.lowest.producer_epoch and is_before(self.lowest.sequence, expected)


class _Memory:
    """Remembers at most `limit` refused batches, each for `lifetime_ms` after its last refusal."""

    def __init__(self, limit: int, lifetime_ms: int) -> None:
        self._limit = limit
        self._lifetime_ms = lifetime_ms
        self._refused: OrderedDict[_ProducerInPartition, _RefusedBatch] = OrderedDict()
        """The one that was refused last is the last."""

    def __len__(self) -> int:
        return len(self._refused)

    def add(
        self,
        key: _ProducerInPartition,
        producer_epoch: int,
        sequence: int,
        expected: int | None,
        error: ErrorCode,
        now_ms: int,
    ) -> None:
        self.remove_expired(now_ms)
        refused = self._refused
        found = refused.get(key)
        if found is not None and expected is not None and found.is_appended(producer_epoch, expected):
            del refused[key]
            found = None
        if found is None:
            if len(refused) >= self._limit:
                refused.popitem(last=False)
            found = refused[key] = _RefusedBatch(LowestSequence(producer_epoch, sequence))
        else:
            found.lowest.add(producer_epoch, sequence)
            if (producer_epoch, sequence) != (found.lowest.producer_epoch, found.lowest.sequence):
                return  # a batch behind the lowest one, or an old one: the lowest one has not come again
            refused.move_to_end(key)
        found.error = error
        found.since_ms = now_ms

    def find(self, key: _ProducerInPartition, producer_epoch: int, now_ms: int) -> _RefusedBatch | None:
        """The lowest batch of this epoch or an older one."""
        if not self._refused:
            return None
        self.remove_expired(now_ms)
        found = self._refused.get(key)
        return None if found is None or producer_epoch < found.lowest.producer_epoch else found

    def remove(self, key: _ProducerInPartition) -> None:
        self._refused.pop(key, None)

    def remove_expired(self, now_ms: int) -> None:
        refused = self._refused
        oldest_ms = now_ms - self._lifetime_ms
        while refused and next(iter(refused.values())).since_ms <= oldest_ms:
            refused.popitem(last=False)


class RefusedBatches:
    """The refused batches of one broker."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        limit: int = LIMIT,
        lifetime_ms: int = LIFETIME_MS,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        """`now_ms`: Clock.monotonic in milliseconds. `limit`: of pairs of a partition and a producer."""
        self._now_ms = now_ms
        self._patience_ms = patience_ms
        self._of_unknown = _Memory(limit, lifetime_ms)
        """Of producers that the log did not know then."""
        self._of_known = _Memory(limit, patience_ms)

    def __len__(self) -> int:
        now_ms = self._now_ms()
        for memory in (self._of_unknown, self._of_known):
            memory.remove_expired(now_ms)
        return len(self._of_unknown) + len(self._of_known)

    def on_refusal(
        self,
        error: ErrorCode,
        partition: TopicPartition,
        topic_id: bytes,
        records: memoryview,
        producers: ProducerStates | None,
    ) -> None:
        """A batch of a produce request gets `error`.

        Args:
            topic_id: zeros where it is not known.
            records: as received, so perhaps no batch.
            producers: of the log, None where this broker has none.
        """
        if error not in SENT_AGAIN or len(records) < HEADER_BYTES or records[MAGIC_OFFSET] != MAGIC:
            return
        header = read_header(records)
        producer_id, producer_epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        if producer_id < 0 or sequence < 0:
            return
        expected = None if producers is None else producers.expected(producer_id, producer_epoch)
        self.add(partition, topic_id, producer_id, producer_epoch, sequence, error, expected)

    def add(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        error: ErrorCode,
        expected: int | None = None,
    ) -> None:
        """Remembers a batch that its producer sends again, by its first sequence.

        Args:
            expected: the sequence that the log waits for, None when it does not know the producer.
        """
        key = _ProducerInPartition(_topic(partition, topic_id), partition.partition, producer_id)
        memory = self._of_unknown if expected is None else self._of_known
        memory.add(key, producer_epoch, sequence, expected, error, self._now_ms())

    def check(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        expected: int | None,
    ) -> None:
        """Checks a batch, by its first sequence, that leaves a gap or whose producer the log does not know.

        Args:
            expected: the sequence that the log waits for, None when it does not know the producer. When such a
                producer's batch may be appended, what it makes up for is forgotten: the log knows it from now on.

        Raises KafkaError: that of the refused batch, or OUT_OF_ORDER_SEQUENCE_NUMBER of a batch of an unknown producer
        when the refused one was given up.
        """
        now_ms = self._now_ms()
        passed = []
        for topic in dict.fromkeys((_topic(partition, topic_id), partition.topic)):
            key = _ProducerInPartition(topic, partition.partition, producer_id)
            for memory in (self._of_unknown, self._of_known):
                found = memory.find(key, producer_epoch, now_ms)
                if found is None:
                    continue
                lowest = found.lowest.sequence
                if producer_epoch != found.lowest.producer_epoch or not is_before(lowest, sequence):
                    passed.append((memory, key))
                    continue
                if expected is not None and found.is_appended(producer_epoch, expected):
                    continue
                is_given_up = found.since_ms + self._patience_ms <= now_ms
                if is_given_up and expected is not None:
                    continue
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if is_given_up else found.error,
                    f"producer {producer_id} epoch {producer_epoch}: sequence {sequence} comes before {lowest}, which "
                    f"{partition} has refused, is appended",
                )
        if expected is None:
            for memory, key in passed:
                memory.remove(key)


def _topic(partition: TopicPartition, topic_id: bytes) -> bytes | str:
    return partition.topic if topic_id == ZERO_UUID else topic_id
