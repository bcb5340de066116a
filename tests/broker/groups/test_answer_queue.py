"""The answers of a large rebalance, a few in an iteration of the loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ottla_broker.groups.answer_queue import STEPS_PER_TURN, AnswerQueue


class Loop:
    """Of the Clock port what the queue needs: iterations that the test runs."""

    def __init__(self) -> None:
        self.ready: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.ready.append(callback)

    def iterate(self) -> None:
        ready, self.ready = self.ready, []
        for callback in ready:
            callback()


def test_a_few_are_given_in_an_iteration_of_the_loop_in_their_order() -> None:
    loop: Any = Loop()
    queue, given = AnswerQueue(loop), []
    for number in range(2 * STEPS_PER_TURN + 1):
        queue.put(partial(given.append, number))
    counts = []
    while loop.ready:
        loop.iterate()
        counts.append(len(given))
    assert counts == [STEPS_PER_TURN, 2 * STEPS_PER_TURN, 2 * STEPS_PER_TURN + 1]
    assert given == [*range(2 * STEPS_PER_TURN + 1)]


def test_what_is_put_while_others_wait_comes_behind_them() -> None:
    loop: Any = Loop()
    queue, given = AnswerQueue(loop), []
    for number in range(STEPS_PER_TURN + 1):
        queue.put(partial(given.append, number))
    loop.iterate()
    queue.put(partial(given.append, -1))
    assert len(loop.ready) == 1
    loop.iterate()
    assert given[-2:] == [STEPS_PER_TURN, -1]
