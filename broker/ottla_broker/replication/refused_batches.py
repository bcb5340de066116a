"""First batches that this broker refused and that their producers send again. Pure.

An idempotent producer has up to five requests in flight. When its first batch to a partition is refused with a
retriable error and the second is accepted, the second says to librdkafka that the first was written too ("implicitly
acked"), for a log takes sequences in their order. That holds only once the log knows the producer: an unknown one may
begin with any sequence. So the broker remembers the lowest sequence that it refused, and appends none behind it.

    0..9     NOT_ENOUGH_REPLICAS              remembered: 0
    10..19   OUT_OF_ORDER_SEQUENCE_NUMBER     as if the log knew the producer
    0..9     appended                         remembered: nothing; the log knows the producer
    10..19   appended

At most `LIMIT` pairs of a partition and a producer are remembered, the oldest go first, each for `LIFETIME_MS` after
its last refusal. What another broker refused is not known here. A partition is remembered by its topic's id, so that a
topic that is created again starts without refusals; by its name where this broker does not know the id yet.

Source: ours. Apache Kafka has the rule for transactions alone (KIP-890, `storage.log.verification`), and only for
batches that are refused after their verification has begun.
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
    __slots__ = ("lowest", "since_ms")

    def __init__(self, lowest: LowestSequence) -> None:
        self.lowest = lowest
        self.since_ms = 0


class RefusedBatches:
    """Those of one broker."""

    def __init__(self, now_ms: Callable[[], int], limit: int = LIMIT, lifetime_ms: int = LIFETIME_MS) -> None:
        """`now_ms`: Clock.monotonic in milliseconds. `limit`: of pairs of a partition and a producer."""
        self._now_ms = now_ms
        self._limit = limit
        self._lifetime_ms = lifetime_ms
        self._refused: OrderedDict[_ProducerInPartition, _RefusedBatch] = OrderedDict()
        """The one that was refused last is the last."""

    def __len__(self) -> int:
        self._remove_expired()
        return len(self._refused)

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
            producers: of the log, None where this broker has none. A producer that it knows is not remembered.
        """
        if error not in SENT_AGAIN or len(records) < HEADER_BYTES or records[MAGIC_OFFSET] != MAGIC:
            return
        header = read_header(records)
        if header.producer_id < 0 or header.base_sequence < 0:
            return
        if producers is None or not producers.knows(header.producer_id):
            self.add(partition, topic_id, header.producer_id, header.producer_epoch, header.base_sequence)

    def add(
        self, partition: TopicPartition, topic_id: bytes, producer_id: int, producer_epoch: int, sequence: int
    ) -> None:
        """Remembers a batch that its producer sends again, by its first sequence."""
        self._remove_expired()
        refused = self._refused
        key = _ProducerInPartition(_topic(partition, topic_id), partition.partition, producer_id)
        found = refused.get(key)
        if found is None:
            if len(refused) >= self._limit:
                refused.popitem(last=False)
            found = refused[key] = _RefusedBatch(LowestSequence(producer_epoch, sequence))
        else:
            found.lowest.add(producer_epoch, sequence)
            refused.move_to_end(key)
        found.since_ms = self._now_ms()

    def check(
        self, partition: TopicPartition, topic_id: bytes, producer_id: int, producer_epoch: int, sequence: int
    ) -> None:
        """Checks a batch, by its first sequence, of a producer that the log does not know. When it may be appended,
        what it makes up for is forgotten: the log knows the producer from now on.

        Raises KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        if not self._refused:
            return
        self._remove_expired()
        passed = []
        for topic in dict.fromkeys((_topic(partition, topic_id), partition.topic)):
            key = _ProducerInPartition(topic, partition.partition, producer_id)
            found = self._refused.get(key)
            if found is None or producer_epoch < found.lowest.producer_epoch:
                continue
            lowest = found.lowest.sequence
            if producer_epoch == found.lowest.producer_epoch and is_before(lowest, sequence):
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} epoch {producer_epoch}: sequence {sequence} comes before {lowest}, which "
                    f"{partition} has refused, is appended",
                )
            passed.append(key)
        for key in passed:
            del self._refused[key]

    def _remove_expired(self) -> None:
        refused = self._refused
        if not refused:
            return
        oldest_ms = self._now_ms() - self._lifetime_ms
        while refused and next(iter(refused.values())).since_ms <= oldest_ms:
            refused.popitem(last=False)


def _topic(partition: TopicPartition, topic_id: bytes) -> bytes | str:
    return partition.topic if topic_id == ZERO_UUID else topic_id
