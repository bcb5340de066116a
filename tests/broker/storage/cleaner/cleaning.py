"""A broker's storage with its cleaner, and batches as producers send them, for the tests of compaction."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ottla_broker.adapters.direct_disk import DirectDisk
from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.config import TopicValues
from ottla_broker.jobs import JOBS
from ottla_broker.metrics import Metrics
from ottla_broker.ports.workers import QuestionHandler
from ottla_broker.records.batch import batches
from ottla_broker.records.compression import Codec
from ottla_broker.records.ids import TopicPartition
from ottla_broker.records.record import Record, build_batch, decode_records
from ottla_broker.storage.cleaner.cleaner import CleanerSettings, LogCleaner
from ottla_broker.storage.log.append_checks import AppendInfo
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.directory_callbacks import DirectoryCallbacks
from ottla_broker.storage.log_dirs.log_manager import LogManager
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from tests.broker.storage.logs import ManualClock, read_bytes, written

T0 = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))
DAY_MS = 86_400_000
START_MS = 1_700_000_000_000

Pair = tuple[bytes | None, bytes | None]


class Seen(NamedTuple):
    """A record as a consumer gets it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


class LoopWorkers:
    """The Workers port without processes: jobs run on the event loop, each with a Disk of its own."""

    def run(
        self, job: str, directory: str, *arguments: Any, answer: QuestionHandler | None = None
    ) -> asyncio.Future[Any]:
        async def work() -> Any:
            disk = DirectDisk(directory)
            try:
                return await JOBS[job](disk, *(arguments if answer is None else (answer, *arguments)))
            finally:
                disk.close()

        return asyncio.ensure_future(work())

    def close(self) -> None:
        pass


class Storage:
    """The logs of a broker with one log directory, and their cleaner; `again` is the process after a kill."""

    def __init__(self, path: Path, settings: CleanerSettings | None = None, **config: Any) -> None:
        self.path = path
        self.settings = settings or CleanerSettings(dedupe_buffer_size=1 << 20)
        values = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0}
        values |= {key.replace("_", "."): value for key, value in config.items()}
        self.config: dict[str, LogConfig] = {}
        self.values: Mapping[str, Any] = values
        self.wall_ms = START_MS
        self.notices: list[str] = []
        self.failures: list[tuple[str, int | None]] = []
        self._make()

    def _make(self) -> None:
        self.clock = ManualClock(self.wall_ms)
        self.disk = DirectoryDisk(str(self.path))
        self.workers: Any = LoopWorkers()
        self.metrics = Metrics()
        self.manager = LogManager(
            {str(self.path): self.disk},
            self.clock,
            self.workers,
            LogManagerSettings(),
            lambda topic: self.config.get(topic) or LogConfig(TopicValues(self.values)),
            DirectoryCallbacks(
                lambda path, error: self.failures.append((path, error.errno)), notice=self.notices.append
            ),
        )
        self.cleaner = LogCleaner(
            self.manager,
            self.clock,
            self.workers,
            lambda: self.settings,
            self.metrics,
            on_notice=self.notices.append,
        )

    async def start(self) -> Log:
        """Loads the logs; returns the log of t-0, which it creates when there is none."""
        await self.manager.inspect()
        await self.manager.claim(1, "cluster-A")
        await self.manager.load()
        return await self.manager.get_or_create(T0, TOPIC_ID, True)

    async def again(self, *, is_clean: bool = False) -> Log:
        if is_clean:
            await self.manager.close()
        self.close()
        self._make()
        return await self.start()

    def close(self) -> None:
        self.clock.cancel_all()
        self.disk.close()

    def pass_time(self, ms: int) -> None:
        self.wall_ms += ms
        self.clock.wall_ms = self.wall_ms

    async def clean(self, log: Log) -> None:
        """Closes the active segment and compacts until the log is clean."""
        await close_segment(log)
        while await self.cleaner.clean_dirtiest() is not None:
            pass

    def files(self, directory: str = "t-0") -> list[str]:
        return sorted(entry.name for entry in (self.path / directory).iterdir())


def append(log: Log, batch: memoryview) -> AppendInfo:
    """Appends as the produce handler does after it has checked the batch's keys."""
    return log.append_as_leader(batch, 0, is_prepared=True)


def extents(path: Path, directory: str = "t-0") -> list[tuple[int, int]]:
    """(base offset, offset behind the last batch) of every segment's file, in order."""
    found = []
    for file in sorted((path / directory).glob("*.log")):
        base = int(file.stem)
        ends = [header.next_offset for _, header in batches(memoryview(file.read_bytes()))]
        found.append((base, ends[-1] if ends else base))
    return found


async def close_segment(log: Log) -> None:
    """Rolls and flushes the active segment, and commits all of it."""
    await written(log)
    if log.state.segments[-1].size:
        log.flusher.roll()
    await log.flusher.flush()
    log.state.maybe_advance_high_watermark(log.state.log_end_offset)


def keyed(
    *pairs: Pair,
    timestamp: int = START_MS,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] | None = None,
    attributes: int = 0,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> memoryview:
    """A producer's batch of (key, value) pairs. `producer`: (id, epoch, first sequence)."""
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    records = [
        Record(number, timestamp + number, key, value, tuple(headers)) for number, (key, value) in enumerate(pairs)
    ]
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


async def consume(log: Log, offset: int | None = None) -> list[Seen]:
    """Every record that a consumer gets from `offset` on, without control records."""
    await written(log)
    position = log.state.log_start_offset if offset is None else offset
    start = position
    seen: list[Seen] = []
    while position < log.state.log_end_offset:
        data = await read_bytes(log, position, 500)
        found = list(batches(data))
        assert found, f"nothing at {position} of {log.state.log_end_offset}"
        for at, header in found:
            assert header.next_offset > position
            position = header.next_offset
            if not header.is_control:
                for record in decode_records(data[at : at + header.size]):
                    if record.offset >= start:
                        seen.append(Seen(record.offset, record.key, record.value, record.timestamp, record.headers))
    return seen


async def headers_of(log: Log) -> list[Any]:
    """Every batch header of the log."""
    found = []
    position = log.state.log_start_offset
    while position < log.state.log_end_offset:
        data = await read_bytes(log, position)
        for _, header in batches(data):
            found.append(header)
            position = header.next_offset
    return found


def pairs(seen: Sequence[Seen]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(one.offset, one.key, one.value) for one in seen]
