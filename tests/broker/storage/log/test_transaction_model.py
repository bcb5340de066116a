"""Transactions of a log against a plain list: batches, markers, truncations, deletions, kills and orderly ends.

The model keeps what stands in the log and derives everything from it, each time from the start: the last stable offset,
the aborted transactions of any range, and each segment's index with the last stable offsets it must hold.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla_broker.records.control_records import ControlType, EndTransactionMarker
from ottla_broker.storage.files.transaction_index import AbortedTransaction, decode_entries
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.verification import FROM_CLIENT
from tests.broker.storage.logs import LogSetup, aborted, batch, transactional, written

_T = TypeVar("_T")


class Event(NamedTuple):
    """One batch in the log."""

    first: int
    next: int
    producer: int
    kind: str
    """"plain", "transactional", "ABORT" or "COMMIT"."""


class Transactions(NamedTuple):
    """What the events say: first offset by producer; (first, marker) of each that ended; entries of the aborted."""

    open: dict[int, int]
    ended: list[tuple[int, int]]
    aborted: list[AbortedTransaction]


def derive(events: list[Event]) -> Transactions:
    found = Transactions({}, [], [])
    for event in events:
        if event.kind == "transactional":
            found.open.setdefault(event.producer, event.first)
        elif event.kind != "plain" and event.producer in found.open:
            first = found.open.pop(event.producer)
            found.ended.append((first, event.first))
            if event.kind == "ABORT":
                stable = min(found.open.values(), default=event.next)
                found.aborted.append(AbortedTransaction(event.producer, first, event.first, stable))
    return found


class TransactionModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.TemporaryDirectory()
        self.events: list[Event] = []
        self.start = 0
        self.begin_at = 0
        self.high_watermark = 0
        self.setup_: LogSetup | None = None
        self.log: Log

    def run_(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self.loop.run_until_complete(work)

    @property
    def end(self) -> int:
        return self.events[-1].next if self.events else self.begin_at

    def sequence(self, producer: int) -> int:
        counts = [
            event.next - event.first
            for event in self.events
            if event.producer == producer and event.kind in ("plain", "transactional")
        ]
        return sum(counts)

    @initialize(segment_bytes=st.integers(150, 1500), interval=st.integers(0, 300))
    def begin(self, segment_bytes: int, interval: int) -> None:
        async def work() -> None:
            self.setup_ = LogSetup(
                self.directory.name,
                {"segment.bytes": segment_bytes, "index.interval.bytes": interval, "file.delete.delay.ms": 0},
            )
            self.log = await self.setup_.open()

        self.run_(work())

    @rule(producer=st.integers(1, 4), count=st.integers(1, 3), is_transactional=st.booleans())
    def append(self, producer: int, count: int, is_transactional: bool) -> None:
        async def work() -> None:
            in_transaction = is_transactional or producer in derive(self.events).open
            make = transactional if in_transaction else _plain
            records = make((producer, 0, self.sequence(producer)), *[b"v"] * count)
            info = self.log.append_as_leader(records, 0, transaction=FROM_CLIENT if in_transaction else None)
            assert info.first_offset == self.end and not info.is_duplicate
            kind = "transactional" if in_transaction else "plain"
            self.events.append(Event(info.first_offset, info.last_offset + 1, producer, kind))
            await written(self.log)

        self.run_(work())

    @rule(producer=st.integers(1, 4), kind=st.sampled_from(ControlType))
    def mark(self, producer: int, kind: ControlType) -> None:
        async def work() -> None:
            info = self.log.appender.append_marker(EndTransactionMarker(kind, 0), producer, 0, 0)
            self.events.append(Event(info.first_offset, info.first_offset + 1, producer, kind.name))
            await written(self.log)

        self.run_(work())

    @rule(share=st.floats(0, 1))
    def replicate(self, share: float) -> None:
        self.high_watermark += int(share * (self.end - self.high_watermark))
        self.log.state.maybe_advance_high_watermark(self.high_watermark)

    @rule()
    def flush(self) -> None:
        self.run_(self.log.flusher.flush())

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start + int(share * (self.end - self.start))
        self.run_(self.log.truncation.truncate_to(offset))
        self.events = [event for event in self.events if event.next <= offset]
        self.high_watermark = min(self.high_watermark, self.end)
        self.start = min(self.start, self.end)

    @rule(gap=st.integers(0, 20))
    def truncate_fully(self, gap: int) -> None:
        self.begin_at = self.start = self.high_watermark = self.end + gap
        self.run_(self.log.truncation.truncate_fully_and_start_at(self.start))
        self.events = []

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        async def work() -> None:
            self.start += int(share * (self.high_watermark - self.start))
            await self.log.retention.advance_log_start_offset(self.start)
            await self.log.retention.delete_old_segments()

        self.run_(work())

    @rule(is_clean=st.booleans(), share=st.floats(0, 1))
    def reopen(self, is_clean: bool, share: float) -> None:
        """With a checkpoint of the high watermark that may be an old one."""

        async def work() -> None:
            assert self.setup_ is not None
            recovery_point = self.log.state.recovery_point
            if is_clean:
                await self.log.closer.close()
                recovery_point = self.end
            self.setup_.crash()
            self.high_watermark = self.start + int(share * (self.high_watermark - self.start))
            self.log = await self.setup_.open(
                is_clean=is_clean,
                recovery_point=recovery_point,
                log_start_offset=self.start,
                high_watermark=self.high_watermark,
            )

        self.run_(work())

    @rule(share=st.floats(0, 1), max_bytes=st.integers(0, 500))
    def fetch(self, share: float, max_bytes: int) -> None:
        """The list of a read has every aborted transaction with records in it, and none that a read of the whole log
        would not have."""

        async def work() -> None:
            upper = self.log.state.last_stable_offset
            offset = self.start + int(share * (upper - self.start))
            if offset >= upper:
                return
            answer = self.log.read(offset, max_bytes, upper, True)
            read = answer if isinstance(answer, tuple) else await answer
            data = b"".join(chunk.read() for chunk in read.chunks)
            for chunk in read.chunks:
                chunk.release()
            found = self.log.aborted.aborted_in(read, offset, upper)
            told = found if isinstance(found, list) else await found
            position, last = 0, -1
            while position + 12 <= len(data):
                size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
                if position + size <= len(data):
                    first = int.from_bytes(data[position : position + 8], "big")
                    last = first + int.from_bytes(data[position + 23 : position + 27], "big")
                position += size
            everybody = [one for one in derive(self.events).aborted if one.last_offset >= offset]
            assert [one for one in everybody if one.first_offset <= last] == [
                one for one in told if one.first_offset <= last
            ]
            assert [one for one in told if one not in everybody or one.first_offset >= upper] == []

        self.run_(work())

    @precondition(lambda self: self.setup_ is not None)
    @invariant()
    def transactions_are_what_the_events_say(self) -> None:
        async def work() -> None:
            log = self.log
            expected = derive(self.events)
            assert (log.state.log_end_offset, log.state.high_watermark) == (self.end, self.high_watermark)
            unstable = [*expected.open.values()]
            unstable += [first for first, marker in expected.ended if marker >= self.high_watermark]
            stable = max(min(unstable), self.start) if unstable else self.high_watermark
            assert log.state.last_stable_offset == min(stable, self.high_watermark)
            assert log.state.first_unstable_offset == (stable if unstable else None)
            middle = (self.start + self.end) // 2
            for lower, upper in ((self.start, self.end), (middle, self.end), (self.start, middle)):
                reaching = [one for one in expected.aborted if one.last_offset >= lower and one.first_offset < upper]
                assert await aborted(log, lower, upper) == (reaching if lower < upper else [])
            for segment in log.state.segments:
                index = segment.transactions
                if index is not None:
                    await index.settle()
                path = Path(self.directory.name) / "t-0" / f"{segment.base_offset:020d}.txnindex"
                held = decode_entries(path.name, path.read_bytes()) if path.exists() else []
                assert held == [
                    one for one in expected.aborted if segment.base_offset <= one.last_offset < segment.next_offset
                ]

        self.run_(work())

    def teardown(self) -> None:
        if self.setup_ is not None:

            async def work() -> None:
                assert self.setup_ is not None
                self.setup_.close()
                await asyncio.sleep(0)

            self.run_(work())
        self.loop.close()
        self.directory.cleanup()


def _plain(producer: tuple[int, int, int], *values: bytes) -> memoryview:
    return batch(*values, producer=producer)


TransactionModel.TestCase.settings = settings(
    max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestTransactionModel = TransactionModel.TestCase
