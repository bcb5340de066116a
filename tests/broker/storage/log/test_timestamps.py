"""Offsets by timestamp."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla_broker.config import TopicValues
from ottla_broker.ports.workers import QuestionHandler
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.compression import Codec
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.record_jobs import LITTLE_BYTES, SEARCH_JOB
from ottla_broker.storage.log.record_search import SEARCHES_AT_A_TIME
from ottla_broker.storage.log.timestamps import TimestampAndOffset
from tests.broker.storage.logs import LogSetup, Make, batch, written


async def test_a_lookup_by_timestamp_finds_the_exact_record(make: Make) -> None:
    setup = make(segment_bytes=600, index_interval_bytes=100)
    log = await setup.open()
    for number in range(20):
        log.append_as_leader(batch(b"a", b"b", b"c", timestamp=1000 + 10 * number), 1 + number // 10)
    await written(log)
    end = log.state.log_end_offset
    assert await log.timestamps.offset_for_timestamp(0, end, setup.search) == TimestampAndOffset(1000, 0, 1)
    assert await log.timestamps.offset_for_timestamp(1001, end, setup.search) == TimestampAndOffset(1001, 1, 1)
    assert await log.timestamps.offset_for_timestamp(1003, end, setup.search) == TimestampAndOffset(1010, 3, 1)
    assert await log.timestamps.offset_for_timestamp(1152, end, setup.search) == TimestampAndOffset(1152, 47, 2)
    assert await log.timestamps.offset_for_timestamp(1193, end, setup.search) is None
    assert await log.timestamps.offset_for_timestamp(1152, 47, setup.search) is None
    assert await log.timestamps.max_timestamp(None, setup.search) == TimestampAndOffset(1192, 59, 2)
    assert await log.timestamps.max_timestamp(30, setup.search) == TimestampAndOffset(1092, 29, 1)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_a_batch_of_many_records_is_searched_in_a_worker(setup: LogSetup, codec: Codec) -> None:
    log = await setup.open()
    log.append_as_leader(batch(*(b"v" for _ in range(1000)), codec=codec, timestamp=1000), 0)
    await written(log)
    assert await log.timestamps.offset_for_timestamp(1000, 1000, setup.search) == TimestampAndOffset(1000, 0, 0)
    assert await log.timestamps.max_timestamp(None, setup.search) == TimestampAndOffset(1999, 999, 0)
    assert setup.workers.jobs == [SEARCH_JOB, SEARCH_JOB]


async def test_a_small_batch_that_decompresses_to_a_lot_is_searched_in_a_worker(setup: LogSetup) -> None:
    log = await setup.open()
    log.append_as_leader(batch(bytes(5_000_000), codec=Codec.ZSTD, timestamp=1000), 0)
    await written(log)
    assert log.state.size_bytes < LITTLE_BYTES
    assert await log.timestamps.offset_for_timestamp(1000, 1, setup.search) == TimestampAndOffset(1000, 0, 0)
    assert setup.workers.jobs == [SEARCH_JOB]


async def test_a_small_batch_is_searched_at_once(setup: LogSetup) -> None:
    log = await setup.open()
    log.append_as_leader(batch(b"a", b"b", codec=Codec.ZSTD, timestamp=1000), 0)
    await written(log)
    assert await log.timestamps.offset_for_timestamp(1000, 2, setup.search) == TimestampAndOffset(1000, 0, 0)
    assert setup.workers.jobs == []


async def test_a_lookup_in_a_batch_beyond_the_limit_of_decompression_fails_and_harms_nothing(make: Make) -> None:
    setup = make()
    setup.config = LogConfig(TopicValues({}), max_decompressed_bytes=1_000_000)
    log = await setup.open()
    log.append_as_leader(batch(bytes(1_000_000), codec=Codec.ZSTD, timestamp=1000), 0)
    log.append_as_leader(batch(b"after", timestamp=2000), 0)
    await written(log)
    with pytest.raises(KafkaError) as raised:
        await log.timestamps.offset_for_timestamp(1000, 2, setup.search)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert await log.timestamps.offset_for_timestamp(2000, 2, setup.search) == TimestampAndOffset(2000, 1, 0)
    assert not setup.owner.failures


async def test_few_batches_are_in_workers_at_a_time(setup: LogSetup) -> None:
    log = await setup.open()
    log.append_as_leader(batch(*(b"v" for _ in range(1000)), timestamp=1000), 0)
    await written(log)
    running: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue()
    most = 0

    def run(job: str, directory: str, *arguments: Any, answer: QuestionHandler | None = None) -> asyncio.Future[Any]:
        nonlocal most
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        running.put_nowait(future)
        most = max(most, running.qsize())
        return future

    setup.workers.run = run  # type: ignore[method-assign]
    count = SEARCHES_AT_A_TIME + 3
    lookups = [log.timestamps.offset_for_timestamp(1000, 1000, setup.search) for _ in range(count)]
    for _ in range(count):
        (await running.get()).set_result((True, (1000, 0)))
    assert set(await asyncio.gather(*lookups)) == {TimestampAndOffset(1000, 0, 0)}
    assert most <= SEARCHES_AT_A_TIME


async def test_the_largest_timestamp_below_a_bound_takes_one_search(setup: LogSetup) -> None:
    log = await setup.open()
    for number in range(30):
        log.append_as_leader(batch(*(b"v" for _ in range(100)), timestamp=1000 * number), 0)
    await written(log)
    assert await log.timestamps.max_timestamp(2500, setup.search) == TimestampAndOffset(24_099, 2499, 0)
    assert setup.workers.jobs == [SEARCH_JOB]
