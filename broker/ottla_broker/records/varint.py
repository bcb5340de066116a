"""Reads and writes the zigzag varints of records (not the unsigned ones of the flexible protocol).

Zigzag moves the sign into the lowest bit: 0 → 0, -1 → 1, 1 → 2, -2 → 3. Example: 300 → 600 → b"\\xd8\\x04".
"""

from __future__ import annotations

from ottla_broker.ports.disk import Buffer
from ottla_broker.records.errors import CorruptBatch


def encode_varint(value: int) -> bytes:
    """Up to 64 signed bits.

    >>> encode_varint(300)
    b'\\xd8\\x04'
    """
    number = (value << 1) ^ (value >> 63)
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def decode_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """(value, position behind it). Raises CorruptBatch when it is longer than 10 bytes or than the buffer.

    >>> decode_varint(b'\\xd8\\x04', 0)
    (300, 2)
    """
    try:
        byte = buffer[position]
        position += 1
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position
        number = byte & 0x7F
        shift = 7
        while True:
            byte = buffer[position]
            position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1), position
            shift += 7
            if shift > 63:
                raise CorruptBatch("a varint is longer than 10 bytes")
    except IndexError:
        raise CorruptBatch("a record ends inside a varint") from None
