"""A log on real files, and batches as producers send them, for the tests of storage."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.config import TopicValues
from ottla_broker.jobs import JOBS
from ottla_broker.ports.disk import Buffer, Disk
from ottla_broker.ports.workers import QuestionHandler
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.batch import batches
from ottla_broker.records.compression import Codec
from ottla_broker.records.ids import TopicPartition
from ottla_broker.records.record import Record, build_batch, decode_records
from ottla_broker.storage.files.transaction_index import AbortedTransaction
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.loading import open_log
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.record_search import RecordSearch
from ottla_broker.storage.log.recovery import Recovered, gap_limit_of, recover_log

PARTITION = TopicPartition("t", 0)


class ManualClock(LoopClock):
    """The loop's clock with a wall clock that the test sets."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        super().__init__(seed=1)
        self.wall_ms = wall_ms
        self.sleeps: list[float] = []
        """How long the code under test has slept, or sleeps, in seconds: a test waits until it waits."""

    async def sleep(self, delay_s: float) -> None:
        self.sleeps.append(delay_s)
        await super().sleep(delay_s)

    def now_ms(self) -> int:
        return self.wall_ms


class Owner:
    """Takes the place of the log manager and records its calls."""

    def __init__(self) -> None:
        self.failures: list[OSError] = []
        self.full: list[OSError] = []
        self.recovery_point_checkpoints = 0
        self.log_start_checkpoints = 0
        self.notices: list[str] = []

    def directory_failed(self, disk: Disk, error: OSError) -> None:
        self.failures.append(error)

    def directory_full(self, disk: Disk, error: OSError) -> None:
        self.full.append(error)

    async def checkpoint_recovery_points(self, disk: Disk) -> bool:
        self.recovery_point_checkpoints += 1
        return True

    async def checkpoint_log_start_offsets(self, disk: Disk) -> bool:
        self.log_start_checkpoints += 1
        return True

    async def checkpoint_high_watermarks_in(self, disk: Disk) -> bool:
        return True

    async def checkpoint_clean_offsets(self, disk: Disk) -> None:
        return None

    def notice(self, message: str) -> None:
        self.notices.append(message)


class InlineWorkers:
    """The Workers port without processes: runs a job in a task, and keeps its name."""

    def __init__(self) -> None:
        self.jobs: list[str] = []

    def run(
        self, job: str, directory: str, *arguments: Any, answer: QuestionHandler | None = None
    ) -> asyncio.Future[Any]:
        assert answer is None
        self.jobs.append(job)
        return asyncio.ensure_future(JOBS[job](None, *arguments))

    def close(self) -> None:
        """Nothing runs on."""


class LogSetup:
    """One partition's log in a directory, which can be closed, killed and opened again."""

    def __init__(self, path: str, config: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.config = LogConfig(TopicValues(config or {}))
        self.clock = ManualClock()
        self.owner = Owner()
        self.disk = DirectoryDisk(path)
        self.workers = InlineWorkers()
        self.search = RecordSearch(self.workers)
        self.recovered: Recovered | None = None

    async def open(
        self,
        *,
        is_clean: bool = True,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int | None = None,
        lost_power: bool = False,
        clean_offset: int = 0,
    ) -> Log:
        """Opens the log. `high_watermark`: from the checkpoint, by default the recovery point."""
        await self.disk.make_directory("t-0")

        async def recover(point: int) -> Recovered:
            gap_limit = gap_limit_of(clean_offset, lost_power=lost_power)
            self.recovered = await recover_log(self.disk, "t-0", point, self.config.index_interval_bytes, gap_limit)
            return self.recovered

        return await open_log(
            topic_partition=PARTITION,
            directory="t-0",
            disk=self.disk,
            clock=self.clock,
            owner=self.owner,
            config=self.config,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            high_watermark=recovery_point if high_watermark is None else high_watermark,
            is_clean=is_clean,
            recover=recover,
        )

    def crash(self) -> None:
        """A kill: the page cache stays, queued calls of the disk are lost. The next `open` is another process's."""
        self.disk.close()
        self.clock.cancel_all()
        self.clock = ManualClock(self.clock.wall_ms)
        self.disk = DirectoryDisk(self.path)

    def close(self) -> None:
        self.clock.cancel_all()
        self.disk.close()


Make = Callable[..., LogSetup]
"""Creates a log in the test's directory; topic configuration as keywords with underscores."""


def batch(
    *values: bytes,
    timestamp: int = 1_700_000_000_000,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] | None = None,
    attributes: int = 0,
) -> memoryview:
    """A producer's batch of one record per value. `producer`: (id, epoch, first sequence)."""
    records = [Record(number, timestamp + number, None, value) for number, value in enumerate(values or (b"v",))]
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    return memoryview(
        build_batch(
            records,
            codec=codec,
            attributes=attributes,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    )


TRANSACTIONAL = 0x10


def transactional(producer: tuple[int, int, int], *values: bytes, timestamp: int = 1_700_000_000_000) -> memoryview:
    """A `batch` in the producer's transaction."""
    return batch(*values, producer=producer, attributes=TRANSACTIONAL, timestamp=timestamp)


async def aborted(log: Log, lower: int, upper: int) -> list[AbortedTransaction]:
    """The aborted transactions with records in the range."""
    found = log.aborted.aborted_transactions(lower, upper)
    return found if isinstance(found, list) else await found


async def written(log: Log) -> None:
    """Waits until everything assigned is written."""
    await log.wait_until_written()


async def rolled(log: Log) -> None:
    """Waits until every segment that was rolled is synced, and the snapshot at its end is written."""
    if log.flusher.rolling is not None:
        await asyncio.wait([log.flusher.rolling])


async def read_bytes(log: Log, offset: int, max_bytes: int = 1 << 30, upper: int | None = None) -> bytes:
    """The bytes that a fetch sends."""
    result = log.read(offset, max_bytes, log.state.log_end_offset if upper is None else upper, True)
    if not isinstance(result, tuple):
        result = await result
    data = b"".join(chunk.read() for chunk in result.chunks)
    for chunk in result.chunks:
        chunk.release()
    assert len(data) == result.size
    return data


async def read_values(log: Log, offset: int, max_bytes: int = 1 << 30) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record from `offset` to the end, with as many reads as needed."""
    values: list[tuple[int, bytes | None]] = []
    while offset < log.state.log_end_offset:
        data = await read_bytes(log, offset, max_bytes)
        for position, header in batches(data):
            for record in decode_records(memoryview(data)[position : position + header.size]):
                if record.offset >= offset:
                    values.append((record.offset, record.value))
            after = header.next_offset
        offset = after
    return values


async def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "the condition does not become true"
        await asyncio.sleep(0.002)


def refused(log: Log, records: memoryview) -> ErrorCode:
    """The error code with which a leader's log refuses the batch."""
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(records, 0)
    assert caught.value.message
    return caught.value.code


class FullDisk(DirectoryDisk):
    """Real, but for files whose names end with `suffix`: they find no room while it `is_full`."""

    is_full = False

    def __init__(self, path: str, suffix: str) -> None:
        super().__init__(path)
        self._suffix = suffix

    def append_to(self, name: str, buffers: Sequence[Buffer]) -> asyncio.Future[int]:
        if not self.is_full or not name.endswith(self._suffix):
            return super().append_to(name, buffers)
        refusal: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        refusal.set_exception(OSError(errno.ENOSPC, "No space left on device", name))
        return refusal
