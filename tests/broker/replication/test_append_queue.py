"""The order of a partition's batches while some of them are in workers; here the test says when a worker is done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.metrics import Metrics
from ottla_broker.ports.workers import QuestionHandler
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records import legacy
from ottla_broker.records.compression import Codec
from ottla_broker.records.record import Record, build_batch
from ottla_broker.replication.append_queue import LITTLE_BYTES, AppendQueues
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.refused_batches import RefusedBatches
from ottla_broker.storage.log.append_checks import PreparationNeeded
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.record_jobs import PREPARE_JOB, prepare_records
from tests.broker.storage.logs import PARTITION, LogSetup, read_values, written

NOW = 1_700_000_000_000


class HeldWorkers:
    """The Workers port with jobs that run when the test lets them."""

    def __init__(self) -> None:
        self.jobs: list[tuple[asyncio.Future[Any], tuple[Any, ...]]] = []

    def run(
        self, job: str, directory: str, *arguments: Any, answer: QuestionHandler | None = None
    ) -> asyncio.Future[Any]:
        assert job == PREPARE_JOB and answer is None
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.jobs.append((future, arguments))
        return future

    def close(self) -> None:
        for future, _ in self.jobs:
            future.cancel()

    async def finish(self, number: int) -> None:
        future, arguments = self.jobs[number]
        no_disk: Any = None
        future.set_result(await prepare_records(no_disk, *arguments))
        await asyncio.sleep(0)  # the future's callbacks come a turn later

    async def die(self, number: int) -> None:
        self.jobs[number][0].set_exception(RuntimeError("the worker process died"))
        await asyncio.sleep(0)


class Setup:
    def __init__(self, log: Log, workers: HeldWorkers, around: LogSetup) -> None:
        context: Any = SimpleNamespace(refused_batches=RefusedBatches(lambda: 0))
        self.log = log
        self.workers = workers
        self.partition = Partition(context, PARTITION, log, bytes(16))
        self.partition.is_leader = True
        log.state.on_append = None
        self.metrics = Metrics()
        self.queues = AppendQueues(workers, around.clock, self.metrics)
        self.outcomes: list[tuple[str, object]] = []

    def produce(self, name: str, records: bytes | bytearray) -> None:
        """As the produce handler does."""
        try:
            self.outcomes.append((name, self.partition.append(memoryview(records), 1).first_offset))
        except PreparationNeeded:
            self.queues.add(self.partition, memoryview(records), lambda outcome: self._ready(name, outcome))

    def _ready(self, name: str, outcome: memoryview | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            self.outcomes.append((name, outcome.code))
            return
        try:
            self.outcomes.append((name, self.partition.append(outcome, 1, True).first_offset))
        except KafkaError as error:
            self.outcomes.append((name, error.code))


@pytest.fixture
async def gzip(tmp_path: Path) -> AsyncIterator[Setup]:
    """A topic that stores gzip."""
    around = LogSetup(str(tmp_path), {"compression.type": "gzip"})
    workers = HeldWorkers()
    yield Setup(await around.open(), workers, around)
    workers.close()
    around.close()


def large(value: bytes, codec: Codec = Codec.NONE, **fields: Any) -> bytearray:
    return build_batch([Record(0, NOW, None, value + bytes(LITTLE_BYTES))], codec=codec, **fields)


def small(value: bytes, codec: Codec = Codec.NONE, **fields: Any) -> bytearray:
    return build_batch([Record(0, NOW, None, value)], codec=codec, **fields)


async def test_a_little_work_is_done_at_once(gzip: Setup) -> None:
    gzip.produce("a", small(b"a"))
    gzip.produce("b", small(b"b", Codec.GZIP))
    assert gzip.outcomes == [("a", 0), ("b", 1)] and not gzip.workers.jobs


async def test_batches_are_appended_in_the_order_they_came(gzip: Setup) -> None:
    gzip.produce("a", large(b"a"))
    gzip.produce("b", small(b"b", Codec.GZIP))  # nothing to prepare, but a is before it
    gzip.produce("c", large(b"c"))
    gzip.produce("d", small(b"d"))
    assert gzip.outcomes == [] and len(gzip.queues) == 4
    await gzip.workers.finish(1)
    assert gzip.outcomes == []
    await gzip.workers.finish(0)
    assert gzip.outcomes == [("a", 0), ("b", 1), ("c", 2)]
    gzip.produce("e", small(b"e", Codec.GZIP))
    assert gzip.outcomes[-1] == ("c", 2), "d is still in a worker"
    await gzip.workers.finish(2)
    assert gzip.outcomes[3:] == [("d", 3), ("e", 4)] and len(gzip.queues) == 0
    gzip.produce("f", small(b"f", Codec.GZIP))
    assert gzip.outcomes[-1] == ("f", 5), "straight to the log again"
    await written(gzip.log)
    assert [value[:1] for _, value in await read_values(gzip.log, 0)] == [b"a", b"b", b"c", b"d", b"e", b"f"]


async def test_a_refused_batch_lets_the_next_one_go(gzip: Setup) -> None:
    gzip.produce("bad", legacy.build_message_set([Record(0, NOW, None, bytes(LITTLE_BYTES))], 1)[:-1])
    gzip.produce("good", small(b"b"))
    await gzip.workers.finish(0)
    await gzip.workers.finish(1)
    assert gzip.outcomes == [("bad", ErrorCode.CORRUPT_MESSAGE), ("good", 0)]


async def test_sequences_are_checked_at_the_append(gzip: Setup) -> None:
    producer = {"producer_id": 5, "producer_epoch": 0}
    gzip.produce("first", large(b"a", base_sequence=0, **producer))
    gzip.produce("second", small(b"b", Codec.GZIP, base_sequence=1, **producer))
    gzip.produce("again", large(b"a", base_sequence=0, **producer))
    gzip.produce("gap", small(b"c", Codec.GZIP, base_sequence=7, **producer))
    await gzip.workers.finish(1)
    await gzip.workers.finish(0)
    assert gzip.outcomes == [
        *(("first", 0), ("second", 1), ("again", 0)),
        ("gap", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ]


async def test_a_worker_that_dies_is_tried_once_more(gzip: Setup) -> None:
    gzip.produce("a", large(b"a"))
    await gzip.workers.die(0)
    assert gzip.outcomes == [] and len(gzip.workers.jobs) == 2
    await gzip.workers.finish(1)
    gzip.produce("b", large(b"b"))
    await gzip.workers.die(2)
    await gzip.workers.die(3)
    assert gzip.outcomes == [("a", 0), ("b", ErrorCode.UNKNOWN_SERVER_ERROR)]


async def test_a_partition_that_is_led_by_another_meanwhile_takes_nothing(gzip: Setup) -> None:
    gzip.produce("a", large(b"a"))
    gzip.partition.is_leader = False
    await gzip.workers.finish(0)
    assert gzip.outcomes == [("a", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert gzip.log.state.assigned_offset == 0


async def test_a_broker_that_stops_tells_so(gzip: Setup) -> None:
    gzip.produce("a", large(b"a"))
    gzip.workers.close()
    await asyncio.sleep(0)
    assert gzip.outcomes == [("a", ErrorCode.NOT_LEADER_OR_FOLLOWER)]


async def test_a_small_batch_that_grows_goes_to_a_worker(gzip: Setup) -> None:
    gzip.produce("bomb", build_batch([Record(0, NOW, None, bytes(5_000_000))], codec=Codec.ZSTD))
    assert len(gzip.workers.jobs) == 1
    await gzip.workers.finish(0)
    assert gzip.outcomes == [("bomb", 0)]


async def test_old_formats_are_counted(gzip: Setup) -> None:
    gzip.produce("old", legacy.build_message_set([Record(0, NOW, None, b"v")], 1))
    name = "kafka_server_brokertopicmetrics_producemessageconversions"
    assert gzip.metrics.counter(name, "", topic="t").value == 1
