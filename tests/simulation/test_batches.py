"""The simulator's own batch codec against the broker's."""

from __future__ import annotations

import pytest

from simulation.batches import build_batch, read_batches, valid_prefix


def test_a_batch_is_read_back_with_its_names() -> None:
    data = build_batch(["p1/0", "p1/1"], timestamp_ms=5, padding=3, producer_id=7, producer_epoch=0, base_sequence=4)
    (batch,) = read_batches(data + data[:-1])
    assert batch.names == ("p1/0", "p1/1")
    assert (batch.base_offset, batch.last_offset, batch.producer_id, batch.base_sequence) == (0, 1, 7, 4)


def test_a_damaged_batch_is_an_error_and_ends_a_valid_prefix() -> None:
    good = build_batch(["a/0"], timestamp_ms=1)
    bad = bytearray(build_batch(["a/1"], timestamp_ms=1))
    bad[-3] ^= 1
    with pytest.raises(ValueError, match="CRC"):
        read_batches(good + bad + good)
    assert [batch.names for batch in valid_prefix(good + bad + good)] == [("a/0",)]
    assert len(valid_prefix(good + bytes(100))) == 1
