"""Converts stored records to message formats 0 and 1, for consumers of before 0.11.

Converting multiplies memory (KIP-283), so it is done piece by piece, as the socket takes them. When the result is made,
only the first piece of each partition is converted, because its error belongs there; of all pieces one result keeps
`PIECE_BYTES`, others are made once more when they are sent. What follows is a `ConvertedRecords`, whose length is that
of the stored records. Converted ones are longer or shorter: they are cut there, or filled up with the beginning of a
message that is longer than any, which every consumer takes for one that is cut.

Few pieces are made at a time, on the whole broker. More than a little of them goes through a worker.

Source: Apache Kafka's LazyDownConversionRecords and LazyDownConversionRecordsSend. The conversion of one batch is
`records.conversion`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.fetch import PartitionData
from ottla_broker.protocol.primitives import records_length
from ottla_broker.records.conversion import Converted, down_convert
from ottla_broker.records.errors import BatchTooLarge
from ottla_broker.records.formats import batches
from ottla_broker.replication.fetch import checks
from ottla_broker.replication.fetch.fetch_values import READ_COST, FetchEnvironment, FetchParams, Turn
from ottla_broker.replication.fetch.partition_fetch import PartitionFetch
from ottla_broker.replication.fetch.partition_reads import fail_result, new_result
from ottla_broker.replication.partition import Partition
from ottla_broker.storage.log.reader import LogRead
from ottla_broker.storage.log.record_jobs import (
    CONVERT_JOB,
    LITTLE_BYTES,
    LITTLE_DECOMPRESSED_BYTES,
    LITTLE_RECORDS,
    converted_of,
)

PIECE_BYTES = 64 * 1024
"""What is converted at a time, or one batch where that is larger."""
_FILLER = struct.Struct(">qi").pack(-1, 2**31 - 1)
"""Offset and size of a message that does not fit."""


async def convert_partitions(
    items: Sequence[PartitionFetch], params: FetchParams, environment: FetchEnvironment, turn: Turn | None = None
) -> list[PartitionData]:
    """The results of the items with converted records, in their order.

    The offset of an item without records moves behind what it has no message for (markers of transactions).

    Args:
        turn: of a fetch of many partitions.
    """
    conversions = _Conversions(params, environment)
    results: list[PartitionData] = []
    for item in items:
        if turn is not None:
            await turn(READ_COST)
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
        if isinstance(found, int):
            requested.fetch_offset = found
        else:
            data.records = found if isinstance(found, bytes) else (found,)
            partition.bytes_out(records_length(data.records))
    return results


class ConvertedRecords:
    """The converted records of a partition from an offset on; a chunk of a response that is made when it is sent.

    A `StreamedChunk` of `server.handler_api`.
    """

    __slots__ = ("_conversion", "_left_bytes", "_offset", "_partition", "_upper_offset", "length")

    def __init__(
        self,
        conversion: _Conversion,
        partition: Partition,
        offset: int,
        upper_offset: int,
        length: int,
    ) -> None:
        self.length = length
        self._conversion = conversion
        self._partition = partition
        self._offset = offset
        self._upper_offset = upper_offset
        self._left_bytes = length

    def release(self) -> None:
        """It is not sent. Nothing is held."""

    async def next_piece_bytes(self) -> int:
        """That of the stored batches, of which the piece is made."""
        try:
            size = await self._conversion.stored_size(
                self._partition, self._offset, PIECE_BYTES, self._upper_offset, at_least_one=True
            )
        except KafkaError:
            size = 0
        return max(size, PIECE_BYTES)

    async def next_piece(self) -> bytes:
        """The next piece; b"" when there is no more."""
        data = b""
        while not data and self._left_bytes and self._offset < self._upper_offset:
            try:
                found = await self._conversion.convert(
                    self._partition, self._offset, PIECE_BYTES, self._upper_offset, at_least_one=True
                )
            except KafkaError:
                break  # the consumer asks from here on again, and is told then
            if found is None or found.next_offset <= self._offset:
                break
            data, self._offset = found
        if not data and self._left_bytes:
            data = _FILLER + bytes(max(min(self._left_bytes, PIECE_BYTES) - len(_FILLER), 0))
            self._offset = self._upper_offset
        data = data[: self._left_bytes]
        self._left_bytes -= len(data)
        return data


class _Conversions:
    """The partitions of one result, read in their order."""

    __slots__ = ("_conversion", "_cuts_first_batch", "_has_data", "_left_bytes", "_left_to_keep")

    def __init__(self, params: FetchParams, environment: FetchEnvironment) -> None:
        assert params.capabilities.magic is not None
        self._conversion = _Conversion(params.capabilities.magic, environment)
        self._cuts_first_batch = params.capabilities.cuts_first_batch
        self._left_bytes = params.max_bytes
        self._left_to_keep = PIECE_BYTES
        self._has_data = False

    async def read(
        self, partition: Partition, offset: int, partition_max_bytes: int, upper_offset: int
    ) -> bytes | ConvertedRecords | int:
        """A message set from `offset` on; where there is nothing to show or no room, the offset to go on from.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR; UNSUPPORTED_VERSION where
                message.downconversion.enable is off, UNSUPPORTED_COMPRESSION_TYPE for zstd; CORRUPT_MESSAGE.
        """
        limit = min(partition_max_bytes, self._left_bytes)
        # A message that is larger than the partition's limit is cut: so old clients learn that theirs is too small.
        is_cut = self._cuts_first_batch
        at_least_one = is_cut or not self._has_data
        if limit <= 0 and not at_least_one:
            return offset
        conversion = self._conversion
        while offset < upper_offset:
            first = await conversion.convert(
                partition, offset, min(limit, PIECE_BYTES), upper_offset, at_least_one=at_least_one, is_first=True
            )
            if first is None:
                break
            if first.data:
                size = len(first.data)
                follows = await conversion.stored_size(partition, first.next_offset, limit - size, upper_offset)
                length = min(size + follows, max(partition_max_bytes, 0)) if is_cut else size + follows
                self._has_data = True
                self._left_bytes -= length
                if not follows and size <= self._left_to_keep:
                    self._left_to_keep -= size
                    return first.data[:length]
                return ConvertedRecords(conversion, partition, offset, upper_offset, length)
            if first.next_offset <= offset:
                break  # not one whole batch fits
            offset = first.next_offset  # markers of transactions alone: what follows them counts
        return offset


class _Conversion:
    """Reads and converts pieces to one message format."""

    __slots__ = ("_environment", "_magic")

    def __init__(self, magic: int, environment: FetchEnvironment) -> None:
        self._magic = magic
        self._environment = environment

    async def convert(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        upper_offset: int,
        *,
        at_least_one: bool,
        is_first: bool = False,
    ) -> Converted | None:
        """The piece from `offset` on, None when nothing is stored there. Raises KafkaError."""
        async with self._environment.conversions:
            stored = await self._stored(partition, offset, max_bytes, upper_offset, at_least_one)
            if not stored:
                return None
            return await self._converted(partition, stored, offset, max_bytes, is_first)

    async def stored_size(
        self, partition: Partition, offset: int, max_bytes: int, upper_offset: int, *, at_least_one: bool = False
    ) -> int:
        """The bytes of the batches from `offset` on. Raises KafkaError."""
        if max_bytes <= 0 or offset >= upper_offset:
            return 0
        read = await _read(partition, offset, max_bytes, upper_offset, at_least_one=at_least_one)
        for chunk in read.chunks:
            chunk.release()
        return read.size

    async def _stored(
        self, partition: Partition, offset: int, max_bytes: int, upper_offset: int, at_least_one: bool
    ) -> bytes:
        read = await _read(partition, offset, max_bytes, upper_offset, at_least_one=at_least_one)
        parts = []
        for chunk in read.chunks:
            try:
                parts.append(chunk.read())
            except OSError as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            finally:
                chunk.release()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _converted(
        self, partition: Partition, stored: bytes, offset: int, max_bytes: int, is_first: bool
    ) -> Converted:
        log = partition.log
        headers = [header for _, header in batches(stored)]
        needs_work = any(header.magic > self._magic for header in headers)
        if needs_work and not log.state.config.message_downconversion_enable:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{partition.topic_partition} is not converted for fetches before version 4: "
                "message.downconversion.enable is false",
            )
        if needs_work and is_first:
            self._environment.metrics.counter(
                "kafka_server_brokertopicmetrics_fetchmessageconversions",
                "Fetches of older formats whose records were converted.",
                topic=partition.topic,
            ).inc()
        most = log.state.config.max_decompressed_bytes
        is_little = len(stored) <= LITTLE_BYTES and sum(header.record_count for header in headers) <= LITTLE_RECORDS
        if is_little or not needs_work:
            try:
                return down_convert(stored, self._magic, offset, max_bytes, min(LITTLE_DECOMPRESSED_BYTES, most))
            except BatchTooLarge:
                pass  # it grows beyond what may hold up the loop
        arguments: tuple[Any, ...] = (stored, self._magic, offset, max_bytes, most)
        try:
            return converted_of(await self._environment.workers.run(CONVERT_JOB, log.state.disk.path, *arguments))
        except RuntimeError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the records cannot be converted: {error}") from error


async def _read(partition: Partition, offset: int, max_bytes: int, upper_offset: int, *, at_least_one: bool) -> LogRead:
    try:
        found = partition.log.read(offset, max_bytes, upper_offset, at_least_one_batch=at_least_one)
        return found if isinstance(found, tuple) else await found
    except OSError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
