"""Connections that are not read while too many requests wait, and in which order they are read again."""

from __future__ import annotations

from collections.abc import Callable

from ottla_broker.server.edge.held_connections import HeldConnections


class Connection:
    def __init__(self, on_release: Callable[[], None] = lambda: None) -> None:
        self.is_held = False
        self.calls = 0
        self._on_release = on_release

    def hold(self) -> None:
        self.is_held = True
        self.calls += 1

    def release(self) -> None:
        self.is_held = False
        self.calls += 1
        self._on_release()


class Loop:
    """Runs what is scheduled when the test says so; `is_full` is the queue of requests."""

    def __init__(self, part: int = 2) -> None:
        self.is_full = False
        self.scheduled: list[Callable[[], None]] = []
        self.held = HeldConnections(self.scheduled.append, lambda: self.is_full, part)

    def iterate(self) -> None:
        scheduled, self.scheduled[:] = list(self.scheduled), []
        for callback in scheduled:
            callback()


def test_connections_are_read_again_in_parts_the_longest_held_first() -> None:
    loop, connections = Loop(), [Connection() for _ in range(5)]
    loop.held.hold(connections)
    assert all(one.is_held for one in connections)
    loop.held.release()
    assert [one.is_held for one in connections] == [False, False, True, True, True]
    loop.iterate()
    assert [one.is_held for one in connections] == [False, False, False, False, True]
    loop.iterate()
    assert not any(one.is_held for one in connections) and not loop.scheduled


def test_those_that_were_read_again_are_held_behind_the_others_when_the_queue_is_full_again() -> None:
    loop, connections = Loop(), [Connection() for _ in range(4)]
    loop.held.hold(connections)
    loop.held.release()
    loop.is_full = True
    loop.held.hold(connections)
    loop.iterate()
    assert all(one.is_held for one in connections)
    assert [one.calls for one in connections] == [3, 3, 1, 1], "the others are not touched"
    loop.is_full = False
    loop.held.release()
    assert [one.is_held for one in connections] == [True, True, False, False]


def test_a_request_of_a_released_connection_that_fills_the_queue_ends_the_part() -> None:
    loop = Loop(part=10)

    def fill() -> None:
        loop.is_full = True

    first, second = Connection(fill), Connection()
    loop.held.hold([first, second])
    loop.held.release()
    assert (first.is_held, second.is_held) == (False, True)
    assert not loop.scheduled, "whoever makes room calls again"


def test_a_connection_that_has_ended_is_forgotten() -> None:
    loop, ended, other = Loop(part=1), Connection(), Connection()
    loop.held.hold([ended, other])
    loop.held.forget(ended)
    loop.held.release()
    assert (ended.calls, other.is_held, len(loop.held)) == (1, False, 0)
