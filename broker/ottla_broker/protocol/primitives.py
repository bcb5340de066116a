"""Shared by the generated readers and writers: errors, variable-length integers, tag sections, records.

Lives here: code that every generated module imports. Not here: framing and headers (`codec.py`). Pure.

Readers do not check each slice against the end of the buffer. A slice of a memoryview that runs over the end is
short, the next read fails with IndexError or struct.error, and the wrapper of the module checks the last position;
all of it reaches the caller as DecodeError. Counts alone are checked at once, because they allocate.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NoReturn, Protocol, TypeAlias

ZERO_UUID: Final = bytes(16)
"""The UUID that means "none" on the wire."""


class DecodeError(ValueError):
    """The bytes are no message of this API and version; says which field is wrong where that is known."""


class EncodeError(ValueError):
    """The value cannot be written in this version; says why."""


class UnsupportedVersionError(DecodeError):
    """An API key or version that no definition covers.

    The attributes are what an answer needs: ApiVersions is answered with version 0 and error 35 whatever
    version was asked for (KIP-511), and any other API closes the connection.
    """

    def __init__(self, api_key: int, api_version: int, correlation_id: int = -1) -> None:
        super().__init__(f"API key {api_key} version {api_version} is not supported")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


class FileRangeLike(Protocol):
    """A chunk that the writer passes through untouched, such as the disk port's FileRange."""

    @property
    def length(self) -> int:
        """Size in bytes."""
        ...


Chunk: TypeAlias = "bytes | bytearray | memoryview | FileRangeLike"
"""One piece of an encoded message."""

Records: TypeAlias = "bytes | bytearray | memoryview | list[Chunk] | tuple[Chunk, ...]"
"""Value of a `records` field on write; readers give a memoryview of the frame."""

MALFORMED: Final = (DecodeError, IndexError, struct.error, UnicodeDecodeError)
"""What a reader may raise for bytes that are no message."""

UNWRITABLE: Final = (EncodeError, struct.error, AttributeError, TypeError, UnicodeEncodeError)
"""What a writer may raise for a value that does not fit the schema."""

UVARINT: Final = tuple(bytes((n,)) for n in range(128))
"""The variable-length integers of one byte."""

_TWO_BYTES: Final = struct.Struct("BB").pack
_THREE_BYTES: Final = struct.Struct("BBB").pack

INT32S_BELOW: Final = 17
INT32S: Final = tuple(struct.Struct(f">i{n}i").pack for n in range(INT32S_BELOW))
"""Writers of an int32 array (replicas, in-sync replicas, partitions) by its length: call with length and values."""

COMPACT_INT32S: Final = tuple(struct.Struct(f">B{n}i").pack for n in range(INT32S_BELOW))
"""The same for flexible versions: call with length + 1 and values."""

BYTES_PER_SLICE: Final = 1024
"""A reader yields when it has read so many bytes of elements: 1023 empty strings, or 170 of the smallest structs."""

ELEMENTS_PER_SLICE: Final = 250
"""A writer yields when it has written so many elements."""

NUMBERS_PER_SLICE: Final = 16384
"""A reader yields when it has read so many numbers of one array."""

NUMBERS_PER_ELEMENT: Final = 8
"""So many numbers of an array take the memory of one element of another kind."""

TAG_LIMIT: Final = 1000
"""Most tags of one section: Apache Kafka's messages have less than ten."""

COMPACT_STRING_LIMIT: Final = 0x8000
"""Largest length + 1 of a string: 32767 bytes in every version, although a compact length could say more."""

READ_INT32S: Final = tuple(struct.Struct(f">{n}i").unpack_from for n in range(INT32S_BELOW))
"""Readers of the values of an int32 array by its length."""


def read_uvarint(buffer: memoryview, offset: int) -> tuple[int, int]:
    """Unsigned variable-length integer of at most 32 bits: (value, offset after it)."""
    value = buffer[offset]
    offset += 1
    if value < 128:
        return value, offset
    return read_uvarint_rest(buffer, offset, value)


