"""ReceiveMemory: who waits while the requests of a broker hold as much memory as they may (KIP-72).

What counts is what was received, not what a client announces: a connection begins with 4 KiB of its own, and more is
taken as the bytes of a frame come. So a length of 100 MB costs nothing by itself, and no client can reserve what others
need. The price: frames in progress could fill the memory and each wait for the rest of its own. Therefore one of them
goes on beyond the limit, the one that has waited for longest:

    1. A frame that needs more than its share is not read: its bytes stay in the socket. It waits behind those that
       came before it, among frames of the same share (`ReceiveLimits.share`).
    2. Memory becomes free when requests are answered. Whoever waits first gets it.
    3. While none becomes free, the first that waits goes on beyond the limit, by one request of the largest size. It
       gets memory for the whole of its frame, so it waits for nobody any more, and all frames come to their end. It is
       the only one until its frame is complete or it has sent nothing for `_STALL_S`.
    4. While somebody waits, a frame that is not complete after `ReceiveLimits.longest_s` closes its connection. Where
       there is no room beyond the limit either, so does one of which no byte has come for `_LONGEST_STALL_S`: else
       frames that do not come would keep the memory for `longest_s`, one group after the other.

So the buffers hold `limit_bytes` and one request at most, and the first 4 KiB of each connection. A request of up to
4 KiB never waits for the memory that others hold.

Source: kafka.network.SocketServer with org.apache.kafka.common.memory.SimpleMemoryPool, which reserves the announced
length, gives it while any byte is left, and leaves frames that do not come to connections.max.idle.ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from ottla_broker.adapters.buffers import SMALLEST_BYTES, size_of
from ottla_broker.ports.network import ReceiveLimits

_TICK_S: Final = 0.005
_STALL_S: Final = 0.1
_LOOK_AT_FRAMES_S: Final = 1.0
_LONGEST_STALL_S: Final = 2.0
_SHORT_S: Final = 1.0
"""So seldom all connections are asked for the buffers that they do not need."""
_TRIM_S: Final = 10.0
_LITTLE_BYTES: Final = 4 * 1024 * 1024
"""So much is kept without a look at who needs it."""


class Receiver(Protocol):
    """A connection that receives."""

    @property
    def share(self) -> float:
        """The share of the frame in progress; see `ReceiveLimits`."""
        ...

    @property
    def progress(self) -> tuple[int, int]:
        """Changes with every byte that comes: the frames so far, the bytes of the frame in progress."""
        ...

    def receive_on(self) -> None:
        """Asks again for what it waits for, and reads."""
        ...

    def shrink(self) -> None:
        """Gives its buffer back if nothing is in it."""
        ...

    def refuse_frame(self, reason: str) -> None:
        """Closes for a frame that does not come."""
        ...


_Buffer = TypeVar("_Buffer")
_TakenBuffer = TypeVar("_TakenBuffer", covariant=True)


class Buffers(Protocol[_TakenBuffer]):
    """Where buffers come from: a `BufferPool`."""

    @property
    def total_bytes(self) -> int: ...

    @property
    def in_use_bytes(self) -> int: ...

    def take(self, at_least_bytes: int) -> _TakenBuffer: ...

    def take_within(self, at_least_bytes: int, limit_bytes: int) -> _TakenBuffer | None: ...

    def count(self) -> int: ...

    def measure(self) -> int: ...

    def drop_unused(self) -> int: ...


class ReceiveMemory(Generic[_Buffer]):
    """The receive buffers of the connections that are accepted, or of those that the broker opens. See the module.

    Args:
        now: seconds; of the same clock as `call_later`.
    """

    def __init__(
        self,
        pool: Buffers[_Buffer],
        now: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._pool = pool
        self._now = now
        self._call_later = call_later
        self._connections: dict[Receiver, None] = {}
        self._limits: ReceiveLimits | None = None
        self._largest_frame_bytes = 0
        self._waiting: dict[float, dict[Receiver, None]] = {}
        """By share, in the order in which they began to wait."""
        self._is_ticking = False
        self._counted_at = float("-inf")
        self.is_short = False
        """Somebody waits, or has waited a moment ago: whoever has nothing in its buffer gives it back at once."""
        self._short_since = 0.0
        self._beyond: Receiver | None = None
        """The one that goes on beyond the limit, with its progress and when it was first seen there."""
        self._beyond_progress = (0, 0)
        self._beyond_since = 0.0
        self._frames: dict[Receiver, tuple[int, float, int, float]] = {}
        """While somebody waits: the number of the frame in progress, since when it was seen, its bytes, and when the
        last of them were new."""
        self._had_no_room = False
        """Since the last look at the frames somebody found no room beyond the limit either."""
        self._frames_seen_at = float("-inf")
        self._is_trimming = False
        self._seen: dict[Receiver, tuple[int, int]] = {}
        """The progress of each connection at the last trim."""

    def limit(self, limits: ReceiveLimits, largest_frame_bytes: int) -> None:
        """Limits what the frames of listeners hold together, the longest of which has `largest_frame_bytes`."""
        self._limits = limits
        self._largest_frame_bytes = max(self._largest_frame_bytes, largest_frame_bytes)

    @property
    def used_bytes(self) -> int:
        """What the buffers in use hold, without the first 4 KiB of each connection."""
        return max(self._pool.measure() - self._own_bytes, 0)

    @property
    def waiting(self) -> int:
        """Connections that are not read because there is no memory."""
        return sum(map(len, self._waiting.values()))

    def join(self, receiver: Receiver) -> _Buffer:
        """The first buffer of a new connection."""
        self._connections[receiver] = None
        return self.first_buffer()

    def first_buffer(self) -> _Buffer:
        """The buffer of a connection that has nothing in it."""
        return self._take_freely(SMALLEST_BYTES)

    def _take_freely(self, size: int) -> _Buffer:
        if not self._is_trimming and self._pool.total_bytes > _LITTLE_BYTES:
            self._is_trimming = True
            self._call_later(_TRIM_S, self._trim)
        return self._pool.take(size)

    def take(self, receiver: Receiver, size: int, whole: int) -> _Buffer | None:
        """A buffer of at least `size` bytes for a frame in progress; None: the receiver waits for `receive_on`.

        Args:
            whole: what it needs for all of the frame.
        """
        limits, pool = self._limits, self._pool
        if limits is None or limits.limit_bytes <= 0:
            return self._take_freely(size)
        rounded = size_of(size)
        sure = limits.limit_bytes * limits.least_share
        if pool.in_use_bytes + rounded <= sure and pool.total_bytes + rounded <= sure:
            if self._is_ticking:
                self._leave(receiver)
            return self._take_freely(size)
        now = self._now()
        if now - self._counted_at >= _TICK_S:
            self._counted_at = now
            pool.count()
        share = receiver.share
        own = self._own_bytes
        buffer = pool.take_within(size, int(limits.limit_bytes * share) + own)
        if buffer is None and receiver is self._beyond:
            buffer = pool.take_within(whole, limits.limit_bytes + own + size_of(self._largest_frame_bytes + 4))
        if buffer is None:
            self._waiting.setdefault(share, {}).setdefault(receiver)
            self._schedule_tick()
            if not self.is_short:
                self.is_short = True
                self._short_since = now
                for one in list(self._connections):
                    if one is not receiver:
                        one.shrink()
        else:
            self._leave(receiver)
        return buffer

    def wait_no_more(self, receiver: Receiver) -> None:
        """It goes on without more memory."""
        self._leave(receiver)

    def forget(self, receiver: Receiver) -> None:
        """The connection has ended."""
        self._connections.pop(receiver, None)
        self._leave(receiver)
        if receiver is self._beyond:
            self._beyond = None

    @property
    def _own_bytes(self) -> int:
        return SMALLEST_BYTES * len(self._connections)

    def _leave(self, receiver: Receiver) -> None:
        for queue in self._waiting.values():
            queue.pop(receiver, None)

    # While somebody waits

    def _schedule_tick(self) -> None:
        if not self._is_ticking:
            self._is_ticking = True
            self._call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        now = self._now()
        if not self.waiting:
            self._beyond = None
            self._frames.clear()
            if now - self._short_since >= _SHORT_S:
                self.is_short = False
            else:
                self._schedule_tick()
            return
        self._schedule_tick()
        self._counted_at = now
        self._pool.count()
        if not self._let_wait_end() and self.waiting:
            self._let_one_go_beyond(now)
        if now - self._frames_seen_at >= _LOOK_AT_FRAMES_S:
            self._frames_seen_at = now
            self._refuse_slow_frames(now)

    def _let_wait_end(self) -> bool:
        """Gives free memory to those that wait; whether anybody got some."""
        has_given = False
        for share in sorted(self._waiting, reverse=True):
            queue = self._waiting[share]
            for _ in range(len(queue)):
                first = next(iter(queue), None)
                if first is None:
                    break
                first.receive_on()
                if next(iter(queue), None) is first:
                    break
                has_given = True
        return has_given

    def _let_one_go_beyond(self, now: float) -> None:
        one = self._beyond
        if one is not None:
            progress = one.progress
            if progress[0] == self._beyond_progress[0] and progress[1]:
                if progress != self._beyond_progress:
                    self._beyond_progress, self._beyond_since = progress, now
                if now - self._beyond_since < _STALL_S:
                    return
        share = max(share for share, queue in self._waiting.items() if queue)
        queue = self._waiting[share]
        first = self._beyond = next(iter(queue))
        self._beyond_progress, self._beyond_since = first.progress, now
        first.receive_on()
        if first in queue:  # there is no room beyond the limit either: another one, with a smaller frame, may be next
            del queue[first]
            queue[first] = None
            self._had_no_room = True

    def _refuse_slow_frames(self, now: float) -> None:
        assert self._limits is not None
        longest_s = self._limits.longest_s
        waiting = {one for queue in self._waiting.values() for one in queue}
        longest_stall_s = _LONGEST_STALL_S if self._had_no_room else longest_s
        self._had_no_room = False
        before, self._frames = self._frames, {}
        for one in list(self._connections):
            number, size = one.progress
            if size <= SMALLEST_BYTES or one in waiting:
                continue
            known = before.get(one)
            since = moved_at = now
            if known is not None and known[0] == number:
                since = known[1]
                moved_at = known[3] if known[2] == size else now
            if now - since >= longest_s or now - moved_at >= longest_stall_s:
                one.refuse_frame(
                    f"{size} bytes of a request came within {now - since:.0f} s, and others wait for the memory "
                    f"({limits_name(self._limits)})"
                )
            else:
                self._frames[one] = (number, since, size, moved_at)

    # After a peak

    def _trim(self) -> None:
        """Gives the buffers back that nobody has used between two calls."""
        before, self._seen = self._seen, {}
        for one in list(self._connections):
            progress = one.progress
            if before.get(one) == progress:
                one.shrink()
            else:
                self._seen[one] = progress
        self._pool.drop_unused()
        self._is_trimming = self._pool.total_bytes > self._own_bytes + _LITTLE_BYTES
        if self._is_trimming:
            self._call_later(_TRIM_S, self._trim)
        else:
            self._seen.clear()


def limits_name(limits: ReceiveLimits) -> str:
    """The key and its value, for messages."""
    return f"{limits.key}={limits.limit_bytes}"
