"""A record batch without its header, and the header that it gets when it is sent. No I/O, no Spark, pure.

Producer id, epoch and sequence are known only then. Without numpy and pyarrow: Spark starts a new process for the
commit of each batch of a query, and loading them takes longer than a small transaction.
Source: DefaultRecordBatch of Apache Kafka (KIP-98).
"""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from ottla_broker.ports.disk import Buffer
from ottla_broker.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    TRANSACTIONAL_MASK,
)
from ottla_broker.records.compression import Codec


class PlainBatch(NamedTuple):
    """A record batch without its header."""

    payload: Buffer
    """The records, compressed."""
    codec: Codec
    records: int
    base_timestamp: int
    max_timestamp: int


class WritingProducer(NamedTuple):
    """Who writes: what a batch's header says of its producer. Without idempotence, all are -1."""

    producer_id: int
    epoch: int
    is_transactional: bool = False


def header_of(batch: PlainBatch, producer: WritingProducer, sequence: int) -> bytes:
    """The 61 bytes before the payload, with the checksum of both; `sequence` is the first record's."""
    length = HEADER_BYTES - LOG_OVERHEAD + len(batch.payload)
    attributes = batch.codec | (TRANSACTIONAL_MASK if producer.is_transactional else 0)
    fields = (
        attributes, batch.records - 1, batch.base_timestamp, batch.max_timestamp,
        producer.producer_id, producer.epoch, sequence, batch.records,
    )  # fmt: skip
    header = bytearray(HEADER.pack(0, length, NO_LEADER_EPOCH, MAGIC, 0, *fields))
    value: int = crc32c(batch.payload, crc32c(memoryview(header)[CRC_START:]))
    header[17:CRC_START] = value.to_bytes(4, "big")
    return bytes(header)
