"""Record data for Produce: batches of every format, whole and damaged, often under a checksum that fits. No I/O."""

from __future__ import annotations

import random
from collections.abc import Callable
from zlib import crc32

from ottla_broker.records.batch import CRC_START, HEADER_BYTES, checksum
from ottla_broker.records.compression import Codec
from ottla_broker.records.legacy import build_message_set
from ottla_broker.records.record import Record, build_batch

_TIME_MS = 1_700_000_000_000
_EXTREMES = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", bytes(4), b"\x00\xff\xff\xff")


class RecordData:
    """Draws without end."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def draw(self) -> bytes | None:
        draw = self._draw
        kinds: tuple[tuple[float, Callable[[], bytes | None]], ...] = (
            (8, self._batch),
            (6, self._damaged_batch),
            (2, lambda: bytes(self._batch() + self._batch())),
            (2, self._messages),
            (2, self._damaged_messages),
            (1, lambda: draw.randbytes(draw.randrange(200))),
            (1, lambda: None),
            (1, lambda: b""),
        )
        return draw.choices([one for _, one in kinds], [weight for weight, _ in kinds])[0]()

    def _records(self) -> list[Record]:
        draw = self._draw
        time_ms = draw.choice((_TIME_MS, _TIME_MS, -1, 0, 2**62, -(2**62)))
        headers = draw.choice(((), (), (("h", b"v"),), (("", None),)))
        return [
            Record(number, time_ms, draw.choice((None, b"k", b"")), draw.choice((b"v", None, b"", b"y" * 500)), headers)
            for number in range(draw.choice((1, 1, 2, 5, 60)))
        ]

    def _batch(self) -> bytes:
        draw = self._draw
        producer: dict[str, int] = {}
        if draw.random() < 0.4:
            producer = {
                "producer_id": draw.choice((0, 1, 5, 1000, 2**63 - 1, -2)),
                "producer_epoch": draw.choice((0, 0, 1, 32_767, -1)),
                "base_sequence": draw.choice((0, 0, 1, 2**31 - 1, -1)),
            }
        attributes = draw.choice((0, 0, 0, 0, 0x08, 0x10, 0x20, 0x30, 0x40))
        codec = draw.choice((Codec.NONE, Codec.NONE, *Codec))
        return bytes(build_batch(self._records(), codec=codec, attributes=attributes, **producer))

    def _damaged_batch(self) -> bytes:
        """A field of the header, or bytes of the records, overwritten; mostly with the checksum of the result."""
        draw = self._draw
        batch = bytearray(self._batch())
        for _ in range(draw.choice((1, 1, 2))):
            is_header = draw.random() < 0.5
            position = draw.randrange(HEADER_BYTES if is_header else len(batch))
            if draw.random() < 0.5:
                batch[position] ^= 1 << draw.randrange(8)
            else:
                extreme = draw.choice(_EXTREMES)[: len(batch) - position]
                batch[position : position + len(extreme)] = extreme
        if draw.random() < 0.2:
            del batch[draw.randrange(len(batch)) :]
            if len(batch) >= CRC_START and draw.random() < 0.7:
                batch[8:12] = (len(batch) - 12).to_bytes(4, "big", signed=True)
        if len(batch) > CRC_START and draw.random() < 0.8:
            batch[17:CRC_START] = checksum(batch).to_bytes(4, "big")
        return bytes(batch)

    def _messages(self) -> bytes:
        draw = self._draw
        return bytes(
            build_message_set(
                self._records(),
                draw.choice((0, 1)),
                codec=draw.choice((Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)),
            )
        )

    def _damaged_messages(self) -> bytes:
        draw = self._draw
        data = bytearray(self._messages())
        position = draw.randrange(len(data))
        extreme = draw.choice((*_EXTREMES, b"\x01", b"\x07"))[: len(data) - position]
        data[position : position + len(extreme)] = extreme
        size = int.from_bytes(data[8:12], "big", signed=True)
        if draw.random() < 0.8 and 4 < size <= len(data) - 12:
            data[12:16] = crc32(data[16 : 12 + size]).to_bytes(4, "big")
        return bytes(data)
