"""What compaction needs to know of a log's producers and aborted transactions."""

from __future__ import annotations

import asyncio

from ottla_broker.storage.files.transaction_index import AbortedTransaction
from ottla_broker.storage.log.log import Log


def last_records(log: Log) -> dict[int, tuple[int, int]]:
    """For the id of every live producer: (last offset of its last data batch or -1, epoch)."""
    return {
        entry.producer_id: (entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
        for entry in log.state.producers.entries
    }


async def aborted_transactions(log: Log, end: int) -> list[AbortedTransaction]:
    """The aborted transactions with records below `end`. Raises KafkaError."""
    found = log.aborted.aborted_transactions(log.state.segments[0].base_offset, end)
    return await found if asyncio.isfuture(found) else found
