"""Batches that are decoded before they are appended: prepared on the loop or in a worker, appended in order.

Most batches bypass this module. One of an old message format, or of a topic whose configuration needs more than the
batch header, is prepared on the loop when that is little work, else by a job of the Workers port. While a batch of a
partition is in a worker, and until it has been appended, every later batch of that partition, from any connection,
queues behind it: the order of a producer's batches is the order of their offsets. Batches of one partition may be
prepared in several workers at a time.

    A (gzip -> zstd)   to a worker                       queue: A
    B (ordinary)       nothing to prepare, but A first   queue: A B
    C (gzip -> zstd)   to another worker                 queue: A B C
    C is ready         waits                             queue: A B C
    A is ready         appended, then B, then C          queue: empty; the next batch goes straight to the log
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from ottla_broker.metrics import Metrics
from ottla_broker.ports.clock import Clock
from ottla_broker.ports.workers import Workers
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import CODEC_MASK, MAGIC, read_header
from ottla_broker.records.errors import BatchTooLarge
from ottla_broker.records.formats import MAGIC_OFFSET
from ottla_broker.records.preparation import RecordRules, prepare
from ottla_broker.replication.partition import Partition
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.record_jobs import (
    LITTLE_BYTES,
    LITTLE_DECOMPRESSED_BYTES,
    LITTLE_RECORDS,
    PREPARE_JOB,
    prepared_of,
)

_ATTEMPTS = 2
_CODEC_OFFSET = 22

Outcome: TypeAlias = "memoryview | KafkaError"
OnReady: TypeAlias = Callable[[Outcome], None]
"""Gets the batch that can be appended now, or why there is none."""


class _Queued:
    __slots__ = ("attempts", "job", "on_ready", "outcome", "records")

    def __init__(self, records: memoryview, on_ready: OnReady) -> None:
        self.records = records
        self.on_ready = on_ready
        self.outcome: Outcome | None = None
        self.job: asyncio.Future[Any] | None = None
        self.attempts = 0


class AppendQueues:
    """The queues of one broker, one per log that has something in a worker."""

    def __init__(self, workers: Workers, clock: Clock, metrics: Metrics) -> None:
        self._workers = workers
        self._clock = clock
        self._metrics = metrics
        self._queues: dict[Log, deque[_Queued]] = {}

    def __len__(self) -> int:
        """Batches that wait."""
        return sum(len(queue) for queue in self._queues.values())

    def add(self, partition: Partition, records: memoryview, on_ready: OnReady) -> None:
        """Takes a batch for which `partition.append` raised PreparationNeeded.

        `on_ready` is called once, possibly within this call, in the order of the calls of `add` for a log; it appends
        with `is_prepared`. `records` must not change until then.
        """
        log = partition.log
        rules = log.state.config.rules._replace(topic=partition.topic)
        queue = self._queues.get(log)
        if queue is None:
            outcome = self._now(records, rules)
            if outcome is not None:
                self._count(records, partition.topic)
                on_ready(outcome)
                return
            queue = self._queues[log] = deque()
            log.appender.set_preparing(True)
        queued = _Queued(records, on_ready)
        queue.append(queued)
        self._count(records, partition.topic)
        has_other_codec = rules.codec is not None and records[_CODEC_OFFSET] & CODEC_MASK != rules.codec
        if _is_old(records) or rules.has_record_rules or has_other_codec:
            self._start(log, queued, rules)
        else:
            queued.outcome = records

    def _now(self, records: memoryview, rules: RecordRules) -> Outcome | None:
        """On the loop, when it is little; None when it is not."""
        if len(records) > LITTLE_BYTES:
            return None
        if not _is_old(records) and read_header(records).record_count > LITTLE_RECORDS:
            return None
        little = rules._replace(max_decompressed_bytes=min(LITTLE_DECOMPRESSED_BYTES, rules.max_decompressed_bytes))
        try:
            return memoryview(prepare(records, little, self._clock.now_ms()))
        except BatchTooLarge:
            return None  # small, but it grows
        except KafkaError as error:
            return error

    def _start(self, log: Log, queued: _Queued, rules: RecordRules) -> None:
        queued.attempts += 1
        arguments = (bytes(queued.records), tuple(rules), self._clock.now_ms())
        queued.job = self._workers.run(PREPARE_JOB, log.state.disk.path, *arguments)
        queued.job.add_done_callback(partial(self._on_done, log, queued, rules))

    def _on_done(self, log: Log, queued: _Queued, rules: RecordRules, job: asyncio.Future[Any]) -> None:
        queued.job = None
        if job.cancelled():
            queued.outcome = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")
        elif (error := job.exception()) is not None:
            if queued.attempts < _ATTEMPTS:
                self._start(log, queued, rules)
                return
            queued.outcome = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the records cannot be prepared: {error}")
        else:
            prepared = prepared_of(job.result())
            queued.outcome = prepared if isinstance(prepared, KafkaError) else memoryview(bytearray(prepared))
        self._release(log)

    def _release(self, log: Log) -> None:
        """Hands out what is ready at the queue's head."""
        queue = self._queues[log]
        while queue and (outcome := queue[0].outcome) is not None:
            queue.popleft().on_ready(outcome)
        if not queue:
            del self._queues[log]
            log.appender.set_preparing(False)

    def _count(self, records: memoryview, topic: str) -> None:
        if _is_old(records):
            self._metrics.counter(
                "kafka_server_brokertopicmetrics_producemessageconversions",
                "Message sets of older formats that producers sent and that were converted.",
                topic=topic,
            ).inc()


def _is_old(records: memoryview) -> bool:
    """Message format 0 or 1."""
    return records[MAGIC_OFFSET] < MAGIC
