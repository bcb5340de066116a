"""Converts stored records to message formats 0 and 1, for consumers of before 0.11.

Converting multiplies memory (KIP-283), so it is done late, when the result is made, and not of all that was requested:
one result holds some 4 MiB of converted records, shared by its partitions, and each gets one batch at least as long as
the request's own limits allow it; the consumer asks again for the rest. More than a little of it goes through a worker.

Source: Apache Kafka's LazyDownConversionRecords. The conversion of one batch is `records.conversion`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.fetch import PartitionData
from ottla_broker.records.conversion import Converted, down_convert
from ottla_broker.records.errors import BatchTooLarge
from ottla_broker.records.formats import batches
from ottla_broker.replication.fetch import checks
from ottla_broker.replication.fetch.fetch_values import FetchEnvironment, FetchParams
from ottla_broker.replication.fetch.partition_fetch import PartitionFetch
from ottla_broker.replication.fetch.partition_reads import fail_result, new_result
from ottla_broker.replication.partition import Partition
from ottla_broker.storage.log.record_jobs import (
    CONVERT_JOB,
    LITTLE_BYTES,
    LITTLE_DECOMPRESSED_BYTES,
    LITTLE_RECORDS,
    converted_of,
)

RESULT_BYTES = 4 * 1024 * 1024
PARTITION_BYTES = 64 * 1024
"""What a partition gets of a result at least, however many there are."""


async def convert_partitions(
    items: Sequence[PartitionFetch], params: FetchParams, environment: FetchEnvironment
) -> list[PartitionData]:
    """The results of the items with converted records, in their order.

    The offset of an item without records moves behind what it has no message for (markers of transactions).
    """
    conversions = _Conversions(params, environment, len(items))
    results: list[PartitionData] = []
    for item in items:
        data = new_result(item, params)
        results.append(data)
        partition = item.partition
        if data.error_code or partition is None:
            continue
        requested = item.requested
        try:
            found = await conversions.read(
                partition,
                requested.fetch_offset,
                requested.partition_max_bytes,
                checks.upper_offset(partition, params),
            )
        except KafkaError as error:
            fail_result(data, error)
            continue
        data.records = found.data
        if found.data:
            partition.bytes_out(len(found.data))
        else:
            requested.fetch_offset = found.next_offset
    return results


class _Conversions:
    """The partitions of one result, read in their order."""

    __slots__ = ("_cuts_first_batch", "_environment", "_has_data", "_left_bytes", "_magic", "_share_bytes")

    def __init__(self, params: FetchParams, environment: FetchEnvironment, partitions: int) -> None:
        assert params.capabilities.magic is not None
        self._environment = environment
        self._magic = params.capabilities.magic
        self._cuts_first_batch = params.capabilities.cuts_first_batch
        self._left_bytes = params.max_bytes
        self._share_bytes = max(PARTITION_BYTES, RESULT_BYTES // max(partitions, 1))
        self._has_data = False

    async def read(self, partition: Partition, offset: int, partition_max_bytes: int, upper_offset: int) -> Converted:
        """A message set from `offset` on, b"" when there is nothing to show or no room, and the offset to go on from.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR; UNSUPPORTED_VERSION where
                message.downconversion.enable is off, UNSUPPORTED_COMPRESSION_TYPE for zstd; CORRUPT_MESSAGE.
        """
        limit = min(partition_max_bytes, self._left_bytes)
        # A message that is larger than the partition's limit is cut: so old clients learn that theirs is too small.
        is_cut = self._cuts_first_batch
        at_least_one = is_cut or not self._has_data
        if limit <= 0 and not at_least_one:
            return Converted(b"", offset)
        wanted = min(limit, self._share_bytes)
        while offset < upper_offset:
            stored = await self._stored(partition, offset, wanted, upper_offset, at_least_one)
            if not stored:
                break
            converted = await self._converted(partition, stored, offset, wanted)
            if converted.data:
                self._has_data = True
                self._left_bytes -= len(converted.data)
                return Converted(converted.data[: max(partition_max_bytes, 0)], offset) if is_cut else converted
            if converted.next_offset <= offset:
                break  # not one whole batch fits
            offset = converted.next_offset  # markers of transactions alone: what follows them counts
        return Converted(b"", offset)

    async def _stored(
        self, partition: Partition, offset: int, max_bytes: int, upper_offset: int, at_least_one: bool
    ) -> bytes:
        try:
            found = partition.log.read(offset, max_bytes, upper_offset, at_least_one_batch=at_least_one)
            read = found if isinstance(found, tuple) else await found
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        parts = []
        for chunk in read.chunks:
            try:
                parts.append(chunk.read())
            finally:
                chunk.release()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _converted(self, partition: Partition, stored: bytes, offset: int, max_bytes: int) -> Converted:
        log = partition.log
        headers = [header for _, header in batches(stored)]
        needs_work = any(header.magic > self._magic for header in headers)
        if needs_work and not log.config.message_downconversion_enable:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{partition.topic_partition} is not converted for fetches before version 4: "
                "message.downconversion.enable is false",
            )
        if needs_work:
            self._environment.metrics.counter(
                "kafka_server_brokertopicmetrics_fetchmessageconversions",
                "Fetches of older formats whose records were converted.",
                topic=partition.topic,
            ).inc()
        most = log.config.max_decompressed_bytes
        is_little = len(stored) <= LITTLE_BYTES and sum(header.record_count for header in headers) <= LITTLE_RECORDS
        if is_little or not needs_work:
            try:
                return down_convert(stored, self._magic, offset, max_bytes, min(LITTLE_DECOMPRESSED_BYTES, most))
            except BatchTooLarge:
                pass  # it grows beyond what may hold up the loop
        arguments: tuple[Any, ...] = (stored, self._magic, offset, max_bytes, most)
        try:
            return converted_of(await self._environment.workers.run(CONVERT_JOB, log.disk.path, *arguments))
        except RuntimeError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the records cannot be converted: {error}") from error
