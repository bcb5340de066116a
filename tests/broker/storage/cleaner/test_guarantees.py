"""What Apache Kafka's documentation guarantees to consumers of a compacted topic ("Log Compaction")."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla_broker.config import TopicValues
from ottla_broker.groups.offsets import CommittedOffset
from ottla_broker.groups.records import OffsetKey, offset_record, offset_tombstone, read_key
from ottla_broker.records.compression import Codec
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.cleaner.cleaner import CleanerSettings
from ottla_broker.storage.log.config import LogConfig
from tests.broker.storage.cleaner.cleaning import (
    DAY_MS,
    START_MS,
    T0,
    TOPIC_ID,
    Seen,
    Storage,
    append,
    close_segment,
    consume,
    keyed,
    pairs,
)
from tests.broker.storage.logs import written


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    made = Storage(tmp_path)
    yield made
    made.close()


async def test_compaction_keeps_the_last_value_of_a_key(storage: Storage) -> None:
    log = await storage.start()
    for address in (b"bill@microsoft.com", b"bill@gatesfoundation.org", b"bill@gmail.com"):
        append(log, keyed((b"123", address)))
    await storage.clean(log)
    assert pairs(await consume(log)) == [(2, b"123", b"bill@gmail.com")]


async def test_compaction_keeps_the_offsets_of_the_records_that_it_keeps(storage: Storage) -> None:
    """The figure of the documentation: of eleven records six are kept, with their offsets."""
    log = await storage.start()
    for number, key in enumerate((b"K1", b"K2", b"K1", b"K1", b"K3", b"K2", b"K4", b"K5", b"K5", b"K2", b"K6"), 1):
        append(log, keyed((key, b"V%d" % number)))
    await storage.clean(log)
    assert pairs(await consume(log)) == [
        (3, b"K1", b"V4"),
        (4, b"K3", b"V5"),
        (6, b"K4", b"V7"),
        (8, b"K5", b"V9"),
        (9, b"K2", b"V10"),
        (10, b"K6", b"V11"),
    ]


@pytest.mark.parametrize("codec", list(Codec))
async def test_kept_records_do_not_change(storage: Storage, codec: Codec) -> None:
    """The last value of each key, order, offsets, timestamps, headers; in every codec."""
    log = await storage.start()
    headers = [("trace", b"\x01\x02"), ("empty", None)]
    for number in range(30):
        batch = keyed(
            *((b"k%d" % (number * 7 % 11 + step), b"v%d.%d" % (number, step) * 9) for step in range(5)),
            timestamp=START_MS + number * 1000,
            codec=codec,
            headers=headers,
        )
        append(log, batch)
    before = await consume(log)
    await storage.clean(log)
    last = {one.key: one for one in before}
    assert await consume(log) == sorted(last.values())


async def test_a_consumer_at_the_end_of_the_log_gets_every_record(storage: Storage) -> None:
    """Records in the active segment, or younger than min.compaction.lag.ms, are not compacted."""
    storage.values = {**storage.values, "min.compaction.lag.ms": 60_000}
    log = await storage.start()
    for number in range(10):
        append(log, keyed((b"k", b"%d" % number), timestamp=START_MS + number * 10_000))
        await close_segment(log)
    storage.pass_time(100_000)
    await storage.clean(log)
    seen = await consume(log)
    assert [one.offset for one in seen] == [4, 5, 6, 7, 8, 9]  # 4 is 60 s old: the last record of the closed part
    append(log, keyed((b"k", b"active"), (b"k", b"active too")))
    storage.pass_time(10 * DAY_MS)
    while await storage.cleaner.clean_dirtiest() is not None:
        pass
    assert [one.offset for one in await consume(log)] == [9, 10, 11]


async def test_every_removed_offset_stays_a_valid_position(storage: Storage) -> None:
    """After offsets 36 and 37 are removed, reads from 36, 37 or 38 begin with 38."""
    log = await storage.start()
    for number in range(36):
        append(log, keyed((b"key %d" % number, b"v")))
    append(log, keyed((b"a", b"36")))
    append(log, keyed((b"a", b"37")))
    append(log, keyed((b"a", b"38")))
    append(log, keyed((b"b", b"39")))
    await storage.clean(log)
    for position in (36, 37, 38):
        assert pairs(await consume(log, position)) == [(38, b"a", b"38"), (39, b"b", b"39")]


async def test_a_tombstone_deletes_its_key_and_is_deleted_after_delete_retention_ms(storage: Storage) -> None:
    """A consumer that reads from the start within delete.retention.ms of the compaction sees every deletion."""
    log = await storage.start()
    append(log, keyed((b"gone", b"1"), (b"stays", b"2")))
    append(log, keyed((b"gone", None), (b"other", b"3"), timestamp=START_MS + 500))
    await storage.clean(log)
    expected = [
        Seen(1, b"stays", b"2", START_MS + 1),
        Seen(2, b"gone", None, START_MS + 500),
        Seen(3, b"other", b"3", START_MS + 501),
    ]
    assert await consume(log) == expected
    storage.pass_time(DAY_MS - 1)
    append(log, keyed((b"more", b"4")))
    await storage.clean(log)
    assert await consume(log) == [*expected, Seen(4, b"more", b"4", START_MS)]
    storage.pass_time(1)
    append(log, keyed((b"more", b"5")))
    await storage.clean(log)
    assert pairs(await consume(log)) == [(1, b"stays", b"2"), (3, b"other", b"3"), (5, b"more", b"5")]


async def test_delete_retention_ms_counts_from_the_first_cleaning_of_a_tombstone(storage: Storage) -> None:
    log = await storage.start()
    append(log, keyed((b"gone", None), timestamp=START_MS - 30 * DAY_MS))
    await storage.clean(log)
    assert pairs(await consume(log)) == [(0, b"gone", None)]


async def test_expired_committed_offsets_are_removed_from_the_disk(storage: Storage) -> None:
    """A tombstone marks an expired offset as deleted, and compaction removes both."""
    storage.values = {**storage.values, "delete.retention.ms": 1000}
    log = await storage.start()
    expired, kept = TopicPartition("orders", 0), TopicPartition("payments", 0)
    committed = CommittedOffset(41, -1, "by hand", START_MS, -1)
    for record in (*(offset_record("g", one, committed) for one in (expired, kept)), offset_tombstone("g", expired)):
        append(log, keyed((record.key, record.value)))
    await storage.clean(log)
    assert [read_key(one.key) for one in await consume(log) if one.key] == [
        OffsetKey("g", kept),
        OffsetKey("g", expired),  # the tombstone, for whoever reads from the start
    ]
    storage.pass_time(1001)
    append(log, keyed((b"more", b"records")))
    await storage.clean(log)
    await log.flusher.flush()
    files = [file.read_bytes() for file in (storage.path / "t-0").glob("*.log")]
    assert any(b"payments" in data for data in files)
    assert not any(b"orders" in data for data in files)


async def test_a_record_is_compacted_within_max_compaction_lag_ms(storage: Storage) -> None:
    """Older records are compacted although the log is not dirty enough, and no segment stays open longer (KIP-354)."""
    storage.values = {**storage.values, "min.cleanable.dirty.ratio": 0.9, "max.compaction.lag.ms": 60_000}
    log = await storage.start()
    append(log, keyed(*((b"k%d" % number, bytes(100)) for number in range(100))))
    await close_segment(log)
    storage.pass_time(60_001)
    await storage.clean(log)
    append(log, keyed((b"k0", b"again"), timestamp=storage.wall_ms))
    storage.pass_time(60_000)
    await storage.clean(log)
    assert len(await consume(log)) == 101, "not dirty enough, and not old enough"
    storage.pass_time(1)
    await storage.clean(log)
    assert len(await consume(log)) == 100
    append(log, keyed((b"k1", b"of an open segment"), timestamp=storage.wall_ms))
    open_since = log.state.segments[-1].base_offset
    storage.pass_time(60_001)
    append(log, keyed((b"k1", b"rolls it"), timestamp=storage.wall_ms))
    await written(log)
    assert log.state.segments[-1].base_offset > open_since


async def test_a_compaction_takes_no_more_space_than_one_additional_segment(tmp_path: Path) -> None:
    """Segments are written one by one, and the segments that one replaces are deleted before the next one."""
    storage = Storage(tmp_path, segment_bytes=20_000)
    log = await storage.start()
    for number in range(400):
        append(log, keyed((b"k%d" % number, bytes(1000))))
    await close_segment(log)
    before = _bytes_of(tmp_path)
    peaks: list[int] = []
    run = storage.workers.run

    def watching(job: str, directory: str, *arguments: object, answer: object = None) -> object:
        async def watched(question: object) -> object:
            peaks.append(_bytes_of(tmp_path))
            assert answer is not None
            return await answer(question)  # type: ignore[operator]

        return run(job, directory, *arguments, answer=watched)

    storage.workers.run = watching
    await storage.clean(log)
    assert len(peaks) >= 20
    assert max(peaks) <= before + 20_000 + 200
    assert len(await consume(log)) == 400
    storage.close()


def _bytes_of(path: Path) -> int:
    return sum(file.stat().st_size for file in (path / "t-0").iterdir() if file.suffix != ".snapshot")


async def test_a_broker_has_topics_with_deletion_and_topics_with_compaction(storage: Storage) -> None:
    """cleanup.policy is a configuration of the topic."""
    storage.config["plain"] = LogConfig(TopicValues({"cleanup.policy": "delete", "min.cleanable.dirty.ratio": 0.0}))
    log = await storage.start()
    plain = await storage.manager.get_or_create(TopicPartition("plain", 0), TOPIC_ID, True)
    for one in (log, plain):
        for number in range(5):
            append(one, keyed((b"k", b"%d" % number)))
        await close_segment(one)
    await storage.clean(log)
    assert pairs(await consume(log)) == [(4, b"k", b"4")]
    assert len(await consume(plain)) == 5


async def test_a_topic_can_have_compaction_and_deletion(storage: Storage) -> None:
    """cleanup.policy=compact,delete: old segments are deleted, the others are compacted."""
    storage.config["t"] = LogConfig(
        TopicValues({"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 0.0, "retention.ms": 10 * DAY_MS})
    )
    log = await storage.start()
    for day in (0, 1, 8, 9):
        append(log, keyed((b"k", b"old"), (b"day %d" % day, b"v"), timestamp=START_MS + day * DAY_MS))
        await close_segment(log)
    storage.pass_time(12 * DAY_MS)
    assert await log.retention.delete_old_segments() == 2
    await storage.clean(log)
    assert log.state.log_start_offset == 4
    assert [(one.offset, one.key) for one in await consume(log)] == [(5, b"day 8"), (6, b"k"), (7, b"day 9")]


async def test_a_log_is_cleaned_in_several_rounds_when_its_keys_do_not_fit_the_map(tmp_path: Path) -> None:
    """A dirty range with more keys than log.cleaner.dedupe.buffer.size holds is cleaned in several rounds."""
    storage = Storage(tmp_path, CleanerSettings(dedupe_buffer_size=24 * 50, io_buffer_load_factor=0.9))
    log = await storage.start()
    for round_number in range(3):
        for number in range(200):
            append(log, keyed((b"k%d" % number, b"%d" % round_number)))
    await storage.clean(log)
    assert pairs(await consume(log)) == [(400 + number, b"k%d" % number, b"2") for number in range(200)]
    assert storage.metrics.counter("ottla_log_cleaner_runs", "Logs cleaned.").value >= 13
    storage.close()


async def test_records_without_a_key_are_dropped_and_reported(storage: Storage) -> None:
    log = await storage.start()
    log.configure(LogConfig(TopicValues({"cleanup.policy": "delete"})))
    append(log, keyed((None, b"nameless"), (b"k", b"v")))
    log.configure(LogConfig(TopicValues(storage.values)))
    await storage.clean(log)
    assert pairs(await consume(log)) == [(1, b"k", b"v")]
    assert any("1 records without a key" in notice for notice in storage.notices)


async def test_the_clean_offset_survives_a_restart(storage: Storage) -> None:
    log = await storage.start()
    append(log, keyed((b"k", b"1"), (b"k", b"2")))
    await storage.clean(log)
    assert (storage.path / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"
    log = await storage.again()
    assert log.state.clean_offset == 2
    assert await storage.cleaner.clean_dirtiest() is None
    await storage.manager.delete(T0)
    assert (storage.path / "cleaner-offset-checkpoint").read_text() == "0\n0\n"


async def test_a_future_replica_is_clean_no_further_than_it_is_durable(storage: Storage) -> None:
    """Below the clean offset recovery takes a gap between two segments for one that compaction has left."""
    log = await storage.start()
    append(log, keyed((b"k", b"1"), (b"k", b"2")))
    await storage.clean(log)
    await storage.cleaner.abort_and_pause(T0)
    await storage.manager.delete(T0)
    future = await storage.manager.get_or_create(T0, TOPIC_ID, True)
    append(future, keyed((b"k", b"1")))
    await future.flusher.flush()
    append(future, keyed((b"k", b"2")))
    await written(future)
    storage.cleaner.alter_checkpoint_dir(T0, log.state.disk, future.state.disk)
    assert (future.state.log_end_offset, future.state.clean_offset) == (2, 1)


@pytest.mark.parametrize("is_clean", [True, False])
async def test_records_after_a_truncation_are_dirty_after_a_restart(storage: Storage, is_clean: bool) -> None:
    """After an unclean election: else a key whose tombstone is lost by the truncation keeps its old value for ever."""
    log = await storage.start()
    append(log, keyed((b"gone", b"1")))
    append(log, keyed((b"a", b"1"), (b"b", b"1")))
    await storage.clean(log)
    await log.truncation.truncate_to(1)
    append(log, keyed((b"gone", None)))
    append(log, keyed((b"a", b"2"), (b"b", b"2")))
    await close_segment(log)
    log = await storage.again(is_clean=is_clean)
    log.state.maybe_advance_high_watermark(log.state.log_end_offset)
    await storage.clean(log)
    assert pairs(await consume(log)) == [(1, b"gone", None), (2, b"a", b"2"), (3, b"b", b"2")]
    storage.pass_time(DAY_MS)
    append(log, keyed((b"a", b"3")))
    await storage.clean(log)
    assert pairs(await consume(log)) == [(3, b"b", b"2"), (4, b"a", b"3")]
