"""Compacted logs driven through `LogManager` and `LogCleaner`: appends of a few keys, and cleanings all the time.

A process crash or a power loss between any two file calls, of the cleaning job in its worker process and of the broker
that takes its segments in; dead workers, truncations, deletions of records; recovery, by chance interrupted too. After
each start, and while it works, every partition must read as a log that was compacted (`Checker.compacted`): every
record at its offset, the last value of every key, a deletion for as long as delete.retention.ms, and nothing missing
from where compaction had no business. No `.cleaned`, `.swap` or `.deleted` file outlives a start.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable, Container, Coroutine
from dataclasses import dataclass, field
from typing import Any

from ottla_broker.config import TopicValues
from ottla_broker.jobs import JOBS
from ottla_broker.metrics import Metrics
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.cleaner.cleaner import CleanerSettings, LogCleaner
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs.directory_callbacks import DirectoryCallbacks
from ottla_broker.storage.log_dirs.log_manager import LogManager
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from simulation.batches import KeyedRecord, build_keyed_batch, read_keyed
from simulation.checker import Checker, Violation, Written
from simulation.clock import SimulatedClock
from simulation.disk import SimulatedDisk
from simulation.filesystem import DirectoryNode, DiskImage
from simulation.workers import SimulatedWorkers
from simulation.world import EPOCH_MS, Machine, SimulatedProcess, World

CLUSTER_ID = "simulated-cluster-id00"
_EXPECTED_RACES = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@dataclass
class CompactedLogModel:
    """What was written to one log."""

    partition: TopicPartition
    records: dict[int, Written] = field(default_factory=dict)
    end: int = 0
    committed: int = 0
    """The highest high watermark: no follower is cut below it, what it superseded may be compacted away."""
    start: int = 0
    start_asked: int = 0
    cut_asked: int | None = None
    sequences: dict[int, tuple[int, int, int, bytes]] = field(default_factory=dict)
    """Of each producer id: (next sequence, first and last offset of its last batch, that batch)."""
    safe: int = 0
    """Below this nothing was to be lost when the process died."""
    flushed: int = 0
    """The same, had the power gone."""

    def cut(self, end: int) -> None:
        self.records = {offset: record for offset, record in self.records.items() if offset < end}
        self.sequences = {producer: known for producer, known in self.sequences.items() if known[2] < end}
        self.end = min(self.end, end)


class _CompactionIncarnation:
    """One process: its log manager, its cleaner, and the driver's work in it."""

    def __init__(self, scenario: CompactionScenario, process: SimulatedProcess) -> None:
        self.scenario = scenario
        self.draw = scenario.draw
        self.process = process
        self.clock = SimulatedClock(process)
        self.workers = SimulatedWorkers(process, JOBS)
        self.metrics = Metrics()
        self.manager: LogManager
        self.cleaner: LogCleaner
        self.work: dict[int, asyncio.Task[None]] = {}
        self._next = 0

    async def open(self) -> None:
        config = self.scenario.config
        disks = self.process.machine.disks
        self.manager = LogManager(
            {path: SimulatedDisk(self.process, image, path) for path, image in disks.items()},
            self.clock,
            self.workers,
            LogManagerSettings(log_flush_offset_checkpoint_interval_ms=self.draw.choice((50, 60_000))),
            lambda topic: LogConfig(TopicValues(config)),
            DirectoryCallbacks(self._on_directory_failed),
        )
        settings = self.scenario.cleaner_settings
        self.cleaner = LogCleaner(self.manager, self.clock, self.workers, lambda: settings, self.metrics)
        await self.manager.inspect()
        await self.manager.claim(0, CLUSTER_ID)
        await self.manager.load()
        self._nothing_is_left_over()
        self.manager.start()
        self.cleaner.start()

    def _nothing_is_left_over(self) -> None:
        for image in self.process.machine.disks.values():
            for name, directory in sorted(image.root.entries.items()):
                if isinstance(directory, DirectoryNode):
                    left = [file for file in directory.entries if file.endswith((".cleaned", ".swap", ".deleted"))]
                    if left:
                        raise Violation(f"{name}: these outlived a start: {', '.join(sorted(left))}")

    def _on_directory_failed(self, path: str, error: Exception) -> None:
        where = "".join(traceback.format_exception(error))
        self.process.world.problem(f"the log directory {path} failed, but no fault was injected into it:\n{where}")

    def take_down_promises(self, *, is_power_loss: bool) -> None:
        """What the logs themselves say is written or flushed."""
        for mirror in self.scenario.mirrors.values():
            log = self.manager.get(mirror.partition) if hasattr(self, "manager") else None
            limit = mirror.end if mirror.cut_asked is None else min(mirror.end, mirror.cut_asked)
            if log is not None:
                mirror.safe = max(mirror.safe, log.state.log_end_offset)
                mirror.flushed = max(mirror.flushed, log.state.flushed_offset)
            mirror.flushed = min(mirror.flushed, limit)
            mirror.safe = mirror.flushed if is_power_loss else min(mirror.safe, limit)

    # -- the driver -------------------------------------------------------------------------------------------------

    async def drive(self, steps: int) -> None:
        actions: list[tuple[float, Callable[[CompactedLogModel, Log], Coroutine[Any, Any, None]]]] = [
            (14.0, self._append),
            (4.0, self._commit),
            (2.0, self._flush),
            (3.0, self._read),
            (1.0, self._verify_now),
            (0.7, self._truncate),
            (0.4, self._advance_start),
            (0.4, self._retain),
            (0.5, self._duplicate),
            (0.3, self._kill_workers),
        ]
        for _ in range(steps):
            mirror = self.draw.choice(list(self.scenario.mirrors.values()))
            log = self.manager.get(mirror.partition)
            if log is None:
                log = await self.manager.get_or_create(mirror.partition, self.scenario.topic_id(mirror), True)
            (action,) = self.draw.choices([act for _, act in actions], [weight for weight, _ in actions])
            if self.draw.random() < 0.4:
                self._background(action(mirror, log))
            else:
                await self._guarded(action(mirror, log))
            if self.draw.random() < 0.4:
                await asyncio.sleep(self.draw.choice((0.0, 0.0005, 0.01, 0.1)))
        for task in list(self.work.values()):
            await task
        self._no_partition_is_given_up()

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        self._next += 1
        key = self._next
        task = self.process.spawn(self._guarded(work), name=f"step-{key}")
        self.work[key] = task
        task.add_done_callback(lambda ended: self.work.pop(key, None))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except KafkaError as error:
            if error.code not in _EXPECTED_RACES:
                self.process.world.problem(f"a step failed: {error!r}")
        except (Violation, ValueError) as error:
            self.process.world.problem(str(error))

    def _no_partition_is_given_up(self) -> None:
        for partition, reason in self.cleaner.uncleanable.items():
            self.process.world.problem(f"{partition} was given up: {reason}")

    async def _append(self, mirror: CompactedLogModel, log: Log) -> None:
        if mirror.cut_asked is not None:
            return
        draw = self.draw
        now_s = self.process.world.loop.time()
        records = []
        for _ in range(draw.choice((1, 1, 2, 5))):
            key = b"k%d" % draw.randrange(self.scenario.key_count)
            records.append((key, None if draw.random() < 0.15 else self.scenario.take_name()))
        producer = draw.choice((-1, -1, 1000 + mirror.partition.partition, *mirror.sequences))
        sequence = mirror.sequences[producer][0] if producer in mirror.sequences else 0
        if producer >= 0 and producer not in mirror.sequences:
            producer = self.scenario.take_producer()  # never one that the log may remember
        data = build_keyed_batch(
            records,
            timestamp_ms=EPOCH_MS + int(now_s * 1000),
            padding=draw.choice((0, 20, 200)),
            producer_id=producer,
            base_sequence=sequence if producer >= 0 else -1,
        )
        info = log.append_as_leader(memoryview(bytearray(data)), 0, is_prepared=True)
        if info.is_duplicate or info.first_offset != mirror.end:
            raise Violation(f"{mirror.partition}: appended at {info!r}, expected {mirror.end}")
        for offset, (key, name) in enumerate(records, info.first_offset):
            mirror.records[offset] = Written(key, name, now_s)
        mirror.end = info.last_offset + 1
        if producer >= 0:
            mirror.sequences[producer] = (sequence + len(records), info.first_offset, info.last_offset, data)

    async def _duplicate(self, mirror: CompactedLogModel, log: Log) -> None:
        """A producer's last batch, sent again, gets its old offsets, compacted away or not."""
        if mirror.cut_asked is not None:
            return
        for _, first, last, data in mirror.sequences.values():
            if first >= max(log.state.log_start_offset, mirror.start_asked):
                info = log.append_as_leader(memoryview(bytearray(data)), 0, is_prepared=True)
                if (info.is_duplicate, info.first_offset, info.last_offset) != (True, first, last):
                    raise Violation(f"{mirror.partition}: the batch at {first}..{last}, sent again, gave {info!r}")

    async def _commit(self, mirror: CompactedLogModel, log: Log) -> None:
        """All replicas have everything."""
        log.state.maybe_advance_high_watermark(log.state.log_end_offset)
        mirror.committed = max(mirror.committed, log.state.high_watermark)

    async def _flush(self, mirror: CompactedLogModel, log: Log) -> None:
        await log.flusher.flush()

    async def _truncate(self, mirror: CompactedLogModel, log: Log) -> None:
        """As a follower does: down to an offset between what is committed and the end."""
        targets = [offset for offset in mirror.records if offset >= mirror.committed]
        if mirror.cut_asked is not None or not targets:
            return
        target = self.draw.choice(targets)
        mirror.cut_asked = target
        await log.truncation.truncate_to(target)
        mirror.cut(log.state.log_end_offset)
        mirror.cut_asked = None

    async def _advance_start(self, mirror: CompactedLogModel, log: Log) -> None:
        if mirror.cut_asked is not None or log.state.high_watermark <= log.state.log_start_offset:
            return
        target = self.draw.randrange(log.state.log_start_offset, log.state.high_watermark)
        mirror.start_asked = max(mirror.start_asked, target)
        await log.retention.advance_log_start_offset(target)
        mirror.start = max(mirror.start, target)

    async def _retain(self, mirror: CompactedLogModel, log: Log) -> None:
        await log.retention.delete_old_segments()

    async def _kill_workers(self, mirror: CompactedLogModel, log: Log) -> None:
        self.workers.kill_workers()

    async def _read(self, mirror: CompactedLogModel, log: Log) -> None:
        """Somewhere in the middle, while segments are being replaced."""
        if mirror.cut_asked is not None or log.state.high_watermark <= log.state.log_start_offset:
            return
        offset = self.draw.randrange(log.state.log_start_offset, log.state.high_watermark)
        truncations = log.state.truncation_count
        found, end = await _read(log, offset, self.draw.choice((1, 300, 5000)))
        if end <= offset and log.state.truncation_count == truncations and mirror.cut_asked is None:
            raise Violation(f"{mirror.partition}: nothing was read at {offset}, below {log.state.high_watermark}")
        for record in found:
            known = mirror.records.get(record.offset)
            if mirror.cut_asked is None and (known is None or (known.key, known.name) != (record.key, record.name)):
                raise Violation(f"{mirror.partition}: read {record}, it was written as {known}")

    async def _verify_now(self, mirror: CompactedLogModel, log: Log) -> None:
        """The whole log, as a consumer reads it while it is being compacted: what is committed when it begins."""
        if mirror.cut_asked is not None:
            return
        began = self.process.world.loop.time()
        written = dict(mirror.records)
        committed = log.state.high_watermark
        found = await _read_all(log, log.state.log_start_offset, committed)
        if log.state.log_start_offset > mirror.start_asked or log.state.high_watermark < committed:
            return
        changing = {record.key: None for offset, record in mirror.records.items() if offset >= committed}
        self.scenario.check(
            mirror, log, found, written, safe_end=committed, untouched_from=committed, now_s=began, changing=changing
        )


