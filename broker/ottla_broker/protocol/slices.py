"""A response whose one large array is encoded slice by slice, so that the loop does other work in between.

The bytes of a message with an array of structs are a head, the count, the elements, and a tail: what comes before and
behind the array does not depend on the elements. So the elements of a slice are what lies between the count and the
tail of a message that has only them. Not here: when to yield, and what is worth slicing. Pure.

>>> from ottla_broker.protocol.generated.metadata import MetadataResponse, MetadataResponseTopic, write_response
>>> topics = [MetadataResponseTopic(name="a"), MetadataResponseTopic(name="b"), MetadataResponseTopic(name="c")]
>>> encoder = SliceEncoder(write_response, 12, MetadataResponse(brokers=[], topics=[]), "topics", topics[0])
>>> slices = (encoder.encode(topics[:2]), encoder.encode(topics[2:]))
>>> sliced = SlicedResponse(encoder, MetadataResponse(brokers=[], topics=[], controller_id=7), 3, slices)
>>> whole = MetadataResponse(brokers=[], topics=topics, controller_id=7)
>>> b"".join(sliced.chunks(12)) == b"".join(write_response(12, whole))
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla_broker.protocol.primitives import Chunk, write_uvarint

_COUNT_BYTES = 4
"""Of an array in a version that is not flexible."""

_Write = Callable[[int, Any], list[Chunk]]


class SliceEncoder:
    """Encodes elements of one array of a message.

    Args:
        write: the generated writer.
        version: the version of the API.
        message: a valid message without elements; it is changed while a slice is encoded.
        attribute: the array, directly in the message.
        element: any valid element.
    """

    __slots__ = ("_head_bytes", "_is_compact", "_message", "_tail_bytes", "_version", "attribute", "write")

    def __init__(self, write: _Write, version: int, message: Any, attribute: str, element: Any) -> None:
        self.write = write
        self.attribute = attribute
        self._version = version
        self._message = message
        without, with_one = self._written([]), self._written([element])
        # The messages differ first in the last byte of the count.
        differs_at = next(at for at, (one, other) in enumerate(zip(without, with_one, strict=False)) if one != other)
        self._is_compact = with_one[differs_at] == 2
        first = 1 if self._is_compact else _COUNT_BYTES
        self._head_bytes = differs_at + 1 - first
        self._tail_bytes = len(without) - differs_at - 1

    def encode(self, elements: Sequence[Any]) -> bytes:
        """The bytes of the elements alone. Raises EncodeError."""
        written = self._written(elements)
        begin = self._head_bytes + len(self.count(len(elements)))
        return written[begin : len(written) - self._tail_bytes]

    def count(self, elements: int) -> bytes:
        """The bytes of the array's length."""
        return write_uvarint(elements + 1) if self._is_compact else elements.to_bytes(_COUNT_BYTES, "big")

    def around(self, message: Any) -> tuple[bytes, bytes]:
        """What comes before and behind the array of a message that has no elements. Raises EncodeError."""
        written = b"".join(self.write(self._version, message))  # type: ignore[arg-type]
        tail = len(written) - self._tail_bytes
        return written[: tail - len(self.count(0))], written[tail:]

    def _written(self, elements: Sequence[Any]) -> bytes:
        setattr(self._message, self.attribute, elements)
        try:
            return b"".join(self.write(self._version, self._message))  # type: ignore[arg-type]
        finally:
            setattr(self._message, self.attribute, [])


class SlicedResponse:
    """Takes the place of a generated response.

    Args:
        encoder: of the version that the response is sent in.
        message: the response without elements.
        count: how many elements the slices have together.
        slices: the elements, as the encoder wrote them.
    """

    __slots__ = ("_encoder", "count", "message", "slices")

    def __init__(self, encoder: SliceEncoder, message: Any, count: int, slices: Sequence[bytes]) -> None:
        self._encoder = encoder
        self.message = message
        self.count = count
        self.slices = slices

    @property
    def throttle_time_ms(self) -> int:
        return int(self.message.throttle_time_ms)

    @throttle_time_ms.setter
    def throttle_time_ms(self, value: int) -> None:
        self.message.throttle_time_ms = value

    def chunks(self, version: int) -> list[Chunk]:
        """The chunks of the body. Raises EncodeError."""
        head, tail = self._encoder.around(self.message)
        chunks: list[Chunk] = [head + self._encoder.count(self.count), *self.slices]
        if tail:
            chunks.append(tail)
        return chunks
