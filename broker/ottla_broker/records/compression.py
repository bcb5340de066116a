"""Compresses and decompresses the records of a batch with its codec: gzip, snappy, lz4, zstd.

Java writes snappy as xerial blocks (a 16-byte magic, then length-prefixed raw blocks); librdkafka writes it raw. Both
are read, xerial is written. lz4 is the frame format; clients of message format 0 computed the checksum of the frame's
header over its magic too (KAFKA-3160), which `repaired_lz4` and `old_kafka_lz4` convert. The caller limits the
decompressed size, because a small batch can decompress to a large one.
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

_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
"""Magic; version 1 with independent blocks and no checksums; blocks of 64 KiB; checksum of the two."""
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_PLAIN_BLOCK = 1 << 31
_LZ4_DEFAULT_LEVEL = 9

_MAX_BYTES = 2**31 - 1

_U32 = 0xFFFFFFFF
_PRIME_1 = 0x9E3779B1
_PRIME_2 = 0x85EBCA77
_PRIME_3 = 0xC2B2AE3D
_PRIME_4 = 0x27D4EB2F
_PRIME_5 = 0x165667B1


class Codec(IntEnum):
    """Bits 0–2 of the attributes. The names are the values of compression.type."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def codec_of(attributes: int) -> Codec:
    """The codec in a batch's attributes. Raises UnsupportedCompression for an unknown one."""
    try:
        return Codec(attributes & 0x07)
    except ValueError:
        raise UnsupportedCompression(f"compression codec {attributes & 0x07} does not exist") from None


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compresses records. `level`: compression.gzip.level, .lz4.level or .zstd.level; None for the codec's default."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=6 if level is None or level == -1 else level))
    if codec is Codec.SNAPPY:
        return _compress_xerial(data)
    if codec is Codec.LZ4:
        return _compress_lz4(data, level)
    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def repaired_lz4(frame: Buffer) -> bytes:
    """An lz4 frame of message format 0 with the header checksum of the standard.

    Raises CorruptBatch when it is too short for a frame.
    """
    end = _lz4_descriptor_end(frame)
    return bytes(frame[:end]) + _header_checksum(frame[4:end]) + bytes(frame[end + 1 :])


def old_kafka_lz4(frame: Buffer) -> bytes:
    """A standard lz4 frame as clients of message format 0 expect it."""
    end = _lz4_descriptor_end(frame)
    return bytes(frame[:end]) + _header_checksum(frame[:end]) + bytes(frame[end + 1 :])


def _lz4_descriptor_end(frame: Buffer) -> int:
    """Position of the checksum byte: behind the magic (4), flags (1), block size (1), and the content size (8) if the
    flags say that there is one."""
    if len(frame) < 7:
        raise CorruptBatch("the lz4 frame is incomplete")
    end = 14 if frame[4] & 0x08 else 6
    if len(frame) <= end:
        raise CorruptBatch("the lz4 frame is incomplete")
    return end


def _header_checksum(data: Buffer) -> bytes:
    return bytes(((xxh32(data) >> 8) & 0xFF,))


def xxh32(data: Buffer) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes, such as the header of an lz4 frame. Raises ValueError for more.

    >>> hex(xxh32(b"abc"))
    '0x32d153ff'
    """
    if len(data) >= 16:
        raise ValueError("only for headers of lz4 frames")
    value = (_PRIME_5 + len(data)) & _U32
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        lane = int.from_bytes(data[start : start + 4], "little")
        value = (value + lane * _PRIME_3) & _U32
        value = (_rotated(value, 17) * _PRIME_4) & _U32
    for byte in bytes(data[whole:]):
        value = (value + byte * _PRIME_5) & _U32
        value = (_rotated(value, 11) * _PRIME_1) & _U32
    value = ((value ^ (value >> 15)) * _PRIME_2) & _U32
    value = ((value ^ (value >> 13)) * _PRIME_3) & _U32
    return value ^ (value >> 16)


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _U32


def decompress(codec: Codec, data: Buffer, max_bytes: int = _MAX_BYTES) -> bytes:
    """Decompresses records. Raises CorruptBatch for invalid bytes, BatchTooLarge above `max_bytes`."""
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
            raise CorruptBatch("the gzip stream is incomplete")
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
    # At once: the library's incremental reader reports a frame that comes in pieces as truncated. The format limits the
    # memory that a too large batch takes: nothing grows more than 255-fold.
    result = cramjam.lz4.decompress(data)
    if len(result) > max_bytes:
        raise _too_large(max_bytes)
    return bytes(result)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    """A frame of independent blocks: the library's own frames have blocks that depend on each other, which Kafka's Java
    reader refuses."""
    # Kafka's default level 9 means the fast mode in Java; only other levels mean the slow one.
    is_fast = level is None or level == _LZ4_DEFAULT_LEVEL
    view = memoryview(data)
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        content = view[start : start + _LZ4_BLOCK_BYTES]
        if is_fast:
            block = bytes(cramjam.lz4.compress_block(content, store_size=False))
        else:
            block = bytes(
                cramjam.lz4.compress_block(content, store_size=False, mode="high_compression", compression=level)
            )
        if len(block) < len(content):
            parts.append(len(block).to_bytes(4, "little"))
            parts.append(block)
        else:
            parts.append((len(content) | _LZ4_PLAIN_BLOCK).to_bytes(4, "little"))
            parts.append(bytes(content))
    parts.append(bytes(4))
    return b"".join(parts)


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
