"""The partition of a key is the one that Java's producer chooses."""

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from ottla_pipeline.sink.partitioner import murmur2, partitions_of_keys
from ottla_pipeline.sink.record_encoding import octets_of
from tests.pipeline.compiled.walks import WAYS

KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""Keys and their hashes, from UtilsTest of Apache Kafka."""


def one_by_one(data: bytes) -> int:
    """Utils.murmur2 of Apache Kafka, written out."""
    m, h = 0x5BD1E995, 0x9747B28C ^ len(data)
    for at in range(0, len(data) & ~3, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & 0xFFFFFFFF
        k = (k ^ (k >> 24)) * m & 0xFFFFFFFF
        h = (h * m & 0xFFFFFFFF) ^ k
    rest = data[len(data) & ~3 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & 0xFFFFFFFF
    h = (h ^ (h >> 13)) * m & 0xFFFFFFFF
    return h ^ (h >> 15)


@pytest.mark.parametrize("copies", [1, 40])
def test_the_hash_of_a_key_is_that_of_apache_kafka(copies: int) -> None:
    keys = list(KNOWN) * copies
    octets, bounds = octets_of(pa.array([b"before", *keys], pa.binary())[1:])
    assert murmur2(octets, bounds[:-1], bounds[1:]).view(np.int32).tolist() == list(KNOWN.values()) * copies


def test_many_keys_of_all_lengths_are_hashed_as_one_by_one() -> None:
    data = random.Random(3)
    keys = [data.randbytes(data.randrange(60)) for _ in range(2000)] + [data.randbytes(5001), b""]
    octets, bounds = octets_of(pa.array(keys, pa.binary()))
    for compiled in WAYS:
        found = partitions_of_keys(octets, bounds[:-1], bounds[1:], 7, compiled)
        assert found.tolist() == [(one_by_one(key) & 0x7FFFFFFF) % 7 for key in keys]
