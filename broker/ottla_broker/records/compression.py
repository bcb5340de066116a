"""The four codecs of record batches: gzip, snappy, lz4, zstd.

Java writes snappy as xerial blocks (a 16-byte magic, then length-prefixed raw blocks); librdkafka writes it raw. Both
are read, xerial is written. lz4 is the frame format. Decompressed sizes are bounded by the caller, because a small
batch can name a large one.
"""

from __future__ import annotations

import zlib
from enum import IntEnum

import cramjam
import zstandard

from ottla_broker.ports.disk import Buffer
from ottla_broker.records.errors import BatchTooLarge, CorruptBatch, UnsupportedCompression

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_BLOCK_BYTES = 32 * 1024
"""Block size of the Java library, so that its reader needs no larger buffer than for its own writer."""

_MAX_BYTES = 2**31 - 1


class Codec(IntEnum):
    """Bits 0–2 of the attributes. The names are the values of compression.type."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def codec_of(attributes: int) -> Codec:
    """UnsupportedCompression for a number that no codec has."""
    try:
        return Codec(attributes & 0x07)
    except ValueError:
        raise UnsupportedCompression(f"compression codec {attributes & 0x07} does not exist") from None


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`level` is compression.gzip.level, .lz4.level or .zstd.level; None takes the codec's default."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=6 if level is None or level == -1 else level))
    if codec is Codec.SNAPPY:
        return _compress_xerial(data)
    if codec is Codec.LZ4:
        return bytes(cramjam.lz4.compress(data, level=9 if level is None else level))
    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def decompress(codec: Codec, data: Buffer, max_bytes: int = _MAX_BYTES) -> bytes:
    """CorruptBatch when the bytes are not of that codec, BatchTooLarge when they grow beyond `max_bytes`."""
    if codec is Codec.NONE:
        return bytes(data)
    try:
        if codec is Codec.GZIP:
            result = _gunzip(data, max_bytes)
        elif codec is Codec.SNAPPY:
            result = _decompress_snappy(data, max_bytes)
        elif codec is Codec.LZ4:
            result = _unlz4(data, max_bytes)
        else:
            result = _unzstd(data, max_bytes)
    except (zlib.error, zstandard.ZstdError, cramjam.DecompressionError, OSError, EOFError, ValueError) as error:
        raise CorruptBatch(f"the records are not valid {codec.name.lower()}: {error}") from error
    return result


def _too_large(max_bytes: int) -> BatchTooLarge:
    return BatchTooLarge(f"the records decompress to more than {max_bytes} bytes")


def _gunzip(data: Buffer, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    total = 0
    rest: Buffer = data
    while len(rest):
        unzipper = zlib.decompressobj(wbits=31)
        part = unzipper.decompress(rest, max_bytes - total + 1)
        total += len(part)
        if total > max_bytes:
            raise _too_large(max_bytes)
        if not unzipper.eof:
            raise CorruptBatch("the gzip stream is cut off")
        parts.append(part)
        rest = unzipper.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unzstd(data: Buffer, max_bytes: int) -> bytes:
    reader = zstandard.ZstdDecompressor().stream_reader(bytes(data), read_across_frames=True)
    result = reader.read(max_bytes + 1)
    if len(result) > max_bytes:
        raise _too_large(max_bytes)
    return bytes(result)


def _unlz4(data: Buffer, max_bytes: int) -> bytes:
    # Whole: the library's incremental reader takes a frame that is fed in pieces for a truncated one. What may be
    # allocated in vain is bounded by the format, in which nothing grows more than 255-fold.
    result = cramjam.lz4.decompress(data)
    if len(result) > max_bytes:
        raise _too_large(max_bytes)
    return bytes(result)


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _snappy_block(view, max_bytes)
    parts: list[bytes] = []
    total = 0
    position = len(_XERIAL_HEADER)
    while position < len(view):
        length = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if length > len(view) - position:
            raise CorruptBatch("a snappy block is cut off")
        part = _snappy_block(view[position : position + length], max_bytes - total)
        position += length
        total += len(part)
        parts.append(part)
    return b"".join(parts)


def _snappy_block(block: memoryview, max_bytes: int) -> bytes:
    # The block begins with its decompressed length: checked first, since the library reserves that much.
    if cramjam.snappy.decompress_raw_len(block) > max_bytes:
        raise _too_large(max_bytes)
    return bytes(cramjam.snappy.decompress_raw(block))
