"""The `log` scenario with transactional producers.

After every crash or power loss the last stable offset and the aborted transactions of each log must match its batches.

The expected values are computed from all batches in the files, and only for a log that still has its first segment:
otherwise the start of a transaction may be in a deleted segment.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ottla_broker.records.control_records import ControlType, EndTransactionMarker
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.verification import FROM_CLIENT
from simulation.batches import Batch, build_batch, read_batches
from simulation.checker import Checker, Violation
from simulation.scenarios.log import Action, Life, LogModel, LogScenario
from simulation.world import EPOCH_MS, World

_PRODUCERS = 4


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int


class Derived(NamedTuple):
    """What a run of batches says: first offsets of open transactions by producer; (first offset, marker's offset) of
    those that ended; the aborted among them."""

    open: dict[int, int]
    ended: list[tuple[int, int]]
    aborted: list[Aborted]


def derive(batches: list[Batch]) -> Derived:
    found = Derived({}, [], [])
    for batch in batches:
        if not batch.is_transactional:
            continue
        if not batch.is_control:
            found.open.setdefault(batch.producer_id, batch.base_offset)
        elif (first := found.open.pop(batch.producer_id, None)) is not None:
            found.ended.append((first, batch.base_offset))
            if batch.names == ("ABORT",):
                found.aborted.append(Aborted(batch.producer_id, first, batch.base_offset))
    return found


class _ProducerIncarnation(Life):
    def actions(self) -> list[tuple[float, Action]]:
        return [*super().actions(), (12.0, self._append_in_transaction), (8.0, self._end_transaction)]

    async def _append_in_transaction(self, mirror: LogModel, log: Log) -> None:
        if mirror.cut_asked is not None:
            return
        producer = self._producer()
        sequence = _next_sequence(log, producer)
        count = self.draw.choice((1, 1, 2, 5))
        first = self.scenario.take_names(count)
        data = build_batch(
            [f"r/{first + index}" for index in range(count)],
            timestamp_ms=EPOCH_MS + int(self.process.world.loop.time() * 1000),
            padding=self.draw.choice((0, 5, 100, 700)),
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        info = log.append_as_leader(memoryview(bytearray(data)), mirror.epoch, transaction=FROM_CLIENT)
        if info.is_duplicate or info.first_offset != mirror.end:
            raise Violation(f"{mirror.partition}: appended at {info!r}, expected {mirror.end}")
        placed = info.first_offset.to_bytes(8, "big") + data[8:12] + mirror.epoch.to_bytes(4, "big") + data[16:]
        await self._added(mirror, log, placed)

    async def _end_transaction(self, mirror: LogModel, log: Log) -> None:
        """Also where there is none to end."""
        if mirror.cut_asked is not None:
            return
        kind = self.draw.choice((ControlType.ABORT, ControlType.COMMIT))
        producer = self._producer()
        info = log.appender.append_marker(EndTransactionMarker(kind, 0), producer, 0, mirror.epoch)
        if info.first_offset != mirror.end:
            raise Violation(f"{mirror.partition}: a marker stands at {info!r}, expected {mirror.end}")
        marker = Batch(
            base_offset=info.first_offset,
            last_offset=info.first_offset,
            leader_epoch=mirror.epoch,
            producer_id=producer,
            base_sequence=-1,
            is_control=True,
            names=(kind.name,),
            size=0,
            timestamp_ms=-1,
            producer_epoch=0,
            is_transactional=True,
        )
        mirror.add(marker)
        if self.draw.random() < 0.3:
            await self._written(mirror, log, marker.last_offset + 1)

    async def _added(self, mirror: LogModel, log: Log, placed: bytes) -> None:
        (batch,) = read_batches(placed)
        mirror.add(batch)
        if self.draw.random() < 0.3:
            await self._written(mirror, log, batch.last_offset + 1)

    def _producer(self) -> int:
        """Ids that no idempotent producer of this scenario comes to."""
        return (1 << 40) + self.draw.randrange(_PRODUCERS)


class TransactionScenario(LogScenario):
    life = _ProducerIncarnation

    async def verify_slowly(self, life: Life) -> None:
        for mirror in list(self.mirrors.values()):
            log = life.manager.get(mirror.partition)
            if log is None or log.state.segments[0].base_offset or not mirror.batches:
                continue
            await self._verify_transactions(mirror, log)

    async def _verify_transactions(self, mirror: LogModel, log: Log) -> None:
        """`mirror` holds what was found, from the log start offset on: the files hold more."""
        name = str(mirror.partition)
        found = self.found[mirror.partition]
        expected = derive(found)
        unstable = [*expected.open.values()]
        unstable += [first for first, marker in expected.ended if marker >= log.state.high_watermark]
        stable = max(min(unstable), log.state.log_start_offset) if unstable else log.state.high_watermark
        stable = min(stable, log.state.high_watermark)
        if log.state.last_stable_offset != stable:
            raise Violation(
                f"{name}: the last stable offset is {log.state.last_stable_offset}, the batches say {stable} "
                f"(high watermark {log.state.high_watermark})"
            )
        end = log.state.log_end_offset
        for lower, upper in ((log.state.log_start_offset, end), ((log.state.log_start_offset + end) // 2, end)):
            answer = log.aborted.aborted_transactions(lower, upper)
            told = await answer if isinstance(answer, asyncio.Future) else answer
            reaching = [one for one in expected.aborted if one.last_offset >= lower and one.first_offset < upper]
            if lower < upper and [Aborted(*one[:3]) for one in told] != reaching:
                raise Violation(f"{name}: aborted in {lower}..{upper} are {told}, the batches say {reaching}")


def _next_sequence(log: Log, producer: int) -> int:
    """As the log knows it: what a producer that fetched its state again would go on with."""
    for entry in log.state.producers.entries:
        if entry.producer_id == producer:
            return (entry.last_sequence + 1) & 0x7FFFFFFF
    return 0


async def run(world: World) -> Checker:
    return await TransactionScenario(world).run()
