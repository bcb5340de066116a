"""ChangeNodes: the sequential nodes below one path by which brokers tell each other what has changed in the store.

Whoever changes something adds a node that says what. Every broker watches the children of the path, and reads again
what each new one names. A change node has no values: one that comes twice, late, or after a newer change is harmless.
The first broker to find one older than CHANGE_EXPIRATION_MS deletes it.

Everything is read again where a change may have been missed: after the session has expired; where the number of a
change is missing, or its node is gone before it was read (a broker of Apache Kafka whose clock is wrong deletes it at
once); and where the watch has fired and nothing is new, or nodes are gone before their time.

    /config/changes/config_change_0000000007    {"version":2,"entity_path":"topics/t"}
    /kafka-acl-changes/acl_changes_0000000003   TOPIC:t

Not here: what a change tells, and what is read for it. It uses two ports, Coordination and Clock.

Source: kafka.common.ZkNodeChangeNotificationListener.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ottla_broker.coordination import znodes
from ottla_broker.ports import Clock, Coordination
from ottla_broker.ports.coordination import CoordinationError, NoNode, SessionEvent, WatchEvent
from ottla_broker.server.store.store_watch import StoreWatch

CHANGE_EXPIRATION_MS = 15 * 60 * 1000
_LEAST_AGE_MS = CHANGE_EXPIRATION_MS - 60_000
"""A change node that is deleted earlier after it was seen here is not old by any clock that is right."""


class ChangeNode(NamedTuple):
    """The path and the content of a change."""

    path: str
    data: bytes


class ChangePath(NamedTuple):
    """
    Args:
        root: the path whose children are the change nodes.
        noun: what changes, for the log.
        at_once: how many changes are read and applied together.
        doubts_listed: changes that were there at the start are of unknown age. True: those that go soon after it have
            gone before their time, at the price of reading everything again.
    """

    root: str
    noun: str
    at_once: int = 1
    doubts_listed: bool = False


class ChangeNodes:
    """The change nodes of one path, for one reader. `start`, then `follow`; everything runs on the broker's loop."""

    def __init__(
        self,
        path: ChangePath,
        coordination: Coordination,
        clock: Clock,
        logger: logging.Logger | logging.LoggerAdapter[Any],
        *,
        read_all: Callable[[], Awaitable[None]],
        apply: Callable[[Sequence[ChangeNode]], Awaitable[None]],
    ) -> None:
        """
        Args:
            read_all: reads everything that changes tell of.
            apply: reads what these changes tell of, oldest first.
        """
        self._path = path
        self._coordination = coordination
        self._clock = clock
        self._logger = logger
        self._read_all = read_all
        self._apply = apply
        self._watch = StoreWatch(coordination, clock)
        self._last_seen = -1
        self._known: dict[int, str] = {}
        self._seen_at: dict[int, float] = {}
        self._has_fired = False
        self._expirations = 0
        self._expirations_read = 0
        """`_expirations` when everything was last read."""

    async def start(self) -> None:
        """Reads everything; what changes from here on is seen. Raises CoordinationError."""
        self._coordination.add_session_listener(self._on_session)
        self._watch.listen()
        # The watch is set before anything is read: a change in between is read again, never missed.
        changes = await self._list()
        self._last_seen = max(changes, default=-1)
        await self._read_all()
        for number, name in changes.items():
            self._expire_later(number, name)
        if not self._path.doubts_listed:
            self._seen_at.clear()

    def follow(self) -> None:
        """Reads what changes, until the broker ends."""
        self._clock.spawn(self._watch.follow(self._read), name=self._path.noun)

    async def _read(self) -> None:
        try:
            await self._read_changes()
        except CoordinationError as error:
            self._logger.warning("changes of %s cannot be read yet: %s", self._path.noun, error)
            raise

    async def _read_changes(self) -> None:
        before, has_fired, self._has_fired = self._known, self._has_fired, False
        try:
            changes = await self._list()
        except CoordinationError:
            self._has_fired |= has_fired
            raise
        expirations = self._expirations
        new = {number: name for number, name in changes.items() if number > self._last_seen}
        is_missing = bool(new) and len(new) != max(new) - self._last_seen
        is_missing |= self._are_gone_early(before.keys() - changes.keys()) or (has_fired and changes == before)
        if expirations == self._expirations_read and not is_missing:
            numbers = list(new)
            for start in range(0, len(numbers), self._path.at_once):
                part = numbers[start : start + self._path.at_once]
                found = await self._contents([f"{self._path.root}/{new[number]}" for number in part])
                if found is None:
                    break
                await self._apply(found)
                self._last_seen = part[-1]
                for number in part:
                    self._expire_later(number, new[number])
            else:
                return
        self._expirations_read = -1  # until everything has been read
        await self._read_all()
        for number, name in changes.items():
            if number > self._last_seen:
                self._expire_later(number, name)
        self._last_seen = max(changes, default=self._last_seen)
        self._expirations_read = expirations

    async def _contents(self, paths: Sequence[str]) -> list[ChangeNode] | None:
        """None when one is gone."""
        try:
            if len(paths) == 1:
                contents = [await self._coordination.get(paths[0])]
            else:
                contents = await asyncio.gather(*map(self._coordination.get, paths))
        except NoNode:
            return None
        return [ChangeNode(path, data) for path, (data, _) in zip(paths, contents, strict=True)]

    async def _list(self) -> dict[int, str]:
        """Number and name of each change, oldest first. Nodes of other names are left alone."""
        changes = {}
        for name in await self._coordination.children(self._path.root, watch=self._on_watch):
            try:
                changes[znodes.sequence_number(name)] = name
            except znodes.ZnodeError as error:
                self._logger.warning("ignoring a node that is no change of %s: %s", self._path.noun, error)
        self._known = dict(sorted(changes.items()))
        return self._known

    def _on_watch(self, event: WatchEvent) -> None:
        self._has_fired = True
        self._watch.on_watch(event)

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._expirations += 1

    def _are_gone_early(self, numbers: Iterable[int]) -> bool:
        """Whether one of these nodes was deleted before its time: others that nobody has seen may have been with it."""
        latest = self._clock.monotonic() - _LEAST_AGE_MS / 1000
        seen = [self._seen_at.pop(number, latest) for number in numbers]
        return any(when > latest for when in seen)

    def _expire_later(self, number: int, name: str) -> None:
        self._seen_at[number] = self._clock.monotonic()
        self._clock.call_later(CHANGE_EXPIRATION_MS / 1000, self._expire, f"{self._path.root}/{name}")

    def _expire(self, path: str) -> None:
        self._clock.spawn(self._delete(path), name=f"removal of an old change of {self._path.noun}")

    async def _delete(self, path: str) -> None:
        try:
            await self._coordination.delete(path)
        except CoordinationError:
            # Another broker has deleted it, or one does at its next start.
            return
