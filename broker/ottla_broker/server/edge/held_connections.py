"""HeldConnections: the connections of clients that are not read while too many requests wait.

All of them are held at once, when the queue is full, and read again in parts, the longest held first. Were they all
read again at once, each part of the queue would cost a call of the kernel for every connection of the broker: with
5 000 members that join their groups, many times what their requests cost.

Example: 1 000 connections, queued.max.requests=500

    500 requests wait     all 1 000 are held
    250 are left          250 are read again; as long as there is room, 250 more in each iteration of the loop
    500 wait again        those that were read again are held, behind the others

Not here: when the queue is full (`request_scheduling`), which listeners are always read (`socket_server`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol


class HoldableConnection(Protocol):
    """A `ClientConnection`."""

    def hold(self) -> None: ...

    def release(self) -> None: ...


class HeldConnections:
    """The held connections of one broker.

    Args:
        call_soon: Clock.call_soon.
        is_full: whether too many requests wait; asked before each release, since a connection that is read again may
            have a request that waits.
        part: how many are read again in one iteration of the loop, at least 1.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], None], is_full: Callable[[], bool], part: int) -> None:
        self._call_soon = call_soon
        self._is_full = is_full
        self._part = part
        self._held: dict[HoldableConnection, None] = {}
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, connections: Iterable[HoldableConnection]) -> None:
        """Holds connections; one that is held already keeps its place."""
        held = self._held
        for connection in connections:
            if connection not in held:
                held[connection] = None
                connection.hold()

    def release(self) -> None:
        """There is room: the first part is read again now, the others in later iterations while there is room."""
        held = self._held
        for _ in range(min(self._part, len(held))):
            if self._is_full():
                return  # `release` is called again
            connection = next(iter(held))
            del held[connection]
            connection.release()
        if held and not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._continue)

    def forget(self, connection: HoldableConnection) -> None:
        """The connection has ended."""
        self._held.pop(connection, None)

    def _continue(self) -> None:
        self._is_scheduled = False
        self.release()
