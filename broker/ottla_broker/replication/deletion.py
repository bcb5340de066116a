"""DeleteRecords at a partition's leader: the low watermark, and the requests that wait for it (KIP-107).

Lives here: the rule and the delayed requests. Not here: the log start offset of the leader (`storage`). A follower gets
the leader's log start offset with a fetch response, advances its own, and reports it with its next fetch.

Worked example: replicas 1 (leader), 2 and 3, all starting at 0; records below 40 are to go. The leader's log starts at
40 at once, the low watermark is still 0. Broker 2 fetches with log start 40: low watermark 0, because of 3. Broker 3
dies: only live replicas count, the low watermark is 40 and the request is answered.

>>> low_watermark(40, {2: 40, 3: 0}.items(), live=[1, 2, 3])
0
>>> low_watermark(40, {2: 40, 3: 0}.items(), live=[1, 2])
40
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.replication.delayed import TimerWheel

NO_LOW_WATERMARK = -1
_REQUEST_TIMED_OUT = int(ErrorCode.REQUEST_TIMED_OUT)


def low_watermark(own_start: int, follower_starts: Iterable[tuple[int, int]], live: Collection[int]) -> int:
    """The lowest log start offset of the live replicas; -1 while a live follower's is not known.

    Args:
        own_start: the leader's, of its copy in another directory too.
        follower_starts: (broker id, log start offset) of the followers, -1 unknown.
        live: ids of the live brokers.
    """
    return min([own_start, *(start for broker, start in follower_starts if broker in live)])


class DelayedDeleteRecords:
    """A DeleteRecords request some of whose partitions still have records below the offset asked for.

    `finish` is called exactly once: when none is left, or the time is up.
    """

    __slots__ = ("bucket", "finish", "is_done", "pending")

    def __init__(self, finish: Callable[[], None]) -> None:
        self.finish = finish
        self.pending = 0
        self.is_done = False
        self.bucket: dict[Any, None] | None = None

    def one_done(self) -> None:
        """One partition has reached the offset, or failed."""
        self.pending -= 1
        if self.pending == 0 and not self.is_done:
            self.is_done = True
            TimerWheel.disarm(self)
            self.finish()

    def on_timeout(self) -> None:
        if not self.is_done:
            self.is_done = True
            self.finish()


class DeletionQueue:
    """The requests that wait for one partition's low watermark. An entry is the partition's part of the response."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, DelayedDeleteRecords, Any]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int, operation: DelayedDeleteRecords, entry: Any) -> None:
        """`entry` has a writable `error_code` and `low_watermark`; it says REQUEST_TIMED_OUT until it is done."""
        entry.error_code = _REQUEST_TIMED_OUT
        self._waiting.append((offset, operation, entry))
        operation.pending += 1

    def advance(self, watermark: int) -> None:
        """The low watermark is `watermark` now: completes the requests up to it, drops those timed out."""
        ready = [one for one in self._waiting if one[0] <= watermark]
        self._waiting = [one for one in self._waiting if one[0] > watermark and not one[1].is_done]
        for _, operation, entry in ready:
            if not operation.is_done:
                entry.error_code = 0
                entry.low_watermark = watermark
                operation.one_done()

    def fail(self, error_code: int) -> None:
        """This broker no longer leads, or its directory failed."""
        waiting, self._waiting = self._waiting, []
        for _, operation, entry in waiting:
            if not operation.is_done:
                entry.error_code = error_code
                entry.low_watermark = NO_LOW_WATERMARK
                operation.one_done()
