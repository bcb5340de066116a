"""Logs driven directly through `LogManager`: no network, so that many crashes fit into one seed.

Appends as leader and as follower, rolls, flushes, truncations, retention, deletions of records and of topics; a process
crash or a power loss with torn writes between any two file calls, recovery (itself interrupted by chance), and then the
contents against a model of what must be there:

* process crash: every record below the log end offset (written) as it was;
* power loss: every record below the flushed offset as it was, with flush.messages=1 every one below the log end
  offset; whatever is above it is one that once stood there;
* leader epochs and the producers' state agree with the records that are left;
* a confirmed log start offset does not come back, a deleted topic does not after a process crash.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from ottla_broker.config import TopicValues
from ottla_broker.jobs import JOBS
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.record_search import RecordSearch
from ottla_broker.storage.log_dirs.directory_callbacks import DirectoryCallbacks
from ottla_broker.storage.log_dirs.log_manager import LogManager
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from simulation.batches import Batch, build_batch, read_batches
from simulation.checker import Checker, Violation
from simulation.clock import SimulatedClock
from simulation.disk import SimulatedDisk
from simulation.filesystem import DirectoryNode, DiskImage
from simulation.flushed import durable_batches, segment_bytes
from simulation.workers import SimulatedWorkers
from simulation.world import EPOCH_MS, Machine, SimulatedProcess, World

CLUSTER_ID = "simulated-cluster-id00"
WRITTEN_WITHIN_S = 30.0
Action = Callable[["LogModel", Log], Coroutine[Any, Any, None]]
_EXPECTED_RACES = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@dataclass
class LogModel:
    """What must stand in one log."""

    partition: TopicPartition
    batches: list[Batch] = field(default_factory=list)
    ever: dict[int, dict[str, None]] = field(default_factory=dict)
    """Every name that any offset ever had: what a power loss may bring back above the flushed offset."""
    epoch: int = 0
    start: int = 0
    """Confirmed log start offset."""
    start_asked: int = 0
    retentions: int = 0
    """So many are under way, each of which goes by the high watermark of every moment."""
    cut_asked: int | None = None
    """Target of a truncation under way."""
    sequences: dict[int, int] = field(default_factory=dict)
    """Next sequence of each producer id."""
    written: int = 0
    flushed: int = 0
    """The log's own positions when the process died."""
    is_closed: bool = False
    """Stopped in order: everything is flushed."""

    @property
    def end(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.start

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)
        for offset, name in batch.records():
            self.ever.setdefault(offset, {})[name] = None

    def cut(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.sequences = next_sequences(self.batches)

    def names(self) -> dict[int, str]:
        return {offset: name for batch in self.batches for offset, name in batch.records()}


def next_sequences(batches: list[Batch]) -> dict[int, int]:
    """The next sequences of idempotent producers; those with transactions are a scenario of their own."""
    return {
        batch.producer_id: batch.base_sequence + len(batch.names)
        for batch in batches
        if batch.producer_id >= 0 and not batch.is_transactional
    }


class Life:
    """One process with its log manager, and the driver's work in it."""

    def __init__(self, scenario: LogScenario, process: SimulatedProcess) -> None:
        self.scenario = scenario
        self.draw = scenario.draw
        self.process = process
        self.clock = SimulatedClock(process)
        self.manager: LogManager
        self.search: RecordSearch
        self.work: dict[int, asyncio.Task[None]] = {}
        self._next = 0

    async def open(self) -> None:
        config = self.scenario.config
        disks = self.process.machine.disks
        workers = SimulatedWorkers(self.process, JOBS)
        self.search = RecordSearch(workers)
        self.manager = LogManager(
            {path: SimulatedDisk(self.process, image, path) for path, image in disks.items()},
            self.clock,
            workers,
            LogManagerSettings(log_flush_offset_checkpoint_interval_ms=self.draw.choice((200, 60_000))),
            lambda topic: LogConfig(TopicValues(config)),
            DirectoryCallbacks(self._on_directory_failed),
        )
        await self.manager.inspect()
        await self.manager.claim(0, CLUSTER_ID)
        await self.manager.load()
        self.manager.start()

    def _on_directory_failed(self, path: str, error: Exception) -> None:
        where = "".join(traceback.format_exception(error))
        self.process.world.problem(f"the log directory {path} failed, but no fault was injected into it:\n{where}")

    def remember_positions(self) -> None:
        """Takes down what the logs themselves say is written and flushed: the promise to hold them to."""
        for mirror in self.scenario.mirrors.values():
            log = self.manager.get(mirror.partition) if hasattr(self, "manager") else None
            if log is not None:
                mirror.written = max(mirror.written, min(log.state.log_end_offset, _limit(mirror)))
                mirror.flushed = max(mirror.flushed, min(log.state.flushed_offset, _limit(mirror)))

    # -- the driver -------------------------------------------------------------------------------------------------

    async def drive(self, steps: int) -> None:
        """Does `steps` random things, some of them at the same time."""
        actions = self.actions()
        for _ in range(steps):
            mirror = self.draw.choice(list(self.scenario.mirrors.values()))
            log = self.manager.get(mirror.partition)
            if log is None:
                log = await self.manager.get_or_create(mirror.partition, self.scenario.topic_id(mirror), True)
            (action,) = self.draw.choices([act for _, act in actions], [weight for weight, _ in actions])
            if self.draw.random() < 0.5:
                self._background(action(mirror, log))
            else:
                await self._guarded(action(mirror, log))
            if self.draw.random() < 0.3:
                await asyncio.sleep(self.draw.choice((0.0, 0.0005, 0.01, 0.2)))
        for task in list(self.work.values()):
            await task

    def actions(self) -> list[tuple[float, Action]]:
        """What it does, with weights."""
        return [
            (12.0, self._append),
            (3.0, self._append_as_follower),
            (1.5, self._duplicate),
            (2.0, self._flush),
            (4.0, self._read),
            (1.0, self._truncate),
            (0.7, self._advance_start),
            (0.7, self._retain),
            (1.0, self._new_epoch),
            (1.0, self._look_up_time),
            (0.3, self._checkpoint),
            (0.05, self._truncate_fully),
            (0.1, self._delete_topic),
        ]

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        self._next += 1
        key = self._next
        task = self.process.spawn(self._guarded(work), name=f"step-{key}")
        self.work[key] = task
        task.add_done_callback(lambda ended: self.work.pop(key, None))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """A violation in a background step fails the run; a lost race between two steps does not."""
        try:
            await work
        except KafkaError as error:
            if error.code not in _EXPECTED_RACES and not self.scenario.is_deleting:
                self.process.world.problem(f"a step failed: {error!r}")
        except Violation as error:
            self.process.world.problem(str(error))

    def _batch(self, mirror: LogModel, *, producer: int = -1, sequence: int = -1, base: int = 0) -> bytes:
        draw = self.draw
        count = draw.choice((1, 1, 2, 5, 20))
        first = self.scenario.take_names(count)
        return build_batch(
            [f"r/{first + index}" for index in range(count)],
            timestamp_ms=EPOCH_MS + int(self.process.world.loop.time() * 1000) + draw.randrange(-2000, 2000),
            padding=draw.choice((0, 5, 100, 700)),
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
            base_offset=base,
            leader_epoch=mirror.epoch,
        )

    async def _append(self, mirror: LogModel, log: Log) -> None:
        if mirror.cut_asked is not None:
            return
        producer = self.draw.choice((-1, -1, *list(mirror.sequences)[-3:]))
        if self.draw.random() < 0.1 or not mirror.sequences:
            # Never one that the mirror forgot with its batches: the log may remember it.
            producer = self.scenario.take_names(1)
        sequence = mirror.sequences.get(producer, 0) if producer >= 0 else -1
        data = self._batch(mirror, producer=producer, sequence=sequence)
        info = log.append_as_leader(memoryview(bytearray(data)), mirror.epoch)
        if info.is_duplicate or info.first_offset != mirror.end:
            raise Violation(f"{mirror.partition}: appended at {info!r}, expected {mirror.end}")
        (batch,) = read_batches(_placed(data, info.first_offset, mirror.epoch))
        mirror.add(batch)
        if producer >= 0:
            mirror.sequences[producer] = sequence + len(batch.names)
        if self.draw.random() < 0.3:
            await self._written(mirror, log, batch.last_offset + 1)

    async def _written(self, mirror: LogModel, log: Log, offset: int) -> None:
        """Waits until the append is written; a truncation may come between."""
        deadline = self.process.world.loop.time() + WRITTEN_WITHIN_S
        while log.state.log_end_offset < offset and mirror.end >= offset and not log.state.is_failed:
            if self.process.world.loop.time() > deadline:
                raise Violation(f"{mirror.partition}: {offset} is not written after {WRITTEN_WITHIN_S} s")
            await asyncio.sleep(0.001)
        # Cut off and written over meanwhile, it may lie within another batch: no replica's log ends there.
        if any(batch.last_offset + 1 == offset for batch in mirror.batches):
            log.state.maybe_advance_high_watermark(offset)
            if mirror.retentions:
                mirror.start_asked = max(mirror.start_asked, log.state.high_watermark)

    async def _append_as_follower(self, mirror: LogModel, log: Log) -> None:
        if mirror.cut_asked is not None:
            return
        data = bytearray()
        end = mirror.end
        batches = []
        for _ in range(self.draw.choice((1, 2, 5))):
            one = self._batch(mirror, base=end)
            batches += read_batches(one)
            end = batches[-1].last_offset + 1
            data += one
        partial = data + self._batch(mirror, base=end)[: self.draw.choice((0, 5, 30, 62))]
        info = log.append_as_follower(memoryview(bytearray(partial)))
        if (info.first_offset, info.last_offset) != (mirror.end, end - 1):
            raise Violation(f"{mirror.partition}: appended {info!r} as a follower, expected {mirror.end}..{end - 1}")
        for batch in batches:
            mirror.add(batch)
        if self.draw.random() < 0.3:
            await self._written(mirror, log, end)

    async def _duplicate(self, mirror: LogModel, log: Log) -> None:
        """A batch of the last five of its producer, sent again, gets its old offsets; one too far ahead an error."""
        if mirror.cut_asked is not None:
            return
        for producer, following in mirror.sequences.items():
            own = [one for one in mirror.batches if one.producer_id == producer][-5:]
            own = [batch for batch in own if batch.base_offset >= max(log.state.log_start_offset, mirror.start_asked)]
            if not own or own[-1].base_sequence + len(own[-1].names) != following:
                continue
            again = self.draw.choice(own)
            info = log.append_as_leader(memoryview(bytearray(_again(again))), mirror.epoch)
            if (info.is_duplicate, info.first_offset, info.last_offset) != (True, again.base_offset, again.last_offset):
                raise Violation(f"{mirror.partition}: {again} sent again gave {info!r}")
            ahead = self._batch(mirror, producer=producer, sequence=following + 7)
            try:
                info = log.append_as_leader(memoryview(bytearray(ahead)), mirror.epoch)
            except KafkaError as error:
                if error.code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    raise
            else:
                raise Violation(f"{mirror.partition}: a sequence with a gap was taken: {info!r}")

    async def _flush(self, mirror: LogModel, log: Log) -> None:
        await log.flusher.flush()

    async def _new_epoch(self, mirror: LogModel, log: Log) -> None:
        if mirror.cut_asked is None:
            mirror.epoch += self.draw.choice((1, 1, 2))
            log.assign_epoch(mirror.epoch, mirror.end)

    async def _checkpoint(self, mirror: LogModel, log: Log) -> None:
        await self.manager.checkpoint_high_watermarks()

    async def _truncate(self, mirror: LogModel, log: Log) -> None:
        """As a follower does: down to an offset between the high watermark and the end."""
        if mirror.cut_asked is not None:
            return
        ends = [batch.base_offset for batch in mirror.batches if batch.base_offset >= log.state.high_watermark]
        ends = [offset for offset in ends if offset >= mirror.start_asked]
        if not ends:
            return
        target = self.draw.choice(ends[-6:])
        mirror.cut_asked = target
        mirror.written = mirror.flushed = 0
        await log.truncation.truncate_to(target)
        mirror.cut(target)
        mirror.cut_asked = None
        log = self.manager.get(mirror.partition) or log  # it may have moved meanwhile
        if log.state.log_end_offset != mirror.end:
            raise Violation(
                f"{mirror.partition}: cut to {target}, the end is {log.state.log_end_offset}, not {mirror.end}"
            )

    async def _truncate_fully(self, mirror: LogModel, log: Log) -> None:
        """A follower whose leader's log begins beyond its own end."""
        if mirror.cut_asked is not None:
            return
        target = mirror.end + self.draw.randrange(1, 50)
        mirror.cut_asked = 0
        mirror.start_asked = target
        mirror.written = mirror.flushed = 0
        await log.truncation.truncate_fully_and_start_at(target)
        mirror.batches.clear()
        mirror.sequences.clear()
        mirror.cut_asked = None
        mirror.start = target

    async def _advance_start(self, mirror: LogModel, log: Log) -> None:
        if mirror.cut_asked is not None or log.state.high_watermark <= log.state.log_start_offset:
            return
        target = self.draw.randrange(log.state.log_start_offset, log.state.high_watermark + 1)
        mirror.start_asked = max(mirror.start_asked, target)
        await log.retention.advance_log_start_offset(target)
        if mirror.start_asked >= target:
            mirror.start = max(mirror.start, target)

    async def _retain(self, mirror: LogModel, log: Log) -> None:
        mirror.start_asked = max(mirror.start_asked, log.state.high_watermark)
        mirror.retentions += 1
        try:
            await log.retention.delete_old_segments()
        finally:
            mirror.retentions -= 1

    async def _delete_topic(self, mirror: LogModel, log: Log) -> None:
        if self.draw.random() < 0.5 or len(self.scenario.mirrors) < 2:
            return
        self.scenario.is_deleting = True
        self.scenario.mirrors.pop(mirror.partition, None)
        await self.manager.delete(mirror.partition)
        self.scenario.deleted.append(mirror.partition)

    async def _read(self, mirror: LogModel, log: Log) -> None:
        if log.state.log_end_offset <= log.state.log_start_offset:
            return
        offset = self.draw.randrange(log.state.log_start_offset, log.state.log_end_offset)
        upper = self.draw.choice((log.state.log_end_offset, log.state.high_watermark))
        before = mirror.names()
        answer = log.read(offset, self.draw.choice((1, 500, 5000, 1 << 20)), upper, True)
        found = await answer if isinstance(answer, asyncio.Future) else answer
        data = b""
        for chunk in found.chunks:
            data += chunk.read()
            chunk.release()
        if len(data) != found.size:
            raise Violation(f"{mirror.partition}: a read said {found.size} bytes and gave {len(data)}")
        batches = read_batches(data)
        is_there = log.state.log_start_offset <= offset < upper <= log.state.log_end_offset and mirror.cut_asked is None
        is_there = is_there and self.manager.get(mirror.partition) is log
        if is_there and not batches and self.scenario.mirrors.get(mirror.partition) is mirror:
            raise Violation(f"{mirror.partition}: nothing was read at {offset}, below {upper}")
        if batches and not batches[0].base_offset <= offset <= batches[0].last_offset:
            raise Violation(f"{mirror.partition}: reading {offset} began with {batches[0]}")
        now = mirror.names()
        for batch in batches:
            for at, name in batch.records():
                if name not in (before.get(at), now.get(at)):
                    raise Violation(f"{mirror.partition}: read {name} at {at}, expected {now.get(at)}")

    async def _look_up_time(self, mirror: LogModel, log: Log) -> None:
        visible = [batch for batch in mirror.batches if batch.last_offset < log.state.high_watermark]
        visible = [batch for batch in visible if batch.last_offset >= log.state.log_start_offset]
        if not visible or mirror.cut_asked is not None:
            return
        timestamp = self.draw.choice(visible).timestamp_ms + self.draw.choice((-1, 0, 1))
        start = log.state.log_start_offset
        found = await log.timestamps.offset_for_timestamp(timestamp, log.state.high_watermark, self.search)
        if log.state.log_start_offset != start or mirror.cut_asked is not None:
            return
        expected = next((max(batch.base_offset, start) for batch in visible if batch.timestamp_ms >= timestamp), None)
        if expected is not None and (found is None or found.offset > expected):
            raise Violation(f"{mirror.partition}: timestamp {timestamp} is at {expected}, the log says {found}")


class LogScenario:
    """The logs of one machine over all their lives."""

    directories = (1, 2)
    """How many log directories there may be."""
    life: type[Life] = Life

    def __init__(self, world: World) -> None:
        self.world = world
        self.draw = world.stream("scenario")
        self.machine: Machine = world.machine("broker-0", "10.0.0.1")
        self.checker = Checker()
        self.mirrors: dict[TopicPartition, LogModel] = {}
        self.found: dict[TopicPartition, list[Batch]] = {}
        """What the files of each partition held at its last start."""
        self.deleted: list[TopicPartition] = []
        self.is_deleting = False
        self.swaps = 0
        self.names = 0
        paths = [f"/data/d{number}" for number in range(self.draw.choice(self.directories))]
        for path in paths:
            self.machine.disks[path] = DiskImage(path, world.stream(f"image/{path}"))
        self.config = self._config()
        for number in range(self.draw.choice((1, 2, 3))):
            partition = TopicPartition(f"t{number}", number)
            self.mirrors[partition] = LogModel(partition)

    def _config(self) -> dict[str, Any]:
        draw = self.draw
        config = {
            "segment.bytes": draw.choice((20_000, 50_000, 200_000)),
            "index.interval.bytes": draw.choice((100, 1000, 4096)),
            "retention.bytes": draw.choice((-1, -1, 60_000)),
            "flush.messages": draw.choice((1, 7, 2**63 - 1)),
            "file.delete.delay.ms": draw.choice((0, 1000, 60_000)),
        }
        self.world.note(f"flush.messages={config['flush.messages']}")
        return config

    def topic_id(self, mirror: LogModel) -> bytes:
        return random.Random(f"{self.world.seed}/{mirror.partition}").randbytes(16)

    def take_names(self, count: int) -> int:
        self.names += count
        return self.names - count

    async def run(self) -> Checker:
        for _ in range(self.draw.choice((2, 4, 8))):
            await self._one_life()
        return self.checker

    async def _one_life(self) -> None:
        """Opens, checks, works, ends in one of three ways."""
        life = self.life(self, self.machine.start_process())
        process = life.process
        ended: asyncio.Future[str] = self.world.loop.create_future()
        ending = self.draw.choice(("crash", "crash", "power", "power", "stop"))

        def crash() -> None:
            if ended.done():
                return
            try:
                life.remember_positions()
                self._check_flushed_claims(life)
            except Exception as error:
                # Whoever calls this, a callback of the loop or of a lane, has nobody to raise it to.
                process.kill()
                ended.set_exception(error)
                return
            if ending == "power":
                self.machine.lose_power()
            else:
                self.machine.crash_process()
            ended.set_result(ending)

        async def main() -> None:
            await life.open()
            self._verify(life)
            await self.verify_slowly(life)
            await life.drive(self.draw.choice((5, 30, 150)))
            if ending == "stop":
                await life.manager.close()
                for mirror in self.mirrors.values():
                    mirror.is_closed = True
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
        result = await ended
        if result == "stop":
            process.kill()
            if self.draw.random() < 0.5:
                self.machine.lose_power()
        self._after_end(result)
        if self.world.problems:
            raise Violation("; ".join(self.world.problems))

    def _check_flushed_claims(self, life: Life) -> None:
        """The flushed offset that a log claims must be on the platter before the power goes."""
        for mirror in self.mirrors.values():
            if mirror.cut_asked is not None:
                continue
            names = mirror.names()
            end = max(mirror.start, mirror.start_asked)
            for image in self.machine.disks.values():
                directory = image.root.durable.get(f"{mirror.partition.topic}-{mirror.partition.partition}")
                if isinstance(directory, DirectoryNode):
                    for batch in durable_batches(directory):
                        if any(names.get(at) != name for at, name in batch.records() if at >= mirror.start):
                            break
                        end = max(end, batch.last_offset + 1)
            if mirror.flushed > end:
                raise Violation(f"{mirror.partition}: says it is flushed up to {mirror.flushed}, the platter has {end}")

    def _after_end(self, how: str) -> None:
        """What is promised from here on."""
        for mirror in self.mirrors.values():
            limit = _limit(mirror)
            if how == "stop":
                promised = limit
            elif how == "power":
                # With flush.messages=1 a record counts as written once it is flushed, and not before.
                is_flushed = self.config["flush.messages"] == 1
                promised = min(mirror.written if is_flushed else mirror.flushed, limit)
            else:
                promised = min(mirror.written, limit)
            mirror.written = promised

    async def verify_slowly(self, life: Life) -> None:
        """What must be asked of the log itself."""

    def _verify(self, life: Life) -> None:
        """Lays each log beside its mirror, and makes the mirror what was found."""
        for mirror in list(self.mirrors.values()):
            log = life.manager.get(mirror.partition)
            promised = mirror.written
            if log is None:
                if promised > max(mirror.start, mirror.start_asked):
                    raise Violation(f"{mirror.partition}: the log is gone; it held {promised} offsets")
                self.mirrors[mirror.partition] = LogModel(mirror.partition, ever=mirror.ever, epoch=mirror.epoch)
                continue
            self._verify_log(mirror, log)
        self.is_deleting = False

    def _verify_log(self, mirror: LogModel, log: Log) -> None:
        name = f"{mirror.partition.topic}-{mirror.partition.partition}"
        start = log.state.log_start_offset
        promised = mirror.written
        if not mirror.start <= start <= max(mirror.start, mirror.start_asked):
            raise Violation(f"{name}: starts at {start}, expected {mirror.start}..{mirror.start_asked}")
        if log.state.log_end_offset < promised and start <= promised:
            raise Violation(f"{name}: ends at {log.state.log_end_offset}, {promised} offsets were safe")
        found: list[Batch] = []
        for image in self.machine.disks.values():
            directory = image.root.entries.get(name)
            if isinstance(directory, DirectoryNode):
                found = read_batches(segment_bytes(directory))
        self.found[mirror.partition] = found
        end = found[-1].last_offset + 1 if found else start
        if end != log.state.log_end_offset and found:
            raise Violation(f"{name}: the files end at {end}, the log says {log.state.log_end_offset}")
        expected = mirror.names()
        names = {at: record for batch in found for at, record in batch.records()}
        for at in range(start, log.state.log_end_offset):
            if at < promised and names.get(at) != expected.get(at):
                raise Violation(
                    f"{name}: offset {at} was {expected.get(at)}, now {names.get(at)}; {promised} were safe"
                )
            if names.get(at) not in mirror.ever.get(at, {}):
                raise Violation(f"{name}: offset {at} is {names.get(at)}, which never stood there")
        self.checker.acknowledged_count += max(0, promised - start)
        self.checker.delivered_count += len(names)
        self._verify_epochs(name, log, found)
        fresh = LogModel(mirror.partition, [batch for batch in found if batch.last_offset >= start], mirror.ever)
        fresh.start = fresh.start_asked = start
        fresh.epoch = max(mirror.epoch, log.state.epochs.latest)
        fresh.sequences = next_sequences(fresh.batches)
        fresh.written = fresh.flushed = 0
        self.mirrors[mirror.partition] = fresh
        if fresh.end != log.state.log_end_offset:
            raise Violation(f"{name}: ends at {log.state.log_end_offset}, its last record is before {fresh.end}")

    def _verify_epochs(self, name: str, log: Log, found: list[Batch]) -> None:
        """Every record's epoch is known, begins at or before it and ends behind it."""
        last_of: dict[int, int] = {}
        first_of: dict[int, int] = {}
        for batch in found:
            if batch.last_offset >= log.state.log_start_offset:
                first_of.setdefault(batch.leader_epoch, batch.base_offset)
                last_of[batch.leader_epoch] = batch.last_offset
        for epoch, last in last_of.items():
            known, end = log.end_of_epoch(epoch)
            following = min(
                (first for other, first in first_of.items() if other > epoch), default=log.state.log_end_offset
            )
            if known != epoch or not last < end <= following:
                raise Violation(
                    f"{name}: epoch {epoch} has records up to {last}, the next one from {following},"
                    f" the log says it is epoch {known} up to {end}"
                )


def _limit(mirror: LogModel) -> int:
    """No promise reaches beyond the end, nor beyond a truncation that is under way."""
    return mirror.end if mirror.cut_asked is None else min(mirror.end, mirror.cut_asked)


def _placed(data: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """A producer's batch with what the leader writes into it; the checksum does not cover these two fields."""
    return base_offset.to_bytes(8, "big") + data[8:12] + leader_epoch.to_bytes(4, "big") + data[16:]


def _again(batch: Batch) -> bytes:
    return build_batch(
        batch.names,
        timestamp_ms=batch.timestamp_ms,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )


async def run(world: World) -> Checker:
    return await LogScenario(world).run()
