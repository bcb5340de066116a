"""Exactly once: the driver sends what the tasks have spooled, in one transaction with the marker of the batch.

    begin      InitProducerId fences an older copy of the query, and aborts what a killed one has left open
    look       the marker says whether the batch is committed already: then nothing is sent
    send       the batches of all tasks, by this one producer: one sequence for each partition
    mark       the batch's number as an offset, in the same transaction
    end        EndTxn: rows and marker become visible together, or neither

A kill between any two steps leaves an open transaction, which the next attempt aborts, or a committed one, which the
next attempt finds by its marker. A task that fails, runs twice or is not the one that won has written nothing.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence

from ottla_pipeline.errors import PipelineError, UnknownReplay
from ottla_pipeline.sink import marker
from ottla_pipeline.sink.checkpoint import age_of_batch
from ottla_pipeline.sink.delivery import Delivery
from ottla_pipeline.sink.leaders import leaders_of
from ottla_pipeline.sink.retention import kept_ms
from ottla_pipeline.sink.spool import TaskOutput
from ottla_pipeline.sink.transaction import Coordinators, SinkTransaction
from ottla_pipeline.sink.write_options import WriteOptions
from ottla_pipeline.wire.cluster import Cluster

_log = logging.getLogger(__name__)

_LEAST_TIMEOUT_MS = 60_000
_MOST_TIMEOUT_MS = 900_000
_SLOWEST_BYTES_PER_MS = 5_000
"""transaction.timeout.ms without the option: that of Java, or what the batch takes at 5 MB/s, up to the brokers'
default for transaction.max.timeout.ms."""


def nothing(step: str) -> None:
    """The default of `after`: tests stop or kill something there."""


def commit_batch(
    outputs: Sequence[TaskOutput],
    query_id: str,
    batch_id: int,
    options: WriteOptions,
    after: Callable[[str], None] = nothing,
) -> marker.Action:
    """Writes a batch of a streaming query, unless it is written already; says which.

    Args:
        outputs: of all tasks.
        query_id: of the query, the same for each run from a checkpoint.
        batch_id: of the batch, from 0.
        options: of the write.
        after: called with the name of each step that is done.

    Raises:
        UnknownReplay: nobody can say whether the batch was written; see `marker`.
        ProducerFenced, TransactionFailed, DeliveryFailed, RecordError: it is not written, or another attempt can
            find out whether it is.
    """
    group = marker.group_of(query_id)
    transactional_id = options.transactional_id or group
    with Cluster(options.connecting) as cluster:
        coordinators = _coordinators(cluster, options)
        transaction = SinkTransaction(coordinators, transactional_id, _timeout_ms(outputs, options))
        producer = transaction.begin()
        after("begin")
        # Only now: until the id was taken, another copy of the query could have committed.
        committed, metadata = coordinators.committed_offset(group, marker.PARTITION)
        evidence = marker.NOTHING
        if not marker.is_enough(committed, batch_id):
            evidence = marker.Evidence(
                options.unmarked_from,
                age_of_batch(options.checkpoint, batch_id, time.time_ns() // 1_000_000) if options.checkpoint else None,
                producer.epoch == 0,
                *kept_ms(coordinators, group, transactional_id),
            )
        decision = marker.decide(committed, batch_id, evidence)
        after("look")
        records = sum(batch.records for output in outputs for batch in output.batches)
        if decision.action is marker.Action.REFUSE:
            raise UnknownReplay(f"query {query_id}: {decision.reason}")
        if decision.action is marker.Action.SKIP:
            if metadata != f"{records} records":
                _log.warning("query %s: %s, with %s; the replay has %d", query_id, decision.reason, metadata, records)
            return decision.action

        def mark() -> None:
            transaction.commit_offset(group, marker.PARTITION, batch_id + 1, f"{records} records")
            after("mark")

        delivery = Delivery(options.sending, leaders_of(cluster, options), cluster.open, producer, transactional_id)
        _send_and_end(transaction, delivery, outputs, mark, after)
    return decision.action


def commit_job(
    outputs: Sequence[TaskOutput],
    transactional_id: str,
    options: WriteOptions,
    after: Callable[[str], None] = nothing,
) -> None:
    """Writes all rows of a batch job in one transaction. Raises as `commit_batch`."""
    with Cluster(options.connecting) as cluster:
        transaction = SinkTransaction(_coordinators(cluster, options), transactional_id, _timeout_ms(outputs, options))
        producer = transaction.begin()
        after("begin")
        delivery = Delivery(options.sending, leaders_of(cluster, options), cluster.open, producer, transactional_id)
        _send_and_end(transaction, delivery, outputs, lambda: None, after)


def _send_and_end(
    transaction: SinkTransaction,
    delivery: Delivery,
    outputs: Sequence[TaskOutput],
    mark: Callable[[], None],
    after: Callable[[str], None],
) -> None:
    try:
        with contextlib.closing(delivery):
            transaction.enlist(sorted({partition for output in outputs for partition in output.partitions}))
            after("enlist")
            for output in outputs:
                for partition, batch in output.read():
                    delivery.add(partition, batch)
            delivery.flush()
        after("send")
        mark()
    except PipelineError:
        # What was written is not visible and never will be: the next attempt would abort it too, later.
        with contextlib.suppress(PipelineError):
            transaction.end(commit=False)
        raise
    transaction.end(commit=True)
    after("end")


def _coordinators(cluster: Cluster, options: WriteOptions) -> Coordinators:
    sending = options.sending
    return Coordinators(cluster, max_block_ms=sending.max_block_ms, backoff_ms=sending.retry_backoff_ms)


def _timeout_ms(outputs: Sequence[TaskOutput], options: WriteOptions) -> int:
    if options.transaction_timeout_ms is not None:
        return options.transaction_timeout_ms
    size = sum(batch.size for output in outputs for batch in output.batches)
    return min(max(_LEAST_TIMEOUT_MS, size // _SLOWEST_BYTES_PER_MS), _MOST_TIMEOUT_MS)
