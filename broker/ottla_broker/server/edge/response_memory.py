"""ResponseMemory: what the answers hold that clients have not read.

    ottla.queued.max.response.bytes    of all connections together; 0, the default, is a sixteenth of the memory of the
                                       process. File ranges, the records of most fetches, hold no memory.

A connection whose client does not read is not read either (`connection`), so it holds little more than one answer. The
sum over many connections is bounded here: above it, requests of clients wait, and the connection whose answer has
waited for longest is closed once it has waited for `LEAST_WAIT_S`, until the sum is below. So somebody who opens many
connections and reads none of them loses these, and others wait for no longer than that.

Answers that are made piece by piece do not add to a full memory. Each counts with its largest piece so far until its
end, and the first one, or a larger one, is not made before there is room (`next_piece`). While one waits, those are
closed whose client has read nothing for `LONGEST_STALL_S`, or has not read a piece within `LONGEST_WAIT_S`.

Source: none of Apache Kafka, whose answers are bounded by its heap. KIP-283 for the pieces.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from ottla_broker.ports.clock import Clock

KEY: Final = "ottla.queued.max.response.bytes"
OF_MEMORY: Final = 16
LEAST_WAIT_S: Final = 0.1
LONGEST_STALL_S: Final = 2.0
LONGEST_WAIT_S: Final = 10.0


class UnreadConnection(Protocol):
    """A connection whose client has not read all answers."""

    @property
    def unsent_bytes(self) -> int:
        """What its socket has not taken."""
        ...

    def fail(self, reason: str) -> None:
        """Closes it and logs why."""
        ...


class _Holder:
    """What a connection holds."""

    __slots__ = ("moved_at", "since", "size", "unsent_bytes")

    def __init__(self, size: int, now: float) -> None:
        self.size = size
        self.since = now
        self.moved_at = now
        """When its client was last seen to read."""
        self.unsent_bytes = -1


class ResponseMemory:
    """The unread answers of one broker. See the module.

    Args:
        limit_bytes: 0 or less for no limit.
        on_full_changed: called when `is_full` changes.
    """

    def __init__(self, clock: Clock, limit_bytes: int, on_full_changed: Callable[[], None]) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.is_full = False
        """No request of a client is to be dispatched."""
        self._clock = clock
        self._on_full_changed = on_full_changed
        self._holders: dict[UnreadConnection, _Holder] = {}
        """In the order in which they began to hold something."""
        self._waiting: deque[tuple[UnreadConnection, int, asyncio.Future[None]]] = deque()
        """Those that wait for room, for so many bytes."""
        self._is_watching = False

    def hold(self, connection: UnreadConnection, size: int) -> None:
        """The answers of a connection hold `size` bytes from now on; 0: its client has read them all."""
        holder = self._holders.get(connection)
        if holder is not None:
            self.held_bytes += size - holder.size
            holder.size = size
            if not size:
                del self._holders[connection]
        elif size:
            self.held_bytes += size
            self._holders[connection] = _Holder(size, self._clock.monotonic())
        if self._waiting or self.is_full or 0 < self.limit_bytes < self.held_bytes:
            self._look()

    def next_piece(self, connection: UnreadConnection, size: int) -> asyncio.Future[None] | None:
        """None when the next piece of an answer, of `size` bytes, may be made, else what says when. It holds them then.

        The client has read the piece before, if there was one: what that held is enough for another one of its size.
        """
        holder = self._holders.pop(connection, None)
        if holder is not None and size <= holder.size:
            self._holders[connection] = holder
            holder.since = holder.moved_at = self._clock.monotonic()
            return None
        if holder is not None:
            self.held_bytes -= holder.size
        if not self._waiting and self._has_room(size):
            self.hold(connection, size)
            return None
        future: asyncio.Future[None] = self._clock.create_future()
        self._waiting.append((connection, size, future))
        self._look()
        self._watch()
        return future

    def _has_room(self, size: int) -> bool:
        return self.limit_bytes <= 0 or not self._holders or self.held_bytes + size <= self.limit_bytes

    def _look(self) -> None:
        while self._waiting and (self._waiting[0][2].done() or self._has_room(self._waiting[0][1])):
            connection, size, future = self._waiting.popleft()
            if not future.done():
                self.held_bytes += size
                self._holders[connection] = _Holder(size, self._clock.monotonic())
                future.set_result(None)
        # A single answer above the limit keeps nobody from another one.
        is_full = 0 < self.limit_bytes < self.held_bytes and len(self._holders) > 1
        if is_full:
            self._watch()
        if is_full is not self.is_full:
            self.is_full = is_full
            self._on_full_changed()

    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._clock.call_later(LEAST_WAIT_S, self._close_unread)

    def _close_unread(self) -> None:
        self._is_watching = False
        now = self._clock.monotonic()
        for connection, holder in list(self._holders.items()):
            unsent = connection.unsent_bytes
            if unsent != holder.unsent_bytes or not unsent:
                holder.unsent_bytes, holder.moved_at = unsent, now
            is_over = 0 < self.limit_bytes < self.held_bytes and len(self._holders) > 1
            age = now - holder.since
            is_slow = now - holder.moved_at >= LONGEST_STALL_S or (age >= LONGEST_WAIT_S and unsent)
            if (is_over and unsent and age >= LEAST_WAIT_S) or (self._waiting and is_slow):
                connection.fail(
                    f"its client has not read {unsent} bytes of answers for {age:.1f} s, and all that wait to be read "
                    f"hold {self.held_bytes} bytes ({KEY}={self.limit_bytes})"
                )
                self.hold(connection, 0)
        self._look()
        if self.is_full or self._waiting:
            self._watch()
