"""Waits until the controller's own broker has a topic in its metadata, as CreateTopics and its neighbours promise.

Bookkeeping around futures: `sent` and `answered` follow the UpdateMetadata requests to the controller's broker, which
answers them in order. Not here: time limits (`controller`).
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
    """What the controller must have decided, for example that every partition has a leader."""
    future: asyncio.Future[None]
    needed: int | None
    """The number of the last request that named the topic; None when it was sent before `is_true`."""


class MetadataWaits:
    """The waits of one controller epoch."""

    def __init__(self) -> None:
        self._sent = 0
        self._answered = 0
        self._underway: deque[int] = deque()
        self._waits: list[_Wait] = []

    def add(self, topic: str, is_true: Callable[[], bool], future: asyncio.Future[None]) -> None:
        """Completes the future once the broker has answered a request that names the topic and was sent when `is_true`.

        To be called after that request has been sent, where `is_true` already.
        """
        self._waits.append(_Wait(topic, is_true, future, self._sent if is_true() else None))
        self._complete()

    def sent(self, topics: Set[str]) -> None:
        """An UpdateMetadata that names these topics has been sent to the broker."""
        self._sent += 1
        self._underway.append(self._sent)
        for wait in self._waits:
            if wait.topic in topics:
                wait.needed = self._sent if wait.is_true() else None

    def answered(self) -> None:
        """The broker has answered the oldest request."""
        self._answered = self._underway.popleft()
        self._complete()

    def reset(self) -> None:
        """The channel to the broker is closed: requests under way get no answer, and full metadata follows."""
        self._underway.clear()

    def fail(self, error: Exception) -> None:
        """Fails every wait: this broker is no longer the active controller."""
        waits, self._waits = self._waits, []
        for wait in waits:
            if not wait.future.done():
                wait.future.set_exception(error)

    def _complete(self) -> None:
        waiting = []
        for wait in self._waits:
            if wait.future.done():
                continue
            if wait.needed is not None and wait.needed <= self._answered:
                wait.future.set_result(None)
            else:
                waiting.append(wait)
        self._waits = waiting
