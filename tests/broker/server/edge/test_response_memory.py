"""What many clients do not read is bounded, and whoever has not read for longest pays for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ottla_broker.server.edge.response_memory import LEAST_WAIT_S, LONGEST_STALL_S, LONGEST_WAIT_S, ResponseMemory


class Clock:
    """Virtual time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._timers.append((self.now + delay_s, callback))

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := sorted(((when, call) for when, call in self._timers if when <= end), key=lambda one: one[0]):
            self._timers.remove(due[0])
            self.now = due[0][0]
            due[0][1]()
        self.now = end


class Unread:
    """A connection."""

    def __init__(self) -> None:
        self.reason = ""
        self.unsent_bytes = 100

    def fail(self, reason: str) -> None:
        self.reason = reason


class Memory:
    """A `ResponseMemory` of 1000 bytes, and what it has said."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.changes: list[bool] = []
        clock: Any = self.clock
        self.tested = ResponseMemory(clock, 1000, lambda: self.changes.append(self.tested.is_full))


async def test_above_the_limit_requests_wait_until_the_oldest_unread_answers_are_gone() -> None:
    memory = Memory()
    tested, clock = memory.tested, memory.clock
    connections = [Unread() for _ in range(4)]
    for one in connections:
        tested.hold(one, 300)
        clock.advance(0.01)
    assert (memory.changes, tested.held_bytes) == ([True], 1200)
    clock.advance(LEAST_WAIT_S)
    assert [bool(one.reason) for one in connections] == [True, False, False, False]
    assert "100 bytes" in connections[0].reason and "ottla.queued.max.response.bytes=1000" in connections[0].reason
    assert (memory.changes, tested.held_bytes) == ([True, False], 900)


async def test_a_client_that_reads_in_time_is_not_closed() -> None:
    memory = Memory()
    tested, clock = memory.tested, memory.clock
    connections = [Unread() for _ in range(4)]
    for one in connections:
        tested.hold(one, 300)
    clock.advance(LEAST_WAIT_S / 2)
    tested.hold(connections[2], 0)
    assert memory.changes == [True, False]
    clock.advance(60)
    assert not any(one.reason for one in connections), "below the limit nobody is closed, however slow"


async def test_one_answer_above_the_limit_is_sent() -> None:
    memory = Memory()
    one = Unread()
    memory.tested.hold(one, 5000)
    memory.clock.advance(60)
    assert (memory.changes, one.reason) == ([], "")


async def test_answers_in_pieces_begin_in_their_order_when_there_is_room_and_go_on_without_waiting() -> None:
    memory = Memory()
    tested = memory.tested
    first, second, third = Unread(), Unread(), Unread()
    assert tested.next_piece(first, 600) is None
    waits, waits_behind = tested.next_piece(second, 600), tested.next_piece(third, 300)
    assert waits is not None and waits_behind is not None
    for size in (600, 500, 600):
        assert tested.next_piece(first, size) is None
    assert not waits.done() and not waits_behind.done()
    tested.hold(first, 0)
    assert waits.done() and waits_behind.done()
    assert (tested.held_bytes, memory.changes) == (900, [])


async def test_while_an_answer_in_pieces_waits_clients_that_do_not_read_theirs_are_closed() -> None:
    memory = Memory()
    tested, clock = memory.tested, memory.clock
    lazy, slow, reads, waits = Unread(), Unread(), Unread(), Unread()
    for one in (lazy, slow, reads):
        assert tested.next_piece(one, 300) is None
    begun = tested.next_piece(waits, 900)
    assert begun is not None
    for second in range(1, int(LONGEST_WAIT_S) + 2):
        slow.unsent_bytes -= 1
        assert tested.next_piece(reads, 300) is None
        clock.advance(1)
        assert bool(lazy.reason) is (second > LONGEST_STALL_S)
        assert bool(slow.reason) is (second > LONGEST_WAIT_S)
    assert not reads.reason and not begun.done()
    tested.hold(reads, 0)
    assert begun.done()


async def test_a_piece_that_is_larger_than_those_before_waits_for_room() -> None:
    memory = Memory()
    tested = memory.tested
    small, other = Unread(), Unread()
    assert tested.next_piece(small, 100) is None
    assert tested.next_piece(other, 600) is None
    larger = tested.next_piece(small, 500)
    assert larger is not None and not larger.done()
    assert tested.held_bytes == 600
    tested.hold(other, 0)
    assert larger.done()
    assert tested.held_bytes == 500
