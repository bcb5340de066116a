"""Whose turn it is when there is more to do than one turn of the loop should take: the controller's first (KIP-291).

A broker is one loop. Requests are dispatched as they are read, so there is no queue that a control request could stand
in behind produce and fetch requests, except the turn of the loop itself: with a thousand busy connections, or with one
that has sent a thousand requests at once, it would last as long as all of them. So data requests share slices of
`DATA_SLICE_S`. What comes when a slice is used up within one turn of the loop waits in `DataTurns`, its connection
paused, in the order of arrival; the loop looks at its sockets between two slices, and a control request is dispatched
when it is read. It waits for one slice at most, however many clients there are.

Control requests are known by their API key, on every listener, as a file that names one listener asks for; with
`control.plane.listener.name` they also have a connection limit and a port of their own. Not here: the order of requests
and answers of one connection (`connection`), which stays what it is.

The price for data requests: a comparison each, and a callback once in a slice.
"""

from __future__ import annotations

from collections import deque
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


class Waiting(Protocol):
    """A connection that holds a request back."""

    def take_turn(self) -> None:
        """Dispatches it, if it still may."""


class DataTurns:
    """The slices of one broker. `ends` is read by the connections: until then data requests go straight on."""

    def __init__(self, clock: Clock) -> None:
        self.ends = 0.0
        self._clock = clock
        self._is_same_turn = False
        """No turn of the loop has begun since the slice did."""
        self._waiting: deque[Waiting] = deque()
        self._is_due = False
        """`_go_on` is called in the next turn."""

    def may_go_on(self, now: float) -> bool:
        """Whether a data request that comes at `now`, with the slice over, begins another one; else it waits."""
        if self._is_same_turn or self._waiting:
            return False
        self._begin(now)
        return True

    def wait(self, connection: Waiting) -> None:
        """`take_turn` is called in a later turn of the loop."""
        self._waiting.append(connection)
        self._go_on_later()

    def _begin(self, now: float) -> None:
        self.ends = now + DATA_SLICE_S
        if not self._is_same_turn:
            self._is_same_turn = True
            self._clock.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_same_turn = False

    def _go_on_later(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._clock.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_due = False
        waiting, monotonic = self._waiting, self._clock.monotonic
        self._begin(monotonic())
        try:
            while waiting and monotonic() < self.ends:
                waiting.popleft().take_turn()
        finally:
            if waiting:  # also when one failed: the loop reports it, and nobody else would ever have a turn again
                self._go_on_later()