def read_uvarint_rest(buffer: memoryview, offset: int, first: int) -> tuple[int, int]:
    """The same when the first byte has been read and has its continuation bit set."""
    value = first & 0x7F
    shift = 7
    while True:
        byte = buffer[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                raise DecodeError("a variable-length integer has more than 32 bits")
            return value, offset
        shift += 7
        if shift > 28:
            raise DecodeError("a variable-length integer has more than five bytes")


def write_uvarint(value: int) -> bytes:
    """Unsigned variable-length integer as bytes."""
    if value < 128:
        return UVARINT[value]
    if value < 16384:
        return _TWO_BYTES(value & 0x7F | 0x80, value >> 7)
    if value < 2097152:
        return _THREE_BYTES(value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14)
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def write_string_length(size: int, field: str) -> bytes:
    """The length + 1 of a string in a flexible version. Raises EncodeError for more than a string may have."""
    if size > COMPACT_STRING_LIMIT:
        raise EncodeError(f"{field} has {size - 1} bytes, a string has at most {COMPACT_STRING_LIMIT - 1}")
    return write_uvarint(size)


def write_int32s(values: Sequence[int], is_flexible: bool) -> bytes:
    """An int32 array of any length, with the length before it."""
    size = len(values)
    if is_flexible:
        return write_uvarint(size + 1) + struct.pack(f">{size}i", *values)
    return struct.pack(f">i{size}i", size, *values)


def skip_tags(buffer: memoryview, offset: int, count: int) -> int:
    """Offset after a tag section of `count` tags, all of them unknown."""
    if count > TAG_LIMIT:
        too_many_tags(count)
    for _ in range(count):
        _, offset = read_uvarint(buffer, offset)
        size, offset = read_uvarint(buffer, offset)
        offset += size
        if offset > len(buffer):
            raise DecodeError("a tagged field runs over the end")
    return offset


def chunk_length(chunk: Any) -> int:
    """Size in bytes of one chunk."""
    kind = chunk.__class__
    if kind is bytes or kind is bytearray:
        return len(chunk)
    if kind is memoryview:
        return int(chunk.nbytes)
    length = getattr(chunk, "length", None)
    return length if length is not None else int(memoryview(chunk).nbytes)


def records_length(records: Any) -> int:
    """Size in bytes of the value of a `records` field: a buffer, or a sequence of buffers and file ranges."""
    kind = records.__class__
    if kind is list or kind is tuple:
        return sum([chunk_length(chunk) for chunk in records])
    return chunk_length(records)


def append_records(chunks: list[Chunk], records: Any) -> None:
    """Append the value of a `records` field to the chunks of a message, without copying it."""
    kind = records.__class__
    if kind is list or kind is tuple:
        chunks.extend(records)
    else:
        chunks.append(records)


def tagged(tag: int, payload: bytes) -> bytes:
    """One entry of a tag section."""
    return b"".join((write_uvarint(tag), write_uvarint(len(payload)), payload))


def negative_length(field: str, length: int) -> NoReturn:
    """Refuse a negative length or a null where the version does not allow it."""
    if length == -1:
        raise DecodeError(f"{field} is null, which this version does not allow")
    raise DecodeError(f"{field} has the length {length}")


def too_long(field: str, length: int) -> NoReturn:
    """Refuse a string of more bytes than any version's string may have."""
    raise DecodeError(f"{field} has the length {length}, a string has at most {COMPACT_STRING_LIMIT - 1}")


def too_many(field: str, count: int, remaining: int) -> NoReturn:
    """Refuse an array count that the remaining bytes cannot hold."""
    if count < 0:
        negative_length(field, count)
    raise DecodeError(f"{field} announces {count} elements with {remaining} bytes left")


def too_many_tags(count: int) -> NoReturn:
    """Refuse a tag section that no message of Apache Kafka has."""
    raise DecodeError(f"a tag section has {count} tags")


def wrong_tag_size(field: str) -> NoReturn:
    """Refuse a tagged field whose content is longer or shorter than the size before it."""
    raise DecodeError(f"{field} does not fill the size of its tag")


def not_in_version(field: str, value: object) -> NoReturn:
    """Refuse to drop a value that the version cannot carry."""
    raise EncodeError(f"{field} = {value!r} cannot be sent in this version")


def null_not_allowed(field: str) -> NoReturn:
    """Refuse to write null where the version does not allow it."""
    raise EncodeError(f"{field} is None, which this version does not allow")


def malformed(name: str, version: int, error: Exception) -> DecodeError:
    """The error that a reader's caller gets."""
    reason = str(error) if isinstance(error, DecodeError) else f"the message is truncated or garbled ({error})"
    return DecodeError(f"{name} v{version}: {reason}")


def unwritable(name: str, version: int, error: Exception) -> EncodeError:
    """The error that a writer's caller gets."""
    return EncodeError(f"{name} v{version}: {error}")
