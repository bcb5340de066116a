"""Retention of one log by size, time and log start offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_broker.protocol.errors import KafkaError
from ottla_broker.storage.log.config import LogConfig
from tests.broker.storage.logs import Make, batch, read_values, written


async def test_retention_deletes_segments_by_size_time_and_log_start_offset(make: Make, tmp_path: Path) -> None:
    setup = make(segment_bytes=300, retention_ms=10_000, file_delete_delay_ms=0)
    log = await setup.open()
    for number in range(20):
        log.append_as_leader(batch(b"v", timestamp=setup.clock.wall_ms + number), number)
    await written(log)
    assert await log.delete_old_segments() == 0
    setup.clock.wall_ms += 10_008
    assert await log.delete_old_segments() == 0  # nothing below the high watermark
    log.maybe_advance_high_watermark(20)
    assert await log.delete_old_segments() == 2
    assert log.log_start_offset == 8 == log.segments[0].base_offset
    assert log.epochs.entries[0] == (8, 8)
    assert setup.owner.log_start_checkpoints == 1
    with pytest.raises(KafkaError):
        log.read(7, 100, 20, True)

    log.configure(LogConfig({"segment.bytes": 300, "retention.ms": -1, "retention.bytes": 500}))
    assert await log.delete_old_segments() == 1
    assert log.log_start_offset == 12

    log.configure(LogConfig({"segment.bytes": 300, "cleanup.policy": "compact", "retention.bytes": 0}))
    assert await log.delete_old_segments() == 0
    await log.advance_log_start_offset(17)
    assert await log.delete_old_segments() == 1
    assert log.log_start_offset == 17 and log.segments[0].base_offset == 16
    assert [offset for offset, _ in await read_values(log, 17)] == [17, 18, 19]
    with pytest.raises(KafkaError):
        log.advance_log_start_offset(21)


async def test_retention_deletes_the_active_segment_of_an_idle_log(make: Make) -> None:
    setup = make(retention_ms=10_000)
    log = await setup.open()
    log.append_as_leader(batch(b"v", timestamp=setup.clock.wall_ms), 0)
    await written(log)
    log.maybe_advance_high_watermark(1)
    setup.clock.wall_ms += 20_000
    assert await log.delete_old_segments() == 1
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (1, 1, 1)
    assert log.append_as_leader(batch(b"w"), 0).first_offset == 1
    await written(log)
    assert await read_values(log, 1) == [(1, b"w")]
