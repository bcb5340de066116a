"""Damages whole frames: what a broken or hostile client might put on the wire. Pure but for the random draws.

A mutation takes a frame with its length and gives what is sent, mostly with a length that fits again, so that the
damage reaches the reader of the body and the handler.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from ottla_broker.protocol.api import ApiKey

_LENGTH_BYTES = 4
_HEADER_BYTES = 8
"""Key, version and correlation id, behind the length."""
_WORDS = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x00",
    b"\x00\xff\xff\xff",
    b"\xff\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff" * 8,
    b"\x7f" + b"\xff" * 7,
    b"\x80" + bytes(7),
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f",
    b"\xff" * 9 + b"\x01",
    b"\x80" * 12,
)
"""Extreme integers of every width, and variable-length ones that are too large or too long."""


def mutate(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    """What is sent in place of `frame`; `other` is another frame, of which a part may be taken."""
    kinds, weights = zip(*_KINDS, strict=True)
    kind = draw.choices(kinds, weights)[0]
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        frame = kind(draw, frame, other)
    return frame


def whole_frames(data: bytes, limit: int) -> tuple[list[bytes], bool]:
    """The frames without their lengths that a receiver finds, and whether nothing is left behind them.

    A negative length, or one above `limit`, ends the connection: what follows is no frame.

    >>> whole_frames(b"\\0\\0\\0\\2ab" + b"\\0\\0\\0\\1c", 100)
    ([b'ab', b'c'], True)
    >>> whole_frames(b"\\0\\0\\0\\2ab" + b"\\0\\0\\0\\9c", 100)
    ([b'ab'], False)
    """
    found = []
    position = 0
    while len(data) - position >= _LENGTH_BYTES:
        length = int.from_bytes(data[position : position + _LENGTH_BYTES], "big", signed=True)
        if not 0 <= length <= limit or len(data) - position - _LENGTH_BYTES < length:
            return found, False
        position += _LENGTH_BYTES + length
        found.append(data[position - length : position])
    return found, position == len(data)


def _with_length(content: bytes) -> bytes:
    return len(content).to_bytes(_LENGTH_BYTES, "big") + content


def _place(draw: random.Random, content: bytes) -> int:
    """Mostly in the body: a damaged header ends the request early."""
    lowest = _HEADER_BYTES if draw.random() < 0.9 and len(content) > _HEADER_BYTES else 0
    return draw.randint(lowest, len(content))


def _nothing(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    return frame


def _flip_bits(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    content = bytearray(frame[_LENGTH_BYTES:])
    for _ in range(draw.choice((1, 1, 2, 8))):
        if content:
            content[min(_place(draw, content), len(content) - 1)] ^= 1 << draw.randrange(8)
    return _with_length(bytes(content))


def _overwrite(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    content = bytearray(frame[_LENGTH_BYTES:])
    position = _place(draw, content)
    word = draw.choice(_WORDS)[: len(content) - position]
    content[position : position + len(word)] = word
    return _with_length(bytes(content))


def _insert(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    content = frame[_LENGTH_BYTES:]
    position = _place(draw, content)
    return _with_length(content[:position] + draw.choice((*_WORDS, draw.randbytes(20))) + content[position:])


def _truncate(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    content = frame[_LENGTH_BYTES:]
    return _with_length(content[: _place(draw, content)])


def _extend(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    return _with_length(frame[_LENGTH_BYTES:] + draw.choice((b"\0", draw.randbytes(30), bytes(1000))))


def _remove(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    content = frame[_LENGTH_BYTES:]
    first, last = sorted((_place(draw, content), _place(draw, content)))
    return _with_length(content[:first] + content[last:])


def _repeat(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    content = frame[_LENGTH_BYTES:]
    first, last = sorted((_place(draw, content), _place(draw, content)))
    return _with_length(content[:last] + content[first:last] * draw.choice((1, 2, 10)) + content[last:])


def _splice(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    content, foreign = frame[_LENGTH_BYTES:], other[_LENGTH_BYTES:]
    return _with_length(content[: _place(draw, content)] + foreign[_place(draw, foreign) :])


def _other_version(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    version = draw.choice((*range(18), -1, 32_767, -32_768))
    return frame[:6] + version.to_bytes(2, "big", signed=True) + frame[8:]


def _other_api(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    api_key = draw.choice((*(int(key) for key in ApiKey), -1, 32_767, 999))
    return frame[:4] + api_key.to_bytes(2, "big", signed=True) + frame[6:]


def _wrong_length(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    length = draw.choice((0, -1, 1, 7, len(frame) - 5, len(frame), 2**31 - 1, -(2**31), 104_857_601))
    return length.to_bytes(_LENGTH_BYTES, "big", signed=True) + frame[_LENGTH_BYTES:]


def _pipeline(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    return frame + other if len(frame) < 100_000 else frame


def _random_content(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    return _with_length(frame[_LENGTH_BYTES : _LENGTH_BYTES + _HEADER_BYTES] + draw.randbytes(draw.randrange(200)))


def _not_kafka(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    return draw.choice((b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"\x16\x03\x01\x02\x00" + bytes(100), draw.randbytes(60)))


_KINDS: tuple[tuple[Callable[[random.Random, bytes, bytes], bytes], float], ...] = (
    (_nothing, 60),
    (_flip_bits, 15),
    (_overwrite, 15),
    (_insert, 5),
    (_truncate, 5),
    (_extend, 3),
    (_remove, 5),
    (_repeat, 5),
    (_splice, 4),
    (_other_version, 3),
    (_other_api, 2),
    (_wrong_length, 2),
    (_pipeline, 3),
    (_random_content, 2),
    (_not_kafka, 1),
)
