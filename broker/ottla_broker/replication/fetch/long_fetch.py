"""LongFetch: one fetch request of many partitions, from its arrival to its result, in turns with other requests.

What `DelayedFetch` does at once with few partitions is done here in slices of `SLICE`: finding and checking them, what
they have for min_bytes, reading them, and what the session has sent. Between two slices anything may happen:

    to a partition      it is checked again in the slice that reads it, and its records are dropped when they are stale
                        before the result is made
    while it waits      the fetch is registered before the last pass that decides that it waits: progress during a pass
                        makes another pass
    to its session      another request of it, or its end: the context is overtaken, and the result says so

A follower's fetch acknowledges each partition in the slice that checks it first. A session is opened in one step, with
all partitions. Not here: which requests are long (`engine`), who goes first (`server.turns`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from ottla_broker.protocol.generated.fetch import PartitionData
from ottla_broker.protocol.primitives import records_length
from ottla_broker.replication.delayed import TimerWheel
from ottla_broker.replication.fetch import checks
from ottla_broker.replication.fetch.contexts import FetchContext
from ottla_broker.replication.fetch.down_conversion import convert_partitions
from ottla_broker.replication.fetch.fetch_values import (
    READ_COST,
    FetchEnvironment,
    FetchParams,
    FetchReply,
    FetchResult,
    Turn,
)
from ottla_broker.replication.fetch.partition_fetch import PartitionFetch
from ottla_broker.replication.fetch.partition_reads import drop_stale, read_partitions, release


class LongFetch:
    """One fetch request; the `WaitingFetch` of its partitions or its session, and an operation of the timer wheel."""

    __slots__ = (
        "_context",
        "_environment",
        "_has_expired",
        "_has_progress",
        "_is_ended",
        "_is_registered",
        "_params",
        "_reply",
        "_results",
        "_woken",
        "bucket",
        "is_woken",
    )

    def __init__(
        self, context: FetchContext, params: FetchParams, environment: FetchEnvironment, reply: FetchReply
    ) -> None:
        self._context = context
        self._params = params
        self._environment = environment
        self._reply = reply
        self._has_expired = False
        self._has_progress = False
        self._is_ended = False
        """`end_with` has answered."""
        self._is_registered = False
        self._results: list[PartitionData] = []
        """What is read and not answered yet."""
        self._woken: asyncio.Future[None] | None = None
        self.is_woken = False
        self.bucket: dict[Any, None] | None = None

    async def start(self, turn: Turn) -> None:
        """Answers, possibly after waiting. Raises what `turn` raises; nothing is held then."""
        context, params = self._context, self._params
        available = 0
        for items in context.begin_in_slices():  # to the end: a follower's fetch acknowledges all
            if available < params.min_bytes:
                available = checks.available_bytes(items, params, self._environment, available)
            await turn(len(items))
        may_wait = bool(context.items) or context.waits_without_partitions
        await self.go_on(params.max_wait_ms / 1000 if may_wait and available < params.min_bytes else 0.0, turn)

    async def go_on(self, left_s: float, turn: Turn) -> None:
        """Waits for so long at most, until it is satisfied, and answers. Raises as `start`."""
        try:
            if left_s > 0:
                await self._wait(left_s, turn)
            if self._is_ended:
                return
            if self._params.capabilities.magic is None:
                await self._finish(await self._read_all(turn), turn)
            else:
                await self._convert(turn)
        except BaseException:
            _release_all(self._results)
            raise

    def on_progress(self) -> None:
        """Something happened to one of the partitions."""
        self._has_progress = True
        self._wake()

    def on_timeout(self) -> None:
        """It has waited for max_wait_ms."""
        self._has_expired = True
        self._wake()

    def end_with(self, result: FetchResult) -> None:
        """Answers with this result instead, unless an answer is under way."""
        if self._is_registered:
            self._is_ended = True
            self._stop_waiting()
            self._reply.answer(result)
            self._wake()

    async def _wait(self, longest_s: float, turn: Turn, *, for_progress: bool = False) -> None:
        """Returns when the fetch is satisfied, or has waited long enough, or is ended or overtaken.

        Args:
            for_progress: it is not satisfied before something happens, whatever its partitions have.
        """
        context, params = self._context, self._params
        self._has_progress = False
        context.register(self)
        self._is_registered = True
        self._environment.replicas.wheel.arm(self, longest_s)
        try:
            while not (self._is_ended or self._has_expired or context.is_overtaken):
                if not for_progress:
                    self._has_progress = False
                    if await self._available(turn) >= params.min_bytes:
                        return
                for_progress = False
                if not (self._has_progress or self._is_ended or self._has_expired):
                    self._woken = self._environment.clock.create_future()
                    await self._woken
        finally:
            if self._is_registered:
                self._stop_waiting()

    async def _available(self, turn: Turn) -> int:
        """Checks the partitions again, until there is enough."""
        params = self._params
        available = 0
        for items in self._context.check_in_slices():
            available = checks.available_bytes(items, params, self._environment, available)
            if available >= params.min_bytes or self._is_ended:
                break
            await turn(len(items))
        return available

    def _stop_waiting(self) -> None:
        self._is_registered = False
        TimerWheel.disarm(self)
        self._context.unregister(self)

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def _read_all(self, turn: Turn) -> list[PartitionFetch]:
        """Checks and reads everything that is worth it; gives the items that `_results` belong to."""
        context, left_bytes = self._context, self._params.max_bytes
        read: list[PartitionFetch] = []
        for checked in context.check_in_slices():
            items = context.selected(checked)
            results = await self._read(items, left_bytes)
            read += items
            self._results += results
            left_bytes -= sum([records_length(data.records) for data in results if data.records])
            await turn(len(checked) + len(items) * READ_COST)
        drop_stale(self._results)
        return read

    async def _read(self, items: Sequence[PartitionFetch], left_bytes: int) -> list[PartitionData]:
        done: asyncio.Future[list[PartitionData]] = self._environment.clock.create_future()

        def finish(results: list[PartitionData]) -> None:
            if done.cancelled():  # the broker stops
                _release_all(results)
            else:
                done.set_result(results)

        read_partitions(items, self._params, self._environment, finish, [], left_bytes)
        return await done

    async def _convert(self, turn: Turn) -> None:
        """Reads and converts everything for an old consumer, and answers."""
        params, clock = self._params, self._environment.clock
        while True:
            items: list[PartitionFetch] = []
            for checked in self._context.check_in_slices():
                items += checked
                await turn(len(checked))
            before = [item.requested.fetch_offset for item in items]
            results = self._results = await convert_partitions(items, params, self._environment, turn)
            left_s = params.max_wait_ms / 1000 - (clock.monotonic() - params.received_at)
            has_answer = not results or any(data.records or data.error_code for data in results)
            if has_answer or self._has_expired or left_s <= 0:
                await self._finish(items, turn)
                return
            # Markers of transactions alone, see `DelayedFetch`. Offsets that stay: only progress gives something else.
            is_at_end = before == [item.requested.fetch_offset for item in items]
            await self._wait(left_s, turn, for_progress=is_at_end)

    async def _finish(self, items: Sequence[PartitionFetch], turn: Turn) -> None:
        context, reply, results = self._context, self._reply, self._results
        if reply.has_quota and await reply.is_throttled_in_turns(
            await context.topics_in_turns(items, results, turn), turn
        ):
            self._results = []
            _release_all(results)
            reply.answer(context.throttled())
            return
        result = await context.result_in_turns(items, results, turn)
        self._results = []
        reply.answer(result)


def _release_all(results: Iterable[PartitionData]) -> None:
    for data in results:
        release(data)
