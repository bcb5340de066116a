"""Delayed operations (purgatory): a timer wheel, and produce requests that wait for their acknowledgements.

Every operation completes exactly once. Not here: the delayed fetch (`fetch.delayed_fetch`), which offsets complete a
request (`partition`). Source: kafka.server.DelayedOperationPurgatory, kafka.utils.timer.TimingWheel.

Kafka's wheel has levels that overflow into each other and moves operations from one to the next; with timers that take
any delay a bucket per tick is enough: insertion and removal are one dict operation each, and nothing is moved.

A pending operation costs one dict entry in a tick's bucket and the entries that it leaves in the queues of its
partitions; completing it removes the former at once. The loop's timer heap holds one timer per used tick, never one
per request: 50 000 long polls a second, each finished early, do not make it grow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import takewhile
from typing import Any, Protocol

from ottla_broker.ports import Clock
from ottla_broker.protocol.errors import ErrorCode

_TICKS = ((1.0, 0.01), (60.0, 0.1), (3600.0, 1.0), (86_400.0, 60.0))
"""(delays in seconds below which it is used, length of the tick in seconds)"""
_LONGEST_TICK_S = 3600.0
_REQUEST_TIMED_OUT = int(ErrorCode.REQUEST_TIMED_OUT)


class Expiring(Protocol):
    """What the wheel holds. `bucket` belongs to the wheel: None while not armed."""

    bucket: dict[Any, None] | None

    def on_timeout(self) -> None: ...


class TimerWheel:
    """Calls `on_timeout` after the delay, up to one tick late, never early.

    The tick grows with the delay (10 ms below 1 s, 100 ms below 1 min, 1 s below 1 h, 1 min below a day, then 1 h). A
    tick that was used keeps its timer until it has passed, so there are at most as many timers as ticks: 101 with the
    usual delays of up to 1 s, some 6,400 if clients name every delay there is (max.wait.ms ends at 25 days).

    >>> [tick_of(delay_s) for delay_s in (0.5, 30.0, 600.0, 7_200.0, 2_000_000.0)]
    [0.01, 0.1, 1.0, 60.0, 3600.0]
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[tuple[float, int], dict[Any, None]] = {}

    @property
    def timer_count(self) -> int:
        """Timers that the loop holds for this wheel."""
        return len(self._buckets)

    def count(self, kind: type) -> int:
        """Operations of a class that wait; looks at all of them, for metrics."""
        return sum(isinstance(operation, kind) for bucket in self._buckets.values() for operation in bucket)

    def arm(self, operation: Expiring, delay_s: float) -> None:
        # Nearly all fetches wait for less than a second, nearly all produce requests for less than a minute.
        tick_s = 0.01 if delay_s < 1.0 else 0.1 if delay_s < 60.0 else tick_of(delay_s)
        now = self._clock.monotonic()
        number = int((now + delay_s) / tick_s) + 1
        key = (tick_s, number)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = {}
            self._clock.call_later(max(0.0, number * tick_s - now), self._expire, key)
        bucket[operation] = None
        operation.bucket = bucket

    @staticmethod
    def disarm(operation: Expiring) -> None:
        """Idempotent."""
        bucket = operation.bucket
        if bucket is not None:
            del bucket[operation]
            operation.bucket = None

    def _expire(self, key: tuple[float, int]) -> None:
        self._drain(self._buckets.pop(key))

    def _drain(self, bucket: dict[Any, None]) -> None:
        try:
            while bucket:
                operation = next(iter(bucket))
                del bucket[operation]
                operation.bucket = None
                operation.on_timeout()
        finally:
            if bucket:  # one failed: the loop reports it, the others still have their turn
                self._clock.call_soon(self._drain, bucket)


def tick_of(delay_s: float) -> float:
    """The length of the tick to which a delay is rounded up, in seconds."""
    return next((tick_s for limit_s, tick_s in _TICKS if delay_s < limit_s), _LONGEST_TICK_S)


class DelayedProduce:
    """A produce request some of whose partitions are not acknowledged yet.

    `pending` counts them; `finish` is called exactly once, when it reaches zero or the time is up.
    """

    __slots__ = ("bucket", "finish", "is_done", "pending", "queues")

    def __init__(self, finish: Callable[[], None]) -> None:
        self.finish = finish
        self.queues: list[AckQueue] = []
        self.pending = 0
        self.is_done = False
        self.bucket: dict[Any, None] | None = None

    def one_done(self) -> None:
        """One partition is acknowledged, or failed."""
        self.pending -= 1
        if self.pending == 0 and not self.is_done:
            self.is_done = True
            TimerWheel.disarm(self)
            self.finish()

    def on_timeout(self) -> None:
        if self.is_done:
            return
        self.is_done = True
        for queue in self.queues:
            queue.drop_finished()
        self.finish()


class AckQueue:
    """The requests that wait for one partition to reach an offset, the lowest first.

    An advance only looks at the head. Offsets of appends only grow, but for a batch that an idempotent producer sent
    again: it has the offset of the first and goes before what was appended since. An entry is the partition's part of
    the response: it says REQUEST_TIMED_OUT from the start and anything else once it is done.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, DelayedProduce, Any]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, required_offset: int, operation: DelayedProduce, entry: Any) -> None:
        """`entry` has a writable `error_code` and `base_offset`."""
        entry.error_code = _REQUEST_TIMED_OUT
        waiting = self._waiting
        if waiting and required_offset < waiting[-1][0]:
            behind = sum(1 for _ in takewhile(lambda other: other[0] > required_offset, reversed(waiting)))
            waiting.insert(len(waiting) - behind, (required_offset, operation, entry))
        else:
            waiting.append((required_offset, operation, entry))
        operation.queues.append(self)
        operation.pending += 1

    def advance(self, offset: int, error_code: int = 0) -> None:
        """Everything up to `offset` is acknowledged, with `error_code` (0, or the ISR shrank meanwhile)."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            _, operation, entry = waiting.popleft()
            if not operation.is_done:
                entry.error_code = error_code
                operation.one_done()

    def fail(self, error_code: int) -> None:
        """Nothing that waits will be acknowledged any more."""
        waiting, self._waiting = self._waiting, deque()
        for _, operation, entry in waiting:
            if not operation.is_done:
                entry.error_code = error_code
                entry.base_offset = -1
                operation.one_done()

    def drop_finished(self) -> None:
        """Forgets timed-out requests at the head; one further behind goes when all before it have gone."""
        waiting = self._waiting
        while waiting and waiting[0][1].is_done:
            waiting.popleft()