class CompactionScenario:
    """The logs of one machine over all their lives."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.draw = world.stream("scenario")
        self.machine: Machine = world.machine("broker-0", "10.0.0.1")
        self.checker = Checker()
        self.mirrors: dict[TopicPartition, CompactedLogModel] = {}
        self.names = 0
        self.producers = 0
        for number in range(self.draw.choice((1, 2))):
            path = f"/data/d{number}"
            self.machine.disks[path] = DiskImage(path, world.stream(f"image/{path}"))
        for number in range(self.draw.choice((1, 2))):
            partition = TopicPartition("t", number)
            self.mirrors[partition] = CompactedLogModel(partition)
        self.key_count = self.draw.choice((3, 10, 40))
        self.delete_retention_s = self.draw.choice((0.05, 1.0, 1000.0))
        self.config: dict[str, Any] = {
            "cleanup.policy": "compact",
            "segment.bytes": self.draw.choice((1500, 4000, 12_000)),
            "index.interval.bytes": self.draw.choice((100, 1000)),
            "min.cleanable.dirty.ratio": self.draw.choice((0.0, 0.0, 0.5)),
            "delete.retention.ms": int(self.delete_retention_s * 1000),
            "min.compaction.lag.ms": self.draw.choice((0, 0, 200)),
            "flush.messages": self.draw.choice((1, 2**63 - 1)),
            "file.delete.delay.ms": self.draw.choice((0, 1000)),
        }
        self.cleaner_settings = CleanerSettings(
            threads=self.draw.choice((1, 2)),
            backoff_ms=self.draw.choice((1, 20, 100)),
            dedupe_buffer_size=24 * self.draw.choice((4, 20, 1000)),
            io_buffer_size=self.draw.choice((100, 1000, 100_000)),
            io_max_bytes_per_second=self.draw.choice((1e300, 1e300, 50_000.0)),
        )

    def topic_id(self, mirror: CompactedLogModel) -> bytes:
        return random.Random(f"{self.world.seed}/{mirror.partition}").randbytes(16)

    def take_name(self) -> str:
        self.names += 1
        return f"r/{self.names}"

    def take_producer(self) -> int:
        self.producers += 1
        return self.producers

    async def run(self) -> Checker:
        for _ in range(self.draw.choice((2, 4, 8))):
            await self._one_life()
        return self.checker

    async def _one_life(self) -> None:
        life = _CompactionIncarnation(self, self.machine.start_process())
        process = life.process
        ended: asyncio.Future[str] = self.world.loop.create_future()
        ending = self.draw.choice(("crash", "crash", "power", "power", "stop"))

        def crash() -> None:
            if ended.done():
                return
            life.take_down_promises(is_power_loss=ending == "power")
            if ending == "power":
                self.machine.lose_power()
            else:
                self.machine.crash_process()
            ended.set_result(ending)

        async def main() -> None:
            await life.open()
            for mirror in self.mirrors.values():
                await self._verify(mirror, life)
            await life.drive(self.draw.choice((10, 60, 200)))
            if ending == "stop":
                await life.cleaner.close()
                await life.manager.close()
                for mirror in self.mirrors.values():
                    mirror.safe = mirror.flushed = mirror.end
                ended.set_result("stop")

        def done(task: asyncio.Task[None]) -> None:
            if ended.done() or task.cancelled():
                return
            error = task.exception()
            if error is not None:
                ended.set_exception(error)
            elif ending != "stop":
                crash()

        if ending != "stop":
            process.crash_after(self.draw.choice((3, 30, 300, 3000)) * self.draw.randrange(1, 10), crash)
        process.spawn(main(), name="main").add_done_callback(done, context=self.world.context)
        if await ended == "stop":
            process.kill()
        if self.world.problems:
            raise Violation("; ".join(self.world.problems))

    async def _verify(self, mirror: CompactedLogModel, life: _CompactionIncarnation) -> None:
        """Lays the log beside its mirror, and makes the mirror what was found."""
        log = life.manager.get(mirror.partition)
        if log is None:
            if mirror.safe > max(mirror.start, mirror.start_asked):
                raise Violation(f"{mirror.partition}: the log is gone; it held {mirror.safe} offsets")
            self.mirrors[mirror.partition] = CompactedLogModel(mirror.partition)
            return
        name = str(mirror.partition)
        start, end = log.state.log_start_offset, log.state.log_end_offset
        if not mirror.start <= start <= max(mirror.start, mirror.start_asked):
            raise Violation(f"{name}: starts at {start}, expected {mirror.start}..{mirror.start_asked}")
        if end < mirror.safe and start <= mirror.safe:
            raise Violation(f"{name}: ends at {end}, {mirror.safe} offsets were safe")
        found = await _read_all(log, start, end)
        self.check(
            mirror,
            log,
            found,
            mirror.records,
            safe_end=mirror.safe,
            untouched_from=log.state.segments[-1].base_offset,
            now_s=self.world.loop.time(),
        )
        self.checker.delivered_count += len(found)
        mirror.cut(end)
        mirror.end = end
        mirror.committed = min(mirror.committed, end)
        mirror.start = mirror.start_asked = start
        mirror.cut_asked = None
        mirror.safe = mirror.flushed = 0

    def check(
        self,
        mirror: CompactedLogModel,
        log: Log,
        found: list[KeyedRecord],
        written: dict[int, Written],
        *,
        safe_end: int,
        untouched_from: int,
        now_s: float,
        changing: Container[bytes] = (),
    ) -> None:
        self.checker.acknowledged_count += max(0, safe_end - log.state.log_start_offset)
        self.checker.compacted(
            (mirror.partition.topic, mirror.partition.partition),
            written,
            [(record.offset, record.key, record.name) for record in found],
            start=max(log.state.log_start_offset, mirror.start_asked),
            safe_end=safe_end,
            untouched_from=untouched_from,
            now_s=now_s,
            delete_retention_s=self.delete_retention_s,
            changing=changing,
        )


async def _read(log: Log, offset: int, max_bytes: int) -> tuple[list[KeyedRecord], int]:
    """(records, offset after them) of one read."""
    answer = log.read(offset, max_bytes, log.state.log_end_offset, True)
    found = await answer if isinstance(answer, asyncio.Future) else answer
    data = b""
    for chunk in found.chunks:
        data += chunk.read()
        chunk.release()
    records, end = read_keyed(data)
    return [record for record in records if record.offset >= offset], end


async def _read_all(log: Log, offset: int, end: int) -> list[KeyedRecord]:
    """Every record from `offset` up to `end`."""
    found: list[KeyedRecord] = []
    while offset < end:
        truncations = log.state.truncation_count
        records, after = await _read(log, offset, 4000)
        if after <= offset and log.state.truncation_count != truncations:
            continue  # a truncation of what follows came between
        if after <= offset:
            raise Violation(f"{log.state.topic_partition}: nothing was read at {offset}, below {end}")
        found += records
        offset = after
    return [record for record in found if record.offset < end]


async def run(world: World) -> Checker:
    return await CompactionScenario(world).run()
