"""Down-converts batches to message sets of format 0 or 1, for consumers older than 0.11 (KIP-283). Pure.

What the older formats do not have is dropped: headers, producer ids, and the control batches of transactions, whose
offsets become gaps. Compressed batches stay compressed and whole; of uncompressed ones the messages before the fetch
offset are dropped, because old clients do not expect any.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla_broker.ports.disk import Buffer
from ottla_broker.records import legacy
from ottla_broker.records.compression import Codec, codec_of
from ottla_broker.records.errors import UnsupportedCompression
from ottla_broker.records.formats import batches, decode_batch
from ottla_broker.records.record import MAX_DECOMPRESSED_BYTES


class Converted(NamedTuple):
    """A message set, and the offset behind the last batch that was converted or dropped."""

    data: bytes
    next_offset: int


def down_convert(
    data: Buffer, magic: int, first_offset: int, max_bytes: int, max_decompressed: int = MAX_DECOMPRESSED_BYTES
) -> Converted:
    """Converts the whole batches of `data` to format `magic` (0 or 1), from `first_offset` on.

    Converts at least one batch, however large, then as many as fit `max_bytes`. Raises UnsupportedCompression when the
    first batch is zstd (KIP-110), CorruptBatch, BatchTooLarge above `max_decompressed` bytes.
    """
    view = memoryview(data)
    parts: list[bytes] = []
    size = 0
    next_offset = first_offset
    for position, header in batches(data):
        batch = view[position : position + header.size]
        if header.magic <= magic:
            part = bytes(batch)
        elif header.is_control:
            part = b""
        else:
            codec = codec_of(header.attributes)
            if codec is Codec.ZSTD:
                if parts:
                    break
                raise UnsupportedCompression("batches of zstd have no form in message formats 0 and 1")
            records = decode_batch(batch, max_decompressed)
            if codec is Codec.NONE:
                records = [record for record in records if record.offset >= first_offset]
            part = (
                legacy.build_message_set(records, magic, codec=codec, has_append_time=header.has_append_time)
                if records
                else b""
            )
        if parts and size + len(part) > max_bytes:
            break
        if part:
            parts.append(part)
            size += len(part)
        next_offset = max(next_offset, header.next_offset)
        if size >= max_bytes:
            break
    return Converted(b"".join(parts), next_offset)
