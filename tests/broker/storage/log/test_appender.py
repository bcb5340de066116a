"""Appends of a leader and of a follower: what is accepted, what is refused, what is patched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import CONTROL_MASK, PATCH, TRANSACTIONAL_MASK, is_intact, read_header
from ottla_broker.records.compression import Codec
from ottla_broker.records.control_records import ControlType, EndTransactionMarker, build_marker
from ottla_broker.records.record import Record, build_batch, decode_records
from ottla_broker.storage.log.append_checks import PreparationNeeded
from ottla_broker.storage.log.reader import LogRead
from ottla_broker.storage.log.timestamps import TimestampAndOffset
from tests.broker.storage.agreement import disagreements
from tests.broker.storage.logs import LogSetup, Make, batch, read_bytes, read_values, refused, written


async def test_an_append_assigns_offsets_at_once_and_moves_the_log_end_offset_when_it_is_written(make: Make) -> None:
    log = await make().open()
    grown: list[int] = []
    log.state.on_append = lambda: grown.append(log.state.log_end_offset)
    info = log.append_as_leader(batch(b"a", b"b", b"c"), 4)
    assert (info.first_offset, info.last_offset, info.log_append_time_ms) == (0, 2, -1)
    assert log.state.assigned_offset == 3 and log.state.log_end_offset == 0
    assert log.read(0, 100, 3, True) == LogRead((), 0)
    await written(log)
    assert log.state.log_end_offset == 3 and grown == [3]
    assert log.append_as_leader(batch(b"d"), 4).first_offset == 3
    await written(log)
    assert await read_values(log, 1) == [(1, b"b"), (2, b"c"), (3, b"d")]


async def test_an_append_patches_only_offset_and_leader_epoch_into_the_received_bytes(make: Make) -> None:
    log = await make().open()
    log.append_as_leader(batch(b"first"), 0)
    received = batch(b"x", b"y")
    before = bytes(received)
    log.append_as_leader(received, 7)
    await written(log)
    stored = await read_bytes(log, 1)
    assert stored == bytes(received)
    assert stored[:8] == (1).to_bytes(8, "big") and stored[12:16] == (7).to_bytes(4, "big")
    assert stored[8:12] + stored[16:] == before[8:12] + before[16:]
    assert is_intact(stored)


async def test_an_append_accepts_a_read_only_buffer(make: Make) -> None:
    log = await make().open()
    log.append_as_leader(batch(b"a"), 0)
    assert log.append_as_leader(memoryview(bytes(batch(b"b"))), 0).first_offset == 1
    await written(log)
    assert await read_values(log, 0) == [(0, b"a"), (1, b"b")]


async def test_an_append_refuses_a_bad_batch_with_kafkas_error_code(make: Make) -> None:
    log = await make(max_message_bytes=500, segment_bytes=400).open()
    good = bytes(batch(b"v"))

    def changed(position: int, value: bytes) -> memoryview:
        return memoryview(bytearray(good[:position] + value + good[position + len(value) :]))

    assert refused(log, memoryview(b"")) == ErrorCode.INVALID_RECORD
    assert refused(log, memoryview(good[:40])) == ErrorCode.INVALID_RECORD
    assert refused(log, memoryview(good + good)) == ErrorCode.INVALID_RECORD
    assert refused(log, memoryview(good[:-1])) == ErrorCode.INVALID_RECORD
    for old in (b"\x00", b"\x01"):
        with pytest.raises(PreparationNeeded):
            log.append_as_leader(changed(16, old), 0)
    assert refused(log, changed(16, b"\x03")) == ErrorCode.CORRUPT_MESSAGE
    assert refused(log, changed(17, b"\x00\x00\x00\x00")) == ErrorCode.CORRUPT_MESSAGE
    assert refused(log, changed(57, b"\x00\x00\x00\x02")) == ErrorCode.INVALID_RECORD
    assert refused(log, changed(23, b"\xff\xff\xff\xff")) == ErrorCode.INVALID_RECORD
    assert refused(log, changed(8, b"\x7f\xff\xff\xff")) == ErrorCode.INVALID_RECORD
    assert refused(log, changed(8, b"\xff\xff\xff\xff")) == ErrorCode.CORRUPT_MESSAGE
    assert refused(log, changed(21, b"\x00\x07")) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert refused(log, batch(b"v", attributes=0x20)) == ErrorCode.INVALID_RECORD
    assert (
        refused(log, batch(b"v", attributes=0x10, producer=(1, 0, 0)))
        == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    assert refused(log, batch(b"v", attributes=0x08)) == ErrorCode.INVALID_TIMESTAMP
    assert refused(log, batch(b"v", producer=(1, 0, -1))) == ErrorCode.INVALID_RECORD
    assert refused(log, batch(bytes(450))) == ErrorCode.MESSAGE_TOO_LARGE
    assert refused(log, batch(bytes(380))) == ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.state.assigned_offset == 0
    assert log.append_as_leader(memoryview(bytearray(good)), 0).first_offset == 0


@pytest.mark.parametrize(
    ("config", "ordinary"),
    [
        ({"compression_type": "producer"}, True),
        ({"compression_type": "uncompressed"}, True),  # what it is already
        ({"compression_type": "gzip"}, False),
        ({"cleanup_policy": "compact"}, False),
        ({"message_timestamp_before_max_ms": 1000}, False),
        ({"message_timestamp_after_max_ms": 1000}, True),  # the header has the largest
        ({"message_timestamp_after_max_ms": 0}, False),
        ({"message_timestamp_type": "LogAppendTime", "message_timestamp_before_max_ms": 1000}, True),
    ],
)
async def test_an_append_needs_preparation_only_when_a_topic_config_needs_the_records(
    make: Make, config: dict[str, Any], ordinary: bool
) -> None:
    setup = make(**config)
    log = await setup.open()
    sent = batch(b"v", timestamp=setup.clock.wall_ms + 500)
    if not ordinary:
        with pytest.raises(PreparationNeeded):
            log.append_as_leader(sent, 0)
    assert log.append_as_leader(sent, 0, is_prepared=not ordinary).first_offset == 0


async def test_an_append_needs_preparation_while_earlier_batches_are_prepared(make: Make) -> None:
    log = await make().open()
    log.appender.set_preparing(True)
    with pytest.raises(PreparationNeeded):
        log.append_as_leader(batch(b"v"), 0)
    assert refused(log, batch(b"v", attributes=0x20)) == ErrorCode.INVALID_RECORD
    assert log.append_as_leader(batch(b"v"), 0, is_prepared=True).first_offset == 0
    log.appender.set_preparing(False)
    assert log.append_as_leader(batch(b"v"), 0).first_offset == 1


async def test_log_append_time_changes_only_the_header_of_a_batch(make: Make) -> None:
    setup = make(message_timestamp_type="LogAppendTime")
    log = await setup.open()
    now = setup.clock.wall_ms
    for sent in (batch(b"a", b"b", timestamp=5), memoryview(bytes(batch(b"c", timestamp=2**45, codec=Codec.ZSTD)))):
        before = bytes(sent)
        info = log.append_as_leader(sent, 0)
        assert info.log_append_time_ms == now
        await written(log)
        stored = await read_bytes(log, info.first_offset)
        header = read_header(stored)
        assert is_intact(stored) and header.has_append_time and header.max_timestamp == now
        assert stored[43:] == before[43:] and stored[23:35] == before[23:35]
        assert {record.timestamp for record in decode_records(stored)} == {now}
    assert await log.timestamps.offset_for_timestamp(now, 3, setup.search) == TimestampAndOffset(now, 0, 0)
    setup.clock.wall_ms += 1000
    original = log.append_as_leader(batch(b"d", producer=(9, 0, 0)), 0)
    setup.clock.wall_ms += 1000
    again = log.append_as_leader(batch(b"d", producer=(9, 0, 0)), 0)
    assert again.is_duplicate and again.log_append_time_ms == original.log_append_time_ms == now + 1000


async def test_a_duplicate_batch_gets_its_original_offsets_and_is_stored_once(make: Make) -> None:
    log = await make().open()
    log.append_as_leader(batch(b"other"), 0)
    first = log.append_as_leader(batch(b"a", b"b", producer=(9, 0, 0)), 0)
    again = log.append_as_leader(batch(b"a", b"b", producer=(9, 0, 0)), 0)
    assert (again.first_offset, again.last_offset, again.is_duplicate) == (first.first_offset, first.last_offset, True)
    assert refused(log, batch(b"c", producer=(9, 0, 5))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append_as_leader(batch(b"c", producer=(9, 1, 0)), 0).first_offset == 3
    assert refused(log, batch(b"d", producer=(9, 0, 2))) == ErrorCode.INVALID_PRODUCER_EPOCH
    await written(log)
    assert [value for _, value in await read_values(log, 0)] == [b"other", b"a", b"b", b"c"]


async def test_a_follower_appends_the_bytes_of_the_leader(make: Make, tmp_path: Path) -> None:
    leader = await make().open()
    for number in range(20):
        leader.append_as_leader(batch(b"x%d" % number, b"y", producer=(5, 0, 2 * number)), number // 7)
    await written(leader)
    fetched = await read_bytes(leader, 0)

    setup = LogSetup(str(tmp_path / "follower"), {"segment.bytes": 400, "index.interval.bytes": 100})
    follower = await setup.open()
    half = len(fetched) // 2
    info = follower.append_as_follower(memoryview(fetched[:half]))
    assert info.first_offset == 0 and info.last_offset % 2 == 1
    await written(follower)
    rest = await read_bytes(leader, follower.state.log_end_offset)
    follower.append_as_follower(memoryview(rest))
    await written(follower)
    assert len(follower.state.segments) > 3
    assert await read_values(follower, 0) == await read_values(leader, 0)
    assert follower.state.epochs.entries == leader.state.epochs.entries == [(0, 0), (1, 14), (2, 28)]
    assert follower.state.producers.dump() == leader.state.producers.dump()
    empty = follower.append_as_follower(memoryview(fetched[:30]))
    assert empty.last_offset < empty.first_offset
    setup.close()


async def test_a_follower_refuses_a_whole_fetch_with_old_offsets_or_a_bad_checksum(make: Make, tmp_path: Path) -> None:
    leader = await make().open()
    leader.append_as_leader(batch(b"a"), 0)
    leader.append_as_leader(batch(b"b"), 0)
    await written(leader)
    fetched = bytearray(await read_bytes(leader, 0))
    setup = LogSetup(str(tmp_path / "follower"))
    follower = await setup.open()
    fetched[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        follower.append_as_follower(memoryview(fetched))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE and follower.state.assigned_offset == 0
    fetched[-1] ^= 1
    follower.append_as_follower(memoryview(fetched))
    with pytest.raises(KafkaError) as caught:
        follower.append_as_follower(memoryview(fetched))
    assert caught.value.code == ErrorCode.INVALID_RECORD
    setup.close()


async def test_a_follower_follows_transaction_markers_in_its_producer_state(make: Make) -> None:
    log = await make().open()
    data = bytearray(batch(b"v", attributes=0x10, producer=(5, 0, 0)))
    marker = build_marker(EndTransactionMarker(ControlType.COMMIT, 3), producer_id=5, producer_epoch=0, timestamp=1)
    marker[:8] = (1).to_bytes(8, "big")
    log.append_as_follower(memoryview(bytes(data)))
    assert next(iter(log.state.producers.entries)).current_txn_first_offset == 0
    log.append_as_follower(memoryview(bytes(marker)))
    entry = next(iter(log.state.producers.entries))
    assert (entry.current_txn_first_offset, entry.coordinator_epoch) == (-1, 3)


async def test_flush_messages_moves_the_log_end_offset_after_the_sync(make: Make) -> None:
    log = await make(flush_messages=1, segment_bytes=300).open()
    for _ in range(10):
        log.append_as_leader(batch(b"v"), 0)
        await written(log)
        assert log.state.flushed_offset == log.state.log_end_offset == log.state.assigned_offset


async def test_a_follower_rolls_a_segment_behind_a_gap_that_no_index_can_express(make: Make, tmp_path: Path) -> None:
    """The leader's log was compacted, and the next record is more than 2^31 offsets on."""
    setup = make(index_interval_bytes=0)
    log = await setup.open()
    far = 3 * 2**31
    expected = []
    for base in (0, 1, far, far + 1, 3 * far):
        records = batch(b"%d" % base)
        PATCH.pack_into(records, 0, base, len(records) - 12, 0)
        log.append_as_follower(records)
        expected.append((base, b"%d" % base))
    await written(log)
    assert await read_values(log, 0) == expected
    assert [segment.base_offset for segment in log.state.segments] == [0, far, 3 * far]
    await log.closer.close()
    assert disagreements(tmp_path / "t-0") == []
    setup.crash()
    assert await read_values(await setup.open(), 2) == expected[2:]
    setup.crash()
    assert await read_values(await setup.open(is_clean=False), 0) == expected


async def test_a_follower_can_begin_more_than_2_to_the_31_offsets_later(make: Make) -> None:
    setup = make(index_interval_bytes=0)
    log = await setup.open()
    for base in (2**40, 2**40 + 1):
        records = batch(b"v")
        PATCH.pack_into(records, 0, base, len(records) - 12, 0)
        log.append_as_follower(records)
    await written(log)
    assert await read_values(log, 0) == [(2**40, b"v"), (2**40 + 1, b"v")]


async def test_a_follower_refuses_a_whole_fetch_with_an_unreadable_marker(tmp_path: Path) -> None:
    """Else the batch before the marker gets offsets, is never written, and stops the follower for ever."""
    setup = LogSetup(str(tmp_path))
    log = await setup.open()
    record = Record(1, 1, b"\x00", b"\x00")
    attributes = CONTROL_MASK | TRANSACTIONAL_MASK
    marker = build_batch([record], attributes=attributes, producer_id=5, producer_epoch=0)
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(memoryview(bytes(batch(b"a")) + bytes(marker)))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.state.assigned_offset == 0
    log.append_as_follower(batch(b"a"))
    await written(log)
    assert await read_values(log, 0) == [(0, b"a")]
    setup.close()
