"""What one task does with its rows: makes them batches, and sends them or spools them for the driver. No Spark."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterable, Iterator

import pyarrow as pa

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.init_producer_id import InitProducerIdRequest
from ottla_pipeline.compiled.library import functions
from ottla_pipeline.errors import RequestRefused
from ottla_pipeline.sink.batching import MIN_BYTES, Batching, Limits
from ottla_pipeline.sink.delivery import Delivery
from ottla_pipeline.sink.leaders import Leaders, leaders_of
from ottla_pipeline.sink.left_files import sweep
from ottla_pipeline.sink.plain_batch import WritingProducer
from ottla_pipeline.sink.row_columns import normalized
from ottla_pipeline.sink.spool import Spool, TaskOutput, WriteName, spool_directory
from ottla_pipeline.sink.write_options import WriteOptions
from ottla_pipeline.wire.cluster import Cluster, NotYet
from ottla_pipeline.wire.connection import error_of


def send_rows(batches: Iterable[pa.RecordBatch], options: WriteOptions) -> int:
    """At least once: sends the rows of a task and returns how many there were, all of them acknowledged.

    Raises:
        ColumnError, RecordError: a row that cannot be written.
        UnknownTopic, ClusterUnreachable, DeliveryFailed, RequestRefused: what a topic or a broker does not do.
    """
    sending = options.sending
    rows = 0
    with Cluster(options.connecting) as cluster:
        leaders = leaders_of(cluster, options)
        producer = WritingProducer(-1, -1)
        if sending.is_idempotent:
            producer = cluster.retried(lambda: _producer_id(cluster))
        with contextlib.closing(Delivery(sending, leaders, cluster.open, producer)) as delivery:
            batching = _batching(options, leaders)
            for collected in _collected(batches):
                for partition, batch in batching.batches(*normalized(collected, options.topic, rows, _now_ms()), rows):
                    delivery.add(partition, batch)
                rows += len(collected)
                batching.limits = batching.limits._replace(batch_bytes=delivery.batch_bytes)
            delivery.flush()
    return rows


def spool_rows(
    batches: Iterable[pa.RecordBatch], options: WriteOptions, driver_machine: str, write: WriteName
) -> TaskOutput:
    """Exactly once: makes batches of the rows of a task, for the driver to send. Writes nothing to a topic.

    Args:
        driver_machine: what `spool.machine` is on the driver.
        write: of which the task is a part.

    Raises ColumnError, RecordError, UnknownTopic, ClusterUnreachable, and SpoolError when there is no room.
    """
    directory = spool_directory(options.spool_directory, driver_machine)
    if directory is not None:
        sweep(directory, write)
    spool = Spool(directory, write)
    rows = 0
    try:
        with Cluster(options.connecting) as cluster:
            batching = _batching(options, leaders_of(cluster, options))
            for collected in _collected(batches):
                for partition, batch in batching.batches(*normalized(collected, options.topic, rows, _now_ms()), rows):
                    spool.add(partition, batch)
                rows += len(collected)
        return spool.finish()
    except BaseException:
        spool.discard()
        raise


def _batching(options: WriteOptions, leaders: Leaders) -> Batching:
    sending = options.sending
    limits = Limits(sending.batch_bytes, sending.request_bytes, sending.codec, sending.level)
    return Batching(limits, leaders.count, random.randrange(1 << 16), functions())


def _collected(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in batches of some megabytes: Spark's are smaller where rows are small."""
    parts: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not len(batch):
            continue
        parts.append(batch)
        size += batch.nbytes
        if size >= MIN_BYTES:
            yield _joined(parts)
            parts, size = [], 0
    if parts:
        yield _joined(parts)


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def _producer_id(cluster: Cluster) -> WritingProducer:
    """A producer id for one task (KIP-98), from any broker."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
    answer = cluster.ask_any(ApiKey.INIT_PRODUCER_ID, request)
    error = error_of(answer.error_code)
    if error is not ErrorCode.NONE:
        what = f"no producer id: {error.name}, {error.message}"
        raise NotYet(what) if error.retriable else RequestRefused(what)
    return WritingProducer(answer.producer_id, answer.producer_epoch)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
