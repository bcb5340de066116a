"""Waiting until the controller's own broker has heard of a topic, as CreateTopics and its like promise.

Pure bookkeeping around futures: `sent` and `answered` follow the UpdateMetadata requests to the own broker, which are
answered in order. Not here: time limits (`controller`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Set
from dataclasses import dataclass


@dataclass(slots=True)
class _Wait:
    topic: str
    is_true: Callable[[], bool]
    """What the controller must have decided (every partition has a leader)."""
    future: asyncio.Future[None]
    needed: int
    """Number of the last request that told of the topic."""


class MetadataWaits:
    """One per term of office."""

    def __init__(self) -> None:
        self._sent = 0
        self._answered = 0
        self._underway: deque[int] = deque()
        self._waits: list[_Wait] = []

    def add(self, topic: str, is_true: Callable[[], bool], future: asyncio.Future[None]) -> None:
        """Completes the future once `is_true` and the own broker has answered the request that told so.

        To be called after the request has been sent.
        """
        self._waits.append(_Wait(topic, is_true, future, self._sent))
        self._complete()

    def sent(self, topics: Set[str]) -> None:
        """An UpdateMetadata naming these topics went to the own broker."""
        self._sent += 1
        self._underway.append(self._sent)
        for wait in self._waits:
            if wait.topic in topics:
                wait.needed = self._sent

    def answered(self) -> None:
        """The own broker has answered the oldest one."""
        self._answered = self._underway.popleft()
        self._complete()

    def reset(self) -> None:
        """The queue to the own broker was closed: what is under way gets no answer, and full metadata follows."""
        self._underway.clear()

    def give_up(self, error: Exception) -> None:
        """Fails all: this broker is no longer the controller."""
        waits, self._waits = self._waits, []
        for wait in waits:
            if not wait.future.done():
                wait.future.set_exception(error)

    def _complete(self) -> None:
        waiting = []
        for wait in self._waits:
            if wait.future.done():
                continue
            if wait.needed <= self._answered and wait.is_true():
                wait.future.set_result(None)
            else:
                waiting.append(wait)
        self._waits = waiting
