"""Records for consumers of before 0.11 are made piece by piece, and have the length that was announced (KIP-283)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.fetch import PartitionData
from ottla_broker.records.conversion import Converted
from ottla_broker.replication.fetch.down_conversion import PIECE_BYTES, ConvertedRecords
from ottla_broker.replication.fetch.partition_reads import release

FILLER = (-1).to_bytes(8, "big", signed=True) + (2**31 - 1).to_bytes(4, "big")


class Stored:
    """A conversion of ten records a piece, up to an offset where it fails."""

    def __init__(self, piece: bytes, *, fails_at: int = 1 << 30) -> None:
        self._piece = piece
        self._fails_at = fails_at
        self.made = 0

    async def convert(self, _partition: object, offset: int, *_: object, **__: object) -> Converted:
        if offset >= self._fails_at:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd")
        self.made += 1
        return Converted(self._piece, offset + 10)


def records(stored: Stored, upper_offset: int, length: int) -> ConvertedRecords:
    conversion: Any = stored
    partition: Any = None
    return ConvertedRecords(conversion, partition, 0, upper_offset, length)


async def pieces(of: ConvertedRecords) -> list[bytes]:
    found = []
    while piece := await of.next_piece():
        found.append(piece)
    return found


async def test_pieces_are_made_one_at_a_time() -> None:
    stored = Stored(b"x" * 100)
    tested = records(stored, 1000, 300)
    assert stored.made == 0
    assert await tested.next_piece() == b"x" * 100
    assert stored.made == 1


async def test_what_is_longer_than_the_stored_records_is_cut() -> None:
    assert await pieces(records(Stored(b"x" * 100), 1000, 250)) == [b"x" * 100, b"x" * 100, b"x" * 50]


async def test_what_is_shorter_is_filled_up_with_the_beginning_of_a_message_that_does_not_fit() -> None:
    found = await pieces(records(Stored(b"x" * 100), 20, 300_000))
    assert found[:2] == [b"x" * 100] * 2
    filled = b"".join(found[2:])
    assert filled.startswith(FILLER)
    assert len(filled) == 300_000 - 200
    assert max(map(len, found)) <= PIECE_BYTES


@pytest.mark.parametrize("left", [1, 11, 12, 13])
async def test_a_rest_of_a_few_bytes_is_filled_too(left: int) -> None:
    (_, filled) = await pieces(records(Stored(b"x" * 100), 10, 100 + left))
    assert filled == (FILLER + bytes(1))[:left]


async def test_an_error_behind_the_first_piece_is_left_to_the_next_fetch() -> None:
    found = b"".join(await pieces(records(Stored(b"x" * 100, fails_at=20), 1000, 500)))
    assert found == b"x" * 200 + FILLER + bytes(288)


@pytest.mark.parametrize("is_long", [False, True])
def test_converted_records_that_a_quota_keeps_back_are_dropped(is_long: bool) -> None:
    converted = (records(Stored(b""), 10, 100),) if is_long else b"converted"
    release(PartitionData(partition_index=0, records=converted, high_watermark=0))  # type: ignore[arg-type]
