"""Searches the records of a batch by timestamp: on the loop when that is little work, else in a worker process.

What a batch holds is up to whoever sent it: half a megabyte can be 120 000 records, and 13 KB can decompress to 400 MB.
The event loop serves everybody, so it decodes only what takes less than a millisecond. Few batches are in workers at a
time: each is in memory until its search is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ottla_broker.ports.workers import Workers
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import BatchHeader
from ottla_broker.records.errors import BatchTooLarge
from ottla_broker.records.timestamp_search import first_record_at
from ottla_broker.storage.log.record_jobs import (
    LITTLE_BYTES,
    LITTLE_DECOMPRESSED_BYTES,
    LITTLE_RECORDS,
    SEARCH_JOB,
    searched_of,
)

SEARCHES_AT_A_TIME = 2
"""In workers. Batches that are prepared for an append use the same processes."""


class RecordSearch:
    """The searches of one broker."""

    __slots__ = ("_slots", "_workers")

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._slots = asyncio.Semaphore(SEARCHES_AT_A_TIME)

    async def first_record_at(
        self,
        header: BatchHeader,
        read: Callable[[], Awaitable[bytes]],
        directory: str,
        timestamp: int,
        first_offset: int,
        upper_offset: int,
        max_bytes: int,
    ) -> tuple[int, int] | None:
        """(timestamp in ms, offset) of the first record at or after `timestamp` in a range of offsets.

        Args:
            header: of the batch.
            read: gives the whole batch.
            directory: path of its log directory.
            timestamp: in ms.
            first_offset: records below it do not count.
            upper_offset: nor do those from here on.
            max_bytes: ottla.batch.max.decompressed.bytes.

        Raises:
            KafkaError: as `records.timestamp_search`; UNKNOWN_SERVER_ERROR when the worker process died.
            OSError: of `read`.
        """
        if header.size <= LITTLE_BYTES and header.record_count <= LITTLE_RECORDS:
            try:
                limit = min(LITTLE_DECOMPRESSED_BYTES, max_bytes)
                return first_record_at(await read(), timestamp, first_offset, upper_offset, limit)
            except BatchTooLarge:
                pass  # small, but it grows
        async with self._slots:
            arguments = (bytes(await read()), timestamp, first_offset, upper_offset, max_bytes)
            try:
                return searched_of(await self._workers.run(SEARCH_JOB, directory, *arguments))
            except RuntimeError as error:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the records cannot be searched: {error}") from error
