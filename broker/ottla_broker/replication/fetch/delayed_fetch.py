"""DelayedFetch: one fetch request from its arrival to its result; waits in purgatory for min_bytes in between.

Source: kafka.server.DelayedFetch. It is registered with its partitions (or its session, `contexts`) and with the timer
wheel. Each progress of a partition checks the fetch again; it is answered when it is satisfied, or after max_wait_ms.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla_broker.protocol.generated.fetch import PartitionData
from ottla_broker.replication.delayed import TimerWheel
from ottla_broker.replication.fetch import checks
from ottla_broker.replication.fetch.contexts import FetchContext
from ottla_broker.replication.fetch.down_conversion import convert_partitions
from ottla_broker.replication.fetch.fetch_values import FetchEnvironment, FetchParams, FetchReply, FetchResult
from ottla_broker.replication.fetch.long_fetch import LongFetch
from ottla_broker.replication.fetch.partition_reads import read_partitions, release


class DelayedFetch:
    """One fetch request; the `Waiter` of its partitions and an operation of the timer wheel."""

    __slots__ = (
        "_context",
        "_environment",
        "_has_expired",
        "_is_done",
        "_is_registered",
        "_params",
        "_reply",
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
        self._is_done = False
        self._is_registered = False
        self.is_woken = False
        self.bucket: dict[Any, None] | None = None

    def start(self) -> None:
        """Checks every partition; answers, or starts to wait."""
        context, params = self._context, self._params
        context.begin()
        items = context.items
        if (
            params.max_wait_ms <= 0
            or not (items or context.waits_without_partitions)
            or checks.available_bytes(items, params, self._environment) >= params.min_bytes
        ):
            self._answer()
        else:
            self._wait(params.max_wait_ms / 1000)

    def on_progress(self) -> None:
        """Something happened to one of the partitions."""
        if self._is_done or not self._is_registered:
            return
        context, params = self._context, self._params
        if context.has_many:
            self._go_on_in_turns(params.max_wait_ms / 1000 - (self._environment.clock.monotonic() - params.received_at))
            return
        context.check_again()
        if checks.available_bytes(context.items, params, self._environment) >= params.min_bytes:
            self._answer()

    def on_timeout(self) -> None:
        """max_wait_ms have passed."""
        if self._is_done:
            return
        self._has_expired = True
        if self._context.has_many:
            self._go_on_in_turns(0.0)
            return
        self._context.check_again()
        self._answer()

    def end_with(self, result: FetchResult) -> None:
        """Answers with this result instead, unless an answer is under way."""
        if not self._is_done:
            self._is_done = True
            if self._is_registered:
                self._stop_waiting()
            self._reply.answer(result)

    def _wait(self, longest_s: float) -> None:
        self._context.register(self)
        self._is_registered = True
        self._environment.replicas.wheel.arm(self, longest_s)

    def _stop_waiting(self) -> None:
        self._is_registered = False
        TimerWheel.disarm(self)
        self._context.unregister(self)

    def _go_on_in_turns(self, left_s: float) -> None:
        """While it waited, many partitions of its session got news."""
        self._is_done = True
        self._stop_waiting()
        long = LongFetch(self._context, self._params, self._environment, self._reply)
        self._reply.go_on_in_turns(partial(long.go_on, left_s))

    def _answer(self) -> None:
        self._is_done = True
        if self._is_registered:
            self._stop_waiting()
        if self._params.capabilities.magic is not None:
            self._environment.clock.spawn(self._answer_converted(), name="fetch with conversion")
            return
        self._context.select()
        params = self._params
        read_partitions(self._context.items, params, self._environment, self._finish, [], params.max_bytes)

    def _finish(self, results: list[PartitionData]) -> None:
        if self._reply.has_quota and self._reply.is_throttled(self._context.topics(results)):
            for data in results:
                release(data)
            self._reply.answer(self._context.throttled())
        else:
            self._reply.answer(self._context.result(results))

    async def _answer_converted(self) -> None:
        params, clock = self._params, self._environment.clock
        try:
            while True:
                before = self._offsets()
                results = await convert_partitions(self._context.items, params, self._environment)
                left_s = params.max_wait_ms / 1000 - (clock.monotonic() - params.received_at)
                has_answer = not results or any(data.records or data.error_code for data in results)
                if has_answer or self._has_expired or left_s <= 0:
                    self._finish(results)
                    return
                # Markers of transactions alone: there was something, but nothing that these consumers can be shown.
                # Answering would have them ask the same again at once, for ever.
                after = self._offsets()
                self._context.check_again()
                available = checks.available_bytes(self._context.items, params, self._environment)
                if after == before or available < params.min_bytes:
                    break  # offsets that stay: there is room for nothing, and a further look finds the same
            self._is_done = False
            self._wait(left_s)
        except Exception as error:
            self._reply.fail(error)

    def _offsets(self) -> list[int]:
        return [item.requested.fetch_offset for item in self._context.items]
