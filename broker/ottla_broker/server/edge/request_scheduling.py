"""Request scheduling: requests of the controller never wait behind a flood of data requests (KIP-291).

A broker is one loop. Requests are dispatched as they are read, so there is no queue in which a control request could
wait behind produce and fetch requests, except one iteration of the loop itself: with a thousand busy connections, or
with one that has sent a thousand requests at once, an iteration would last as long as all of them. So data requests
share slices of `DATA_SLICE_S`. A request that arrives when the slice of this iteration is used up waits in
`RequestScheduler`, its connection paused, in the order of arrival; the loop polls its sockets between two slices, and a
control request is dispatched when it is read. It waits for one slice at most, however many clients there are.

Control requests are known by their API key, on every listener, because a configuration may name only one; with
`control.plane.listener.name` they also have a connection limit and a port of their own. Not here: the order of requests
and responses of one connection (`connection`), which scheduling does not change.

A connection has one waiting request at most. Where queued.max.requests of them wait, no connection of a client is read
until half of that is left. So do Apache Kafka's network threads wait while the request queue is full. The memory of
requests is limited where they are received (`request_memory`).

The price for data requests: a comparison each, and a callback once in a slice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.api import ApiKey

DATA_SLICE_S: Final = 0.005

CONTROL_APIS: Final = frozenset(
    int(key)
    for key in (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        # The first request of every connection, the controller's too.
        ApiKey.API_VERSIONS,
    )
)
"""Few and short, and the fleet waits for them."""


class PausedConnection(Protocol):
    """A connection with a request that waits for a slice."""

    def dispatch_waiting(self) -> None:
        """Dispatches the request, if it still may be."""


class RequestScheduler:
    """The slices of one broker. Connections read `slice_ends` (Clock.monotonic): until then they dispatch.

    Args:
        max_requests: queued.max.requests.
    """

    def __init__(self, clock: Clock, max_requests: int) -> None:
        self.slice_ends = 0.0
        self._clock = clock
        self._is_same_iteration = False
        """No iteration of the loop has begun since the slice did."""
        self._max_requests = max_requests
        self.is_full = False
        """No connection of a client is to be read."""
        self.on_full_changed: Callable[[], None] = _ignore
        self._waiting: deque[PausedConnection] = deque()
        self._is_stopped = False
        self._is_scheduled = False
        """`_run_slice` is called in the next iteration."""

    def may_dispatch(self, now: float) -> bool:
        """Whether a data request that arrives at `now`, after the slice, begins another one; else it waits."""
        if self._is_same_iteration or self._waiting or self._is_stopped:
            return False
        self._begin_slice(now)
        return True

    def wait(self, connection: PausedConnection) -> None:
        """`dispatch_waiting` is called in a later iteration of the loop."""
        self._waiting.append(connection)
        if not self.is_full and len(self._waiting) >= self._max_requests:
            self.is_full = True
            self.on_full_changed()
        self._schedule()

    def stop(self) -> None:
        """Data requests wait until `go_on`, except those of the slice that has begun."""
        self._is_stopped = True

    def go_on(self) -> None:
        """They are dispatched again."""
        self._is_stopped = False
        if self._waiting:
            self._schedule()

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    def _begin_slice(self, now: float) -> None:
        self.slice_ends = now + DATA_SLICE_S
        if not self._is_same_iteration:
            self._is_same_iteration = True
            self._clock.call_soon(self._on_iteration)

    def _on_iteration(self) -> None:
        self._is_same_iteration = False

    def _schedule(self) -> None:
        if not self._is_scheduled and not self._is_stopped:
            self._is_scheduled = True
            self._clock.call_soon(self._run_slice)

    def _run_slice(self) -> None:
        self._is_scheduled = False
        waiting, monotonic = self._waiting, self._clock.monotonic
        self._begin_slice(monotonic())
        try:
            while waiting and not self._is_stopped and monotonic() < self.slice_ends:
                waiting.popleft().dispatch_waiting()
        finally:
            # At half of it, so that connections are not stopped and read again for each request.
            if self.is_full and len(waiting) <= self._max_requests // 2:
                self.is_full = False
                self.on_full_changed()
            if waiting:  # also when one failed: the loop reports it, and the others are dispatched all the same
                self._schedule()


def _ignore() -> None:
    pass
