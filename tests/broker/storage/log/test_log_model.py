"""A log against a list: appends, truncations, deletions, retention, rolls, reads, kills and orderly ends."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla_broker.config import TopicValues
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.records.compression import Codec
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.reader import A_LOT
from tests.broker.storage.logs import LogSetup, batch, read_bytes, read_values, written

_T = TypeVar("_T")


class LogModel(RuleBasedStateMachine):
    """`values[i]` is the record at offset `start + i`; `batches` are (first offset, next offset, leader epoch)."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.TemporaryDirectory()
        self.values: list[bytes] = []
        self.batches: list[tuple[int, int, int]] = []
        self.start = 0
        self.epoch = 0
        self.count = 0
        self.setup_: LogSetup | None = None
        self.log: Log

    def run_(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self.loop.run_until_complete(work)

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.start

    @initialize(segment_bytes=st.integers(400, 2000), interval=st.integers(0, 400))
    def begin(self, segment_bytes: int, interval: int) -> None:
        async def work() -> None:
            self.values_of_config = {"segment.bytes": segment_bytes, "index.interval.bytes": interval}
            self.setup_ = LogSetup(self.directory.name, self.values_of_config)
            self.log = await self.setup_.open()

        self.run_(work())

    @rule(sizes=st.lists(st.integers(0, 60), min_size=1, max_size=4), codec=st.sampled_from([Codec.NONE, Codec.LZ4]))
    def append(self, sizes: list[int], codec: Codec) -> None:
        async def work() -> None:
            values = [b"%06d" % (self.count + number) + bytes(size) for number, size in enumerate(sizes)]
            self.count += len(values)
            info = self.log.append_as_leader(batch(*values, codec=codec), self.epoch)
            assert info.first_offset == self.end
            self.batches.append((info.first_offset, info.last_offset + 1, self.epoch))
            self.values += values
            await written(self.log)

        self.run_(work())

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule()
    def flush(self) -> None:
        self.run_(self.log.flusher.flush())

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        async def work() -> None:
            offset = self.start + int(share * (self.end - self.start))
            await self.log.truncation.truncate_to(offset)
            # The whole batch of the offset is dropped: with deleted records in it, the log ends below its start.
            self.start = min([self.start, *(first for first, after, _ in self.batches if first < offset < after)])
            self.batches = [one for one in self.batches if one[1] <= offset]
            self.values = self.values[: self.end - self.start]
            self.epoch += 1

        self.run_(work())

    @rule(share=st.floats(0, 1))
    def commit(self, share: float) -> None:
        bounds = [after for _, after, _ in self.batches if after > self.log.state.high_watermark]
        if bounds:
            offset = bounds[int(share * (len(bounds) - 1))]
            assert self.log.state.maybe_advance_high_watermark(offset)
            assert self.log.state.high_watermark == offset

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        """DeleteRecords: also in the middle of a batch."""
        offset = self.start + int(share * max(self.log.state.high_watermark - self.start, 0))
        self.run_(self.log.retention.advance_log_start_offset(offset))
        self.forget_below(offset)

    @rule(kept_bytes=st.integers(0, 3000))
    def retain(self, kept_bytes: int) -> None:
        """retention.bytes deletes whole segments below the high watermark, and no more of them than it takes."""

        async def work() -> None:
            log = self.log
            log.configure(LogConfig(TopicValues({**self.values_of_config, "retention.bytes": kept_bytes})))
            size = log.state.size_bytes
            firsts = [segment.base_offset for segment in log.state.segments] + [self.end]
            count = await log.retention.delete_old_segments()
            assert log.state.log_start_offset in (self.start, *firsts)
            if count:
                assert log.state.log_start_offset <= log.state.high_watermark
                assert log.state.size_bytes >= min(kept_bytes, size) or log.state.log_start_offset == self.start
            log.configure(LogConfig(TopicValues(self.values_of_config)))

        self.run_(work())
        self.forget_below(self.log.state.log_start_offset)

    def forget_below(self, offset: int) -> None:
        self.values = self.values[offset - self.start :]
        self.batches = [one for one in self.batches if one[1] > offset]
        self.start = offset

    @rule(gap=st.integers(0, 50))
    def truncate_fully(self, gap: int) -> None:
        async def work() -> None:
            self.start = self.end + gap
            await self.log.truncation.truncate_fully_and_start_at(self.start)
            self.values, self.batches = [], []

        self.run_(work())

    @rule(is_clean=st.booleans())
    def reopen(self, is_clean: bool) -> None:
        async def work() -> None:
            assert self.setup_ is not None
            recovery_point, start = self.log.state.recovery_point, self.log.state.log_start_offset
            if is_clean:
                await self.log.closer.close()
            self.setup_.crash()
            self.log = await self.setup_.open(is_clean=is_clean, recovery_point=recovery_point, log_start_offset=start)

        self.run_(work())

    @rule(share=st.floats(0, 1), upper_share=st.floats(0, 1), max_bytes=st.integers(0, 500))
    def read_part(self, share: float, upper_share: float, max_bytes: int) -> None:
        async def work() -> None:
            offset = self.start + int(share * (self.end - self.start))
            bounds = [first for first, _, _ in self.batches if first >= offset] + [self.end]
            upper = bounds[int(upper_share * (len(bounds) - 1))]
            data = await read_bytes(self.log, offset, max_bytes, upper)
            if offset < upper:
                holding = next(one for one in self.batches if one[1] > offset)
                assert int.from_bytes(data[:8], "big") == holding[0]
                assert len(data) <= max(max_bytes, 12 + int.from_bytes(data[8:12], "big"))
            else:
                assert data == b""
            estimate = self.log.bytes_between(offset, upper)
            assert estimate == A_LOT or estimate >= len(data) or max_bytes < len(data)

        self.run_(work())

    @precondition(lambda self: self.setup_ is not None)
    @invariant()
    def the_log_is_the_list(self) -> None:
        async def work() -> None:
            log = self.log
            assert (log.state.log_start_offset, log.state.log_end_offset, log.state.assigned_offset) == (
                self.start,
                self.end,
                self.end,
            )
            found = await read_values(log, self.start, 300)
            assert found == [(self.start + number, value) for number, value in enumerate(self.values)]
            expected: list[tuple[int, int]] = []
            for first, _, epoch in self.batches:
                if not expected or expected[-1][0] != epoch:
                    expected.append((epoch, max(first, self.start)))
            # Where nothing is left, the latest epoch is still known.
            assert log.state.epochs.entries == expected or not self.batches
            for offset in (self.start - 1, self.end + 1):
                try:
                    log.read(offset, 10, offset + 1, True)
                except KafkaError:
                    continue
                raise AssertionError(f"offset {offset} is outside of the log and was read")

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


LogModel.TestCase.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLogModel = LogModel.TestCase
