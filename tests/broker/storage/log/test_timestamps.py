"""Offsets by timestamp."""

from __future__ import annotations

from ottla_broker.storage.log.timestamps import TimestampAndOffset
from tests.broker.storage.logs import Make, batch, written


async def test_a_lookup_by_timestamp_finds_the_exact_record(make: Make) -> None:
    log = await make(segment_bytes=600, index_interval_bytes=100).open()
    for number in range(20):
        log.append_as_leader(batch(b"a", b"b", b"c", timestamp=1000 + 10 * number), 1 + number // 10)
    await written(log)
    end = log.log_end_offset
    assert await log.offset_for_timestamp(0, end) == TimestampAndOffset(1000, 0, 1)
    assert await log.offset_for_timestamp(1001, end) == TimestampAndOffset(1001, 1, 1)
    assert await log.offset_for_timestamp(1003, end) == TimestampAndOffset(1010, 3, 1)
    assert await log.offset_for_timestamp(1152, end) == TimestampAndOffset(1152, 47, 2)
    assert await log.offset_for_timestamp(1193, end) is None
    assert await log.offset_for_timestamp(1152, 47) is None
    assert await log.max_timestamp() == TimestampAndOffset(1192, 59, 2)
    assert await log.max_timestamp(30) == TimestampAndOffset(1092, 29, 1)
